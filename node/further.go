package node

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"muster/mapping"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// Further devices of clients whose launches are mapped. To the dispatcher, each loan of such a
// device is a client of its own, pinned to that device, so placing, memory, drains and losses need
// no special rules. A loan is made only while the device has room and no client waits. As soon as
// the dispatcher watches it, it reports a synchronisation point: so it is the first to leave when
// another client needs its slot or its memory. Loans end with the worker that has them and are not
// written down: the next daemon has none.

// loan is a device that a client has beside that of its lease.
type loan struct {
	id      vgpu.ClientID // its client number with the dispatcher, and its number with the worker
	client  *client
	device  vgpu.DeviceID
	share   int    // the device's place in the client's grant
	memory  uint64 // how much of it the worker may use
	granted bool
	ran     bool          // a kernel has run there
	way     *net.UnixConn // to the worker, if it opens the device in another one; nil: it does not (apart.go)
	carrier *client       // the other worker's client, which stands for it with the dispatcher; nil: none yet
}

// mappings is what concerns a client's further devices.
type mappings struct {
	mapping string // the mapper; "" for none
	explain int    // how many decisions are told to the program's user
	loans   map[vgpu.DeviceID]*loan
	ran     map[vgpu.DeviceID]ranOn // kernels that ran on further devices
	home    vgpu.DeviceID           // the device of the last lease
	homes   map[vgpu.DeviceID]vgpu.Usage

	uses       uses          // what it has used lately
	besideAt   time.Duration // when it was last told what others do on its devices; 0: never
	besideSome bool          // it was told that they do something

	shownMany bool          // its program was shown several devices
	kernels   uint64        // how many it had launched when wishes last looked
	launched  time.Duration // when it was last seen to launch some
}

// ranHome counts what ran on the device of the lease. It keeps that device in home, because a
// worker may report after it has given the lease back.
func (c *client) ranHome(used vgpu.Usage) {
	if c.homes == nil {
		c.homes = map[vgpu.DeviceID]vgpu.Usage{}
	}
	c.homes[c.home] = plus(c.homes[c.home], used)
}

// ranStatus is what ran on each device, home or further, in the order of devices.
func (c *client) ranStatus() (all []status.RanOn) {
	sums := maps.Clone(c.homes)
	for id, ran := range c.ran {
		if sums == nil {
			sums = map[vgpu.DeviceID]vgpu.Usage{}
		}
		sums[id] = plus(sums[id], ran.Usage)
	}
	for _, id := range slices.Sorted(maps.Keys(sums)) {
		if used := sums[id]; used.Kernels > 0 {
			all = append(all, status.RanOn{Device: int(id), Kernels: used.Kernels, BusyTime: used.GPUTime.Seconds()})
		}
	}
	return all
}

// ranOn is what ran on a further device.
type ranOn struct {
	vgpu.Usage
	moved uint64 // bytes that were copied to the device for it
}

func (r ranOn) plus(m control.RanFurther) ranOn {
	r.Usage = plus(r.Usage, vgpu.Usage{Kernels: uint64(m.Kernels), GPUTime: m.Busy})
	r.moved = min(r.moved+min(m.Moved, maxCount), maxCount)
	return r
}

// mapperOf is the mapper of a program: the one that it asks for, or the node's.
func (d *daemon) mapperOf(asked string) (string, error) {
	spec := asked
	if spec == "" {
		return d.nodeMapper(), nil
	}
	if spec == MappingOff {
		return "", nil
	}
	if err := mapping.Check(spec); err != nil {
		return "", refuse(resultNotPermitted, "%v (muster run --mapping, or MUSTER_MAPPING)", err)
	}
	return spec, nil
}

// nodeMapper is the mapper of programs that ask for none; "" for none.
func (d *daemon) nodeMapper() string {
	if spec := d.live().Mapping; spec != MappingOff {
		return spec
	}
	return ""
}

