package clientcore

import (
	"errors"
	"fmt"

	"muster/vmm"
	"muster/wire"
)

// Checkpoints. A client is saved when it has left its device: Detach makes it leave, and then what
// Save or SavePoint write, with the host copies, is all of it. Replace puts a saved client in the
// place of one that is running.

// CanDetach says whether Detach may be called: no host function is running, and the daemon owes no
// answer to Grow, which Detach would make ambiguous.
func (c *Core) CanDetach() bool { return c.Outstanding() == 0 && !c.Lease.Growing && c.Parked == nil }

// Detach makes the client leave its device for good, as a revocation for memory does.
func (c *Core) Detach(now Time) ([]Op, error) {
	c.start(now)
	if !c.CanDetach() {
		return nil, errors.New("a client cannot leave its device while functions of the program's are under way, or its lease is to grow")
	}
	if len(c.Contexts) > 0 || c.Lease.Held {
		c.Release = &Release{Answer: c.Lease.Number > 0}
	}
	return c.advance()
}

// SavePoint writes the client as of the last message that was done, without those that wait: the
// running client goes on and answers them. The client must have left its device.
func (c *Core) SavePoint() ([]byte, error) {
	if !c.Detached() || c.asking {
		return nil, errors.New("a client cannot be saved while it is on a device")
	}
	s := *c
	if c.Head != nil && c.Head.Made { // part of it was done, and must be undone in the copy
		data, err := c.Save()
		if err != nil {
			return nil, err
		}
		copied, err := Restore(data, noPinned)
		if err != nil {
			return nil, err
		}
		copied.undo(copied.Head)
		s = *copied
	}
	s.Head, s.Parked, s.Backlog, s.Hosts = nil, nil, Backlog{}, Hosts{}
	s.rest()
	return s.Save()
}

func noPinned(wire.Header) ([]byte, error) { return nil, nil }

// rest forgets what the daemon has granted and was asked: the next daemon may be another one.
func (c *Core) rest() {
	c.Lease, c.Further, c.Release, c.Committed, c.Asked = Lease{}, nil, nil, 0, Commits{}
	c.Activity = Activity{Estimate: c.Activity.Estimate}
}

// Rehomed makes a client of what Save or SavePoint wrote of a detached client, for an executor with
// other devices. It refuses what does not fit.
func Rehomed(data []byte, find Pinned, to Config) (*Core, error) {
	c, err := Restore(data, find)
	if err != nil {
		return nil, err
	}
	if !c.Detached() || c.Outstanding() > 0 {
		return nil, fmt.Errorf("%w: it is on a device", ErrSaved)
	}
	if err := c.Alone(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSaved, err)
	}
	fresh, err := New(to)
	if err != nil {
		return nil, err
	}
	if c.config.Arena.Addr != to.Arena.Addr {
		return nil, fmt.Errorf("its memory lies at %#x, and that of this client at %#x: restore it into a client of the same virtual device", c.config.Arena.Addr, to.Arena.Addr)
	}
	if was := c.heap(); c.Heap > 0 && was != heapIn(to.Arena, c.Heap) {
		return nil, fmt.Errorf("its kernels have allocated memory themselves, at %#x, where this client cannot have a heap: restore it into a client with as much device memory", was.Addr)
	}
	space, err := c.space.Rehomed(fresh.space.Config())
	if err != nil {
		return nil, fmt.Errorf("its memory does not fit into that of this client (%s in all): %w", sizeOf(to.Limit), err)
	}
	if !sameDevices(c.config.Devices, to.Devices) {
		c.Modules.Home, c.Modules.Pinned = 0, -1 // to be found out again
	}
	c.config, c.puts, c.space, c.mapping = to, fresh.puts, space, fresh.mapping
	c.linkPeers()
	c.rest()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSaved, err)
	}
	return c, nil
}

func sameDevices(a, b []Device) bool {
	for i := range a {
		if i >= len(b) || a[i].Name != b[i].Name || a[i].Place != b[i].Place {
			return false
		}
	}
	return len(a) == len(b)
}

// Config returns the client's configuration.
func (c *Core) Config() Config { return c.config }

// Backlogged returns the headers of the queued messages.
func (c *Core) Backlogged() (all []wire.Header) {
	for i := range c.Backlog.Messages {
		all = append(all, c.Backlog.Messages[i].Header)
	}
	return all
}

// Waiting returns the headers of the messages that are not answered yet: the parked one, and those
// in the queue.
func (c *Core) Waiting() (all []wire.Header) {
	if c.Parked != nil {
		all = append(all, c.Parked.Message.Header)
	}
	return append(all, c.Backlogged()...)
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
	c.replaced = nil
	c.Lease.Denied, c.Asked.Refused = "", ""
	c.Head = &Head{replacement: &replacement{by: by, whole: whole}}
	return c.advance()
}

// Replaced says whether no Replace is in progress, and why the last one was refused. A client whose
// replacement was refused is as it was before.
func (c *Core) Replaced() (done bool, refused error) {
	return c.Head == nil || c.Head.replacement == nil, c.replaced
}

// Unpark continues with a client that was restored with its program.
func (c *Core) Unpark(now Time) ([]Op, error) {
	c.start(now)
	c.Head, c.Parked = c.Parked, nil
	return c.advance()
}

// replace continues a replacement. It returns false if it waits.
func (c *Core) replace(r *replacement) bool {
	ok, err := true, r.err
	if err == nil {
		ok, err = c.commit(r.by.onHost())
	}
	switch {
	case err != nil:
		c.Head, c.replaced = nil, err
		c.commitLess(c.onHost())
		return true
	case !ok:
		return false
	case c.config.Reserves && !r.room:
		c.ask(Op{Kind: MakeRoom})
		return true
	}
	c.Head = nil
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
	c.dropHosts()
	c.closeContexts()
	c.allLost()
	c.giveUpAll()
	c.closeAllShared()
	if c.Lease.Held {
		c.letGo(0)
	}
	for _, a := range c.space.Allocations() {
		if c.config.Reserves {
			c.emit(Op{Kind: GiveBack, Range: a})
		}
		freed, err := c.space.Free(a.Addr)
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
	own := c.State
	c.space = r.by.space
	c.linkPeers()
	if r.whole {
		c.State, c.stats = r.by.State, r.by.stats
		c.Parked, c.Head = c.Head, nil
		own.Activity.Estimate = c.Activity.Estimate
		c.Lease, c.Further, c.Activity = own.Lease, own.Further, own.Activity
		c.Committed, c.Asked = own.Committed, own.Asked
		c.Now = max(c.Now, own.Now)
		return
	}
	c.Modules, c.Streams, c.Events = r.by.Modules, r.by.Streams, r.by.Events
	c.Graphs, c.Textures, c.Limits, c.Heap = r.by.Graphs, r.by.Textures, r.by.Limits, r.by.Heap // of those modules and that memory
	c.Failure, c.Sticky, c.Faulted, c.Told = success, success, nil, nil
	c.World++
	c.emit(Op{Kind: SetStatus})
	c.commitLess(c.onHost())
}

// refilled notes that the host copies are those of the checkpoint. If they are not, the contents of
// the client's memory are unknown, which is a fault.
func (c *Core) refilled(err error) {
	if err != nil {
		c.fault(fmt.Errorf("the client's memory was lost while a checkpoint was restored: %w", err))
	}
}
