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
	width   int32 // nodes; cores where they are spread
	devices int32 // remote ones
	run     time.Duration
	// cost is the node time that the task takes from others, by its price, times
	// its run: where it is small, waiting is to be short.
	cost float64
	// free tasks fit beside the others for nothing.
	free bool
	// strict tasks must be in one block.
	strict bool
	// first tasks are planned before all others, in their order.
	first bool
}

// problem is what a plan is made for.
type problem struct {
	needs []need
	tasks []task
	worth *prices.Table
	now   timeline // what is free, and will be when the running jobs end
	// balance says in per cent how much the end of all counts against waiting.
	balance int64
	// patience says in per cent of its run how much later a task may start for being in
	// one block; negative: it always is.
	patience int64
	meanRun  time.Duration
}

// answer says when and where tasks run.
type answer struct {
	start  []time.Duration // negative: it has no place
	pieces [][]piece
}

func (a *answer) size(n int) {
	a.start = slices.Grow(a.start[:0], n)[:n]
	for len(a.pieces) < n {
		a.pieces = append(a.pieces, nil)
	}
}

// searcher looks for good plans; it keeps its memory.
type searcher struct {
	*problem
	base []seg // what will be free in the end

	// Of planning backwards: back.start is how long before the end of all a task ends.
	back      answer
	b, future board
	ends      []ending // of what runs, a heap
	late      []ending
	waiting   []int32
	misfit    []int32 // by kind: the smallest width that does not fit now
	behind    timeline

	// Of plans read the right way: the best, another, and what the latest leaves.
	best, try answer
	line      timeline
}

// solve leaves a plan in s.best. ranks is by task its place in the order of an
// earlier plan, negative where it had none; solve leaves those of this one there.
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
			s.best.start[i], s.try.start[i] = -1, -1 // not while something that is not modelled is in its way
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
	// The same order from the beginning may wait less, but is mostly longer.
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

// alone does what solve would for the only task that waits, if it fits now, on
// s.b: what runs only gives back, so that it fits for as long as it runs.
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

// begin starts a plan with those that must come first.
func (s *searcher) begin(a *answer, first []int32) {
	s.line.copyFrom(&s.now)
	for _, id := range first {
		s.insert(a, id)
	}
}

// insert gives a task the earliest place in the line of a plan.
func (s *searcher) insert(a *answer, id int32) {
	t := &s.tasks[id]
	n := &s.needs[t.kind]
	a.start[id], a.pieces[id] = s.line.insert(n, t, s.worth, a.pieces[id])
	if s.patience < 0 || t.strict || a.start[id] < 0 {
		return
	}
	// In several blocks, if one is too long in coming.
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

// join makes one number of waits and a length.
func (s *searcher) join(waits *total, length time.Duration) int64 {
	mean := waits.over(len(s.tasks)) / 256
	return (100-s.balance)*mean + s.balance*int64(length/time.Millisecond)
}

// fillIn adds the tasks that fit beside the others to the plan made backwards.
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

// mirror reads the plan made backwards the right way, behind all that runs and
// all that must come first; and then moves its tasks, those that start first
// before the others, to the earliest place that there is now. None starts later than it
// did, so the plan gets no longer by that.
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

// backwards fills an idle cluster: tasks in the given order whenever they fit,
// where the first that does not is not delayed by those behind it.
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

// price is the cost of a wait: half of it counts as it is, half against the
// run time, as slowdown does, but no more than 16 times. In 1/512 of a millisecond.
func (s *searcher) price(t *task, wait time.Duration) int64 {
	ratio := 256 * s.meanRun / max(t.run, s.meanRun/16, 1)
	return int64(wait/time.Millisecond) * (256 + int64(ratio))
}

// costOf joins waiting and the end of all, as planned backwards, into one number.
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

// total is a sum of numbers that are not negative. That of thousands of waits of
// years does not fit into 64 bits; their mean does.
type total struct{ high, low uint64 }

func (t *total) add(x int64) {
	var carry uint64
	t.low, carry = bits.Add64(t.low, uint64(x), 0)
	t.high += carry
}

// over is the total of n numbers by n, or by more.
func (t *total) over(n int) int64 {
	mean, _ := bits.Div64(t.high, t.low, uint64(n))
	return int64(mean)
}

// portion is x times part by whole, where part is not more than whole.
func portion(x int64, part, whole int) int64 {
	high, low := bits.Mul64(uint64(x), uint64(part))
	out, _ := bits.Div64(high, low, uint64(whole))
	return int64(out)
}

// improve plans tasks backwards, in the given order or in that of an earlier plan;
// changes the order a little, trials times; and returns the best order, with its
// plan in s.back. At first it also goes on from what is a little worse.
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

// again is the order of an earlier plan, with each new task before the first one
// that costs less; nil if there was none.
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