// wantsFurther handles a worker's request for a further device, or for more memory on one.
func (d *daemon) wantsFurther(c *client, m control.WantFurther) {
	id := vgpu.DeviceID(m.Device)
	if l := c.loans[id]; l != nil {
		d.growLoan(l, m.Memory)
		return
	}
	share, may := d.canLend(c, id, m.Memory)
	if !may {
		c.worker.post(control.DenyFurther{Device: m.Device})
		return
	}
	d.lastID++
	l := &loan{id: d.lastID, client: c, device: id, share: share}
	if c.loans == nil {
		c.loans = map[vgpu.DeviceID]*loan{}
	}
	c.loans[id], d.loans[l.id] = l, l
	d.step(d.now(), vgpu.Attach{Client: l.id, User: c.peer.user.name, Weight: c.weight, Grant: vgpu.GrantID(c.under.id()), Share: share, Further: true})
	d.step(d.now(), vgpu.Want{Client: l.id, Need: m.Memory, Pinned: id})
}

// canLend says whether a client may have a further device now: it has room, and no client waits. A
// client under a grant may have the grant's other devices, within what the job was granted of them,
// and share is the place of that device in the grant; others may have what is not granted.
func (d *daemon) canLend(c *client, id vgpu.DeviceID, memory uint64) (share int, may bool) {
	v, ok := d.core.Device(id)
	if !ok || c.device == id || v.State != vgpu.DeviceUp {
		return 0, false
	}
	if g := c.under.granted; g != nil {
		share = slices.IndexFunc(g.Devices, func(s grantedDevice) bool { return s.Device == int(id) })
		able := cannotDo(d.stock.Load().entries[id].info, c.shown) == ""
		return share, share >= 0 && able && d.grantEnded(c.under) == "" && d.core.RoomInGrant(vgpu.GrantID(g.ID), share, memory)
	}
	if v.Reserved || v.Granted > 0 {
		return 0, false
	}
	cost := d.stock.Load().entries[id].info.ContextCost
	return 0, d.core.Waiting() == 0 && v.Used+v.Promised < v.Slots && memory <= v.Free && cost <= v.Free-memory
}

// performLoan carries out what the dispatcher decided about a loan.
func (d *daemon) performLoan(l *loan, e vgpu.Effect) {
	w := l.client.worker
	if w == nil {
		return // the worker is gone, and its loans end with it
	}
	switch e.Kind {
	case vgpu.Grant:
		first := !l.granted
		l.granted, l.memory = true, e.Memory
		way, err := d.wayTo(l, first)
		if err != nil {
			d.log.Warn("a further device cannot be lent", "client", l.client.id, "device", int(l.device), "error", err)
			w.post(control.DenyFurther{Device: int(l.device)})
			d.dropLoan(l)
			return
		}
		w.post(control.GrantFurther{Device: int(l.device), Memory: e.Memory, Loan: uint64(l.id)}, way...)
		l.client.besideAt = 0 // it must know what others do there before it sends its first kernel
		d.tellBeside(l.client)
	case vgpu.Revoke:
		w.post(control.RevokeFurther{Device: int(l.device), Loan: uint64(l.id), Reason: string(e.Reason)})
	case vgpu.Watch:
		if e.On { // a loan leaves whenever another client needs its place
			d.afterwards = append(d.afterwards, vgpu.SyncPoint{Client: l.id})
		}
	case vgpu.Deny:
		w.post(control.DenyFurther{Device: int(l.device)})
		if !l.granted {
			d.dropLoan(l)
		}
	case vgpu.Gone:
		w.post(control.Lost{Device: int(l.device), Reason: "the device is lost"})
		d.dropLoan(l)
	}
}

// releasedFurther takes a loan back.
func (d *daemon) releasedFurther(c *client, m control.ReleasedFurther) {
	if l := c.loans[vgpu.DeviceID(m.Device)]; l != nil && uint64(l.id) == m.Loan {
		d.dropLoan(l)
		d.stepAfterwards()
	}
}

