package line

import (
	"testing"

	"muster/wire/control"
)

// One daemon comes and goes before the loop has begun to talk to it, and then the next
// comes: what was meant for the first does not reach the second.
func TestNextDaemonHearsNothingBeforeTheStanding(t *testing.T) {
	ends := func() (*control.DaemonEnd, *control.WorkerEnd) {
		daemon, child, err := control.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer child.Close()
		end, err := control.OpenWorkerEnd(child)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { daemon.Close(); end.Close() })
		return daemon, end
	}
	_, first := ends()
	second, next := ends()
	l := Line{current: first}
	l.Cut()
	l.Begin(first)
	if !l.join(next) {
		t.Fatal("the next daemon is not taken")
	}
	l.Say(control.Busy{})
	l.Begin(next)
	l.Say(control.Idle{})
	if got, err := second.Receive(); err != nil || got != control.ToDaemon(control.Idle{}) {
		t.Errorf("the next daemon hears %T %v, %v first", got, got, err)
	}
}
