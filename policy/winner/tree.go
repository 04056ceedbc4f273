package winner

import (
	"math"
	"slices"
)

// tree closes the gap of a small part by branch and cut. Each tree node solves
// a linear program that has only the rows found so far, adds violated rows and
// cutting planes, and turns the prices of the rows into an exact bound (prove).
// If the bound does not rule the node out, it decides one bid or one job and
// explores both sides.
//
// Nothing that the tree concludes rests on floating point: bounds and the
// elimination of bids (fix) are computed in integers, and winners are checked
// by room.holds. The limits of nodes and work may end it early; left then keeps
// the bound valid.
// Its many methods and fields are steps of that one search: tree.go has the order, cuts.go the cuts.
type tree struct {
	t    *part
	rows rowStore // all rows made for this part, in exact integers
	m    *room
	best *result
	// improve runs a longer ejection search, once, if the root's bound has not
	// closed the gap. Better winners rule out more tree nodes, so the tree gets
	// smaller.
	improve func()

	against [][]uint64 // by bid: the set of bids that cannot win beside it
	x       []float64  // by bid: its share in the last solution
	used    []float64  // by node: the cores used in the last solution, then by node the GPUs
	head    []int32    // by node: its first position with a share; see stand
	link    []int32    // by position: the next one on the same node
	rowOf   []int32    // by bid: its row in the tableau; see locate
	colOf   []int32    // by bid: its column in the tableau
	cost    []int64    // by bid: its price in the last prove, in fixed point
	scale   uint       // fractional bits of fixed point; see scaleBits
	little  float64    // how far below 0 coefficients of the objective may go; see entering
	nodeRow []int32    // by node: its row of cores, then by node its row of GPUs; -1 if not made yet
	levels  []*level   // by depth, reused by all nodes of that depth
	trial   level      // scratch, for trying decisions; see lost
	options []option
	seen    []seen  // by decision: what "no" has cost, then what "yes" has cost
	winners []int32 // scratch: a list of bids
	cutting
	nodes    int64 // tree nodes seen
	maxNodes int64
	work     int64 // cells of tableaux changed, and other work in the same unit
	maxWork  int64
	left     int64 // the largest bound of a tree node that was abandoned
}

// cutting is what the search for violated rows keeps between its calls
// (cuts.go): memory to be used again, but for setRow.
type cutting struct {
	setRow  []int32     // the rows of makeSetRows
	found   []violation // by separate
	here    []standing  // of roundedRows
	binding []int32     // of halfRows: the rows that bind
	odd     []uint64    // for each, the set of bids with odd coefficients
	oddRhs  []bool      // for each, whether its right side is odd
	chosen  []int32     // places in binding
	sums    []int64     // of halve, by bid
	cut     builder
}

// level is one depth of the tree: its program, and the variables that are
// forced to 0 there, first by bid, then by job. For a bid this means that it
// loses. For a job it means the slack variable of the job's row, so that the
// job must win.
type level struct {
	w    tableau
	zero []bool
}

// seen is what a decision has lowered the bound by so far (its pseudocost): the
// number of tries and the sum of the losses, each per unit that the decision
// moves its variable.
type seen struct {
	times int
	sum   float64
}

// standing is what a bid has on a node, what that weighs in the row at hand,
// and the bid's share in the solution.
type standing struct {
	cores, gpus, size int32
	part              float64
}

// rowStore holds all rows made for a part, in integers: the sum of coef times
// bid is at most rhs. The first rows say that a job wins at most once. seen
// finds a row by its hash, so that none is stored twice.
type rowStore struct {
	rhs   []int64
	unit  []float64 // the largest coefficient; tableaux have the row divided by it, so that all entries are of a similar size
	first []int32
	bid   []int32
	coef  []int32
	seen  map[uint64]int32
}

func (s *rowStore) reset() {
	s.rhs, s.unit, s.first = s.rhs[:0], s.unit[:0], append(s.first[:0], 0)
	s.bid, s.coef = s.bid[:0], s.coef[:0]
	if s.seen == nil {
		s.seen = make(map[uint64]int32)
	}
	clear(s.seen)
}

func (s *rowStore) row(r int32) (bids, coef []int32) {
	return s.bid[s.first[r]:s.first[r+1]], s.coef[s.first[r]:s.first[r+1]]
}

