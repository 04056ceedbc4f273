package worker

import (
	"errors"
	"fmt"

	"muster/device"
	"muster/node/clientcore"
	"muster/wire"
)

// Where workers have the data arena of a client, for the program to have it there as well:
// below the addresses of devices, where neither Go's runtime nor the system puts anything.
// Each of a program's clients has a window of its own, as its device addresses are its own.
const (
	windowBase = 0x4800_0000_0000
	windowSize = 32 << 30
	windowsAt  = 1 << 40 // from one try to the next
	windows    = 4
)

// placeArena puts the data arena where the program can have it, too. Without that nothing
// is amiss but that kernels do not reach the program's memory.
func (w *worker) placeArena() {
	if uint64(len(w.shared.Arena())) > windowSize {
		return
	}
	var err error
	for i := range uint64(windows) {
		at := windowBase + w.serve.ArenaBase>>40%64*windowSize + i*windowsAt
		if err = w.shared.Place(w.files[1], at); err == nil {
			return
		}
	}
	w.log.Debug("kernels will not reach the program's memory", "error", err)
}

// reached is memory of the program's that kernels reach.
type reached struct {
	host  []byte
	own   bool // it was mapped for that
	unmap map[*gpu]func() error
}

// errNotReached says why kernels cannot have memory of the program's.
var errNotReached = fmt.Errorf("memory of the program's: %w", device.ErrNotSupported)

// mapHost makes memory of the program's reachable for kernels, in all contexts that there
// are; contexts that are opened later get it with the rest (mapAll). From now on the client
// cannot be rebuilt: what kernels have written there, nobody could undo.
func (w *worker) mapHost(o *clientcore.Op) error {
	part, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	r := &reached{host: part, unmap: map[*gpu]func() error{}}
	if wire.AddressOf(part) != o.Range.Addr {
		if r.host, err = wire.MapAt(w.files[1], o.Out.Offset, o.Out.Length, o.Range.Addr); err != nil {
			// The library has another address to try, so nobody need hear of it.
			return fmt.Errorf("memory of the program's (%v): %w", err, device.ErrInvalidValue)
		}
		r.own = true
	}
	if w.reached == nil {
		w.reached = map[uint64]*reached{}
	}
	w.reached[o.Range.Addr] = r
	for _, g := range w.gpus {
		if err := r.mapFor(g); err != nil {
			w.unmapHost(o.Range.Addr)
			return err
		}
	}
	w.exposeByUse("its kernels reach memory of the program's")
	return nil
}

// mapFor makes the memory reachable in a context.
func (r *reached) mapFor(g *gpu) error {
	m, ok := g.context.(device.HostMapper)
	if !ok {
		return errNotReached
	}
	unmap, err := m.MapHost(r.host)
	if err == nil {
		r.unmap[g] = unmap
	}
	return err
}

// mapAll makes everything reachable in a context that was opened.
func (w *worker) mapAll(g *gpu) error {
	for _, m := range w.core.Mapped {
		r := w.reached[m.Addr]
		if r == nil { // a worker that goes on for another
			o := m.Op()
			if err := w.mapHost(&o); err != nil {
				return err
			}
			r = w.reached[m.Addr]
		}
		if err := r.mapFor(g); err != nil {
			return err
		}
	}
	return nil
}

// unmapHost takes memory of the program's away from kernels. Nothing runs that uses it.
func (w *worker) unmapHost(addr uint64) {
	r := w.reached[addr]
	if r == nil {
		return
	}
	delete(w.reached, addr)
	for g, unmap := range r.unmap {
		if w.gpus[g.place] != g {
			continue // it was closed, and that with it
		}
		if err := unmap(); err != nil {
			w.log.Debug("unmapping host memory", "error", err)
		}
	}
	if r.own {
		_ = wire.UnmapAt(r.host)
	}
}
