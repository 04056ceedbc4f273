package worker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/vmm"
)

// onlyBrings says whether a plan only brings memory that is not on the device yet. No running
// kernel uses such memory, so the move need not wait for them. It must not where a stream waits for
// what the program does next: it would wait for ever.
func onlyBrings(plan vmm.Plan) bool {
	mapped := func(s vmm.Step) bool {
		return slices.ContainsFunc(plan, func(m vmm.Step) bool {
			return m.Op == vmm.Map && m.Device == s.Device && m.Range.Addr <= s.Range.Addr && s.Range.Addr+s.Range.Size <= m.Range.Addr+m.Range.Size
		})
	}
	for _, s := range plan {
		brought := s.Op == vmm.CopyIn || s.Op == vmm.Fill && s.Device != vmm.Host
		if s.Op != vmm.Map && s.Op != vmm.Discard && (!brought || !mapped(s)) {
			return false
		}
	}
	return true
}

// move moves memory as the directory's plan says, once all work on the devices has ended; at once
// if now is set. A plan that only brings memory does not wait either if the client is a guest, for
// which memory exists from the moment it is mapped, or if a host function is outstanding.
func (w *worker) move(plan vmm.Plan, now bool) error {
	_, err := w.moveTimed(plan, now)
	return err
}

// moveAsked is move for an operation, whose outcome is how long it took.
func (w *worker) moveAsked(_ *message, o *clientcore.Op) (outcome clientcore.Outcome) {
	outcome.Err = w.timed(&outcome, func() (err error) {
		outcome.Legs, err = w.moveTimed(o.Plan, o.Now)
		return err
	})
	outcome.Took -= w.once
	w.pinsHost = w.pinsHost || w.once > 0 && !o.Part
	return outcome
}

// moveTimed is move, and returns how long each device took after its work had ended.
//
// All copies to the host are submitted before any is waited for, so that devices copy at the same
// time. A copy from the host may need what another device is copying to it, so at the first one all
// copies to the host are waited for.
func (w *worker) moveTimed(plan vmm.Plan, now bool) ([]clientcore.Leg, error) {
	defer w.timeline.Moved(plan)()
	brings := now || (w.serve.Guest || w.hosts.outstanding() > 0) && onlyBrings(plan)
	drained, err := w.movers(plan)
	for i := 0; i < len(drained) && err == nil && !brings; i++ {
		err = w.drain(drained[i])
	}
	if err != nil {
		return nil, err
	}
	ready := w.now()
	w.once = 0
	if brings {
		w.touchAll(plan)
	} else if w.readyHost(plan) && !w.pinsHost {
		// Only the first move pays for making and pinning the host's pages. That time is not
		// reported as part of the move, because turns are measured by it and later moves are
		// faster. A context that is opened again has to pin again.
		w.once = w.now() - ready
	}
	legs := legs{since: w.now()}
	if out, in := plan.Bytes(vmm.CopyOut), plan.Bytes(vmm.CopyIn); out+in >= hostcopy.PinWorth {
		defer func(began clientcore.Time) {
			w.log.Debug("memory was moved", "out", out, "in", in, "pages", (began - ready).String(), "took", (w.now() - began).String())
		}(legs.since)
	}
	out := map[*gpu]bool{} // contexts with copies to the host in flight
	for len(plan) > 0 {
		step, steps := plan[0], sameWay(plan)
		plan = plan[len(steps):]
		for _, step := range steps {
			if step.Op == vmm.CopyOut {
				out[w.contexts.open[step.Device]] = true
			}
		}
		if step.Op == vmm.CopyIn && len(out) > 0 { // one device may read what another has just written
			for g := range out {
				if err := w.moved(g); err != nil {
					return nil, err
				}
				legs.ended(g.place, w.now())
			}
			legs.since = w.now()
			clear(out)
		}
		if step.Op == vmm.CopyAcross {
			if err := w.copyAcross(step); err != nil {
				return nil, fmt.Errorf("%v: %w", step, err)
			}
			legs.copies(step)
		} else if step.Op == vmm.CopyIn || step.Op == vmm.CopyOut {
			if step, err := w.copyHost(steps); err != nil {
				return nil, fmt.Errorf("%v: %w", step, err)
			}
			for _, step := range steps {
				legs.copies(step)
			}
		} else if err := w.moveStep(step); err != nil {
			return nil, fmt.Errorf("%v: %w", step, err)
		}
	}
	for _, g := range drained {
		if err := w.moved(g); err != nil {
			return nil, err
		}
		legs.ended(g.place, w.now())
	}
	return legs.all, nil
}

// moved waits until everything that was submitted to a mover is done. The driver may have put the
// mover into the same queue of the device as a stream that waits for a host function.
func (w *worker) moved(g *gpu) error {
	return w.block(func() error { return g.mover.Synchronise(w.ctx) })
}

