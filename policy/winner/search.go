package winner

// Search is the solver of this package. Its fields are memory that Solve
// reuses; an answer does not depend on earlier problems. Two goroutines must
// not use a Search at the same time.
type Search struct {
	reducer reducer
	part    part
	room    room
	prices  prices
	eject   eject
	tree    tree
	best    result
	order   []int32
	members []int32
	regroup regroup
	work    int64 // cells of tableaux changed for the last problem
}

var _ Solver = (*Search)(nil)

// Solve finds winners and a bound. It fails only if the problem is not valid.
// Parts share no scarce node, so values and bounds of parts add up.
func (s *Search) Solve(p *Problem, l Limits) (*Answer, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	a := &Answer{Method: "search"}
	s.reducer.load(p)
	parts := s.reducer.reduce()
	all := max(s.reducer.living(), 1)
	treeWork := l.TreeWork
	s.work = 0
	for k := range parts {
		s.members = s.members[:0]
		for j, of := range s.reducer.partOf {
			if int(of) == k {
				s.members = append(s.members, int32(j))
			}
		}
		s.reducer.cut(&s.part, s.members)
		if s.part.bids() == 0 {
			continue
		}
		share := l
		share.Iterations = l.Iterations * int64(s.part.bids()) / int64(all)
		share.TreeWork = treeWork
		bound, steps, work := s.solvePart(share)
		treeWork -= work
		s.work += work
		a.Value += s.best.value
		a.Bound += bound
		a.Steps += steps
		s.part.winners(a, &s.best)
	}
	a.Proven = a.Value == a.Bound
	a.sortWon()
	a.restoreRigid(p)
	return a, nil
}

// living is the number of bids that still matter.
func (r *reducer) living() (n int) {
	for _, yes := range r.alive {
		if yes {
			n++
		}
	}
	return n
}

// A part gets shortSearch ejection moves for each bid before the tree starts.
// If the tree's first bound does not close the gap, it gets longSearch moves
// for each bid, restarts times.
const (
	shortSearch = 60
	longSearch  = 200
	restarts    = 3
)

// solvePart leaves the best winners of s.part in s.best, and returns a bound
// for the part, the steps taken and the work of the tree. The methods run from
// cheap to costly: greedy rules, prices, a short ejection search, the tree
// (small parts only), a long ejection search, regrouping. It stops as soon as
// the best value equals the bound.
func (s *Search) solvePart(l Limits) (bound, steps, work int64) {
	t := &s.part
	m := &s.room
	m.use(t)
	m.steps = 0
	s.best = result{bids: s.best.bids[:0], give: s.best.give[:0]}
	bound = t.bestSum()
	for rule := range greedyRules {
		s.order = greedyOrder(t, rule, s.order)
		m.clear()
		m.fill(s.order)
		if m.value > s.best.value {
			s.best.keep(m)
		}
		if s.best.value == bound {
			return bound, m.steps, 0
		}
	}
	q := &s.prices
	q.use(t)
	q.steps = 0
	small := t.bids() <= l.TreeBids && l.TreeNodes > 0 && l.TreeWork > 0
	rounds := l.BoundIterations
	if small {
		rounds = min(rounds, fewRounds) // the tree finds better prices by itself
	}
	q.search(min(rounds, int(priceWork/t.priceCost())), m, &s.best)
	if b, ok := q.prove(); ok {
		bound = min(bound, b)
	}
	x := &s.eject
	x.use(m, l.Seed)
	x.steps = 0
	typical := float64(t.bestSum()) / float64(t.jobs())
	if s.best.value < bound && small {
		moves := min(l.Iterations, shortSearch*int64(t.bids()))
		s.best.restore(m)
		x.run(moves, typical*hot, typical*cold, bound, &s.best)
		l.Iterations -= moves
		if s.best.value < bound {
			s.tree.use(t, m, &s.best, l, func() {
				for range restarts {
					moves := min(l.Iterations, longSearch*int64(t.bids()))
					s.best.restore(m)
					x.run(moves, typical*hot, typical*cold, bound, &s.best)
					l.Iterations -= moves
				}
			})
			bound = min(bound, s.tree.solve())
			work = s.tree.work
			steps += s.tree.nodes
		}
	}
	if small {
		// If the tree has left a gap, mostly the bound is weak, and a longer
		// search for winners does not close it.
		l.Iterations = min(l.Iterations, longSearch*int64(t.bids()))
	}
	if s.best.value < bound {
		s.best.restore(m)
		x.run(l.Iterations/annealShare, typical*hot, typical*cold, bound, &s.best)
		if rest := l.Iterations - l.Iterations/annealShare; rest >= worthRegrouping && s.best.value < bound {
			steps += s.regroup.run(m, x, q.gain, rest*moveSteps, bound, &s.best)
		}
	}
	return bound, steps + m.steps + q.steps + x.steps, work
}

// priceCost is about the number of nodes that one round of prices looks at.
// Slack bids count tenfold, as their nodes are sorted.
func (t *part) priceCost() (cost int64) {
	cost = 1
	for b := range t.bids() {
		nodes := int64(t.first[b+1] - t.first[b])
		if t.kind[b] == slack {
			nodes *= 10
		}
		cost += nodes
	}
	return cost
}

const (
	// priceWork bounds the nodes looked at in all rounds of prices of a part.
	priceWork = 30_000_000
	// fewRounds is the number of rounds for a part that the tree will solve.
	fewRounds = 60
	// One move in annealShare goes into annealing; the others regroup
	// neighbourhoods, if they are at least worthRegrouping.
	annealShare     = 3
	worthRegrouping = 50_000
)

// The temperatures at which the ejection search begins and ends, as shares of
// the average best value of a job.
const (
	hot  = 0.15
	cold = 0.005
)
