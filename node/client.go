package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"time"

	"muster/device"
	"muster/node/fate"
	"muster/node/grants"
	"muster/node/inventory"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/spares"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// credible checks what a worker says against what the daemon knows: every claim of a
// worker passes here before it changes a counter or reaches the dispatcher. A worker
// that speaks of something it was never given is refused; counts beyond any plausible
// value are cut. Negative ones do not get here: the connection refuses them.
func (c *client) credible(said control.ToDaemon) (control.ToDaemon, error) {
	if _, pong := said.(control.Pong); c.unsettled && !pong {
		standing, ok := said.(control.Standing)
		if !ok {
			return nil, fmt.Errorf("it begins with %s, and not with where it stands", said.Kind())
		}
		return standing, c.mayStand(standing)
	}
	switch m := said.(type) {
	case control.Standing:
		return nil, fmt.Errorf("it says where it stands, and was not adopted")
	case control.Released:
		if c.lease == 0 {
			return nil, fmt.Errorf("it releases a device and never had one")
		}
		return m, c.granted(m.Lease)
	case control.Failed:
		return m, c.granted(m.Lease)
	case control.Began:
		return m, c.granted(m.Lease)
	case control.Freed:
		return m, c.granted(m.Lease)
	case control.WantFurther:
		return m, c.crediblyFurther(m.Device, 0, 0)
	case control.ReleasedFurther:
		return m, c.crediblyFurther(m.Device, 0, 0)
	case control.RanFurther:
		return m, c.crediblyFurther(m.Device, m.Kernels, m.Busy)
	case control.Report:
		s := &m.Stats
		for _, n := range []*uint64{&s.Allocated, &s.Resident, &s.Swapped, &s.CopiedIn, &s.CopiedOut, &s.SwapIn, &s.SwapOut, &s.Swaps, &s.Messages} {
			*n = min(*n, tally.MaxCount)
		}
		s.Held = min(s.Held, tally.MaxCount)
		return m, tally.CrediblyLinked(s.Links)
	case control.Checkpointed, control.Restored:
		if !c.owes() {
			return nil, fmt.Errorf("it speaks of a checkpoint that nobody ordered")
		}
	case control.Pong:
		if m.Number == 0 || m.Number <= c.ponged || m.Number > c.pinged {
			return nil, fmt.Errorf("it answers ping %d, after %d of %d", m.Number, c.ponged, c.pinged)
		}
	}
	return said, nil
}

// maxBeside is how much of the swap area a client may have beside its memory, which is
// in whole chunks: more than most programs' modules take.
const maxBeside = 256 << 20

// mayStand refuses a standing that cannot follow from what the client was granted: a
// worker may be behind what the last daemon wrote down, but never ahead of it.
func (c *client) mayStand(s control.Standing) error {
	switch {
	case s.Lease > c.lease:
		return c.granted(s.Lease)
	case s.Held && !c.hasLost(s) && (!c.was.Held || s.Lease != c.lease || s.Device != int(c.was.Device) || s.Memory > c.was.Memory):
		return fmt.Errorf("it holds lease %d of device %d with %d bytes, and was granted lease %d of device %d with %d", s.Lease, s.Device, s.Memory, c.was.Lease, c.was.Device, c.was.Memory)
	case s.Committed > max(c.committed, 2*c.memory+maxBeside):
		// A client that was just rebuilt may have had more at its base than it has now,
		// but never more than it may have.
		return fmt.Errorf("it has %d bytes of the swap area, and was granted %d", s.Committed, c.committed)
	case s.Kernels < c.told.Kernels || s.Busy < c.told.GPUTime || s.Kernels > tally.MaxCount || s.Busy > tally.MaxCount:
		return fmt.Errorf("it ran %d kernels in %v, and has told of %d in %v", s.Kernels, s.Busy, c.told.Kernels, c.told.GPUTime)
	}
	return nil
}

// hasLost says whether a client stands on a device that was lost while its worker had no
// daemon to tell it.
func (c *client) hasLost(s control.Standing) bool {
	return s.Held && !c.was.Held && s.Lease > 0 && s.Lease == c.lease
}

// granted refuses the number of a lease that the client has not had yet.
func (c *client) granted(lease uint64) error {
	if lease > c.lease {
		return fmt.Errorf("it speaks of lease %d, and the last that it was granted is %d", lease, c.lease)
	}
	return nil
}

// client is one program's virtual device. The fields above the line are set before the
// client has a worker; after that only the loop changes them (limits at a reload, the connection
// when a worker comes back). Those below it are the loop's from the beginning.
type client struct {
	id      vgpu.ClientID
	peer    socket.Peer
	under   grants.Under // its grant
	guest   guest        // another node, which has a device of this one
	carries *loan        // a further device of another client, which is used by way of this one; nil: none
	allowance
	program string
	ordinal int
	arena   device.Arena
	link
	gone chan struct{} // closed when the client is forgotten

	// ---
	since     time.Duration
	worker    *workers.Process // nil until it has one
	spare     *spares.Spare    // what its worker was, until the client wants a device; nil if nothing
	ending    bool
	refused   bool   // it was never attached; its connection stays open to tell the program why
	committed uint64 // of the swap area (quota)
	holding
	account
	order *order // that is under way; nil if none is
	pulse        // of its worker
	news
	survivor
	recovery
	mappings
}

