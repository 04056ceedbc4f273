package mosaic

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"muster/policy/prices"
)

// task is a job to be planned.
type task struct {
	kind    int32
	width   int32 // nodes, or cores if they are spread
	devices int32 // remote ones
	run     time.Duration
	// cost is the task's price times its run, squared in time: the node time that it takes from
	// others times its run. Tasks with a small cost should wait little.
	cost float64
	// free: the task fits beside the others at no cost.
	free bool
	// strict: the task must be in one block.
	strict bool
	// first: the task is planned before all that are not first. First tasks keep the order of the
	// queue.
	first bool
}

// problem is the input of a plan.
type problem struct {
	needs []need
	tasks []task
	worth *prices.Table
	now   timeline // what is free now, and will be when running jobs end
	// balance is the weight of the plan's length against waiting, in per cent.
	balance int64
	// patience is how much later a task may start in order to be in one block, in per cent of its
	// run; negative means that it is always in one block.
	patience int64
	meanRun  time.Duration
}

// answer is a plan: when and where tasks run.
type answer struct {
	start  []time.Duration // negative: the task has no place
	pieces [][]piece
}

func (a *answer) size(n int) {
	a.start = slices.Grow(a.start[:0], n)[:n]
	for len(a.pieces) < n {
		a.pieces = append(a.pieces, nil)
	}
}

// searcher looks for good plans. It reuses its memory.
type searcher struct {
	*problem
	base []seg // what will be free when all running jobs have ended

	// Planning backwards. Time runs from the end of the plan towards now: back.start is the time
	// between the end of a task and the end of the plan.
	back      answer
	b, future board
	ends      []ending // the ends of running tasks, a heap
	late      []ending
	waiting   []int32 // the tasks without a place, in order
	misfit    []int32 // by kind: the smallest width that does not fit now
	behind    timeline

	// Plans in forward time: the best, another one, and what the latest leaves free.
	best, try answer
	line      timeline
}

// solve leaves a plan in s.best. ranks has, by task, its place in the order of an earlier plan, or
// a negative number; solve replaces it by the place in the new order.
//
// It plans the priced tasks backwards and improves their order, adds the free tasks in the gaps,
// and turns the result round. Finally it inserts all tasks forwards in the order of their starts,
// and keeps that plan if it is better.
func (s *searcher) solve(ranks []int, trials int, rng *rand.Rand) {
	n := len(s.tasks)
	s.best.size(n)
	s.try.size(n)
	s.back.size(n)
	s.base = append(s.base[:0], s.now.points[len(s.now.points)-1].segs...)
	var first, priced, free []int32
	for i := range s.tasks {
		t := &s.tasks[i]
		switch {
		case !s.needs[t.kind].has(s.base, t):
			s.best.start[i], s.try.start[i] = -1, -1 // something that is not modelled is in its way
		case t.first:
			first = append(first, int32(i))
		case t.free:
			free = append(free, int32(i))
		default:
			priced = append(priced, int32(i))
		}
	}
	costly := func(a, b int32) int { return cmp.Compare(s.tasks[b].cost, s.tasks[a].cost) }
	slices.SortStableFunc(priced, costly)
	slices.SortStableFunc(free, costly)
	priced = s.improve(priced, ranks, trials, rng)
	for place, id := range priced {
		ranks[id] = place
	}
	s.fillIn(priced, free)
	s.begin(&s.best, first)
	s.mirror(append(slices.Clone(priced), free...))
	// The same order planned forwards may wait less, but is mostly longer.
	s.byStart(&s.best, priced)
	s.byStart(&s.best, free)
	s.begin(&s.try, first)
	for _, id := range append(priced, free...) {
		s.insert(&s.try, id)
	}
	if s.weigh(&s.try) < s.weigh(&s.best) {
		s.best, s.try = s.try, s.best
	}
}

// alone does what solve would do for the only waiting task, if it fits into what is free now (s.b).
// No timeline is needed: running jobs only give back, so that it fits for its whole run.
func (s *searcher) alone(ranks []int, now time.Duration) bool {
	t := &s.tasks[0]
	s.best.size(1)
	s.best.start[0] = now
	s.best.pieces[0] = s.b.find(&s.needs[t.kind], t, s.worth, s.best.pieces[0][:0])
	if len(s.best.pieces[0]) == 0 {
		return false
	}
	if !t.first && !t.free {
		ranks[0] = 0
	}
	return true
}

// begin starts a plan with the tasks that must come first.
func (s *searcher) begin(a *answer, first []int32) {
	s.line.copyFrom(&s.now)
	for _, id := range first {
		s.insert(a, id)
	}
}

