package winner

import (
	"math"
	"math/bits"
	"slices"
)

// A price for each core and GPU of each node turns the auction into a separate
// choice for each job: the bid whose value exceeds its price by most, or none.
// Weak duality: the gains of all jobs plus the price of everything that is free
// are at least the value of the best winners, for any prices that are not
// negative. This file looks for prices that make this sum small (a Lagrangian
// relaxation of the constraints (5) and (6)).

// scaleBits is the number of fractional bits of fixed-point prices and gains.
// total is the sum of the best values of all jobs; scaled up it stays below
// 1<<50, so that sums of gains cannot overflow. More than 20 bits would not
// improve a bound that is rounded down to an integer.
func scaleBits(total int64) uint {
	room := 50 - bits.Len64(uint64(total))
	return uint(min(max(room, 0), 20))
}

// priceLimit bounds fixed-point prices. One core at that price costs more than
// any bid is worth.
const priceLimit = int64(1) << 51

// fixedPrice rounds a price to fixed point. The negated comparison turns NaN
// into 0 as well; any price is valid in a proof.
func fixedPrice(price float64, scale uint) int64 {
	f := price * float64(int64(1)<<scale)
	if !(f > 0) {
		return 0
	}
	return int64(min(f+0.5, float64(priceLimit)))
}

// prices looks for good prices by subgradient steps and keeps the best. The
// float64 fields belong to this search. The int64 fields (fix...) belong to the
// proof, which uses nothing of the search but bestCore and bestGPU.
type prices struct {
	t         *part
	core, gpu []float64 // the current prices, by node
	bestCore  []float64
	bestGPU   []float64
	useCore   []float64 // by node: what the chosen bids take
	useGPU    []float64
	gain      []float64 // by bid: its value above its price
	chosen    []int32   // by job: its best bid at the current prices, or -1
	best      float64   // the least sum so far, that of bestCore and bestGPU

	fixCore, fixGPU []int64
	fixGain         []int64 // by bid: its value above its price, in fixed point
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

// cost is the least that the bid must pay at the current prices. For a slack
// bid with cores to spread it may be too low: the extra cores go to the
// cheapest nodes of the class, chosen for the bid or not. A cost that is too
// low makes the bound larger, so it stays valid. If take is not nil, cost calls
// it for everything that the bid takes: first once for each node, then for more
// cores on nodes, which are negative if spread gives some back.
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

// spread puts the rest of a bid's cores on its cheapest nodes, above the cores
// that it has there already, and returns their price.
func (q *prices) spread(b, rest int32, have func(e int32) int32, take func(e int32, cores float64)) (sum float64) {
	t := q.t
	var room int64
	for e := t.first[b]; e < t.first[b+1]; e++ {
		room += int64(t.cores[t.spot[e]] - have(e))
	}
	if spare := room - int64(rest); spare < int64(rest) {
		// The bid takes most of the cores: take all and give the dearest back,
		// since pickBy costs a pass over the class for each node that it picks
		// from.
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

// pickBy takes the cheapest cores, or with sign -1 the dearest, and returns
// their price. They are mostly on a few nodes, so that a pass for each next
// node is faster than sorting; after 12 passes it sorts the remaining nodes.
// (last, at) is the last node picked, in the order of price and position.
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

// search takes subgradient steps. Every 25 rounds, and at the end, the gains
// suggest an order in which to accept bids, which is tried in the room; better
// winners are kept in best. It stops early if the bound shows that best is
// optimal, or if the steps have become too short to matter.
func (q *prices) search(iterations int, m *room, best *result) {
	const (
		patience = 12  // rounds without a better bound until steps get shorter
		shorter  = 0.7 // by this factor, back at the best prices
		least    = 1e-4
		every    = 25 // rounds between two tries
	)
	// Polyak's step length, theta * (bound - best value) / norm, converges for
	// theta below 2 if the best value is the optimum.
	theta, idle := 1.5, 0
	for round := range iterations {
		q.steps++
		// A bound must fall by a share of 1e-9 to count as better: rounding
		// noise must not reset idle.
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
		// Values are integers, so no winners are better than best.
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

// choose finds each job's best bid at the current prices and adds up what these
// bids use (the subgradient). It returns the bound that the prices give, in
// floating point.
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
			// cost visits each node of the bid once before it adds cores to
			// nodes: GPUs count in the first visits only.
			if whole && counted < t.first[best+1]-t.first[best] || !whole && counted < t.count[best] {
				q.useGPU[n] += g
			}
			counted++
		})
	}
	return sum
}

// step raises the prices of what is used beyond its capacity and lowers the
// others. It returns false if nothing is used beyond its capacity and
// everything with a price is used up: then the prices are optimal.
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

// suggest accepts bids in the order of their gains, largest first, and keeps
// the winners if they are better than best.
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

// prove computes the bound of the best prices in integers. The sum of the gains
// and of the price of everything free is a bound for any prices, so rounding
// the prices is harmless. Shifting the sum down rounds it down, which is
// correct because values are integers. prove fails (ok is false) only if
// numbers would overflow.
func (q *prices) prove() (bound int64, ok bool) {
	t := q.t
	// Every term is checked to be at most 1<<60 and the running sum at most
	// 1<<61: with one more term it stays below 1<<63.
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

// fixCost is cost in integers. If it would overflow it is 0, the lowest cost
// there is: it makes the bound weaker, and keeps it valid.
func (q *prices) fixCost(b int32) int64 {
	t := q.t
	var sum int64
	from, to := t.first[b], t.first[b+1]
	pay := func(price int64, amount int32) bool {
		// pay adds price times amount, or returns false on overflow.
		hi, lo := bits.Mul64(uint64(price), uint64(amount))
		if hi != 0 || lo > 1<<60 || sum+int64(lo) > 1<<61 {
			return false
		}
		sum += int64(lo)
		return true
	}
	// A slack bid pays for the cheapest nodes; the others pay their lower
	// limits on all nodes.
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
		// What is left goes to the cheapest nodes, as in spread.
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