// allowance is what a client may have, and was shown (terms).
type allowance struct {
	limits   settings.UserLimits
	latency  bool // its class: latency, not batch
	weight   int  // in fair shares, and in turns on a device
	share    int  // percent of a device's multiprocessors, where MPS is in force; 0 for all
	memory   uint64
	memoryBy string      // what limits memory, in words for the program's user
	shown    map[int]int // attributes that its program was told, which each device it is given must have
}

// link is what connects a client with its program.
type link struct {
	conn   *net.UnixConn
	shared *wire.Shared // the ring only, to tell the program why the client is ended
	ring   string       // the names of the files that it shares with its program
	data   string
}

// holding is what the dispatcher has given a client.
type holding struct {
	device   vgpu.DeviceID // where it has its lease; AnyDevice if nowhere
	pinned   vgpu.DeviceID // the only device that it can use, as its last Want said; AnyDevice if any will do
	lease    uint64        // the number of its last grant
	wantedAt time.Duration // while it waits for a device
	wanting  bool
}

// nowhere is what a new client holds, which can use one device or any.
func nowhere(pinned vgpu.DeviceID) holding { return holding{device: vgpu.AnyDevice, pinned: pinned} }

// wants notes that the client waits for a device.
func (h *holding) wants(pinned vgpu.DeviceID, now time.Duration) {
	if h.pinned = pinned; !h.wanting {
		h.wanting, h.wantedAt = true, now
	}
}

// gets notes a grant. It says whether the client had waited for one, and how long.
func (h *holding) gets(device vgpu.DeviceID, lease int, now time.Duration) (waited time.Duration, did bool) {
	did, h.wanting = h.wanting, false
	h.device, h.lease = device, uint64(lease)
	return now - h.wantedAt, did
}

// leaves notes that the client has no lease any more.
func (h *holding) leaves() { h.device = vgpu.AnyDevice }

// account is what is counted of a client.
type account struct {
	counters  tally.Counters
	memoryNow control.Stats // allocated, resident, swapped
	peak      uint64        // the most that it was seen to have allocated
	fault     string        // why its last kernel or worker ended early; "": none did
}

// --- from its coming to its end ---------------------------------------------------

// admit makes a client known, within the limits.
func (d *daemon) admit(c *client) error {
	var refused *wire.Refused
	limits := &d.settings.Load().Limits
	most := limits.Clients
	if c.peer.User.UID == 0 {
		most += limits.Reserve()
	}
	asked := d.loop.Ask(func() {
		switch {
		case d.loop.Draining():
			refused = d.ending.notNow()
		case len(d.clients) >= most:
			refused = refusal.New(refusal.NotPermitted, "the node serves %d clients, as many as it may: try again later", len(d.clients))
		case c.carries != nil && d.loans.all[c.carries.id] != c.carries:
			refused = refusal.New(refusal.NotReady, "the device is not lent any more")
		case d.quota.mayCome(c) != "":
			refused = refusal.New(refusal.NotPermitted, "%s", d.quota.mayCome(c))
		case d.grants.Ended(c.under) != "":
			refused = refusal.New(refusal.NotPermitted, "%s", d.grants.Ended(c.under))
		case d.terms.lacking(c) != "":
			refused = refusal.New(refusal.SystemNotReady, "the node's devices have changed since the program looked at them (%s): start it again", d.terms.lacking(c))
		}
		if refused != nil {
			d.tally.Refused++
			return
		}
		c.id, c.since = d.dispatcher.NewNumber(), d.loop.Now()
		d.clients[c.id] = c
		d.quota.came(c)
		d.sharing.Join(d.loop.Now(), fate.Client(c.id), c.peer.User.UID)
		d.loans.carried(c)
		d.dispatcher.Step(vgpu.Attach{Client: c.id, User: c.peer.User.Name, Weight: c.weight, Priority: c.priority(), Grant: vgpu.GrantID(c.under.Id()), Share: c.under.Share, Further: c.carries != nil})
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
	d.programs.catchUp(c, told)
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
	d.quota.left(c)
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
	d.loans.dropAll(c)
	d.staff.leaveSpare(c)
	used := d.pictures.remember(c)
	if c.isGuest() && c.carries == nil {
		d.pictures.guestLeaves(c, used.Kernels)
	}
	d.dispatcher.Step(vgpu.Detach{Client: c.id})
	d.quota.commit(c, 0)
	if c.shared != nil {
		c.shared.Unmap()
	}
	if !c.refused && c.conn != nil {
		hangUp(c.conn)
	}
	c.keep(nil)
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
