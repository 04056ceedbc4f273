package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/client"
	"muster/internal/door"
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

// Data arrive for memory for which the system has no page. Only that client ends, with the reason; the
// daemon does not die of it.
func TestDataWithoutPages(t *testing.T) {
	ring, sealed, err := wire.Create(wire.Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 4 << 20, Pinned: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer sealed.Close()
	path := filepath.Join(t.TempDir(), "arena") // what nobody can cut off is played by a file
	arena, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	if err := arena.Truncate(24 << 20); err != nil {
		t.Fatal(err)
	}
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	frame := wire.Frame{Kind: wire.FrameData, Offset: 8 << 20, Bytes: uint64(len(data))}
	in := bufio.NewReader(bytes.NewReader(append(frame.Append(nil), data...)))
	b := newBridge(&visitor{Gateway: &Gateway{}, in: in}, door.NewPatient(nil, time.Hour), &client.Session{Shared: shared})
	if why := b.read(); !strings.Contains(why, "no memory") {
		t.Errorf("it ended because %q", why)
	}
}
