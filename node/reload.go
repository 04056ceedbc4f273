package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strings"

	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/vgpu"
)

// The daemon reads its configuration again when it is told to. All of it is checked
// first, and new devices are opened: if anything is wrong, everything stays as it was.

// listenToReloads reads the configuration each time that Options.Reload says so, until
// the loop has ended.
func (d *daemon) listenToReloads() {
	for {
		select {
		case <-d.opts.Reload:
			d.reload()
		case <-d.loop.Ended():
			return
		}
	}
}

// reload reads the configuration again and applies it.
func (d *daemon) reload() {
	if d.opts.Load == nil {
		return
	}
	next, err := d.opts.Load()
	if err == nil {
		err = d.check(&next)
	}
	var add []coming
	if err == nil {
		add, err = d.examineAll(settings.AddedDevices(d.settings.Load().Devices, next.Devices))
	}
	if err != nil {
		d.log.Error("the configuration was read again and is not used: everything stays as it was", "error", err)
		return
	}
	_ = d.loop.Try(func() error {
		d.apply(next, add)
		return nil
	})
	d.warnOfStrangers()
}

// check refuses a configuration that a node could not start with.
func (d *daemon) check(next *settings.Config) error {
	if err := next.Check(); err != nil {
		return err
	}
	warning, err := next.Swap.Look()
	if warning != "" && next.Swap != d.settings.Load().Swap {
		d.log.Warn(warning)
	}
	return err
}

// examineAll opens the devices that are new, before anything is changed.
func (d *daemon) examineAll(list []settings.Device) ([]coming, error) {
	var all []coming
	for _, c := range list {
		if d.takeOver(c, false) {
			continue
		}
		info, err := inventory.Examine(c, d.opts.Open)
		if err != nil {
			return nil, fmt.Errorf("device %s %s: %w", c.Kind, c.Name, err)
		}
		all = append(all, coming{c, info})
	}
	return all, nil
}

// apply makes a checked configuration the present one, as far as that is possible at run
// time. The devices that it adds have been opened.
func (d *daemon) apply(next settings.Config, add []coming) {
	was := d.settings.Load()
	kept := settings.KeepFixed(was, next)
	changed := settings.Changed(was, &kept)
	d.settings.Store(&kept)
	if path := kept.Socket.Address; !strings.HasPrefix(path, "@") && !reflect.DeepEqual(was.Allow, kept.Allow) {
		if err := os.Chmod(path, d.mode()); err != nil {
			d.log.Error("who may use the socket cannot be changed", "error", err)
		}
	}
	for _, c := range d.clients {
		c.limits = kept.Limits.Of(c.peer.User)
	}
	d.heart.interval = newHeartbeat(kept.WorkerTimeout).interval
	d.pool.Keep(kept.Warm)
	d.spares.Look()
	d.configure(was, &kept)
	d.applyDevices(was, &kept, add)
	d.log.Info("the configuration was read again", "changed", strings.Join(changed, ", "))
	if needs := settings.Changed(&kept, &next); len(needs) > 0 {
		d.log.Warn("some settings have changed that take effect when the node is started again", "settings", strings.Join(needs, ", "))
	}
}

// configure tells the dispatcher what has changed in its part of the configuration.
func (d *daemon) configure(was, is *settings.Config) {
	before, after := was.Dispatcher(nil, d.names.Of), is.Dispatcher(nil, d.names.Of)
	if e := settingsOf(&after); e != settingsOf(&before) {
		d.core.Step(e)
	}
	users := maps.Clone(before.SlotLimits)
	maps.Copy(users, after.SlotLimits)
	for _, user := range slices.Sorted(maps.Keys(users)) {
		old, had := before.SlotLimits[user]
		slots, own := after.SlotLimits[user]
		if old != slots || had != own {
			d.core.Step(vgpu.Limit{User: user, Own: own, Slots: slots})
		}
	}
}

// settingsOf is the part of the dispatcher's configuration that can change.
func settingsOf(c *vgpu.Config) vgpu.Configure {
	return vgpu.Configure{Policy: c.Policy, MaxIdle: c.MaxIdle, SlotLimit: c.SlotLimit, Migrate: c.Migrate, Quantum: c.Quantum}
}

// --- devices -------------------------------------------------------------------

// applyDevices removes the devices that a configuration no longer has, when they are
// empty, and adds those that it had not. Devices that were added or removed by hand are
// left alone.
func (d *daemon) applyDevices(was, is *settings.Config, add []coming) {
	for _, c := range settings.AddedDevices(is.Devices, was.Devices) {
		if at := slices.IndexFunc(d.changes.coming, func(other coming) bool { return settings.SameDevice(other.Device, c) }); at >= 0 {
			d.changes.coming = slices.Delete(d.changes.coming, at, at+1) // it never came
			continue
		}
		id := d.stocked(c)
		if id < 0 {
			continue // it was removed by hand
		}
		if err := d.removeDevice(id, false); err != nil {
			d.log.Error("a device that the configuration no longer has cannot be removed", "device", int(id), "error", err)
		}
	}
	for _, c := range settings.AddedDevices(was.Devices, is.Devices) {
		d.takeOver(c, true)
	}
	d.changes.coming = append(d.changes.coming, add...)
	d.tendDevices()
}

// stocked finds the device in the inventory that a configuration describes; -1 if there
// is none, the last if there are several.
func (d *daemon) stocked(c settings.Device) vgpu.DeviceID {
	found := vgpu.DeviceID(-1)
	for i, e := range d.stock.Load().Entries {
		if e.Here && !e.ByHand && settings.SameDevice(e.Device, c) && d.changes.leaving[vgpu.DeviceID(i)] == nil {
			found = vgpu.DeviceID(i)
		}
	}
	return found
}

// takeOver says whether a device of the configuration is there already because it was
// added by hand. With note, the device belongs to the configuration from then on.
func (d *daemon) takeOver(c settings.Device, note bool) bool {
	stock := d.stock.Load()
	at := slices.IndexFunc(stock.Entries, func(e inventory.Device) bool { return e.Here && e.ByHand && settings.SameDevice(e.Device, c) })
	if at >= 0 && note {
		e := stock.Entries[at]
		e.ByHand = false
		d.stock.Store(stock.With(at, e))
	}
	return at >= 0
}

// mostStrangers bounds how many user names are looked up and logged: a single lookup
// may take long.
const mostStrangers = 100

// warnOfStrangers logs the names of users that may be misspelt. Under limits they may
// be those of users of other machines.
func (d *daemon) warnOfStrangers() {
	looked := 0
	allowed, limited := d.settings.Load().Strangers(func(name string) bool {
		if looked++; looked > mostStrangers {
			return true
		}
		_, err := user.Lookup(name)
		return !errors.As(err, new(user.UnknownUserError))
	})
	for _, name := range allowed {
		d.log.Warn("allow names a user that this machine does not have: look for a mistake in the name", "user", name)
	}
	for _, name := range limited {
		d.log.Info("limits.users names a user that this machine does not have: that is right if it is a user of another machine", "user", name)
	}
}
