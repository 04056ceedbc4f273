package gateway

import (
	"bufio"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/door"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/lanes"
	"muster/wire/parcel"
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
		b, _ := bridgeTo(t, &visitor{Gateway: &Gateway{Config: Config{Log: slog.New(slog.DiscardHandler)}}}, &client.Session{Shared: shared, Attached: wire.Attached{Memory: c.sees}})
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

// withoutPages is a client's shared memory; for its arena the system has no page.
func withoutPages(t *testing.T) *wire.Shared {
	t.Helper()
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
	t.Cleanup(shared.Unmap)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	return shared
}

// endable is a session over shared memory that can be ended.
func endable(t *testing.T, shared *wire.Shared) *client.Session {
	t.Helper()
	s, err := client.Dial(startDaemon(t, testGeometry).socket, client.Hello("test", 0))
	if err != nil {
		t.Fatal(err)
	}
	s.Shared, s.Producer = shared, wire.NewProducer(shared)
	return s
}

// bridgeTo makes a bridge for a visitor, and returns the client's end of its connection.
func bridgeTo(t *testing.T, v *visitor, session *client.Session) (*bridge, *door.Resumable) {
	near, far := net.Pipe()
	v.conn, v.in, v.Limits = plainLink{near}, bufio.NewReader(near), Limits{}.complete()
	b := newBridge(v, session)
	client := door.NewResumable(far, nil, nil, door.Resuming{Silence: v.Limits.Silence})
	t.Cleanup(func() {
		far.Close()
		client.Close()
		client.Wait()
		b.link.Close()
		b.link.Wait()
	})
	return b, client
}

// Data arrive for memory for which the system has no page. Only that client ends, with the reason; the
// daemon does not die of it.
func TestDataWithoutPages(t *testing.T) {
	data := make([]byte, 1<<20)
	frame := wire.Frame{Kind: wire.FrameData, Offset: 8 << 20, Bytes: uint64(len(data))}
	b, far := bridgeTo(t, &visitor{Gateway: &Gateway{Config: Config{Log: slog.New(slog.DiscardHandler)}}}, &client.Session{Shared: withoutPages(t)})
	go func() {
		_, _ = far.Write(append(frame.Append(nil), data...))
		_ = far.Flush()
	}()
	if why := b.read(); !strings.Contains(why, "no memory") {
		t.Errorf("it ended because %q", why)
	}
}

// Data without pages are to be sent, by the goroutine that found them or by the writer. Only that
// client ends, with the reason.
func TestDataToSendWithoutPages(t *testing.T) {
	shared := withoutPages(t)
	for _, size := range []uint64{small / 2, 2 * small} {
		b, _ := bridgeTo(t, &visitor{Gateway: &Gateway{Config: Config{LaneFrom: lanes.Worth}}}, endable(t, shared))
		b.all.Go(b.write)
		data, err := shared.Data(8<<20, size)
		if err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.box.put(outgoing{offset: 8 << 20, data: data})
		b.push()
		b.mu.Unlock()
		b.all.Wait()
		if !strings.Contains(b.reason, "no memory") {
			t.Errorf("%d bytes: it ended because %q", size, b.reason)
		}
	}
}

// A parcel is fetched for a client whose staging memory has no page. Only that client ends, with the
// reason.
func TestParcelForMemoryWithoutPages(t *testing.T) {
	shared, key := withoutPages(t), parcel.Key{1}
	v := &visitor{Gateway: &Gateway{shelf: parcel.NewShelf()}, guest: true}
	b, _ := bridgeTo(t, v, endable(t, shared))
	p, err := v.shelf.Leave(key, v.own())
	if err != nil {
		t.Fatal(err)
	}
	p.Fill(make([]byte, 1<<10))
	own := v.own()
	take := wire.ParcelTake{Size: 1 << 10, Key: key[:], Giver: own[:]}
	if err := b.fetch(wire.Header{Op: take.Op()}, take.Append(nil)); err != nil {
		t.Fatal(err)
	}
	b.all.Wait()
	if !strings.Contains(b.reason, "no memory") {
		t.Errorf("it ended because %q", b.reason)
	}
}

// A message that waited for data from the lanes goes to a ring of which a page is missing. Only that
// client ends, with the reason.
func TestQueuedMessageWithoutPages(t *testing.T) {
	shared := withoutPages(t)
	b, _ := bridgeTo(t, &visitor{Gateway: &Gateway{Config: Config{Log: slog.New(slog.DiscardHandler)}}}, endable(t, shared))
	err := b.behind.Do(nil, 0, func() error {
		copy(shared.Arena(), "a page that is not there")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.all.Wait()
	if !strings.Contains(b.reason, "no memory") {
		t.Errorf("it ended because %q", b.reason)
	}
}

// A parcel that another node fetches lies in memory without pages: that node is told that there is
// none, and the next one is served.
func TestParcelInMemoryWithoutPages(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	shelf, own := w.gateway.shelf, w.gateway.own()
	data, err := withoutPages(t).Data(8<<20, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	for i, bytes := range [][]byte{data, make([]byte, 1<<10)} {
		p, err := shelf.Leave(parcel.Key{byte(i)}, own)
		if err != nil {
			t.Fatal(err)
		}
		p.Fill(bytes)
		if n := shelf.Take(t.Context(), parcel.Key{byte(i)}, own, make([]byte, parcel.Most)); n != i<<10 {
			t.Errorf("parcel %d: %d bytes", i, n)
		}
	}
}
