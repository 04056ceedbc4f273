package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/workers"
	"muster/wire"
)

// --- processes of the tests ------------------------------------------------------

// firstPacket looks at the first message to a worker, without taking it.
func firstPacket() (string, error) {
	b := make([]byte, 64<<10)
	n, _, err := syscall.Recvfrom(3, b, syscall.MSG_PEEK)
	return string(b[:n]), err
}

// mixedWorker is the test worker for the first client, and a real one for others.
func mixedWorker() error {
	packet, err := firstPacket()
	if err != nil {
		return err
	}
	if strings.Contains(packet, `"client":1,`) {
		return testWorker()
	}
	return realWorker()
}

// dyingWorker ends when it gets its client, as long as there are files in a folder:
// each worker removes one.
func dyingWorker() error {
	if packet, err := firstPacket(); err != nil || packet == "" {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("MUSTER_TEST_DEATHS"), "*"))
	for _, file := range files {
		if os.Remove(file) == nil {
			return errors.New("this one dies young")
		}
	}
	return testWorker()
}

// adder is a program that adds vectors each time that it is told to. The module
// is descriptor 3.
func adder() error {
	image, err := io.ReadAll(os.NewFile(3, "module"))
	if err != nil {
		return err
	}
	p, err := connect(os.Getenv("MUSTER_TEST_SOCKET"), hello(), 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := p.add(image); err != nil {
			return err
		}
		fmt.Println("added")
	}
	return nil
}

// signalProcess tries to do harm to a process, and prints what the system says.
func signalProcess() error {
	pid, err := strconv.Atoi(os.Getenv("MUSTER_TEST_VICTIM"))
	if err != nil {
		return err
	}
	for _, s := range []syscall.Signal{0, syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGKILL} {
		fmt.Printf("%d: %v\n", int(s), syscall.Kill(pid, s))
	}
	runtime.LockOSThread()
	fmt.Println("trace:", syscall.PtraceAttach(pid))
	_, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	fmt.Println("memory:", errors.Is(err, os.ErrPermission))
	return nil
}

// allRefused is what signalProcess prints of a process that is out of reach.
const allRefused = "0: operation not permitted\n19: operation not permitted\n15: operation not permitted\n9: operation not permitted\n" +
	"trace: operation not permitted\nmemory: true\n"

