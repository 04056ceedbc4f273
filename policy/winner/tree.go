package winner

import (
	"math"
	"slices"
)

// tree closes the gap of a small part. Each of its nodes solves a linear program
// with only those rows that bind, adds cutting planes that hold for all winners,
// and takes the prices of the rows to an exact bound; then it decides one bid.
type tree struct {
	t    *part
	rows rowStore
	m    *room
	best *result
	// improve looks longer for better winners, once the first bound has not closed
	// the gap: a tree is small where the best is good.
	improve func()

	against  [][]uint64 // by bid: the bids that cannot win beside it
	x        []float64  // by bid, of the last program
	used     []float64  // cores by node, and then GPUs
	head     []int32    // by node: a list of what stands there
	link     []int32
	rowOf    []int32
	colOf    []int32
	cost     []int64
	scale    uint
	little   float64 // what the program's coefficients may be wrong by
	nodeRow  []int32 // the row for the cores of each node, then for its GPUs; -1: not made yet
	levels   []*level
	trial    level
	options  []option
	seen     []seen // by decision: what no cost, and then what yes cost
	found    []violation
	winners  []int32
	setRow   []int32 // rows for the classes of loose bids
	here     []standing
	binding  []int32  // rows that bind
	odd      []uint64 // for each, the bids with odd coefficients
	oddRhs   []bool
	chosen   []int32
	sums     []int64
	cut      builder
	nodes    int64 // tree nodes seen
	maxNodes int64
	work     int64 // cells changed
	maxWork  int64
	left     int64 // the largest bound of a tree node that was given up
}

// level is one depth of the tree: its program, and the variables that may not be
// used there: bids, and then what jobs leave when they lose.
type level struct {
	w    tableau
	zero []bool
}

// seen is what a decision has cost the bound, for a whole step of the program.
type seen struct {
	times int
	sum   float64
}

// standing is what a bid has on a node, and its part in the program.
type standing struct {
	cores, gpus, size int32
	part              float64
}

