package node

import (
	"errors"
	"maps"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strings"
	"sync"

	"muster/internal/whois"
	"muster/model"
	"muster/node/ask"
	"muster/node/lending"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/spares"
	"muster/node/stock"
	"muster/node/vgpu"
)

// The daemon reads its configuration again when it is told to. All of it is checked
// first, and new devices are opened: if anything is wrong, everything stays as it was.
//
// What the head of the cluster says of how the node serves programs goes before its own configuration, until
// the head says otherwise or the daemon ends. It comes by the same way.

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

	lending *lending.Lending

	mu   sync.Mutex // one change at a time; it protects the rest
	own  settings.Config
	told model.NodeSettings
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
	r.mu.Lock()
	defer r.mu.Unlock()
	own, err := r.load()
	var next settings.Config
	if err == nil {
		err = r.check(&own)
	}
	if err == nil {
		next, err = own.Told(r.told)
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
		changed, needs := r.apply(next, add)
		r.log.Info("the configuration was read again", "changed", strings.Join(changed, ", "))
		if len(needs) > 0 {
			r.log.Warn("some settings have changed that take effect when the node is started again", "settings", strings.Join(needs, ", "))
		}
		return nil
	})
	r.own = own
	r.warnOfStrangers()
}

// answerConfigure has the node serve programs as the head says.
func (r *reloads) answerConfigure(who socket.Peer, q ask.ConfigureRequest) (any, error) {
	if err := r.rights.MayConfigure(who); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.own.Told(q.Settings)
	if err != nil {
		return nil, err
	}
	var is model.NodeSettings
	err = r.loop.Try(func() error {
		if changed, _ := r.apply(next, nil); len(changed) > 0 {
			r.log.Info("the cluster's head has configured this node", "settings", q.Settings.String(), "changed", strings.Join(changed, ", "))
		}
		is = r.settings.Load().InForce()
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.told = q.Settings
	return is, nil
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
// time, and says what has changed and what needs a restart. The devices that it adds have been opened.
func (r *reloads) apply(next settings.Config, add []stock.Coming) (changed, needs []string) {
	was := r.settings.Load()
	kept := settings.KeepFixed(was, next)
	changed = settings.Changed(was, &kept)
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
	return changed, settings.Changed(&kept, &next)
}

// configure tells the dispatcher what has changed in its part of the configuration.
func (r *reloads) configure(was, is *settings.Config) {
	before, after := was.Dispatcher(nil, r.names.Of), is.Dispatcher(nil, r.names.Of)
	if e := settingsOf(&after); e != settingsOf(&before) {
		r.dispatcher.Step(e)
	}
	if is.VGPUs != was.VGPUs {
		for i, e := range r.stock.Load().Entries {
			if !e.IsLent() { // a borrowed device has as many as its ticket says
				r.dispatcher.Step(vgpu.Resize{Device: vgpu.DeviceID(i), Slots: is.VGPUs})
			}
		}
	}
	if is.Offload.Above != was.Offload.Above || is.Offload.Keep != was.Offload.Keep {
		r.lending.Configure(is.Offload.Above, is.Offload.Keep)
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
