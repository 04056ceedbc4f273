package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"muster/device"
	"muster/node/clientcore"
	"muster/vmm"
)

// common is memory that several clients have at the same time.
type common struct {
	file *os.File
	name clientcore.Name
	at   vmm.Range
}

var errNotShared = fmt.Errorf("memory that several programs have: %w", device.ErrNotSupported)

// makeShared has a device create memory for several clients, and offers its file to their workers.
func (w *worker) makeShared(_ *message, o *clientcore.Op) (outcome clientcore.Outcome) {
	g, err := w.contexts.at(o.Place)
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	newShared := g.context.Can().NewShared
	if newShared == nil {
		return clientcore.Outcome{Err: errNotShared}
	}
	w.counter.DropUnused()
	file, err := newShared(o.Range.Size)
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	if outcome.Name, outcome.Err = w.counter.Offer(file); outcome.Err != nil {
		file.Close()
	}
	return outcome
}

// share replaces memory of the client by shared memory with the same contents. From now on the
// client cannot be rebuilt: a replay could not undo what other clients have written.
//
// The plan is done in two parts: first everything but the discards, which brings the contents to
// the host and frees the addresses; and the discards last, when the contents have been copied to
// the shared memory.
func (w *worker) share(o *clientcore.Op) error {
	g, err := w.contexts.at(o.Place)
	if err == nil {
		err = w.drain(g)
	}
	if err != nil {
		return err
	}
	w.keeper.ExposeByUse("it shares memory with other programs")
	discards := func(s vmm.Step) bool { return s.Op == vmm.Discard }
	if err := w.move(slices.DeleteFunc(slices.Clone(o.Plan), discards), false); err != nil {
		return err
	}
	file := w.counter.Take(o.Share)
	if file == nil {
		return errors.New("memory that was to be shared is gone")
	}
	if err := w.mapCommon(&common{file, o.Share, o.Range}); err != nil {
		return err
	}
	for _, r := range o.Ranges {
		if err := w.host.Each(r, func(addr uint64, piece []byte) error { return g.mover.CopyIn(addr, piece) }); err != nil {
			return err
		}
	}
	if err := w.moved(g); err != nil {
		return err
	}
	if o.On {
		for _, r := range o.Ranges {
			w.host.Release(r)
		}
	}
	return w.move(slices.DeleteFunc(slices.Clone(o.Plan), func(s vmm.Step) bool { return !discards(s) }), false)
}

// openShared maps memory that another client shares at an address.
func (w *worker) openShared(o *clientcore.Op) error {
	file := w.counter.Take(o.Share) // it may be this client's own
	if file == nil {
		var err error
		if file, err = w.counter.Fetch(o.Share); err != nil {
			w.log.Debug("memory of another client", "error", err)
			return fmt.Errorf("no program of this user on this node shares that memory any more: %w", device.ErrInvalidValue)
		}
	}
	c := &common{file, o.Share, o.Range}
	err := w.mapCommon(c)
	if err != nil {
		w.unmapCommon(c)
		w.counter.Put(o.Share, file)
	}
	return err
}

// mapCommon maps shared memory in all open contexts; mapCommons does it for contexts that are
// opened later.
func (w *worker) mapCommon(c *common) error {
	if w.commons == nil {
		w.commons = map[uint64]*common{}
	}
	w.commons[c.at.Addr] = c
	for _, g := range w.contexts.open {
		if err := g.mapCommon(c); err != nil {
			return err
		}
	}
	w.keeper.ExposeByUse("it shares memory with other programs")
	return nil
}

func (g *gpu) mapCommon(c *common) error {
	mapShared := g.context.Can().MapShared
	if mapShared == nil {
		return errNotShared
	}
	return mapShared(c.at.Addr, c.at.Size, c.file)
}

// mapCommons maps all shared memory in a new context.
func (w *worker) mapCommons(g *gpu) error {
	for i := range w.core.Shared {
		c := w.commons[w.core.Shared[i].Addr]
		if c == nil {
			return errors.New("memory that the program shares with others is gone")
		}
		if err := g.mapCommon(c); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) unmapCommon(c *common) {
	delete(w.commons, c.at.Addr)
	for _, g := range w.contexts.open {
		if err := g.context.Unmap(c.at.Addr, c.at.Size); err != nil {
			w.log.Debug("taking away shared memory", "error", err)
		}
	}
}

// closeShared unmaps shared memory. The caller makes sure that no kernel uses it.
func (w *worker) closeShared(o *clientcore.Op) {
	c := w.commons[o.Range.Addr]
	if c == nil {
		return
	}
	w.unmapCommon(c)
	w.counter.Put(c.name, c.file)
}
