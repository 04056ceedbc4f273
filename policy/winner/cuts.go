package winner

import (
	"math/bits"
	"slices"
)

// Rows (linear inequalities) that every feasible set of winners satisfies. The
// rows of nodes are the program's own constraints. The others are cutting
// planes: they follow from the rows of nodes because a bid wins wholly or not
// at all, and they cut off fractional solutions. A cut must be valid (prove
// builds on it), so all coefficients and right sides are integers; floating
// point only decides which rows are worth adding.

// separate looks for rows that the last solution s.x violates, and adds the
// most violated ones to the program. It always checks the rows of nodes, and
// the cuts only if the caller asks for them. It returns whether it added any
// row.
func (s *tree) separate(w *tableau, cuts bool) bool {
	s.found = s.found[:0]
	s.stand()
	s.nodeRows()
	if s.t.loose {
		s.setRows()
	}
	if cuts {
		s.roundedRows()
		s.cliques()
		if len(s.found) < fewFound {
			s.halfRows(w)
		}
	}
	if len(s.found) == 0 {
		return false
	}
	slices.SortFunc(s.found, func(x, y violation) int {
		switch {
		case x.by > y.by:
			return -1
		case x.by < y.by:
			return 1
		}
		return int(x.row - y.row)
	})
	// Dense rows make every later pivot dearer, and one round of the worst rows
	// usually repairs the milder violations too.
	const most = 40
	s.locate(w)
	added, any := int32(-1), false
	for i, f := range s.found {
		if i >= most {
			break
		}
		if f.row == added {
			continue
		}
		added = f.row
		if w.has(int32(s.t.bids()) + f.row) {
			continue // it is in the tableau already: what it still violates is rounding, divided by its unit
		}
		any = true
		b, c := s.rows.row(f.row)
		s.work += w.addRow(int32(s.t.bids())+f.row, s.rows.unit[f.row], float64(s.rows.rhs[f.row]), b, c, s.rowOf, s.colOf)
	}
	return any
}

// stand lists, for each node, the bids with a share in the solution: head[n] is
// the first position in part.spot, link[e] the next one. It also adds up the
// cores and GPUs that the shares use. Slack bids are left out, since the nodes
// they use are not determined.
func (s *tree) stand() {
	t := s.t
	for n := range s.head {
		s.head[n] = -1
	}
	clear(s.used)
	for b, x := range s.x {
		if x < feasible || t.kind[b] == slack {
			continue
		}
		g := float64(t.ngpu[b])
		for e := t.first[b]; e < t.first[b+1]; e++ {
			n := t.spot[e]
			s.link[e], s.head[n] = s.head[n], e
			s.used[n] += float64(float64(t.low[e]) * x)
			s.used[t.nodes()+int(n)] += float64(g * x)
		}
	}
}

// nodeRows finds nodes that give more than they have.
func (s *tree) nodeRows() {
	t := s.t
	for n := range t.nodes() {
		if by := s.used[n] - float64(t.cores[n]); by > violated {
			s.broken(s.nodeRowFor(n, 1, 0, 1, n), by/float64(max(t.cores[n], 1)))
		}
		k := t.nodes() + n
		if by := s.used[k] - float64(t.gpus[n]); by > violated {
			s.broken(s.nodeRowFor(n, 0, 1, 1, k), by/float64(max(t.gpus[n], 1)))
		}
	}
}

func (s *tree) broken(row int32, by float64) { s.found = append(s.found, violation{row, by}) }

// nodeRowFor makes a row of node n: coreWeight times its row of cores plus
// gpuWeight times its row of GPUs, all coefficients and the right side divided
// by the divisor "by" and rounded down. known is the row's index in s.nodeRow,
// where it is kept for the next call, or -1 for a row that is not kept.
func (s *tree) nodeRowFor(n int, coreWeight, gpuWeight, by int32, known int) int32 {
	if known >= 0 && s.nodeRow[known] >= 0 {
		return s.nodeRow[known]
	}
	t := s.t
	s.cut.bids, s.cut.coef = s.cut.bids[:0], s.cut.coef[:0]
	for _, e := range t.at[t.atFirst[n]:t.atFirst[n+1]] {
		b := t.bidOf[e]
		if t.kind[b] == slack {
			continue
		}
		if c := (coreWeight*t.low[e] + gpuWeight*t.ngpu[b]) / by; c > 0 {
			s.cut.bids = append(s.cut.bids, b)
			s.cut.coef = append(s.cut.coef, c)
		}
	}
	rhs := int64((coreWeight*t.cores[n] + gpuWeight*t.gpus[n]) / by)
	row := s.rows.add(rhs, s.cut.bids, s.cut.coef)
	if known >= 0 {
		s.nodeRow[known] = row
	}
	return row
}

