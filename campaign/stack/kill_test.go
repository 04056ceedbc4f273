package stack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
	"muster/node/ask"
	"muster/wire"
	"muster/wire/client"
)

// testProcess is a process of a test that is this very binary.
func testProcess(mode string) {
	if mode != "victim" {
		fmt.Fprintf(os.Stderr, "there is no process %q\n", mode)
		os.Exit(2)
	}
	var after int
	if _, err := fmt.Sscan(os.Getenv("MUSTER_STACK_AFTER"), &after); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := (&victim{left: after}).live(os.Getenv("MUSTER_STACK_SOCKET")); err != nil {
		fmt.Fprintln(os.Stderr, "the victim:", err)
		os.Exit(1)
	}
}

// victim is a client that kills itself after a number of messages.
type victim struct {
	left int
	*client.Session
}

// step kills the process if its number of messages is reached.
func (v *victim) step() {
	if v.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	v.left--
}

func (v *victim) live(socket string) error {
	hello := client.Hello("victim", 0)
	v.step()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	v.step() // connected, without a message
	if _, err := conn.Write([]byte{1, 2, 3}); err != nil {
		return err
	}
	v.step() // in the middle of a message
	conn.Close()
	if v.Session, err = client.Dial(socket, hello); err != nil {
		return err
	}
	v.step()
	if err := v.Attach(0); err != nil {
		return err
	}
	v.step()
	for _, send := range v.script() {
		if err := send(); err != nil {
			return err
		}
		v.step()
	}
	return nil
}

// script is everything that a program says, in order.
func (v *victim) script() []func() error {
	const size = 5 << 20 // several chunks, several pieces
	base := v.Attached.ArenaBase
	post := func(m wire.Message) func() error { return func() error { return v.Producer.Post(m) } }
	data := func(m wire.Message, bytes []byte) func() error {
		return func() error {
			return v.Producer.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), bytes)
		}
	}
	begin := func(m wire.Message, length uint64) func() error { // without waiting for the answer
		return func() error {
			_, err := v.Producer.Start(wire.Header{Op: m.Op(), Data: at(length, v.Shared.Geometry().Staging), Length: length}, m.Append(nil))
			return err
		}
	}
	call := func(m wire.Message, length uint64) func() error {
		return func() error {
			p, err := v.Producer.Start(wire.Header{Op: m.Op(), Data: at(length, v.Shared.Geometry().Staging), Length: length}, m.Append(nil))
			if err != nil {
				return err
			}
			result, _, err := p.Wait()
			if err == nil && result != 0 {
				err = fmt.Errorf("%v: result %d", m.Op(), result)
			}
			return err
		}
	}
	launch := func(n uint32, stream uint32) *wire.Launch {
		params := binary.LittleEndian.AppendUint64(nil, base)
		params = binary.LittleEndian.AppendUint32(params, n)
		params = binary.LittleEndian.AppendUint32(params, 1)
		return &wire.Launch{Function: 1, Stream: stream, GridX: (n + 127) / 128, GridY: 1, GridZ: 1, BlockX: 128, BlockY: 1, BlockZ: 1, Params: params}
	}
	return []func() error{
		begin(&wire.MemAlloc{Addr: base, Size: size}, 0),
		data(&wire.CopyIn{Dst: base}, make([]byte, 1<<20)),
		data(&wire.CopyIn{Dst: base + 1<<20}, make([]byte, 1<<20)),
		post(&wire.CopyInline{Dst: base, Data: []byte{1, 2, 3, 4}}),
		data(&wire.ModuleData{Module: 1}, []byte(ptx[:100])),
		data(&wire.ModuleData{Module: 1}, []byte(ptx[100:])),
		begin(&wire.ModuleLoad{Module: 1}, 0),
		call(&wire.ModuleFunction{Module: 1, Function: 1, Name: "add"}, 1024),
		post(&wire.StreamCreate{Stream: 1}),
		post(&wire.EventCreate{Event: 1}),
		post(launch(size/4, 1)),
		post(&wire.EventRecord{Event: 1, Stream: 1}),
		begin(&wire.EventSynchronise{Event: 1}, 0),
		post(&wire.SyncPoint{}),
		begin(&wire.HostNext{}, 0),
		post(&wire.HostFunction{Stream: 1, Cookie: 7}),
		post(launch(1000, 1)), // behind a function that never ends
		begin(&wire.CopyOut{Src: base}, 1<<20),
		post(&wire.HostDone{Cookie: 7}),
		call(&wire.Synchronise{}, 0),
		post(&wire.MemFree{Addr: base}),
		call(&wire.Reset{}, 0),
	}
}

