package clientfile

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/node/worker/told"
	"muster/vmm"
	"muster/wire"
)

var arena = vmm.Range{Addr: 0x6400_0000_0000, Size: 1 << 30}

func newClient(t *testing.T) (*Client, *clientcore.Core) {
	ring, data, err := wire.Create(wire.Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 4 << 20, Pinned: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := wire.Map(ring, data)
	if err != nil {
		t.Fatal(err)
	}
	host, err := hostcopy.New(arena, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		host.Close()
		shared.Unmap()
		ring.Close()
		data.Close()
	})
	core, err := clientcore.New(clientcore.Config{Arena: arena, Chunk: hostcopy.Chunk, Devices: []clientcore.Device{{Place: vmm.Device(0), Name: "one", Memory: 1 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	now := func() clientcore.Time { return time.Second }
	return &Client{
		Shared: shared, Consumer: wire.NewConsumer(shared), Host: host, Told: told.New(shared, now, slog.New(slog.DiscardHandler)),
		Files: []*os.File{ring, data}, Arena: arena,
	}, core
}

// A client that was written is read by the same run of a program, with what it shares with the program if that
// was held, and by no other.
func TestRoundTrip(t *testing.T) {
	for name, held := range map[string]bool{"alone": false, "with its program": true} {
		t.Run(name, func(t *testing.T) {
			c, core := newClient(t)
			f, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			d := &Draft{File: f}
			defer d.Close()
			copy(c.Shared.Arena()[100:], "what the program had")
			if _, err = c.Write(d, core, "me", held); err == nil && held {
				_, err = c.Complete(d)
			}
			if err != nil {
				t.Fatal(err)
			}
			other, into := newClient(t)
			find := func(wire.Header) ([]byte, error) { return nil, nil }
			in, err := other.Read(f, into, "me", find, held)
			if err != nil {
				t.Fatal(err)
			}
			replaced := false
			if err := other.Fill(in, nil, func() { replaced = true }); err != nil {
				t.Fatal(err)
			}
			if got := strings.HasPrefix(string(other.Shared.Arena()[100:]), "what the program had"); got != held || replaced != held {
				t.Errorf("the program's memory is there: %v, and was to be: %v", got, held)
			}
			if _, err := other.Read(f, into, "somebody else", find, false); err == nil {
				t.Error("another run of the program may read it")
			}
			if _, err := other.Read(f, into, "me", find, true); (err == nil) != held {
				t.Errorf("read with its program: %v", err)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	got := overlaps([]vmm.Range{{Addr: 0, Size: 10}, {Addr: 20, Size: 10}}, []vmm.Range{{Addr: 5, Size: 17}, {Addr: 29, Size: 5}})
	if want := []vmm.Range{{Addr: 5, Size: 5}, {Addr: 20, Size: 2}, {Addr: 29, Size: 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
