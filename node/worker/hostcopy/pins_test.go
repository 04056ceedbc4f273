package hostcopy

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"muster/vmm"
	"muster/wire"
)

// pinner only pins, and knows what is pinned.
type pinner struct {
	pinned [][]byte
	asked  int
	refuse bool
}

func (p *pinner) Pin(host []byte) (func() error, error) {
	p.asked++
	if p.refuse {
		return nil, errors.New("no more may be locked")
	}
	p.pinned = append(p.pinned, host)
	return func() error {
		p.pinned = slices.DeleteFunc(p.pinned, func(o []byte) bool { return unsafe.SliceData(o) == unsafe.SliceData(host) })
		return nil
	}, nil
}

func (p *pinner) has(memory []byte) bool {
	from := wire.AddressOf(memory)
	return slices.ContainsFunc(p.pinned, func(o []byte) bool {
		at := wire.AddressOf(o)
		return at < from+uint64(len(memory)) && from < at+uint64(len(o))
	})
}

const pinChunks = 40

// pinning is two sides of host memory, and the pins of a context.
func pinning(t *testing.T) (*Memory, *Pins, *pinner) {
	t.Helper()
	var files []*os.File
	for range 2 {
		f, err := CreateFile(pinChunks*chunk, "", true)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	h, err := New(chunkRange(0, pinChunks), "", files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	h.maySpare = func() int { return 0 }
	p := &pinner{}
	h.giving = func(on uint8, r row) {
		if p.has(h.bytes(run{r, on})) {
			t.Errorf("pages of %v on side %d are given back while they are pinned", r, on)
		}
	}
	return h, h.NewPins(p.Pin, slog.New(slog.DiscardHandler)), p
}

// ready prepares all of the memory to be written by the context, and says whether anything was pinned.
func ready(h *Memory, pins *Pins) bool {
	all := chunkRange(0, pinChunks)
	h.Touch(all, true)
	MakePages(pins.Unpinned(all))
	return pins.Pin(all)
}

// Pages are unpinned before they are given back, and only then: a device would go on writing to
// pages that are nobody's.
func TestHostPagesAreUnpinnedBeforeTheyGo(t *testing.T) {
	h, pins, p := pinning(t)
	all := func(what string) {
		t.Helper()
		parts := pins.Parts(chunkRange(0, pinChunks))
		var bytes int
		for _, part := range parts {
			if !part.Pinned {
				t.Errorf("%s: %d bytes at %#x are not pinned", what, len(part.Memory), part.Addr)
			}
			bytes += len(part.Memory)
		}
		if bytes != pinChunks*chunk {
			t.Errorf("%s: %d bytes", what, bytes)
		}
	}
	if !ready(h, pins) {
		t.Error("nothing was pinned")
	}
	all("first")
	if asked := p.asked; ready(h, pins) || p.asked != asked {
		t.Error("what is pinned was pinned again")
	}
	h.Commit() // from here on that belongs to the base
	ready(h, pins)
	all("the other side")
	leastSpareFor(h)
	h.Commit() // the first side is given back, and is no more pinned
	if p.has(h.bytes(run{row{0, pinChunks}, 1 - h.side(0)})) {
		t.Error("the side that was given back is pinned")
	}
	all("after that")
	h.Discard(chunkRange(3, 1))
	if parts := pins.Parts(chunkRange(0, pinChunks)); len(parts) != 3 || !parts[0].Pinned || parts[1].Pinned || len(parts[1].Memory) != chunk || !parts[2].Pinned {
		t.Errorf("after a chunk was dropped: %d parts", len(parts))
	}
	ready(h, pins)
	all("and again")
}

// leastSpareFor makes host memory believe that others have taken all that may be spare.
func leastSpareFor(h *Memory) { h.spare += leastSpare }

// Memory that cannot be pinned is copied all the same, and is not tried again.
func TestHostMemoryThatCannotBePinned(t *testing.T) {
	h, pins, p := pinning(t)
	p.refuse = true
	ready(h, pins)
	asked := p.asked
	ready(h, pins)
	if asked == 0 || p.asked != asked {
		t.Errorf("asked %d times, and then %d", asked, p.asked)
	}
	parts := pins.Parts(chunkRange(0, pinChunks))
	if len(parts) != 1 || parts[0].Pinned || len(parts[0].Memory) != pinChunks*chunk {
		t.Errorf("%d parts", len(parts))
	}
}

// What is made ready ahead is where the next move writes, and changes nothing.
func TestHostMemoryReadyAhead(t *testing.T) {
	h, _, _ := pinning(t)
	lacks := func() uint64 {
		_, bytes := h.lacking([]vmm.Range{chunkRange(0, pinChunks)})
		return bytes
	}
	if n := lacks(); n != pinChunks*chunk {
		t.Errorf("%d bytes are lacking at first", n)
	}
	h.Touch(chunkRange(0, pinChunks), true)
	if n := lacks(); n != 0 {
		t.Errorf("%d bytes are lacking of what was written", n)
	}
	h.Commit()
	pieces, n := h.lacking([]vmm.Range{chunkRange(0, pinChunks)})
	if n != pinChunks*chunk {
		t.Errorf("%d bytes are lacking of the other side", n)
	}
	other := h.bytes(run{row{0, pinChunks}, 1 - h.side(0)})
	if wire.AddressOf(pieces[0]) != wire.AddressOf(other) {
		t.Error("not of the side that is written next")
	}
}

// Pages are made ahead until the machine has little memory left: other workers make theirs too.
func TestPagesAreMadeWhileThereIsRoom(t *testing.T) {
	pieces := make([][]byte, 100)
	var free, made atomic.Int64
	free.Store(70)
	makeAhead(pieces, func([]byte) bool {
		if free.Add(-1) < 0 {
			return false
		}
		made.Add(1)
		return true
	})
	if n := made.Load(); n != 70 {
		t.Errorf("%d pieces were made of 70", n)
	}
}