// add stores a row and returns its number. A row that is stored already keeps
// its number.
func (s *rowStore) add(rhs int64, bids, coef []int32) int32 {
	h := mix(uint64(rhs))
	for i, b := range bids {
		h = mix(h ^ uint64(b)<<32 ^ uint64(uint32(coef[i])))
	}
	if r, ok := s.seen[h]; ok {
		was, by := s.row(r)
		if s.rhs[r] == rhs && slices.Equal(was, bids) && slices.Equal(by, coef) {
			return r
		}
	}
	r := int32(len(s.rhs))
	s.seen[h] = r
	s.rhs = append(s.rhs, rhs)
	unit := int32(1)
	for _, c := range coef {
		unit = max(unit, c)
	}
	s.unit = append(s.unit, float64(unit))
	s.bid = append(s.bid, bids...)
	s.coef = append(s.coef, coef...)
	s.first = append(s.first, int32(len(s.bid)))
	return r
}

// builder collects a row.
type builder struct {
	bids, coef []int32
	rhs        int64
}

// violation is a row that the last solution violates, and by what share of its
// right side.
type violation struct {
	row int32
	by  float64
}

func (s *tree) use(t *part, m *room, best *result, l Limits, improve func()) {
	s.t, s.m, s.best, s.improve = t, m, best, improve
	s.rows.reset()
	n := t.bids()
	s.x = zeroed(s.x, n)
	s.used = zeroed(s.used, 2*t.nodes())
	s.head = zeroed(s.head, t.nodes())
	s.link = zeroed(s.link, len(t.spot))
	s.rowOf, s.colOf = zeroed(s.rowOf, n), zeroed(s.colOf, n)
	s.cost = zeroed(s.cost, n)
	s.scale = scaleBits(t.bestSum())
	// 1e-8 of the largest value: far below the difference of 1 between two
	// values of winners, and far above the rounding of float64 (1e-16).
	s.little = 1e-8 * float64(slices.Max(t.value))
	s.nodeRow = zeroed(s.nodeRow, 2*t.nodes())
	for i := range s.nodeRow {
		s.nodeRow[i] = -1
	}
	s.nodes, s.maxNodes = 0, l.TreeNodes
	s.work, s.maxWork = 0, l.TreeWork
	s.left = 0
	s.seen = zeroed(s.seen, 2*(n+t.jobs()))
	s.findConflicts()
}

// findConflicts finds the pairs of bids that cannot both win: those of one job,
// and those that do not both fit on a node they share. A slack bid may avoid
// the node, so it conflicts only with bids of its own job.
func (s *tree) findConflicts() {
	t := s.t
	n := t.bids()
	words := (n + 63) / 64
	all := make([]uint64, n*words)
	s.against = s.against[:0]
	for b := range n {
		s.against = append(s.against, all[b*words:(b+1)*words])
	}
	join := func(a, b int32) {
		s.against[a][b>>6] |= 1 << (b & 63)
		s.against[b][a>>6] |= 1 << (a & 63)
	}
	for j := range t.jobs() {
		for a := t.jobFirst[j]; a < t.jobFirst[j+1]; a++ {
			for b := a + 1; b < t.jobFirst[j+1]; b++ {
				join(a, b)
			}
		}
	}
	for k := range t.nodes() {
		here := t.at[t.atFirst[k]:t.atFirst[k+1]]
		for i, e := range here {
			a := t.bidOf[e]
			if t.kind[a] == slack {
				continue
			}
			for _, f := range here[i+1:] {
				b := t.bidOf[f]
				if t.kind[b] == slack {
					continue
				}
				if t.low[e] > t.cores[k]-t.low[f] || t.ngpu[a] > t.gpus[k]-t.ngpu[b] {
					join(a, b)
				}
			}
		}
	}
	if t.loose {
		s.findTightConflicts(join)
	}
}

