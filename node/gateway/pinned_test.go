package gateway

import (
	"errors"
	"testing"

	"muster/client"
	"muster/wire"
)

// A program on another machine may use as much pinned memory here as it sees of
// device memory, and some in any case; what it uses twice counts once.
func TestPinnedMemoryIsBounded(t *testing.T) {
	g := wire.Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 4 << 20, Pinned: 512 << 20}
	ring, arena, err := wire.Create(g)
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
	for _, c := range []struct{ sees, most uint64 }{{1 << 20, leastPinned}, {256 << 20, 256 << 20}} {
		b := newBridge(&visitor{Gateway: &Gateway{}}, nil, &client.Session{Shared: shared, Attached: wire.Attached{Memory: c.sees}})
		use := func(at, size uint64) error {
			_, err := b.unstaged(g.Staging+g.Bounce+at, size)
			return err
		}
		if err := use(0, c.most); err != nil {
			t.Errorf("%d bytes: %v", c.most, err)
		}
		if err := use(100, c.most-200); err != nil {
			t.Errorf("the same again: %v", err)
		}
		var closed *wire.ClosedError
		if err := use(c.most, 2*pinnedBlock); !errors.As(err, &closed) {
			t.Errorf("more than %d bytes: %v", c.most, err)
		}
		if _, err := b.unstaged(g.Staging, g.Bounce); err != nil {
			t.Errorf("memory for answers counts: %v", err)
		}
	}
}
