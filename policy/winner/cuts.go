package winner

import (
	"math/bits"
	"slices"
)

// Rows that hold for all winners. Those of nodes are the program's own; the
// others follow from them because bids win wholly or not at all.

// separate looks for rows that the last solution breaks, and adds the worst to
// the program. Rows of nodes are always looked at, cuts only if asked for. It
// says whether it added any.
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
			continue // it is there, and what it lacks is rounding
		}
		any = true
		b, c := s.rows.row(f.row)
		s.work += w.addRow(int32(s.t.bids())+f.row, s.rows.unit[f.row], float64(s.rows.rhs[f.row]), b, c, s.rowOf, s.colOf)
	}
	return any
}

// minPart is the least share of a bid in a solution that is looked at.
const minPart = 1e-7

// stand lists for each node the bids that have a part in the solution.
func (s *tree) stand() {
	t := s.t
	for n := range s.head {
		s.head[n] = -1
	}
	clear(s.used)
	for b, x := range s.x {
		if x < minPart || t.kind[b] == slack {
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
		if by := s.used[n] - float64(t.cores[n]); by > 1e-6 {
			s.broken(s.nodeRowFor(n, 1, 0, 1, n), by/float64(max(t.cores[n], 1)))
		}
		k := t.nodes() + n
		if by := s.used[k] - float64(t.gpus[n]); by > 1e-6 {
			s.broken(s.nodeRowFor(n, 0, 1, 1, k), by/float64(max(t.gpus[n], 1)))
		}
	}
}

func (s *tree) broken(row int32, by float64) { s.found = append(s.found, violation{row, by}) }

// nodeRowFor makes the row of node n in which cores and GPUs count so much, all
// divided by a number and rounded down. known is where it is remembered, or -1.
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

// weights in which cores and GPUs are added up before a row is divided.
var weights = [...][2]int32{{1, 0}, {0, 1}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 3}}

// Rows are divided by numbers up to mostDivisor while what they say of one bid is
// below mostSize; quotient has all the results.
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

// roundedRows divides the row of a node by a number and rounds down: bids are
// whole, so that the row still holds (Chvatal and Gomory).
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
		if share < 1+1e-3 {
			continue
		}
		worst, by := 0.02, int32(0)
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

// cliques finds sets of bids of which no two can win together but that have more
// than one whole part in the solution.
func (s *tree) cliques() {
	t := s.t
	s.winners = s.winners[:0]
	for b, x := range s.x {
		if x > 1e-4 && x < 1-1e-4 {
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
		// Whoever conflicts with all of them may join for nothing.
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

// fewFound rows of the cheaper kinds are enough not to look for others.
const fewFound = 60

// halfRows adds up rows that bind, halves the sum and rounds down. If the right
// side is odd and the coefficients are mostly even, that cuts the solution off.
// Which rows to add up is found greedily: each next one has to bring the sum of
// the odd part down.
func (s *tree) halfRows(w *tableau) {
	t := s.t
	// The bids that have a part, and the rows that bind as bits over them: where
	// their coefficients are odd.
	s.winners = s.winners[:0]
	for b, x := range s.x {
		if x > 1e-6 {
			s.winners = append(s.winners, int32(b))
		}
	}
	words := (len(s.winners) + 63) / 64
	place := s.colOf // free to use: separate asks again where bids are
	for b := range place {
		place[b] = -1
	}
	for i, b := range s.winners {
		place[b] = int32(i)
	}
	s.binding, s.odd, s.oddRhs = s.binding[:0], s.odd[:0], s.oddRhs[:0]
	for _, v := range w.free[:w.cols] {
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
			if isOdd && weight < 0.97 {
				s.halve(chosen)
				break
			}
			next, least := -1, weight
			for q := range s.binding {
				// A row that would leave the right side even is of no use as the last.
				if s.oddRhs[q] == isOdd && len(chosen) == mostHalved-1 || slices.Contains(chosen, int32(q)) {
					continue
				}
				if v := weigh(sum, s.odd[q*words:(q+1)*words]); v < least-1e-6 {
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

// mostHalved is how many rows are added up at most.
const mostHalved = 7

// halve makes the row.
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
	if by := left - float64(rhs); by > 0.01 {
		s.broken(s.rows.add(rhs, s.cut.bids, s.cut.coef), by/float64(max(rhs, 1)))
	}
}

func meet(x, y []uint64) {
	for i := range x {
		x[i] &= y[i]
	}
}

// makeSetRows makes rows for all nodes of a bid that is not rigid together:
// however it is placed, it takes so much of them, and so does everybody else.
// Classes that many bids share are looked at once.
func (s *tree) makeSetRows() {
	t := s.t
	s.setRow = s.setRow[:0]
	inside := make([]bool, t.nodes())
	seen := map[uint64]bool{} // a class met twice by chance of its hash lacks a row, no more
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

// mostSets bounds the rows made so.
const mostSets = 1000

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

// setRows finds those that are broken.
func (s *tree) setRows() {
	for _, r := range s.setRow {
		bids, coef := s.rows.row(r)
		s.work += int64(len(bids)) / 2
		var sum float64
		for k, b := range bids {
			sum += float64(float64(coef[k]) * s.x[b])
		}
		rhs := float64(s.rows.rhs[r])
		if by := sum - rhs; by > 1e-6*max(rhs, 1) {
			s.broken(r, by/max(rhs, 1))
		}
	}
}

// atLeast is the least that the bid takes of the nodes inside.
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
	least := in // nodes it must have inside
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
