package balance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
		if err := s.await(ctx, e, i); err != nil {
			return err
		}
	}
	return call(each, s.Iterations)
}

func call(f func(int) error, i int) error {
	if f == nil {
		return nil
	}
	return f(i)
}

// await waits until all portions of an iteration were reported.
func (s Spawning) await(ctx context.Context, e *ivm.Element, iteration int) error {
	done := map[ivm.ID]bool{}
	for len(done) < s.Portions {
		id, err := e.WaitAny(ctx)
		if err != nil {
			return fmt.Errorf("portion %d of iteration %d: %w", s.portion(id), iteration, err)
		}
		if id > ivm.ID(s.Portions*iteration) {
			done[id] = true
		}
	}
	return nil
}

func (s Spawning) portion(id ivm.ID) int { return int(id-1) % s.Portions }

// Child does one portion: it computes, has the next element created on its device if there is more
// to do, and writes its results back.
func (s Spawning) Child(ctx context.Context, e *ivm.Element, compute, put func(portion int) error) error {
	portion := s.portion(e.ID())
	if err := compute(portion); err != nil {
		return err
	}
	if _, err := e.CreatePEs(ctx, e.Device(), 1); err != nil { // no effect if all are given out
		return err
	}
	if err := put(portion); err != nil {
		return err
	}
	return e.Signal(ctx)
}

// Objects of Monitoring and Guided.
const (
	planName  = "balance.plan"
	timesName = "balance.times"
)

// plan is what the root tells its children, in an object: the iteration and the number of elements,
// or for each element a piece. A signal of the root wakes all children, so a child may read while
// the root writes: the sum shows whether the plan is complete.
type plan struct {
	Number        int64 // counts plans; -1 ends the child
	From, To, Sum int64
}

func newPlan(number int64, from, to int) plan {
	p := plan{Number: number, From: int64(from), To: int64(to)}
	p.Sum = p.sum()
	return p
}

// sum is never 0 for a plan that was made.
func (p plan) sum() int64 {
	return p.Number*0x1_0000_0001 ^ p.From*0x3b9aca07 ^ p.To*0x5deece66d ^ 0x2545f4914f6cdd1d
}

// Monitoring is OM-LB. All elements but the first must be its children.
type Monitoring struct {
	Iterations int
	Devices    []ivm.Device
	Threshold  float64 // 2 in the paper
	Most       int     // elements
}