// as is this binary in a mode, as another user. The user may not be able to reach
// the folder that it lies in.
func as(uid uint32, mode string, environment ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = append(append(os.Environ(), "MUSTER_TEST_PROCESS="+mode), environment...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

func harm(t *testing.T, uid uint32, pid int) string {
	t.Helper()
	out, err := as(uid, "signal", fmt.Sprintf("MUSTER_TEST_VICTIM=%d", pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// workerOf finds the worker of a program: a child of this process, or of another
// daemon, that has the program's ring mapped.
func workerOf(t *testing.T, daemon int, p *program) int {
	t.Helper()
	ring := fmt.Sprintf(" %d ", p.ring)
	for _, pid := range childrenOf(daemon) {
		if !isWorker(pid) {
			continue
		}
		maps, _ := os.ReadFile("/proc/" + pid + "/maps")
		for line := range strings.Lines(string(maps)) {
			if strings.Contains(line, "muster-ring") && strings.Contains(line, ring) {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	t.Fatal("the worker was not found")
	return 0
}

// isWorker says whether a child of this process has become a worker. Until then it has
// its parent's memory, and a parent waits for a child that is stopped so early.
func isWorker(pid string) bool {
	environment, _ := os.ReadFile("/proc/" + pid + "/environ")
	return bytes.Contains(environment, []byte("MUSTER_TEST_PROCESS="))
}

// usersOf returns the real, effective and saved user of a process, and for files.
func usersOf(t *testing.T, pid int) (uids [4]uint32) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nUid:")
	if _, err := fmt.Sscan(rest, &uids[0], &uids[1], &uids[2], &uids[3]); err != nil {
		t.Fatal(err)
	}
	return uids
}

// within fails the test if something takes far too long, rather than hang.
func within(t *testing.T, what string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(4 * time.Minute):
		t.Fatal("it does not end:", what)
	}
}

// descriptors counts what this process has open that daemons and programs use.
func descriptors() map[string]int {
	count := map[string]int{}
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, path := range all {
		target, _ := os.Readlink(path)
		for _, kind := range []string{"socket:", "pipe:", "/memfd:", "anon_inode:[pidfd]"} {
			if strings.HasPrefix(target, kind) {
				count[kind]++
			}
		}
	}
	return count
}

// nothingIsLeft waits until this process has no children and no more descriptors
// and goroutines than before.
func nothingIsLeft(t *testing.T, before map[string]int, goroutines int) {
	t.Helper()
	eventually(t, "nothing is left", func() bool {
		for kind, n := range descriptors() {
			if n > before[kind] {
				return false
			}
		}
		return len(children(t)) == 0 && runtime.NumGoroutine() <= goroutines
	})
}

// --- workers that are stopped ----------------------------------------------------

const stopTimeout = 5 * time.Second // a worker that is only slow answers within it

// silenced checks that a program was ended because its worker was stopped.
func silenced(t *testing.T, p *program) {
	t.Helper()
	within(t, "the program is told", func() error {
		_, err := p.Call(&wire.Synchronise{}, nil)
		var closed *wire.ClosedError
		want := "its worker has not answered for 5s and was killed: it had been stopped, or hung"
		if !errors.As(err, &closed) || closed.Reason != want {
			return fmt.Errorf("got %v\nwant %s", err, want)
		}
		return nil
	})
}

func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has stopped", func() bool { return stateOf(pid) == "T" })
}

// stateOf returns the letter that the system has for what a process does.
func stateOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return string(rest[:min(1, len(rest))])
}

// A worker that is stopped holds up others for a short time only, whatever it has:
// they get it, and finish with the right results.
func TestStoppedWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	before, goroutines := descriptors(), runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		for _, c := range []struct {
			name   string
			worker string
			vgpus  int
			stop   func(t *testing.T, p *program)
		}{
			{"has a slot and says nothing", "real worker", 1, stopIdle},
			{"is told to leave", "mixed worker", 1, stopWhenTold},
			{"has the turn", "real worker", 4, stopWithTurn},
			{"has memory that others need", "real worker", 4, stopWithMemory},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				cfg := testConfig()
				cfg.Devices = cfg.Devices[:1]
				cfg.VGPUs, cfg.WorkerTimeout = c.vgpus, stopTimeout
				opts := testOptions()
				opts.WorkerCommand = workerCommand(c.worker)
				f := runWith(t, cfg, opts)
				image := vecadd(t)
				stopped := mustConnect(t, f)
				others := []*program{mustConnect(t, f), mustConnect(t, f)}
				c.stop(t, stopped)
				for i, other := range others {
					within(t, fmt.Sprintf("program %d", i), func() error {
						return errors.Join(other.do(&wire.MemAlloc{Addr: other.attached.ArenaBase + 64<<20, Size: 100 << 20}, nil, true), other.add(image))
					})
				}
				silenced(t, stopped)
				eventually(t, "it is forgotten", func() bool { return len(statusOf(t, f).Clients) == 2 })
			})
		}
	})
	nothingIsLeft(t, before, goroutines)
}

// stopIdle stops a worker that has the only slot. It never says that it is idle.
func stopIdle(t *testing.T, p *program) {
	addVectors(t, p)
	stopProcess(t, workerOf(t, os.Getpid(), p))
}

// stopWhenTold has the worker stop when it hears that it is to leave.
func stopWhenTold(t *testing.T, p *program) {
	p.synchronise(t)
	if err := p.Post(&wire.HostDone{}); err != nil {
		t.Fatal(err)
	}
}

// stopWithTurn stops a worker in the middle of a kernel that never ends.
func stopWithTurn(t *testing.T, p *program) {
	const spin = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry spin() {\nagain: bra again;\n}\n"
	if err := errors.Join(p.load([]byte(spin), "spin"), p.Post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})); err != nil {
		t.Fatal(err)
	}
	pid := workerOf(t, os.Getpid(), p)
	eventually(t, "it is stopped while it has the turn", func() bool {
		stopProcess(t, pid)
		if hasTurn(t, pid) {
			return true
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
		return false
	})
}

// hasTurn says whether somebody has the turn of the software device that a worker
// stands for.
func hasTurn(t *testing.T, pid int) bool {
	t.Helper()
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range fds {
		if target, _ := os.Readlink(path); !strings.HasPrefix(target, "/memfd:muster-lock") {
			continue
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		const ofdGetLock, turn = 36, 0
		lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: turn, Len: 1}
		if err := syscall.FcntlFlock(file.Fd(), ofdGetLock, &lock); err != nil {
			t.Fatal(err)
		}
		return lock.Type != syscall.F_UNLCK
	}
	t.Fatal("the worker has no lock")
	return false
}

