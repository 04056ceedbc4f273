package packing

import (
	"cmp"
	"math/bits"
	"slices"

	"muster/model"
)

// An appraiser chooses among devices where they are decoupled from the nodes.
type appraiser interface {
	// cost is the cost of taking an amount from a device with a given amount
	// left, in thousandths. The device with the lowest cost is taken, and among
	// equals the one with the least left.
	cost(kind, left, takes int32) int64
}

// tightestDevice looks at what is left alone.
type tightestDevice struct{}

func (tightestDevice) cost(_, _, _ int32) int64 { return 0 }

// pooledDescent is FGD on devices alone: what becomes useless of this one.
type pooledDescent struct{ target *Target }

func (r *pooledDescent) cost(kind, left, takes int32) int64 {
	return r.target.lost(kind, left-takes) - r.target.lost(kind, left)
}

// lost is what tasks of the target cannot use of one device, in thousandths x weight.
func (t *Target) lost(kind, left int32) int64 {
	cannot := t.weight
	for i := range t.tasks {
		if t.tasks[i].need[kind] <= left {
			cannot -= t.tasks[i].weight
		}
	}
	return int64(left) * cannot
}

// priced looks at what the space is worth to the shares that are expected. Of
// whole devices it spares the types that are asked for by name.
type priced struct {
	value    [][thousand + 1]int64 // by type
	scarcity []int64               // by type
}

func newPriced(t *Target, c *model.Cluster) *priced {
	r := &priced{scarcity: make([]int64, t.kinds)}
	devices := make([]int64, t.kinds)
	for n := range c.Nodes {
		for _, k := range c.Nodes[n].GPUs {
			devices[k]++
		}
	}
	for kind := range t.kinds {
		r.value = append(r.value, t.prices(kind))
		asked := int64(0)
		for i := range t.tasks {
			k := &t.tasks[i]
			if slices.Contains(k.need, never) && k.need[kind] != never {
				asked += k.weight * int64(k.gpus) * int64(k.need[kind])
			}
		}
		if devices[kind] > 0 {
			r.scarcity[kind] = min(priceUnit-1, asked*priceUnit/(devices[kind]*t.weight))
		}
	}
	return r
}

func (r *priced) cost(kind, left, takes int32) int64 {
	return (r.value[kind][left]-r.value[kind][left-takes])*priceUnit + r.scarcity[kind]*int64(takes)/thousand
}

func bitCount(set uint64) int32 { return int32(bits.OnesCount64(set)) }
func lowest(set uint64) int32   { return int32(bits.TrailingZeros64(set)) }

// rank orders devices: the lower the better. It is never negative.
func (p *packing) rank(q *need, n, d int32) int64 {
	kind := int32(p.nodes.cluster.Nodes[n].GPUs[d])
	left := p.nodes.list[n].left[d]
	cost := p.devices.cost(kind, left, min(left, q.milli[kind]))
	return (cost+1<<50)<<10 + int64(left)
}

// appraise finds the device of a node that is best for a request, and whether
// the node could host the task beside it; the score is never below 0 where there is one.
func (p *packing) appraise(q *need, n int32) cachedScore {
	e := cachedScore{version: p.nodes.list[n].version, score: -1, device: -1, fit: -1}
	set := p.nodes.fit(n, q)
	best := int64(-1)
	for rest := set; rest != 0; rest &= rest - 1 {
		d := lowest(rest)
		if r := p.rank(q, n, d); best < 0 || r < best {
			best, e.device = r, d
		}
	}
	if best >= 0 {
		e.score = 1<<62 - best
	}
	if bitCount(set) >= q.gpus && p.nodes.hosts(n, q) {
		fit, _ := bestFit{}.score(p.nodes, n, q, set)
		e.fit = int32(fit)
	}
	return e
}

// borrow places a request whose GPUs may be anywhere.
func (p *packing) borrow(c *choice) (*model.Allocation, int) {
	if c.nodes == 1 && c.needs[0].gpus <= 1 {
		return p.borrowOne(c)
	}
	for a := range c.needs {
		if p.gather(c, a) {
			return &p.out, a
		}
	}
	return nil, 0
}

