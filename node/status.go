package node

import (
	"os"
	"time"

	"muster/node/fate"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// status asks the loop for a picture.
func (d *daemon) status() (status.Node, bool) {
	var s status.Node
	problems := d.problems()
	ok := d.ask(func() { s = d.picture() })
	s.Problems = problems
	return s, ok
}

func (d *daemon) picture() status.Node { return d.pictureOf(d.core.View()) }

func (d *daemon) pictureOf(view vgpu.View) status.Node {
	now := d.now()
	s := status.Node{
		Node: d.cfg.Name, Pid: os.Getpid(), Up: now.Seconds(), Policy: d.live().Policy.String(),
		SwapSize: d.live().Swap.Size, Committed: d.committed, Draining: d.draining,
		Devices: make([]status.Device, len(view.Devices)), Clients: make([]status.Client, 0, len(view.Clients)),
		Ended: append([]status.Client{}, d.gone...),
	}
	if s.MPS = d.mps.status(); s.MPS != nil {
		s.MPS.Faults = d.sharedFaults
	}
	d.picturePeers(&s)
	if d.opts.Parcels != nil {
		exchanged := d.opts.Parcels()
		s.Parcels = &exchanged
	}
	if d.opts.Sessions != nil {
		sessions := d.opts.Sessions()
		s.Sessions = &sessions
	}
	for _, service := range d.opts.Services {
		if service.Status != nil {
			service.Status(&s)
		}
	}
	all := d.past.links
	for _, c := range d.clients {
		all = all.plus(c.counters.links)
	}
	s.Links = d.linkStatus(all)
	stock := d.stock.Load()
	for i, v := range view.Devices {
		e := &stock.entries[i]
		s.Devices[i] = status.Device{
			Number: i, Name: v.Name, Kind: e.Kind, State: v.State.String(), Removing: d.changes.leaving[v.ID] != nil,
			Speed: e.info.Speed, Memory: v.Memory, Free: v.Free, Spares: d.waitingSpares(v.ID),
			Slots: v.Slots, Assigned: v.Used, BusyTime: plus(v.Usage, d.before.of(i)).GPUTime.Seconds(), Lost: v.State == vgpu.DeviceLost,
			Lender: d.lenderOf(e), Borrowed: e.ticket != "", Confined: d.confinedOn(v.ID),
			MappedKernels: d.mapped[v.ID].Kernels, MappedIn: d.mapped[v.ID].moved,
		}
	}
	var cut map[uint64]time.Duration
	if d.opts.Cut != nil {
		cut = d.opts.Cut()
	}
	for _, v := range view.Clients {
		c := d.clients[v.ID]
		if c == nil { // a loan, which its client tells of
			continue
		}
		if v.State == vgpu.Assigned && v.Busy {
			s.Devices[v.Device].Busy++
		}
		about := c.status(v, now)
		about.Links = d.linkStatus(c.counters.links)
		if left, is := cut[about.ID]; is {
			about.Cut, about.CutLeft = true, left.Seconds()
		}
		if s.MPS != nil {
			about.MPS = string(d.fates.State(fate.Client(c.id)))
		}
		if about.MPS == string(fate.Shared) {
			about.Share = c.share
		}
		s.Clients = append(s.Clients, about)
	}
	return s
}

// clientNow is the picture of one client.
func (d *daemon) clientNow(c *client) status.Client {
	v, _ := d.core.Client(c.id)
	return c.status(v, d.now())
}

func (c *client) status(v vgpu.ClientView, now time.Duration) status.Client {
	s := status.Client{
		Fault: c.fault,
		ID:    uint64(c.id), Pid: c.peer.pid, Address: c.peer.address, User: c.peer.user.name, Program: c.program, Grant: c.under.id(), Guest: c.isGuest(), Virtual: c.ordinal,
		State: v.State.String(), Busy: v.Busy, Limit: c.memory,
		Allocated: c.memoryNow.Allocated, Peak: c.peak, Resident: c.memoryNow.Resident, Swapped: c.memoryNow.Swapped,
		Kernels: v.Kernels, BusyTime: v.GPUTime.Seconds(),
		Waits: c.counters.grants, WaitTime: c.counters.waited.Seconds(), Preemptions: c.counters.preemptions, Rebuilds: c.rebuilds,
		Swaps: c.counters.swaps, SwapIn: c.counters.swapIn, SwapOut: c.counters.swapOut,
		Moves: movesOf(v.Moves), Parked: v.Parked, Away: c.isAway() || c.unsettled,
		CopiedIn: c.counters.copiedIn, CopiedOut: c.counters.copiedOut, Since: (now - c.since).Seconds(),
	}
	s.Class, s.Weight, s.Priority = c.class(), c.weight, c.limits.Priority
	s.Turns, s.Turn, s.TurnUsed = uint64(v.Turns), v.Turn.Seconds(), v.TurnUsed.Seconds()
	s.LongestWait, s.MoveTime, s.HeldTime = v.Longest.Seconds(), v.Moving.Seconds(), c.counters.held.Seconds()
	s.Mapping, s.Further, s.Ran = c.mapping, c.furtherStatus(), c.ranStatus()
	further := c.further()
	s.Kernels, s.BusyTime = sum(s.Kernels, further.Kernels), s.BusyTime+further.GPUTime.Seconds()
	if c.worker != nil {
		s.Worker = c.worker.pid()
	}
	if v.State == vgpu.Assigned {
		device := int(v.Device)
		s.Device = &device
	}
	if c.wanting {
		s.WaitTime += (now - c.wantedAt).Seconds()
	}
	if c.ending {
		s.State = "ending"
	}
	return s
}

func movesOf(m vgpu.Moves) status.Moves {
	return status.Moves{Auto: uint64(m.Auto), ByHand: uint64(m.ByHand), Drain: uint64(m.Drain)}
}

// maxEnded is how many clients are remembered after their end.
const maxEnded = 64

// remember keeps the last picture of a client, and returns what it used.
func (d *daemon) remember(c *client) vgpu.Usage {
	v, _ := d.core.Client(c.id)
	s := c.status(vgpu.ClientView{Device: vgpu.AnyDevice, Usage: v.Usage, Moves: v.Moves, Turns: v.Turns, Longest: v.Longest, Moving: v.Moving}, d.now())
	c.counters.turns, c.counters.moving = uint64(v.Turns), v.Moving
	s.State, s.Worker = "ended", 0
	if len(d.gone) == maxEnded {
		d.gone = d.gone[1:]
	}
	s.Links = d.linkStatus(c.counters.links)
	d.gone = append(d.gone, s)
	return v.Usage
}

// report takes over what a worker says of itself. Counters do not go back.
func (c *client) report(s control.Stats) {
	c.memoryNow = s
	c.peak = max(c.peak, s.Allocated)
	n := &c.counters
	n.swaps, n.swapIn, n.swapOut = max(n.swaps, s.Swaps), max(n.swapIn, s.SwapIn), max(n.swapOut, s.SwapOut)
	n.copiedIn, n.copiedOut = max(n.copiedIn, s.CopiedIn), max(n.copiedOut, s.CopiedOut)
	n.held = max(n.held, s.Held)
	n.links = n.links.most(s.Links)
}

func (a *counters) add(b counters) {
	a.grants += b.grants
	a.turns = sum(a.turns, b.turns)
	a.moving = time.Duration(sum(uint64(a.moving), uint64(b.moving)))
	a.held = time.Duration(sum(uint64(a.held), uint64(b.held)))
	a.swaps = sum(a.swaps, b.swaps)
	a.copiedIn = sum(a.copiedIn, b.copiedIn)
	a.copiedOut = sum(a.copiedOut, b.copiedOut)
	a.swapIn = sum(a.swapIn, b.swapIn)
	a.swapOut = sum(a.swapOut, b.swapOut)
	a.denials += b.denials
	a.failures += b.failures
	a.clients += b.clients
	a.links = a.links.plus(b.links)
}
