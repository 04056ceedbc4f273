package winner

import "slices"

// room is the current winners of a part, and what they leave free. All heuristics work on it: fits
// asks whether a bid can win too, add and remove change the winners.
type room struct {
	t     *part
	cores []int32 // free, by node
	gpus  []int32
	won   []int32 // by job: its winning bid, or -1
	value int64   // the sum of the winners' values
	// give has, by position in part.spot, the cores that the bid gets there when it wins. For a
	// rigid bid this is always part.low. For the others fits writes it just before add; it is valid
	// while the bid wins.
	give []int32
	// The winners on node n are slot[slotFirst[n]:][:slots[n]], as positions in part.spot. Each
	// takes at least one core, so a node needs no more slots than it has cores.
	slotFirst []int32
	slots     []int32
	slot      []int32
	flexibles int // flexible winners: squeeze can move their cores
	// exact makes fits try to move cores of flexible winners (squeeze), which costs time. Without
	// it fits may say no to a bid that would fit; a yes is always right.
	exact bool

	pick   []int32  // fitsSlack: the nodes that could serve
	via    []int32  // moveFrom, by node: the position through which it was reached, -1 if it was not
	origin []int32  // and the position of the same bid on the node before
	queue  []int32  // moveFrom: the nodes reached, in order
	want   []int32  // squeeze, by node: the cores that the new bid needs there
	dead   []uint32 // by node: equal to turn if no core can move away from it in this squeeze
	turn   uint32   // the number of the current squeeze
	steps  int64    // nodes looked at, about
}

// use empties the room and gives it the shape of the part.
func (m *room) use(t *part) {
	m.t = t
	m.cores = append(m.cores[:0], t.cores...)
	m.gpus = append(m.gpus[:0], t.gpus...)
	m.won = zeroed(m.won, t.jobs())
	for j := range m.won {
		m.won[j] = -1
	}
	m.value = 0
	m.flexibles = 0
	m.exact = true
	m.give = append(m.give[:0], t.low...)
	m.slotFirst = zeroed(m.slotFirst, t.nodes()+1)
	m.slots = zeroed(m.slots, t.nodes())
	for n := range t.nodes() {
		m.slotFirst[n+1] = m.slotFirst[n] + min(t.cores[n], t.atFirst[n+1]-t.atFirst[n])
	}
	m.slot = zeroed(m.slot, int(m.slotFirst[t.nodes()]))
	if t.loose {
		m.via, m.origin = zeroed(m.via, t.nodes()), zeroed(m.origin, t.nodes())
		m.want = zeroed(m.want, t.nodes())
		m.dead, m.turn = zeroed(m.dead, t.nodes()), 0
		for i := range m.via {
			m.via[i] = -1
		}
	}
}

// clear removes all winners.
func (m *room) clear() {
	copy(m.cores, m.t.cores)
	copy(m.gpus, m.t.gpus)
	for j := range m.won {
		m.won[j] = -1
	}
	m.value, m.flexibles = 0, 0
	clear(m.slots)
}

// fits says whether the bid can be added now. For a bid that is not rigid it chooses nodes and
// cores and leaves them in give, for add. It may move cores of flexible winners between their
// nodes, even if the answer is no; they keep their nodes and totals.
func (m *room) fits(b int32) bool {
	t := m.t
	m.steps += 4
	switch t.kind[b] {
	case rigid:
		g := t.ngpu[b]
		short := false
		for e := t.first[b]; e < t.first[b+1]; e++ {
			n := t.spot[e]
			if m.gpus[n] < g {
				return false
			}
			if m.cores[n] < t.low[e] {
				if m.flexibles == 0 || !m.exact {
					return false
				}
				short = true
			}
		}
		return !short || m.squeeze(b)
	case flexible:
		return m.fitsFlexible(b)
	default:
		return m.fitsSlack(b)
	}
}

// fitsFlexible gives the bid its least cores on each of its nodes, and the rest to the first nodes
// with free cores.
func (m *room) fitsFlexible(b int32) bool {
	t := m.t
	from, to := t.first[b], t.first[b+1]
	rest := t.total[b]
	short := false
	m.steps += int64(to - from)
	for e := from; e < to; e++ {
		n := t.spot[e]
		if m.gpus[n] < t.ngpu[b] {
			return false
		}
		short = short || m.cores[n] < t.low[e]
		m.give[e] = t.low[e]
		rest -= t.low[e]
	}
	for e := from; e < to && rest > 0 && !short; e++ {
		more := min(rest, m.cores[t.spot[e]]-m.give[e])
		m.give[e] += more
		rest -= more
	}
	if !short && rest == 0 {
		return true
	}
	if m.flexibles == 0 || !m.exact {
		return false
	}
	return m.squeeze(b)
}

