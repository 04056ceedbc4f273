package stack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/build"
	"muster/node/ask"
	"muster/wire/status"
)

// The programs of shim/conformance print the result of each call. They must print the same if the
// client is moved to another device, or loses its worker, between any two calls. The library that
// they load here (shim/conformance/c/between.c) asks the test before each call and waits for the
// answer, so that timing does not matter, with one exception: while a host function blocks a
// stream, a move begins before a call and ends when the function has returned.

var buildBetween = sync.OnceValue(func() error {
	if err := os.Mkdir(made("between"), 0o755); err != nil {
		return err
	}
	if err := build.ChangedLibrary("../..", made("between/libcuda.so.1"), "-Wl,--wrap=trace_call,--wrap=trace_result", "../../shim/conformance/c/between.c"); err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"cases", "captures", "graphs", "families", "sequence"} {
		errs = append(errs, command("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O0", "-pthread", "-I../../shim/include", "-o", made("between/"+name), "../../shim/conformance/c/"+name+".c", made("between/libcuda.so.1")))
	}
	return errors.Join(errs...)
})

// between does something to clients before calls of their programs.
type between struct {
	*theNode
	name   string
	do     func(b *between, pid int32, wait bool) error
	done   atomic.Int64 // how often
	failed atomic.Pointer[error]
}

var betweens atomic.Int64

func (n *theNode) between(do func(b *between, pid int32, wait bool) error) *between {
	n.Helper()
	b := &between{theNode: n, name: fmt.Sprintf("muster-between-%d-%d", os.Getpid(), betweens.Add(1)), do: do}
	listener, err := net.Listen("unix", "@"+b.name)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(conn)
		}
	}()
	return b
}

// serve answers one process. A process that gets no answer exits.
func (b *between) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var pid int32
		var call int
		var wait int
		var what string
		if _, err = fmt.Sscan(line, &pid, &call, &wait, &what); err == nil {
			err = b.do(b, pid, wait == 1)
		}
		if err != nil {
			err = fmt.Errorf("before call %d of process %d, %s: %w", call, pid, what, err)
			b.failed.CompareAndSwap(nil, &err)
			return
		}
		if _, err := io.WriteString(conn, "."); err != nil {
			return
		}
	}
}

// clients are those of a process that have a device.
func (b *between) clients(pid int32) ([]status.Client, error) {
	s, err := nodeStatus(b.socket)
	if err != nil {
		return nil, err
	}
	var mine []status.Client
	for _, c := range s.Clients {
		if c.Pid == pid && c.Device != nil {
			mine = append(mine, c)
		}
	}
	return mine, nil
}

// move moves the clients of a process to the other of two devices, and waits until they have left
// their current one.
func (b *between) move(pid int32, wait bool) error {
	mine, err := b.clients(pid)
	if err != nil {
		return err
	}
	for _, c := range mine {
		from := *c.Device
		_, err := ask.MoveClient(b.socket, c.ID, fmt.Sprintf("#%d", 1-from))
		if err != nil && strings.Contains(err.Error(), "already") {
			continue // an earlier move has just ended
		}
		if err != nil {
			return err
		}
		b.done.Add(1)
		for left := !wait; !left; time.Sleep(time.Millisecond) {
			now, err := b.clients(pid)
			if err != nil {
				return err
			}
			left = !slices.ContainsFunc(now, func(d status.Client) bool { return d.ID == c.ID && *d.Device == from })
		}
	}
	return nil
}

// lose kills the workers of a process's clients. The program's next call waits until others have
// replaced them.
func (b *between) lose(pid int32, _ bool) error {
	mine, err := b.clients(pid)
	if err != nil || len(mine) == 0 {
		return err
	}
	shared := sharedMemory(int(pid))
	serves := func(worker int) bool {
		for memory := range sharedMemory(worker) {
			if shared[memory] {
				return true
			}
		}
		return false
	}
	for worker := range b.workers() {
		if serves(worker) {
			b.done.Add(1)
			_ = syscall.Kill(worker, syscall.SIGKILL)
		}
	}
	return nil
}