// weights are the combinations in which roundedRows adds a node's row of cores
// and its row of GPUs before it divides. They are small numbers because typical
// bids are: a cut that needs others is rare.
var weights = [...][2]int32{{1, 0}, {0, 1}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 3}}

// roundedRows divides by 2 to mostDivisor, and only rows in which no bid has a
// coefficient of mostSize or more. quotient has all the results as floating
// point numbers, which spares a division for every bid, weight and divisor.
const (
	mostDivisor = 24
	mostSize    = 64
)

var quotient = func() (q [mostDivisor + 1][mostSize]float64) {
	for k := 1; k <= mostDivisor; k++ {
		for v := range mostSize {
			q[k][v] = float64(v / k)
		}
	}
	return q
}()

// roundedRows divides the row of a node by an integer and rounds both sides
// down (a Chvatal-Gomory cut). The row stays valid: rounding the coefficients
// down only weakens the left side, and as bids are whole the left side is then
// an integer, which cannot exceed the right side rounded down. For each node it
// keeps the weights and divisor that the solution violates most, and ignores
// violations below 2 % of the right side: they cost a row and hardly move the
// bound.
func (s *tree) roundedRows() {
	t := s.t
	for n := range t.nodes() {
		if t.cores[n] >= mostSize || t.gpus[n] >= mostSize {
			continue
		}
		s.here = s.here[:0]
		var share float64
		for e := s.head[n]; e >= 0; e = s.link[e] {
			b := t.bidOf[e]
			share += s.x[b]
			s.here = append(s.here, standing{t.low[e], t.ngpu[b], 0, s.x[b]})
		}
		// Shares that add up to one bid or less violate no rounded row: each
		// bid alone satisfies it.
		if share < 1+overOne {
			continue
		}
		worst, by := worthACut, int32(0)
		var pair [2]int32
		for _, p := range weights {
			have := p[0]*t.cores[n] + p[1]*t.gpus[n]
			var largest int32
			for i := range s.here {
				h := &s.here[i]
				h.size = p[0]*h.cores + p[1]*h.gpus
				largest = max(largest, h.size)
			}
			if largest >= mostSize {
				continue
			}
			s.work += int64(len(s.here)) * int64(largest)
			for k := int32(2); k <= min(largest, mostDivisor); k++ {
				table := &quotient[k]
				var sum float64
				for i := range s.here {
					h := &s.here[i]
					// The mask changes nothing, as sizes are below mostSize; it
					// spares the bounds check.
					sum += float64(table[h.size&(mostSize-1)] * h.part)
				}
				rhs := float64(have / k)
				if v := sum - rhs; v > worst*rhs {
					worst, by, pair = v/rhs, k, p
				}
			}
		}
		if by > 0 {
			s.broken(s.nodeRowFor(n, pair[0], pair[1], by, -1), worst)
		}
	}
}

// cliques finds sets of bids of which no two can win together (cliques of the
// conflict graph s.against) but whose shares in the solution add up to more
// than one. It grows a clique greedily from each fractional bid, bids with
// larger shares first.
func (s *tree) cliques() {
	t := s.t
	s.winners = s.winners[:0]
	for b, x := range s.x {
		if x > decidedShare && x < 1-decidedShare {
			s.winners = append(s.winners, int32(b))
		}
	}
	slices.SortFunc(s.winners, func(a, b int32) int {
		switch x, y := s.x[a], s.x[b]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a - b)
	})
	// common is the set of bids that conflict with every member of the clique
	// so far.
	common := make([]uint64, (t.bids()+63)/64)
	for _, seed := range s.winners {
		copy(common, s.against[seed])
		sum := s.x[seed]
		s.cut.bids = append(s.cut.bids[:0], seed)
		for _, b := range s.winners {
			if common[b>>6]>>(b&63)&1 != 0 {
				s.cut.bids = append(s.cut.bids, b)
				sum += s.x[b]
				meet(common, s.against[b])
			}
		}
		if sum < 1.02 {
			continue
		}
		// Bids without a share that conflict with all members join too: they do
		// not change the violation now, and make the row stronger for later
		// solutions.
		for i := range common {
			for common[i] != 0 {
				b := int32(i<<6 + bits.TrailingZeros64(common[i]))
				common[i] &^= 1 << (b & 63)
				s.cut.bids = append(s.cut.bids, b)
				meet(common, s.against[b])
			}
		}
		slices.Sort(s.cut.bids)
		s.cut.coef = s.cut.coef[:0]
		for range s.cut.bids {
			s.cut.coef = append(s.cut.coef, 1)
		}
		s.broken(s.rows.add(1, s.cut.bids, s.cut.coef), sum-1)
	}
}

