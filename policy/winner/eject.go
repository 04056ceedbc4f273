package winner

import "math"

// eject improves the winners of a room: a bid that does not fit pushes out those
// who stand in its way, those may come back elsewhere, and what makes matters
// worse is allowed now and then, ever less (annealing). All its dice are its own.
type eject struct {
	m     *room
	rand  uint64
	out   []int32 // jobs pushed out in this move
	mark  []int32 // by job: the move in which it was pushed out
	tick  int32
	back  []int32 // their bids
	order []int32
	steps int64
}

// coolness[i] is how much worse a move may be, in units of the temperature over
// 1024: -ln of evenly spread numbers.
var coolness = func() (c [256]int64) {
	for i := range c {
		c[i] = int64(math.Round(-1024 * math.Log((float64(i)+0.5)/256)))
	}
	return c
}()

func (x *eject) next() uint64 {
	x.rand ^= x.rand << 13
	x.rand ^= x.rand >> 7
	x.rand ^= x.rand << 17
	return x.rand
}

func (x *eject) below(n int) int32 { return int32((x.next() >> 33) * uint64(n) >> 31) }

func (x *eject) use(m *room, seed uint64) {
	x.m = m
	x.rand = mix(seed+0x9e3779b97f4a7c15) | 1
	x.mark = zeroed(x.mark, m.t.jobs())
	x.tick = 0
}

// moveSteps is about how many nodes one move looks at; a budget of moves is spent
// faster where bids are larger.
const moveSteps = 32

// run makes about so many moves from what is in the room, and keeps the best. It
// stops when the goal is reached.
func (x *eject) run(moves int64, hot, cold float64, goal int64, best *result) {
	m := x.m
	t := m.t
	if t.bids() == 0 || moves <= 0 {
		return
	}
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

// move tries to let bid b win.
func (x *eject) move(b int32, warm int64) {
	m := x.m
	t := m.t
	m.steps++ // even where nothing comes of it, so that the search ends
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
	// Who was pushed out looks for another place, the dearest bid first.
	for _, k := range x.out {
		x.place(k)
	}
	if old >= 0 || len(x.out) > 0 {
		// Somebody may fit where the old winners stood: look at a few at random.
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
	// Looking at others may have moved cores: a bid that is not rigid asks again.
	if found >= 0 && (t.kind[found] == rigid && !m.exact || m.fits(found)) {
		m.add(found)
	}
}

func (x *eject) pushOut() {
	for _, k := range x.out {
		x.m.remove(x.m.won[k])
	}
}

// inTheWay finds winners to push out so that rigid bid b fits, cheapest first on
// each node; false where they are worth more than allowed.
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
					continue // it has no GPU to give
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

// force lets bid b win where cores can move or nodes can be chosen: it pushes
// winners off its nodes, one after the other, until it fits. What was done is
// undone where they are worth more than allowed.
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
	// Back to what was. A flexible or slack winner may now stand elsewhere, and once
	// in a while finds no place: that is one more move made, not a mistake.
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

// victim is a winner in the way of bid b: on the node where it is shortest, the
// one of least value.
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
	// Each node could serve, but not with all the cores: anybody on them.
	for e := t.first[b]; e < t.first[b+1]; e++ {
		look(t.spot[e], false)
	}
	return found
}

// refill lets everybody who still fits win, best first.
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
