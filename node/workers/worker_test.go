package workers

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/node/proc"
	"muster/wire/control"
)

// beginWith begins with a worker that says something before it answers the first ping.
func beginWith(t *testing.T, says ...control.ToDaemon) (*Process, error) {
	t.Helper()
	own, child, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	theirs, err := control.OpenWorkerEnd(child)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close(); theirs.Close() })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	w := &Process{
		process: self, number: self.Pid, control: own, queue: make(chan parcel), Exited: make(chan struct{}),
		words: &words{log: slog.New(slog.DiscardHandler), room: maxWords},
	}
	for _, m := range append(says, control.Pong{Number: FirstPing}) {
		if err := theirs.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	return w, w.Begin(control.Serve{Client: 1, Devices: []control.DeviceConfig{{Kind: "soft", Name: "GPU"}}}, nil, nil, nil)
}

// A worker that rebuilds a client asks for a device before it has answered its first
// ping, or just after: the daemon hears it either way.
func TestWordsBeforeTheFirstPong(t *testing.T) {
	want := control.Want{Memory: 2 << 20, Pinned: -1}
	w, err := beginWith(t, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Receive(); err != nil || got != control.ToDaemon(want) {
		t.Errorf("the daemon hears %v, %v, want %v", got, err, want)
	}
	close(w.Exited)
	many := make([]control.ToDaemon, maxEarly+1)
	for i := range many {
		many[i] = want
	}
	if _, err := beginWith(t, many...); err == nil || !strings.Contains(err.Error(), "says much before it is ready") {
		t.Errorf("a worker that talks and talks: %v", err)
	}
}

// A worker that ends while its program is being attached is no reason to refuse the
// program if another one can go on.
func TestWorkerEndsWhileItAttaches(t *testing.T) {
	w, err := beginWith(t)
	if err != nil {
		t.Fatal(err)
	}
	close(w.Exited)
	w.control.Close()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if w.Attach(nil, file, false) == nil {
		t.Error("nobody hears that the program cannot be attached")
	}
	if err := w.Attach(nil, file, true); err != nil {
		t.Errorf("a program is refused that can go on in another worker: %v", err)
	}
}

// Nothing is kept of a worker of an earlier daemon that has ended.
func TestFoundWorkerLeavesNothing(t *testing.T) {
	descriptors := func() (n int) {
		all, _ := filepath.Glob("/proc/self/fd/*")
		for _, path := range all {
			if to, _ := os.Readlink(path); strings.Contains(to, "pidfd") {
				n++
			}
		}
		return n
	}
	before := descriptors()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, _ := proc.Start(cmd.Process.Pid)
	w := Find(cmd.Process.Pid, start, 0, slog.New(slog.DiscardHandler))
	if w == nil {
		t.Fatal("it is not found")
	}
	w.Kill()
	_ = cmd.Wait()
	<-w.Exited
	if n := descriptors(); n > before { // earlier tests may have left some to be closed
		t.Errorf("%d descriptors of processes, and %d before", n, before)
	}
	w.Kill() // which does nothing
	if w.PID() != cmd.Process.Pid {
		t.Errorf("its number has become %d", w.PID())
	}
}