// rowStore holds the rows ever made: sum of coef times bid is at most rhs. The
// first ones say that a job wins at most once.
type rowStore struct {
	rhs   []int64
	unit  []float64 // the largest coefficient; the program has rows in such units
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

// add stores a row, or finds it where it is there already.
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

// violation is a row that the last program breaks, and by how much.
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

// findConflicts says which two bids cannot both win: those of one job, and those
// for which a node they share is too small.
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

// findTightConflicts looks at pairs of which one is flexible: all nodes that they
// share together may be too small for both. A flexible bid that takes nearly all
// of its nodes leaves nearly nothing to anybody.
func (s *tree) findTightConflicts(join func(a, b int32)) {
	t := s.t
	mine := make([]int32, t.nodes()) // what the flexible bid takes of each node at least; 0: not its node
	for a := range int32(t.bids()) {
		if t.kind[a] != flexible || s.work > s.maxWork/4 {
			continue // a conflict that is not known makes the tree larger, not wrong
		}
		s.work += int64(len(t.spot))
		spare := -int64(t.total[a]) // what it can leave to others, on all its nodes
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

// solve searches the tree. It returns a bound for the part; the best winners are
// in best.
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
// first, each with the number of its job.
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

// start sets the program up as if nodes had no limits: each job wins with its
// best bid, which is optimal for that.
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

// ruined says that the solution cannot be right: a job wins more than once, or a
// bid less than not at all.
func (s *tree) ruined() bool {
	t := s.t
	for j := range t.jobs() {
		var sum float64
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			sum += s.x[b]
			if s.x[b] < -1e-4 {
				return true
			}
		}
		if sum > 1+1e-4 {
			return true
		}
	}
	return false
}

// locate finds out where each bid stands in the tableau.
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

// explore works through the tree below the level, the branch where a bid wins
// before the one where it does not.
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

// decide rules out what a decision leaves no room for. Decisions are numbered as
// variables are: that a bid wins or not, or that a job wins, however, or not.
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

// win rules out everything that cannot be beside bid b.
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

// bound solves the program of the level. It says no where nothing better than
// the best can be below it; otherwise the bound, with the program's solution in
// s.x.
func (s *tree) bound(v *level, depth int) (int64, bool) {
	w := &v.w
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
			// Rounding has ruined the tableau: once more from the start.
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
			// Rows that no longer bind only cost time.
			w.copyFrom(w, v.zero, int32(s.t.bids()+s.t.jobs()))
		}
		cuts := round < rounds && (depth > 0 || last-w.z > 1e-4*math.Abs(w.z) || round < 4)
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

// wideGap is the share of the bound below which a gap is closed by the tree alone.
const wideGap = 0.002

// pivotsAtOnce bounds the pivots of one program, in case it goes round in circles.
const pivotsAtOnce = 4000

// simplex makes the program optimal, or stops when it is worth no more than the
// best winners. It returns the row that shows that there is no solution, or -1.
func (s *tree) simplex(v *level, pivots int) int {
	w := &v.w
	enough := float64(s.best.value) + 1 - 1e-3
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

// read takes the values of the bids out of the tableau.
func (s *tree) read(w *tableau) {
	clear(s.x)
	for i, v := range w.basic[:w.rows] {
		if int(v) < len(s.x) {
			s.x[v] = w.beta[i]
		}
	}
}

// prove takes the prices of the rows to a bound, in integers. Any prices would
// do, so that nothing rests on the tableau. Where the program has no solution,
// the row that shows it joins the prices with enough weight.
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
	var sum, size float64
	var total int64
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

// fix rules out what cannot be part of winners better than the best: bids that
// cost the bound too much, and the loss of jobs that must win. It uses the costs
// of the last prove and says whether the program has to be solved again.
func (s *tree) fix(zero []bool, bound int64) bool {
	if bound == math.MaxInt64 {
		return false
	}
	t := s.t
	// What the bound may lose before it is no better than the best.
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

// rowOfBid says that the bid had a part in the last solution.
func (s *tree) rowOfBid(b int32) bool { return s.x[b] > 1e-6 }

// integral says whether each bid wins or loses wholly.
func (s *tree) integral() bool {
	for _, x := range s.x {
		if x > 1e-5 && x < 1-1e-5 {
			return false
		}
	}
	return true
}

// tryWinners takes the bids of an integral program, and keeps them if they are
// better and hold.
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

// charge counts what the room has done since as work of the tree.
func (s *tree) charge(before int64) { s.work += (s.m.steps - before) * cellsPerStep }

// mayHold says whether the bids that must win here can, as far as is known.
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

// round accepts bids in the order of their part in the program.
func (s *tree) round() {
	defer s.charge(s.m.steps)
	t := s.t
	s.winners = s.winners[:0]
	for b := range t.bids() {
		s.winners = append(s.winners, int32(b))
	}
	slices.SortFunc(s.winners, func(a, b int32) int {
		switch x, y := s.x[a], s.x[b]; {
		case x > y+1e-9:
			return -1
		case x < y-1e-9:
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

// What branch says where there is nothing to choose.
const (
	nothing = int32(-1) // all is decided
	settled = int32(-2) // one side of a decision is ruled out, and the other made
)

// branch chooses what to decide next. It
// tries the decisions of which the program is least sure and takes the one that
// lowers the bound most on both sides, going by what was seen before where that
// is enough. Where it is sure of all, but they do not hold together, it takes
// any bid that is not decided yet.
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

// option is a decision that could be made, with its part in the program and how
// unsure that leaves it.
type option struct {
	what   int32
	part   float64
	unsure float64
}

// How many decisions about jobs and about bids are compared.
const (
	jobOptions = 4
	bidOptions = 5
)

func (s *tree) candidates(v *level) {
	t := s.t
	s.options = s.options[:0]
	for j := range t.jobs() {
		var x, value float64
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			x += s.x[b]
			value += float64(s.x[b] * float64(t.value[b]))
		}
		if !s.forced(v.zero, j) && x > 0.02 && x < 0.98 {
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
		if x > 1e-5 && x < 1-1e-5 && !v.zero[b] {
			s.options = append(s.options, option{int32(b), x, min(x, 1-x) * float64(t.value[b])})
		}
	}
	slices.SortFunc(s.options[n:], unsurest)
	s.options = s.options[:min(len(s.options), n+bidOptions)]
}

// Decisions are tried until they have been so often, with so many pivots.
const (
	enoughTries = 3
	tryPivots   = 12
)

// lost is what the bound loses when it is decided so, and whether it loses so much
// that nothing better than the best is left. What was seen before in other places
// is scaled by how far the program has to move.
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
	seen.sum += lost / max(move, 1e-3)
	return lost, ruledOut
}

// decided says that the bid's job must win and this is its only bid left.
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
