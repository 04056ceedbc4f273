package clientcore

import (
	"fmt"
	"slices"
	"time"

	"muster/vmm"
	"muster/wire/control"
)

// departure takes the client off its devices: what it has there moves to the host, and the lease goes back.
type departure struct {
	*standing
	Release  *Release // the lease is being returned
	verdicts *verdicts
	queue    *queue
	streams  *streams
	hosts    *hosts
	memory   *memory
	room     *room
	modules  *modules
	textures *textures
	loans    *loans
	mapped   *mapped
	activity *activity

	leaving *Op // the Leave or Backup that is performed
}

func (d *departure) save(to *State)   { to.Release = d.Release }
func (d *departure) load(from *State) { d.Release = from.Release }

// Release is a lease that is being returned.
type Release struct {
	Keep   bool          // the context stays open
	Stay   uint64        `json:",omitempty"` // bytes of memory that may stay there
	Step   uint64        `json:",omitempty"` // the daemon is told each time that so many bytes are free; 0: at the end
	Asked  bool          // the executor was told to leave
	Answer bool          // the daemon waits for Released, even if no lease is held
	Took   time.Duration `json:",omitempty"` // how long it took to move the memory
}

// revoke notes that the daemon wants the device back, or what the client keeps on one it has left.
func (d *departure) revoke(m control.Revoke) {
	if d.hosts.Outstanding() > 0 {
		d.Lease.revoked(m)
		return
	}
	d.beginRelease(m.Reason, m.Keep, m.Step)
}

// begin has the lease returned.
func (d *departure) begin(r Release) { d.Release = &r }

// beginWanted begins the release for which a revocation has waited.
func (d *departure) beginWanted() {
	l := &d.Lease
	l.Wanted = false
	d.beginRelease(l.WantedFor, l.WantedKeep, l.WantedStep)
}

func (d *departure) beginRelease(reason string, stay, step uint64) {
	d.Release = &Release{Keep: d.Lease.Held && (!leavesForGood(reason) || stay > 0), Answer: true, Step: step}
	if d.Release.Keep {
		d.Release.Stay = stay
	}
}

// stepRelease does the next step of a release: running work ends, the client's memory moves to the
// host, and the lease goes back. The context may stay open.
func (d *departure) stepRelease() {
	r := d.Release
	if n := len(d.Contexts); n > 1 {
		d.leave(d.Contexts[n-1].Place, true, 0)
		return
	}
	if !r.Asked && len(d.Contexts) > 0 {
		if d.leavePart(r) {
			return
		}
		r.Asked = true
		d.leave(d.Contexts[0].Place, !r.Keep, r.Stay)
		return
	}
	d.Release = nil
	d.loans.giveUpAll()
	switch {
	case d.Lease.Held:
		d.letGo(r.Took)
	case r.Answer:
		d.say(control.Released{Lease: d.Lease.Number})
	}
}

// largeStep is a multiple of what devices map and unmap at once: cutting such a piece in two is slow.
const largeStep = 32 << 20

// leavePart has the next part of the client's memory moved off its device, if more than one step is
// left, so that another client can have the room meanwhile.
func (d *departure) leavePart(r *Release) bool {
	x := d.here()
	if r.Step == 0 || x == nil {
		return false
	}
	unit := d.config.Chunk
	if r.Step >= largeStep {
		unit = max(unit, largeStep)
	}
	step, stays := (r.Step+unit-1)/unit*unit, uint64(0)
	if r.Keep {
		stays = r.Stay - min(r.Stay, d.textures.beside())
	}
	if d.memory.space.Mapped(x.Place) <= stays+step {
		return false
	}
	plan := d.memory.space.Evict(x.Place, step)
	d.memory.swapped(plan)
	d.memory.count(plan)
	o := Op{Kind: Leave, Place: x.Place, Plan: plan, Part: true}
	d.leaving = &o
	d.ask(o)
	return true
}