// fitsSlack chooses the nodes with the least room that can serve the bid (best fit), so that roomy
// nodes stay free for bids that need them.
func (m *room) fitsSlack(b int32) bool {
	t := m.t
	from, to := t.first[b], t.first[b+1]
	need := max(t.per[b], 1)
	m.steps += 4 * int64(to-from)
	m.pick = m.pick[:0]
	for e := from; e < to; e++ {
		m.give[e] = 0
		if n := t.spot[e]; m.cores[n] >= need && m.gpus[n] >= t.ngpu[b] {
			m.pick = append(m.pick, e)
		}
	}
	count := int(t.count[b])
	if len(m.pick) < count {
		return false
	}
	slices.SortFunc(m.pick, func(x, y int32) int {
		a, c := t.spot[x], t.spot[y]
		if d := m.gpus[a] - m.gpus[c]; d != 0 && t.per[b] > 0 {
			return int(d)
		}
		if d := m.cores[a] - m.cores[c]; d != 0 {
			return int(d)
		}
		return int(x - y)
	})
	if t.per[b] > 0 {
		for _, e := range m.pick[:count] {
			m.give[e] = t.per[b]
		}
		return true
	}
	// The nodes are sorted by free cores: take the first window of count nodes that has enough.
	var sum int64
	for i, e := range m.pick {
		sum += int64(m.cores[t.spot[e]])
		if i >= count {
			sum -= int64(m.cores[t.spot[m.pick[i-count]]])
		}
		if i >= count-1 && sum >= int64(t.total[b]) {
			rest := t.total[b] - t.count[b]
			for _, e := range m.pick[i-count+1 : i+1] {
				more := min(rest, m.cores[t.spot[e]]-1)
				m.give[e] = 1 + more
				rest -= more
			}
			return true
		}
	}
	return false
}

// squeeze moves cores of flexible winners between their nodes until bid b fits beside them, and
// says whether that is possible. It is a maximum flow: nodes that are short are sources, nodes with
// spare cores are sinks, and a flexible winner is an edge between any two of its nodes, with what
// it has above its lower limit as capacity. All winners keep their totals and lower limits. If it
// fails, the moves made so far stay, and the winners are still valid.
func (m *room) squeeze(b int32) bool {
	t := m.t
	from, to := t.first[b], t.first[b+1]
	rest := int32(0)
	if t.kind[b] == flexible {
		rest = t.total[b]
	}
	m.turn++
	for e := from; e < to; e++ {
		m.give[e] = t.low[e]
		m.want[t.spot[e]] = t.low[e]
		rest -= t.low[e]
	}
	ok := true
	for e := from; e < to && ok; e++ {
		n := t.spot[e]
		for m.cores[n] < m.want[n] && ok {
			ok = m.moveFrom(n, m.want[n]-m.cores[n])
		}
	}
	if t.kind[b] == flexible && ok && rest > 0 {
		// The rest above the lower limits: on nodes with free cores, or after moving cores away.
		for again := true; again && rest > 0; {
			again = false
			for e := from; e < to && rest > 0; e++ {
				n := t.spot[e]
				if m.cores[n] <= m.want[n] && !m.moveFrom(n, rest) {
					continue
				}
				more := min(rest, m.cores[n]-m.want[n])
				m.give[e] += more
				m.want[n] += more
				rest -= more
				again = true
			}
		}
		ok = rest == 0
	}
	for e := from; e < to; e++ {
		m.want[t.spot[e]] = 0
	}
	return ok
}

// moveFrom moves between 1 and limit cores off node n, along flexible winners, to a node with more
// free cores than the new bid needs there. It searches breadth first, so it finds a path if one
// exists. If none exists, all nodes that it reached are dead until the squeeze is over: later
// searches skip them, so that no later path changes what the winners on them could give up, and no
// way out of the set can open.
func (m *room) moveFrom(n, limit int32) bool {
	if m.dead[n] == m.turn {
		return false
	}
	t := m.t
	m.queue = append(m.queue[:0], n)
	m.via[n] = -2 // the start: reached, by no position
	found := int32(-1)
search:
	for head := 0; head < len(m.queue); head++ {
		at := m.queue[head]
		for _, e := range m.slot[m.slotFirst[at]:][:m.slots[at]] {
			b := t.bidOf[e]
			if t.kind[b] != flexible || m.give[e] <= t.low[e] {
				continue
			}
			m.steps += int64(t.first[b+1] - t.first[b])
			for f := t.first[b]; f < t.first[b+1]; f++ {
				to := t.spot[f]
				if m.via[to] != -1 || m.dead[to] == m.turn {
					continue
				}
				m.via[to], m.origin[to] = f, e
				m.queue = append(m.queue, to)
				if m.cores[to] > m.want[to] {
					found = to
					break search
				}
			}
		}
	}
	if found >= 0 {
		m.push(n, found, min(limit, m.cores[found]-m.want[found]))
	}
	for _, at := range m.queue {
		m.via[at] = -1
		if found < 0 {
			m.dead[at] = m.turn
		}
	}
	return found >= 0
}

