package node

import (
	"cmp"
	"io"
	"os"
	"slices"
	"time"

	"muster/node/fate"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// status asks the loop for a picture.
func (d *daemon) status() (status.Node, bool) {
	var s status.Node
	problems := d.problems()
	ok := d.loop.Ask(func() { s = d.picture() })
	s.Problems = problems
	return s, ok
}

func (d *daemon) picture() status.Node { return d.pictureOf(d.core.View()) }

func (d *daemon) pictureOf(view vgpu.View) status.Node {
	now := d.loop.Now()
	s := status.Node{
		Node: d.cfg.Name, Pid: os.Getpid(), Up: now.Seconds(), Policy: d.settings.Load().Policy.String(),
		SwapSize: d.settings.Load().Swap.Size, Committed: d.committed, Draining: d.loop.Draining(),
		Devices: make([]status.Device, len(view.Devices)), Clients: make([]status.Client, 0, len(view.Clients)),
		Ended: append([]status.Client{}, d.tally.Gone...),
	}
	s.MPS = d.sharing.Status()
	d.pictureLent(&s)
	d.lending.Status(&s)
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
	all := d.tally.Past.Links
	for _, c := range d.clients {
		all = all.Plus(c.counters.Links)
	}
	s.Links = d.linkStatus(all)
	stock := d.stock.Load()
	for i, v := range view.Devices {
		e := &stock.Entries[i]
		s.Devices[i] = status.Device{
			Number: i, Name: v.Name, Kind: e.Kind, State: v.State.String(), Removing: d.stock.IsLeaving(v.ID),
			Speed: e.Info.Speed, Memory: v.Memory, Free: v.Free, Spares: d.spares.Waiting(v.ID),
			Slots: v.Slots, Assigned: v.Used, BusyTime: tally.Plus(v.Usage, d.tally.Before.Of(i)).GPUTime.Seconds(), Lost: v.State == vgpu.DeviceLost,
			Lender: d.lending.Lender(e.Lender.Address), Borrowed: e.Ticket != "", Confined: d.confinedOn(v.ID),
			MappedKernels: d.tally.Mapped[v.ID].Kernels, MappedIn: d.tally.Mapped[v.ID].Moved,
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
		about.Links = d.linkStatus(c.counters.Links)
		if left, is := cut[about.ID]; is {
			about.Cut, about.CutLeft = true, left.Seconds()
		}
		if s.MPS != nil {
			about.MPS = string(d.sharing.State(fate.Client(c.id)))
		}
		if about.MPS == string(fate.Shared) {
			about.Share = c.share
		}
		s.Clients = append(s.Clients, about)
	}
	return s
}

// Owner is whose a client is that has not ended.
func (d *daemon) Owner(id vgpu.ClientID) (settings.Account, bool) {
	c := d.clients[id]
	if c == nil || c.ending {
		return settings.Account{}, false
	}
	return c.peer.User, true
}

// Status is the picture of one client.
func (d *daemon) Status(id vgpu.ClientID) status.Client {
	v, _ := d.core.Client(id)
	return d.clients[id].status(v, d.loop.Now())
}

// End ends a client at once.
func (d *daemon) End(id vgpu.ClientID, why string) { d.end(d.clients[id], why, true) }

func (c *client) status(v vgpu.ClientView, now time.Duration) status.Client {
	s := status.Client{
		Fault: c.fault,
		ID:    uint64(c.id), Pid: c.peer.PID, Address: c.peer.Address, User: c.peer.User.Name, Program: c.program, Grant: c.under.Id(), Guest: c.isGuest(), Virtual: c.ordinal,
		State: v.State.String(), Busy: v.Busy, Limit: c.memory,
		Allocated: c.memoryNow.Allocated, Peak: c.peak, Resident: c.memoryNow.Resident, Swapped: c.memoryNow.Swapped,
		Kernels: v.Kernels, BusyTime: v.GPUTime.Seconds(),
		Waits: c.counters.Grants, WaitTime: c.counters.Waited.Seconds(), Preemptions: c.counters.Preemptions, Rebuilds: c.rebuilds,
		Swaps: c.counters.Swaps, SwapIn: c.counters.SwapIn, SwapOut: c.counters.SwapOut,
		Moves: movesOf(v.Moves), Parked: v.Parked, Away: c.isAway() || c.unsettled,
		CopiedIn: c.counters.CopiedIn, CopiedOut: c.counters.CopiedOut, Since: (now - c.since).Seconds(),
	}
	s.Class, s.Weight, s.Priority = c.class(), c.weight, c.limits.Priority
	s.Turns, s.Turn, s.TurnUsed = uint64(v.Turns), v.Turn.Seconds(), v.TurnUsed.Seconds()
	s.LongestWait, s.MoveTime, s.HeldTime = v.Longest.Seconds(), v.Moving.Seconds(), c.counters.Held.Seconds()
	s.Mapping, s.Further, s.Ran = c.mapping, c.furtherStatus(), c.ranStatus()
	further := c.further()
	s.Kernels, s.BusyTime = tally.Sum(s.Kernels, further.Kernels), s.BusyTime+further.GPUTime.Seconds()
	if c.worker != nil {
		s.Worker = c.worker.PID()
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

// remember keeps the last picture of a client, and returns what it used.
func (d *daemon) remember(c *client) vgpu.Usage {
	v, _ := d.core.Client(c.id)
	s := c.status(vgpu.ClientView{Device: vgpu.AnyDevice, Usage: v.Usage, Moves: v.Moves, Turns: v.Turns, Longest: v.Longest, Moving: v.Moving}, d.loop.Now())
	c.counters.Turns, c.counters.Moving = uint64(v.Turns), v.Moving
	s.State, s.Worker = "ended", 0
	s.Links = d.linkStatus(c.counters.Links)
	d.tally.Leave(s, c.counters)
	return v.Usage
}

// report takes over what a worker says of itself. Counters do not go back.
func (c *client) report(s control.Stats) {
	c.memoryNow = s
	c.peak = max(c.peak, s.Allocated)
	n := &c.counters
	n.Swaps, n.SwapIn, n.SwapOut = max(n.Swaps, s.Swaps), max(n.SwapIn, s.SwapIn), max(n.SwapOut, s.SwapOut)
	n.CopiedIn, n.CopiedOut = max(n.CopiedIn, s.CopiedIn), max(n.CopiedOut, s.CopiedOut)
	n.Held = max(n.Held, s.Held)
	n.Links = n.Links.Most(s.Links)
}

// linkStatus names the ends of links. A device of another node counts under that node's name and
// the number that it has there, so that borrowing it again continues the same link.
func (d *daemon) linkStatus(all tally.Links) []status.Link {
	var named []status.Link
	for _, l := range all {
		next := status.Link{From: d.endOf(l.From), To: d.endOf(l.To)}
		at := slices.IndexFunc(named, func(k status.Link) bool { return k.From == next.From && k.To == next.To })
		if at < 0 {
			at = len(named)
			named = append(named, next)
		}
		named[at].Bytes += l.Bytes
	}
	slices.SortFunc(named, func(a, b status.Link) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	return named
}

// endOf is one end of a link.
func (d *daemon) endOf(number int) status.End {
	entries := d.stock.Load().Entries
	if number < 0 || number >= len(entries) {
		return status.End{Node: d.cfg.Name, Device: control.OnHost}
	}
	if e := &entries[number]; e.Kind == settings.KindRemote {
		return status.End{Node: d.lending.Lender(e.Lender.Address), Device: e.Index}
	}
	return status.End{Node: d.cfg.Name, Device: number}
}

// writeMetrics writes the text format that Prometheus reads.
func (d *daemon) writeMetrics(w io.Writer, problems []status.Problem) {
	view, total := d.core.View(), d.tally.Past
	for _, c := range d.clients {
		total.Add(c.counters)
	}
	used, moves := tally.Plus(view.Total(), d.tally.Before.Past), movesOf(tally.PlusMoves(view.PastMoves, d.tally.Before.Moves))
	for _, c := range view.Clients {
		moves = moves.Plus(movesOf(c.Moves))
		total.Turns, total.Moving = total.Turns+uint64(c.Turns), total.Moving+c.Moving
	}
	m := status.Metrics{
		Node: d.pictureOf(view), Clients: total.Clients + uint64(len(d.clients)), Refused: d.tally.Refused,
		Kernels: used.Kernels, BusyTime: used.GPUTime.Seconds(), Grants: total.Grants, Denials: total.Denials, Faults: total.Failures,
		Turns: total.Turns, MoveTime: total.Moving.Seconds(), HeldTime: total.Held.Seconds(),
		Swaps: total.Swaps, SwapIn: total.SwapIn, SwapOut: total.SwapOut, CopiedIn: total.CopiedIn, CopiedOut: total.CopiedOut,
		Moves: moves, Preemptions: map[string]uint64{}, Users: d.tally.Users, Waits: d.tally.Waits, Problems: len(problems), Connections: d.places.Taken(),
	}
	for state := vgpu.Unqueued; state <= vgpu.Failed; state++ {
		m.States = append(m.States, state.String())
	}
	for _, why := range []vgpu.Reason{vgpu.ForCredit, vgpu.ForIdle, vgpu.ForMemory, vgpu.ForSync, vgpu.ForMove, vgpu.ForDrain, vgpu.ForGrant, vgpu.ForLimit, vgpu.ForQuantum, vgpu.ForRoom} {
		m.Preemptions[string(why)] = d.tally.Preempted[why]
	}
	m.WriteText(w)
	status.WriteBuild(w)
}

func (d *daemon) answerStatus(_ socket.Peer, line []byte) (any, error) {
	var r struct {
		Request string `json:"request"`
	}
	if err := requests.Strictly(line, &r); err != nil {
		return nil, err
	}
	s, ok := d.status()
	if !ok {
		return nil, refusal.ErrShuttingDown
	}
	return s, nil
}

// answerMonitor describes the devices as a program that the asking user starts would
// see them, and the clients that use them.
func (d *daemon) answerMonitor(who socket.Peer, line []byte) (any, error) {
	var r struct {
		Request string `json:"request"`
		Memory  uint64 `json:"memory"` // what the asker's programs are to see; 0: all
	}
	if err := requests.Strictly(line, &r); err != nil {
		return nil, err
	}
	infos := d.stock.Load().Infos()
	if len(infos) == 0 {
		return nil, refusal.ErrNoDevices
	}
	s, ok := d.status()
	if !ok {
		return nil, refusal.ErrShuttingDown
	}
	memory := d.worldOf(infos, r.Memory, d.settings.Load().Limits.Of(who.User))
	return shown.Monitored(d.cfg.Name, infos, d.visibleCount(infos, 0), memory, s), nil
}