// freed tells the daemon what the client still has on a device that it is leaving. It takes no more
// there under this lease.
func (d *departure) freed(p vmm.Place) {
	if left := d.textures.beside() + d.memory.space.Mapped(p); left < d.Lease.Memory {
		d.Lease.Memory = left
		d.say(control.Freed{Lease: d.Lease.Number, Left: left})
	}
}

// leave has everything moved off a device, except up to stay bytes beside the context. If shut, the
// context is closed.
func (d *departure) leave(p vmm.Place, shut bool, stay uint64) {
	var plan vmm.Plan
	stay -= min(stay, d.textures.beside())
	if mapped := d.memory.space.Mapped(p); shut || stay == 0 {
		plan = d.memory.space.Evict(p, 0)
	} else if mapped > stay {
		plan = d.memory.space.Evict(p, mapped-stay)
	}
	if len(plan) > 0 {
		d.memory.stats.Swaps++
		d.memory.swapped(plan)
		d.memory.count(plan)
	}
	o := Op{Kind: Leave, Place: p, Plan: plan, Shut: shut}
	o.Events, _ = d.streams.pendingEvents(&p)
	if shut && !d.isFurther(p) {
		o.Modules = d.modules.live()
	}
	d.leaving = &o
	d.ask(o)
}

// left notes that the client has left a device.
func (d *departure) left(o Outcome) {
	was := d.leaving
	d.leaving = nil
	if d.Release != nil && !d.isFurther(was.Place) {
		d.Release.Took += o.Took
	}
	if o.Err != nil {
		d.ended = fmt.Errorf("moving memory failed: %w", o.Err)
		return
	}
	for i, id := range was.Events {
		if e := d.streams.Events[id]; e != nil && i < len(o.Times) {
			e.Pending, e.At = false, o.Times[i]
		}
	}
	if was.Part {
		d.freed(was.Place)
	}
	if !was.Shut {
		return
	}
	further := d.isFurther(was.Place)
	if !further {
		d.modules.keep(o.Saved)
	}
	d.forgetContext(was.Place)
	if f := d.loans.further(was.Place.Index()); further && f != nil {
		d.loans.giveUp(f)
	}
}

// forgetContext drops what the core knows about a context that no longer exists. All work in a further one
// has ended.
func (d *departure) forgetContext(p vmm.Place) {
	further := d.isFurther(p)
	d.Contexts = slices.DeleteFunc(d.Contexts, func(x *Context) bool { return x.Place == p })
	if further {
		d.mapped.stale()
		for _, st := range d.streams.ByID {
			st.Live = st.Live && st.At != p
		}
	} else {
		d.modules.forget()
		d.streams.forget()
	}
	for _, e := range d.streams.Events {
		if !further || e.Place == p {
			e.Live, e.Pending = false, false
		}
	}
}

// closeContexts closes all contexts, with everything in them.
func (d *departure) closeContexts() {
	d.hosts.dropHosts() // first: closing waits for streams that wait for the program
	for len(d.Contexts) > 0 {
		p := d.Contexts[len(d.Contexts)-1].Place
		d.emit(Op{Kind: Close, Place: p})
		d.forgetContext(p)
	}
	for _, device := range d.config.Devices {
		d.memory.space.Lost(device.Place)
	}
}

// letGo returns the lease. None of the client's memory is on the device but what may stay.
func (d *departure) letGo(took time.Duration) {
	d.activity.stop()
	d.Lease.end()
	d.say(control.Released{Lease: d.Lease.Number, Keeps: d.keeps(), Took: took})
	d.say(control.Report{Stats: d.memory.Stats()})
}

// fault notes that the client's work has failed for good: everything on its devices is gone, and
// every later call fails.
func (d *departure) fault(err error) {
	if d.verdicts.Faulted != nil {
		return
	}
	d.verdicts.fail(err)
	d.closeContexts()
	d.activity.stop()
	d.loans.giveUpAll()
	d.Lease.end()
	d.Release = nil
	d.say(control.Failed{Lease: d.Lease.Number, Reason: err.Error()})
}

