package node

import (
	"fmt"
	"time"

	"muster/node/fate"
	"muster/node/loop"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/wire/control"
)

// What comes to the loop, and which part handles it: alarms; what the dispatcher decides (Decided, Perform,
// Performed); what workers say (message). What people ask is in package requests, what connections bring in
// entrance.go, and how clients come and go in client.go.

// run runs the loop. What happens comes from the goroutines that serve connections, workers and devices.
func (d *daemon) run() {
	tend := func() { d.spares.Tend(d.settings.Load().Spare, d.loop.Draining(), d.stock.Load()) }
	d.loop.Run(func() bool { return len(d.clients) == 0 }, d.alarms(tend), tend)
}

// alarms are what the loop does when it is time.
func (d *daemon) alarms(tendSpares func()) []loop.Alarm {
	return []loop.Alarm{
		{Next: d.dispatcher.Next, Ring: func() { d.dispatcher.Step(vgpu.Tick{}) }},
		{Next: d.rebuilder.nextBeat, Ring: d.rebuilder.checkWorkers},
		{Next: d.parking.next, Ring: d.parking.tell},
		{Next: d.nextExpiry, Ring: d.grants.Expire},
		{Next: d.sharing.Next, Ring: d.faults.returnCleared},
		{Next: d.lending.Next, Ring: d.lending.Tend},
		{Next: func() (time.Duration, bool) { return d.spares.Next(d.settings.Load().Spare, d.stock.Load()) }, Ring: tendSpares},
		{Next: d.keeper.Next, Ring: d.files.saveDue},
	}
}

// Decided counts what the dispatcher decided, and writes it down.
func (d *daemon) Decided(now time.Duration, e vgpu.Event, effects []vgpu.Effect) {
	d.count(effects)
	d.files.saveChanged(now, e, effects)
}

// Performed continues what waits for the dispatcher.
func (d *daemon) Performed() {
	d.traces.tell()
	d.stock.Tend()
	d.lending.Touch()
}

// message handles what a worker says. Of a client that is ending, only its last words count.
func (d *daemon) message(c *client, said control.ToDaemon) {
	if d.clients[c.id] != c || c.ending && !d.lastWords(c, said) {
		return
	}
	d.log.Debug("heard", "client", c.id, "kind", said.Kind(), "message", fmt.Sprintf("%+v", said))
	said, err := c.credible(said)
	if err != nil {
		d.end(c, "its worker is broken: "+err.Error(), true)
		return
	}
	now := d.loop.Now()
	c.unsaved = true
	d.keeper.Touch(now)
	switch m := said.(type) {
	case control.Standing:
		d.adoption.stands(c, m)
	case control.Want:
		c.wants(c.guest.pins(vgpu.DeviceID(m.Pinned)), now)
		d.staff.spareUsed(c, func() {
			d.dispatcher.Step(vgpu.Want{Client: c.id, Need: c.needs(m.Memory), Estimate: m.Estimate, Pinned: c.pinned})
			d.loans.carriesInVain(c)
		})
	case control.Forgone:
		d.staff.leaveSpare(c)
	case control.Grow:
		d.dispatcher.Step(vgpu.Grow{Client: c.id, Need: m.Memory})
		d.loans.growsInVain(c)
	case control.Released:
		if m.Lease < c.lease { // the worker sent it before it received a newer grant
			return
		}
		c.leaves()
		d.dispatcher.Step(vgpu.Released{Client: c.id, Keeps: m.Keeps, Took: m.Took})
	case control.Began:
		if m.Lease == c.lease { // else the worker sent it before it heard that the lease is lost
			d.dispatcher.Step(vgpu.Began{Client: c.id, Took: m.Took})
		}
	case control.Freed:
		if m.Lease == c.lease {
			d.dispatcher.Step(vgpu.Freed{Client: c.id, Left: m.Left})
		}
	case control.Busy:
		d.dispatcher.Step(vgpu.Busy{Client: c.id})
	case control.Idle:
		d.dispatcher.Step(vgpu.Idle{Client: c.id, For: m.For})
	case control.SyncPoint:
		d.dispatcher.Step(vgpu.SyncPoint{Client: c.id})
	case control.Ran:
		c.told = tally.Plus(c.told, vgpu.Usage{Kernels: uint64(m.Kernels), GPUTime: m.Busy})
		c.ranHome(vgpu.Usage{Kernels: uint64(m.Kernels), GPUTime: m.Busy})
		c.used(c.home, now, m.Kernels, m.Queued, m.Busy)
		d.dispatcher.Step(vgpu.Ran{Client: c.id, Kernels: m.Kernels, Busy: m.Busy})
		d.loads.tellBeside(c)
	case control.Failed:
		if m.Lease < c.lease {
			return
		}
		d.faults.faultTold(c, c.device)
		c.leaves()
		d.failed(c, m.Reason)
		d.dispatcher.Step(vgpu.Faulted{Client: c.id})
	case control.Commit:
		granted, why := d.quota.commit(c, m.Bytes)
		if granted {
			d.files.save(c)
		}
		c.worker.Post(control.Committed{Bytes: m.Bytes, Granted: granted, Reason: why})
	case control.Report:
		c.report(m.Stats)
	case control.CannotServe:
		c.ends(m.Reason)
		d.end(c, "the node cannot serve the program: "+m.Reason, false)
	case control.Pong:
		c.ponged = m.Number
	case control.Traced:
		d.traces.trace(c)
	case control.Rebuild:
		d.rebuilder.wished(c, m)
		if m.Shared {
			d.faults.sharedFault(c, m.Device, m.Reason)
		}
		c.worker.Kill() // the worker waits to be killed: if it exited by itself and this daemon died before reading the message, the client would be lost
	case control.Rebuilt:
		d.rebuilder.rebuilt(c)
		d.sharing.Proven(now, fate.Client(c.id))
	case control.Ended:
		if !c.ends(m.Reason) {
			return
		}
		if c.fault = m.Reason; m.Fault {
			d.failed(c, m.Reason)
		}
	case control.Checkpointed, control.Restored:
		c.order.answered(m)
	case control.WantFurther:
		d.loans.wanted(c, m)
	case control.ReleasedFurther:
		d.loans.released(c, m)
	case control.RanFurther:
		d.loans.ran(c, m)
	}
}