// insert gives a task the earliest place in s.line.
func (s *searcher) insert(a *answer, id int32) {
	t := &s.tasks[id]
	n := &s.needs[t.kind]
	a.start[id], a.pieces[id] = s.line.insert(n, t, s.worth, a.pieces[id])
	if s.patience < 0 || t.strict || a.start[id] < 0 {
		return
	}
	// One block is too late: try several, and go back to one if that is no earlier.
	before := a.start[id] - time.Duration(s.patience)*(t.run/100)
	if before <= s.now.at[0] {
		return
	}
	s.line.free(a.pieces[id], a.start[id], a.start[id]+t.run)
	start, pieces := s.line.insertSplit(n, t, before, nil)
	if start < 0 {
		s.line.hold(a.pieces[id], a.start[id], a.start[id]+t.run)
		return
	}
	a.start[id], a.pieces[id] = start, pieces
}

func (s *searcher) byStart(a *answer, order []int32) {
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(a.start[x], a.start[y]) })
}

// weigh is the cost of a plan.
func (s *searcher) weigh(a *answer) int64 {
	now := s.now.at[0]
	var length time.Duration
	var waits total
	for i := range s.tasks {
		if a.start[i] >= 0 {
			length = max(length, a.start[i]-now+s.tasks[i].run)
			waits.add(s.price(&s.tasks[i], a.start[i]-now))
		}
	}
	return s.join(&waits, length)
}

// join combines the mean of waits (in the unit of price) and a length into the cost of a plan.
// After the division by 256 the wait of a task with the mean run counts twice: once as it is, once
// relative to its run.
func (s *searcher) join(waits *total, length time.Duration) int64 {
	mean := waits.over(len(s.tasks)) / 256
	return (100-s.balance)*mean + s.balance*int64(length/time.Millisecond)
}

// fillIn adds the free tasks to the backwards plan.
func (s *searcher) fillIn(priced, free []int32) {
	s.behind.reset(0, s.base)
	for _, id := range priced {
		s.behind.hold(s.back.pieces[id], s.back.start[id], s.back.start[id]+s.tasks[id].run)
	}
	for _, id := range free {
		t := &s.tasks[id]
		s.back.start[id], s.back.pieces[id] = s.behind.insert(&s.needs[t.kind], t, s.worth, s.back.pieces[id])
	}
}

// mirror turns the backwards plan round and puts it behind all that runs and all that must come
// first. Then it moves each task, in the order of their starts, to the earliest place that there is
// now. No task starts later than before, so the plan does not get longer.
func (s *searcher) mirror(order []int32) {
	length := time.Duration(0)
	for _, id := range order {
		length = max(length, s.back.start[id]+s.tasks[id].run)
	}
	end := s.line.at[len(s.line.at)-1] + length
	for _, id := range order {
		s.best.start[id] = end - s.back.start[id] - s.tasks[id].run
		s.best.pieces[id] = append(s.best.pieces[id][:0], s.back.pieces[id]...)
		s.line.hold(s.best.pieces[id], s.best.start[id], s.best.start[id]+s.tasks[id].run)
	}
	s.byStart(&s.best, order)
	for _, id := range order {
		s.line.free(s.best.pieces[id], s.best.start[id], s.best.start[id]+s.tasks[id].run)
		s.insert(&s.best, id)
	}
}

// backwards plans tasks on an idle cluster: in the given order, each as soon as it fits. The first
// that does not fit must not be delayed: tasks after it may start only if they end by the time at
// which it could start (limit). The result is in s.back.
func (s *searcher) backwards(order []int32) {
	s.b.segs = append(s.b.segs[:0], s.base...)
	s.ends = s.ends[:0]
	s.waiting = append(s.waiting[:0], order...)
	s.misfit = slices.Grow(s.misfit[:0], len(s.needs))[:len(s.needs)]
	for now := time.Duration(0); ; {
		for i := range s.misfit {
			s.misfit[i] = 1<<31 - 1
		}
		keep, limit := 0, time.Duration(-1)
		for _, id := range s.waiting {
			t := &s.tasks[id]
			if t.width < s.misfit[t.kind] && (limit < 0 || now+t.run <= limit) {
				n := &s.needs[t.kind]
				s.back.pieces[id] = s.b.find(n, t, s.worth, s.back.pieces[id][:0])
				if len(s.back.pieces[id]) > 0 {
					for i := range s.back.pieces[id] {
						s.b.take(&s.back.pieces[id][i])
					}
					s.back.start[id] = now
					s.ends = push(s.ends, ending{now + t.run, id})
					continue
				}
				if !n.remote {
					s.misfit[t.kind] = t.width
				}
				if limit < 0 {
					limit = s.earliest(t)
				}
			}
			s.waiting[keep] = id
			keep++
		}
		if s.waiting = s.waiting[:keep]; keep == 0 {
			return
		}
		now = s.ends[0].at
		for len(s.ends) > 0 && s.ends[0].at == now {
			var e ending
			e, s.ends = pop(s.ends)
			for i := range s.back.pieces[e.task] {
				s.b.give(&s.back.pieces[e.task][i])
			}
		}
	}
}

