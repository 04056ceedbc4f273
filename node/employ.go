package node

import (
	"errors"
	"os"

	"muster/internal/confine"
	"muster/node/dispatch"
	"muster/node/loop"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/spares"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire/control"
)

// maxTries is how many workers are tried for one client.
const maxTries = 3

// employ finds a worker for a client and starts it. A warm worker may have been killed
// while it waited, as when memory ran out, which is not the program's fault: if a worker
// ends before it is ready and does not say why, another one is tried, up to maxTries. with is the
// spare that the client was given; nil if none.
func (d *daemon) employ(c *client, serve control.Serve, files []*os.File, left *workers.Legacy, with *spares.Spare) (*workers.Process, error) {
	for try := 1; ; try++ {
		if c.peer.User.UID != settings.Nobody {
			serve.Owner = c.peer.Key()
		}
		serve.MPS = d.faults.mpsOf(c)
		w, err := d.anyWorker(c, &serve, with, try)
		if err != nil {
			return nil, refusal.Because(err, refusal.SystemNotReady, "%v", err)
		}
		if err = d.pool.Lend(w, &c.peer.User, &serve); err == nil {
			if left != nil { // a failure to write is reported, but no reason to end the client
				d.loop.Ask(func() { _ = d.files.writeDown(c, w) })
			}
			err = w.Begin(serve, files, left, c.gone)
		}
		if err == nil {
			return w, nil
		}
		d.pool.Dismiss(w)
		d.loop.Ask(func() { d.leaveSpare(c) })
		if d.faults.refusedByMPS(c, &serve, err) {
			continue
		}
		switch {
		case !errors.Is(err, workers.ErrEndedEarly):
			return nil, refusal.New(refusal.SystemNotReady, "no worker can serve the program: %v", err)
		case try >= maxTries: // tries that MPS refused count, too
			return nil, refusal.New(refusal.SystemNotReady, "no worker can serve the program: of %d that were tried each ended before it was ready, the last so: %s", try, w.Ending())
		}
		d.log.Warn("a worker ended before it was ready: another is started", "client", c.id, "ending", w.Ending())
	}
}

// anyWorker finds a worker for a client at the given try: the spare that it was given, if that has
// the terms it needs still, or one of the pool.
func (d *daemon) anyWorker(c *client, serve *control.Serve, with *spares.Spare, try int) (*workers.Process, error) {
	switch {
	case with == nil || try > 1:
	case with.Terms == d.termsOf(serve.MPS, serve.Pace):
		return with.Worker, nil
	default:
		d.pool.Dismiss(with.Worker)
		d.loop.Ask(func() { d.leaveSpare(c) })
	}
	return d.pool.Take(try == 1)
}

// openConfinement finds out how far workers can be confined here. The node's devices are known.
func (d *daemon) openConfinement() (err error) {
	d.confinement, err = workers.Confine(d.cfg.Confine, d.opts.WorkerCommand, confine.Rules{
		Read: []string{d.opts.Revoked}, Write: []string{d.cfg.Swap.Dir, d.sharing.Pipe}, Connect: d.cfg.Offload.Borrows(),
	}, d.needs, d.log)
	d.pictures.confinement = d.confinement
	return err
}

// needs is what workers must reach for the present devices.
func (d *daemon) needs() (all confine.Rules) {
	if d.opts.Needs == nil {
		return all
	}
	seen := map[control.DeviceConfig]bool{}
	for _, e := range d.stock.Load().Entries {
		alike := control.DeviceConfig{Kind: e.Kind, Lender: e.Lender, Faults: e.Faults}
		if !seen[alike] { // the devices of a driver need the same
			seen[alike] = true
			all = all.And(d.opts.Needs(alike))
		}
	}
	return all
}

// bounds are those of a worker that is started now.
func (d *daemon) bounds() workers.Bounds { return d.confinement.Bounds() }

// renewBound has a client whose worker does not reach a device that was added go on in another worker, if
// it can.
func (d *daemon) renewBound(c *client, now workers.Bounds) {
	if c.worker.Outgrown(now) && d.mayRebuild(c) {
		c.worker.Post(control.Renew{Device: -1, Reason: "its worker does not reach a device that was added"})
	}
}

// What the node does for its spares (node/spares), and with them.

// newSpares has none yet.
func (d *daemon) newSpares() *spares.Spares {
	start := func(is *workers.Prepared, m control.Prepare, lock *os.File, files []*os.File, on workers.Waiting) {
		d.pool.Prepare(is, m, lock, files, on)
	}
	return spares.New(struct {
		*loop.Loop
		*dispatch.Dispatcher
	}{d.loop, d.core}, start, d.rights.Own.Name, d.ownTerms, d.log)
}

// termsOf are the terms of a client that uses MPS and makes way so.
func (d *daemon) termsOf(m *control.MPS, p *control.Pace) spares.Terms {
	return spares.TermsOf(m, p, d.sharing.StartedAgain(), d.bounds())
}

// ownTerms are those of a program of the node's own user that asks for nothing special.
func (d *daemon) ownTerms() spares.Terms {
	who := socket.Peer{User: d.rights.Own}
	limits := d.settings.Load().Limits.Of(d.rights.Own)
	latency, _ := d.classOf("", who, limits)
	use := d.sharing.Used(d.sharing.MayShare(who.User.UID), limits.Share)
	return d.termsOf(use, d.paceOf(&client{latency: latency}))
}

// takeSpare gives a new client a spare that has its terms, on the device where the dispatcher would
// put it now; nil if there is none. If the client is put elsewhere later, its worker gives the
// context back. The caller owns the spare's files.
func (d *daemon) takeSpare(c *client) (found *spares.Spare) {
	if d.settings.Load().Spare == settings.SparesOff {
		return nil
	}
	terms := d.termsOf(d.faults.mpsOf(c), d.paceOf(c))
	d.loop.Ask(func() {
		at, stock := d.core.Likely(c.id), d.stock.Load()
		var config control.DeviceConfig
		if at != vgpu.AnyDevice && c.arena.Base == shown.ArenaOf(0, 0).Base { // else its context would be elsewhere
			config = c.configOf(int(at), &stock.Entries[at])
		}
		found = d.spares.Take(at, terms, config, func() { c.spare = nil })
		c.spare = found
	})
	return found
}

// spareUsed is called when a client wants a device.
func (d *daemon) spareUsed(c *client, want func()) {
	s := c.spare
	want()
	if s != nil && c.spare == s {
		d.spares.Used(s, c.device)
	}
}

// leaveSpare forgets the spare of a client whose worker has ended.
func (d *daemon) leaveSpare(c *client) {
	if c.spare != nil {
		d.spares.Leave(c.spare)
	}
}
