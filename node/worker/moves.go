package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/vmm"
	"muster/wire/control"
)

// moves are those of the client's memory between devices and the host, and what must be so before. The loop owns it.
type moves struct {
	*session
	mover  mover
	hosts  *hosts
	waits  *waits
	opener *opener
}

// move moves memory as the directory's plan says, once all work on the devices has ended; at once
// if now is set. A plan that only brings memory does not wait either if the client is a guest, for
// which memory exists from the moment it is mapped, or if a host function is outstanding.
func (v *moves) move(plan vmm.Plan, now bool) ([]clientcore.Leg, error) {
	defer v.tracing.Moved(plan)()
	return v.mover.move(plan, now || (v.serve.Guest || v.hosts.outstanding() > 0) && onlyBrings(plan))
}

// asked is move for an operation, whose outcome is how long it took.
func (v *moves) asked(o *clientcore.Op) (outcome clientcore.Outcome) {
	outcome.Err = v.timed(&outcome, func() (err error) {
		outcome.Legs, err = v.move(o.Plan, o.Now)
		return err
	})
	outcome.Took -= v.mover.once
	v.mover.pinned = v.mover.pinned || v.mover.once > 0 && !o.Part
	return outcome
}

// slowPages is from how long on preparing host memory is logged.
const slowPages = 10 * time.Millisecond

// leave moves everything off a device (Leave), or copies it to the host and keeps it (Backup).
func (v *moves) leave(o *clientcore.Op) (outcome clientcore.Outcome) {
	if o.Kind == clientcore.Backup {
		defer v.tracing.Keeps()()
	}
	g, err := v.contexts.at(o.Place)
	if err == nil && o.Kind == clientcore.Backup {
		err = v.waits.drainAll()
	} else if err == nil {
		err = v.waits.drain(g)
		g.dropGraphs()
	}
	began := v.now()
	if err == nil {
		// This time is not reported: later moves do without.
		v.mover.ready(o.Plan)
	}
	if made := v.now() - began; made > slowPages {
		v.log.Debug("pages were made and pinned on the host", "took", made.String())
	}
	began = v.now()
	if err == nil {
		_, err = v.move(o.Plan, false)
	}
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	defer func() { outcome.Took = v.now() - began }()
	if o.Kind == clientcore.Leave && len(o.Plan) > 0 {
		v.keeper.Left()
	}
	outcome.Times = v.contexts.times(g, o, v.now())
	if o.Shut || o.Kind == clientcore.Backup {
		outcome.Saved, outcome.Err = g.modules.Save(v.ctx, o.Modules)
	}
	if o.Shut && outcome.Err == nil {
		v.opener.close(o.Place)
	}
	return outcome
}

// ahead makes the host pages that the client will need when it leaves its device, in the background, while
// another client waits for the device, or after the client had to leave once. A revocation that comes
// meanwhile can be postponed. The loop owns it.
type ahead struct {
	*session
	mail *mail

	making  atomic.Bool
	revoked *control.Revoke // postponed until the pages are made
}

// begin says whether pages are being made, which it begins if there are any to make.
func (a *ahead) begin() bool {
	if a.host.InFile() {
		return false
	}
	if !a.making.CompareAndSwap(false, true) {
		return true
	}
	make := a.host.Ahead(a.core.Allocations())
	if make == nil {
		a.making.Store(false)
		return false
	}
	a.others.Go(func() {
		make(a.ctx)
		a.making.Store(false)
		a.mail.put(readied{})
	})
	return true
}

// readied tells the loop that the pages are made.
type readied struct{ control.Revoke }

// postpones says whether the client leaves its device only later, because pages of the host are
// being made for that: kernels of the client run meanwhile, which would otherwise have to wait as
// long as the client that comes.
func (a *ahead) postpones(m control.Revoke) bool {
	if a.revoked != nil || !a.begin() {
		return false
	}
	a.revoked = &m
	return true
}

// due returns a revocation that was postponed; nil if none was. It is not postponed any more.
func (a *ahead) due() *control.Revoke {
	m := a.revoked
	a.revoked = nil
	return m
}