// findTightConflicts finds pairs with a flexible bid that conflict although
// they fit on each shared node by itself: the cores of all shared nodes
// together may be too few for both. A flexible bid that takes nearly all cores
// of its nodes can leave only its spare cores to others, wherever it puts them.
func (s *tree) findTightConflicts(join func(a, b int32)) {
	t := s.t
	mine := make([]int32, t.nodes()) // by node: the least that flexible bid a takes there; 0 if it is not a node of a
	for a := range int32(t.bids()) {
		if t.kind[a] != flexible || s.work > s.maxWork/4 {
			continue // out of budget: an unknown conflict makes the tree larger, not wrong
		}
		s.work += int64(len(t.spot))
		spare := -int64(t.total[a]) // the cores of its nodes that it does not take
		for e := t.first[a]; e < t.first[a+1]; e++ {
			mine[t.spot[e]] = t.low[e]
			spare += int64(t.cores[t.spot[e]])
		}
		for b := range int32(t.bids()) {
			if t.kind[b] == slack || t.kind[b] == flexible && b <= a {
				continue
			}
			var lowA, lowB, cores, spareB int64
			for e := t.first[b]; e < t.first[b+1]; e++ {
				n := t.spot[e]
				spareB += int64(t.cores[n])
				if mine[n] > 0 {
					lowA += int64(mine[n])
					lowB += int64(t.low[e])
					cores += int64(t.cores[n])
				}
			}
			if t.kind[b] == flexible {
				lowB = max(lowB, cores-(spareB-int64(t.total[b])))
			}
			if max(lowA, cores-spare)+lowB > cores {
				join(a, b)
			}
		}
		for e := t.first[a]; e < t.first[a+1]; e++ {
			mine[t.spot[e]] = 0
		}
	}
}

func (s *tree) conflict(a, b int32) bool { return s.against[a][b>>6]>>(b&63)&1 != 0 }

// solve searches the tree and leaves the best winners in best. It returns a
// bound for the part: the best value if the search was complete, or the largest
// bound of an abandoned tree node if that is higher.
func (s *tree) solve() int64 {
	root := s.level(0)
	root.zero = zeroed(root.zero, s.t.bids()+s.t.jobs())
	s.jobRows()
	if s.t.loose {
		s.makeSetRows()
	}
	s.start(&root.w)
	s.explore(0)
	return max(s.best.value, s.left)
}

func (s *tree) level(depth int) *level {
	for len(s.levels) <= depth {
		s.levels = append(s.levels, &level{})
	}
	return s.levels[depth]
}

// jobRows stores the rows that say that a job wins at most once. They are the
// first, so that the row of job j has number j, and its slack variable is
// bids+j.
func (s *tree) jobRows() {
	t := s.t
	for j := range t.jobs() {
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			s.rows.bid = append(s.rows.bid, b)
			s.rows.coef = append(s.rows.coef, 1)
		}
		s.rows.rhs = append(s.rows.rhs, 1)
		s.rows.unit = append(s.rows.unit, 1)
		s.rows.first = append(s.rows.first, int32(len(s.rows.bid)))
	}
}

// start sets up the program without limits of nodes and makes it optimal: each
// job wins with its best bid. All d are then nonnegative, which the dual
// simplex requires.
func (s *tree) start(w *tableau) {
	t := s.t
	n := t.bids()
	w.rows, w.cols, w.z = 0, n, 0
	w.a, w.beta, w.basic = w.a[:0], w.beta[:0], w.basic[:0]
	w.d, w.free = w.d[:0], w.free[:0]
	for b := range n {
		w.free = append(w.free, int32(b))
		w.d = append(w.d, -float64(t.value[b]))
	}
	s.locate(w)
	for j := range int32(t.jobs()) {
		bids, ones := s.rows.row(j)
		s.work += w.addRow(int32(n)+j, 1, 1, bids, ones, s.rowOf, s.colOf)
	}
	for j := range t.jobs() {
		best := int32(-1)
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if best < 0 || t.value[b] > t.value[best] {
				best = b
			}
		}
		if best >= 0 {
			s.work += w.pivot(j, int(best))
		}
	}
}

// ruined says that rounding has spoilt the solution: a job wins more than once,
// or a share is negative.
func (s *tree) ruined() bool {
	t := s.t
	for j := range t.jobs() {
		var sum float64
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			sum += s.x[b]
			if s.x[b] < -ruinedBy {
				return true
			}
		}
		if sum > 1+ruinedBy {
			return true
		}
	}
	return false
}

