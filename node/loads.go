package node

import (
	"maps"
	"math"
	"slices"
	"time"

	"muster/node/lending"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/borrow"
	"muster/wire/control"
)

// How busy devices are with which client's work. Workers report what ran a few times a second; the
// daemon keeps how much of the last second each client had work on each device. Clients whose
// launches are mapped are told what others do on the devices that they have (control.Beside), and
// nodes that borrow a device what others do there (borrow.Load). Only this much is told: how many
// programs have work on a device, and how long their kernels take. Mapped clients of one node know
// each other's queues without the daemon (wire.Queue), because those change with every kernel.

// loads knows how busy devices are, and tells.
type loads struct {
	common
	lending    *lending.Lending
	lenders    *lending.Lenders
	precedence *precedence
}

// used counts what ran on a device. Of a client whose launches are mapped, queued says whether
// something is on that device now: its busy time at home counts kernels on its other devices too,
// and its kernels on further devices are told when they end.
func (c *client) used(id vgpu.DeviceID, now time.Duration, kernels, queued int, busy time.Duration) {
	if id < 0 {
		return
	}
	was, known := c.uses[id]
	if !known {
		was.At = max(c.since, now-tally.LongestReport)
	}
	if c.mapping != "" {
		switch {
		case queued > 0:
			busy = now - was.At
		case kernels == 0 && id == c.home:
			busy = 0
		}
	}
	if c.uses == nil {
		c.uses = tally.Uses{}
	}
	c.uses[id] = was.Add(now, kernels, busy)
}

// loadOf is how busy a device is with the clients that count: how many had work there, in
// thousandths, and how long their kernels take.
func (b *loads) loadOf(id vgpu.DeviceID, counts func(*client) bool) (calls int, each time.Duration) {
	now := b.loop.Now()
	var sum tally.Recent
	for _, c := range b.clients {
		if r, ok := c.uses[id]; ok && !c.ending && counts(c) {
			r = r.Faded(now)
			sum.Busy, sum.Kernels = sum.Busy+r.Busy, sum.Kernels+r.Kernels
		}
	}
	calls = int(math.Round(sum.Busy * 1000))
	if calls == 0 {
		return 0, 0
	}
	return calls, time.Duration(sum.Busy / max(sum.Kernels, 1) * float64(time.Second))
}

// tellBesideEvery is how often a client is told of others at most.
const tellBesideEvery = 50 * time.Millisecond

// tellBeside tells a client whose launches are mapped what others do on its devices, unless it was
// told just now.
func (b *loads) tellBeside(c *client) {
	now := b.loop.Now()
	if c.mapping == "" || c.worker == nil || c.ending || c.besideAt > 0 && now-c.besideAt < tellBesideEvery {
		return
	}
	said := control.Beside{}
	for _, id := range c.devicesNow() {
		calls, each := b.loadOf(id, func(other *client) bool { return other != c && !other.carriesFor(c) && !b.tellsQueue(other, id) })
		if calls > 0 {
			said.Devices = append(said.Devices, control.Busyness{Device: int(id), Calls: calls, Each: each})
		}
		if there, age := b.lenderSaid(id); there.Calls > 0 {
			said.Devices = merge(said.Devices, control.Busyness{Device: int(id), Calls: there.Calls, Each: there.Each, Age: age})
		}
	}
	if len(said.Devices) == 0 && !c.besideSome {
		return // it was told so
	}
	c.besideAt, c.besideSome = max(now, 1), len(said.Devices) > 0
	c.worker.Post(said)
}

// tellsQueue says whether a client's worker itself tells the workers of other mapped clients what it
// has on a device (wire.Queue).
func (b *loads) tellsQueue(c *client, id vgpu.DeviceID) bool {
	return c.mapping != "" && b.precedence.File != nil && id < wire.MaxPrecedence
}

// sweepQueues empties the places of processes that are no workers any more, or never were, in the
// memory in which workers of mapped clients count their launches.
func (b *loads) sweepQueues() {
	if b.precedence.File == nil {
		return
	}
	page, err := wire.MapPrecedence(b.precedence.File)
	if err != nil {
		b.log.Warn("what ended workers had queued still counts for mapped programs", "error", err)
		return
	}
	defer page.Unmap()
	workers := map[int]bool{}
	for _, c := range b.clients {
		if c.worker != nil {
			workers[c.worker.PID()] = true
		}
	}
	page.KeepQueues(func(pid int) bool { return workers[pid] })
}

// merge adds what a lender said of a device to what the node itself knows of it. The older of the two
// decides how far both are believed.
func merge(all []control.Busyness, more control.Busyness) []control.Busyness {
	if n := len(all) - 1; n >= 0 && all[n].Device == more.Device {
		was := all[n]
		sum := was.Calls + more.Calls
		each := time.Duration((float64(was.Each)*float64(was.Calls) + float64(more.Each)*float64(more.Calls)) / float64(sum)) // a product may need more than 63 bits
		all[n] = control.Busyness{Device: was.Device, Calls: sum, Each: each, Age: max(was.Age, more.Age)}
		return all
	}
	return append(all, more)
}

// devicesNow are the devices that a client has: that of its lease, and those that it was lent.
func (c *client) devicesNow() []vgpu.DeviceID {
	all := slices.Collect(maps.Keys(c.loans))
	if c.device != vgpu.AnyDevice {
		all = append(all, c.device)
	}
	slices.Sort(all)
	return all
}

// lenderSaid is what the lender of a device said of others' work there, and how long ago: with its
// answers if the device is borrowed, and when it was greeted if the configuration names it.
func (b *loads) lenderSaid(id vgpu.DeviceID) (borrow.Load, time.Duration) {
	e := &b.stock.Load().Entries[id]
	said, ok := b.lenders.Said(id)
	if b.stock.Load().IsBorrowed(id) && b.lending != nil {
		said, ok = b.lending.Said(e.Lender.Address)
	}
	if !ok {
		return borrow.Load{}, 0
	}
	for _, l := range said.Loads {
		if l.Device == e.Index {
			return l, b.loop.Now() - said.At
		}
	}
	return borrow.Load{}, 0
}

// tellLoads adds to what a guest is shown how busy the devices are with others than its own node's
// programs, which are those of the same user that come from a node of the same name.
func (b *loads) tellLoads(o *shown.Offer, who socket.Peer, program string) {
	b.loop.Ask(func() {
		for i, number := range o.Numbers {
			calls, each := b.loadOf(vgpu.DeviceID(number), func(c *client) bool {
				return !c.isGuest() || c.peer.User.Name != who.User.Name || c.program != program
			})
			if calls > 0 {
				const most = 1<<31 - 1
				said := map[int]int{wire.LentCalls: min(calls, most), wire.LentEach: int(min(each.Microseconds(), most))}
				o.Devices[i].Attributes = append(o.Devices[i].Attributes, shown.AttributePairs(said)...)
			}
		}
	})
}
