package worker

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"muster/device"
	"muster/wire"
)

// pinning is a context that notes what is pinned.
type pinning struct {
	device.Context
	mu    *sync.Mutex
	sizes *[]int
}

func (p pinning) Pin(host []byte) (func() error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.sizes = append(*p.sizes, len(host))
	return p.Context.Pin(host)
}

func TestUnpinned(t *testing.T) {
	g := &gpu{pinned: map[uint64]bool{3: true, 4: true, 7: true}}
	for _, c := range []struct {
		from, to uint64
		want     []granules
	}{
		{0, 2, []granules{{0, 2}}},
		{2, 9, []granules{{2, 3}, {5, 7}, {8, 9}}},
		{3, 5, nil},
		{5, 5, nil},
	} {
		if got := g.unpinned(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("of %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// Memory that the program has as pinned is pinned when large copies come, once; what is
// copied is right before and after.
func TestProgramMemoryIsPinned(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	c := newClient(t, options{wrap: func(_ string, c device.Context) device.Context { return pinning{c, &mu, &sizes} }})
	v := newVectors(c, 1<<18)
	v.round(0) // they are on the device
	geometry := c.shared.Geometry()
	first := geometry.Staging + geometry.Bounce
	arena := c.shared.Arena()
	size := uint64(1 << 20)
	if uint64(len(arena)) < first+2*size {
		t.Fatalf("an arena of %d bytes", len(arena))
	}
	addr := v.a
	send := func(h wire.Header, body []byte) {
		t.Helper()
		if err := c.p.Send(h, body); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		data := arena[first : first+size]
		for i := range data {
			data[i] = byte(i*7 + round)
		}
		send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: first, Length: size}, (&wire.CopyIn{Dst: addr}).Append(nil))
		send(wire.Header{Op: wire.OpCopyOut, Slot: -1, Data: first + size, Length: size}, (&wire.CopyOut{Src: addr}).Append(nil))
		c.must(&wire.Synchronise{}, nil)
		if !bytes.Equal(data, arena[first+size:first+2*size]) {
			t.Errorf("round %d: other bytes came back", round)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	pins := slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return uint64(n) == first })
	if len(pins) != 1 {
		t.Errorf("it was pinned in %v, want one piece", pins)
	}
}
