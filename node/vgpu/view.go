package vgpu

import (
	"cmp"
	"slices"
	"time"
)

// View is a picture of the core at one moment. It does not change with it.
type View struct {
	Now      Time
	Clients  []ClientView // by number
	Devices  []DeviceView // by number
	Ready    int
	Assigned int
	Waiting  int
	Failed   int
	Past     Usage // of clients that have gone

	PastMoves Moves // of clients that have gone
}

// Total is what all clients used, those that have gone included.
func (v View) Total() Usage {
	total := v.Past
	for _, x := range v.Clients {
		total = total.plus(x.Usage)
	}
	return total
}

// ClientView is one client.
// It has a field for each thing that is shown of one.
type ClientView struct {
	ID          ClientID
	User        string
	State       State
	Device      DeviceID // where it is bound, or keeps bytes; AnyDevice if nowhere
	Slot        int      // -1 unless assigned
	Memory      uint64   // granted while assigned, kept while unbound
	Need        uint64   // asked for with the last Want
	Busy        bool     // as far as is known
	Revoking    bool     // told to let go, has not answered
	Growing     bool     // a Grow is unanswered
	Watched     bool
	Grants      int           // how often it was bound: the number of its last lease
	Waits       time.Duration // in the ready queue, all in all
	Preemptions int
	Moves       Moves
	Grant       GrantID  // "" for none
	Target      DeviceID // where it is to go next, as Move said or to run faster; AnyDevice if that is open
	Parked      bool     // ready, but every device that could hold it is drained or lost
	Usage
	Credit time.Duration // of its user

	Weight   int
	Priority int
	Turns    int           // that ended because others waited
	Turn     time.Duration // how long it may stay while others wait; 0 unless assigned, or without a quantum
	TurnUsed time.Duration // of that, since its memory was there
	Balance  time.Duration // what others owe it, or it owes them, from earlier turns
	Longest  time.Duration // of its waits for a device
	Moving   time.Duration // how long moving its memory to devices and from them took, all in all
}

// DeviceView is one device.
type DeviceView struct {
	ID       DeviceID
	Name     string
	State    DeviceState
	Slots    int // that clients can have: a share that was granted has slots of its own
	Used     int // slots that clients are bound to
	Promised int // slots that are promised to ready clients
	Memory   uint64
	Taken    uint64 // by clients and their contexts
	Free     uint64 // neither taken nor promised
	Reserved bool   // for a client that waited too long
	Granted  uint64 // kept for those who have a grant; of Memory
	Usage           // of all clients, there or gone
}

// View takes the picture.
func (k *books) View() View {
	v := View{Now: k.now, Past: k.past, PastMoves: k.pastMoves, Clients: make([]ClientView, 0, len(k.clients))}
	for _, x := range k.clients {
		v.Clients = append(v.Clients, k.viewClient(x))
		switch x.state {
		case Ready:
			v.Ready++
		case Assigned:
			v.Assigned++
		case Waiting:
			v.Waiting++
		case Failed:
			v.Failed++
		}
	}
	slices.SortFunc(v.Clients, func(a, b ClientView) int { return cmp.Compare(a.ID, b.ID) })
	for _, d := range k.devices {
		v.Devices = append(v.Devices, d.view())
	}
	return v
}

// Waiting is how many clients wait for a device that some device could give them.
func (b *books) Waiting() int { return len(b.ready) - b.parked }

// Device takes the picture of one device; false: there is none with this number.
func (f *fleet) Device(id DeviceID) (DeviceView, bool) {
	d := f.device(id)
	if d == nil {
		return DeviceView{}, false
	}
	return d.view(), true
}

// Likely is the device that a client would be put on if it wanted one now, whatever it needs;
// AnyDevice if others would have to leave first, or if there is no such client.
func (b *books) Likely(id ClientID) DeviceID {
	if x := b.clients[id]; x != nil {
		if d := b.bestFree(x); d != nil {
			return d.id
		}
	}
	return AnyDevice
}

// RoomInGrant says whether a client under a grant that needs so many bytes could be put on the device
// of a share at once: nobody would have to leave, nobody waits for it, and the grant's limit allows it.
func (b *books) RoomInGrant(id GrantID, share int, need uint64) bool {
	g := b.findGrant(id)
	if g == nil || share < 0 || share >= len(g.parts) {
		return false
	}
	p := g.parts[share]
	if slices.ContainsFunc(b.ready, func(x *client) bool { return x.part == p }) {
		return false
	}
	return p.up() && !p.base().removed && p.vacated() && (&client{part: p}).mayRun() && p.freeSlots() > 0 && p.holdsNow(need) && int64(need+p.ContextCost) <= p.free()
}

// GrowsInGrant says whether a client that is on the device of a share could have so many bytes more
// without anybody leaving.
func (f *fleet) GrowsInGrant(id GrantID, share int, more uint64) bool {
	g := f.findGrant(id)
	if g == nil || share < 0 || share >= len(g.parts) {
		return false
	}
	p := g.parts[share]
	return p.up() && int64(more) <= p.free()
}

// countsSlots says whether clients can have slots of a device or of a part of it: not of a device
// that a grant has as a whole, nor of a part whose grant is suspended or over and that is empty.
func (d *device) countsSlots() bool {
	if d.of == nil {
		return !d.exclusive()
	}
	return d.grant.active() || d.bound > 0
}

func (d *device) view() DeviceView {
	v := DeviceView{ID: d.id, Name: d.Name, State: d.state(), Memory: d.Memory, Granted: uint64(int64(d.Memory) - d.quota()), Usage: d.ran}
	free := int64(d.Memory)
	for _, m := range d.family() {
		if m.countsSlots() {
			v.Slots += m.Slots
		}
		v.Used, v.Promised, v.Taken = v.Used+m.bound, v.Promised+m.claims, v.Taken+uint64(m.used)
		v.Reserved = v.Reserved || m.reservedFor != nil
		free -= m.used + m.claimed
	}
	v.Free = uint64(max(free, 0))
	return v
}

// Client takes the picture of one client; false: it is not attached.
func (b *books) Client(id ClientID) (ClientView, bool) {
	x := b.clients[id]
	if x == nil {
		return ClientView{}, false
	}
	return b.viewClient(x), true
}

func (b *books) viewClient(x *client) ClientView {
	v := ClientView{
		ID: x.id, User: x.user.name, State: x.state, Device: AnyDevice, Slot: x.slot, Memory: x.memory,
		Need: x.want.Need, Revoking: x.revoking, Growing: x.growTo > 0, Watched: x.watched,
		Busy: x.state == Assigned && x.busy, Grants: x.stats.grants, Waits: x.stats.waited,
		Preemptions: x.stats.preemptions, Moves: x.stats.moves, Target: x.target, Parked: x.parked, Usage: x.ran, Credit: x.user.credit,
	}
	v.Weight, v.Priority, v.Turns, v.Balance, v.Longest, v.Moving = x.weight, x.priority, x.stats.turns, x.tenure.balance, x.stats.longest, x.stats.moving
	if x.dev != nil {
		v.Device = x.dev.id
	}
	if x.state == Assigned && b.cfg.Quantum > 0 {
		v.Turn = b.turn(x)
		if x.tenure.landed {
			v.TurnUsed = b.now - x.tenure.at
		}
	}
	if x.part != nil {
		v.Grant = x.part.grant.id
	}
	if x.state != Assigned {
		v.Memory = x.kept
	}
	if x.state == Ready {
		v.Waits += b.now - x.wantAt
		v.Longest = max(v.Longest, b.now-x.wantAt)
	}
	return v
}