// keeps is what contexts that stay open without a lease take, including memory that stayed there.
func (d *departure) keeps() (bytes uint64) {
	for _, x := range d.Contexts {
		bytes += x.Cost + d.textures.beside() + d.memory.space.Mapped(x.Place)
	}
	return bytes
}

func (d *departure) check() error {
	known := map[vmm.Place]bool{}
	for _, d := range d.config.Devices {
		known[d.Place] = true
	}
	if d.Lease.Held && (d.Lease.Device < 0 || d.Lease.Device >= len(d.config.Devices)) {
		return fmt.Errorf("a lease of device %d of %d", d.Lease.Device, len(d.config.Devices))
	}
	lent := func(x *Context) bool {
		f := d.loans.further(x.Place.Index())
		return f != nil && f.Number > 0 && x.Has != nil && d.context(x.Place) == x
	}
	for i, x := range d.Contexts {
		if x == nil || !known[x.Place] || i > 0 && !lent(x) || x.Number == 0 || x.Number > d.Made {
			return fmt.Errorf("context %d of %d is none that the client can have", i, len(d.Contexts))
		}
	}
	for i, f := range d.loans.Further {
		if f.Device < 0 || f.Device >= len(d.config.Devices) || slices.ContainsFunc(d.loans.Further[:i], func(o Further) bool { return o.Device == f.Device }) {
			return fmt.Errorf("a loan of device %d of %d, or two of them", f.Device, len(d.config.Devices))
		}
	}
	if len(d.Contexts) == 0 {
		for p := range known {
			if d.memory.space.Mapped(p) > 0 {
				return fmt.Errorf("memory on %v, where there is no context", p)
			}
		}
	}
	return nil
}

// leavesFurther leaves the next further context that must be left, or returns a device without one.
// It returns false if there is nothing to do. Running host functions come first, as with a lease.
func (d *departure) leavesFurther() bool {
	if d.hosts.Outstanding() > 0 {
		return false
	}
	for i := range d.loans.Further {
		f := &d.loans.Further[i]
		if !f.Leaving {
			continue
		}
		if p := d.config.Devices[f.Device].Place; d.context(p) != nil {
			d.leave(p, true, 0)
			return true
		}
		d.loans.giveUp(f)
		return true
	}
	return false
}

// Reasons of revocations that matter to the core: for these the client leaves for good, and closes
// its context too. For any other reason the context stays open, for the next lease.
const (
	forMemory = "memory"         // another client needs the memory
	forMove   = "move"           // the next lease is for another device
	forDrain  = "drain"          // the device accepts no more clients
	forGrant  = "grant"          // the device, or the client's memory there, was granted to a job
	forRoom   = "quantum-memory" // the client's turn is over, and its context would be in the way
	forLimit  = "limit"          // the client's job is suspended, or may not use as many devices
)

// leavesForGood says whether a revocation for this reason closes the context.
func leavesForGood(reason string) bool {
	return reason == forMemory || reason == forRoom || reason == forMove || reason == forDrain || reason == forGrant || reason == forLimit
}

// Checkpoints. A client is saved when it has left its device: Detach makes it leave, and then what
// Save or SavePoint write, with the host copies, is all of it. Replace puts a saved client in the
// place of one that is running.

// CanDetach says whether Detach may be called: no host function is running, and the daemon owes no
// answer to Grow, which Detach would make ambiguous.
func (d *departure) CanDetach() bool {
	return d.hosts.Outstanding() == 0 && !d.Lease.Growing && d.queue.Parked == nil
}

// Standing is what a daemon must know about a client that it has not served before.
func (d *departure) Standing() control.Standing {
	s := control.Standing{Lease: d.Lease.Number, Failed: d.verdicts.Faulted != nil, Committed: d.room.Committed}
	if l := &d.Lease; l.Held {
		s.Held, s.Device, s.Memory = true, l.Device, l.Memory
		return s
	}
	s.Keeps = d.keeps()
	for i, device := range d.config.Devices {
		if d.context(device.Place) != nil {
			s.Device = i
		}
	}
	return s
}
