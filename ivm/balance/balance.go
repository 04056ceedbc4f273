package balance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/ivm"
)

// Spawning is DS-LB. All elements but the first must be its children.
type Spawning struct {
	Portions   int // into which each iteration's work is cut: MAX_PEs of the paper
	Iterations int
	Devices    []ivm.Device
}

// Root runs all iterations. Each is called before an iteration, and after the last one with its
// number; nil for nothing.
func (s Spawning) Root(ctx context.Context, e *ivm.Element, each func(iteration int) error) error {
	return s.root(ctx, real{e}, each)
}

func (s Spawning) root(ctx context.Context, e element, each func(iteration int) error) error {
	if s.Portions < 1 || len(s.Devices) == 0 {
		return fmt.Errorf("%d portions on %d devices: there must be one of each", s.Portions, len(s.Devices))
	}
	reports, err := e.allocate(ctx, reportName, s.Portions*reportWords)
	if err != nil {
		return err
	}
	for i := range s.Iterations {
		if err := call(each, i); err != nil {
			return err
		}
		if err := e.SetMaxPEsID(ctx, ivm.ID(s.Portions*(i+1))); err != nil {
			return err
		}
		for _, d := range s.Devices {
			if _, err := e.CreatePEs(ctx, d, 1); err != nil {
				return err
			}
		}
		if err := s.await(ctx, e, reports, i); err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
	}
	if err := e.Free(ctx, reportName); err != nil {
		return err
	}
	return call(each, s.Iterations)
}

func call(f func(int) error, i int) error {
	if f == nil {
		return nil
	}
	return f(i)
}

// await waits until all portions of an iteration were reported, each by its own element.
func (s Spawning) await(ctx context.Context, e element, reports board, iteration int) error {
	done := ledger{}
	before := ivm.ID(s.Portions * iteration)
	for done.complete(s.Portions) != nil {
		id, err := e.WaitAny(ctx)
		if id <= before && (err == nil || errors.Is(err, ivm.ErrDead)) && id > 0 {
			continue // an end of the iteration before, whose work is done
		}
		if errors.Is(err, ivm.ErrNoElement) {
			return errors.Join(done.complete(s.Portions), err)
		}
		p := s.portion(id)
		switch {
		case err != nil:
			return fmt.Errorf("portion %d: %w", p, err)
		case readReport(reports, p).number != int64(id):
			return fmt.Errorf("%w: element %d signalled or ended, but did not do portion %d", ErrUndone, id, p)
		case done.add(span{p, p + 1}) != nil:
			// its end, after its report
		}
	}
	return nil
}

func (s Spawning) portion(id ivm.ID) int { return int(id-1) % s.Portions }

// Child does one portion: it computes, has the next element created on its device if there is more
// to do, and writes its results back.
func (s Spawning) Child(ctx context.Context, e *ivm.Element, compute, put func(portion int) error) error {
	return s.child(ctx, real{e}, compute, put)
}

func (s Spawning) child(ctx context.Context, e element, compute, put func(portion int) error) error {
	portion := s.portion(e.ID())
	reports, err := e.open(ctx, reportName)
	if err != nil {
		return err
	}
	if err := compute(portion); err != nil {
		return err
	}
	if _, err := e.CreatePEs(ctx, e.Device(), 1); err != nil { // no effect if all are given out
		return err
	}
	if err := put(portion); err != nil {
		return err
	}
	return report{number: int64(e.ID())}.send(ctx, e, reports, portion)
}

// Monitoring is OM-LB. All elements but the first must be its children.
type Monitoring struct {
	Iterations int
	Devices    []ivm.Device
	Threshold  float64 // 2 in the paper
	Most       int     // elements
}

// Root runs all iterations, and creates elements on the devices that are fast.
func (m Monitoring) Root(ctx context.Context, e *ivm.Element) error { return m.root(ctx, real{e}) }

