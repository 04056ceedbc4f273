package winner

import (
	"math"
	"math/bits"
	"slices"
)

// A price for each core and GPU of each node turns the auction into a choice
// for each job by itself: its bid that is worth most above its price. What the
// jobs gain so, and what all that is free would cost, is together at least what
// the best winners are worth, whatever the prices. This file looks for the
// prices that make it least.

// scaleBits is how far values can be scaled up for prices between the whole
// numbers, so that nothing overflows.
func scaleBits(total int64) uint {
	room := 50 - bits.Len64(uint64(total))
	return uint(min(max(room, 0), 20))
}

// priceLimit bounds the integers that prices are rounded to.
const priceLimit = int64(1) << 51

// fixedPrice rounds a price to the scale.
func fixedPrice(price float64, scale uint) int64 {
	f := price * float64(int64(1)<<scale)
	if !(f > 0) {
		return 0
	}
	return int64(min(f+0.5, float64(priceLimit)))
}

// prices looks for good prices by subgradient steps and keeps the best.
type prices struct {
	t         *part
	core, gpu []float64 // by node
	bestCore  []float64
	bestGPU   []float64
	useCore   []float64
	useGPU    []float64
	gain      []float64 // by bid: its value above its price
	chosen    []int32
	best      float64 // the least sum so far

	fixCore, fixGPU []int64
	fixGain         []int64 // by bid, scaled, rounded up
	fixBest         []int64 // by job, never below 0
	scale           uint

	pick  []int32
	order []int32
	steps int64
}

func (q *prices) use(t *part) {
	q.t = t
	n := t.nodes()
	q.core, q.gpu = zeroed(q.core, n), zeroed(q.gpu, n)
	q.bestCore, q.bestGPU = zeroed(q.bestCore, n), zeroed(q.bestGPU, n)
	q.useCore, q.useGPU = zeroed(q.useCore, n), zeroed(q.useGPU, n)
	q.gain = zeroed(q.gain, t.bids())
	q.chosen = zeroed(q.chosen, t.jobs())
	q.fixCore, q.fixGPU = zeroed(q.fixCore, n), zeroed(q.fixGPU, n)
	q.fixGain, q.fixBest = zeroed(q.fixGain, t.bids()), zeroed(q.fixBest, t.jobs())
	q.best = math.Inf(1)
	q.scale = scaleBits(t.bestSum())
}

// cost is the least that the bid must pay. For a slack bid with cores to spread
// it is a little less, which keeps the bound a bound. It visits what the bid
// takes at these prices, if take is given.
func (q *prices) cost(b int32, take func(e int32, cores float64)) float64 {
	t := q.t
	from, to := t.first[b], t.first[b+1]
	g := float64(t.ngpu[b])
	var sum float64
	if t.kind[b] == slack {
		q.pick = q.pick[:0]
		for e := from; e < to; e++ {
			q.pick = append(q.pick, e)
		}
		c := float64(max(t.per[b], 1))
		price := func(e int32) float64 { n := t.spot[e]; return float64(c*q.core[n]) + float64(g*q.gpu[n]) }
		slices.SortFunc(q.pick, func(x, y int32) int {
			switch a, b := price(x), price(y); {
			case a < b:
				return -1
			case a > b:
				return 1
			}
			return int(x - y)
		})
		for _, e := range q.pick[:t.count[b]] {
			sum += price(e)
			if take != nil {
				take(e, c)
			}
		}
		if t.per[b] > 0 {
			return sum
		}
		return sum + q.spread(b, t.total[b]-t.count[b], func(e int32) int32 { return 1 }, take)
	}
	rest := t.total[b]
	for e := from; e < to; e++ {
		n := t.spot[e]
		sum += float64(float64(t.low[e])*q.core[n]) + float64(g*q.gpu[n])
		rest -= t.low[e]
		if take != nil {
			take(e, float64(t.low[e]))
		}
	}
	if t.kind[b] == flexible {
		sum += q.spread(b, rest, func(e int32) int32 { return t.low[e] }, take)
	}
	return sum
}

// spread puts the rest of a bid's cores on its cheapest nodes, above what it has
// there already.
func (q *prices) spread(b, rest int32, have func(e int32) int32, take func(e int32, cores float64)) (sum float64) {
	t := q.t
	var room int64
	for e := t.first[b]; e < t.first[b+1]; e++ {
		room += int64(t.cores[t.spot[e]] - have(e))
	}
	if spare := room - int64(rest); spare < int64(rest) {
		// Nearly all cores: take all, and give the dearest back.
		for e := t.first[b]; e < t.first[b+1]; e++ {
			more := t.cores[t.spot[e]] - have(e)
			sum += float64(float64(more) * q.core[t.spot[e]])
			if take != nil {
				take(e, float64(more))
			}
		}
		return sum - q.pickBy(b, int32(spare), -1, have, take)
	}
	return q.pickBy(b, rest, 1, have, take)
}