// count notes what the dispatcher decided, before any worker is told of it.
func (d *daemon) count(effects []vgpu.Effect) {
	for _, e := range effects {
		c := d.clients[e.Client]
		if c == nil || c.worker == nil {
			continue
		}
		switch e.Kind {
		case vgpu.Grant:
			if c.device == vgpu.AnyDevice {
				c.counters.Grants++
			}
			if waited, did := c.gets(e.Device, e.Lease, d.loop.Now()); did {
				c.counters.Waited += waited
				d.tally.Waits.Observe(waited)
			}
			c.home = e.Device
		case vgpu.Revoke:
			if c.device != vgpu.AnyDevice { // else it has no lease, and only keeps memory there
				if e.Reason != vgpu.ForMove && e.Reason != vgpu.ForDrain {
					c.counters.Preemptions++
				}
				d.tally.Preempted[e.Reason]++
			}
		case vgpu.Gone:
			c.leaves()
		case vgpu.Deny:
			c.counters.Denials++
		}
	}
}

// Perform carries out what the dispatcher decided. It never waits.
func (d *daemon) Perform(effects []vgpu.Effect) {
	for _, e := range effects {
		if l := d.loans.all[e.Client]; l != nil {
			d.loans.perform(l, e)
			continue
		}
		if s := d.spares.Of(e.Client); s != nil {
			d.spares.Perform(s, e)
			continue
		}
		c := d.clients[e.Client]
		if c == nil || c.worker == nil || c.carries != nil && d.loans.recalls(c.carries, e) {
			continue
		}
		d.log.Debug(e.Kind.String(), "client", e.Client, "effect", e.String())
		switch e.Kind {
		case vgpu.Grant:
			c.worker.Post(control.Grant{Lease: uint64(e.Lease), Device: int(e.Device), Memory: e.Memory, Coming: e.Coming})
		case vgpu.Revoke:
			if d.parking.takenAway(c, e) {
				continue
			}
			c.worker.Post(control.Revoke{Reason: string(e.Reason), Keep: e.Keep, Step: e.Step})
			c.pinged++
			c.worker.Post(control.Ping{Number: c.pinged})
		case vgpu.Gone:
			c.worker.Post(control.Lost{Device: int(e.Device), Reason: "the device is lost"})
		case vgpu.Watch:
			c.worker.Post(control.Watch{On: e.On})
		case vgpu.Deny:
			m := control.Deny{Reason: string(e.Reason)}
			if c.device != vgpu.AnyDevice {
				m.Lease = c.lease
			}
			c.worker.Post(m)
		}
	}
}
