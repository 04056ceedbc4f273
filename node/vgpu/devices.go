package vgpu

import (
	"fmt"
	"slices"
)

// Lost says that a device is gone. Its clients go to the failed queue; they and those that keep
// bytes there are told (Gone). Clients that no other device can hold wait for it to come back.
type Lost struct {
	Device DeviceID `json:"device"`
}

func (e Lost) apply(c *Core) bool {
	d := c.device(e.Device)
	if d == nil || d.lost {
		return false
	}
	c.close(d)
	c.setDrained(d, false)
	d.lost = true
	for _, m := range d.family() {
		for _, x := range slices.Clone(m.slots) {
			if x != nil {
				c.emit(Effect{Kind: Gone, Client: x.id, Device: d.id})
				c.leave(x, Failed, 0)
			}
		}
		for _, x := range slices.Clone(m.keepers) {
			c.emit(Effect{Kind: Gone, Client: x.id, Device: d.id})
			c.letGo(x, 0)
		}
	}
	c.resort()
	return true
}

// Added says that a device came. If it has the name of a lost device, it takes that one's number
// and Usage. A device that Check refuses changes nothing.
type Added struct {
	Device Device `json:"device"`
}

func (e Added) apply(c *Core) bool {
	if c.addDevice(e.Device) != nil {
		return false
	}
	c.resort()
	return true
}

// Returned says that a device that was lost or removed is back, under its number and with its
// Usage. Is describes it as it is now.
type Returned struct {
	Device DeviceID `json:"device"`
	Is     Device   `json:"is"`
}

func (e Returned) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	is, _ := e.Is.complete()
	c.replace(c.devices[e.Device], is)
	c.resort()
	return true
}

// Drain says that a device is to take no more clients. All that are bound there or keep bytes there
// are told to leave; clients that can use no other device wait.
type Drain struct {
	Device DeviceID `json:"device"`
}

func (e Drain) apply(c *Core) bool {
	d := c.device(e.Device)
	if c.Refuses(e) != nil || d.drained {
		return false
	}
	c.close(d)
	c.setDrained(d, true)
	c.resort()
	return true
}

// Resume says that a device that was drained takes clients again.
type Resume struct {
	Device DeviceID `json:"device"`
}

func (e Resume) apply(c *Core) bool {
	d := c.device(e.Device)
	if c.Refuses(e) != nil || !d.drained {
		return false
	}
	c.setDrained(d, false)
	c.resort()
	return true
}

// Remove takes out a device on which no client is: one that is drained, or lost. Clients that wait
// for it are denied. It may come back as a lost one may.
type Remove struct {
	Device DeviceID `json:"device"`
}

func (e Remove) apply(c *Core) bool {
	d := c.device(e.Device)
	if c.Refuses(e) != nil || d.removed {
		return false
	}
	c.setDrained(d, false)
	d.lost, d.removed = true, true
	c.resort()
	return true
}

// Move says that a person wants a client to run on a device: the client leaves the one where it is,
// and its next Want is served there and nowhere else. It stays there until it leaves for another
// reason.
type Move struct {
	Client ClientID `json:"client"`
	Device DeviceID `json:"device"`
}

func (e Move) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	x, d := c.clients[e.Client], c.seatOf(c.clients[e.Client], e.Device)
	c.untarget(x)
	x.target, x.moving = d.id, byHand
	switch {
	case x.state == Assigned && !x.revoking:
		c.endGrow(x) // the Revoke is the answer
		c.revoke(victim{client: x, why: ForMove})
	case x.state == Ready && x.claim != nil && x.claim.dev != d:
		c.drop(x.claim)
	}
	if x.reserved != d {
		c.unreserve(x, x.reserved)
	}
	return true
}

// Refuses says why the core would not do what an event asks for. It covers the events that people
// cause: Move, Drain, Resume, Remove, Returned, Added, Configure, Limit, Resize, Admit, Withdraw
// and Restrict. It returns nil if the core would do it, and for all other events. It changes nothing,
// and neither does a refused event that Step is told nevertheless.
func (b *books) Refuses(e Event) error {
	switch e := e.(type) {
	case Move:
		return b.refusesMove(e)
	case Drain:
		return b.refusesState(e.Device)
	case Resume:
		return b.refusesState(e.Device)
	case Remove:
		return b.refusesRemove(e.Device)
	case Configure, Limit:
		return refusesSettings(e)
	case Resize:
		return b.refusesResize(e)
	case Admit:
		return b.refusesAdmit(e)
	case Restrict:
		return b.refusesRestrict(e)
	case Withdraw:
		if b.findGrant(e.Grant) == nil {
			return fmt.Errorf("there is no grant %s", e.Grant)
		}
	case Returned:
		return b.refusesReturned(e)
	case Added:
		if err := e.Device.Check(); err != nil {
			return err
		}
		if len(b.devices) == maxDevices && !slices.ContainsFunc(b.devices, func(d *device) bool { return d.returnsAs(&e.Device) }) {
			return fmt.Errorf("there are %d devices, as many as there may be", maxDevices)
		}
	}
	return nil
}

func noSuchDevice(id DeviceID) error { return fmt.Errorf("there is no device #%d", id) }

