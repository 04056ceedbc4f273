package worker

import (
	"muster/node/worker/hostcopy"
	"muster/vmm"
	"muster/wire/control"
)

// readyHost prepares host copies for the copies of a plan. Chunks that will be written get their
// side, and their pages, which several threads make at once; then all of them are pinned, if
// possible. No work may be running on the devices. Calling it again for the same plan costs
// nothing. It says whether it pinned anything.
func (w *worker) readyHost(plan vmm.Plan) (pinned bool) {
	w.touchAll(plan)
	if w.host.InFile() || plan.Bytes(vmm.CopyOut)+plan.Bytes(vmm.CopyIn) < hostcopy.PinWorth {
		return false // pages of a file on disk cannot be pinned
	}
	var fresh [][]byte
	for _, step := range plan {
		if step.Op == vmm.CopyOut {
			fresh = append(fresh, w.gpus[step.Device].hostPins.Unpinned(step.Range)...)
		}
	}
	hostcopy.MakePages(fresh)
	for _, step := range plan {
		if step.Op == vmm.CopyOut || step.Op == vmm.CopyIn {
			pinned = w.gpus[step.Device].hostPins.Pin(step.Range) || pinned
		}
	}
	return pinned
}

// touchAll prepares everything that a plan writes on the host.
func (w *worker) touchAll(plan vmm.Plan) {
	for _, step := range plan {
		if step.Op == vmm.CopyOut || step.Op == vmm.Fill && step.Device == vmm.Host {
			w.host.Touch(step.Range, true)
		}
	}
}

// copyHost submits the copies of consecutive steps of a plan. Those of unpinned memory come first:
// they go through buffers, which works only while the stream has no other work.
func (w *worker) copyHost(steps vmm.Plan) (failed vmm.Step, err error) {
	for _, pinned := range []bool{false, true} {
		for _, step := range steps {
			g, err := w.at(step.Device)
			if err != nil {
				return step, err
			}
			for _, part := range g.hostPins.Parts(step.Range) {
				switch {
				case part.Pinned != pinned:
				case step.Op == vmm.CopyIn:
					err = g.mover.CopyIn(part.Addr, part.Memory)
				default:
					err = g.mover.CopyOut(part.Memory, part.Addr)
				}
				if err != nil {
					return step, err
				}
			}
		}
	}
	return failed, nil
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