// at returns where answers with bytes go.
func at(length, place uint64) uint64 {
	if length == 0 {
		return 0
	}
	return place
}

// ptx is the kernel of testdata/kernels.h.
const ptx = `.version 6.5
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n, .param .u32 v) {
  .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<4>;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  ld.param.u32 %r4, [n]; setp.ge.u32 %q, %r3, %r4; @%q bra end;
  ld.param.u64 %d0, [p]; mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1;
  ld.param.u32 %r5, [v]; ld.global.u32 %r6, [%d2]; add.u32 %r7, %r6, %r5; st.global.u32 [%d2], %r7;
end: ret;
}
`

// A client is killed at each boundary between its messages. It leaves nothing behind, and its
// neighbours do not notice.
func TestClientKilledAtEveryMessage(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M", "--vgpus", "2")
	beside := n.launch(made("small"), "endless", "20000")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	boundaries := 0
	for ; ; boundaries++ {
		cmd := exec.Command(self)
		cmd.Env = n.environment("MUSTER_STACK_PROCESS=victim", "MUSTER_STACK_SOCKET="+n.socket, fmt.Sprint("MUSTER_STACK_AFTER=", boundaries))
		out, err := cmd.CombinedOutput()
		if err == nil {
			break // it came to its end
		}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("after %d messages: %v: %s", boundaries, err, out)
		}
		n.eventually("only the other client is left", func() bool {
			s := n.status()
			return len(s.Clients) == 1 && s.Clients[0].Pid == int32(beside.cmd.Process.Pid) && s.Devices[0].Assigned <= 1
		})
	}
	if boundaries < 20 {
		t.Errorf("only %d boundaries", boundaries)
	}
	select {
	case <-beside.exited:
		t.Errorf("the other program ended: %s", beside.output)
	default:
		beside.kill()
	}
	n.idle()
}

// Real programs are killed while they compute, copy, swap or wait.
func TestProgramsKilledAtRandom(t *testing.T) {
	t.Parallel()
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	n := newWorld(t).start("--devices", "soft:memory=16M,workers=1;soft:memory=8M,workers=1", "--vgpus", "2", "--max-idle", "1ms")
	words := need.Rounds(1<<17, 1<<20)
	for range need.Rounds(5, 60) {
		var doomed []*program
		for range 4 {
			doomed = append(doomed, n.launch(made("small"), "endless", fmt.Sprint(1000+random.IntN(words))))
		}
		steady := n.launch(made("small"), "sums", fmt.Sprint(words/2), "4")
		for _, p := range doomed {
			kernels, copied := uint64(random.IntN(20)), uint64(random.IntN(4<<20))
			n.eventually("the program has done something", func() bool {
				for _, c := range n.status().Clients {
					if c.Pid == int32(p.cmd.Process.Pid) {
						return c.Kernels >= kernels || c.CopiedIn >= copied
					}
				}
				return false
			})
			p.kill()
		}
		steady.right()
	}
	n.idle()
}

// The worker of a program is killed on a node that does not rebuild clients: only that program is
// told.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M", "--vgpus", "4", "--recover", "off")
	beside := n.launch(made("small"), "hold", "1000")
	beside.says("holding")
	p := n.launch(made("small"), "endless", "100000")
	var worker int
	n.eventually("the program computes", func() bool { // a worker that ends before it is ready is replaced
		c, found := n.client(p)
		worker = c.Worker
		return found && c.Kernels > 0 && worker != 0
	})
	_ = syscall.Kill(worker, syscall.SIGKILL)
	if code := p.wait(); code != 1 {
		t.Errorf("the program ended with %d", code)
	}
	if got := p.output.String(); !strings.Contains(got, "muster: its worker has ended: signal: killed") || strings.Count(got, "muster: ") != 1 || !strings.Contains(got, "CUDA_ERROR_") {
		t.Errorf("it said %q", got)
	}
	beside.right()
	n.idle()
}

