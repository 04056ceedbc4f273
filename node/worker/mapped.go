package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"muster/device"
	"muster/node/clientcore"
	"muster/wire"
)

// Where a worker maps the data arena of its client, so that the program can map it at the same
// address: below the addresses of devices, where neither Go's runtime nor the kernel puts anything.
// Each client of a program has a window of its own, as its device addresses are its own.
const (
	windowBase = 0x4800_0000_0000
	windowSize = 32 << 30
	windowsAt  = 1 << 40 // distance between two attempts
	windows    = 4
)

// placeArena maps the data arena at an address that the program can use too. If no window is free,
// everything works except that kernels cannot access the program's memory.
func placeArena(shared *wire.Shared, arena *os.File, base uint64, log *slog.Logger) {
	if uint64(len(shared.Arena())) > windowSize {
		return
	}
	var err error
	for i := range uint64(windows) {
		at := windowBase + base>>40%64*windowSize + i*windowsAt
		if err = shared.Place(arena, at); err == nil {
			return
		}
	}
	log.Debug("kernels will not reach the program's memory", "error", err)
}

// mapShared maps the memory that the client shares with its program. base is the first of its device
// addresses.
func mapShared(ring, arena *os.File, base uint64, log *slog.Logger) (*wire.Shared, error) {
	shared, err := wire.Map(ring, arena)
	if err == nil {
		placeArena(shared, arena, base, log)
	}
	return shared, err
}

// reached is memory of the program that kernels can access.
type reached struct {
	host  []byte
	own   bool // mapped for this purpose, and not part of the arena's mapping
	unmap map[*gpu]func() error
}

// errNotReached says that kernels cannot access the program's memory.
var errNotReached = fmt.Errorf("memory of the program's: %w", device.ErrNotSupported)

// errTaken says that the program's memory has an address at which this process has something else.
// The daemon starts workers so that they lie apart from programs; where it may not, addresses are
// given out at random, and another worker hardly has something there, too: the client is rebuilt in
// one, unless kernels have reached other memory of the program. mostTaken is how often.
var errTaken = errors.New("the program's memory has an address that is taken in its worker")

const mostTaken = 3

// mapHost lets kernels access memory of the program, in all open contexts; mapAll does it for
// contexts that are opened later. From now on the client cannot be rebuilt: a replay would repeat
// what kernels did to that memory, and nobody has its former contents.
func (w *worker) mapHost(o *clientcore.Op) error {
	part, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	r := &reached{host: part, unmap: map[*gpu]func() error{}}
	if wire.AddressOf(part) != o.Range.Addr {
		if r.host, err = wire.MapAt(w.files[1], o.Out.Offset, o.Out.Length, o.Range.Addr); err != nil {
			if errors.Is(err, syscall.EEXIST) && w.serve.Tries < mostTaken && w.keeper.Valid() {
				return fmt.Errorf("%w (%v)", errTaken, err)
			}
			// The library has another address to try, so the user is not told.
			return fmt.Errorf("memory of the program's (%v): %w", err, device.ErrInvalidValue)
		}
		r.own = true
	}
	if w.reached == nil {
		w.reached = map[uint64]*reached{}
	}
	w.reached[o.Range.Addr] = r
	for _, g := range w.contexts.open {
		if err := w.mapFor(g, r); err != nil {
			w.unmapHost(o.Range.Addr)
			return err
		}
	}
	w.keeper.ExposeByUse("its kernels reach memory of the program's")
	return nil
}

// mapFor lets the kernels of a context access the memory. The driver may wait for kernels meanwhile.
func (w *worker) mapFor(g *gpu, r *reached) error {
	mapHost := g.context.Can().MapHost
	if mapHost == nil {
		return errNotReached
	}
	var unmap func() error
	err := w.block(func() (err error) {
		unmap, err = mapHost(r.host)
		return err
	})
	if err == nil {
		r.unmap[g] = unmap
	}
	return err
}

// mapAll lets the kernels of a new context access all such memory.
func (w *worker) mapAll(g *gpu) error {
	for _, m := range w.core.Mapped {
		r := w.reached[m.Addr]
		if r == nil { // this worker continues the work of another
			o := m.Op()
			if err := w.mapHost(&o); err != nil {
				return err
			}
			r = w.reached[m.Addr]
		}
		if err := w.mapFor(g, r); err != nil {
			return err
		}
	}
	return nil
}

// unmapHost takes memory of the program away from kernels. The caller makes sure that no kernel
// uses it.
func (w *worker) unmapHost(addr uint64) {
	r := w.reached[addr]
	if r == nil {
		return
	}
	delete(w.reached, addr)
	for g, unmap := range r.unmap {
		if !w.contexts.has(g) {
			continue // closed, and the mapping with it
		}
		if err := unmap(); err != nil {
			w.log.Debug("unmapping host memory", "error", err)
		}
	}
	if r.own {
		_ = wire.UnmapAt(r.host)
	}
}