// refusesState says why a device cannot be drained or resumed.
func (f *fleet) refusesState(id DeviceID) error {
	d := f.device(id)
	if d == nil {
		return noSuchDevice(id)
	}
	return d.gone()
}

// gone says that a device is not there.
func (d *device) gone() error {
	switch {
	case d.removed:
		return fmt.Errorf("device %q was removed: add it first", d.Name)
	case d.lost:
		return fmt.Errorf("device %q is lost: add it again when it is back", d.Name)
	}
	return nil
}

func (f *fleet) refusesRemove(id DeviceID) error {
	d := f.device(id)
	switch {
	case d == nil:
		return noSuchDevice(id)
	case d.state() == DeviceUp:
		return fmt.Errorf("device %q takes clients: drain it first", d.Name)
	case d.state() == DeviceDraining:
		return fmt.Errorf("device %q still has clients (%d that run there, %d that keep memory there): try again when it is drained", d.Name, d.bound, len(d.keepers))
	}
	return nil
}

func (f *fleet) refusesReturned(e Returned) error {
	d := f.device(e.Device)
	switch {
	case d == nil:
		return noSuchDevice(e.Device)
	case !d.lost:
		return fmt.Errorf("device %q is there already", d.Name)
	}
	return e.Is.Check()
}

func (b *books) refusesMove(e Move) error {
	x, d := b.clients[e.Client], b.device(e.Device)
	switch {
	case x == nil:
		return fmt.Errorf("there is no client %d", e.Client)
	case d == nil:
		return noSuchDevice(e.Device)
	case d.lost:
		return d.gone()
	case d.drained:
		return fmt.Errorf("device %q is drained: resume it first", d.Name)
	case x.state == Assigned && x.dev.base() == d && !x.revoking:
		return fmt.Errorf("client %d is on device %q already", x.id, d.Name)
	case !x.isOf(b.seatOf(x, d.id)):
		return fmt.Errorf("client %d is for device %q: its grant says so", x.id, x.part.Name)
	case b.seatOf(x, d.id).exclusive():
		return fmt.Errorf("device %q is granted to others", d.Name)
	case x.want.Pinned != AnyDevice && x.want.Pinned != d.id:
		return fmt.Errorf("client %d can run on device %s only: its program has seen addresses that it would not have elsewhere", x.id, b.nameOf(x.want.Pinned))
	case x.state == Ready || x.state == Assigned:
		if need := max(x.want.Need, x.memory, x.growTo); !b.seatOf(x, d.id).holdsEver(need) {
			return fmt.Errorf("client %d needs %d bytes, and device %q has %d for it", x.id, need, d.Name, d.Memory-d.ContextCost)
		} else if !b.seatOf(x, d.id).holdsNow(need) {
			return fmt.Errorf("client %d needs %d bytes, and device %q has fewer that are not granted to others", x.id, need, d.Name)
		}
	}
	return nil
}

// nameOf names a device for people, even one that does not exist.
func (f *fleet) nameOf(id DeviceID) string {
	if d := f.device(id); d != nil {
		return fmt.Sprintf("%q", d.Name)
	}
	return fmt.Sprintf("#%d", id)
}

// device returns a device by its number, or nil.
func (f *fleet) device(id DeviceID) *device {
	if id < 0 || int(id) >= len(f.devices) {
		return nil
	}
	return f.devices[id]
}

// close takes back all promises of a device and its parts, and cancels moves to it.
func (b *books) close(d *device) {
	for _, m := range d.family() {
		b.closePart(m)
	}
	for _, x := range b.clients { // in any order, since this emits no effects
		if x.target == d.id {
			b.untarget(x)
		}
	}
}

// closePart takes back the promises of one device without its parts, or of one part.
func (b *books) closePart(d *device) {
	for _, x := range slices.Concat(d.slots, b.ready) {
		if x != nil && x.claim != nil && (x.claim.dev == d || x.part == d) {
			b.drop(x.claim)
		}
	}
	if d.reservedFor != nil {
		b.unreserve(d.reservedFor, d)
	}
}

func (f *fleet) setDrained(d *device, on bool) {
	switch {
	case on && !d.drained:
		f.drains++
	case !on && d.drained:
		f.drains--
	}
	d.drained = on
}

// resort determines anew what every ready client can hope for, after devices came or went: clients
// are parked, unparked or denied.
func (c *Core) resort() {
	c.anew = true
	for _, x := range slices.Clone(c.ready) {
		why, parked := c.prospects(x)
		if why == "" {
			c.park(x, parked)
			continue
		}
		c.unready(x, Waiting)
		c.deny(x.id, why)
	}
}

// evacuate tells all clients on drained devices to leave. A client that left may have kept bytes
// there, so this runs after every event.
func (c *Core) evacuate() {
	if c.drains == 0 {
		return
	}
	for _, d := range c.all {
		if !d.base().drained {
			continue
		}
		for _, x := range d.slots {
			if x == nil || x.revoking {
				continue
			}
			c.endGrow(x) // the Revoke is the answer
			if x.moving == byNothing {
				x.moving = byDrain
			}
			c.revoke(victim{client: x, why: ForDrain})
		}
		for _, x := range d.keepers {
			if !x.revoking {
				c.revoke(victim{client: x, why: ForDrain})
			}
		}
	}
}
