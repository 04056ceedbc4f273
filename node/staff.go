package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/internal/confine"
	"muster/node/dispatch"
	"muster/node/held"
	"muster/node/inventory"
	"muster/node/loop"
	"muster/node/mps"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/spares"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire/control"
)

// maxTries is how many workers are tried for one client.
const maxTries = 3

// staff finds workers for clients.
type staff struct {
	common
	opts        *Options
	rights      requests.Rights
	terms       *terms
	pool        *workers.Pool
	confinement *workers.Confinement
	spares      *spares.Spares
	sharing     *mps.Sharing
	faults      *faults
	files       *files
	precedence  *precedence
	keeper      *survival.Keeper
	mayRebuild  func(*client) bool
}

// employ finds a worker for a client and starts it. A warm worker may have been killed
// while it waited, as when memory ran out, which is not the program's fault: if a worker
// ends before it is ready and does not say why, another one is tried, up to maxTries. with is the
// spare that the client was given; nil if none.
func (f *staff) employ(c *client, serve control.Serve, files []*os.File, left *workers.Legacy, with *spares.Spare) (*workers.Process, error) {
	for try := 1; ; try++ {
		if c.peer.User.UID != settings.Nobody {
			serve.Owner = c.peer.Key()
		}
		serve.MPS = f.faults.mpsOf(c)
		w, err := f.anyWorker(c, &serve, with, try)
		if err != nil {
			return nil, refusal.Because(err, refusal.SystemNotReady, "%v", err)
		}
		if err = f.pool.Lend(w, &c.peer.User, &serve); err == nil {
			if left != nil { // a failure to write is reported, but no reason to end the client
				f.loop.Ask(func() { _ = f.files.writeDown(c, w) })
			}
			err = w.Begin(serve, files, left, c.gone)
		}
		if err == nil {
			return w, nil
		}
		f.pool.Dismiss(w)
		f.loop.Ask(func() { f.leaveSpare(c) })
		if f.faults.refusedByMPS(c, &serve, err) {
			continue
		}
		switch {
		case !errors.Is(err, workers.ErrEndedEarly):
			return nil, refusal.New(refusal.SystemNotReady, "no worker can serve the program: %v", err)
		case try >= maxTries: // tries that MPS refused count, too
			return nil, refusal.New(refusal.SystemNotReady, "no worker can serve the program: of %d that were tried each ended before it was ready, the last so: %s", try, w.Ending())
		}
		f.log.Warn("a worker ended before it was ready: another is started", "client", c.id, "ending", w.Ending())
	}
}

// anyWorker finds a worker for a client at the given try: the spare that it was given, if that has
// the terms it needs still, or one of the pool.
func (f *staff) anyWorker(c *client, serve *control.Serve, with *spares.Spare, try int) (*workers.Process, error) {
	switch {
	case with == nil || try > 1:
	case with.Terms == f.termsOf(serve.MPS, serve.Pace):
		return with.Worker, nil
	default:
		f.pool.Dismiss(with.Worker)
		f.loop.Ask(func() { f.leaveSpare(c) })
	}
	return f.pool.Take(try == 1)
}

// openConfinement finds out how far workers can be confined here. The node's devices are known.
func (f *staff) openConfinement() (err error) {
	f.confinement, err = workers.Confine(f.cfg.Confine, f.opts.WorkerCommand, confine.Rules{
		Read: []string{f.opts.Revoked}, Write: []string{f.cfg.Swap.Dir, f.sharing.Pipe}, Connect: f.cfg.Offload.Borrows(),
	}, f.needs, f.log)
	return err
}

// needs is what workers must reach for the present devices.
func (f *staff) needs() (all confine.Rules) {
	if f.opts.Needs == nil {
		return all
	}
	seen := map[control.DeviceConfig]bool{}
	for _, e := range f.stock.Load().Entries {
		alike := control.DeviceConfig{Kind: e.Kind, Lender: e.Lender, Faults: e.Faults}
		if !seen[alike] { // the devices of a driver need the same
			seen[alike] = true
			all = all.And(f.opts.Needs(alike))
		}
	}
	return all
}

// bounds are those of a worker that is started now.
func (f *staff) bounds() workers.Bounds { return f.confinement.Bounds() }

// renewBound has a client whose worker does not reach a device that was added go on in another worker, if
// it can.
func (f *staff) renewBound(c *client, now workers.Bounds) {
	if c.worker.Outgrown(now) && f.mayRebuild(c) {
		c.worker.Post(control.Renew{Device: -1, Reason: "its worker does not reach a device that was added"})
	}
}