// locate finds the row or column of each bid in the tableau.
func (s *tree) locate(w *tableau) {
	for b := range s.rowOf {
		s.rowOf[b], s.colOf[b] = -1, -1
	}
	for i, v := range w.basic[:w.rows] {
		if int(v) < len(s.rowOf) {
			s.rowOf[v] = int32(i)
		}
	}
	for j, v := range w.free[:w.cols] {
		if int(v) < len(s.colOf) {
			s.colOf[v] = int32(j)
		}
	}
}

// explore searches the tree below a level, depth first. The side where the
// decision is made (yes) is explored by recursion, on the next level; then the
// loop goes on with the other side on this level, so that the depth is at most
// the number of yes decisions on a path.
func (s *tree) explore(depth int) {
	v := s.level(depth)
	for {
		s.nodes++
		bound, open := s.bound(v, depth)
		if !open {
			return
		}
		if s.nodes >= s.maxNodes || s.work >= s.maxWork {
			s.left = max(s.left, bound)
			return
		}
		d := s.branch(v)
		if d == settled {
			continue
		}
		if d == nothing {
			// All shares are whole and decided, so there is one set of winners
			// left. tryWinners has kept it if it holds. If it surely does not
			// hold, this tree node is done; otherwise its bound must stay.
			if s.mayHold() {
				s.left = max(s.left, bound)
			}
			return
		}
		child := s.level(depth + 1)
		child.zero = append(child.zero[:0], v.zero...)
		s.decide(child.zero, d, true)
		child.w.copyFrom(&v.w, child.zero, int32(s.t.bids()+s.t.jobs()))
		s.work += int64(child.w.rows * child.w.cols)
		s.explore(depth + 1)
		s.decide(v.zero, d, false)
		v.w.copyFrom(&v.w, v.zero, int32(s.t.bids()+s.t.jobs()))
	}
}

// decide forces to 0 what a decision leaves no room for. Decisions have the
// numbers of variables: a bid wins or loses; or a job (bids+j) wins, with any
// of its bids, or loses.
func (s *tree) decide(zero []bool, d int32, yes bool) {
	t := s.t
	j := int(d) - t.bids()
	switch {
	case j < 0 && yes:
		s.win(zero, d)
	case j < 0:
		zero[d] = true
	case yes:
		zero[d] = true
	default:
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			zero[b] = true
		}
	}
}

// win forces to 0 all bids that conflict with bid b, which include the other
// bids of its job, and makes the job win: only b is left.
func (s *tree) win(zero []bool, b int32) {
	for a := range s.t.bids() {
		if s.conflict(b, int32(a)) {
			zero[a] = true
		}
	}
	zero[s.t.bids()+int(s.t.jobOf[b])] = true
}

// forced says that the job must win in this branch.
func (s *tree) forced(zero []bool, j int) bool { return zero[s.t.bids()+j] }

// bound solves the program of the level: simplex, prove, separate, and again
// while separate adds rows. It returns false as soon as the bound shows that no
// winners below this level are better than the best. Otherwise it returns the
// bound, with the solution in s.x.
func (s *tree) bound(v *level, depth int) (int64, bool) {
	w := &v.w
	// Cuts at the root help the whole tree, so it gets many rounds of them;
	// elsewhere two rounds.
	rounds := 2
	if depth == 0 {
		rounds = 40
	}
	bound := int64(math.MaxInt64)
	last := math.Inf(1)
	rebuilt := false
	for round := 0; ; round++ {
		stuck := s.simplex(v, pivotsAtOnce)
		got := s.prove(w, v.zero, stuck)
		bound = min(bound, got)
		if bound <= s.best.value {
			return bound, false
		}
		s.read(w)
		if stuck >= 0 || s.ruined() {
			// Rounding has spoilt the tableau, or the program seems to have no
			// solution and prove could not confirm it: build the tableau anew,
			// once.
			if rebuilt {
				return bound, true
			}
			rebuilt = true
			s.start(w)
			continue
		}
		if s.fix(v.zero, got) {
			continue
		}
		if round%4 == 3 {
			// Rows that no longer bind only cost time: drop them.
			w.copyFrom(w, v.zero, int32(s.t.bids()+s.t.jobs()))
		}
		// At the root, stop cutting once a round lowers the value too little, but
		// not before the fourth round.
		cuts := round < rounds && (depth > 0 || last-w.z > slowCuts*math.Abs(w.z) || round < 4)
		last = w.z
		if !s.separate(w, cuts) {
			if s.integral() {
				s.tryWinners()
				if bound <= s.best.value {
					return bound, false
				}
			} else if depth == 0 || s.nodes%16 == 0 {
				s.round()
			}
			if s.nodes == 1 && float64(bound-s.best.value) > wideGap*float64(bound) {
				s.improve()
				if bound <= s.best.value {
					return bound, false
				}
			}
			return bound, true
		}
		if s.work >= s.maxWork {
			return bound, true
		}
	}
}