func (m Monitoring) root(ctx context.Context, e element) error {
	if m.Most < 1 || len(m.Devices) == 0 {
		return fmt.Errorf("at most %d elements on %d devices: there must be one of each", m.Most, len(m.Devices))
	}
	plans, err := e.allocate(ctx, planName, planWords)
	if err != nil {
		return err
	}
	reports, err := e.allocate(ctx, reportName, m.Most*reportWords)
	if err != nil {
		return err
	}
	var ids []ivm.ID
	var devices []ivm.Device
	for i := range m.Iterations {
		grow := m.Devices
		if i > 0 {
			times := make([]float64, len(ids))
			for j := range times {
				times[j] = readReport(reports, j).seconds
			}
			grow = nil
			for _, j := range Grow(times, m.Threshold) {
				grow = append(grow, devices[j])
			}
		}
		for _, d := range grow {
			if len(ids) == m.Most {
				break
			}
			made, err := e.CreatePEs(ctx, d, 1)
			if err != nil {
				return err
			}
			for _, id := range made {
				ids, devices = append(ids, id), append(devices, d)
			}
		}
		if n := len(ids); n == 0 || ids[n-1] != ids[0]+ivm.ID(n-1) { // an element finds its part by its number
			return fmt.Errorf("%w: the elements' numbers are %v: no other elements may be created meanwhile", ErrUndone, ids)
		}
		p := plan{int64(i + 1), int64(ids[0]) - 1, int64(len(ids))}
		if err := announce(ctx, e, plans, p); err != nil {
			return err
		}
		for j, id := range ids {
			if err := e.Wait(ctx, id); err != nil {
				return err
			}
			if readReport(reports, j).number != p.number {
				return fmt.Errorf("%w: element %d signalled or ended, but did not do part %d of %d of iteration %d", ErrUndone, id, j, len(ids), i)
			}
		}
	}
	if err := announce(ctx, e, plans, plan{number: -1}); err != nil {
		return err
	}
	for _, id := range ids {
		if err := e.Wait(ctx, id); err != nil {
			return err
		}
	}
	return freeBoards(ctx, e)
}

// announce makes a plan known to all nodes, and lets the children go on.
func announce(ctx context.Context, e element, plans board, is plan) error {
	is.write(plans, 0)
	if err := plans.PutGroup(ctx); err != nil {
		return err
	}
	return e.Signal(ctx)
}

// freeBoards frees the objects, so that the work can be divided again.
func freeBoards(ctx context.Context, e element) error {
	return errors.Join(e.Free(ctx, planName), e.Free(ctx, reportName))
}

// Child does its part of each iteration: step is told which, of how many. It puts its own results.
func (m Monitoring) Child(ctx context.Context, e *ivm.Element, step func(iteration, part, parts int) error) error {
	return m.child(ctx, real{e}, step)
}

func (m Monitoring) child(ctx context.Context, e element, step func(iteration, part, parts int) error) error {
	return follow(ctx, e, 0, func(p plan) (slot int, skip bool, err error) {
		mine := int64(e.ID()) - p.from
		if mine > p.to {
			return 0, true, nil // the plan of an iteration before this element was created
		}
		return int(mine - 1), false, step(int(p.number-1), int(mine-1), int(p.to))
	})
}

