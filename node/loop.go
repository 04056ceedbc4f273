package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"muster/node/fate"
	"muster/node/held"
	"muster/node/inventory"
	"muster/node/loop"
	"muster/node/refusal"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// run runs the loop. What happens comes from the goroutines that serve connections, workers and devices.
func (d *daemon) run() {
	tend := func() { d.spares.Tend(d.settings.Load().Spare, d.loop.Draining(), d.stock.Load()) }
	d.loop.Run(func() bool { return len(d.clients) == 0 }, d.alarms(tend), tend)
}

// alarms are what the loop does when it is time.
func (d *daemon) alarms(tendSpares func()) []loop.Alarm {
	return []loop.Alarm{
		{Next: d.core.Next, Ring: func() { d.core.Step(vgpu.Tick{}) }},
		{Next: d.rebuilder.nextBeat, Ring: d.rebuilder.checkWorkers},
		{Next: d.parking.nextParked, Ring: d.parking.tellParked},
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
	d.traces.tellTraced()
	d.stock.Tend()
	d.lending.Touch()
}

// admit makes a client known, within the limits.
func (d *daemon) admit(c *client) error {
	var refused *wire.Refused
	limits := &d.settings.Load().Limits
	most := limits.Clients
	if c.peer.User.UID == 0 {
		most += limits.Reserve()
	}
	asked := d.loop.Ask(func() {
		name := c.peer.User.Name
		switch {
		case d.loop.Draining():
			refused = d.ending.notNow()
		case len(d.clients) >= most:
			refused = refusal.New(refusal.NotPermitted, "the node serves %d clients, as many as it may: try again later", len(d.clients))
		case c.carries != nil && d.loans.all[c.carries.id] != c.carries:
			refused = refusal.New(refusal.NotReady, "the device is not lent any more")
		case c.limits.Clients > 0 && d.quota.perUser[name] >= c.limits.Clients && c.carries == nil:
			refused = refusal.New(refusal.NotPermitted, "%s", userHasAll(name, d.quota.perUser[name]))
		case d.grants.Ended(c.under) != "":
			refused = refusal.New(refusal.NotPermitted, "%s", d.grants.Ended(c.under))
		case d.terms.lacking(c) != "":
			refused = refusal.New(refusal.SystemNotReady, "the node's devices have changed since the program looked at them (%s): start it again", d.terms.lacking(c))
		}
		if refused != nil {
			d.tally.Refused++
			return
		}
		c.id, c.since = d.core.NewNumber(), d.loop.Now()
		d.clients[c.id] = c
		if c.carries == nil {
			d.quota.perUser[name]++
		}
		d.sharing.Join(d.loop.Now(), fate.Client(c.id), c.peer.User.UID)
		d.loans.carried(c)
		d.core.Step(vgpu.Attach{Client: c.id, User: c.peer.User.Name, Weight: c.weight, Priority: c.priority(), Grant: vgpu.GrantID(c.under.Id()), Share: c.under.Share, Further: c.carries != nil})
		d.log.Info("attached", "client", c.id, "user", c.peer.User.Name, "pid", c.peer.PID, "program", c.program, "device", c.ordinal, "memory", c.memory)
	})
	if !asked {
		return d.ending.notNow()
	}
	if refused != nil {
		return refused
	}
	return nil
}

// assign gives a client its worker, which has answered its first ping, and listens to it.
// It returns false if the client has ended meanwhile. Only the loop calls it.
func (d *daemon) assign(c *client, w *workers.Process, shared *wire.Shared, told *inventory.Inventory) bool {
	if c.ending {
		return false
	}
	c.worker, c.shared = w, shared
	d.users.catchUp(c, told)
	c.pinged, c.ponged = workers.FirstPing, workers.FirstPing
	go func() {
		d.listenTo(c, w)
		d.finish(c, w)
	}()
	return true
}

// finish ends a worker whose connection has ended, and forgets its client, or has it
// rebuilt.
func (d *daemon) finish(c *client, w *workers.Process) {
	if w.IsLeft() {
		return
	}
	d.staff.pool.Dismiss(w)
	d.loop.Do(func() { d.rebuilder.workerEnded(c, w) })
}

// listenTo hands what a worker says to the loop until the connection ends.
func (d *daemon) listenTo(c *client, w *workers.Process) {
	for {
		m, err := w.Receive()
		if errors.Is(err, control.ErrRefused) {
			d.loop.Do(func() { d.end(c, "its worker is broken: "+err.Error(), true) })
		}
		if err != nil {
			return
		}
		if !d.loop.Do(func() { d.message(c, m) }) {
			return
		}
	}
}

// end ends a client. Its program is told the reason, if there is one; with kill, the
// worker is killed. The client is forgotten only when its worker has exited, since until
// then the worker may use the device.
func (d *daemon) end(c *client, reason string, kill bool) {
	if kill && c.worker != nil {
		c.worker.Kill()
	}
	if c.ending {
		return
	}
	c.ending = true
	name := c.peer.User.Name
	if c.carries == nil {
		d.quota.perUser[name]--
	}
	if d.quota.perUser[name] == 0 {
		delete(d.quota.perUser, name)
	}
	if reason != "" {
		d.tell(c, reason)
	}
	if c.worker == nil {
		d.forget(c)
		return
	}
	c.worker.Stop()
}

// tell lets a program know why it is ended: in the log, and in the ring's memory, where
// the library looks.
func (d *daemon) tell(c *client, reason string) {
	level := slog.LevelWarn
	if d.loop.Draining() { // no cause for a warning: it may have ended by itself just now
		level = slog.LevelInfo
	}
	d.log.Log(context.Background(), level, "a client is ended", "client", c.id, "user", c.peer.User.Name, "reason", reason)
	if c.shared != nil {
		c.shared.Close(reason)
	}
}

// forget removes a client whose worker has exited, or that never had one. Only now does
// the dispatcher hear of it, so that its memory on the device is not given away while its
// worker may still use it.
func (d *daemon) forget(c *client) {
	if d.clients[c.id] != c {
		return
	}
	if !c.ending {
		d.end(c, c.whyNoWorker(), false)
	}
	delete(d.clients, c.id)
	d.sharing.Leave(fate.Client(c.id))
	d.traces.untrace(c)
	d.files.forgetFile(c)
	d.loans.dropLoans(c)
	d.staff.leaveSpare(c)
	used := d.pictures.remember(c)
	if c.isGuest() && c.carries == nil {
		d.pictures.guestLeaves(c, used.Kernels)
	}
	d.core.Step(vgpu.Detach{Client: c.id})
	d.quota.commit(c, 0)
	if c.shared != nil {
		c.shared.Unmap()
	}
	if !c.refused && c.conn != nil {
		hangUp(c.conn)
	}
	held.Close(c.kept)
	close(c.gone)
	d.log.Info("detached", "client", c.id, "user", c.peer.User.Name, "kernels", used.Kernels, "gpu_time", used.GPUTime.String(), "after", (d.loop.Now() - c.since).String())
}

// lastWords notes why a client that is ending has failed, and says whether a message counts all the same:
// what its kernels used does.
func (d *daemon) lastWords(c *client, said control.ToDaemon) bool {
	switch m := said.(type) {
	case control.Ran:
		return true
	case control.Failed:
		d.failed(c, m.Reason)
	case control.Ended:
		if m.Fault {
			d.failed(c, m.Reason)
		}
	}
	return false
}

// failed notes that a fault has ended what a client ran.
func (d *daemon) failed(c *client, reason string) {
	c.counters.Failures++
	c.fault = reason
	if n := c.counters.Failures; n <= 10 || bits.OnesCount64(n) == 1 { // a program may fault in a loop
		d.log.Info("a fault ended what ran", "client", c.id, "user", c.peer.User.Name, "reason", reason, "faults", n)
	}
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
		if !c.wanting {
			c.wanting, c.wantedAt = true, now
		}
		c.pinned = c.guest.pins(vgpu.DeviceID(m.Pinned))
		d.staff.spareUsed(c, func() {
			d.core.Step(vgpu.Want{Client: c.id, Need: c.needs(m.Memory), Estimate: m.Estimate, Pinned: c.pinned})
			d.loans.carriesInVain(c)
		})
	case control.Forgone:
		d.staff.leaveSpare(c)
	case control.Grow:
		d.core.Step(vgpu.Grow{Client: c.id, Need: m.Memory})
		d.loans.growsInVain(c)
	case control.Released:
		if m.Lease < c.lease { // the worker sent it before it received a newer grant
			return
		}
		c.device = vgpu.AnyDevice
		d.core.Step(vgpu.Released{Client: c.id, Keeps: m.Keeps, Took: m.Took})
	case control.Began:
		if m.Lease == c.lease { // else the worker sent it before it heard that the lease is lost
			d.core.Step(vgpu.Began{Client: c.id, Took: m.Took})
		}
	case control.Freed:
		if m.Lease == c.lease {
			d.core.Step(vgpu.Freed{Client: c.id, Left: m.Left})
		}
	case control.Busy:
		d.core.Step(vgpu.Busy{Client: c.id})
	case control.Idle:
		d.core.Step(vgpu.Idle{Client: c.id, For: m.For})
	case control.SyncPoint:
		d.core.Step(vgpu.SyncPoint{Client: c.id})
	case control.Ran:
		c.told = tally.Plus(c.told, vgpu.Usage{Kernels: uint64(m.Kernels), GPUTime: m.Busy})
		c.ranHome(vgpu.Usage{Kernels: uint64(m.Kernels), GPUTime: m.Busy})
		c.used(c.home, now, m.Kernels, m.Queued, m.Busy)
		d.core.Step(vgpu.Ran{Client: c.id, Kernels: m.Kernels, Busy: m.Busy})
		d.loads.tellBeside(c)
	case control.Failed:
		if m.Lease < c.lease {
			return
		}
		d.faults.faultTold(c, c.device)
		c.device = vgpu.AnyDevice
		d.failed(c, m.Reason)
		d.core.Step(vgpu.Faulted{Client: c.id})
	case control.Commit:
		granted, why := d.quota.commit(c, m.Bytes)
		if granted {
			d.files.save(c)
		}
		c.worker.Post(control.Committed{Bytes: m.Bytes, Granted: granted, Reason: why})
	case control.Report:
		c.report(m.Stats)
	case control.CannotServe:
		c.over = true
		d.end(c, "the node cannot serve the program: "+m.Reason, false)
	case control.Pong:
		c.ponged = m.Number
	case control.Traced:
		d.traces.trace(c)
	case control.Rebuild:
		c.why = m.Reason
		if m.Lost {
			d.stock.Suspect(m.Device, m.Reason)
			c.suspects, c.blames = d.stock.Suspected(m.Device), m.Device+1
		}
		if m.Shared {
			d.faults.sharedFault(c, m.Device, m.Reason)
		}
		c.worker.Kill() // the worker waits to be killed: if it exited by itself and this daemon died before reading the message, the client would be lost
	case control.Rebuilt:
		d.log.Info("a client is what it was before its worker ended", "client", c.id, "user", c.peer.User.Name, "after", (now - c.lostAt).String())
		c.tries = 0
		d.sharing.Proven(now, fate.Client(c.id))
	case control.Ended:
		if c.over { // the first reason counts: a worker that ends has several threads that may say why
			return
		}
		if c.over, c.why, c.fault = true, m.Reason, m.Reason; m.Fault {
			d.failed(c, m.Reason)
		}
	case control.Checkpointed, control.Restored:
		c.order.answered(m)
	case control.WantFurther:
		d.loans.wantsFurther(c, m)
	case control.ReleasedFurther:
		d.loans.releasedFurther(c, m)
	case control.RanFurther:
		d.loans.ranFurther(c, m)
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
			if c.wanting {
				waited := d.loop.Now() - c.wantedAt
				c.wanting = false
				c.counters.Waited += waited
				d.tally.Waits.Observe(waited)
			}
			c.device, c.lease = e.Device, uint64(e.Lease)
			c.home = e.Device
		case vgpu.Revoke:
			if c.device != vgpu.AnyDevice { // else it has no lease, and only keeps memory there
				if e.Reason != vgpu.ForMove && e.Reason != vgpu.ForDrain {
					c.counters.Preemptions++
				}
				d.tally.Preempted[e.Reason]++
			}
		case vgpu.Gone:
			c.device = vgpu.AnyDevice
		case vgpu.Deny:
			c.counters.Denials++
		}
	}
}

// Perform carries out what the dispatcher decided. It never waits.
func (d *daemon) Perform(effects []vgpu.Effect) {
	for _, e := range effects {
		if l := d.loans.all[e.Client]; l != nil {
			d.loans.performLoan(l, e)
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
