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
	// cost is the node time that the task takes from others, by its price, times
	// its run: small ones of it wait least.
	cost float64
	// free tasks fit beside the others for nothing.
	free bool
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
	meanRun time.Duration
}

// answer says when and where tasks run, and what that costs.
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
	ends      []ending // of what runs, a heap
	late      []ending
	waiting   []int32
	misfit    []int32 // by kind: the smallest width that does not fit now
	// back is a plan read backwards: start is how long before the end of all a task ends.
	back answer
	line timeline

	best, try answer
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

// solve leaves the best plan that it finds in s.best. before is an earlier
// plan's idea of when tasks start, by task; negative where it had none.
func (s *searcher) solve(before []time.Duration, trials int, seed, stream uint64) {
	order := s.mirrored()
	s.forwards(order, &s.best)
	if known := s.again(before); known != nil {
		if s.forwards(known, &s.try); s.try.cost < s.best.cost {
			s.keep()
			order = known
		}
	}
	if trials > 0 {
		s.improve(order, trials, rand.New(rand.NewPCG(seed, stream)))
	}
}

func (s *searcher) keep() { s.best, s.try = s.try, s.best }

// again is the order of an earlier plan, with new tasks where the plan in s.best
// has them; nil if there was none.
func (s *searcher) again(before []time.Duration) []int32 {
	if !slices.ContainsFunc(before, func(t time.Duration) bool { return t >= 0 }) {
		return nil
	}
	order := make([]int32, len(s.tasks))
	for i := range order {
		order[i] = int32(i)
	}
	begins := func(id int32) time.Duration {
		if before[id] >= 0 {
			return before[id]
		}
		return s.best.start[id]
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(begins(a), begins(b)) })
	s.putFirst(order)
	return order
}

// putFirst moves those that must come first to the front, in order of submission.
func (s *searcher) putFirst(order []int32) {
	slices.SortStableFunc(order, func(a, b int32) int {
		x, y := s.tasks[a].first, s.tasks[b].first
		switch {
		case x && y:
			return cmp.Compare(a, b)
		case x:
			return -1
		case y:
			return 1
		}
		return 0
	})
}

// mirrored plans backwards from the end of all, costly tasks first, and returns
// the order in which tasks start when that is read the right way: first those that
// have a price, then those that fit beside them.
func (s *searcher) mirrored() []int32 {
	var order, free []int32
	for i := range s.tasks {
		if s.tasks[i].free {
			free = append(free, int32(i))
		} else {
			order = append(order, int32(i))
		}
	}
	costly := func(a, b int32) int { return cmp.Compare(s.tasks[b].cost, s.tasks[a].cost) }
	slices.SortStableFunc(order, costly)
	slices.SortStableFunc(free, costly)
	s.backwards(order)

	s.line.reset(0, s.idle)
	for _, id := range order {
		s.line.hold(s.back.pieces[id], s.back.start[id], s.back.start[id]+s.tasks[id].run)
	}
	for _, id := range free {
		t := &s.tasks[id]
		s.back.start[id], s.back.pieces[id] = s.line.insert(&s.needs[t.kind], t, s.worth, s.back.pieces[id])
	}
	// What ends last backwards starts first.
	begins := func(id int32) time.Duration { return -s.back.start[id] - s.tasks[id].run }
	early := func(a, b int32) int { return cmp.Compare(begins(a), begins(b)) }
	slices.SortStableFunc(order, early)
	slices.SortStableFunc(free, early)
	order = append(order, free...)
	s.putFirst(order)
	return order
}

// backwards fills an idle cluster: tasks in the given order whenever they fit,
// where the first that does not is not delayed by those behind it.
func (s *searcher) backwards(order []int32) {
	s.b.segs = append(s.b.segs[:0], s.idle...)
	s.ends = s.ends[:0]
	s.waiting = append(s.waiting[:0], order...)
	s.misfit = slices.Grow(s.misfit[:0], len(s.needs))[:len(s.needs)]
	s.back.size(len(s.tasks))
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

// forwards plans tasks one by one, each as early as it fits beside those before it.
func (s *searcher) forwards(order []int32, a *answer) {
	a.size(len(s.tasks))
	s.line.copyFrom(&s.now)
	now := s.now.at[0]
	end, waits := time.Duration(0), int64(0)
	for _, id := range order {
		t := &s.tasks[id]
		a.start[id], a.pieces[id] = s.line.insert(&s.needs[t.kind], t, s.worth, a.pieces[id])
		if a.start[id] >= 0 {
			wait := a.start[id] - now
			end = max(end, wait+t.run)
			waits += s.price(t, wait)
		}
	}
	a.cost = s.weigh(waits, end)
}

// price is the cost of a wait: half of it counts as it is, half against the
// run time, as slowdown does. In 1/512 of a millisecond, so that sums fit.
func (s *searcher) price(t *task, wait time.Duration) int64 {
	ratio := 256 * s.meanRun / max(t.run, s.meanRun/16, 1)
	return int64(wait/time.Millisecond) * (256 + int64(ratio))
}

// weigh joins waiting and the end of all into one cost.
func (s *searcher) weigh(waits int64, end time.Duration) int64 {
	mean := waits / int64(len(s.tasks)) / 256
	return (100-s.balance)*mean + s.balance*int64(end/time.Millisecond)
}

// improve moves tasks in the order, trials times, and keeps what is not worse.
func (s *searcher) improve(order []int32, trials int, rng *rand.Rand) {
	first := 0
	for first < len(order) && s.tasks[order[first]].first {
		first++ // they stay where they are
	}
	order = slices.Clone(order)
	move := order[first:]
	n := len(move)
	if n < 2 {
		return
	}
	reach := max(1, n/10)
	for range trials {
		i := rng.IntN(n)
		j := min(n-1, max(0, i+rng.IntN(2*reach+1)-reach))
		swap := rng.IntN(2) == 0
		if swap {
			move[i], move[j] = move[j], move[i]
		} else {
			shift(move, i, j)
		}
		switch s.forwards(order, &s.try); {
		case s.try.cost <= s.best.cost:
			s.keep()
		case swap:
			move[i], move[j] = move[j], move[i]
		default:
			shift(move, j, i)
		}
	}
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
