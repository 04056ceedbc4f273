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

// reach serves the messages that map host memory of the program for kernels, or unmap it (MapHost, UnmapHost).
// A client with such memory cannot be rebuilt: a replay would repeat what kernels did to that memory, and
// nobody has its former contents.
type reach struct {
	*session
	waits *waits
	arena *os.File            // of shared
	all   map[uint64]*reached // by address
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

// add lets kernels access memory of the program, in all open contexts; opened does it for contexts that are
// opened later.
func (h *reach) add(o *clientcore.Op) error {
	part, err := h.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	r := &reached{host: part, unmap: map[*gpu]func() error{}}
	if wire.AddressOf(part) != o.Range.Addr {
		if r.host, err = wire.MapAt(h.arena, o.Out.Offset, o.Out.Length, o.Range.Addr); err != nil {
			if errors.Is(err, syscall.EEXIST) && h.serve.Tries < mostTaken && h.keeper.Valid() {
				return fmt.Errorf("%w (%v)", errTaken, err)
			}
			// The library has another address to try, so the user is not told.
			return fmt.Errorf("memory of the program's (%v): %w", err, device.ErrInvalidValue)
		}
		r.own = true
	}
	if h.all == nil {
		h.all = map[uint64]*reached{}
	}
	h.all[o.Range.Addr] = r
	for _, g := range h.contexts.open {
		if err := h.in(g, r); err != nil {
			h.drop(o.Range.Addr)
			return err
		}
	}
	h.keeper.ExposeByUse("its kernels reach memory of the program's")
	return nil
}

// in lets the kernels of a context access the memory. The driver may wait for kernels meanwhile.
func (h *reach) in(g *gpu, r *reached) error {
	mapHost := g.context.Can().MapHost
	if mapHost == nil {
		return errNotReached
	}
	var unmap func() error
	err := h.waits.block(func() (err error) {
		unmap, err = mapHost(r.host)
		return err
	})
	if err == nil {
		r.unmap[g] = unmap
	}
	return err
}

// opened lets the kernels of a new context access all such memory.
func (h *reach) opened(g *gpu, all []clientcore.Mapping) error {
	for _, m := range all {
		r := h.all[m.Addr]
		if r == nil { // this worker continues the work of another
			o := m.Op()
			if err := h.add(&o); err != nil {
				return err
			}
			r = h.all[m.Addr]
		}
		if err := h.in(g, r); err != nil {
			return err
		}
	}
	return nil
}

// drop takes memory of the program away from kernels. The caller makes sure that no kernel uses it.
func (h *reach) drop(addr uint64) {
	r := h.all[addr]
	if r == nil {
		return
	}
	delete(h.all, addr)
	for g, unmap := range r.unmap {
		if !h.contexts.has(g) {
			continue // closed, and the mapping with it
		}
		if err := unmap(); err != nil {
			h.log.Debug("unmapping host memory", "error", err)
		}
	}
	if r.own {
		_ = wire.UnmapAt(r.host)
	}
}
