package node

import (
	"errors"
	"maps"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strings"

	"muster/internal/whois"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/spares"
	"muster/node/stock"
	"muster/node/vgpu"
)

// The daemon reads its configuration again when it is told to. All of it is checked
// first, and new devices are opened: if anything is wrong, everything stays as it was.

// reloads are when the configuration is read again.
type reloads struct {
	common
	load   func() (settings.Config, error) // nil: it never changes
	again  <-chan struct{}
	rights requests.Rights
	names  *whois.Names
	staff  *staff
	spares *spares.Spares
	heart  *heartbeat
}

// listenToReloads reads the configuration each time that Options.Reload says so, until
// the loop has ended.
func (r *reloads) listenToReloads() {
	for {
		select {
		case <-r.again:
			r.reload()
		case <-r.loop.Ended():
			return
		}
	}
}

// reload reads the configuration again and applies it.
func (r *reloads) reload() {
	if r.load == nil {
		return
	}
	next, err := r.load()
	if err == nil {
		err = r.check(&next)
	}
	var add []stock.Coming
	if err == nil {
		add, err = r.stock.ExamineAll(settings.AddedDevices(r.settings.Load().Devices, next.Devices))
	}
	if err != nil {
		r.log.Error("the configuration was read again and is not used: everything stays as it was", "error", err)
		return
	}
	_ = r.loop.Try(func() error {
		r.apply(next, add)
		return nil
	})
	r.warnOfStrangers()
}

// check refuses a configuration that a node could not start with.
func (r *reloads) check(next *settings.Config) error {
	if err := next.Check(); err != nil {
		return err
	}
	warning, err := next.Swap.Look()
	if warning != "" && next.Swap != r.settings.Load().Swap {
		r.log.Warn(warning)
	}
	return err
}

// apply makes a checked configuration the present one, as far as that is possible at run
// time. The devices that it adds have been opened.
func (r *reloads) apply(next settings.Config, add []stock.Coming) {
	was := r.settings.Load()
	kept := settings.KeepFixed(was, next)
	changed := settings.Changed(was, &kept)
	r.settings.Store(&kept)
	if path := kept.Socket.Address; !strings.HasPrefix(path, "@") && !reflect.DeepEqual(was.Allow, kept.Allow) {
		if err := os.Chmod(path, mode(&kept, r.rights.Own)); err != nil {
			r.log.Error("who may use the socket cannot be changed", "error", err)
		}
	}
	for _, c := range r.clients {
		c.limits = kept.Limits.Of(c.peer.User)
	}
	r.heart.setTimeout(kept.WorkerTimeout)
	r.staff.pool.Keep(kept.Warm)
	r.spares.Look()
	r.configure(was, &kept)
	r.stock.Apply(was.Devices, kept.Devices, add)
	r.log.Info("the configuration was read again", "changed", strings.Join(changed, ", "))
	if needs := settings.Changed(&kept, &next); len(needs) > 0 {
		r.log.Warn("some settings have changed that take effect when the node is started again", "settings", strings.Join(needs, ", "))
	}
}

// configure tells the dispatcher what has changed in its part of the configuration.
func (r *reloads) configure(was, is *settings.Config) {
	before, after := was.Dispatcher(nil, r.names.Of), is.Dispatcher(nil, r.names.Of)
	if e := settingsOf(&after); e != settingsOf(&before) {
		r.dispatcher.Step(e)
	}
	users := maps.Clone(before.SlotLimits)
	maps.Copy(users, after.SlotLimits)
	for _, user := range slices.Sorted(maps.Keys(users)) {
		old, had := before.SlotLimits[user]
		slots, own := after.SlotLimits[user]
		if old != slots || had != own {
			r.dispatcher.Step(vgpu.Limit{User: user, Own: own, Slots: slots})
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
func (r *reloads) warnOfStrangers() {
	looked := 0
	allowed, limited := r.settings.Load().Strangers(func(name string) bool {
		if looked++; looked > mostStrangers {
			return true
		}
		_, err := user.Lookup(name)
		return !errors.As(err, new(user.UnknownUserError))
	})
	for _, name := range allowed {
		r.log.Warn("allow names a user that this machine does not have: look for a mistake in the name", "user", name)
	}
	for _, name := range limited {
		r.log.Info("limits.users names a user that this machine does not have: that is right if it is a user of another machine", "user", name)
	}
}
