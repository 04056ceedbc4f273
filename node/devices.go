package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/device"
	"muster/node/ask"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/vgpu"
	"muster/wire/control"
)

// Devices come and go while programs run.
//
// A device that is drained takes no new clients, and the dispatcher tells those that are on it
// to leave. A device that is to be removed is drained first. When it is empty, all workers are
// told not to count on it; once no client waits for it either, it is removed. Its number is
// kept, for the same device or another one. Workers hear of a new device before the dispatcher
// does, so that none is granted a device that it does not know.

// deviceChanges is what is under way with devices. Only the loop uses it.
type deviceChanges struct {
	leaving map[vgpu.DeviceID]*leaving
	coming  []coming
	tending bool
}

// leaving is a device that is to be removed when no client needs it any more.
type leaving struct {
	force bool // remove it even if a client waits that can use no other
	said  bool // the log has already said which clients it waits for
}

// coming is a device that is to be added once another one at the same place has gone.
type coming struct {
	settings.Device
	info device.Info
}

// --- what workers know ---------------------------------------------------------

// takenOut is the reason that workers are told for a device that was removed.
const takenOut = "the device was taken out of the node"

// announce tells a worker how a device is now; why is the reason if it has gone.
func (c *client) announce(number int, e *inventory.Device, why string) {
	if !e.Here {
		c.worker.Post(control.Lost{Device: number, Reason: why})
		return
	}
	c.worker.PostDevice(control.AddDevice{Device: number, Config: c.configOf(number, e)}, e.Lock)
}

// configOf is what a client's worker is told of a device. Devices that the client cannot have, as those
// outside its grant, or other than a guest's one device, are shown as gone: the worker need not open
// them.
func (c *client) configOf(number int, e *inventory.Device) control.DeviceConfig {
	config := e.Config()
	only, confined := c.confined()
	config.Gone = config.Gone || confined && only != number && !c.maySpread(number)
	return config
}

// maySpread says whether a device is one of the client's grant, and the client's launches are mapped:
// then it may be lent that beside its own.
func (c *client) maySpread(number int) bool {
	return c.mapping != "" && c.under.Granted != nil && slices.ContainsFunc(c.under.Devices, func(s ask.GrantedDevice) bool { return s.Device == number })
}

// configs are what a client's worker is told of all devices.
func (c *client) configs(stock *inventory.Inventory) []control.DeviceConfig {
	list := make([]control.DeviceConfig, len(stock.Entries))
	for i := range stock.Entries {
		list[i] = c.configOf(i, &stock.Entries[i])
	}
	return list
}

// catchUp tells a worker what has changed since the inventory that it was started with.
func (d *daemon) catchUp(c *client, told *inventory.Inventory) {
	now := d.stock.Load()
	for i := range now.Entries {
		if i >= len(told.Entries) || told.Entries[i].Change != now.Entries[i].Change {
			c.announce(i, &now.Entries[i], takenOut)
		}
	}
	d.renewBound(c, d.bounds())
}

// setEntry replaces an entry of the inventory, and tells all workers; why is the reason if the
// device has gone.
func (d *daemon) setEntry(number int, e inventory.Device, why string) {
	e.Change++
	d.stock.Store(d.stock.Load().With(number, e))
	d.saveNode() // the next daemon must know by which numbers workers know devices
	now := d.bounds()
	for _, c := range d.clients {
		if c.worker != nil && !c.ending {
			c.announce(number, &e, why)
			d.renewBound(c, now)
		}
	}
}

// --- what devices can do -------------------------------------------------------

// lacking says what a device of the node cannot do that a program was shown; "" if
// there is nothing.
func (d *daemon) lacking(c *client) string {
	only, confined := c.confined()
	for i, e := range d.stock.Load().Entries {
		if confined && only != i {
			continue
		}
		if why := shown.CannotDo(e.Info, c.shown); e.Here && why != "" {
			return fmt.Sprintf("%s %s", e.Info.Name, why)
		}
	}
	return ""
}

// --- drain, resume, remove -----------------------------------------------------

// drainDevice has a device take no more clients.
func (d *daemon) drainDevice(id vgpu.DeviceID) error {
	if err := d.core.Tell(vgpu.Drain{Device: id}); err != nil {
		return err
	}
	d.log.Info("a device is drained", "device", int(id), "name", d.stock.Load().NameOf(id))
	return nil
}