// fewFound is the number of violated rows from which on separate skips
// halfRows, the most expensive search.
const fewFound = 60

// halfRows looks for zero-half cuts: the sum of some rows, halved and rounded
// down. Rounding gains where the right side is odd and the bids with odd
// coefficients have a small share in all. For rows that bind (left side = right
// side) the halved row is violated by (1 - weight) / 2, where weight is the sum
// of the shares of the bids with odd coefficients; so it looks for sets of
// binding rows with an odd right side and a weight below 1. Finding the best
// set is hard. From each row it goes on greedily: it adds the row that lowers
// the weight most, until the sum qualifies (weight below halfWeight) or no row
// lowers the weight.
func (s *tree) halfRows(w *tableau) {
	t := s.t
	// winners are the bids with a share. Each binding row becomes a bit set
	// over them, with a bit for each odd coefficient: adding rows is then XOR,
	// as only parity matters.
	s.winners = s.winners[:0]
	for b, x := range s.x {
		if x > someShare {
			s.winners = append(s.winners, int32(b))
		}
	}
	words := (len(s.winners) + 63) / 64
	place := s.colOf // colOf serves as scratch memory: separate calls locate again before it adds rows
	for b := range place {
		place[b] = -1
	}
	for i, b := range s.winners {
		place[b] = int32(i)
	}
	s.binding, s.odd, s.oddRhs = s.binding[:0], s.odd[:0], s.oddRhs[:0]
	for _, v := range w.free[:w.cols] {
		// A row whose slack variable is free (nonbasic, so 0) binds. Rows with
		// coefficients above 1<<20 are left out, so that the sum of mostHalved
		// rows fits into 32 bits.
		r := v - int32(t.bids())
		if r < 0 || s.rows.unit[r] > 1<<20 {
			continue
		}
		s.binding = append(s.binding, r)
		s.oddRhs = append(s.oddRhs, s.rows.rhs[r]&1 != 0)
		at := len(s.odd)
		for range words {
			s.odd = append(s.odd, 0)
		}
		bids, coef := s.rows.row(r)
		for i, b := range bids {
			if k := place[b]; k >= 0 && coef[i]&1 != 0 {
				s.odd[at+int(k>>6)] |= 1 << (k & 63)
			}
		}
	}
	s.work += int64(len(s.binding) * len(s.binding) * words)
	sum := make([]uint64, words)
	// weigh is the sum of the shares of the bids that are odd in the sum of x
	// and y.
	weigh := func(x, y []uint64) (total float64) {
		for i := range x {
			for m := x[i] ^ y[i]; m != 0; m &= m - 1 {
				total += s.x[s.winners[i<<6+bits.TrailingZeros64(m)]]
			}
		}
		return total
	}
	none := make([]uint64, words)
	for start := range s.binding {
		copy(sum, s.odd[start*words:(start+1)*words])
		isOdd := s.oddRhs[start]
		chosen := append(s.chosen[:0], int32(start))
		weight := weigh(sum, none)
		for len(chosen) < mostHalved {
			if isOdd && weight < halfWeight {
				s.halve(chosen)
				break
			}
			next, least := -1, weight
			for q := range s.binding {
				// The last row must leave the right side odd, or the sum cannot
				// be used.
				if s.oddRhs[q] == isOdd && len(chosen) == mostHalved-1 || slices.Contains(chosen, int32(q)) {
					continue
				}
				if v := weigh(sum, s.odd[q*words:(q+1)*words]); v < least-someShare {
					next, least = q, v
				}
			}
			if next < 0 {
				break
			}
			for i := range sum {
				sum[i] ^= s.odd[next*words+i]
			}
			isOdd = isOdd != s.oddRhs[next]
			weight = least
			chosen = append(chosen, int32(next))
		}
		s.chosen = chosen
	}
}

// halfWeight is the weight below which the violation, (1 - weight) / 2, exceeds
// what halve asks for, with some room: bids that halfRows takes for 0 add to it.
const halfWeight = 0.97

// mostHalved bounds the rows that are added up. The loop tests a set before it
// adds the next row, so that sets of up to mostHalved-1 rows become cuts.
const mostHalved = 7

