package consres

import (
	"cmp"
	"slices"

	"muster/model"
	"muster/policy"
)

// Select finds nodes for a request in what is free in v, as Slurm does on nodes
// in one row, and writes the allocation to out. It returns false if there are
// not enough. Remote GPUs are taken on these nodes first, then in node order.
func Select(v FreeView, sh *policy.Shape, out *model.Allocation) bool {
	var s Selector
	return s.Select(v, sh, out)
}

// Selector is Select with reusable memory, for callers that use it often.
type Selector struct {
	offers  []int32 // by node: what it could give; see need.offer
	sets    []set
	nodes   []int32 // chosen
	gives   []int32 // by index in nodes: the cores that the node gives
	tiers   [2]tiers
	offered []int32 // scratch: the offers of all nodes
	devices
}

// tiers is the order in which jobs get nodes: see policy.Tiers.
type tiers struct {
	of    []int32
	count int
}

// inTurn is the order of nodes for a request.
func (s *Selector) inTurn(c *model.Cluster, r *model.Request) *tiers {
	i := 0
	if r.GPUs > 0 || r.Remote != nil {
		i = 1
	}
	t := &s.tiers[i]
	if t.count == 0 {
		t.of, t.count = policy.Tiers(c, i == 1)
	}
	return t
}

// set is a maximal run of neighbouring nodes that all offer something.
type set struct {
	first, last int32
	size        int64 // the sum of their offers
}

// Select is the function of that name.
func (s *Selector) Select(v FreeView, sh *policy.Shape, out *model.Allocation) bool {
	nd := needOf(v.Cluster(), &sh.Request)
	s.tiers = [2]tiers{} // the caller may have another cluster each time
	return s.place(v, &nd, &sh.Request, nil, nil, out)
}

// place is Select without the nodes in hidden and without what reservations
// hold of devices.
func (s *Selector) place(v FreeView, nd *need, r *model.Request, hidden bitmap, held *heldDevices, out *model.Allocation) bool {
	if r.Remote != nil && !s.enoughDevices(v, nd, r, held) {
		return false
	}
	s.offer(v, nd, hidden)
	if !s.pickPreferred(v, nd, r, held) {
		return false
	}
	out.Parts, out.Grants = out.Parts[:0], out.Grants[:0]
	for i, n := range s.nodes {
		nd.part(v, n, s.gives[i], out)
	}
	return r.Remote == nil || s.serve(v, nd, r, held, out)
}

// pickPreferred chooses nodes with a GPU of their own for jobs that want remote
// GPUs, if the policy prefers that and there are enough such nodes; otherwise
// any nodes.
func (s *Selector) pickPreferred(v FreeView, nd *need, r *model.Request, held *heldDevices) bool {
	if s.preferLocal && r.Remote != nil && !mixed(r) {
		s.all = append(s.all[:0], s.offers...)
		for n, o := range s.offers {
			if o > 0 && s.lends(v, nd, r, held, int32(n), 1) == 0 {
				s.offers[n] = 0
			}
		}
		if s.pick(v.Cluster(), r) {
			return true
		}
		copy(s.offers, s.all)
	}
	return s.pick(v.Cluster(), r)
}

// offer computes the offers of all nodes.
func (s *Selector) offer(v FreeView, nd *need, hidden bitmap) {
	n := len(v.Cluster().Nodes)
	s.offers = slices.Grow(s.offers[:0], n)[:n]
	for i := range int32(n) {
		if hidden != nil && hidden.has(i) {
			s.offers[i] = 0
			continue
		}
		s.offers[i] = nd.offer(v, i)
	}
}

// pick chooses nodes among the offers, tier by tier: all of a tier that does not suffice. The nodes of a
// contiguous request are from as few tiers as possible.
func (s *Selector) pick(c *model.Cluster, r *model.Request) bool {
	s.nodes, s.gives = s.nodes[:0], s.gives[:0]
	t, left := s.inTurn(c, r), int64(want(r))
	if t.count == 1 {
		return s.pickFrom(r, left)
	}
	s.offered = append(s.offered[:0], s.offers...)
	for k := range int32(t.count) {
		sum := int64(0)
		for n, o := range s.offered {
			s.offers[n] = o
			if t.of[n] > k || t.of[n] < k && !r.Contiguous {
				s.offers[n] = 0
			}
			sum += int64(s.offers[n])
		}
		if sum >= left && s.pickFrom(r, left) {
			s.inNodeOrder()
			return true
		}
		if r.Contiguous {
			continue
		}
		for n, o := range s.offers {
			if o > 0 {
				s.nodes, s.gives = append(s.nodes, int32(n)), append(s.gives, o)
			}
		}
		left -= sum
	}
	return false
}

// pickFrom chooses nodes among the offers: the smallest set that suffices (best
// fit), or if none does, the largest sets, one after the other.
func (s *Selector) pickFrom(r *model.Request, left int64) bool {
	s.sets = s.sets[:0]
	for n := int32(0); n < int32(len(s.offers)); n++ {
		if s.offers[n] == 0 {
			continue
		}
		one := set{first: n, size: int64(s.offers[n])}
		for n++; n < int32(len(s.offers)) && s.offers[n] > 0; n++ {
			one.size += int64(s.offers[n])
		}
		one.last = n - 1
		s.sets = append(s.sets, one)
	}
	if mixed(r) {
		return s.pickFirst(r, left)
	}
	if best := smallestOf(s.sets, left); best != nil {
		s.takeFrom(best, left)
		return true
	}
	if r.Contiguous {
		return false
	}
	// No set suffices: take the largest sets until one suffices for the rest;
	// for that, best fit again.
	slices.SortFunc(s.sets, func(a, b set) int {
		if a.size != b.size {
			return cmp.Compare(b.size, a.size)
		}
		return cmp.Compare(a.first, b.first)
	})
	for i := range s.sets {
		if s.sets[i].size >= left {
			left = s.takeFrom(smallestOf(s.sets[i:], left), left)
			break
		}
		left = s.takeFrom(&s.sets[i], left)
	}
	if left > 0 {
		return false
	}
	s.inNodeOrder()
	return true
}

// smallestOf is the smallest set that suffices, the first among equals; nil if
// none does.
func smallestOf(sets []set, left int64) *set {
	var best *set
	for i := range sets {
		if sets[i].size >= left && (best == nil || sets[i].size < best.size) {
			best = &sets[i]
		}
	}
	return best
}

// pickFirst takes nodes in node order; for a contiguous request, from the first
// set that suffices.
func (s *Selector) pickFirst(r *model.Request, left int64) bool {
	for i := range s.sets {
		if r.Contiguous && s.sets[i].size < left {
			continue
		}
		if left = s.takeFrom(&s.sets[i], left); left == 0 {
			return true
		}
	}
	return false
}

// takeFrom takes nodes from the start of a set until nothing is left to take,
// and returns what is left.
func (s *Selector) takeFrom(one *set, left int64) int64 {
	for n := one.first; n <= one.last && left > 0; n++ {
		give := min(int64(s.offers[n]), left)
		s.nodes, s.gives = append(s.nodes, n), append(s.gives, int32(give))
		left -= give
	}
	return left
}

// inNodeOrder sorts the chosen nodes, because allocations are in node order.
func (s *Selector) inNodeOrder() {
	// The offers serve as a map from node to what it gives.
	for i, n := range s.nodes {
		s.offers[n] = s.gives[i]
	}
	slices.Sort(s.nodes)
	for i, n := range s.nodes {
		s.gives[i] = s.offers[n]
	}
}