// wideGap is the share of the bound from which on a gap after the root is worth
// another ejection search; a smaller one the tree closes faster alone.
const wideGap = 0.002

// pivotsAtOnce bounds the pivots of one solve, since the simplex can cycle.
// Stopping early is safe: any prices give a bound.
const pivotsAtOnce = 4000

// simplex makes the program optimal, or stops when its value shows that no
// better winners are below. It returns the row that shows that there is no
// solution, or -1.
func (s *tree) simplex(v *level, pivots int) int {
	w := &v.w
	// Better winners are worth at least best+1, as values are integers, and the
	// program's value only falls: below best+1 the level can be ruled out;
	// prove decides.
	enough := float64(s.best.value) + 1 - roomToRound
	for range pivots {
		r := w.leaving(v.zero)
		if r < 0 {
			return -1
		}
		c := w.entering(r, v.zero, s.little)
		if c < 0 {
			return r
		}
		s.work += w.pivot(r, c)
		if w.z < enough {
			return -1
		}
	}
	return -1
}

// read copies the shares of the bids from the tableau to s.x. Free variables
// are 0.
func (s *tree) read(w *tableau) {
	clear(s.x)
	for i, v := range w.basic[:w.rows] {
		if int(v) < len(s.x) {
			s.x[v] = w.beta[i]
		}
	}
}

// prove turns the prices of the rows (the d of their slack variables) into a
// bound, in integers. Any nonnegative prices give a valid bound, so nothing
// rests on the accuracy of the tableau. Rows of jobs need no price: for each
// job the loop below takes its best bid, as in prices.prove.
//
// If the program has no solution, stuck is the row that shows it (a Farkas
// certificate): the prices of that row can be added any number of times and
// lower the bound each time. weight adds it often enough to get below the best
// value, with a margin of 1/1000 for rounding. If the variable of that row is
// too large instead of negative, the signs turn.
func (s *tree) prove(w *tableau, zero []bool, stuck int) int64 {
	t := s.t
	n, jobs := t.bids(), t.jobs()
	clear(s.cost)
	var weight float64
	var row []float64
	if stuck >= 0 {
		row = w.row(stuck)
		weight = max(w.z-float64(s.best.value)+1, 1) * 1.001 / math.Abs(w.beta[stuck])
		if w.beta[stuck] > 0 {
			weight = -weight
		}
	}
	// The integer sums may wrap around. sum and size follow them in floating
	// point, size as an upper bound of every bid's cost; if either exceeds
	// 1<<60, the integers are not used.
	var sum, size float64
	var total int64
	// charge adds the price of a row to the bound and to the costs of its bids.
	// It skips bids and rows of jobs.
	charge := func(variable int32, price float64) {
		r := variable - int32(n)
		if int(r) < jobs || price <= 0 {
			return
		}
		p := fixedPrice(price/s.rows.unit[r], s.scale)
		rhs := s.rows.rhs[r]
		sum += float64(p) * float64(rhs)
		total += p * rhs
		bids, coef := s.rows.row(r)
		for k, b := range bids {
			s.cost[b] += p * int64(coef[k])
		}
		size += float64(p) * s.rows.unit[r]
	}
	for j, v := range w.free[:w.cols] {
		price := w.d[j]
		if row != nil {
			price += float64(weight * row[j])
		}
		charge(v, price)
	}
	if stuck >= 0 && weight > 0 {
		charge(w.basic[stuck], weight)
	}
	if sum > 1<<60 || size > 1<<60 {
		return math.MaxInt64
	}
	for j := range jobs {
		best := int64(0)
		if s.forced(zero, j) {
			best = math.MinInt64
		}
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if !zero[b] {
				best = max(best, t.value[b]<<s.scale-s.cost[b])
			}
		}
		if best == math.MinInt64 {
			return math.MinInt64 // a job that must win cannot
		}
		total += best
	}
	return total >> s.scale
}

