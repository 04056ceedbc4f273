package mosaic

import (
	"cmp"
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
	// area is the node time that the task takes from others: its price.
	area int64
	// first tasks are planned before all others, in their order.
	first bool
}

// problem is what a plan is made for.
type problem struct {
	needs []need
	tasks []task
	worth *prices.Table
	idle  []seg    // the cluster with nothing on it
	now   timeline // what is free, and will be when the running jobs end
	// balance says in per cent how much the end of all counts against waiting.
	balance int64
}

// answer says when and where tasks run.
type answer struct {
	start  []time.Duration // negative: it has no place
	pieces [][]piece
	cost   int64
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
	b, future board
	ends      []ending
	late      []ending
	waiting   []int32
	misfit    []int32 // by kind: the smallest width that does not fit now
	back      answer
	line      timeline
	scratch   []piece
	meanRun   time.Duration
	latest    time.Duration // end of all in back
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

// backwards fills an idle cluster from the end of all towards now: tasks in the
// given order whenever they fit, where the first that does not is not delayed
// by those behind it. s.back.start is how long before the end of all a task
// ends, s.latest how long it all takes.
func (s *searcher) backwards(order []int32) {
	s.b.segs = append(s.b.segs[:0], s.idle...)
	s.ends = s.ends[:0]
	s.waiting = append(s.waiting[:0], order...)
	s.misfit = slices.Grow(s.misfit[:0], len(s.needs))[:len(s.needs)]
	s.back.size(len(s.tasks))
	s.latest = 0
	now := time.Duration(0)
	for {
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
					s.latest = max(s.latest, now+t.run)
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
		if s.waiting = s.waiting[:keep]; keep == 0 || len(s.ends) == 0 {
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
// run time, as slowdown does. In 1/512 of a millisecond, so that sums fit.
func (s *searcher) price(t *task, wait time.Duration) int64 {
	ratio := 256 * s.meanRun / max(t.run, s.meanRun/16, 1)
	return int64(wait/time.Millisecond) * (256 + int64(ratio))
}

// weigh joins waiting and the end of all into one cost.
func (s *searcher) weigh(prices int64, tasks int, end time.Duration) int64 {
	return (100-s.balance)*(prices/int64(max(1, tasks)))/256 + s.balance*int64(end/time.Millisecond)
}

// costBackwards is the cost of the tasks of order as planned backwards.
func (s *searcher) costBackwards(order []int32) int64 {
	sum := int64(0)
	for _, id := range order {
		sum += s.price(&s.tasks[id], s.latest-s.back.start[id]-s.tasks[id].run)
	}
	return s.weigh(sum, len(order), s.latest)
}

// improve changes the order a little, trials times, and keeps what is better,
// or, in the beginning, not much worse. It returns the best order.
func (s *searcher) improve(order []int32, trials int, rng *rand.Rand) []int32 {
	s.backwards(order)
	now := s.costBackwards(order)
	best, least := slices.Clone(order), now
	if len(order) < 2 {
		return best
	}
	work := slices.Clone(order)
	for k := range trials {
		slack := least / 100 * int64(trials-k) / int64(trials)
		i, j, swap := rng.IntN(len(work)), rng.IntN(len(work)), rng.IntN(2) == 0
		if swap {
			work[i], work[j] = work[j], work[i]
		} else {
			shift(work, i, j)
		}
		s.backwards(work)
		c := s.costBackwards(work)
		switch {
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
	return best
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

// forwards plans tasks one by one, each as early as it fits beside those before it.
func (s *searcher) forwards(order []int32, a *answer) {
	a.size(len(s.tasks))
	s.line.copyFrom(&s.now)
	now := s.now.at[0]
	end, sum := time.Duration(0), int64(0)
	for _, id := range order {
		t := &s.tasks[id]
		a.start[id], a.pieces[id] = s.line.insert(&s.needs[t.kind], t, s.worth, a.pieces[id])
		if a.start[id] >= 0 {
			wait := a.start[id] - now
			end = max(end, wait+t.run)
			sum += s.price(t, wait)
		}
	}
	a.cost = s.weigh(sum, len(order), end)
}

// mirrored is the order in which tasks start when the plan made backwards is
// read the right way: first those that must come first, then the priced ones,
// then those that fit beside them.
func (s *searcher) mirrored(order []int32, rest []int32) []int32 {
	s.backwards(order)
	out := slices.Clone(order)
	begins := func(id int32) time.Duration { return s.latest - s.back.start[id] - s.tasks[id].run }
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(begins(a), begins(b)) })
	out = append(out, rest...)
	slices.SortStableFunc(out, func(a, b int32) int {
		switch x, y := s.tasks[a].first, s.tasks[b].first; {
		case x && !y:
			return -1
		case y && !x:
			return 1
		case x && y:
			return cmp.Compare(a, b)
		}
		return 0
	})
	return out
}