// stopWithMemory stops a worker that has most of the device's memory. Slots are
// free: nobody waits for this one's.
func stopWithMemory(t *testing.T, p *program) {
	if err := p.do(&wire.MemAlloc{Addr: p.attached.ArenaBase + 64<<20, Size: 192 << 20}, nil, true); err != nil {
		t.Fatal(err)
	}
	addVectors(t, p)
	stopProcess(t, workerOf(t, os.Getpid(), p))
}

// --- whose workers are -----------------------------------------------------------

// needUsers returns the range of numbers for workers here, and the first of two
// users that, as far as this test knows, are nobody.
func needUsers(t *testing.T) (all settings.UIDRange, first uint32) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only a node that runs as root gives its workers to users")
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	all, err = workers.ChooseUIDs(settings.UIDRange{}, string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []uint32{3_000_001, 59_001} {
		if workers.IsMapped(settings.UIDRange{First: first, Last: first + 1}, string(text)) && all != (settings.UIDRange{}) {
			return all, first
		}
	}
	need.Missing(t, need.Root, "this container (user namespace) has too few users: see /proc/self/uid_map")
	return
}

// realFixture is a node with real workers and a swap folder that is root's alone.
func realFixture(t *testing.T) *fixture {
	t.Helper()
	cfg := testConfig()
	cfg.Swap.Dir = t.TempDir()
	if err := os.Chmod(cfg.Swap.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	return runWith(t, cfg, opts)
}

// runningAdder is a program of another user.
type runningAdder struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startAdder(t *testing.T, f *fixture, uid uint32) *runningAdder {
	t.Helper()
	module, err := os.Open("../ptx/testdata/kernels/vecadd.nvcc90.ptx")
	if err != nil {
		t.Fatal(err)
	}
	defer module.Close()
	a := &runningAdder{t: t, cmd: as(uid, "adder", "MUSTER_TEST_SOCKET="+f.socket)}
	a.cmd.ExtraFiles = []*os.File{module}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.out = bufio.NewReader(out)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.in.Close(); _ = a.cmd.Wait() })
	a.hears("ready")
	return a
}

func (a *runningAdder) hears(want string) {
	a.t.Helper()
	if line, err := a.out.ReadString('\n'); line != want+"\n" {
		a.t.Fatalf("the program says %q, %v", line, err)
	}
}

func (a *runningAdder) add() {
	a.t.Helper()
	if _, err := a.in.Write([]byte("add\n")); err != nil {
		a.t.Fatal(err)
	}
	a.hears("added")
}

// workersFor lists the workers of this process's nodes whose effective user is uid.
func workersFor(t *testing.T, uid uint32) (found []int) {
	t.Helper()
	for _, pid := range children(t) {
		n, _ := strconv.Atoi(pid)
		environment, _ := os.ReadFile("/proc/" + pid + "/environ")
		if bytes.Contains(environment, []byte("MUSTER_TEST_PROCESS=real worker")) && usersOf(t, n)[1] == uid {
			found = append(found, n)
		}
	}
	return found
}

// A user's worker has the user's rights and is out of the user's reach.
func TestUsersCannotReachTheirWorkers(t *testing.T) {
	numbers, alice := needUsers(t)
	bob := alice + 1
	f := realFixture(t)
	seen := map[uint32]bool{}
	for _, uid := range []uint32{alice, bob} {
		program := startAdder(t, f, uid)
		program.add()
		workers := workersFor(t, uid)
		if len(workers) != 1 {
			t.Fatalf("user %d has workers %v", uid, workers)
		}
		users := usersOf(t, workers[0])
		if own := users[0]; users != [4]uint32{own, uid, own, uid} || !numbers.Has(own) || seen[own] {
			t.Errorf("the worker of user %d has users %v", uid, users)
		}
		seen[users[0]] = true
		for _, who := range []uint32{alice, bob} {
			if got := harm(t, who, workers[0]); got != allRefused {
				t.Errorf("user %d can do harm to a worker of user %d:\n%s", who, uid, got)
			}
		}
		program.add()
	}
	// Root can kill them: they are ended with the node.
	workers := append(workersFor(t, alice), workersFor(t, bob)...)
	close(f.kill)
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
	for _, pid := range workers {
		if stateOf(pid) != "" {
			t.Errorf("worker %d is in state %q after the node's end", pid, stateOf(pid))
		}
	}
}