// fix forces to 0 what cannot be part of better winners (reduced cost fixing):
// bids whose win would lower the bound to the best value or less, and the loss
// of jobs (so that they must win) where that would. It uses the costs of the
// last prove, whose bound the caller passes, and returns whether a bid with a
// share in the solution is gone, so that the program must be solved again.
func (s *tree) fix(zero []bool, bound int64) bool {
	if bound == math.MaxInt64 {
		return false
	}
	t := s.t
	// What the bound may lose before it is no better than the best. The bound
	// was rounded down by less than 1, which the test for >= covers: what is
	// left then rounds down to the best value or less.
	spare := (bound - s.best.value) << s.scale
	changed := false
	for j := range t.jobs() {
		best := int64(0)
		if s.forced(zero, j) {
			best = math.MinInt64
		}
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if !zero[b] {
				best = max(best, t.value[b]<<s.scale-s.cost[b])
			}
		}
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if !zero[b] && best-(t.value[b]<<s.scale-s.cost[b]) >= spare {
				zero[b] = true
				changed = changed || s.rowOfBid(b)
			}
		}
		if !s.forced(zero, j) && best >= spare {
			zero[t.bids()+j] = true
		}
	}
	return changed
}

// rowOfBid says that the bid had a share in the last solution.
func (s *tree) rowOfBid(b int32) bool { return s.x[b] > someShare }

// integral says whether each bid wins or loses wholly. tryWinners checks the
// winners exactly.
func (s *tree) integral() bool {
	for _, x := range s.x {
		if x > almostWhole && x < 1-almostWhole {
			return false
		}
	}
	return true
}

// tryWinners takes the bids of an integral solution as winners, and keeps them
// if they are worth more than the best and fit.
func (s *tree) tryWinners() {
	defer s.charge(s.m.steps)
	s.winners = s.winners[:0]
	var value int64
	for b, x := range s.x {
		if x > 0.5 {
			s.winners = append(s.winners, int32(b))
			value += s.t.value[b]
		}
	}
	if value <= s.best.value {
		return
	}
	if ok, _ := s.m.holds(s.winners); ok {
		s.best.keep(s.m)
	}
}

// charge counts the steps of the room since before as work of the tree.
func (s *tree) charge(before int64) { s.work += (s.m.steps - before) * cellsPerStep }

// mayHold says whether the bids of the solution can win together, or whether
// that is not known.
func (s *tree) mayHold() bool {
	defer s.charge(s.m.steps)
	s.winners = s.winners[:0]
	for b, x := range s.x {
		if x > 0.5 {
			s.winners = append(s.winners, int32(b))
		}
	}
	ok, sure := s.m.holds(s.winners)
	return ok || !sure
}

// round makes winners from a fractional solution: it accepts bids in the order
// of their shares, then of their values.
func (s *tree) round() {
	defer s.charge(s.m.steps)
	t := s.t
	s.winners = s.winners[:0]
	for b := range t.bids() {
		s.winners = append(s.winners, int32(b))
	}
	slices.SortFunc(s.winners, func(a, b int32) int {
		switch x, y := s.x[a], s.x[b]; {
		case x > y+sameShare:
			return -1
		case x < y-sameShare:
			return 1
		case t.value[a] > t.value[b]:
			return -1
		case t.value[a] < t.value[b]:
			return 1
		}
		return int(a - b)
	})
	s.m.clear()
	s.m.fill(s.winners)
	if s.m.value > s.best.value {
		s.best.keep(s.m)
	}
}

// What branch returns if it has no decision to explore.
const (
	nothing = int32(-1) // everything is decided
	settled = int32(-2) // one side of a decision was ruled out, and the other one made: solve the level again
)

