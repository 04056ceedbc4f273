package worker

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/device/soft"
	"muster/wire"
	"muster/wire/control"
)

// The memory that a worker shares with its program has no page any more. Only that
// client ends, with a reason; the process does not die of it.
func TestSharedMemoryWithoutPages(t *testing.T) {
	ring, sealed, err := wire.Create(wire.Geometry{Ring: 256 << 10, Staging: 4 * mib, Bounce: 4 * mib, Pinned: 16 * mib})
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	arena, err := os.Create(filepath.Join(t.TempDir(), "arena")) // what nobody can cut off is played by a file
	if err != nil {
		t.Fatal(err)
	}
	if err := arena.Truncate(24 * mib); err != nil {
		t.Fatal(err)
	}
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	own, child, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	conn, err := control.OpenWorkerEnd(child)
	if err != nil {
		t.Fatal(err)
	}
	child.Close()
	d := newDaemon(t, options{swapRoom: 1 << 30, devices: []soft.Profile{{Name: "test", Memory: 64 * mib, Speed: 1, Workers: 1}}})
	d.connect(own)
	d.begin()
	serve := control.Serve{Client: 1, ArenaBase: testBase, ArenaSize: 64 * mib, Memory: 64 * mib, Devices: []control.DeviceConfig{{Kind: "soft", Name: "test"}}}
	cut, err := os.OpenFile(arena.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	s, err := newWorker(conn, serve, []*os.File{ring, arena, nil}, d.open, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.exit = func() {}
	ended := make(chan error, 1)
	go func() {
		err := s.run()
		s.close()
		ended <- err
	}()
	p := wire.NewProducer(shared)
	if r, err := p.Call(&wire.MemAlloc{Addr: testBase, Size: mib}, nil); r != 0 || err != nil {
		t.Fatal(r, err)
	}
	if err := cut.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: 8 * mib, Length: mib}, (&wire.CopyIn{Dst: testBase}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, wire.ErrNoPage) {
		t.Errorf("the worker ended with %v", err)
	}
	if reason, closed := shared.Closed(); !closed || !strings.Contains(reason, "no memory") {
		t.Errorf("the program was told %q", reason)
	}
}
