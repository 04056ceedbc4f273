package clientcore

import (
	"errors"
	"fmt"

	"muster/vmm"
)

// Detach makes the client leave its device for good, as a revocation for memory does.
func (c *Core) Detach(now Time) ([]Op, error) {
	c.start(now)
	if !c.departure.CanDetach() {
		return nil, errors.New("a client cannot leave its device while functions of the program's are under way, or its lease is to grow")
	}
	if len(c.standing.Contexts) > 0 || c.standing.Lease.Held {
		c.departure.Release = &Release{Answer: c.standing.Lease.Number > 0}
	}
	return c.advance()
}

// replacement is a client that is to replace this one.
type replacement struct {
	by    *Core
	whole bool
	room  bool  // the executor has made room for it
	err   error // why there is none
}

// Replace replaces this client by another one, from Rehomed: its memory, modules, streams,
// events, graphs, textures and limits, and a fault is forgotten. If whole, also the messages that wait, which go on when Unpark
// is called. No message may be waiting (Waits). It takes a while: Replaced says when it has ended,
// and how.
func (c *Core) Replace(now Time, by *Core, whole bool) ([]Op, error) {
	c.start(now)
	c.queue.replaced = nil
	c.standing.Lease.Denied, c.room.Asked.Refused = "", ""
	c.queue.Head = &Head{replacement: &replacement{by: by, whole: whole}}
	return c.advance()
}

// Unpark continues with a client that was restored with its program.
func (c *Core) Unpark(now Time) ([]Op, error) {
	c.start(now)
	c.queue.Head, c.queue.Parked = c.queue.Parked, nil
	return c.advance()
}

// replace continues a replacement. It returns false if it waits.
func (c *Core) replace(r *replacement) bool {
	ok, err := true, r.err
	if err == nil {
		ok, err = c.room.commit(r.by.room.onHost())
	}
	switch {
	case err != nil:
		c.queue.Head, c.queue.replaced = nil, err
		c.room.commitLess(c.room.onHost())
		return true
	case !ok:
		return false
	case c.config.Reserves && !r.room:
		c.ask(Op{Kind: MakeRoom})
		return true
	}
	c.queue.Head = nil
	plan, err := c.clearAway()
	if err != nil {
		c.ended = err
		return true
	}
	c.become(r)
	c.ask(Op{Kind: Refill, Plan: plan})
	return true
}

// clearAway gives up everything the client has on devices and on the host. The plan says what the
// host may discard.
func (c *Core) clearAway() (plan vmm.Plan, err error) {
	c.hosts.dropHosts()
	c.departure.closeContexts()
	c.memory.allLost()
	c.loans.giveUpAll()
	c.shared.closeAllShared()
	if c.standing.Lease.Held {
		c.departure.letGo(0)
	}
	for _, a := range c.memory.space.Allocations() {
		if c.config.Reserves {
			c.emit(Op{Kind: GiveBack, Range: a})
		}
		freed, err := c.memory.space.Free(a.Addr)
		if err != nil {
			return nil, err
		}
		plan = append(plan, freed...)
	}
	return plan, nil
}

// become takes over what the other client has. What the daemon and the executor know about this one
// stays.
func (c *Core) become(r *replacement) {
	by, own := r.by.state(), c.state()
	if r.whole {
		by.Parked, by.Head = by.Head, nil
		own.Activity.Estimate = by.Activity.Estimate
		by.Lease, by.Further, by.Activity, by.roomState = own.Lease, own.Further, own.Activity, own.roomState
		by.Now = max(by.Now, own.Now)
		c.load(&by)
		return
	}
	own.space, own.Heap, own.Limits = by.space, by.Heap, by.Limits
	own.Modules, own.streamState, own.Graphs, own.Textures = by.Modules, by.streamState, by.Graphs, by.Textures // of those modules and that memory
	own.verdictState = verdictState{}
	own.World++
	c.load(&own)
	c.emit(Op{Kind: SetStatus})
	c.room.commitLess(c.room.onHost())
}

// refilled notes that the host copies are those of the checkpoint. If they are not, the contents of
// the client's memory are unknown, which is a fault.
func (c *Core) refilled(err error) {
	if err != nil {
		c.fault(fmt.Errorf("the client's memory was lost while a checkpoint was restored: %w", err))
	}
}