// branch chooses the next decision. It tries the decisions whose variables are
// most fractional on both sides (strong branching) and takes the one with the
// largest product of the two losses of the bound, so that both sides shrink.
// Where a decision has been tried often enough, the average of its losses
// stands in for a try (pseudocosts). If all shares are whole but the bids do
// not fit together, it takes any winning bid that is not decided yet.
func (s *tree) branch(v *level) int32 {
	s.candidates(v)
	if len(s.options) == 0 {
		for b, x := range s.x {
			if x > 0.5 && !v.zero[b] && !s.decided(v.zero, int32(b)) {
				return int32(b)
			}
		}
		return nothing
	}
	if len(s.options) == 1 {
		return s.options[0].what
	}
	found, most := int32(-1), -1.0
	for _, o := range s.options {
		d := o.what
		up, ruledOut := s.lost(v, o, true)
		if ruledOut {
			s.decide(v.zero, d, false)
			return settled
		}
		down, ruledOut := s.lost(v, o, false)
		if ruledOut {
			s.decide(v.zero, d, true)
			return settled
		}
		if score := max(up, s.little) * max(down, s.little); score > most {
			found, most = d, score
		}
	}
	return found
}

// option is a decision to consider, with the share of its variable in the
// solution and how far that is from whole, weighted by value.
type option struct {
	what   int32
	part   float64
	unsure float64
}

// The number of decisions about jobs and about bids that branch compares.
const (
	jobOptions = 4
	bidOptions = 5
)

// candidates fills s.options with the most fractional jobs and bids. A job
// whose share is within 0.02 of whole is no candidate; deciding its bids says
// more.
func (s *tree) candidates(v *level) {
	t := s.t
	s.options = s.options[:0]
	for j := range t.jobs() {
		var x, value float64
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			x += s.x[b]
			value += float64(s.x[b] * float64(t.value[b]))
		}
		if !s.forced(v.zero, j) && x > fractional && x < 1-fractional {
			s.options = append(s.options, option{int32(t.bids() + j), x, min(x, 1-x) * value / x})
		}
	}
	unsurest := func(x, y option) int {
		switch {
		case x.unsure > y.unsure:
			return -1
		case x.unsure < y.unsure:
			return 1
		}
		return int(x.what - y.what)
	}
	slices.SortFunc(s.options, unsurest)
	s.options = s.options[:min(len(s.options), jobOptions)]
	n := len(s.options)
	for b, x := range s.x {
		if x > almostWhole && x < 1-almostWhole && !v.zero[b] {
			s.options = append(s.options, option{int32(b), x, min(x, 1-x) * float64(t.value[b])})
		}
	}
	slices.SortFunc(s.options[n:], unsurest)
	s.options = s.options[:min(len(s.options), n+bidOptions)]
}

// A side of a decision is tried enoughTries times, with at most tryPivots
// pivots each; after that its average counts.
const (
	enoughTries = 3
	tryPivots   = 12
)

// lost estimates what the bound loses if the decision is made, and says whether
// the loss rules that side out, which prove confirms. An average of earlier
// tries, made with other shares, is per unit of the variable, so it is scaled
// by how far the variable has to move here.
func (s *tree) lost(v *level, o option, yes bool) (lost float64, ruledOut bool) {
	side := 0
	move := o.part
	if yes {
		side, move = 1, 1-o.part
	}
	seen := &s.seen[2*int(o.what)+side]
	if seen.times >= enoughTries {
		return seen.sum / float64(seen.times) * move, false
	}
	try := &s.trial
	try.zero = append(try.zero[:0], v.zero...)
	s.decide(try.zero, o.what, yes)
	try.w.copyFrom(&v.w, try.zero, int32(s.t.bids()+s.t.jobs()))
	s.work += int64(try.w.rows * try.w.cols)
	stuck := s.simplex(try, tryPivots)
	lost = v.w.z - try.w.z
	if ceiling := v.w.z - float64(s.best.value); stuck >= 0 || lost >= ceiling-1 {
		lost = ceiling
		ruledOut = s.prove(&try.w, try.zero, stuck) <= s.best.value
	}
	lost = max(lost, 0)
	seen.times++
	seen.sum += lost / max(move, leastMove)
	return lost, ruledOut
}

// decided says that the bid must win already: its job must win, and this is the
// only bid it has left.
func (s *tree) decided(zero []bool, b int32) bool {
	j := s.t.jobOf[b]
	if !s.forced(zero, int(j)) {
		return false
	}
	for a := s.t.jobFirst[j]; a < s.t.jobFirst[j+1]; a++ {
		if a != b && !zero[a] {
			return false
		}
	}
	return true
}