// pickBy takes the cores that are cheapest, or with sign -1 those that are
// dearest, and returns what they cost. Mostly they are on a few nodes: looking
// for the next is faster than sorting all, up to a point.
func (q *prices) pickBy(b, rest int32, sign float64, have func(e int32) int32, take func(e int32, cores float64)) (sum float64) {
	t := q.t
	const few = 12
	last, at := math.Inf(-1), int32(-1)
	use := func(e int32) {
		more := min(rest, t.cores[t.spot[e]]-have(e))
		rest -= more
		sum += float64(float64(more) * q.core[t.spot[e]])
		if take != nil {
			take(e, sign*float64(more))
		}
	}
	for range few {
		if rest <= 0 {
			return sum
		}
		found, least := int32(-1), math.Inf(1)
		for e := t.first[b]; e < t.first[b+1]; e++ {
			p := sign * q.core[t.spot[e]]
			if p < least && (p > last || p == last && e > at) {
				found, least = e, p
			}
		}
		if found < 0 {
			return sum
		}
		last, at = least, found
		use(found)
	}
	q.pick = q.pick[:0]
	for e := t.first[b]; e < t.first[b+1]; e++ {
		if p := sign * q.core[t.spot[e]]; p > last || p == last && e > at {
			q.pick = append(q.pick, e)
		}
	}
	slices.SortFunc(q.pick, func(x, y int32) int {
		switch a, b := sign*q.core[t.spot[x]], sign*q.core[t.spot[y]]; {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return int(x - y)
	})
	for _, e := range q.pick {
		if rest <= 0 {
			break
		}
		use(e)
	}
	return sum
}

// search takes subgradient steps. Every so often the gains suggest an order in
// which to accept bids, which is tried in the room; better winners are kept.
func (q *prices) search(iterations int, m *room, best *result) {
	const (
		patience = 12  // rounds without a better bound, after which steps get shorter
		shorter  = 0.7 // by this
		least    = 1e-4
		every    = 25 // rounds between two tries
	)
	theta, idle := 1.5, 0
	for round := range iterations {
		q.steps++
		sum := q.choose()
		if sum < q.best-1e-9*math.Abs(q.best) || math.IsInf(q.best, 1) {
			q.best = sum
			copy(q.bestCore, q.core)
			copy(q.bestGPU, q.gpu)
			idle = 0
		} else if idle++; idle >= patience {
			idle = 0
			theta *= shorter
			copy(q.core, q.bestCore)
			copy(q.gpu, q.bestGPU)
			if theta < least {
				break
			}
			continue
		}
		if round%every == every-1 {
			q.suggest(m, best)
		}
		if q.best < float64(best.value)+1 {
			break
		}
		if !q.step(theta, sum-float64(best.value)) {
			break
		}
	}
	copy(q.core, q.bestCore)
	copy(q.gpu, q.bestGPU)
	q.choose()
	q.suggest(m, best)
}

// choose finds each job's best bid at the prices, and what is used by them.
func (q *prices) choose() (sum float64) {
	t := q.t
	for n := range q.core {
		sum += float64(q.core[n]*float64(t.cores[n])) + float64(q.gpu[n]*float64(t.gpus[n]))
		q.useCore[n], q.useGPU[n] = 0, 0
	}
	for b := range t.bids() {
		if t.kind[b] != rigid {
			q.gain[b] = float64(t.value[b]) - q.cost(int32(b), nil)
			continue
		}
		g := float64(t.ngpu[b])
		cost := 0.0
		if g == 0 {
			for e := t.first[b]; e < t.first[b+1]; e++ {
				cost += float64(float64(t.low[e]) * q.core[t.spot[e]])
			}
		} else {
			for e := t.first[b]; e < t.first[b+1]; e++ {
				n := t.spot[e]
				cost += float64(float64(t.low[e])*q.core[n]) + float64(g*q.gpu[n])
			}
		}
		q.gain[b] = float64(t.value[b]) - cost
	}
	for j := range q.chosen {
		best, gain := int32(-1), 0.0
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if q.gain[b] > gain {
				best, gain = b, q.gain[b]
			}
		}
		q.chosen[j] = best
		if best < 0 {
			continue
		}
		sum += gain
		g := float64(t.ngpu[best])
		if t.kind[best] == rigid {
			for e := t.first[best]; e < t.first[best+1]; e++ {
				n := t.spot[e]
				q.useCore[n] += float64(t.low[e])
				q.useGPU[n] += g
			}
			continue
		}
		whole := t.kind[best] == flexible
		counted := int32(0)
		q.cost(best, func(e int32, cores float64) {
			n := t.spot[e]
			q.useCore[n] += cores
			// The first visits are the nodes; what comes after is more cores on them.
			if whole && counted < t.first[best+1]-t.first[best] || !whole && counted < t.count[best] {
				q.useGPU[n] += g
			}
			counted++
		})
	}
	return sum
}