// resumeDevice has a device that was drained, or was to be removed, take clients again.
func (d *daemon) resumeDevice(id vgpu.DeviceID) error {
	e := d.stock.Load().Entries[id]
	if err := errors.Join(d.core.Refuses(vgpu.Resume{Device: id}), d.fitsPrograms(e.Info)); err != nil {
		return err
	}
	delete(d.changes.leaving, id)
	if !e.Here { // workers were told that it is gone
		e.Here = true
		d.setEntry(int(id), e, "")
	}
	d.core.Step(vgpu.Resume{Device: id})
	d.log.Info("a device takes programs again", "device", int(id), "name", d.stock.Load().NameOf(id))
	return nil
}

// removeDevice has a device removed when it is empty and no client waits for it.
func (d *daemon) removeDevice(id vgpu.DeviceID, force bool) error {
	switch state := d.core.State(id); {
	case state == vgpu.DeviceRemoved:
		return fmt.Errorf("%s has been removed already", d.stock.Load().Call(id))
	case state == vgpu.DeviceUp:
		if err := d.core.Tell(vgpu.Drain{Device: id}); err != nil {
			return err
		}
	}
	l := d.changes.leaving[id]
	if l == nil {
		l = &leaving{}
		d.changes.leaving[id] = l
		d.log.Info("a device is drained, to be removed", "device", int(id), "name", d.stock.Load().NameOf(id))
	}
	l.force = l.force || force
	d.tendDevices()
	return nil
}

// lose notes that a device is gone, with everything that was on it.
func (d *daemon) lose(id vgpu.DeviceID, why string) {
	e := d.stock.Load().Entries[id]
	if !e.Here {
		return
	}
	d.log.Error("a device is lost", "device", int(id), "name", e.Info.Name, "reason", why)
	e.Here = false
	d.setEntry(int(id), e, why)
	d.core.Step(vgpu.Lost{Device: id})
}

// tendDevices continues what is under way: it removes devices that no client needs any more,
// and adds those for which they made room. It steps the dispatcher, and every step ends by
// calling it: tending stops the recursion.
func (d *daemon) tendDevices() {
	if d.changes.tending || len(d.changes.leaving) == 0 && len(d.changes.coming) == 0 {
		return
	}
	d.changes.tending = true
	defer func() { d.changes.tending = false }()
	for _, id := range slices.Sorted(maps.Keys(d.changes.leaving)) {
		d.tendLeaving(id, d.changes.leaving[id])
	}
	waiting := d.changes.coming
	d.changes.coming = nil
	for _, c := range waiting {
		if d.stock.Load().SamePlace(c.Device, d.core.State) >= 0 {
			d.changes.coming = append(d.changes.coming, c)
			continue
		}
		if _, err := d.addDevice(c.Device, c.info, anyNumber, false); err != nil {
			d.log.Error("a device of the configuration cannot be added", "name", c.info.Name, "error", err)
		}
	}
}

func (d *daemon) tendLeaving(id vgpu.DeviceID, l *leaving) {
	state := d.core.State(id)
	if state != vgpu.DeviceDrained && state != vgpu.DeviceLost {
		return
	}
	if e := d.stock.Load().Entries[id]; e.Here { // clients that counted on its memory ask again, for less
		e.Here = false
		d.setEntry(int(id), e, takenOut)
	}
	if who := d.dependOn(id); len(who) > 0 && !l.force {
		if !l.said {
			l.said = true
			d.log.Warn("a device is not removed yet: programs wait for it that can use no other; add one that they can use, or remove it with --force", "device", int(id), "name", d.stock.Load().NameOf(id), "clients", who)
		}
		return
	}
	delete(d.changes.leaving, id)
	if err := d.core.Tell(vgpu.Remove{Device: id}); err != nil {
		d.log.Error("a device cannot be removed", "device", int(id), "error", err)
		return
	}
	d.log.Info("a device was removed", "device", int(id), "name", d.stock.Load().NameOf(id))
}

// dependOn lists the clients that can run on no other device than this one, which takes none.
func (d *daemon) dependOn(id vgpu.DeviceID) []vgpu.ClientID {
	var who []vgpu.ClientID
	view := d.core.View()
	room := view.Devices[id].Memory - d.stock.Load().Entries[id].Info.ContextCost
	for _, v := range view.Clients {
		c := d.clients[v.ID]
		switch {
		case c == nil || c.ending:
		case c.keepsOff(int(id)):
		case c.pinned == id, v.Parked && c.pinned == vgpu.AnyDevice && v.Need <= room:
			who = append(who, v.ID)
		}
	}
	return who
}

// --- add -----------------------------------------------------------------------

// anyNumber lets a device that comes have whatever number is free.
const anyNumber vgpu.DeviceID = -1

