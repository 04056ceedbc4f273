package stack

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// killWorkers kills the workers that serve a client, and waits until others have replaced them.
func (n *theNode) killWorkers() {
	n.Helper()
	before := n.workers()
	for pid := range before {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	n.eventually("others have taken their place", func() bool {
		now := n.workers()
		for pid := range now {
			if before[pid] {
				return false
			}
		}
		return len(now) == len(before)
	})
}

// A program whose kernel has faulted loses its worker. It is told about the fault once, and every
// call continues to fail in the same way.
func TestFaultOutlivesTheWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(made("small"), "fault")
	p.says("told")
	n.killWorkers()
	n.killWorkers()
	got := p.right()
	if strings.Count(got, "muster: ") != 1 || !strings.Contains(got, "muster: kernel poke: illegal address 0x10") {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// A daemon is to hand over while a client is between two workers. Only the daemon has the client's
// state then, so it waits until the client is rebuilt.
func TestHandoverWaitsForRebuilding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []string{"--devices", "soft:memory=64M", "--warm", "0", "--orphan-grace", "1m"}
	n := w.start(args...)
	programs := n.compute(1)
	for round := range 3 {
		for pid := range n.workers() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		n.eventually("the client is being rebuilt", func() bool { return strings.Contains(n.log.String(), "a client is rebuilt in another worker") })
		w.muster("node", "stop", "--handover", "--socket", n.socket)
		<-n.exited
		n.killed = true
		n = n.again(args...)
		n.back(programs)
		n.more(10)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if got := programs[0].right(); got != "right\n" {
		t.Errorf("it said %q", got)
	}
	n.idle()
}
