package soft

import (
	"bytes"
	"errors"
	"testing"

	"muster/device"
)

// wrapped is a context with another around it, and stranger one of another kind.
type (
	wrapped  struct{ device.Context }
	stranger struct{ device.Context }
)

func (stranger) Can() *device.ContextCan { return &device.ContextCan{} }

// A software GPU copies from another one's memory, at the same addresses, and refuses memory that is
// not mapped there and contexts of other kinds.
func TestCopyFromAnotherDevice(t *testing.T) {
	const base, size = 0x6400_0000_0000, 4 << 20
	open := func() (device.Context, device.Stream) {
		d, err := New(Profile{Name: "peer", Memory: 16 << 20, Speed: 1, Workers: 1}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Info().Peers == "" {
			t.Error("nobody can know that its devices copy to each other")
		}
		c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}})
		if err == nil {
			err = c.Map(base, size)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s, err := c.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		return c, s
	}
	from, in := open()
	to, on := open()
	want := bytes.Repeat([]byte{1, 2, 3, 4, 5}, size/5)
	if err := errors.Join(in.CopyIn(base+3, want), in.Synchronise(t.Context())); err != nil {
		t.Fatal(err)
	}
	peer := on.Can()
	got := make([]byte, len(want))
	if err := errors.Join(peer.CopyFrom(base+3, wrapped{from}, base+3, uint64(len(want))), on.CopyOut(got, base+3), to.Synchronise(t.Context())); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: not what the other one has", err)
	}
	if err := peer.CopyFrom(base, from, base+size, 1); !errors.Is(err, device.ErrInvalidValue) {
		t.Errorf("memory that is not there is copied: %v", err)
	}
	if err := peer.CopyFrom(base+size, from, base, 1); !errors.Is(err, device.ErrInvalidValue) {
		t.Errorf("memory is copied to where nothing is: %v", err)
	}
	if err := peer.CopyFrom(base, stranger{}, base, 1); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("a context of another kind: %v", err)
	}
	if err := on.Synchronise(t.Context()); err != nil {
		t.Error(err)
	}
}
