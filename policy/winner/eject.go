package winner

import "math"

// eject improves the winners of a room by local search. A move lets a random
// bid win: it pushes out the winners in its way, and their jobs may win again
// with other bids. A move that loses value is accepted with a probability that
// falls over time (simulated annealing). The random numbers come from its own
// generator, so that a run depends on the seed only.
type eject struct {
	m     *room
	rand  uint64
	out   []int32 // jobs that this move has pushed out
	mark  []int32 // by job: the tick of the last move that pushed it out
	tick  int32
	back  []int32 // the bids with which they had won, for force to undo
	order []int32
	steps int64
}

// coolness[i] is the loss of value that a move may cause, in 1/1024 of the
// temperature: -ln(u) for 256 evenly spread u. To accept a loss up to -T ln(u),
// with u drawn at random, is the Metropolis rule; a table of integers gives the
// same result on any machine.
var coolness = func() (c [256]int64) {
	for i := range c {
		c[i] = int64(math.Round(-1024 * math.Log((float64(i)+0.5)/256)))
	}
	return c
}()

// next is Marsaglia's xorshift generator; use makes its state odd, since 0
// would stay 0.
func (x *eject) next() uint64 {
	x.rand ^= x.rand << 13
	x.rand ^= x.rand >> 7
	x.rand ^= x.rand << 17
	return x.rand
}

// below is a random number from 0 to n-1.
func (x *eject) below(n int) int32 { return int32((x.next() >> 33) * uint64(n) >> 31) }

func (x *eject) use(m *room, seed uint64) {
	x.m = m
	x.rand = mix(seed+0x9e3779b97f4a7c15) | 1
	x.mark = zeroed(x.mark, m.t.jobs())
	x.tick = 0
}

// moveSteps is about how many nodes one move looks at. Budgets are in moves but
// are counted in nodes, so that a budget buys fewer moves where bids are
// larger.
const moveSteps = 32

// run makes about the given number of moves from the winners in the room, and
// keeps the best winners it sees. The temperature falls from hot to cold in 64
// stretches, by the same factor each. It stops when the best value reaches the
// goal.
func (x *eject) run(moves int64, hot, cold float64, goal int64, best *result) {
	m := x.m
	t := m.t
	if t.bids() == 0 || moves <= 0 {
		return
	}
	// Moving cores of flexible winners costs too much for every move; refill
	// makes up for it where the winners are the best so far.
	m.exact = false
	heat := hot
	const stretches = 64
	factor := math.Pow(cold/hot, 1.0/stretches)
	start := m.steps
	stretch := max(moves*moveSteps/stretches, 1)
	for k := range int64(stretches) {
		warm := int64(heat)
		for end := start + (k+1)*stretch; m.steps < end; {
			x.steps++
			x.move(x.below(t.bids()), warm)
			if m.value > best.value {
				x.refill()
				best.keep(m)
				if best.value >= goal {
					return
				}
			}
		}
		heat *= factor
	}
}

// move tries to let bid b win, with the winners that it pushes out worth no
// more than b's value and what the temperature allows.
func (x *eject) move(b int32, warm int64) {
	m := x.m
	t := m.t
	m.steps++ // counted even if the move does nothing, so that run ends
	j := t.jobOf[b]
	old := m.won[j]
	if old == b {
		return
	}
	allowed := t.value[b] + warm*coolness[x.next()>>56]>>10
	if old >= 0 {
		allowed -= t.value[old]
		if allowed < 0 {
			return
		}
	}
	x.tick++
	x.out = x.out[:0]
	m.steps += 4
	if t.kind[b] == rigid {
		if !x.inTheWay(b, j, allowed) {
			return
		}
		if old >= 0 {
			m.remove(old)
		}
		x.pushOut()
		m.add(b)
	} else if !x.force(b, old, allowed) {
		return
	}
	// Each job that was pushed out wins again with its most valuable bid that
	// fits.
	for _, k := range x.out {
		x.place(k)
	}
	if old >= 0 || len(x.out) > 0 {
		// The nodes of the old winners may have room now: try four random jobs.
		// To try all would cost more than the move.
		for range 4 {
			if k := x.below(t.jobs()); m.won[k] < 0 {
				x.place(k)
			}
		}
	}
}

// place lets the job win with its best bid that fits, if one does.
func (x *eject) place(k int32) {
	m := x.m
	t := m.t
	found := int32(-1)
	for c := t.jobFirst[k]; c < t.jobFirst[k+1]; c++ {
		if (found < 0 || t.value[c] > t.value[found]) && m.fits(c) {
			found = c
		}
	}
	// m.fits writes its choice into m.give and may move cores of winners, so a
	// bid that is not rigid must be asked again after the others were tried.
	if found >= 0 && (t.kind[found] == rigid && !m.exact || m.fits(found)) {
		m.add(found)
	}
}

