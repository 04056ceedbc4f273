package node

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"muster/device"
	"muster/node/offload"
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

// recent is how much one client has used a device lately. Both sums fade by 1/e in a second.
type recent struct {
	busy    float64 // seconds with work there; about the part of the last second
	kernels float64
	at      time.Duration // of the last report
}

// fade is the time in which a client's use of a device counts for 1/e.
const fade = time.Second

// longestReport is the longest time for which a single report counts: workers with work on a device
// report more often.
const longestReport = fade

// add counts what a client reports. A device has been in use for no longer than since the last
// report.
func (r recent) add(now time.Duration, kernels int, busy time.Duration) recent {
	busy = min(busy, now-r.at, longestReport)
	f := r.faded(now)
	return recent{min(1, f.busy+busy.Seconds()), f.kernels + float64(kernels), now}
}

// faded is what counts at a later time.
func (r recent) faded(now time.Duration) recent {
	f := math.Exp(-max(0, now-r.at).Seconds() / fade.Seconds())
	return recent{r.busy * f, r.kernels * f, now}
}

// uses is what a client has used lately, by device.
type uses map[vgpu.DeviceID]recent

// used counts what ran on a device. Of a client whose launches are mapped, queued says whether
// something is on that device now: its busy time at home counts kernels on its other devices too,
// and its kernels on further devices are told when they end.
func (c *client) used(id vgpu.DeviceID, now time.Duration, kernels, queued int, busy time.Duration) {
	if id < 0 {
		return
	}
	was, known := c.uses[id]
	if !known {
		was.at = max(c.since, now-longestReport)
	}
	if c.mapping != "" {
		switch {
		case queued > 0:
			busy = now - was.at
		case kernels == 0 && id == c.home:
			busy = 0
		}
	}
	if c.uses == nil {
		c.uses = uses{}
	}
	c.uses[id] = was.add(now, kernels, busy)
}

// loadOf is how busy a device is with the clients that count: how many had work there, in
// thousandths, and how long their kernels take.
func (d *daemon) loadOf(id vgpu.DeviceID, counts func(*client) bool) (calls int, each time.Duration) {
	now := d.now()
	var sum recent
	for _, c := range d.clients {
		if r, ok := c.uses[id]; ok && !c.ending && counts(c) {
			r = r.faded(now)
			sum.busy, sum.kernels = sum.busy+r.busy, sum.kernels+r.kernels
		}
	}
	calls = int(math.Round(sum.busy * 1000))
	if calls == 0 {
		return 0, 0
	}
	return calls, time.Duration(sum.busy / max(sum.kernels, 1) * float64(time.Second))
}

// lenderLoad is what the node that lends a device said of it.
type lenderLoad struct {
	loads []borrow.Load
	at    time.Duration
}

// tellBesideEvery is how often a client is told of others at most.
const tellBesideEvery = 50 * time.Millisecond

// tellBeside tells a client whose launches are mapped what others do on its devices, unless it was
// told just now.
func (d *daemon) tellBeside(c *client) {
	now := d.now()
	if c.mapping == "" || c.worker == nil || c.ending || c.besideAt > 0 && now-c.besideAt < tellBesideEvery {
		return
	}
	said := control.Beside{}
	for _, id := range c.devicesNow() {
		calls, each := d.loadOf(id, func(other *client) bool { return other != c && !other.carriesFor(c) && !d.tellsQueue(other, id) })
		if calls > 0 {
			said.Devices = append(said.Devices, control.Busyness{Device: int(id), Calls: calls, Each: each})
		}
		if there, age := d.lenderSaid(id); there.Calls > 0 {
			said.Devices = merge(said.Devices, control.Busyness{Device: int(id), Calls: there.Calls, Each: there.Each, Age: age})
		}
	}
	if len(said.Devices) == 0 && !c.besideSome {
		return // it was told so
	}
	c.besideAt, c.besideSome = max(now, 1), len(said.Devices) > 0
	c.worker.post(said)
}

// tellsQueue says whether a client's worker itself tells the workers of other mapped clients what it
// has on a device (wire.Queue).
func (d *daemon) tellsQueue(c *client, id vgpu.DeviceID) bool {
	return c.mapping != "" && d.precedence != nil && id < wire.MaxPrecedence
}

// sweepQueues empties the places of processes that are no workers any more, or never were, in the
// memory in which workers of mapped clients count their launches.
func (d *daemon) sweepQueues() {
	if d.precedence == nil {
		return
	}
	page, err := wire.MapPrecedence(d.precedence)
	if err != nil {
		d.log.Warn("what ended workers had queued still counts for mapped programs", "error", err)
		return
	}
	defer page.Unmap()
	workers := map[int]bool{}
	for _, c := range d.clients {
		if c.worker != nil {
			workers[c.worker.pid()] = true
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
func (d *daemon) lenderSaid(id vgpu.DeviceID) (borrow.Load, time.Duration) {
	e := &d.stock.Load().entries[id]
	said, ok := d.greeted[id]
	if d.isBorrowed(id) && d.borrowing != nil {
		said, ok = d.borrowing.said[offload.PeerID(e.Lender.Address)]
	}
	if !ok {
		return borrow.Load{}, 0
	}
	for _, l := range said.loads {
		if l.Device == e.Index {
			return l, d.now() - said.at
		}
	}
	return borrow.Load{}, 0
}

// tellLoads adds to what a guest is shown how busy the devices are with others than its own node's
// programs, which are those of the same user that come from a node of the same name.
func (d *daemon) tellLoads(o *offer, who peer, program string) {
	d.ask(func() {
		for i, number := range o.numbers {
			calls, each := d.loadOf(vgpu.DeviceID(number), func(c *client) bool {
				return !c.isGuest() || c.peer.user.name != who.user.name || c.program != program
			})
			if calls > 0 {
				const most = 1<<31 - 1
				said := map[int]int{wire.LentCalls: min(calls, most), wire.LentEach: int(min(each.Microseconds(), most))}
				o.devices[i].Attributes = append(o.devices[i].Attributes, attributePairs(said)...)
			}
		}
	})
}

// busyLender is a device of another node that knows what its lender said of others' work there: how
// many programs had some, in thousandths, and how long their kernels take.
type busyLender interface {
	Load() (calls int, each time.Duration)
}

// heardLoad notes what the lender of a device of the configuration has said when it was greeted.
func (d *daemon) heardLoad(id vgpu.DeviceID, opened device.Device) {
	lender, ok := opened.(busyLender)
	if !ok {
		return
	}
	calls, each := lender.Load()
	if d.greeted == nil {
		d.greeted = map[vgpu.DeviceID]lenderLoad{}
	}
	d.greeted[id] = lenderLoad{[]borrow.Load{{Device: d.stock.Load().entries[id].Index, Calls: calls, Each: each}}, d.now()}
}

// loadsFor is what others than a node's own programs do on the devices that it has borrowed.
func (d *daemon) loadsFor(node string) (all []borrow.Load) {
	for _, t := range d.borrowing.core.View(d.now()).Lent {
		if string(t.To) != node || slices.ContainsFunc(all, func(l borrow.Load) bool { return l.Device == t.Device }) || len(all) == borrow.MaxLoads {
			continue
		}
		calls, each := d.loadOf(vgpu.DeviceID(d.shownAs(t.Device)), func(c *client) bool { return !c.isGuest() || c.lentTo().node != node })
		if calls > 0 {
			all = append(all, borrow.Load{Device: t.Device, Calls: calls, Each: each})
		}
	}
	slices.SortFunc(all, func(a, b borrow.Load) int { return cmp.Compare(a.Device, b.Device) })
	return all
}