// halve makes the row from the chosen binding rows. It computes the violation
// again from all bids, with the bids that halfRows took for 0 as well.
func (s *tree) halve(chosen []int32) {
	t := s.t
	sums := zeroed(s.sums, t.bids())
	s.sums = sums
	var rhs int64
	for _, i := range chosen {
		r := s.binding[i]
		rhs += s.rows.rhs[r]
		bids, coef := s.rows.row(r)
		for k, b := range bids {
			sums[b] += int64(coef[k])
		}
	}
	rhs /= 2
	var left float64
	s.cut.bids, s.cut.coef = s.cut.bids[:0], s.cut.coef[:0]
	for b, c := range sums {
		if c /= 2; c > 0 {
			s.cut.bids = append(s.cut.bids, int32(b))
			s.cut.coef = append(s.cut.coef, int32(c))
			left += float64(float64(c) * s.x[b])
		}
	}
	if by := left - float64(rhs); by > worthAHalfCut {
		s.broken(s.rows.add(rhs, s.cut.bids, s.cut.coef), by/float64(max(rhs, 1)))
	}
}

func meet(x, y []uint64) {
	for i := range x {
		x[i] &= y[i]
	}
}

// makeSetRows makes, for the class of nodes of each bid that is not rigid, one
// row for the cores and one for the GPUs of the whole class: however the bids
// are placed, each takes at least atLeast of the class, and together they
// cannot take more than it has. Rows of single nodes say little about such
// bids, since each node's lower limit is small. A class that several bids share
// is processed once.
func (s *tree) makeSetRows() {
	t := s.t
	s.setRow = s.setRow[:0]
	inside := make([]bool, t.nodes())
	seen := map[uint64]bool{} // two classes with the same hash: the second gets no row, which weakens the bound but keeps it valid
	for b := range t.bids() {
		if t.kind[b] == rigid || len(s.setRow) >= mostSets || s.work > s.maxWork/4 {
			continue
		}
		nodes := t.spot[t.first[b]:t.first[b+1]]
		h := uint64(0)
		for _, n := range nodes {
			h = mix(h ^ uint64(n))
		}
		if seen[h] {
			continue
		}
		seen[h] = true
		var cores, gpus int64
		for _, n := range nodes {
			inside[n] = true
			cores += int64(t.cores[n])
			gpus += int64(t.gpus[n])
		}
		s.setRowFor(inside, cores, false)
		s.setRowFor(inside, gpus, true)
		for _, n := range nodes {
			inside[n] = false
		}
		s.work += int64(len(t.spot))
	}
}

// mostSets bounds the rows that makeSetRows makes.
const mostSets = 1000

// setRowFor makes the row of the nodes inside, for cores or for GPUs. A
// coefficient above the right side is cut to rhs+1, which still excludes the
// bid and fits into 32 bits. A row that all bids together satisfy is not
// stored.
func (s *tree) setRowFor(inside []bool, rhs int64, ofGPUs bool) {
	if rhs > 1<<30 {
		return
	}
	s.cut.bids, s.cut.coef = s.cut.bids[:0], s.cut.coef[:0]
	var sum int64
	for a := range int32(s.t.bids()) {
		if c := s.atLeast(a, inside, ofGPUs); c > 0 {
			sum += c
			s.cut.bids = append(s.cut.bids, a)
			s.cut.coef = append(s.cut.coef, int32(min(c, rhs+1)))
		}
	}
	if sum > rhs {
		s.setRow = append(s.setRow, s.rows.add(rhs, s.cut.bids, s.cut.coef))
	}
}

// setRows finds the rows of makeSetRows that the solution violates.
func (s *tree) setRows() {
	for _, r := range s.setRow {
		bids, coef := s.rows.row(r)
		s.work += int64(len(bids)) / 2
		var sum float64
		for k, b := range bids {
			sum += float64(float64(coef[k]) * s.x[b])
		}
		rhs := float64(s.rows.rhs[r])
		if by := sum - rhs; by > violated*max(rhs, 1) {
			s.broken(r, by/max(rhs, 1))
		}
	}
}

// atLeast is the least that the bid takes of the nodes inside, however it is
// placed: what it needs less what the nodes outside could give, and no less
// than its lower limits inside.
func (s *tree) atLeast(b int32, inside []bool, ofGPUs bool) int64 {
	t := s.t
	var in, lows, outside, coresOutside int64
	for e := t.first[b]; e < t.first[b+1]; e++ {
		n := t.spot[e]
		if inside[n] {
			in++
			lows += int64(t.low[e])
		} else {
			outside++
			coresOutside += int64(t.cores[n])
		}
	}
	if in == 0 {
		return 0
	}
	least := in // nodes that it must have inside; all of them, unless it may choose
	if t.kind[b] == slack {
		least = max(0, int64(t.count[b])-outside)
	}
	if ofGPUs {
		return least * int64(t.ngpu[b])
	}
	switch {
	case t.kind[b] == rigid:
		return lows
	case t.per[b] > 0:
		return least * int64(t.per[b])
	case t.kind[b] == flexible:
		return max(lows, int64(t.total[b])-coresOutside)
	default:
		return max(least, int64(t.total[b])-coresOutside)
	}
}