// addDevice adds a device to the node, under a free number. The caller has opened it, and info
// is what it says of itself.
func (d *daemon) addDevice(c settings.Device, info device.Info, at vgpu.DeviceID, byHand bool) (vgpu.DeviceID, error) {
	return d.addStocked(inventory.Device{Device: c, Info: info, Here: true, ByHand: byHand}, inventory.Dispatched(info, d.settings.Load().VGPUs), at)
}

// addStocked puts a device into the inventory, and tells workers first and then the
// dispatcher.
func (d *daemon) addStocked(e inventory.Device, is vgpu.Device, at vgpu.DeviceID) (vgpu.DeviceID, error) {
	c, info := e.Device, e.Info
	if same := d.stock.Load().SamePlace(c, d.core.State); same >= 0 {
		return 0, fmt.Errorf("it is there already: %s", d.stock.Load().Call(same))
	}
	if other := d.namesake(c); other >= 0 {
		return 0, fmt.Errorf("%s has that name already: give this one a name of its own, or leave the name out", d.stock.Load().Call(other))
	}
	if err := d.fitsPrograms(info); err != nil {
		return 0, err
	}
	stock := d.stock.Load()
	number, err := stock.NumberFor(info.Name, int(at), d.core.State)
	if err != nil {
		return 0, err
	}
	var event vgpu.Event = vgpu.Added{Device: is}
	if number < len(stock.Entries) {
		event = vgpu.Returned{Device: vgpu.DeviceID(number), Is: is}
		e.Lock, e.Change = stock.Entries[number].Lock, stock.Entries[number].Change
	}
	if err := d.core.Refuses(event); err != nil {
		return 0, err
	}
	if e.Lock == nil {
		if e.Lock, err = d.keeper.DeviceLock(number); err != nil {
			return 0, err
		}
	}
	delete(d.changes.leaving, vgpu.DeviceID(number))
	e.Index = stock.IndexFor(c)
	d.setEntry(number, e, "")
	d.core.Step(event)
	d.log.Info("a device was added", "device", number, "name", info.Name, "memory", info.Memory, "speed", info.Speed)
	return vgpu.DeviceID(number), nil
}

// fitsPrograms refuses a device that cannot do what the programs that run now were told.
func (d *daemon) fitsPrograms(info device.Info) error {
	for _, id := range slices.Sorted(maps.Keys(d.clients)) {
		if _, confined := d.clients[id].confined(); confined { // it is put on its own device only
			continue
		}
		if why := shown.CannotDo(info, d.clients[id].shown); why != "" {
			return fmt.Errorf("%s %s: it can be added when the programs have ended that run now (client %d is one)", info.Name, why, id)
		}
	}
	return nil
}

// namesake finds the device that was given the same name as c; -1 if there is none. Devices
// that were removed or lost, or are about to be removed, do not count.
func (d *daemon) namesake(c settings.Device) vgpu.DeviceID {
	for i, e := range d.stock.Load().Entries {
		id := vgpu.DeviceID(i)
		state := d.core.State(id)
		if c.IsNamed() && e.IsNamed() && e.Name == c.Name && d.changes.leaving[id] == nil && state != vgpu.DeviceRemoved && state != vgpu.DeviceLost {
			return id
		}
	}
	return -1
}

// --- names ---------------------------------------------------------------------

// stockUp finds out what the devices of the configuration are.
func (d *daemon) stockUp() ([]vgpu.Device, error) {
	made := &inventory.Inventory{}
	var devices []vgpu.Device
	for i, c := range d.cfg.Devices {
		info, err := inventory.Examine(c, d.opts.Open)
		if err != nil {
			return nil, fmt.Errorf("device %d (%s): %w", i, strings.TrimSpace(c.Kind+" "+c.Name), err)
		}
		made.Entries = append(made.Entries, inventory.Device{Device: c, Info: info, Here: true})
		devices = append(devices, inventory.Dispatched(info, d.cfg.VGPUs))
	}
	d.stock.Store(made)
	return devices, nil
}

// makeLocks makes a lock for each device.
func (d *daemon) makeLocks() error {
	entries := d.stock.Load().Entries
	for i := range entries {
		lock, err := d.keeper.DeviceLock(i)
		if err != nil {
			d.closeLocks()
			return err
		}
		entries[i].Lock = lock
	}
	return nil
}

func (d *daemon) closeLocks() {
	for _, e := range d.stock.Load().Entries {
		if e.Lock != nil {
			e.Lock.Close()
		}
	}
	if d.precedence != nil {
		d.precedence.Close()
	}
}
