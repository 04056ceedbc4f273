package vgpu

import (
	"slices"
	"time"
)

// Adopt makes a client known that an earlier dispatcher served: it holds a
// lease, or keeps bytes on a device, or has nothing there. It counts as busy and
// is not watched, whatever it was told before. If its device cannot hold it, as
// when devices or limits have become smaller, it is told to leave and counts
// until it has; if the device is not there, it is told that (Gone).
type Adopt struct {
	Client ClientID `json:"client"`
	User   string   `json:"user"`
	Weight int      `json:"weight"`
	Grant  GrantID  `json:"grant,omitempty"` // as Attach has them
	Share  int      `json:"share,omitempty"`

	Priority int `json:"priority,omitempty"`

	Device DeviceID `json:"device"` // where it is, or last was; AnyDevice if nowhere
	Held   bool     `json:"held"`   // it holds a lease there
	Memory uint64   `json:"memory"` // that the lease is for
	Kept   uint64   `json:"kept"`   // bytes that it keeps there without a lease
	Lease  int      `json:"lease"`  // the number of its last lease: the next is larger
	Pinned DeviceID `json:"pinned"` // as in its last Want

	// What it had used when the earlier dispatcher ended.
	Kernels     uint64        `json:"kernels"`
	Busy        time.Duration `json:"busy_ns"`
	Waited      time.Duration `json:"waited_ns"`
	Preemptions int           `json:"preemptions"`
	Moves       Moves         `json:"moves"`
}

// Numbers of an earlier dispatcher are cut to these, so that no sum made of them
// overflows.
const (
	maxAdoptedBytes = 1 << 60 // of one client
	maxAdoptedUsed  = 1 << 61 // on one device
	maxAdoptedCount = 1 << 40
)

func (e Adopt) apply(c *Core) bool {
	if c.clients[e.Client] != nil {
		return c.deny(e.Client, Duplicated)
	}
	x := c.attach(e.Client, e.User, e.Weight, e.Grant, e.Share)
	if x == nil {
		return c.deny(e.Client, NoGrant)
	}
	x.want.Pinned = e.Pinned
	c.rank(x, e.Priority)
	x.ran = Usage{e.Kernels, max(e.Busy, 0)}.within(Usage{})
	x.stats = stats{
		grants: counted(e.Lease), waited: min(max(e.Waited, 0), maxUsage), preemptions: counted(e.Preemptions),
		moves: Moves{counted(e.Moves.Auto), counted(e.Moves.ByHand), counted(e.Moves.Drain)},
	}
	if e.Lease > 0 {
		x.state = Waiting
	}
	d := c.device(e.Device)
	if d != nil {
		x.last = d.id
	}
	switch {
	case !e.Held && e.Kept == 0:
	case d == nil || d.lost || !d.canCount(e):
		if e.Held {
			x.state = Failed
		}
		c.emit(Effect{Kind: Gone, Client: x.id, Device: e.Device})
	default:
		c.takeIn(x, d, e)
	}
	return true
}

func counted(n int) int { return min(max(n, 0), maxAdoptedCount) }

// canCount says whether what a client claims to have on d can be added to what the
// others have there without overflow.
func (d *device) canCount(e Adopt) bool {
	return e.Memory <= maxAdoptedBytes && e.Kept <= maxAdoptedBytes && d.used+int64(max(e.Memory, e.Kept)+d.ContextCost) <= maxAdoptedUsed
}

// overfull says whether d's clients take more memory than they may, even when those have left who were told to:
// because they were adopted, or because a grant was admitted since.
func (d *device) overfull() bool {
	_, coming := d.coming(func(*client) bool { return true })
	return d.room()+coming < 0
}

// takeIn records an adopted client where it already is.
func (c *Core) takeIn(x *client, d *device, e Adopt) {
	why := ForMemory
	switch {
	case x.part != nil && x.part.of == d:
		d = x.part
	case !x.isOf(d): // its grant is for another device than the one it is on
		why = ForMove
	}
	x.sit(d)
	if e.Held {
		x.want.Need = e.Memory
		c.seat(x, d, e.Memory)
	} else {
		x.kept = e.Kept
		d.keepers = append(d.keepers, x)
		d.used += x.taken()
	}
	if d.overfull() || d.bound > d.Slots || why == ForMove || (x.part == nil && x.user.limit > 0 && x.user.slots > x.user.limit) {
		c.revoke(victim{client: x, why: why})
	}
}

// seat binds a client to a slot of d. If none is free, which happens only to adopted
// clients, an extra slot is made until it leaves.
func (b *books) seat(x *client, d *device, memory uint64) {
	x.sit(d)
	x.state, x.last, x.memory, x.slot = Assigned, d.id, memory, slices.Index(d.slots, nil)
	if x.slot < 0 {
		x.slot = len(d.slots)
		d.slots = append(d.slots, nil)
	}
	d.slots[x.slot] = x
	d.bound++
	if x.further {
		d.visitors++
	}
	d.used += x.taken()
	x.user.slots += x.slotCount()
	x.grantAt, x.busy, x.known, x.sync, x.phase = b.now, true, false, false, 0
	x.tenure.landed, x.tenure.ousted, x.tenure.early = false, false, false
	b.anew = true
}
