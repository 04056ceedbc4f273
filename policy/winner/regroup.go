package winner

import "slices"

// regroup improves the winners of a part that is too large for the tree (large
// neighbourhood search). It removes the winners of one neighbourhood and solves
// the small problem that remains, with all other winners in place, nearly
// exactly. inner is a Search of its own, since the outer one is in use; its
// limits are too small for it to regroup in turn.
type regroup struct {
	inner   *Search
	problem Problem
	ofBid   []int32 // by bid of the small problem: the bid of the part
	ofJob   []int32 // by job of the part: 1 + the job of the small problem, or 0
	freed   []int32 // the winning bids that free removed
	order   []int32
	before  result  // the winners before this neighbourhood
	reached []bool  // by node: it is in the neighbourhood
	nodes   []int32 // nodes of the neighbourhood, visited and waiting
}

// The number of winners that a neighbourhood frees, and the most bids of its
// problem beside those of the freed winners.
const (
	leastFreed = 6
	mostFreed  = 20
	mostBids   = 260
)

// regroupLimits keep one neighbourhood short; many are tried. Iterations is
// below worthRegrouping, so that the inner search never regroups.
func regroupLimits(seed uint64) Limits {
	return Limits{Iterations: 2000, BoundIterations: 40, TreeNodes: 200, TreeBids: mostBids + mostFreed, TreeWork: 6_000_000, Seed: seed}
}

// cellsPerStep converts work of the tree (cells of tableaux) into steps of a
// room, which take about as long as this many cells.
const cellsPerStep = 8

// run regroups one neighbourhood after the other until the steps are spent or
// the best value reaches the goal. gain has, by bid, the value above the price:
// it says which bids to prefer when a neighbourhood has too many. A worse
// result is undone; an equal one is kept, which lets the search drift.
func (g *regroup) run(m *room, x *eject, gain []float64, steps, goal int64, best *result) (spent int64) {
	t := m.t
	if t.jobs() < 2 {
		return 0
	}
	if g.inner == nil {
		g.inner = new(Search)
	}
	best.restore(m)
	m.exact = true
	size := int32(leastFreed)
	idle := 0
	for spent < steps && best.value < goal {
		before := m.steps
		g.before.keep(m)
		g.free(m, x, size)
		work := g.solve(m, gain, x.next())
		if m.value < g.before.value {
			g.before.restore(m)
		}
		if m.value > best.value {
			best.keep(m)
			idle = 0
		} else if idle++; idle > t.jobs()/8 {
			// Small neighbourhoods no longer improve the winners: try larger
			// ones.
			idle = 0
			size = min(size+2, mostFreed)
		}
		spent += m.steps - before + work/cellsPerStep + int64(t.bids())
	}
	return spent
}

// free removes up to size winners: those on the nodes of a random bid, then
// those on the nodes of the removed winners, and so on. So the freed room is
// connected, and other bids can use it together.
func (g *regroup) free(m *room, x *eject, size int32) {
	t := m.t
	g.freed = g.freed[:0]
	g.reached = zeroed(g.reached, t.nodes())
	start := x.below(t.bids())
	g.nodes = append(g.nodes[:0], t.spot[t.first[start]:t.first[start+1]]...)
	for i := 0; i < len(g.nodes) && len(g.freed) < int(size); i++ {
		// Continue with a random one of the waiting nodes.
		k := i + int(x.below(len(g.nodes)-i))
		g.nodes[i], g.nodes[k] = g.nodes[k], g.nodes[i]
		n := g.nodes[i]
		if g.reached[n] {
			continue
		}
		g.reached[n] = true
		for m.slots[n] > 0 && len(g.freed) < int(size) {
			b := t.bidOf[m.slot[m.slotFirst[n]]]
			g.freed = append(g.freed, b)
			m.remove(b)
			g.nodes = append(g.nodes, t.spot[t.first[b]:t.first[b+1]]...)
		}
	}
}

// solve fills the free room with the best winners that the inner search finds,
// and returns the work of its tree. All bids that fit take part, or if there
// are too many, those with the best gains and the freed winners; so the result
// can equal what was removed.
func (g *regroup) solve(m *room, gain []float64, seed uint64) (work int64) {
	t := m.t
	p := &g.problem
	p.Cores, p.GPUs = append(p.Cores[:0], m.cores...), append(p.GPUs[:0], m.gpus...)
	g.order = g.order[:0]
	for b := range int32(t.bids()) {
		if m.won[t.jobOf[b]] < 0 && m.fits(b) {
			g.order = append(g.order, b)
		}
	}
	if len(g.order) > mostBids {
		slices.SortFunc(g.order, func(x, y int32) int {
			switch {
			case gain[x] > gain[y]:
				return -1
			case gain[x] < gain[y]:
				return 1
			}
			return int(x - y)
		})
		g.order = g.order[:mostBids]
		for _, b := range g.freed {
			if !slices.Contains(g.order, b) {
				g.order = append(g.order, b)
			}
		}
		slices.Sort(g.order)
	}
	g.ofJob = zeroed(g.ofJob, t.jobs())
	p.Jobs, p.Bids, g.ofBid = 0, p.Bids[:0], g.ofBid[:0]
	for _, b := range g.order {
		from, to := t.first[b], t.first[b+1]
		if from == to {
			continue // it uses no scarce node: fill adds it below
		}
		j := t.jobOf[b]
		if g.ofJob[j] == 0 {
			p.Jobs++
			g.ofJob[j] = int32(p.Jobs)
		}
		bid := Bid{Job: g.ofJob[j] - 1, Value: t.value[b], Nodes: t.spot[from:to], GPUs: t.ngpu[b]}
		switch {
		case t.kind[b] == slack:
			bid.Count, bid.PerNode = t.count[b], t.per[b]
			if bid.PerNode == 0 {
				bid.Total = t.total[b]
			}
		default:
			bid.Count, bid.PerNode = to-from, t.per[b]
			if bid.PerNode == 0 {
				bid.Total = t.total[b]
				if t.kind[b] == rigid {
					bid.Total = 0
					for _, c := range t.low[from:to] {
						bid.Total += c
					}
				}
			}
		}
		p.Bids = append(p.Bids, bid)
		g.ofBid = append(g.ofBid, b)
	}
	if p.Jobs > 0 {
		a, err := g.inner.Solve(p, regroupLimits(seed))
		if err == nil {
			work = g.inner.work
			for _, w := range a.Won {
				// fits chooses nodes and cores anew, and may say no to a slack
				// bid that fitted elsewhere.
				if b := g.ofBid[w.Bid]; m.fits(b) {
					m.add(b)
				}
			}
		}
	}
	m.fill(g.order)
	return work
}
