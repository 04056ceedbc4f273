package worker

import (
	"context"
	"log/slog"
	"testing"

	"muster/internal/mailbox"
	"muster/node/worker/line"
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
	w := &mail{inbox: mailbox.New(replaces), session: &session{shared: shared, consumer: wire.NewConsumer(shared), exit: func() {}}}
	w.ctx, w.stop = context.WithCancel(t.Context())
	defer w.stop()
	w.line = line.New(w.ctx, end, line.Terms{}, ring, arena, slog.New(slog.DiscardHandler))
	w.line.Close()
	w.receive()
	if why, closed := shared.Closed(); closed {
		t.Errorf("the program is told that %s", why)
	}
}