// earliest is when t fits if nothing else starts.
func (s *searcher) earliest(t *task) time.Duration {
	s.late = append(s.late[:0], s.ends...)
	s.future.segs = append(s.future.segs[:0], s.b.segs...)
	when := time.Duration(0)
	for len(s.late) > 0 {
		var e ending
		e, s.late = pop(s.late)
		when = e.at
		for i := range s.back.pieces[e.task] {
			s.future.give(&s.back.pieces[e.task][i])
		}
		if (len(s.late) == 0 || s.late[0].at > when) && s.needs[t.kind].has(s.future.segs, t) {
			break
		}
	}
	return when
}

// price is the cost of a wait, in 1/512 ms: half of it is the wait itself, the other half is the
// wait relative to the task's run (as slowdown is), times the mean run and at most 16 times the
// wait.
func (s *searcher) price(t *task, wait time.Duration) int64 {
	ratio := 256 * s.meanRun / max(t.run, s.meanRun/16, 1)
	return int64(wait/time.Millisecond) * (256 + int64(ratio))
}

// costOf is the cost of the backwards plan of these tasks.
func (s *searcher) costOf(order []int32) int64 {
	var length time.Duration
	var waits total
	for _, id := range order {
		length = max(length, s.back.start[id]+s.tasks[id].run)
	}
	for _, id := range order {
		waits.add(s.price(&s.tasks[id], length-s.back.start[id]-s.tasks[id].run))
	}
	return s.join(&waits, length)
}

// total is a 128-bit sum of numbers that are not negative. The sum of thousands of waits of years
// does not fit into 64 bits; their mean does.
type total struct{ high, low uint64 }

func (t *total) add(x int64) {
	var carry uint64
	t.low, carry = bits.Add64(t.low, uint64(x), 0)
	t.high += carry
}

// over is the total divided by n, which must be at least the number of summands: so the quotient
// fits.
func (t *total) over(n int) int64 {
	mean, _ := bits.Div64(t.high, t.low, uint64(n))
	return int64(mean)
}

// portion is x * part / whole without overflow; part must not exceed whole.
func portion(x int64, part, whole int) int64 {
	high, low := bits.Mul64(uint64(x), uint64(part))
	out, _ := bits.Div64(high, low, uint64(whole))
	return int64(out)
}

// improve plans the tasks backwards, in the given order and in that of an earlier plan. Starting
// from the better one, it changes the order a little, trials times, and keeps a change if it makes
// the plan better or, with a slack that shrinks to 0, only a little worse. It returns the best
// order, with its plan in s.back.
func (s *searcher) improve(order []int32, ranks []int, trials int, rng *rand.Rand) []int32 {
	s.backwards(order)
	if len(order) < 2 {
		return order
	}
	best, least := order, s.costOf(order)
	if again := s.again(order, ranks); again != nil {
		s.backwards(again)
		if c := s.costOf(again); c < least {
			best, least = again, c
		}
	}
	work, now, n := slices.Clone(best), least, len(order)
	reach := max(1, n/10)
	for k := range trials {
		slack := portion(least/300, trials-k, trials)
		i := rng.IntN(n)
		j := min(n-1, max(0, i+rng.IntN(2*reach+1)-reach))
		swap := rng.IntN(2) == 0
		if swap {
			work[i], work[j] = work[j], work[i]
		} else {
			shift(work, i, j)
		}
		s.backwards(work)
		switch c := s.costOf(work); {
		case c <= now+slack*int64(rng.IntN(64))/64:
			if now = c; c < least {
				least = c
				copy(best, work)
			}
		case swap:
			work[i], work[j] = work[j], work[i]
		default:
			shift(work, j, i)
		}
	}
	s.backwards(best)
	return best
}

// again is the order of an earlier plan, with each new task put before the first one that costs
// less; nil if there was no earlier plan.
func (s *searcher) again(order []int32, ranks []int) []int32 {
	var known, fresh []int32
	for _, id := range order {
		if ranks[id] >= 0 {
			known = append(known, id)
		} else {
			fresh = append(fresh, id)
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.SortStableFunc(known, func(a, b int32) int { return cmp.Compare(ranks[a], ranks[b]) })
	out := make([]int32, 0, len(order))
	for _, id := range known {
		for len(fresh) > 0 && s.tasks[fresh[0]].cost > s.tasks[id].cost {
			out = append(out, fresh[0])
			fresh = fresh[1:]
		}
		out = append(out, id)
	}
	return append(out, fresh...)
}

// shift moves the element at i to j.
func shift(list []int32, i, j int) {
	v := list[i]
	if i < j {
		copy(list[i:j], list[i+1:j+1])
	} else {
		copy(list[j+1:i+1], list[j:i])
	}
	list[j] = v
}

type ending struct {
	at   time.Duration
	task int32
}

func (a ending) before(b ending) bool { return a.at < b.at || a.at == b.at && a.task < b.task }

func push(h []ending, e ending) []ending {
	h = append(h, e)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].before(h[i]) {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	return h
}

func pop(h []ending) (ending, []ending) {
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top, h
		}
		if c+1 < last && h[c+1].before(h[c]) {
			c++
		}
		if h[i].before(h[c]) {
			return top, h
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