// Root runs all iterations, and creates elements on the devices that are fast.
func (m Monitoring) Root(ctx context.Context, e *ivm.Element) error {
	p, err := ivm.Malloc[plan](ctx, e, planName, 1)
	if err != nil {
		return err
	}
	times, err := ivm.Malloc[float64](ctx, e, timesName, m.Most+1)
	if err != nil {
		return err
	}
	var ids []ivm.ID
	var devices []ivm.Device
	for i := range m.Iterations {
		grow := m.Devices
		if i > 0 {
			grow = nil
			for _, j := range Grow(times.Data[1:1+len(ids)], m.Threshold) {
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
			ids, devices = append(ids, made...), append(devices, d)
		}
		before := int(ids[0]) - 1 // elements, of work that was divided before
		if err := announce(ctx, e, p, newPlan(int64(i+1), before, len(ids))); err != nil {
			return err
		}
		for _, id := range ids {
			if err := e.Wait(ctx, id); err != nil {
				return err
			}
		}
	}
	if err := announce(ctx, e, p, newPlan(-1, 0, 0)); err != nil {
		return err
	}
	return finish(ctx, e, ids)
}

// announce makes a plan known to all nodes, and lets the children go on.
func announce(ctx context.Context, e *ivm.Element, p *ivm.Slice[plan], is plan) error {
	p.Data[0] = is
	if err := p.PutGroup(ctx); err != nil {
		return err
	}
	return e.Signal(ctx)
}

// finish waits until children have ended, and frees the objects, so that the work can be divided
// again.
func finish(ctx context.Context, e *ivm.Element, ids []ivm.ID) error {
	for _, id := range ids {
		if err := e.Wait(ctx, id); err != nil {
			return err
		}
	}
	return errors.Join(e.Free(ctx, planName), e.Free(ctx, timesName))
}

// Child does its part of each iteration: step is told which, of how many. It puts its own results.
func (m Monitoring) Child(ctx context.Context, e *ivm.Element, step func(iteration, part, parts int) error) error {
	times, err := ivm.Map[float64](ctx, e, timesName)
	if err != nil {
		return err
	}
	return follow(ctx, e, 0, func(p plan) error {
		mine := int64(e.ID()) - p.From
		if mine > p.To {
			return nil // the plan of an iteration before this element was created
		}
		begun := time.Now()
		if err := step(int(p.Number-1), int(mine-1), int(p.To)); err != nil {
			return err
		}
		return report(ctx, e, times, int(mine), time.Since(begun))
	})
}

// report says how long a child took, and that it is done.
func report(ctx context.Context, e *ivm.Element, times *ivm.Slice[float64], at int, took time.Duration) error {
	times.Data[at] = took.Seconds()
	if err := times.Put(ctx, at, at+1); err != nil {
		return err
	}
	return e.Signal(ctx)
}

// follow calls do for each new plan at a place of the object, until the root says that it is over.
func follow(ctx context.Context, e *ivm.Element, at int, do func(plan) error) error {
	plans, err := ivm.Map[plan](ctx, e, planName)
	if err != nil {
		return err
	}
	for last := int64(0); ; {
		if err := plans.Get(ctx, at, at+1); err != nil {
			return err
		}
		switch p := plans.Data[at]; {
		case p.Sum != p.sum():
		case p.Number < 0:
			return nil
		case p.Number != last:
			last = p.Number
			if err := do(p); err != nil {
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

// Root hands out all items. If an element dies, others do its piece.
func (g Guided) Root(ctx context.Context, e *ivm.Element) error {
	n := len(g.Devices)
	plans, err := ivm.Malloc[plan](ctx, e, planName, n+1)
	if err != nil {
		return err
	}
	times, err := ivm.Malloc[float64](ctx, e, timesName, n+1)
	if err != nil {
		return err
	}
	r := &guidedRoot{Guided: g, guide: NewGuide(g.Items, n), plans: plans, times: times, worker: map[ivm.ID]int{}}
	for i, d := range g.Devices {
		ids, err := e.CreatePEs(ctx, d, 1)
		if errors.Is(err, ivm.ErrLost) {
			r.guide.Lose(i)
			continue
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			r.worker[id], r.ids = i, append(r.ids, id)
		}
	}
	return r.run(ctx, e)
}

// guidedRoot is Guided while it runs.
type guidedRoot struct {
	Guided
	guide  *Guide
	plans  *ivm.Slice[plan]
	times  *ivm.Slice[float64]
	ids    []ivm.ID
	worker map[ivm.ID]int
	again  [][2]int // pieces of elements that died
	piece  map[ivm.ID][2]int
	number int64
}

func (r *guidedRoot) run(ctx context.Context, e *ivm.Element) error {
	r.piece = map[ivm.ID][2]int{}
	idle := map[ivm.ID]bool{}
	for _, id := range r.ids {
		if err := r.give(ctx, e, id, 0, idle); err != nil {
			return err
		}
	}
	for len(r.piece) > 0 {
		id, err := e.WaitAny(ctx)
		_, ours := r.worker[id]
		switch {
		case errors.Is(err, ivm.ErrDead) && ours:
			r.lose(id, idle)
			for other := range idle {
				delete(idle, other)
				if err := r.give(ctx, e, other, 0, idle); err != nil {
					return err
				}
			}
			if len(r.worker) == 0 {
				return fmt.Errorf("all elements have died: %w", err)
			}
		case err != nil:
			return err
		case ours:
			if err := r.give(ctx, e, id, r.times.Data[r.slot(id)], idle); err != nil {
				return err
			}
		}
	}
	for i := range r.plans.Data {
		r.plans.Data[i] = newPlan(-1, 0, 0)
	}
	if err := errors.Join(r.plans.PutGroup(ctx), e.Signal(ctx)); err != nil {
		return err
	}
	return finish(ctx, e, slices.Collect(maps.Keys(r.worker)))
}

// lose takes back the piece of an element that has died.
func (r *guidedRoot) lose(id ivm.ID, idle map[ivm.ID]bool) {
	if p, had := r.piece[id]; had {
		r.again = append(r.again, p)
	}
	r.guide.Lose(r.worker[id])
	delete(r.piece, id)
	delete(r.worker, id)
	delete(idle, id)
}

// slot is where an element finds its plans, and writes its times.
func (r *guidedRoot) slot(id ivm.ID) int { return int(id) % len(r.plans.Data) }

// give gives an element its next piece, or notes that it has none.
func (r *guidedRoot) give(ctx context.Context, e *ivm.Element, id ivm.ID, seconds float64, idle map[ivm.ID]bool) error {
	from, to, ok := r.guide.Next(r.worker[id], seconds)
	if !ok && len(r.again) > 0 {
		from, to, ok = r.again[0][0], r.again[0][1], true
		r.again = r.again[1:]
	}
	delete(r.piece, id)
	if !ok {
		idle[id] = true
		return nil
	}
	r.number++
	r.piece[id] = [2]int{from, to}
	r.plans.Data[r.slot(id)] = newPlan(r.number, from, to)
	return e.Signal(ctx)
}

// Child does the items of each piece that the root gives it. It puts its own results.
func (g Guided) Child(ctx context.Context, e *ivm.Element, do func(from, to int) error) error {
	times, err := ivm.Map[float64](ctx, e, timesName)
	if err != nil {
		return err
	}
	slot := int(e.ID()) % (len(g.Devices) + 1)
	return follow(ctx, e, slot, func(p plan) error {
		begun := time.Now()
		if err := do(int(p.From), int(p.To)); err != nil {
			return err
		}
		return report(ctx, e, times, slot, time.Since(begun))
	})
}
