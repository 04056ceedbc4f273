package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"muster/wire/status"
)

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
	return lentTo{strings.TrimPrefix(c.peer.user.name, borrowerPrefix), c.guest.number}
}

// guestLeaves remembers what a guest did that is leaving.
func (d *daemon) guestLeaves(c *client, kernels uint64) {
	to := c.lentTo()
	was, known := d.lentBefore[to]
	if !known && len(d.lentBefore) >= maxLentPast {
		return
	}
	d.lentBefore[to] = was.plus(c, kernels)
}

// plus adds what a guest did.
func (p lentPast) plus(c *client, kernels uint64) lentPast {
	return lentPast{sum(p.kernels, kernels), sum(p.in, c.counters.copiedIn), sum(p.out, c.counters.copiedOut)}
}

// pictureLent says what other nodes have of this one, and what was done for them, in the order of their names.
func (d *daemon) pictureLent(s *status.Node) {
	now := map[lentTo]status.Lent{}
	done := maps.Clone(d.lentBefore)
	if d.borrowing != nil {
		for _, t := range d.borrowing.core.View(d.now()).Lent {
			to := lentTo{string(t.To), d.shownAs(t.Device)}
			l := now[to]
			l.Slots, l.Recalled = l.Slots+t.Slots, l.Recalled || t.Recalled
			now[to], done[to] = l, done[to]
		}
	}
	for _, c := range d.clients {
		if !c.isGuest() || c.carries != nil {
			continue
		}
		v, _ := d.core.Client(c.id)
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

// shownAs is the number of the device at a place among those that guests are shown.
func (d *daemon) shownAs(place int) int {
	for number := range d.stock.Load().entries {
		if d.stock.Load().entries[number].lends() {
			if place--; place < 0 {
				return number
			}
		}
	}
	return place
}