// play runs a program with something done before calls, and returns what it printed.
func (b *between) play(every, at int, program string, args ...string) string {
	b.Helper()
	limit, stop := context.WithTimeout(b.Context(), patience)
	defer stop()
	c := exec.CommandContext(limit, made("between/"+program), args...)
	c.Env = b.environment("LD_LIBRARY_PATH="+made("between"), "MUSTER_SOCKET="+b.socket, "MUSTER_TRACE=2", fmt.Sprintf("MUSTER_BETWEEN=%s %d %d", b.name, every, at))
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	err := c.Run()
	if failed := b.failed.Swap(nil); failed != nil {
		b.Errorf("%s %v, every %d at %d: %v", program, args, every, at, *failed)
	}
	if err != nil {
		b.Errorf("%s %v, every %d at %d: %v\n%s", program, args, every, at, err, &complaints)
	}
	return out.String()
}

// same says where what a program printed first differs.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	ours, others := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(ours), len(others)) {
		if ours[i] != others[i] {
			t.Errorf("%s: line %d:\ngot:  %s\nwant: %s\nafter:\n%s", what, i+1, ours[i], others[i], strings.Join(others[max(0, i-12):i], "\n"))
			return
		}
	}
	if len(ours) != len(others) {
		t.Errorf("%s: %d lines, and %d without", what, len(ours), len(others))
	}
}

// playing is how a program of shim/conformance is played.
type playing struct {
	program   []string
	every, at int
}

func (p playing) String() string {
	return fmt.Sprintf("%s, every %d at %d", strings.Join(p.program, " "), p.every, p.at)
}

// playBetween plays programs, each as it is said, and compares with what they print when
// nothing happens.
func (b *between) playBetween(t *testing.T, all []playing) {
	t.Helper()
	want := map[string]string{}
	for _, p := range all {
		name := strings.Join(p.program, " ")
		if want[name] == "" {
			want[name] = b.play(0, 0, p.program[0], p.program[1:]...)
		}
		before := b.done.Load()
		same(t, p.String(), b.play(p.every, p.at, p.program[0], p.program[1:]...), want[name])
		times := b.done.Load() - before
		t.Logf("%v: %d times", p, times)
		if times == 0 {
			t.Errorf("%v: nothing happened", p)
		}
	}
}

// allBetween makes the tests do more, and play all sequences.
var allBetween = os.Getenv("MUSTER_SOAK") != ""

// playings are programs one after another, each with calls at other places.
func playings(every int, programs ...[]string) []playing {
	var all []playing
	for i, p := range programs {
		if !allBetween {
			all = append(all, playing{p, every, i % every})
			continue
		}
		for at := 0; at < every; at += 1 + every/6 {
			all = append(all, playing{p, every, at})
		}
	}
	return all
}

func sequences() [][]string {
	all := [][]string{{"sequence", "1", "4"}}
	for first := 5; allBetween && first < 60; first += 4 {
		all = append(all, []string{"sequence", fmt.Sprint(first), "4"})
	}
	return all
}

// families are the names of the cases of families.c.
func families(t *testing.T, without string) []string {
	t.Helper()
	command := exec.Command(made("between/families"), "--list")
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+made("between"))
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(text))
	return slices.DeleteFunc(names, func(name string) bool { return name == without })
}

func TestMovesBetweenCalls(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it moves programs some hundred times")
	}
	if err := buildBetween(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=1G,name=a;soft:memory=1G,name=b", "--vgpus", "8")
	long, short := append(sequences(), []string{"cases"}, []string{"graphs"}), [][]string{{"captures"}, {"families"}} // by their number of calls
	all := append(playings(131, long...), playings(43, short...)...)
	if allBetween {
		all = append(all, playings(1, append(long, short...)...)...)
	}
	n.between((*between).move).playBetween(t, all)
	n.idle()
}

func TestLostWorkersBetweenCalls(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it kills some dozen workers")
	}
	if err := buildBetween(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=1G,name=a;soft:memory=1G,name=b", "--vgpus", "8", "--state", filepath.Join(t.TempDir(), "state"))
	b := n.between((*between).lose)
	// A client that accesses its program's memory ends with its worker, and one that has lost
	// twenty workers is slowed down.
	b.playBetween(t, append(playings(197, []string{"cases"}, []string{"graphs"}), playings(83, []string{"captures"}, append([]string{"families"}, families(t, "mapped")...))...))
	b.playBetween(t, playings(197, sequences()...))
	n.idle()
}