// movers returns the contexts that take part in a plan, each once.
func (w *worker) movers(plan vmm.Plan) (all []*gpu, err error) {
	for _, step := range plan {
		places := []vmm.Place{step.Device, step.From}
		switch {
		case step.Op == vmm.CopyAcross:
		case step.Device == vmm.Host:
			places = nil
		default:
			places = places[:1]
		}
		for _, p := range places {
			if slices.ContainsFunc(all, func(g *gpu) bool { return g.place == p }) {
				continue
			}
			g, err := w.contexts.at(p)
			if err != nil {
				return nil, err
			}
			all = append(all, g)
		}
	}
	return all, nil
}

// copyAcross copies memory from one context to another, all work of which has ended. Where the
// devices turn out not to copy to each other, the bytes pass through a buffer; the directory does not
// know of it.
func (w *worker) copyAcross(step vmm.Step) error {
	g, err := w.contexts.at(step.Device)
	if err != nil {
		return err
	}
	from, err := w.contexts.at(step.From)
	if err != nil {
		return err
	}
	r := step.Range
	if copyFrom := g.mover.Can().CopyFrom; copyFrom != nil {
		if err := copyFrom(r.Addr, from.context, r.Addr, r.Size); !errors.Is(err, device.ErrNotSupported) {
			return err
		}
	}
	// One buffer is read while the other is written.
	var buffers [2][]byte
	for at, which := uint64(0), 0; at < r.Size; which = 1 - which {
		n := min(r.Size-at, acrossBuffer)
		if buffers[which] == nil {
			buffers[which] = make([]byte, n)
		}
		part := buffers[which][:n]
		if err := from.mover.CopyOut(part, r.Addr+at); err != nil {
			return err
		}
		if err := w.moved(from); err != nil {
			return err
		}
		if err := w.moved(g); err != nil { // with the other buffer
			return err
		}
		if err := g.mover.CopyIn(r.Addr+at, part); err != nil {
			return err
		}
		at += n
	}
	return w.moved(g)
}

// acrossBuffer is the size of the buffer between devices that do not copy to each other.
const acrossBuffer = 8 << 20

// sameWay returns the first steps of a plan that are done together: copies in one direction, or a
// single step of another kind.
func sameWay(plan vmm.Plan) vmm.Plan {
	n := 1
	for first := plan[0].Op; (first == vmm.CopyIn || first == vmm.CopyOut) && n < len(plan) && plan[n].Op == first; {
		n++
	}
	return plan[:n]
}

// legs are what each device copied during a move, and how long it took.
type legs struct {
	all   []clientcore.Leg
	open  map[vmm.Place]bool // devices with copies that were not waited for
	since clientcore.Time    // when the open copies began
}

func (l *legs) copies(step vmm.Step) {
	i := slices.IndexFunc(l.all, func(leg clientcore.Leg) bool { return leg.Place == step.Device })
	if i < 0 {
		i = len(l.all)
		l.all = append(l.all, clientcore.Leg{Place: step.Device})
	}
	l.all[i].Bytes += step.Range.Size
	if l.open == nil {
		l.open = map[vmm.Place]bool{}
	}
	l.open[step.Device] = true
}

// ended notes that all copies of a device have ended.
func (l *legs) ended(p vmm.Place, now clientcore.Time) {
	for i := range l.all {
		if leg := &l.all[i]; leg.Place == p && l.open[p] {
			leg.Took += now - l.since
			delete(l.open, p)
		}
	}
}

func (w *worker) moveStep(step vmm.Step) error {
	r := step.Range
	if step.Op == vmm.Discard {
		w.host.Discard(r)
		return nil
	}
	if step.Op == vmm.Fill && step.Device == vmm.Host {
		return w.host.FillWord(r, step.Word)
	}
	g, err := w.contexts.at(step.Device)
	if err != nil {
		return err
	}
	switch step.Op {
	case vmm.Map:
		return g.context.Map(r.Addr, r.Size)
	case vmm.Fill:
		return g.mover.Fill(r.Addr, step.Word, 4, r.Size/4)
	case vmm.Unmap:
		if err := w.moved(g); err != nil {
			return err
		}
		return g.context.Unmap(r.Addr, r.Size)
	}
	return fmt.Errorf("step %v is not known", step.Op)
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
		w.readyHost(o.Plan)
	}
	if made := w.now() - began; made > slowPages {
		w.log.Debug("pages were made and pinned on the host", "took", made.String())
	}
	began = w.now()
	if err == nil {
		err = w.move(o.Plan, false)
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
		outcome.Saved, outcome.Err = g.save(w.ctx, o.Modules)
	}
	if o.Shut && outcome.Err == nil {
		w.closeGPU(o.Place)
	}
	return outcome
}
