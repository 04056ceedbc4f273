package hostcopy

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"

	"muster/internal/machine"
	"muster/internal/together"
	"muster/vmm"

	"golang.org/x/sys/unix"
)

// Host copies that are moved in bulk are pinned, and stay pinned as long as they have their pages:
// the device then copies them by itself, at the speed of its bus. Pinning existing pages costs
// about as much as copying them once, making pages ten times as much.
const (
	// PinWorth is the size in bytes from which pinning pays for a plan.
	PinWorth = 16 << 20
	// pinMost is how many chunks are pinned together. To give one of them back, all have to be
	// unpinned.
	pinMost = (64 << 20) / chunk
	// roomShare bounds what is prepared ahead: 1/roomShare of the free memory.
	roomShare = 2
	// roomLeft ends that early: other workers prepare pages at the same time, and if 1/roomLeft of
	// what was free is left, the system would soon have to kill one of them.
	roomLeft = 4
)

// Pins are the chunks that a context has pinned.
type Pins struct {
	host *Memory
	pin  func(memory []byte) (unpin func() error, err error)
	log  *slog.Logger
	all  map[chunkAt]*pinned
}

// chunkAt is a chunk on a side.
type chunkAt struct {
	on uint8
	i  int
}

// pinned is a run of chunks that were pinned together.
type pinned struct {
	run
	unpin func() error // nil: pinning was refused, and is not tried again
}

// NewPins makes the pins of a context, which pins memory with pin.
func (h *Memory) NewPins(pin func(memory []byte) (unpin func() error, err error), log *slog.Logger) *Pins {
	p := &Pins{host: h, pin: pin, log: log, all: map[chunkAt]*pinned{}}
	h.pins = append(h.pins, p)
	return p
}

// Drop forgets the pins of a context that is closed, and with it what it had pinned.
func (p *Pins) Drop() {
	p.host.pins = slices.DeleteFunc(p.host.pins, func(o *Pins) bool { return o == p })
}

// Unpinned returns the memory of the chunks of a range that are not pinned, to be written completely. All
// chunks of the range must have their side already (Touch).
func (p *Pins) Unpinned(r vmm.Range) (pieces [][]byte) {
	for _, run := range p.unpinned(r) {
		piece := p.host.bytes(run)
		p.host.expect(piece)
		pieces = append(pieces, piece)
	}
	return pieces
}

// Pin pins the chunks of a range, each once, and says whether there were any. If it fails, copies are
// slower.
func (p *Pins) Pin(r vmm.Range) (any bool) {
	for _, run := range p.unpinned(r) {
		made := &pinned{run: run}
		var err error
		if made.unpin, err = p.pin(p.host.bytes(run)); err != nil {
			p.log.Debug("pinning host copies", "bytes", run.size(), "error", err) // copies are slower without
		}
		for i := run.first; i < run.first+run.count; i++ {
			p.all[chunkAt{run.on, i}] = made
		}
		any = true
	}
	return any
}

// unpinned returns the chunks of a range that are not pinned, in runs to be pinned together.
func (p *Pins) unpinned(r vmm.Range) (rows runs) {
	first, last := p.host.span(r)
	for i := first; i <= last; i++ {
		on := p.host.side(i)
		if _, ok := p.all[chunkAt{on, i}]; ok {
			continue
		}
		if n := len(rows) - 1; n >= 0 && rows[n].count == pinMost {
			rows = append(rows, run{row{i, 1}, on})
		} else {
			rows.add(i, on)
		}
	}
	return rows
}

// unpin unpins chunks, before their pages are given back.
func (p *Pins) unpin(on uint8, gone row) {
	for i := gone.first; len(p.all) > 0 && i < gone.first+gone.count; i++ {
		if made := p.all[chunkAt{on, i}]; made != nil {
			p.drop(made)
		}
	}
}

func (p *Pins) drop(made *pinned) {
	for i := made.first; i < made.first+made.count; i++ {
		delete(p.all, chunkAt{made.on, i})
	}
	if made.unpin == nil {
		return
	}
	if err := made.unpin(); err != nil {
		p.log.Debug("unpinning host copies", "error", err) // the context has ended, and copies nothing any more
	}
}

// Part is consecutive memory on one side, all of it pinned or none.
type Part struct {
	Addr   uint64
	Memory []byte
	Pinned bool
}

// Parts splits the host copies of a range into parts.
func (p *Pins) Parts(r vmm.Range) (parts []Part) {
	_ = p.host.Each(r, func(addr uint64, piece []byte) error {
		for own := len(parts); len(piece) > 0; {
			i := int((addr - p.host.base) / chunk)
			made := p.all[chunkAt{p.host.side(i), i}]
			n := min(len(piece), int(uint64(i+1)*chunk-(addr-p.host.base)))
			isPinned := made != nil && made.unpin != nil
			if last := len(parts) - 1; last >= own && parts[last].Pinned == isPinned {
				parts[last].Memory = parts[last].Memory[:len(parts[last].Memory)+n]
			} else {
				parts = append(parts, Part{addr, piece[:n], isPinned})
			}
			piece, addr = piece[n:], addr+uint64(n)
		}
		return nil
	})
	return parts
}

// MakePages makes the pages of memory whose contents do not matter, with several threads.
func MakePages(pieces [][]byte) {
	together.Do(len(pieces), func(i int) {
		for at := 0; at < len(pieces[i]); at += 4096 {
			pieces[i][at] = 0
		}
	})
}

// Ahead returns the function that makes the pages that would be needed if all of some ranges were written;
// nil if that is not worth while, or there is no room. It changes no contents, so the memory may be used
// meanwhile. Before Linux 5.14 there is no MADV_POPULATE_WRITE; pages are then made when they are needed.
func (h *Memory) Ahead(ranges []vmm.Range) func(context.Context) {
	if h.InFile() {
		return nil
	}
	pieces, bytes := h.lacking(ranges)
	free := freeHere()
	if bytes < PinWorth || bytes > free/roomShare {
		return nil
	}
	return func(ctx context.Context) {
		makeAhead(pieces, func(piece []byte) bool {
			return ctx.Err() == nil && freeHere() >= free/roomLeft && syscall.Madvise(piece, unix.MADV_POPULATE_WRITE) == nil
		})
	}
}

// makeAhead makes pieces, until one cannot be made.
func makeAhead(pieces [][]byte, make func([]byte) bool) {
	var refused atomic.Bool
	together.Do(len(pieces), func(i int) {
		if !refused.Load() && !make(pieces[i]) {
			refused.Store(true)
		}
	})
}

// freeHere is how many bytes of memory are free for this process; 0 if that is not known.
func freeHere() uint64 {
	free, _ := machine.FreeMemory()
	return free
}
