package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"muster/device"
	"muster/model"
	"muster/node/grants"
	"muster/node/inventory"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/wire/status"
)

// A guest is another node that uses a device of this one as its own (device/remote). It is a
// client like others: it counts towards its user's limits and shares, its memory is swapped,
// and its kernels wait for their turn. It differs in this:
//
//   - It is shown each device by itself, and is put on the one that it asks for and on no
//     other: its own node decides which device a program is on.
//   - It is shown no devices that this node has of others. So work is never passed on twice,
//     and cannot circulate between two nodes that lend each other devices.
//   - It says where its device addresses lie, because its programs know them.
//   - It is not rebuilt when its worker or this daemon dies: to its own node that is the loss
//     of a device, after which that node rebuilds the program's client there. So nothing is
//     journalled twice, and this node never waits for a guest's kernel in order to journal.

// guest is which device a guest has; the zero value is a client that is no guest.
type guest struct {
	is     bool
	number int
}

func guestOf(number int) guest { return guest{is: true, number: number} }

// pins is the only device that a client may use: a guest's own, and otherwise the one that
// its worker names.
func (g guest) pins(said vgpu.DeviceID) vgpu.DeviceID {
	if g.is {
		return vgpu.DeviceID(g.number)
	}
	return said
}

// file is the guest as it is written for the next daemon.
func (g guest) file() *int {
	if !g.is {
		return nil
	}
	return &g.number
}

// keepsOff says whether a client may never use a device. A guest has one, and others what their grant reaches.
// What another node granted a job is for its programs alone.
func (c *client) keepsOff(number int, e *inventory.Device) bool {
	switch reach := c.under.Reach(); {
	case c.guest.is:
		return number != c.guest.number
	case number == c.under.Home():
		return false
	case e.Lender.Granted:
		return true
	default:
		return reach == model.ReachDevice || reach == model.ReachNode && e.Kind == settings.KindRemote
	}
}

// offersGuests is what a guest is shown: the node's own devices, or those of its grant.
func (t *terms) offersGuests(stock *inventory.Inventory, wish uint64, limits settings.UserLimits, g *grants.Granted) (*shown.Offer, error) {
	o := &shown.Offer{}
	add := func(number int, most uint64) {
		e := &stock.Entries[number]
		if !e.Lends() {
			return
		}
		infos := []device.Info{e.Info}
		memory := min(t.worldOf(infos, wish, limits), most)
		o.Numbers = append(o.Numbers, number)
		o.Add(infos, memory, shown.Lent(t.cfg.Name, e.Info, number, memory))
	}
	if g == nil {
		for number := range stock.Entries {
			add(number, stock.Entries[number].Info.Memory)
		}
	} else {
		for _, share := range g.Devices {
			add(share.Device, grants.ShareOf(share, stock.Entries[share.Device].Info))
		}
		if len(o.Devices) != len(g.Devices) { // all or none: a guest numbers them by their places in the grant
			return nil, refusal.New(refusal.NoDevice, "grant %s has devices that the node cannot lend: they are gone, or are another node's", g.ID)
		}
	}
	if len(o.Devices) == 0 {
		return nil, refusal.New(refusal.NoDevice, "the node has no devices of its own that it could lend")
	}
	return o, nil
}

// What other nodes have borrowed of this one, and what they did with it: by tickets, and as guests
// without a ticket, where an administrator gave their node a device of this one
// (docs/lent-devices.md).

// lentTo is another node, and the device of this one that it uses.
type lentTo struct {
	node   string
	device int
}

// lentPast is what guests that have gone did.
type lentPast struct{ kernels, in, out uint64 }

// maxLentPast bounds how many pairs of node and device are remembered, since a user can come under
// any number of node names.
const maxLentPast = 1024

// borrowerPrefix begins the names of users that are nodes with a ticket.
const borrowerPrefix = "node:"

// lentTo says whose guest a client is.
func (c *client) lentTo() lentTo {
	return lentTo{strings.TrimPrefix(c.peer.User.Name, borrowerPrefix), c.guest.number}
}

// hasTicket says whether a client is a guest that another node has by a ticket.
func (c *client) hasTicket() bool {
	return c.isGuest() && c.under.Granted == nil && strings.HasPrefix(c.peer.User.Name, borrowerPrefix)
}

// guestLeaves remembers what a guest did that is leaving.
func (p *pictures) guestLeaves(c *client, kernels uint64) {
	to := c.lentTo()
	was, known := p.lentBefore[to]
	if !known && len(p.lentBefore) >= maxLentPast {
		return
	}
	p.lentBefore[to] = was.plus(c, kernels)
}

// plus adds what a guest did.
func (p lentPast) plus(c *client, kernels uint64) lentPast {
	return lentPast{tally.Sum(p.kernels, kernels), tally.Sum(p.in, c.counters.CopiedIn), tally.Sum(p.out, c.counters.CopiedOut)}
}

// pictureLent says what other nodes have of this one, and what was done for them, in the order of their names.
func (p *pictures) pictureLent(s *status.Node) {
	now := map[lentTo]status.Lent{}
	done := maps.Clone(p.lentBefore)
	for _, t := range p.lending.Lent() {
		to := lentTo{string(t.To), p.stock.Load().ShownAs(t.Device)}
		l := now[to]
		l.Slots, l.Recalled = l.Slots+t.Slots, l.Recalled || t.Recalled
		now[to], done[to] = l, done[to]
	}
	for _, c := range p.clients {
		if !c.isGuest() || c.carries != nil || c.under.Granted != nil {
			continue
		}
		v, _ := p.dispatcher.Client(c.id)
		to := c.lentTo()
		l, was := now[to], done[to]
		l.Clients++
		now[to], done[to] = l, was.plus(c, v.Kernels)
	}
	for _, to := range slices.SortedFunc(maps.Keys(done), func(a, b lentTo) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.device, b.device)) }) {
		was := done[to]
		s.Served = append(s.Served, status.Served{Node: to.node, Device: to.device, Kernels: was.kernels, CopiedIn: was.in, CopiedOut: was.out})
		if l, is := now[to]; is {
			l.Node, l.Device = to.node, to.device
			s.Lent = append(s.Lent, l)
		}
	}
}