// push moves up to amount cores along the path that moveFrom found. Each winner on it gives up
// cores on one node and gets as many on the next; the smallest reserve on the path limits the
// amount.
func (m *room) push(n, to, amount int32) {
	t := m.t
	for at := to; at != n; at = t.spot[m.origin[at]] {
		e := m.origin[at]
		amount = min(amount, m.give[e]-t.low[e])
	}
	for at := to; at != n; at = t.spot[m.origin[at]] {
		m.give[m.via[at]] += amount
		m.give[m.origin[at]] -= amount
	}
	m.cores[to] -= amount
	m.cores[n] += amount
}

// add lets the bid win. fits must have said yes to this bid just before, and its job must not have
// won.
func (m *room) add(b int32) {
	t := m.t
	m.steps += int64(t.first[b+1] - t.first[b])
	g := t.ngpu[b]
	for e := t.first[b]; e < t.first[b+1]; e++ {
		c := m.give[e]
		if c == 0 {
			continue
		}
		n := t.spot[e]
		m.cores[n] -= c
		m.gpus[n] -= g
		m.slot[m.slotFirst[n]+m.slots[n]] = e
		m.slots[n]++
	}
	if t.kind[b] == flexible {
		m.flexibles++
	}
	m.won[t.jobOf[b]] = b
	m.value += t.value[b]
}

// remove takes the win back.
func (m *room) remove(b int32) {
	t := m.t
	m.steps += int64(t.first[b+1] - t.first[b])
	g := t.ngpu[b]
	for e := t.first[b]; e < t.first[b+1]; e++ {
		c := m.give[e]
		if c == 0 {
			continue
		}
		n := t.spot[e]
		m.cores[n] += c
		m.gpus[n] += g
		from := m.slotFirst[n]
		m.slots[n]--
		last := from + m.slots[n]
		for i := from; i < last; i++ {
			if m.slot[i] == e {
				m.slot[i] = m.slot[last]
				break
			}
		}
	}
	if t.kind[b] == flexible {
		m.flexibles--
	}
	m.won[t.jobOf[b]] = -1
	m.value -= t.value[b]
}

// fill adds the bids in the given order, skipping those that do not fit and those whose job has
// won.
func (m *room) fill(order []int32) {
	for _, b := range order {
		if m.won[m.t.jobOf[b]] < 0 && m.fits(b) {
			m.add(b)
		}
	}
}

// holds says whether the bids can all win together, and if so leaves them as winners of the room.
// Rigid bids come first, then flexible ones, for which squeeze decides exactly. For a slack bid a
// no only means that the nodes tried did not work: sure is false then.
func (m *room) holds(bids []int32) (ok, sure bool) {
	m.clear()
	m.exact = true
	for kind := rigid; kind <= slack; kind++ {
		for _, b := range bids {
			if m.t.kind[b] != kind {
				continue
			}
			if m.won[m.t.jobOf[b]] >= 0 {
				return false, true
			}
			if !m.fits(b) {
				return false, kind != slack
			}
			m.add(b)
		}
	}
	return true, true
}

// result is a copy of the winners of a room: the winning bids and what each gets.
type result struct {
	value int64
	bids  []int32
	give  []int32 // by position, for the bids one after the other
}

func (s *result) keep(m *room) {
	s.value = m.value
	s.bids, s.give = s.bids[:0], s.give[:0]
	for _, b := range m.won {
		if b >= 0 {
			s.bids = append(s.bids, b)
			s.give = append(s.give, m.give[m.t.first[b]:m.t.first[b+1]]...)
		}
	}
}

// restore gives the room the winners that it had when the result was kept. The positions of a slack
// bid that it does not use have a give of 0, which add skips.
func (s *result) restore(m *room) {
	m.clear()
	at := 0
	for _, b := range s.bids {
		at += copy(m.give[m.t.first[b]:m.t.first[b+1]], s.give[at:])
		m.add(b)
	}
}
