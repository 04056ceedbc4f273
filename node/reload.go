package node

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

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
		case <-d.ended:
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
		add, err = d.examineAll(added(d.live().Devices, next.Devices))
	}
	if err != nil {
		d.log.Error("the configuration was read again and is not used: everything stays as it was", "error", err)
		return
	}
	_ = d.inLoop(func() error {
		d.apply(next, add)
		return nil
	})
	d.warnOfStrangers()
}

// check refuses a configuration that a node could not start with.
func (d *daemon) check(next *Config) error {
	if err := next.check(); err != nil {
		return err
	}
	warning, err := next.Swap.look()
	if warning != "" && next.Swap != d.live().Swap {
		d.log.Warn(warning)
	}
	return err
}

// examineAll opens the devices that are new, before anything is changed.
func (d *daemon) examineAll(list []Device) ([]coming, error) {
	var all []coming
	for _, c := range list {
		if d.takeOver(c, false) {
			continue
		}
		info, err := d.examine(c)
		if err != nil {
			return nil, fmt.Errorf("device %s %s: %w", c.Kind, c.Name, err)
		}
		all = append(all, coming{c, info})
	}
	return all, nil
}

// apply makes a checked configuration the present one, as far as that is possible at run
// time. The devices that it adds have been opened.
func (d *daemon) apply(next Config, add []coming) {
	was := d.live()
	kept := d.fixed(next)
	changed := changedSettings(was, &kept)
	d.settings.Store(&kept)
	if path := kept.Socket.Address; !strings.HasPrefix(path, "@") && !reflect.DeepEqual(was.Allow, kept.Allow) {
		if err := os.Chmod(path, d.mode()); err != nil {
			d.log.Error("who may use the socket cannot be changed", "error", err)
		}
	}
	for _, c := range d.clients {
		c.limits = kept.Limits.of(c.peer.user)
	}
	d.heart.interval = newHeartbeat(kept.WorkerTimeout).interval
	d.pool.keep(kept.Warm)
	d.spares.look = 0
	d.configure(was, &kept)
	d.applyDevices(was, &kept, add)
	d.log.Info("the configuration was read again", "changed", strings.Join(changed, ", "))
	if needs := changedSettings(&kept, &next); len(needs) > 0 {
		d.log.Warn("some settings have changed that take effect when the node is started again", "settings", strings.Join(needs, ", "))
	}
}

// fixed returns next with the present values of all settings that cannot change while
// the node runs.
func (d *daemon) fixed(next Config) Config {
	is := d.live()
	next.Name, next.Socket, next.HTTP, next.Remote, next.Record = is.Name, is.Socket, is.HTTP, is.Remote, is.Record
	next.Head, next.MPS, next.Confine, next.Offload = is.Head, is.MPS, is.Confine, is.Offload
	next.WorkerUIDs, next.Connections, next.Swap.Dir = is.WorkerUIDs, is.Connections, is.Swap.Dir
	next.OrphanGrace, next.State, next.Handover = is.OrphanGrace, is.State, is.Handover
	return next
}

