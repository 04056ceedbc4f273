package winner

import "slices"

// regroup improves the winners of a part that is too large for the tree: it
// takes away the winners of one neighbourhood, and solves the small problem that
// is left there, with everybody else in place, nearly exactly.
type regroup struct {
	inner   *Search
	problem Problem
	ofBid   []int32 // bid of the small problem: bid of the part
	ofJob   []int32 // job of the part: job of the small problem, or -1
	freed   []int32 // bids that lost their place
	order   []int32
	before  result
	reached []bool // by node: it is in the neighbourhood
	nodes   []int32
}

// The size of a neighbourhood, and what its solution may cost.
const (
	leastFreed = 6
	mostFreed  = 20
	mostBids   = 260
)

func regroupLimits(seed uint64) Limits {
	return Limits{Iterations: 2000, BoundIterations: 40, TreeNodes: 200, TreeBids: mostBids + mostFreed, TreeWork: 6_000_000, Seed: seed}
}

// cellsPerStep is how many cells of tableaux cost about what one step of a room
// costs.
const cellsPerStep = 8

// run regroups neighbourhood after neighbourhood until the steps are spent or the
// goal is reached. gain tells which bids look good at the prices.
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
			// All small neighbourhoods seem to be good: larger ones.
			idle = 0
			size = min(size+2, mostFreed)
		}
		spent += m.steps - before + work/cellsPerStep + int64(t.bids())
	}
	return spent
}

// free takes winners away: those around the nodes of a random bid, and around
// those of the winners so found.
func (g *regroup) free(m *room, x *eject, size int32) {
	t := m.t
	g.freed = g.freed[:0]
	g.reached = zeroed(g.reached, t.nodes())
	start := x.below(t.bids())
	g.nodes = append(g.nodes[:0], t.spot[t.first[start]:t.first[start+1]]...)
	for i := 0; i < len(g.nodes) && len(g.freed) < int(size); i++ {
		// A random one of those waiting comes next.
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

// solve lets the best winners it finds have what is free.
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
			continue // it stands in nobody's way and is added below
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
				if b := g.ofBid[w.Bid]; m.fits(b) {
					m.add(b)
				}
			}
		}
	}
	m.fill(g.order)
	return work
}