// mover does what a plan of the directory says: it moves memory between devices and the host. It decides
// nothing, and knows neither the core nor leases. The loop owns it.
type mover struct {
	ctx      context.Context
	contexts *contexts
	host     *hostcopy.Memory
	block    func(f func() error) error // runs what may wait for a device
	drain    func(g *gpu) error         // waits until all work in a context has ended
	now      func() clientcore.Time
	log      *slog.Logger

	pinned bool            // host copies have been pinned at least once
	once   clientcore.Time // the part of the last move's time that later moves will not need
	warned bool            // the log already says that there is no room on the host
}

// reserve makes sure that an allocation has room in the swap area. The first refusal is logged, so
// that the administrator hears of it too.
func (m *mover) reserve(allocation vmm.Range) error {
	err := m.host.Reserve(allocation)
	if err != nil && !m.warned {
		m.warned = true
		m.log.Warn("an allocation was refused", "error", err)
	}
	return err
}

// reserveAll is reserve for the allocations of a client that is restored: all of them, or none. They get room in
// addition to that of the present client, which must be able to go on until the new one is complete.
func (m *mover) reserveAll(all []vmm.Range) error {
	for i, r := range all {
		if err := m.reserve(r); err != nil {
			for _, r := range all[:i] {
				m.host.Release(r)
			}
			return err
		}
	}
	return nil
}

// giveBack returns room in the swap area.
func (m *mover) giveBack(o *clientcore.Op) {
	if o.All {
		m.host.ReleaseAll()
	} else {
		m.host.Release(o.Range)
	}
}

// move carries a plan out, and returns how long each device took after its work had ended. It waits for that
// end first, unless the plan only brings memory that no kernel uses yet.
//
// All copies to the host are submitted before any is waited for, so that devices copy at the same
// time. A copy from the host may need what another device is copying to it, so at the first one all
// copies to the host are waited for.
func (m *mover) move(plan vmm.Plan, brings bool) ([]clientcore.Leg, error) {
	drained, err := m.taking(plan)
	for i := 0; i < len(drained) && err == nil && !brings; i++ {
		err = m.drain(drained[i])
	}
	if err != nil {
		return nil, err
	}
	ready := m.now()
	m.once = 0
	if brings {
		m.touchAll(plan)
	} else if m.ready(plan) && !m.pinned {
		// Only the first move pays for making and pinning the host's pages. That time is not
		// reported as part of the move, because turns are measured by it and later moves are
		// faster. A context that is opened again has to pin again.
		m.once = m.now() - ready
	}
	legs := legs{since: m.now()}
	if out, in := plan.Bytes(vmm.CopyOut), plan.Bytes(vmm.CopyIn); out+in >= hostcopy.PinWorth {
		defer func(began clientcore.Time) {
			m.log.Debug("memory was moved", "out", out, "in", in, "pages", (began - ready).String(), "took", (m.now() - began).String())
		}(legs.since)
	}
	out := map[*gpu]bool{} // contexts with copies to the host in flight
	for len(plan) > 0 {
		step, steps := plan[0], sameWay(plan)
		plan = plan[len(steps):]
		for _, step := range steps {
			if step.Op == vmm.CopyOut {
				out[m.contexts.open[step.Device]] = true
			}
		}
		if step.Op == vmm.CopyIn && len(out) > 0 { // one device may read what another has just written
			for g := range out {
				if err := m.finish(g); err != nil {
					return nil, err
				}
				legs.ended(g.place, m.now())
			}
			legs.since = m.now()
			clear(out)
		}
		if step.Op == vmm.CopyAcross {
			if err := m.copyAcross(step); err != nil {
				return nil, fmt.Errorf("%v: %w", step, err)
			}
			legs.copies(step)
		} else if step.Op == vmm.CopyIn || step.Op == vmm.CopyOut {
			if step, err := m.copyHost(steps); err != nil {
				return nil, fmt.Errorf("%v: %w", step, err)
			}
			for _, step := range steps {
				legs.copies(step)
			}
		} else if err := m.step(step); err != nil {
			return nil, fmt.Errorf("%v: %w", step, err)
		}
	}
	for _, g := range drained {
		if err := m.finish(g); err != nil {
			return nil, err
		}
		legs.ended(g.place, m.now())
	}
	return legs.all, nil
}

