package clientcore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/vmm"
	"muster/wire"
)

// Base is a client without its devices. With the host copies of the moment it is made, and the
// messages that come after it, the client can be rebuilt.
type Base struct {
	Client []byte   // as Save writes it, without the blobs
	Blobs  [][]byte // images, contents of variables, and graphs
}

// CanFold says whether the client is between two messages and no host function is running: then a
// base can hold all of its state. A client whose kernels access the program's memory, or memory
// shared with other clients, cannot have a base: nobody could undo what they wrote there.
func (c *Core) CanFold() bool {
	return len(c.Mapped) == 0 && len(c.Shared) == 0 && !c.asking && c.ended == nil && c.Head == nil && c.Parked == nil && c.Release == nil && !c.Lease.Wanted && !c.Queued() && c.Outstanding() == 0
}

// Dirty is how many bytes of memory have no copy on the host.
func (c *Core) Dirty() uint64 { return c.space.Dirty() }

// Held returns the chunks of which the host has a valid copy, in order.
func (c *Core) Held() []vmm.Range { return c.space.Held() }

// Allocations returns the client's allocations, in order.
func (c *Core) Allocations() []vmm.Range { return c.space.Allocations() }

// Blobs is how many bytes of a base are images, contents of variables and graphs, as far as the
// core knows.
func (c *Core) Blobs() int { return c.Modules.Kept + c.Modules.Contents + c.graphBytes }

// Spent is how long kernels have run since the client began.
func (c *Core) Spent() time.Duration { return c.Activity.Spent }

// Fold makes a base of the client. What is only on a device is copied to the host first; then
// Commit hands over the base. Fold does nothing if the client cannot be folded now.
func (c *Core) Fold(now Time) ([]Op, error) {
	c.start(now)
	if !c.CanFold() {
		return nil, nil
	}
	x := c.anyContext()
	if x == nil {
		return c.ops, c.commitBase(nil, Outcome{})
	}
	plan := c.space.Backup()
	c.count(plan)
	o := Op{Kind: Backup, Place: x.Place, Plan: plan, Modules: c.Modules.live()}
	o.Events, o.At = c.pendingEvents(nil)
	c.leaving = &o
	c.ask(o)
	return c.ops, nil
}

// backedUp notes that the host has a copy of everything.
func (c *Core) backedUp(o Outcome) {
	was := c.leaving
	c.leaving = nil
	if o.Err != nil {
		c.ended = fmt.Errorf("copying memory to the host failed: %w", o.Err)
		return
	}
	c.ended = c.commitBase(was.Events, o)
}

func (c *Core) commitBase(events []uint32, o Outcome) error {
	b, err := c.base(events, o)
	if err == nil {
		c.emit(Op{Kind: Commit, Base: b})
	}
	return err
}

// base is the client as if it had left its device. The times of events and the contents of
// variables are those in the outcome.
func (c *Core) base(events []uint32, o Outcome) (*Base, error) {
	s := c.State
	s.Lease = Lease{Number: c.Lease.Number}
	s.Contexts, s.Further = nil, nil
	s.Asked = Commits{}
	s.Activity = Activity{Estimate: c.Activity.Estimate, Spent: c.Activity.Spent}
	s.Streams = c.Streams.copied()
	s.Streams.forget()
	s.Events = make(map[uint32]*Event, len(c.Events))
	for id, e := range c.Events {
		s.Events[id] = &Event{Recorded: e.Recorded, At: e.At}
	}
	for i, id := range events {
		if e := s.Events[id]; e != nil && i < len(o.Times) {
			e.At = o.Times[i]
		}
	}
	s.Modules = c.Modules.copied()
	s.Modules.forget()
	s.Modules.save(o.Saved)
	space, err := c.detachedSpace()
	if err != nil {
		return nil, err
	}
	b := &Base{}
	s.Graphs = copiedGraphs(c.Graphs)
	s.blobs(func(blob []byte) []byte {
		b.Blobs = append(b.Blobs, blob)
		return nil
	})
	b.Client, err = json.Marshal(saved{savedVersion, c.config, s, space, c.stats})
	return b, err
}