// Compiled code that does what it must not ends one worker, whose program is told why: the daemon
// and other programs go on. The test breaks the code from outside, as a defect of the compiler or
// of the machine might.
func TestCompiledCodeFaults(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M,engine=compile", "--vgpus", "4", "--recover", "off")
	n.faulty = true
	beside := n.launch(made("small"), "hold", "1000")
	beside.says("holding")
	p := n.launch(made("small"), "endless", "100000")
	var worker int
	n.eventually("the program computes", func() bool {
		c, found := n.client(p)
		worker = c.Worker
		return found && c.Kernels > 0 && worker != 0
	})
	breakCode(t, worker)
	if code := p.wait(); code != 1 {
		t.Errorf("the program ended with %d", code)
	}
	if got := p.output.String(); !strings.Contains(got, "muster: its worker has ended: exit status 2: panic: simt: kernel ") || !strings.Contains(got, "(engine compile)") {
		t.Errorf("it said %q", got)
	}
	beside.right()
	n.launch(made("small"), "hold", "1000").right()
	n.idle()
}

// breakCode replaces the code that a process has compiled by instructions that only the kernel may
// run. It skips the test where nothing is compiled, or the process is out of reach.
func breakCode(t *testing.T, pid int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	broken := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[1] != "r-xp" {
			continue
		}
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		if _, err := memory.WriteAt(bytes.Repeat([]byte{0xf4}, int(to-from)), from); err != nil { // hlt
			t.Fatal(err)
		}
		broken++
	}
	if broken == 0 {
		need.Missing(t, need.CPU, "this machine compiles nothing")
	}
}

// workers returns the daemon's children that serve a client.
func (n *theNode) workers() map[int]bool {
	found := map[int]bool{}
	for _, pid := range n.processes() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if strings.HasPrefix(string(text), made("muster")+"\x00worker") && strings.Contains(string(maps), "/memfd:muster-ring") {
			found[pid] = true
		}
	}
	return found
}

// sharedMemory returns the inodes of what a process shares with others of
// Muster, mapped or open.
func sharedMemory(pid int) map[string]bool {
	found := map[string]bool{}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) > 5 && strings.HasPrefix(fields[5], "/memfd:muster-") {
			found[fields[3]+" "+fields[4]] = true
		}
	}
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range descriptors {
		if name, _ := os.Readlink(path); strings.HasPrefix(name, "/memfd:muster-") {
			var info syscall.Stat_t
			if syscall.Stat(path, &info) == nil {
				found[fmt.Sprintf("%02x:%02x %d", info.Dev>>8&0xff, info.Dev&0xff, info.Ino)] = true
			}
		}
	}
	return found
}