// step moves the prices towards what is scarce; false where nothing is.
func (q *prices) step(theta, over float64) bool {
	t := q.t
	var norm float64
	for n := range q.core {
		if d := q.useCore[n] - float64(t.cores[n]); d > 0 || q.core[n] > 0 {
			norm += float64(d * d)
		}
		if d := q.useGPU[n] - float64(t.gpus[n]); d > 0 || q.gpu[n] > 0 {
			norm += float64(d * d)
		}
	}
	if norm == 0 {
		return false
	}
	step := theta * over / norm
	for n := range q.core {
		q.core[n] = max(0, q.core[n]+float64(step*(q.useCore[n]-float64(t.cores[n]))))
		q.gpu[n] = max(0, q.gpu[n]+float64(step*(q.useGPU[n]-float64(t.gpus[n]))))
	}
	return true
}

// suggest accepts bids in the order of their gains, largest first.
func (q *prices) suggest(m *room, best *result) {
	q.order = q.order[:0]
	for b := range q.t.bids() {
		q.order = append(q.order, int32(b))
	}
	slices.SortFunc(q.order, func(x, y int32) int {
		switch {
		case q.gain[x] > q.gain[y]:
			return -1
		case q.gain[x] < q.gain[y]:
			return 1
		}
		return int(x - y)
	})
	m.clear()
	m.fill(q.order)
	if m.value > best.value {
		best.keep(m)
	}
}

// prove computes the bound that the best prices give, in integers: prices are
// rounded, gains are rounded up, and the sum holds whatever the prices are. It
// fails only where numbers would overflow.
func (q *prices) prove() (bound int64, ok bool) {
	t := q.t
	var sum uint64
	for n := range q.core {
		q.fixCore[n] = fixedPrice(q.bestCore[n], q.scale)
		q.fixGPU[n] = fixedPrice(q.bestGPU[n], q.scale)
		h1, l1 := bits.Mul64(uint64(q.fixCore[n]), uint64(t.cores[n]))
		h2, l2 := bits.Mul64(uint64(q.fixGPU[n]), uint64(t.gpus[n]))
		if h1|h2 != 0 || l1 > 1<<60 || l2 > 1<<60 {
			return 0, false
		}
		if sum += l1 + l2; sum > 1<<61 {
			return 0, false
		}
	}
	for j := range q.fixBest {
		q.fixBest[j] = 0
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			q.fixGain[b] = t.value[b]<<q.scale - q.fixCost(b)
			q.fixBest[j] = max(q.fixBest[j], q.fixGain[b])
		}
		sum += uint64(q.fixBest[j])
		if sum > 1<<61 {
			return 0, false
		}
	}
	return int64(sum >> q.scale), true
}

// fixCost is cost in integers. Where it would overflow, 0 is a cost that is
// surely not too high.
func (q *prices) fixCost(b int32) int64 {
	t := q.t
	var sum int64
	from, to := t.first[b], t.first[b+1]
	pay := func(price int64, amount int32) bool {
		hi, lo := bits.Mul64(uint64(price), uint64(amount))
		if hi != 0 || lo > 1<<60 || sum+int64(lo) > 1<<61 {
			return false
		}
		sum += int64(lo)
		return true
	}
	var each []int64
	rest := int32(0)
	if t.kind[b] == slack {
		c := max(t.per[b], 1)
		for e := from; e < to; e++ {
			n := t.spot[e]
			h1, l1 := bits.Mul64(uint64(q.fixCore[n]), uint64(c))
			h2, l2 := bits.Mul64(uint64(q.fixGPU[n]), uint64(t.ngpu[b]))
			if h1|h2 != 0 || l1 > 1<<60 || l2 > 1<<60 {
				return 0
			}
			each = append(each, int64(l1+l2))
		}
		slices.Sort(each)
		for _, p := range each[:t.count[b]] {
			if !pay(p, 1) {
				return 0
			}
		}
		if t.per[b] > 0 {
			return sum
		}
		rest = t.total[b] - t.count[b]
	} else {
		rest = t.total[b]
		for e := from; e < to; e++ {
			n := t.spot[e]
			if !pay(q.fixCore[n], t.low[e]) || !pay(q.fixGPU[n], t.ngpu[b]) {
				return 0
			}
			rest -= t.low[e]
		}
		if t.kind[b] == rigid {
			return sum
		}
	}
	q.pick = q.pick[:0]
	for e := from; e < to; e++ {
		q.pick = append(q.pick, e)
	}
	slices.SortFunc(q.pick, func(x, y int32) int {
		switch a, b := q.fixCore[t.spot[x]], q.fixCore[t.spot[y]]; {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return int(x - y)
	})
	for _, e := range q.pick {
		if rest <= 0 {
			break
		}
		n := t.spot[e]
		have := int32(1)
		if t.kind[b] == flexible {
			have = t.low[e]
		}
		more := min(rest, t.cores[n]-have)
		rest -= more
		if !pay(q.fixCore[n], more) {
			return 0
		}
	}
	return sum
}
