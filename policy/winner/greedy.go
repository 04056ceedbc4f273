package winner

import "slices"

// Greedy accepts bids one after the other, in the orders of four rules (value,
// and value per amount asked for), and answers with the best result. A caller
// falls back on it when a solver fails: it works for a problem of any size, and
// ignores bids that are not valid. Its bound is the sum of the best values of
// the jobs.
func Greedy(p *Problem) *Answer {
	sound := *p
	if p.Validate() != nil {
		sound = onlySound(p)
	}
	var r reducer
	r.load(&sound)
	var m room
	m.use(&r.t)
	var best result
	var order []int32
	for rule := range greedyRules {
		order = greedyOrder(&r.t, rule, order)
		m.clear()
		m.fill(order)
		if m.value > best.value {
			best.keep(&m)
		}
	}
	a := &Answer{Value: best.value, Bound: r.t.bestSum(), Steps: m.steps, Method: "greedy"}
	a.Proven = a.Value == a.Bound
	r.t.winners(a, &best)
	a.sortWon()
	a.restoreRigid(&sound)
	return a
}

// onlySound is the problem without what Validate objects to. Negative amounts
// become 0, and invalid bids become bids that cannot win.
func onlySound(p *Problem) Problem {
	nodes := min(len(p.Cores), len(p.GPUs))
	q := Problem{Jobs: max(p.Jobs, 0)}
	for n := range nodes {
		q.Cores = append(q.Cores, max(p.Cores[n], 0))
		q.GPUs = append(q.GPUs, max(p.GPUs[n], 0))
	}
	best := make([]int64, q.Jobs)
	var total int64
	q.Bids = slices.Clone(p.Bids)
	for i := range q.Bids {
		b := &q.Bids[i]
		ok := b.validate(&q) == nil
		if ok {
			grown := total + max(best[b.Job], b.Value) - best[b.Job]
			if ok = grown <= MaxTotal; ok {
				total = grown
				best[b.Job] = max(best[b.Job], b.Value)
			}
		}
		if !ok {
			// Answers name bids by their index, so the bid must stay: it
			// becomes one that asks for a node of an empty class and cannot
			// win.
			*b = Bid{Value: 1, Count: 1, PerNode: 1}
			if q.Jobs == 0 {
				q.Jobs = 1
				best = append(best, 0)
			}
		}
	}
	return q
}

// greedyRules is the number of rules that greedyOrder knows.
const greedyRules = 4

// greedyOrder sorts the bids of a part by one of the rules.
func greedyOrder(t *part, rule int, order []int32) []int32 {
	order = order[:0]
	key := make([]float64, t.bids())
	for b := range t.bids() {
		order = append(order, int32(b))
		v := float64(t.value[b])
		switch rule {
		case 0:
			key[b] = v
		case 1: // per core and GPU
			key[b] = v / t.weight(int32(b), 1)
		case 2: // per share of the nodes it uses
			key[b] = v / t.weight(int32(b), 0)
		case 3: // between value and density
			w := t.weight(int32(b), 0)
			key[b] = v / (1 + w/4)
		}
	}
	slices.SortFunc(order, func(x, y int32) int {
		switch {
		case key[x] > key[y]:
			return -1
		case key[x] < key[y]:
			return 1
		}
		return int(x - y)
	})
	return order
}

// weight is how much the bid takes: in cores and GPUs if absolute is 1, or in
// shares of its nodes if it is 0. A bid that is not rigid counts as spread
// evenly over its class. The added 1e-3 keeps a bid without nodes from dividing
// by 0.
func (t *part) weight(b int32, absolute int) float64 {
	var w float64
	spots := t.first[b+1] - t.first[b]
	for e := t.first[b]; e < t.first[b+1]; e++ {
		n := t.spot[e]
		c := float64(t.low[e])
		if t.kind[b] != rigid {
			each := float64(t.total[b])
			if t.per[b] > 0 {
				each = float64(t.per[b]) * float64(t.count[b])
			}
			c = each / float64(spots)
		}
		g := float64(t.ngpu[b])
		if absolute == 0 {
			c /= float64(max(t.cores[n], 1))
			g /= float64(max(t.gpus[n], 1))
		}
		w += c + g
	}
	return w + 1e-3
}

// winners adds the winners of a part to an answer, with the problem's numbers
// for bids and nodes.
func (t *part) winners(a *Answer, s *result) {
	at := 0
	for _, b := range s.bids {
		w := Win{Bid: t.origin[b]}
		for e := t.first[b]; e < t.first[b+1]; e++ {
			if c := s.give[at]; c > 0 {
				w.Nodes = append(w.Nodes, t.outside[t.spot[e]])
				w.Cores = append(w.Cores, c)
			}
			at++
		}
		a.Won = append(a.Won, w)
	}
}

func (a *Answer) sortWon() {
	slices.SortFunc(a.Won, func(x, y Win) int { return int(x.Bid - y.Bid) })
}

// restoreRigid completes the nodes and cores of rigid bids. A part leaves out
// the nodes on which all jobs fit, and merges equal nodes, so a rigid winner
// may lack nodes here; since it has no choice, they follow from the problem. A
// bid that is not rigid keeps all its nodes in a part.
func (a *Answer) restoreRigid(p *Problem) {
	for i := range a.Won {
		w := &a.Won[i]
		b := &p.Bids[w.Bid]
		if len(w.Nodes) == int(b.Count) {
			continue
		}
		w.Nodes, w.Cores = w.Nodes[:0], w.Cores[:0]
		var sum int64
		for _, n := range b.Nodes {
			if p.Cores[n] >= max(b.PerNode, 1) && p.GPUs[n] >= b.GPUs {
				w.Nodes = append(w.Nodes, n)
				sum += int64(p.Cores[n])
			}
		}
		for _, n := range w.Nodes {
			c := b.PerNode
			if c == 0 {
				c = int32(max(1, int64(b.Total)-(sum-int64(p.Cores[n]))))
			}
			w.Cores = append(w.Cores, c)
		}
	}
}
