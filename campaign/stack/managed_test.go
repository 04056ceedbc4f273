package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/internal/build"
)

// managedProgram is the program with managed memory, built once.
func managedProgram(t *testing.T) string {
	t.Helper()
	if err := compile("managed"); err != nil {
		t.Fatal(err)
	}
	return made("managed")
}

// Managed memory has what the host or the device wrote last, however it is read: in lists, in
// copies of every kind, with many threads, in children, beside the program's own signal handler, in
// host functions of streams, and after a fault.
func TestManagedMemory(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M")
	program := managedProgram(t)
	for _, args := range [][]string{
		{"list", "3000"}, {"words", "100000"}, {"threads"}, {"handler"}, {"children"}, {"functions"}, {"streams", "24"}, {"freeing"}, {"attributes"}, {"variables"}, {"early"}, {"batches"}, {"pools"}, {"fault"},
	} {
		t.Run(args[0], func(t *testing.T) {
			if got := n.launch(program, args...).right(); len(got) < 6 || got[len(got)-6:] != "right\n" {
				t.Errorf("it said %q", got)
			}
		})
	}
	n.idle()
}

// A program has more managed memory than the device.
func TestManagedMemoryBeyondTheDevice(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M")
	n.launchWith([]string{"--socket", n.socket, "--memory", "64M"}, managedProgram(t), "words", "3000000").right()
	n.idle()
}

// Workers die and devices are drained while a program computes with managed memory; it does not
// notice.
func TestManagedMemoryOutlivesWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(managedProgram(t), "rounds", "300000")
	p.says("begun")
	for round := 1; round <= 6; round++ {
		fmt.Fprintln(p.stdin)
		p.says(fmt.Sprintf("round %d\n", round))
		if round == 3 {
			n.killWorkers()
		}
		if round == 4 {
			for _, device := range []string{"a", "b"} { // it is on one of them
				n.tries("move", fmt.Sprint(n.status().Clients[0].ID), device, "--socket", n.socket)
			}
		}
	}
	p.right()
	n.idle()
}

// mappedProgram is the program whose kernels reach its own memory, built once.
func mappedProgram(t *testing.T) string {
	t.Helper()
	if err := compile("mapped"); err != nil {
		t.Fatal(err)
	}
	return made("mapped")
}

// Kernels access the program's memory at its own address: they wait for words there and answer, add
// to words that the host adds to, and access memory of malloc once it is registered.
func TestMappedMemory(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M")
	program := mappedProgram(t)
	for _, what := range []string{"talk", "atomics", "registered", "pointers", "sources"} {
		t.Run(what, func(t *testing.T) {
			if got := n.launch(program, what).right(); !strings.HasSuffix(got, "right\n") {
				t.Errorf("it said %q", got)
			}
		})
	}
	n.idle()
}

// Registered memory is reached at the program's address also if its worker has something else there:
// another worker takes over.
func TestMappedMemoryWhereTheWorkerHasSomething(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M")
	p := n.launch(mappedProgram(t), "at")
	p.says("ready")
	address := uint64(0)
	own, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	for worker := range n.workers() {
		theirs, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", worker))
		library := uint64(0) // what the kernel gives out lies around it
		for line := range strings.Lines(string(theirs)) {
			if strings.Contains(line, "/libc.so") {
				fmt.Sscanf(line, "%x-", &library)
			}
		}
		for line := range strings.Lines(string(theirs)) {
			var from, to uint64
			fmt.Sscanf(line, "%x-%x", &from, &to)
			given := from < library+1<<40 && library < from+1<<40
			if middle := (from + to) / 2 &^ 0xfff; given && to-from >= 64<<20 && !covers(string(own), middle) {
				address = middle
			}
		}
	}
	if address == 0 {
		t.Fatal("the worker has nothing that the program has not")
	}
	fmt.Fprintf(p.stdin, "%x\n", address)
	if got := p.right(); !strings.HasSuffix(got, "right\n") {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// Registered memory is reached where programs usually have theirs, without another worker: the worker
// has nothing there.
func TestMappedMemoryWhereProgramsHaveTheirs(t *testing.T) {
	t.Parallel()
	fixed := map[string]uint64{"a heap": 0x5612_3456_7000, "mmap": 0x7f12_3456_7000}
	if build.Bin() != "" { // make links it elsewhere
		fixed["variables at a fixed address"] = 0x41_2000
	}
	runtime.LockOSThread()   // and never unlocked: the thread ends with the test
	const compat = 0x0200000 // ADDR_COMPAT_LAYOUT
	_, _, forbidden := syscall.RawSyscall(syscall.SYS_PERSONALITY, compat, 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PERSONALITY, 0, 0, 0)
	n := newWorld(t).start("--devices", "soft:memory=64M")
	for what, address := range fixed {
		p := n.launch(mappedProgram(t), "at")
		p.says("ready")
		fmt.Fprintf(p.stdin, "%x\n", address)
		if got := p.right(); !strings.HasSuffix(got, "right\n") {
			t.Errorf("%s: it said %q", what, got)
		}
		if try := n.logged("a client is rebuilt in another worker", "try"); try != "" && forbidden == 0 {
			t.Errorf("%s: its worker has something there", what)
		}
	}
	n.idle()
}

// covers says whether something is mapped around an address, within 2 MiB.
func covers(maps string, address uint64) bool {
	for line := range strings.Lines(maps) {
		var from, to uint64
		if fmt.Sscanf(line, "%x-%x", &from, &to); address+2<<20 >= from && address < to+2<<20 {
			return true
		}
	}
	return false
}

// A client whose kernels access the program's memory moves like any other. It is not rebuilt when
// its worker dies, because the node cannot undo what kernels have written there.
func TestMappedMemoryMovesAndIsNotRebuilt(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b")
	p := n.launch(mappedProgram(t), "rounds")
	p.says("begun")
	for round := 1; round <= 4; round++ {
		fmt.Fprintln(p.stdin)
		p.says(fmt.Sprintf("round %d\n", round))
		for _, device := range []string{"a", "b"} { // it is on one of them
			n.tries("move", fmt.Sprint(n.status().Clients[0].ID), device, "--socket", n.socket)
		}
	}
	for pid := range n.workers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	fmt.Fprintln(p.stdin)
	if code := p.wait(); code != 1 || !strings.Contains(p.output.String(), "cuCtxSynchronize") && !strings.Contains(p.output.String(), "cuLaunchKernel") {
		t.Errorf("it ended with %d: %s", code, p.output)
	}
	n.idle()
}

// Over a network, kernels cannot access the program's memory, and the program is told so.
func TestMappedMemoryIsRefusedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	if got := w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, mappedProgram(t), "refused").right(); !strings.Contains(got, "the program's node is another machine") {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// Managed memory of a program on another machine is copied over the network.
func TestManagedMemoryElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	program := managedProgram(t)
	for _, args := range [][]string{{"list", "300"}, {"words", "100000"}, {"functions"}} {
		if got := w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, program, args...).right(); !strings.HasSuffix(got, "right\n") {
			t.Errorf("%v: it said %q", args, got)
		}
	}
	n.idle()
}
