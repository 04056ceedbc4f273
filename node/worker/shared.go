package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/sharing"
	"muster/vmm"
)

// commons serves the messages about memory that several clients have at the same time (MakeShared, Share,
// OpenShared, CloseShared). A client with such memory cannot be rebuilt: a replay could not undo what other
// clients have written.
type commons struct {
	*session
	moves   *moves
	counter *sharing.Counter
	all     map[uint64]*common // by address
}

// common is memory that several clients have at the same time.
type common struct {
	file *os.File
	name clientcore.Name
	at   vmm.Range
}

var errNotShared = fmt.Errorf("memory that several programs have: %w", device.ErrNotSupported)

// make has a device create memory for several clients, and offers its file to their workers.
func (c *commons) make(o *clientcore.Op) (outcome clientcore.Outcome) {
	g, err := c.contexts.at(o.Place)
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	newShared := g.context.Can().NewShared
	if newShared == nil {
		return clientcore.Outcome{Err: errNotShared}
	}
	c.counter.DropUnused()
	file, err := newShared(o.Range.Size)
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	if outcome.Name, outcome.Err = c.counter.Offer(file); outcome.Err != nil {
		file.Close()
	}
	return outcome
}

// share replaces memory of the client by shared memory with the same contents.
//
// The plan is done in two parts: first everything but the discards, which brings the contents to
// the host and frees the addresses; and the discards last, when the contents have been copied to
// the shared memory.
func (c *commons) share(o *clientcore.Op) error {
	g, err := c.contexts.at(o.Place)
	if err == nil {
		err = c.moves.waits.drain(g)
	}
	if err != nil {
		return err
	}
	c.expose()
	discards := func(s vmm.Step) bool { return s.Op == vmm.Discard }
	if _, err := c.moves.move(slices.DeleteFunc(slices.Clone(o.Plan), discards), false); err != nil {
		return err
	}
	file := c.counter.Take(o.Share)
	if file == nil {
		return errors.New("memory that was to be shared is gone")
	}
	if err := c.add(&common{file, o.Share, o.Range}); err != nil {
		return err
	}
	for _, r := range o.Ranges {
		if err := c.host.Each(r, func(addr uint64, piece []byte) error { return g.mover.CopyIn(addr, piece) }); err != nil {
			return err
		}
	}
	if err := c.moves.mover.finish(g); err != nil {
		return err
	}
	if o.On {
		for _, r := range o.Ranges {
			c.host.Release(r)
		}
	}
	_, err = c.moves.move(slices.DeleteFunc(slices.Clone(o.Plan), func(s vmm.Step) bool { return !discards(s) }), false)
	return err
}

// open maps memory that another client shares at an address.
func (c *commons) open(o *clientcore.Op) error {
	file := c.counter.Take(o.Share) // it may be this client's own
	if file == nil {
		var err error
		if file, err = c.counter.Fetch(o.Share); err != nil {
			c.log.Debug("memory of another client", "error", err)
			return fmt.Errorf("no program of this user on this node shares that memory any more: %w", device.ErrInvalidValue)
		}
	}
	one := &common{file, o.Share, o.Range}
	err := c.add(one)
	if err != nil {
		c.drop(one)
		c.counter.Put(o.Share, file)
	}
	return err
}

func (c *commons) expose() { c.keeper.ExposeByUse("it shares memory with other programs") }

// add maps shared memory in all open contexts; opened does it for contexts that are opened later.
func (c *commons) add(one *common) error {
	if c.all == nil {
		c.all = map[uint64]*common{}
	}
	c.all[one.at.Addr] = one
	for _, g := range c.contexts.open {
		if err := one.in(g); err != nil {
			return err
		}
	}
	c.expose()
	return nil
}

// in maps the memory in a context.
func (c *common) in(g *gpu) error {
	mapShared := g.context.Can().MapShared
	if mapShared == nil {
		return errNotShared
	}
	return mapShared(c.at.Addr, c.at.Size, c.file)
}

// opened maps all shared memory in a new context.
func (c *commons) opened(g *gpu, all []clientcore.Shared) error {
	for i := range all {
		one := c.all[all[i].Addr]
		if one == nil {
			return errors.New("memory that the program shares with others is gone")
		}
		if err := one.in(g); err != nil {
			return err
		}
	}
	return nil
}

func (c *commons) drop(one *common) {
	delete(c.all, one.at.Addr)
	for _, g := range c.contexts.open {
		if err := g.context.Unmap(one.at.Addr, one.at.Size); err != nil {
			c.log.Debug("taking away shared memory", "error", err)
		}
	}
}

// close unmaps shared memory. The caller makes sure that no kernel uses it.
func (c *commons) close(addr uint64) {
	if one := c.all[addr]; one != nil {
		c.drop(one)
		c.counter.Put(one.name, one.file)
	}
}
