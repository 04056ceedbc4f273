package clientcore

import (
	"errors"

	"muster/vmm"
)

// Detach makes the client leave its device for good, as a revocation for memory does.
func (c *Core) Detach(now Time) ([]Op, error) {
	c.start(now)
	if !c.departure.CanDetach() {
		return nil, errors.New("a client cannot leave its device while functions of the program's are under way, or its lease is to grow")
	}
	if len(c.standing.Contexts) > 0 || c.standing.Lease.Held {
		c.departure.begin(Release{Answer: c.standing.Lease.Number > 0})
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
	s := c.savers.state()
	s.become(r.by.savers.state(), r.whole)
	c.savers.load(&s)
	if !r.whole {
		c.emit(Op{Kind: SetStatus})
		c.room.commitLess(c.room.onHost())
	}
	c.ask(Op{Kind: Refill, Plan: plan})
	return true
}

// become takes over what another client has. What the daemon and the executor know about this one stays.
func (s *State) become(by State, whole bool) {
	if !whole {
		s.space, s.Heap, s.Limits = by.space, by.Heap, by.Limits
		s.Modules, s.streamState, s.Graphs, s.Textures = by.Modules, by.streamState, by.Graphs, by.Textures // of those modules and that memory
		s.verdictState = verdictState{World: s.World + 1}
		return
	}
	own := *s
	*s = by
	s.Parked, s.Head = s.Head, nil
	own.Activity.Estimate = s.Activity.Estimate
	s.Lease, s.Further, s.Activity, s.roomState = own.Lease, own.Further, own.Activity, own.roomState
	s.Now = max(s.Now, own.Now)
}

// clearAway gives up everything the client has on devices and on the host. The plan says what the
// host may discard.
func (c *Core) clearAway() (plan vmm.Plan, err error) {
	c.departure.closeContexts()
	c.loans.giveUpAll()
	c.shared.closeAllShared()
	if c.standing.Lease.Held {
		c.departure.letGo(0)
	}
	for _, a := range c.memory.space.Allocations() {
		c.memory.reserve(GiveBack, a)
	}
	return c.memory.freeAll()
}