// finish waits until everything that was submitted to a mover is done. The driver may have put the
// mover into the same queue of the device as a stream that waits for a host function.
func (m *mover) finish(g *gpu) error {
	return m.block(func() error { return g.mover.Synchronise(m.ctx) })
}

// taking returns the contexts that take part in a plan, each once.
func (m *mover) taking(plan vmm.Plan) (all []*gpu, err error) {
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
			g, err := m.contexts.at(p)
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
func (m *mover) copyAcross(step vmm.Step) error {
	g, err := m.contexts.at(step.Device)
	if err != nil {
		return err
	}
	from, err := m.contexts.at(step.From)
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
		if err := m.finish(from); err != nil {
			return err
		}
		if err := m.finish(g); err != nil { // with the other buffer
			return err
		}
		if err := g.mover.CopyIn(r.Addr+at, part); err != nil {
			return err
		}
		at += n
	}
	return m.finish(g)
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

func (m *mover) step(step vmm.Step) error {
	r := step.Range
	if step.Op == vmm.Discard {
		m.host.Discard(r)
		return nil
	}
	if step.Op == vmm.Fill && step.Device == vmm.Host {
		return m.host.FillWord(r, step.Word)
	}
	g, err := m.contexts.at(step.Device)
	if err != nil {
		return err
	}
	switch step.Op {
	case vmm.Map:
		return g.context.Map(r.Addr, r.Size)
	case vmm.Fill:
		return g.mover.Fill(r.Addr, step.Word, 4, r.Size/4)
	case vmm.Unmap:
		if err := m.finish(g); err != nil {
			return err
		}
		return g.context.Unmap(r.Addr, r.Size)
	}
	return fmt.Errorf("step %v is not known", step.Op)
}

// ready prepares host copies for the copies of a plan. Chunks that will be written get their
// side, and their pages, which several threads make at once; then all of them are pinned, if
// possible. No work may be running on the devices. Calling it again for the same plan costs
// nothing. It says whether it pinned anything.
func (m *mover) ready(plan vmm.Plan) (pinned bool) {
	m.touchAll(plan)
	if m.host.InFile() || plan.Bytes(vmm.CopyOut)+plan.Bytes(vmm.CopyIn) < hostcopy.PinWorth {
		return false // pages of a file on disk cannot be pinned
	}
	var fresh [][]byte
	for _, step := range plan {
		if step.Op == vmm.CopyOut {
			fresh = append(fresh, m.contexts.open[step.Device].hostPins.Unpinned(step.Range)...)
		}
	}
	hostcopy.MakePages(fresh)
	for _, step := range plan {
		if step.Op == vmm.CopyOut || step.Op == vmm.CopyIn {
			pinned = m.contexts.open[step.Device].hostPins.Pin(step.Range) || pinned
		}
	}
	return pinned
}

// touchAll prepares everything that a plan writes on the host.
func (m *mover) touchAll(plan vmm.Plan) {
	for _, step := range plan {
		if step.Op == vmm.CopyOut || step.Op == vmm.Fill && step.Device == vmm.Host {
			m.host.Touch(step.Range, true)
		}
	}
}

// copyHost submits the copies of consecutive steps of a plan. Those of unpinned memory come first:
// they go through buffers, which works only while the stream has no other work.
func (m *mover) copyHost(steps vmm.Plan) (failed vmm.Step, err error) {
	for _, pinned := range []bool{false, true} {
		for _, step := range steps {
			g, err := m.contexts.at(step.Device)
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

// onlyBrings says whether a plan only brings memory that is not on the device yet. No running
// kernel uses such memory, so the move need not wait for them. It must not where a stream waits for
// what the program does next: it would wait for ever.
func onlyBrings(plan vmm.Plan) bool {
	mapped := func(s vmm.Step) bool {
		return slices.ContainsFunc(plan, func(by vmm.Step) bool {
			return by.Op == vmm.Map && by.Device == s.Device && by.Range.Addr <= s.Range.Addr && s.Range.Addr+s.Range.Size <= by.Range.Addr+by.Range.Size
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