// dropLoan ends a loan. The dispatcher must not be stepped while its effects are being performed,
// so it hears of this afterwards.
func (d *daemon) dropLoan(l *loan) {
	delete(l.client.loans, l.device)
	delete(d.loans, l.id)
	if l.way != nil && l.carrier == nil {
		_ = l.way.Close() // nobody will come
	}
	if l.carrier == nil {
		d.afterwards = append(d.afterwards, vgpu.Detach{Client: l.id})
	}
}

// dropLoans ends all loans of a client whose worker is gone.
func (d *daemon) dropLoans(c *client) {
	for _, id := range slices.Sorted(maps.Keys(c.loans)) {
		d.dropLoan(c.loans[id])
	}
	d.stepAfterwards()
}

// stepAfterwards steps the dispatcher with the events that its own effects led to, unless effects
// are still being performed: then the step that performs them does this at its end.
func (d *daemon) stepAfterwards() {
	for len(d.afterwards) > 0 && !d.stepping {
		e := d.afterwards[0]
		d.afterwards = d.afterwards[1:]
		d.step(d.now(), e)
	}
}

// ranFurther counts what ran on a further device.
func (d *daemon) ranFurther(c *client, m control.RanFurther) {
	id := vgpu.DeviceID(m.Device)
	if c.ran == nil {
		c.ran = map[vgpu.DeviceID]ranOn{}
	}
	l := c.loans[id]
	c.ran[id] = c.ran[id].plus(m)
	if l == nil || l.carrier == nil { // else they are also those of the client that carries it
		d.mapped[id] = d.mapped[id].plus(m)
	}
	if l != nil && uint64(l.id) == m.Loan {
		l.ran = l.ran || m.Kernels > 0
	}
	if l != nil && uint64(l.id) == m.Loan && l.carrier == nil {
		d.step(d.now(), vgpu.Ran{Client: l.id, Kernels: m.Kernels, Busy: m.Busy})
	}
	c.used(id, d.now(), m.Kernels, m.Queued, m.Busy)
	d.tellBeside(c)
}

// furtherStatus is what is told of a client's further devices, in order.
func (c *client) furtherStatus() []status.Further {
	var all []status.Further
	devices := slices.Collect(maps.Keys(c.ran))
	for id := range c.loans {
		if _, ran := c.ran[id]; !ran {
			devices = append(devices, id)
		}
	}
	slices.Sort(devices)
	for _, id := range devices {
		ran, lent := c.ran[id], c.loans[id]
		all = append(all, status.Further{
			Device: int(id), Lent: lent != nil && lent.granted, Kernels: ran.Kernels, BusyTime: ran.GPUTime.Seconds(), Moved: ran.moved,
		})
	}
	return all
}

// further is what ran on all further devices of a client.
func (c *client) further() (sum vgpu.Usage) {
	for _, ran := range c.ran {
		sum = plus(sum, ran.Usage)
	}
	return sum
}

// crediblyFurther refuses a worker that speaks of further devices it cannot have.
func (c *client) crediblyFurther(device int, kernels int, busy time.Duration) error {
	if c.mapping == "" || device >= maxDevices*maxDevices {
		return fmt.Errorf("it speaks of device %d beside its own, and its launches are not mapped", device)
	}
	if int64(kernels) > maxCount || int64(busy) > maxCount {
		return fmt.Errorf("it ran %d kernels in %v", kernels, busy)
	}
	return nil
}

// maxExplained is the most decisions that are told to a program's user.
const maxExplained = 1000

// MappingOff is the setting that has no launch mapped.
const MappingOff = "off"

// CheckMapping says what is wrong with a setting of how launches are mapped.
func CheckMapping(spec string) error {
	if spec == MappingOff {
		return nil
	}
	return mapping.Check(spec)
}