// detachedSpace is the directory without the copies on devices.
func (c *Core) detachedSpace() ([]byte, error) {
	data, err := c.space.MarshalBinary()
	if err != nil || len(c.Contexts) == 0 {
		return data, err
	}
	var copied vmm.Space
	if err := copied.UnmarshalBinary(data); err != nil {
		return nil, err
	}
	for _, x := range c.Contexts {
		copied.Lost(x.Place)
	}
	return copied.MarshalBinary()
}

func (t *Streams) copied() Streams {
	all := Streams{ByID: make(map[uint32]*Stream, len(t.ByID)), All: t.All, Strayed: t.Strayed}
	for id, st := range t.ByID {
		other := *st
		all.ByID[id] = &other
	}
	return all
}

// copied returns a copy whose modules, but not their images, can be changed.
func (m *Modules) copied() Modules {
	all := *m
	all.All = make(map[uint64]*Module, len(m.All))
	for serial, mod := range m.All {
		other := *mod
		other.Saved = slices.Clone(mod.Saved)
		all.All[serial] = &other
	}
	all.Images = maps.Clone(m.Images)
	return all
}

// blobs lets f replace everything that may be large, always in the same order.
func (s *State) blobs(f func([]byte) []byte) {
	s.Modules.blobs(f)
	graphBlobs(s.Graphs, f)
}

func (m *Modules) blobs(f func([]byte) []byte) {
	for _, serial := range slices.Sorted(maps.Keys(m.All)) {
		mod := m.All[serial]
		if mod == nil {
			continue // damaged, which check reports
		}
		mod.Image = f(mod.Image)
		for i := range mod.Saved {
			mod.Saved[i] = f(mod.Saved[i])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Images)) {
		m.Images[id] = f(m.Images[id])
	}
}

// RestoreBase makes a client of a base. It checks as strictly as Restore.
func RestoreBase(b Base, find Pinned) (*Core, error) {
	var s saved
	if err := s.decode(b.Client); err != nil {
		return nil, err
	}
	missing := 0
	s.State.blobs(func([]byte) []byte {
		if len(b.Blobs) == 0 {
			missing++
			return nil
		}
		blob := b.Blobs[0]
		b.Blobs = b.Blobs[1:]
		return slices.Clone(blob)
	})
	if missing > 0 || len(b.Blobs) > 0 {
		return nil, fmt.Errorf("%w: %d blobs are missing and %d too many", ErrSaved, missing, len(b.Blobs))
	}
	c, err := s.restore(find)
	if err == nil && !c.Detached() {
		err = fmt.Errorf("%w: it is on a device", ErrSaved)
	}
	if err == nil && c.Alone() != nil {
		err = fmt.Errorf("%w: %w", ErrSaved, c.Alone())
	}
	return c, err
}

// WaitingSlots returns the slots in which the program waits for host functions to call.
func (c *Core) WaitingSlots() []int { return c.Hosts.Slots }

// Leased says which lease the daemon granted last. What the client says from now on is about that
// lease or a later one.
func (c *Core) Leased(number uint64) { c.Lease.Number = max(c.Lease.Number, number) }

// Answered says in which slots the program was given a host function since the base.
func (c *Core) Answered(is func(slot int) bool) { c.Hosts.Slots = slices.DeleteFunc(c.Hosts.Slots, is) }

// RefuseAgain handles a message that was refused with a result the first time. The cause may be
// gone now, but the program knows that the message failed, and its user was told why.
func (c *Core) RefuseAgain(now Time, h wire.Header, r Result) ([]Op, error) {
	c.start(now)
	c.Current = h
	c.refuseWith(r)
	return c.advance()
}

// Equip tells a rebuilt client which devices exist now: those it knows, under the same numbers, and
// perhaps more.
func (c *Core) Equip(devices []Device) error {
	if len(devices) < len(c.config.Devices) {
		return fmt.Errorf("the client knows %d devices, and %d are there", len(c.config.Devices), len(devices))
	}
	for _, d := range devices[len(c.config.Devices):] {
		if err := c.space.AddDevice(d.Place); err != nil {
			return err
		}
	}
	c.know(devices)
	return nil
}