// borrowOne takes the best device there is, and for the task the device's node
// or, if that cannot host it, the one with the fewest cores left.
func (p *packing) borrowOne(c *choice) (*model.Allocation, int) {
	best, with := ranked{node: -1, score: -1}, 0
	fit := int32(-1)
	if c.needs[0].gpus > 0 {
		p.refresh(c)
		for _, n := range p.nodes.order {
			for a := range c.scores {
				if e := &c.scores[a][n]; e.score > best.score || e.score >= 0 && e.score == best.score && e.fit > fit {
					best, with, fit = ranked{node: n, score: e.score, device: e.device}, a, e.fit
				}
			}
		}
		if best.node < 0 {
			return nil, 0
		}
	}
	q := &c.needs[with]
	p.begin()
	if fit >= 0 {
		p.add(q, best.node, best.device)
		return &p.out, with
	}
	host := p.host(q, nil)
	if host < 0 {
		return nil, 0
	}
	p.out.Parts = append(p.out.Parts, p.part(q, host))
	if q.gpus > 0 {
		p.grant(0, best.node, 1<<best.device, q.share)
	}
	return &p.out, with
}

// host is the node with the fewest cores left of those that have enough, without
// those that are taken already.
func (p *packing) host(q *need, taken []ranked) int32 {
	best := int32(-1)
	for _, n := range p.nodes.order {
		if (best < 0 || p.nodes.list[n].cores < p.nodes.list[best].cores) && p.nodes.hosts(n, q) &&
			!slices.ContainsFunc(taken, func(r ranked) bool { return r.node == n }) {
			best = n
		}
	}
	return best
}

// gather places several nodes or several GPUs: first nodes that have all they
// need, then others, whose own devices come first; what is missing is borrowed
// from nodes with few devices to give, so that what is together stays together.
func (p *packing) gather(c *choice, a int) bool {
	q := &c.needs[a]
	p.refresh(c)
	list := p.ranked[:0]
	for _, n := range p.nodes.order {
		if e := &c.scores[a][n]; e.fit >= 0 {
			list = append(list, ranked{node: n, score: e.score, fit: e.fit})
		}
	}
	p.ranked = list
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.fit, a.fit)) })
	list = list[:min(len(list), c.nodes)]
	for len(list) < c.nodes {
		host := p.host(q, list)
		if host < 0 {
			return false
		}
		list = append(list, ranked{node: host, fit: -1})
	}
	p.ranked = list
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Compare(a.node, b.node) })
	p.begin()
	var missing []int32 // parts, once for each device
	taken := map[int32]uint64{}
	for i, h := range list {
		part := p.part(q, h.node)
		own := p.bestOf(q, h.node, p.nodes.fit(h.node, q), q.gpus)
		taken[h.node] = own
		for range q.gpus - bitCount(own) {
			missing = append(missing, int32(i))
		}
		if q.share == 0 {
			part.GPUs = own
		} else {
			p.grant(int32(i), h.node, own, q.share)
		}
		p.out.Parts = append(p.out.Parts, part)
	}
	return len(missing) == 0 || p.lend(q, missing, taken)
}

// bestOf takes up to k devices of a node, the best first.
func (p *packing) bestOf(q *need, n int32, set uint64, k int32) uint64 {
	taken := uint64(0)
	for ; k > 0 && set != 0; k-- {
		best := lowest(set)
		for rest := set & (set - 1); rest != 0; rest &= rest - 1 {
			if d := lowest(rest); p.rank(q, n, d) < p.rank(q, n, best) {
				best = d
			}
		}
		set &^= 1 << best
		taken |= 1 << best
	}
	return taken
}

// lend finds devices for the parts that miss some.
func (p *packing) lend(q *need, missing []int32, taken map[int32]uint64) bool {
	type lent struct {
		rank         int64
		beside       int32 // devices that the node could give
		node, device int32
	}
	var list []lent
	for _, n := range p.nodes.order {
		set := p.nodes.fit(n, q) &^ taken[n]
		for rest := set; rest != 0; rest &= rest - 1 {
			d := lowest(rest)
			list = append(list, lent{p.rank(q, n, d), bitCount(set), n, d})
		}
	}
	if len(list) < len(missing) {
		return false
	}
	slices.SortStableFunc(list, func(a, b lent) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.beside, b.beside)) })
	for i, user := range missing {
		p.grant(user, list[i].node, 1<<list[i].device, q.share)
	}
	return true
}