// changedSettings names the settings in which two configurations differ, as the file
// has them.
func changedSettings(a, b *Config) []string {
	var names []string
	for _, s := range []struct {
		name string
		of   func(*Config) any
	}{
		{"name", func(c *Config) any { return c.Name }},
		{"socket", func(c *Config) any { return c.Socket }},
		{"allow", func(c *Config) any { return c.Allow }},
		{"devices", func(c *Config) any { return c.Devices }},
		{"vgpus", func(c *Config) any { return c.VGPUs }},
		{"visible", func(c *Config) any { return c.Visible }},
		{"policy", func(c *Config) any { return c.Policy }},
		{"max_idle", func(c *Config) any { return c.MaxIdle }},
		{"quantum", func(c *Config) any { return c.Quantum }},
		{"kernel_time", func(c *Config) any { return c.KernelTime }},
		{"migrate", func(c *Config) any { return c.Migrate }},
		{"mapping", func(c *Config) any { return c.Mapping }},
		{"latency", func(c *Config) any { return c.Latency }},
		{"mps", func(c *Config) any { return c.MPS }},
		{"confine", func(c *Config) any { return c.Confine }},
		{"swap.size", func(c *Config) any { return c.Swap.Size }},
		{"swap.dir", func(c *Config) any { return c.Swap.Dir }},
		{"defer", func(c *Config) any { return c.Defer }},
		{"recover", func(c *Config) any { return c.Recover }},
		{"limits", func(c *Config) any { return c.Limits }},
		{"grants", func(c *Config) any { return c.Grants }},
		{"warm", func(c *Config) any { return c.Warm }},
		{"spare", func(c *Config) any { return c.Spare }},
		{"worker_timeout", func(c *Config) any { return c.WorkerTimeout }},
		{"worker_uids", func(c *Config) any { return c.WorkerUIDs }},
		{"grace", func(c *Config) any { return c.Grace }},
		{"orphan_grace", func(c *Config) any { return c.OrphanGrace }},
		{"state", func(c *Config) any { return c.State }},
		{"handover", func(c *Config) any { return c.Handover }},
		{"http", func(c *Config) any { return c.HTTP }},
		{"listen", func(c *Config) any { return c.Remote.Listen }},
		{"tls", func(c *Config) any { return [3]string{c.Remote.Cert, c.Remote.Key, c.Remote.CA} }},
		{"token", func(c *Config) any { return c.Remote.Token }},
		{"plain", func(c *Config) any { return c.Remote.Plain }},
		{"ivm", func(c *Config) any { return c.Remote.IVM }},
		{"ivm_root", func(c *Config) any { return c.Remote.IVMRoot }},
		{"head", func(c *Config) any { return c.Head }},
		{"record", func(c *Config) any { return c.Record }},
		{"peers", func(c *Config) any { return [2]any{c.Offload.Peers, c.Offload.Head} }},
		{"offload", func(c *Config) any { return [3]any{c.Offload.Mode, c.Offload.Above, c.Offload.Keep} }},
		{"connections", func(c *Config) any { return c.Connections }},
	} {
		if !reflect.DeepEqual(s.of(a), s.of(b)) {
			names = append(names, s.name)
		}
	}
	return names
}

// configure tells the dispatcher what has changed in its part of the configuration.
func (d *daemon) configure(was, is *Config) {
	before, after := was.dispatcher(nil, d.names.Of), is.dispatcher(nil, d.names.Of)
	if e := settingsOf(&after); e != settingsOf(&before) {
		d.step(d.now(), e)
	}
	users := maps.Clone(before.SlotLimits)
	maps.Copy(users, after.SlotLimits)
	for _, user := range slices.Sorted(maps.Keys(users)) {
		old, had := before.SlotLimits[user]
		slots, own := after.SlotLimits[user]
		if old != slots || had != own {
			d.step(d.now(), vgpu.Limit{User: user, Own: own, Slots: slots})
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
func (d *daemon) applyDevices(was, is *Config, add []coming) {
	for _, c := range added(is.Devices, was.Devices) {
		if at := slices.IndexFunc(d.changes.coming, func(other coming) bool { return sameDevice(other.Device, c) }); at >= 0 {
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
	for _, c := range added(was.Devices, is.Devices) {
		d.takeOver(c, true)
	}
	d.changes.coming = append(d.changes.coming, add...)
	d.tendDevices()
}

// added lists the devices of b that are not among those of a. The index of a software
// device is only its place in the file, and makes no difference.
func added(a, b []Device) []Device {
	left := slices.Clone(a)
	var more []Device
	for _, c := range b {
		if at := slices.IndexFunc(left, func(other Device) bool { return sameDevice(other, c) }); at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		more = append(more, c)
	}
	return more
}

// sameDevice says whether two descriptions mean the same device.
func sameDevice(a, b Device) bool {
	if a.Kind == "soft" && b.Kind == "soft" {
		a.Index, b.Index = 0, 0
	}
	return a == b
}

// stocked finds the device in the inventory that a configuration describes; -1 if there
// is none, the last if there are several.
func (d *daemon) stocked(c Device) vgpu.DeviceID {
	found := vgpu.DeviceID(-1)
	for i, e := range d.stock.Load().entries {
		if e.here && !e.byHand && sameDevice(e.Device, c) && d.changes.leaving[vgpu.DeviceID(i)] == nil {
			found = vgpu.DeviceID(i)
		}
	}
	return found
}

// takeOver says whether a device of the configuration is there already because it was
// added by hand. With note, the device belongs to the configuration from then on.
func (d *daemon) takeOver(c Device, note bool) bool {
	stock := d.stock.Load()
	at := slices.IndexFunc(stock.entries, func(e stocked) bool { return e.here && e.byHand && sameDevice(e.Device, c) })
	if at >= 0 && note {
		e := stock.entries[at]
		e.byHand = false
		d.stock.Store(stock.with(at, e))
	}
	return at >= 0
}
