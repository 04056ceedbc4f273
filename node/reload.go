package node

import (
	"errors"
	"maps"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strings"

	"muster/node/settings"
	"muster/node/stock"
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
	var add []stock.Coming
	if err == nil {
		add, err = d.stock.ExamineAll(settings.AddedDevices(d.settings.Load().Devices, next.Devices))
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

// apply makes a checked configuration the present one, as far as that is possible at run
// time. The devices that it adds have been opened.
func (d *daemon) apply(next settings.Config, add []stock.Coming) {
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
	d.stock.Apply(was.Devices, kept.Devices, add)
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