// serveOf is what a client's worker is told, apart from the devices.
func (f *staff) serveOf(c *client) control.Serve {
	limit, by := f.kernelTimeOf(c)
	return control.Serve{
		KernelTime: limit, KernelTimeBy: by,
		Node: f.address(), OrphanGrace: f.orphanGrace(), Client: uint64(c.id), ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Memory: c.memory, MemoryBy: c.memoryBy,
		SwapDir: f.cfg.Swap.Dir, Defer: f.settings.Load().Defer, Share: c.under.Memory(), Pace: f.paceOf(c), Guest: c.guest.is,
		Mapping: c.mapping, Explain: c.explain,
	}
}

// orphanGrace is how long workers look for the next daemon.
func (f *staff) orphanGrace() time.Duration {
	if f.keeper == nil {
		return 0
	}
	return f.cfg.OrphanGrace
}

// address is where workers find the next daemon, whatever their working directory: an
// absolute path, or an abstract name.
func (f *staff) address() string {
	socket := f.cfg.Socket.Address
	if path, err := filepath.Abs(socket); err == nil && !strings.HasPrefix(socket, "@") {
		return path
	}
	return socket
}

// employWith finds a worker for a client, and gives it the files and the present
// devices. It returns the inventory that the worker knows, so that assign can tell it
// what has changed since.
func (f *staff) employWith(c *client, serve control.Serve, kept []control.Held, left *workers.Legacy, with *spares.Spare) (*workers.Process, *inventory.Inventory, error) {
	stock := f.stock.Load()
	serve.Devices = c.configs(stock)
	locks, err := stock.OpenLocks()
	if err != nil {
		return nil, nil, refusal.Because(err, refusal.SystemNotReady, "no worker can serve the program: %v", err)
	}
	defer proc.CloseAll(locks)
	files := append(held.Files(kept), locks...)
	if serve.Pace != nil {
		// A copy, since the daemon closes its own when it ends, which may be now.
		shared, err := held.Copy([]control.Held{{Name: "memory in which workers claim devices", File: f.precedence.File}})
		if err != nil {
			return nil, nil, refusal.Because(err, refusal.SystemNotReady, "no worker can serve the program: %v", err)
		}
		defer held.Close(shared)
		files = append(files, shared[0].File)
	}
	w, err := f.employ(c, serve, files, left, with)
	return w, stock, err
}

// What the node does for its spares (node/spares), and with them.

// newSpares has none yet.
func (f *staff) newSpares(c common, own string) *spares.Spares {
	start := func(is *workers.Prepared, m control.Prepare, lock *os.File, files []*os.File, on workers.Waiting) {
		f.pool.Prepare(is, m, lock, files, on)
	}
	return spares.New(struct {
		*loop.Loop
		*dispatch.Dispatcher
	}{c.loop, c.dispatcher}, start, own, f.ownTerms, c.log)
}

// termsOf are the terms of a client that uses MPS and makes way so.
func (f *staff) termsOf(m *control.MPS, p *control.Pace) spares.Terms {
	return spares.TermsOf(m, p, f.sharing.StartedAgain(), f.bounds())
}

// ownTerms are those of a program of the node's own user that asks for nothing special.
func (f *staff) ownTerms() spares.Terms {
	who := socket.Peer{User: f.rights.Own}
	limits := f.settings.Load().Limits.Of(f.rights.Own)
	latency, _ := f.terms.classOf("", who, limits)
	use := f.sharing.Used(f.sharing.MayShare(who.User.UID), limits.Share)
	return f.termsOf(use, f.paceOf(&client{allowance: allowance{latency: latency}}))
}

// takeSpare gives a new client a spare that has its terms, on the device where the dispatcher would
// put it now; nil if there is none. If the client is put elsewhere later, its worker gives the
// context back. The caller owns the spare's files.
func (f *staff) takeSpare(c *client) (found *spares.Spare) {
	if f.settings.Load().Spare == settings.SparesOff {
		return nil
	}
	terms := f.termsOf(f.faults.mpsOf(c), f.paceOf(c))
	f.loop.Ask(func() {
		at, stock := f.dispatcher.Likely(c.id), f.stock.Load()
		var config control.DeviceConfig
		if at != vgpu.AnyDevice && c.arena.Base == shown.ArenaOf(0, 0).Base { // else its context would be elsewhere
			config = c.configOf(int(at), &stock.Entries[at])
		}
		found = f.spares.Take(at, terms, config, func() { c.spare = nil })
		c.spare = found
	})
	return found
}

// spareUsed is called when a client wants a device.
func (f *staff) spareUsed(c *client, want func()) {
	s := c.spare
	want()
	if s != nil && c.spare == s {
		f.spares.Used(s, c.device)
	}
}

// leaveSpare forgets the spare of a client whose worker has ended.
func (f *staff) leaveSpare(c *client) {
	if c.spare != nil {
		f.spares.Leave(c.spare)
	}
}