// The daemon is killed under load. The programs end with an error and a reason,
// and nothing is left: no process, no shared memory, no file.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	swap, socket := t.TempDir(), filepath.Join(t.TempDir(), "socket")
	n := w.start("--devices", "soft:memory=8M", "--vgpus", "4", "--max-idle", "1ms", "--swap-dir", swap)
	var programs []*program
	for i := range 6 {
		programs = append(programs, n.launch(made("small"), "endless", fmt.Sprint(20_000*(i+1))))
	}
	n.eventually("all programs compute", func() bool {
		busy := 0
		for _, c := range n.status().Clients {
			if c.Kernels > 5 {
				busy++
			}
		}
		return busy == len(programs)
	})
	memory := map[string]bool{}
	for _, pid := range w.processes() {
		for inode := range sharedMemory(pid) {
			memory[inode] = true
		}
	}
	if len(memory) < 2*len(programs) {
		t.Fatalf("only %d pieces of shared memory were found", len(memory))
	}
	n.kill()
	for _, p := range programs {
		if code := p.wait(); code != 1 {
			t.Errorf("%s ended with %d", p.name, code)
		}
		if got := p.output.String(); strings.Count(got, "muster: ") != 1 || !strings.Contains(got, "CUDA_ERROR_") {
			t.Errorf("it said %q", got)
		}
	}
	w.eventually("no process is left", func() bool { return len(w.processes()) == 0 })
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range all {
		var pid int
		_, _ = fmt.Sscan(filepath.Base(path), &pid)
		for inode := range sharedMemory(pid) {
			if memory[inode] {
				t.Errorf("process %d still has %s", pid, inode)
			}
		}
	}
	if files, _ := filepath.Glob(swap + "/*"); len(files) > 0 {
		t.Errorf("swap files are left: %v", files)
	}
	if _, err := ask.Status(n.socket); err == nil {
		t.Error("somebody answers")
	}

	// With a socket that is a file: the next daemon takes its place.
	for range 2 {
		n := w.start("--devices", "soft:memory=8M", "--socket", socket)
		n.socket = socket
		n.launch(made("small"), "sums").right()
		n.kill()
	}
	n = w.start("--devices", "soft:memory=8M", "--socket", socket)
	n.finish()
	if _, err := os.Stat(socket); err == nil {
		t.Error("a daemon that ends left its socket")
	}
}

// muster run with a private node is killed, or its program: all its processes end.
func TestPrivateNodeKilled(t *testing.T) {
	t.Parallel()
	t.Run("muster run", func(t *testing.T) {
		w := newWorld(t)
		p := w.launchWith([]string{"--private"}, made("small"), "hold", "1000")
		p.says("holding")
		if got := len(w.processes()); got < 4 {
			t.Errorf("%d processes: muster run, the program, the daemon and a worker were expected", got)
		}
		p.kill()
		w.eventually("no process is left", func() bool { return len(w.processes()) == 0 })
	})
	t.Run("the program", func(t *testing.T) {
		w := newWorld(t)
		p := w.launchWith([]string{"--private"}, "/bin/sh", "-c", made("small")+" sums && kill -9 $$")
		p.wait()
		if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Errorf("muster run ended by itself: %v", p.cmd.ProcessState)
		}
	})
	t.Run("its daemon", func(t *testing.T) {
		w := newWorld(t)
		p := w.launchWith([]string{"--private"}, made("small"), "endless", "10000")
		w.eventually("the daemon runs", func() bool {
			for _, pid := range w.processes() {
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if strings.Contains(string(text), "\x00node\x00") && len(w.processes()) >= 4 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					return true
				}
			}
			return false
		})
		if code := p.wait(); code != 1 {
			t.Errorf("the program ended with %d: %s", code, p.output)
		}
	})
}

// A program uses a remote node that does not rebuild clients: whichever side is killed, the other
// notices.
func TestRemoteKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	n := w.start("--devices", "soft:memory=32M", "--listen", "127.0.0.1:0", "--tls-dir", certs, "--recover", "off", "--config", briefly(t))
	way := []string{"--node", n.gateway, "--tls-dir", user}
	launch := func(args ...string) *program { return w.launchWith(way, made("small"), args...) }

	p := launch("hold", "1000")
	p.says("holding")
	p.kill() // muster run, and with it the program
	n.idle()

	p = launch("endless", "100000")
	n.eventually("it computes", func() bool {
		clients := n.status().Clients
		return len(clients) == 1 && clients[0].Kernels > 3
	})
	for pid := range n.workers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if code := p.wait(); code != 1 || !strings.Contains(p.output.String(), "muster: its worker has ended: signal: killed") || strings.Count(p.output.String(), "muster: ") != 1 {
		t.Errorf("without its worker the program ended with %d: %s", code, p.output)
	}
	n.idle()

	p = launch("endless", "100000")
	n.eventually("it computes", func() bool {
		clients := n.status().Clients
		return len(clients) == 1 && clients[0].Kernels > 3
	})
	n.kill()
	if code := p.wait(); code != 1 || strings.Count(p.output.String(), "muster: ") != 1 {
		t.Errorf("without its node the program ended with %d: %s", code, p.output)
	}
}