// pushOut removes the winners that inTheWay has chosen.
func (x *eject) pushOut() {
	for _, k := range x.out {
		x.m.remove(x.m.won[k])
	}
}

// inTheWay finds the winners to push out so that rigid bid b fits, the cheapest
// first on each node, and marks their jobs. It returns false if they are worth
// more than allowed. It changes nothing in the room, so there is nothing to
// undo.
func (x *eject) inTheWay(b, j int32, allowed int64) bool {
	m := x.m
	t := m.t
	g := t.ngpu[b]
	m.steps += int64(t.first[b+1]-t.first[b]) / 2
	for e := t.first[b]; e < t.first[b+1]; e++ {
		n := t.spot[e]
		cores, gpus := m.cores[n]-t.low[e], m.gpus[n]-g
		if cores >= 0 && gpus >= 0 {
			continue
		}
		here := m.slot[m.slotFirst[n]:][:m.slots[n]]
		for _, f := range here {
			c := t.bidOf[f]
			if k := t.jobOf[c]; k == j || x.mark[k] == x.tick {
				cores += m.give[f]
				gpus += t.ngpu[c]
			}
		}
		for cores < 0 || gpus < 0 {
			worst, least := int32(-1), int64(math.MaxInt64)
			for _, f := range here {
				c := t.bidOf[f]
				k := t.jobOf[c]
				if k == j || x.mark[k] == x.tick {
					continue
				}
				if cores >= 0 && t.ngpu[c] == 0 {
					continue // only GPUs are short, and this winner has none here
				}
				if t.value[c] < least {
					worst, least = f, t.value[c]
				}
			}
			if worst < 0 {
				return false
			}
			allowed -= least
			if allowed < 0 {
				return false
			}
			c := t.bidOf[worst]
			x.mark[t.jobOf[c]] = x.tick
			x.out = append(x.out, t.jobOf[c])
			cores += m.give[worst]
			gpus += t.ngpu[c]
		}
	}
	return true
}

// force lets bid b win where cores can move or nodes can be chosen: what is in
// the way is not known beforehand, so it removes one winner after the other
// until b fits. If they are worth more than allowed, it puts them back.
func (x *eject) force(b, old int32, allowed int64) bool {
	m := x.m
	t := m.t
	if old >= 0 {
		m.remove(old)
	}
	x.back = x.back[:0]
	ok := m.fits(b)
	for !ok {
		victim := x.victim(b)
		if victim < 0 {
			break
		}
		allowed -= t.value[victim]
		if allowed < 0 {
			break
		}
		m.remove(victim)
		x.out = append(x.out, t.jobOf[victim])
		x.back = append(x.back, victim)
		ok = m.fits(b)
	}
	if ok {
		m.add(b)
		return true
	}
	// Put back what was removed. A flexible or slack winner may get other cores
	// or nodes than before, and now and then finds no place: then the room has
	// lost a winner, which the search treats as one more move.
	for i := len(x.back) - 1; i >= 0; i-- {
		if m.fits(x.back[i]) {
			m.add(x.back[i])
		}
	}
	if old >= 0 && m.fits(old) {
		m.add(old)
	}
	return false
}

// victim is a winner in the way of bid b: the one of least value on the nodes
// that are too full for b.
func (x *eject) victim(b int32) int32 {
	m := x.m
	t := m.t
	need := max(t.per[b], 1)
	m.steps += 2 * int64(t.first[b+1]-t.first[b])
	found, least := int32(-1), int64(math.MaxInt64)
	look := func(n int32, gpusOnly bool) {
		for _, f := range m.slot[m.slotFirst[n]:][:m.slots[n]] {
			c := t.bidOf[f]
			if v := t.value[c]; v < least && !(gpusOnly && t.ngpu[c] == 0) {
				found, least = c, v
			}
		}
	}
	for e := t.first[b]; e < t.first[b+1]; e++ {
		n := t.spot[e]
		want := need
		if t.kind[b] != slack {
			want = max(t.low[e], 1)
		}
		if m.gpus[n] < t.ngpu[b] || m.cores[n] < want {
			look(n, m.cores[n] >= want)
		}
	}
	if found >= 0 {
		return found
	}
	// Each node has the least that b needs there, but together they lack cores:
	// take the cheapest winner on any of them.
	for e := t.first[b]; e < t.first[b+1]; e++ {
		look(t.spot[e], false)
	}
	return found
}

// refill lets every job that still fits win with its best bid, and moves cores
// of flexible winners for it.
func (x *eject) refill() {
	m := x.m
	m.exact = true
	for k := range m.won {
		if m.won[k] < 0 {
			x.place(int32(k))
		}
	}
	m.exact = false
}
