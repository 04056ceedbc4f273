package winner

import "slices"

// room is who has won so far on the nodes of a part, and what is left there.
type room struct {
	t     *part
	cores []int32 // left, by node
	gpus  []int32
	won   []int32 // by job: its bid, or -1
	value int64
	// give is beside part.spot: the cores that the bid gets there when it wins.
	// Rigid bids have one way; the others get theirs when they are placed.
	give []int32
	// The winners on node n stand in slot[slotFirst[n]:][:slots[n]], as positions
	// in part.spot.
	slotFirst []int32
	slots     []int32
	slot      []int32
	flexibles int // winners whose cores could move
	// exact lets flexible winners move cores for others. It costs time; without it
	// a no may be wrong, never a yes.
	exact bool

	pick   []int32 // for choosing nodes
	via    []int32 // for moving cores: the position by which a node was reached
	origin []int32 // and the position on the node before
	queue  []int32
	want   []int32
	dead   []uint32 // nodes whose cores cannot move away, where it is turn
	turn   uint32
	steps  int64 // nodes looked at, about
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

// clear lets nobody have won.
func (m *room) clear() {
	copy(m.cores, m.t.cores)
	copy(m.gpus, m.t.gpus)
	for j := range m.won {
		m.won[j] = -1
	}
	m.value, m.flexibles = 0, 0
	clear(m.slots)
}

// fits says whether the bid can be added now. For a bid that is not rigid it
// chooses nodes and cores; winners that are flexible may have to move cores,
// which changes nothing for them.
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

// fitsFlexible gives the bid one core on each of its nodes and spreads the rest.
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

// fitsSlack chooses the nodes that are the tightest fit.
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
	// The first run of nodes, from small to large, that has the cores.
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

// squeeze moves cores of flexible winners between their nodes until bid b fits
// beside them, and says whether that can be done at all. It is a flow: what is
// short on one node moves along winners until it meets a node with cores to
// spare. All winners keep what they have in sum.
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
		// What is wanted above the least: first where it is free, then where it can
		// be made free.
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

// moveFrom takes up to limit cores off node n, at least one, by moving them along flexible
// winners to a node that has more than is wanted of it. Breadth first, so that
// it finds a way if there is one. Where there is none, there is none for any node that was
// reached, until the squeeze is over: no way out of them can open, as ways
// that are used never pass them.
func (m *room) moveFrom(n, limit int32) bool {
	if m.dead[n] == m.turn {
		return false
	}
	t := m.t
	m.queue = append(m.queue[:0], n)
	m.via[n] = -2
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

// push moves cores along the way that moveFrom found, as many as all steps allow.
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

// add lets the bid win; fits must have said yes just before.
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

// remove takes the win away again.
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

// fill adds bids in the order given, where they still fit and their job has not
// won.
func (m *room) fill(order []int32) {
	for _, b := range order {
		if m.won[m.t.jobOf[b]] < 0 && m.fits(b) {
			m.add(b)
		}
	}
}

// holds says whether the bids can all win together, and lets them. Rigid bids
// come first and flexible ones then make room exactly; with slack bids a no is
// only that the choice of nodes that was tried did not work: then sure is
// false.
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

// result is the winners of a room, kept: the winning bids with what each gets.
type result struct {
	value int64
	bids  []int32
	give  []int32 // beside the spots of the bids, one after the other
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

// restore makes the room what it was when the result was kept.
func (s *result) restore(m *room) {
	m.clear()
	at := 0
	for _, b := range s.bids {
		at += copy(m.give[m.t.first[b]:m.t.first[b+1]], s.give[at:])
		m.add(b)
	}
}