// Workers of remote users without an account cannot do harm to each other.
func TestRemoteUsersCannotReachEachOther(t *testing.T) {
	numbers, _ := needUsers(t)
	f := realFixture(t)
	var workers []int
	for _, name := range []string{"remote-ann-without-account", "remote-ben-without-account"} {
		h := hello()
		h.Token = wire.SpeaksFor + name
		p, err := connect(f.socket, h, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.leave()
		addVectors(t, p)
		workers = append(workers, workerOf(t, os.Getpid(), p))
	}
	ann, ben := usersOf(t, workers[0]), usersOf(t, workers[1])
	for _, users := range [][4]uint32{ann, ben} {
		if own := users[0]; users != [4]uint32{own, own, own, own} || !numbers.Has(own) {
			t.Errorf("a remote user's worker has users %v", users)
		}
	}
	if got := harm(t, ann[1], workers[1]); ann == ben || got != allRefused {
		t.Errorf("the worker of one remote user (%v) can do harm to that of another (%v):\n%s", ann, ben, got)
	}
}

// --- workers that cannot start -----------------------------------------------------

// deaths makes a folder with so many files, one for each worker that is to die.
func deaths(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// with puts a variable into the environment of a worker.
func with(command []string, variable string) []string {
	return append([]string{command[0], variable}, command[1:]...)
}

// A worker that dies before it is ready is replaced, and the program does not
// notice; but not for ever.
func TestDyingWorkersAreReplaced(t *testing.T) {
	for _, warm := range []int{0, 2} {
		cfg := testConfig()
		cfg.Warm = warm
		opts := testOptions()
		opts.WorkerCommand = with(workerCommand("dying worker"), "MUSTER_TEST_DEATHS="+deaths(t, maxTries-1))
		f := runWith(t, cfg, opts)
		mustConnect(t, f).synchronise(t)
	}
	opts := testOptions()
	opts.WorkerCommand = with(workerCommand("dying worker"), "MUSTER_TEST_DEATHS="+deaths(t, 100))
	f := runWith(t, testConfig(), opts)
	_, err := connect(f.socket, hello(), 0)
	var refused *wire.Refused
	want := "no worker can serve the program: of 3 that were tried each ended before it was ready, the last so: exit status 1: dying worker: this one dies young"
	if !errors.As(err, &refused) || refused.Result != refusal.SystemNotReady || refused.Reason != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	eventually(t, "nothing is left", func() bool { return len(statusOf(t, f).Clients) == 0 })
}

// Workers that were killed while they waited are nobody's trouble.
func TestWarmWorkersAreKilled(t *testing.T) {
	f := run(t, testConfig())
	for range 10 {
		eventually(t, "a worker waits", func() bool { return len(children(t)) > 0 })
		for _, pid := range children(t) {
			n, _ := strconv.Atoi(pid)
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
		p, err := connect(f.socket, hello(), 0)
		if err != nil {
			t.Fatal(err)
		}
		p.synchronise(t)
		p.leave()
	}
}

// A worker that was stopped while it waited is replaced, too.
func TestWarmWorkersAreStopped(t *testing.T) {
	f := run(t, testConfig())
	stopped := 0
	eventually(t, "a worker waits, and is stopped", func() bool {
		for _, pid := range children(t) {
			if n, _ := strconv.Atoi(pid); isWorker(pid) && syscall.Kill(n, syscall.SIGSTOP) == nil {
				stopped++
			}
		}
		return stopped > 0
	})
	start := time.Now()
	p, err := connect(f.socket, hello(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(start); waited > workers.StartTime/2 {
		t.Errorf("it took %v", waited)
	}
	p.synchronise(t)
	p.leave()
}

// Why no worker can be had is in what the program is told.
func TestWhyNoWorker(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "swap")
	shell := func(script string, args ...string) []string {
		return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
	}
	for _, c := range []struct {
		name    string
		command []string
		change  func(*settings.Config)
		want    string
	}{
		{"no such program", []string{"/no/such/program"}, nil, "starting a worker: fork/exec /no/such/program: no such file or directory"},
		{"not a program", []string{"/etc/passwd"}, nil, "starting a worker: fork/exec /etc/passwd: permission denied"},
		{"ends at once", []string{"/bin/true"}, nil, "each ended before it was ready, the last so: it ended by itself"},
		{"a library is missing", shell("echo it needs libnothing.so >&2; exit 127"), nil, "the last so: exit status 127: it needs libnothing.so"},
		{"no memory", shell(`ulimit -v 3000000; exec "$@"`, workerCommand("real worker")...), nil, "is there a limit, ulimit -v?"},
		{"the swap folder went", workerCommand("real worker"), func(c *settings.Config) { c.Swap.Dir = gone },
			"no worker can serve the program: making the swap file: open " + gone},
		{"no device", with(workerCommand("real worker"), "MUSTER_TEST_BROKEN=1"), nil,
			"no worker can serve the program: opening device Big: it is on fire\nopening device Small: it is on fire"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "no memory" && raceDetector {
				t.Skip("the race detector needs more address space than that")
			}
			cfg := testConfig()
			if c.change != nil {
				c.change(&cfg)
			}
			if err := os.Mkdir(gone, 0o700); err != nil {
				t.Fatal(err)
			}
			opts := testOptions()
			opts.WorkerCommand = c.command
			f := runWith(t, cfg, opts)
			_ = os.Remove(gone)
			_, err := connect(f.socket, hello(), 0)
			var refused *wire.Refused
			if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			eventually(t, "nothing is left", func() bool { return len(statusOf(t, f).Clients) == 0 })
		})
	}
}

// --- nothing is left ---------------------------------------------------------------

// Programs come and go, and are ended in every way: nothing of them stays.
func TestNothingPilesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	before, goroutines, mapped := descriptors(), runtime.NumGoroutine(), rings(t)
	t.Run("all", func(t *testing.T) {
		cfg := testConfig()
		f := run(t, cfg)
		mustConnect(t, f).leave() // what is made once is made
		eventually(t, "the first is forgotten", func() bool { return len(statusOf(t, f).Clients) == 0 })
		for i := range need.Rounds(60, 200) {
			p, err := connect(f.socket, hello(), 0)
			if err != nil {
				t.Fatal(i, err)
			}
			endSomehow(t, i, p)
			p.leave()
			p.shared.Unmap()
		}
		eventually(t, "all are forgotten", func() bool {
			s := statusOf(t, f)
			return len(s.Clients) == 0 && s.Committed == 0 && s.Devices[0].Free == s.Devices[0].Memory
		})
		eventually(t, "only warm workers are left, and no zombie", func() bool { return len(children(t)) <= cfg.Warm })
		if n := rings(t) - mapped; n > 1 { // that of the first program
			t.Errorf("%d rings are mapped", n)
		}
	})
	nothingIsLeft(t, before, goroutines)
}

// endSomehow ends the i-th program in one of several ways.
func endSomehow(t *testing.T, i int, p *program) {
	t.Helper()
	switch i % 4 {
	case 0: // it leaves at once
	case 1:
		_ = p.Post(&wire.HostStop{})
	case 2:
		pid, err := p.Call(&wire.StreamQuery{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(int(pid), syscall.SIGKILL)
	case 3:
		p.synchronise(t)
		p.says(t, "nonsense")
	}
}

// rings counts the rings that this process has mapped.
func rings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "muster-ring")
}

// However much a worker writes, its panic is in the log, and not much more.
func TestLastWordsOfWorkers(t *testing.T) {
	var log logbook
	opts := testOptions()
	opts.Log = log.logger()
	f := runWith(t, testConfig(), opts)
	mustConnect(t, f) // another is number 1
	p := mustConnect(t, f)
	if err := p.Post(&wire.StreamDestroy{}); err != nil {
		t.Fatal(err)
	}
	_, err := p.Call(&wire.Synchronise{}, nil)
	var closed *wire.ClosedError
	if !errors.As(err, &closed) || closed.Reason != "its worker has ended: exit status 2: panic: the worker's last words" {
		t.Error(err)
	}
	size, kept, panics, trace := 0, false, false, false
	for _, e := range log.entries(t) {
		if e.Text == "" && e.Msg != "a worker wrote more than is kept" {
			continue
		}
		if e.Client != p.attached.Client {
			t.Errorf("%+v", e)
		}
		size += len(e.Text)
		kept = kept || e.Bytes > 1_000_000
		panics = panics || e.Text == "panic: the worker's last words"
		trace = trace || panics && strings.HasPrefix(e.Text, "goroutine ")
	}
	if size > (64+16)<<10 || !kept || !panics || !trace {
		t.Errorf("the log has %d bytes of it; how much is left out: %v; the panic: %v; where it was: %v", size, kept, panics, trace)
	}
}

// logbook is a log that may be read while it is written.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// entry is a line of the log, as far as these tests look.
type entry struct {
	Msg    string `json:"msg"`
	Client uint64 `json:"client"`
	Text   string `json:"text"`
	Bytes  int    `json:"bytes"`
}

func (l *logbook) entries(t *testing.T) (all []entry) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text.Bytes()) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }
