package worker

import (
	"time"

	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire/control"
)

// move moves memory as the directory's plan says, once all work on the devices has ended; at once
// if now is set. A plan that only brings memory does not wait either if the client is a guest, for
// which memory exists from the moment it is mapped, or if a host function is outstanding.
func (w *worker) move(plan vmm.Plan, now bool) ([]clientcore.Leg, error) {
	defer w.timeline.Moved(plan)()
	return w.mover.move(plan, now || (w.serve.Guest || w.hosts.outstanding() > 0) && onlyBrings(plan))
}

// moveAsked is move for an operation, whose outcome is how long it took.
func (w *worker) moveAsked(_ *message, o *clientcore.Op) (outcome clientcore.Outcome) {
	outcome.Err = w.timed(&outcome, func() (err error) {
		outcome.Legs, err = w.move(o.Plan, o.Now)
		return err
	})
	outcome.Took -= w.mover.once
	w.mover.pinned = w.mover.pinned || w.mover.once > 0 && !o.Part
	return outcome
}

// slowPages is from how long on preparing host memory is logged.
const slowPages = 10 * time.Millisecond

// leave moves everything off a device (Leave), or copies it to the host and keeps it (Backup).
func (w *worker) leave(_ *message, o *clientcore.Op) (outcome clientcore.Outcome) {
	if o.Kind == clientcore.Backup {
		defer w.timeline.Keeps()()
	}
	g, err := w.contexts.at(o.Place)
	if err == nil && o.Kind == clientcore.Backup {
		err = w.drainAll()
	} else if err == nil {
		err = w.drain(g)
		g.dropGraphs()
	}
	began := w.now()
	if err == nil {
		// This time is not reported: later moves do without.
		w.mover.ready(o.Plan)
	}
	if made := w.now() - began; made > slowPages {
		w.log.Debug("pages were made and pinned on the host", "took", made.String())
	}
	began = w.now()
	if err == nil {
		_, err = w.move(o.Plan, false)
	}
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	defer func() { outcome.Took = w.now() - began }()
	if o.Kind == clientcore.Leave && len(o.Plan) > 0 {
		w.keeper.Left()
	}
	outcome.Times = w.contexts.times(g, o, w.now())
	if o.Shut || o.Kind == clientcore.Backup {
		outcome.Saved, outcome.Err = g.modules.Save(w.ctx, o.Modules)
	}
	if o.Shut && outcome.Err == nil {
		w.closeGPU(o.Place)
	}
	return outcome
}

// readyAhead makes the host pages that the client will need when it leaves its device, in the
// background, and says whether that is under way. It is called while another client waits for the
// device, or after the client had to leave once.
func (w *worker) readyAhead() bool {
	if w.host.InFile() {
		return false
	}
	if !w.readying.CompareAndSwap(false, true) {
		return true
	}
	make := w.host.Ahead(w.core.Allocations())
	if make == nil {
		w.readying.Store(false)
		return false
	}
	w.others.Go(func() {
		make(w.ctx)
		w.readying.Store(false)
		w.inbox.Put(readied{})
		w.consumer.Wake()
	})
	return true
}

// readied tells the loop that readyAhead has ended.
type readied struct{ control.Revoke }

// postpones says whether the worker leaves its device only later, because pages of the host are
// being made for that: kernels of the client run meanwhile, which would otherwise have to wait as
// long as the client that comes.
func (w *worker) postpones(m control.Revoke) bool {
	if w.revoked != nil || w.replay != nil || w.serve.Guest || !w.core.Lease.Held || !w.readyAhead() {
		return false
	}
	w.revoked = &m
	return true
}

// leaves hands the core a revocation. One that was postponed is void then.
func (w *worker) leaves(m control.Revoke) error {
	w.revoked = nil
	return w.handle(w.core.Control(w.now(), m))
}

// leaveNow hands the core a revocation that was postponed.
func (w *worker) leaveNow() error {
	if w.revoked == nil {
		return nil
	}
	return w.leaves(*w.revoked)
}
