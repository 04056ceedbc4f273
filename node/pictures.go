package node

import (
	"cmp"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"muster/internal/door"
	"muster/node/fate"
	"muster/node/grants"
	"muster/node/lending"
	"muster/node/mps"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/spares"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// pictures show how the node and its clients are. Only the loop uses them, save status and answerStatus.
type pictures struct {
	common
	Options
	sharing    *mps.Sharing
	lending    *lending.Lending
	spares     *spares.Spares
	staff      *staff
	tally      *tally.Book
	grants     *grants.Book
	quota      *quota
	places     *door.Places
	problems   func() []status.Problem
	end        func(c *client, reason string, kill bool)
	lentBefore map[lentTo]lentPast // what guests did that have left
}

// status asks the loop for a picture.
func (p *pictures) status() (status.Node, bool) {
	var s status.Node
	problems := p.problems()
	ok := p.loop.Ask(func() { s = p.picture() })
	s.Problems = problems
	return s, ok
}

func (p *pictures) picture() status.Node { return p.pictureOf(p.dispatcher.View()) }

func (p *pictures) pictureOf(view vgpu.View) status.Node {
	now := p.loop.Now()
	s := status.Node{
		Node: p.cfg.Name, Pid: os.Getpid(), Up: now.Seconds(), Policy: p.settings.Load().Policy.String(),
		SwapSize: p.settings.Load().Swap.Size, Committed: p.quota.total, Draining: p.loop.Draining(),
		Devices: make([]status.Device, len(view.Devices)), Clients: make([]status.Client, 0, len(view.Clients)),
		Ended: append([]status.Client{}, p.tally.Gone...),
	}
	s.MPS = p.sharing.Status()
	p.pictureLent(&s)
	p.lending.Status(&s)
	if p.Parcels != nil {
		exchanged := p.Parcels()
		s.Parcels = &exchanged
	}
	if p.Sessions != nil {
		sessions := p.Sessions()
		s.Sessions = &sessions
	}
	for _, service := range p.Services {
		if service.Status != nil {
			service.Status(&s)
		}
	}
	all := p.tally.Past
	for _, c := range p.clients {
		all.Add(c.counters)
	}
	s.Links, s.SwapIn, s.SwapOut = p.linkStatus(all.Links), all.SwapIn, all.SwapOut
	stock := p.stock.Load()
	for i, v := range view.Devices {
		e := &stock.Entries[i]
		s.Devices[i] = status.Device{
			Number: i, Name: v.Name, Kind: e.Kind, State: v.State.String(), Removing: p.stock.IsLeaving(v.ID),
			Speed: e.Info.Speed, Memory: v.Memory, Free: v.Free, Used: v.Taken, Guaranteed: v.Granted, Spares: p.spares.Waiting(v.ID),
			Slots: v.Slots, Assigned: v.Used, BusyTime: tally.Plus(v.Usage, p.tally.Before.Of(i)).GPUTime.Seconds(), Lost: v.State == vgpu.DeviceLost,
			Lender: p.lending.Lender(e.Lender.Address), Borrowed: e.Lender.Ticket != "", Confined: p.confinedOn(v.ID),
			MappedKernels: p.tally.Mapped[v.ID].Kernels, MappedIn: p.tally.Mapped[v.ID].Moved,
		}
	}
	var cut map[uint64]time.Duration
	if p.Cut != nil {
		cut = p.Cut()
	}
	for _, v := range view.Clients {
		c := p.clients[v.ID]
		if c == nil { // a loan, which its client tells of
			continue
		}
		if v.State == vgpu.Assigned && v.Busy {
			s.Devices[v.Device].Busy++
		}
		about := c.status(v, now)
		about.Links = p.linkStatus(c.counters.Links)
		if left, is := cut[about.ID]; is {
			about.Cut, about.CutLeft = true, left.Seconds()
		}
		if s.MPS != nil {
			about.MPS = string(p.sharing.State(fate.Client(c.id)))
		}
		if about.MPS == string(fate.Shared) {
			about.Share = c.share
		}
		s.Clients = append(s.Clients, about)
	}
	s.Granted = p.granted(s.Clients)
	inForce := p.settings.Load().InForce()
	s.Settings = &inForce
	return s
}

// granted is what the clients under each grant did, those that have gone included.
func (p *pictures) granted(clients []status.Client) (list []status.Granted) {
	all := maps.Clone(p.tally.Granted)
	for i := range clients {
		if c := &clients[i]; c.Grant != "" {
			all[c.Grant] = all[c.Grant].Plus(c.Measured())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, status.Granted{Grant: id, Measured: all[id].Rounded()})
	}
	return list
}

// Owner is whose a client is that has not ended.
func (p *pictures) Owner(id vgpu.ClientID) (settings.Account, bool) {
	c := p.clients[id]
	if c == nil || c.ending {
		return settings.Account{}, false
	}
	return c.peer.User, true
}

// End ends a client at once.
func (p *pictures) End(id vgpu.ClientID, why string) { p.end(p.clients[id], why, true) }

// Status is the picture of one client.
func (p *pictures) Status(id vgpu.ClientID) status.Client {
	v, _ := p.dispatcher.Client(id)
	return p.clients[id].status(v, p.loop.Now())
}

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
		s.Waiting = (now - c.wantedAt).Seconds()
		s.WaitTime += s.Waiting
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
func (p *pictures) remember(c *client) vgpu.Usage {
	v, _ := p.dispatcher.Client(c.id)
	s := c.status(vgpu.ClientView{Device: vgpu.AnyDevice, Usage: v.Usage, Moves: v.Moves, Turns: v.Turns, Longest: v.Longest, Moving: v.Moving}, p.loop.Now())
	c.counters.Turns, c.counters.Moving = uint64(v.Turns), v.Moving
	s.State, s.Worker = "ended", 0
	s.Links = p.linkStatus(c.counters.Links)
	p.tally.Leave(s, c.counters, c.under.Granted != nil && p.grants.Of(c.under.ID) == c.under.Granted)
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

// grantStatus is a grant for people, without anything secret.
func (p *pictures) grantStatus(g *grants.Granted) status.Grant {
	s := status.Grant{ID: g.ID, User: g.User, Limit: g.Limit, Turns: g.Turns, Devices: []status.GrantedDevice{}}
	if !g.Expires.IsZero() {
		s.Expires = g.Expires.Unix()
	}
	for i, share := range g.Devices {
		is := status.GrantedDevice{Device: share.Device, Name: p.stock.Load().NameOf(vgpu.DeviceID(share.Device)), Memory: share.Memory, Reach: share.Reach, Beyond: share.Beyond}
		if share.Lender != "" {
			is.Lender = p.lending.Lender(share.Lender)
		}
		for _, c := range p.clients {
			switch {
			case c.under.Granted != g:
			case c.under.Share == i:
				is.Clients++
				is.Allocated += c.memoryNow.Allocated
			case c.loans[vgpu.DeviceID(share.Device)] != nil: // its launches are mapped there too
				is.Clients++
			}
		}
		s.Devices = append(s.Devices, is)
	}
	return s
}

// confinedOn is what confines all workers of clients on a device, and those that wait there for a client;
// what the next worker gets if there is none. The loop calls it.
func (p *pictures) confinedOn(id vgpu.DeviceID) status.Confined {
	least := p.staff.confinement.State()
	for _, c := range p.clients {
		if c.worker != nil && c.device == id {
			least = least.Least(p.staff.confinement.Of(c.worker))
		}
	}
	for s := range p.spares.All() {
		if s.Worker != nil && s.Device == id {
			least = least.Least(p.staff.confinement.Of(s.Worker))
		}
	}
	return status.Confined(least)
}

// linkStatus names the ends of links. A device of another node counts under that node's name and
// the number that it has there, so that borrowing it again continues the same link.
func (p *pictures) linkStatus(all tally.Links) []status.Link {
	var named []status.Link
	for _, l := range all {
		next := status.Link{From: p.endOf(l.From), To: p.endOf(l.To)}
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
func (p *pictures) endOf(number int) status.End {
	entries := p.stock.Load().Entries
	if number < 0 || number >= len(entries) {
		return status.End{Node: p.cfg.Name, Device: control.OnHost}
	}
	if e := &entries[number]; e.Kind == settings.KindRemote {
		return status.End{Node: p.lending.Lender(e.Lender.Address), Device: e.Index}
	}
	return status.End{Node: p.cfg.Name, Device: number}
}

// writeMetrics writes the text format that Prometheus reads.
func (p *pictures) writeMetrics(w io.Writer, problems []status.Problem) {
	view, total := p.dispatcher.View(), p.tally.Past
	for _, c := range p.clients {
		total.Add(c.counters)
	}
	used, moves := tally.Plus(view.Total(), p.tally.Before.Past), movesOf(tally.PlusMoves(view.PastMoves, p.tally.Before.Moves))
	for _, c := range view.Clients {
		moves = moves.Plus(movesOf(c.Moves))
		total.Turns, total.Moving = total.Turns+uint64(c.Turns), total.Moving+c.Moving
	}
	m := status.Metrics{
		Node: p.pictureOf(view), Clients: total.Clients + uint64(len(p.clients)), Refused: p.tally.Refused,
		Kernels: used.Kernels, BusyTime: used.GPUTime.Seconds(), Grants: total.Grants, Denials: total.Denials, Faults: total.Failures,
		Turns: total.Turns, MoveTime: total.Moving.Seconds(), HeldTime: total.Held.Seconds(),
		Swaps: total.Swaps, SwapIn: total.SwapIn, SwapOut: total.SwapOut, CopiedIn: total.CopiedIn, CopiedOut: total.CopiedOut,
		Moves: moves, Preemptions: map[string]uint64{}, Users: p.tally.Users, Waits: p.tally.Waits, Problems: len(problems), Connections: p.places.Taken(),
	}
	for state := vgpu.Unqueued; state <= vgpu.Failed; state++ {
		m.States = append(m.States, state.String())
	}
	for _, why := range []vgpu.Reason{vgpu.ForCredit, vgpu.ForIdle, vgpu.ForMemory, vgpu.ForSync, vgpu.ForMove, vgpu.ForDrain, vgpu.ForGrant, vgpu.ForLimit, vgpu.ForQuantum, vgpu.ForRoom} {
		m.Preemptions[string(why)] = p.tally.Preempted[why]
	}
	m.WriteText(w)
	status.WriteBuild(w)
}

type (
	statusRequest = struct {
		Request string `json:"request"`
	}
	monitorRequest = struct { // without a name of its own, which an error would tell
		Request string `json:"request"`
		Memory  uint64 `json:"memory"` // what the asker's programs are to see; 0: all
	}
)

func (p *pictures) answerStatus(_ socket.Peer, _ statusRequest) (any, error) {
	s, ok := p.status()
	if !ok {
		return nil, refusal.ErrShuttingDown
	}
	return s, nil
}

// answerMonitor describes the devices as a program that the asking user starts would
// see them, and the clients that use them.
func (t *terms) answerMonitor(who socket.Peer, r monitorRequest) (any, error) {
	infos := t.stock.Load().Infos()
	if len(infos) == 0 {
		return nil, refusal.ErrNoDevices
	}
	s, ok := t.pictures.status()
	if !ok {
		return nil, refusal.ErrShuttingDown
	}
	memory := t.worldOf(infos, r.Memory, t.settings.Load().Limits.Of(who.User))
	return shown.Monitored(t.cfg.Name, infos, t.visibleCount(infos, 0), memory, s), nil
}