// follow calls do for each new plan in a slot, and reports where do says, until the root says that it
// is over.
func follow(ctx context.Context, e element, slot int, do func(plan) (reports int, skip bool, err error)) error {
	plans, err := e.open(ctx, planName)
	if err != nil {
		return err
	}
	reports, err := e.open(ctx, reportName)
	if err != nil {
		return err
	}
	for last := int64(0); ; {
		if err := plans.Get(ctx, slot*planWords, (slot+1)*planWords); err != nil {
			return err
		}
		p, complete := readPlan(plans, slot)
		switch {
		case !complete:
		case p.number < 0:
			return nil
		case p.number != last:
			last = p.number
			begun := e.now()
			at, skip, err := do(p)
			if err == nil && !skip {
				err = report{p.number, e.now().Sub(begun).Seconds()}.send(ctx, e, reports, at)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := e.WaitLatest(ctx, 0); err != nil { // of signals for others it hears only the last
			return err
		}
	}
}

// Guided is ours. All elements but the first must be its children.
type Guided struct {
	Items   int // of work
	Devices []ivm.Device
}

// Root hands out all items. If an element dies or leaves, others do its piece.
func (g Guided) Root(ctx context.Context, e *ivm.Element) error { return g.root(ctx, real{e}) }

func (g Guided) root(ctx context.Context, e element) error {
	n := len(g.Devices)
	plans, err := e.allocate(ctx, planName, (n+1)*planWords)
	if err != nil {
		return err
	}
	reports, err := e.allocate(ctx, reportName, (n+1)*reportWords)
	if err != nil {
		return err
	}
	r := &guidedRoot{guide: NewGuide(g.Items, n), plans: plans, reports: reports, worker: map[ivm.ID]int{}, number: map[ivm.ID]int64{}, slots: n + 1}
	for i, d := range g.Devices {
		ids, err := e.CreatePEs(ctx, d, 1)
		if err != nil && !errors.Is(err, ivm.ErrLost) {
			return err
		}
		if len(ids) == 0 { // its node is lost, or there are as many elements as there may be
			r.guide.Lose(i)
			continue
		}
		for other := range r.worker {
			if r.slot(other) == r.slot(ids[0]) {
				return fmt.Errorf("%w: elements %d and %d have one slot: no other elements may be created meanwhile", ErrUndone, other, ids[0])
			}
		}
		r.worker[ids[0]] = i
	}
	return r.run(ctx, e)
}

// guidedRoot is Guided while it runs.
type guidedRoot struct {
	guide   *Guide
	plans   board
	reports board
	worker  map[ivm.ID]int   // those that live
	number  map[ivm.ID]int64 // of the plan of those that have a piece
	plan    int64            // the last number
	slots   int
}

func (r *guidedRoot) run(ctx context.Context, e element) error {
	if err := r.giveAll(ctx, e); err != nil {
		return err
	}
	var death error
	for len(r.number) > 0 {
		id, err := e.WaitAny(ctx)
		worker, ours := r.worker[id]
		died := errors.Is(err, ivm.ErrDead)
		switch {
		case err != nil && !died:
			return errors.Join(err, r.guide.Done())
		case !ours:
			continue
		case !died && r.number[id] != 0 && r.said(id).number == r.number[id]:
			delete(r.number, id)
			err = r.give(ctx, e, id, r.said(id).seconds)
		default:
			death = err
			if !died { // it left. If it still runs, it must not go on while others do its piece
				err = e.KillPEs(ctx, id)
			}
			r.guide.Lose(worker)
			delete(r.worker, id)
			delete(r.number, id)
			if err == nil || died {
				err = r.giveAll(ctx, e)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := r.guide.Done(); err != nil {
		return errors.Join(fmt.Errorf("%d elements are left: %w", len(r.worker), err), death)
	}
	for i := range r.slots {
		plan{number: -1}.write(r.plans, i)
	}
	if err := errors.Join(r.plans.PutGroup(ctx), e.Signal(ctx)); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(r.worker)) {
		if err := e.Wait(ctx, id); err != nil && !errors.Is(err, ivm.ErrDead) { // its work is done
			return err
		}
	}
	return freeBoards(ctx, e)
}

// slot is where an element finds its plans, and writes its reports.
func (r *guidedRoot) slot(id ivm.ID) int { return int(id) % r.slots }

func (r *guidedRoot) said(id ivm.ID) report { return readReport(r.reports, r.slot(id)) }

// giveAll gives a piece to each element that has none, if there is one for it.
func (r *guidedRoot) giveAll(ctx context.Context, e element) error {
	for _, id := range slices.Sorted(maps.Keys(r.worker)) {
		if r.number[id] != 0 {
			continue
		}
		if err := r.give(ctx, e, id, 0); err != nil {
			return err
		}
	}
	return nil
}

// give gives an element its next piece, if there is one for it.
func (r *guidedRoot) give(ctx context.Context, e element, id ivm.ID, seconds float64) error {
	from, to, ok := r.guide.Next(r.worker[id], seconds)
	if !ok {
		return nil
	}
	r.plan++
	r.number[id] = r.plan
	plan{r.plan, int64(from), int64(to)}.write(r.plans, r.slot(id))
	return e.Signal(ctx)
}

// Child does the items of each piece that the root gives it. It puts its own results.
func (g Guided) Child(ctx context.Context, e *ivm.Element, do func(from, to int) error) error {
	return g.child(ctx, real{e}, do)
}

func (g Guided) child(ctx context.Context, e element, do func(from, to int) error) error {
	slot := int(e.ID()) % (len(g.Devices) + 1)
	return follow(ctx, e, slot, func(p plan) (int, bool, error) {
		return slot, false, do(int(p.from), int(p.to))
	})
}
