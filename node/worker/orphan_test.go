package worker

import (
	"context"
	"testing"

	"muster/internal/mailbox"
	"muster/wire"
	"muster/wire/control"
)

// A worker that ends the connection to its daemon has said why, and the program may go
// on in another worker: it is not told that the daemon ended.
func TestOwnEndIsNotTheDaemons(t *testing.T) {
	daemon, child, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	defer child.Close()
	end, err := control.OpenWorkerEnd(child)
	if err != nil {
		t.Fatal(err)
	}
	ring, arena, err := wire.Create(wire.Geometry{Ring: 128 << 10, Staging: 2 << 20, Bounce: 1 << 20, Pinned: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	w := &worker{control: end, line: line{current: end, open: true}, inbox: mailbox.New(replaces), shared: shared, consumer: wire.NewConsumer(shared), exit: func() {}}
	w.ctx, w.stop = context.WithCancel(t.Context())
	defer w.stop()
	w.line.close()
	w.receive()
	if why, closed := shared.Closed(); closed {
		t.Errorf("the program is told that %s", why)
	}
}

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
	l := line{current: first}
	l.cut()
	l.begin(first)
	if !l.join(next) {
		t.Fatal("the next daemon is not taken")
	}
	l.say(control.Busy{})
	l.begin(next)
	l.say(control.Idle{})
	if got, err := second.Receive(); err != nil || got != control.ToDaemon(control.Idle{}) {
		t.Errorf("the next daemon hears %T %v, %v first", got, got, err)
	}
}
