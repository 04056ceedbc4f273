package consres

import (
	"cmp"
	"slices"

	"muster/model"
	"muster/policy"
)

// Select finds nodes for a request in what v says is free, as Slurm does on nodes
// in one row, and writes them to out. It reports false if there are not enough.
// Remote GPUs are taken on these nodes first, then in node order.
func Select(v FreeView, sh *policy.Shape, out *model.Allocation) bool {
	var s Selector
	return s.Select(v, sh, out)
}

// Selector is Select with memory of its own, for those who call it often.
type Selector struct {
	offers []int32
	sets   []set
	nodes  []int32 // chosen
	gives  []int32 // beside nodes: cores
	devices
}

// set is a row of nodes next to each other that all give something.
type set struct {
	first, last int32
	size        int64 // of what they give
}

// Select is the function of that name.
func (s *Selector) Select(v FreeView, sh *policy.Shape, out *model.Allocation) bool {
	nd := needOf(v.Cluster(), &sh.Request)
	return s.place(v, &nd, &sh.Request, nil, nil, out)
}

// place is Select without the nodes in hidden, and without what is held of devices.
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

// pickPreferred takes nodes with a GPU of their own for those who want remote
// ones, if that is preferred and there are enough; else any.
func (s *Selector) pickPreferred(v FreeView, nd *need, r *model.Request, held *heldDevices) bool {
	if s.preferLocal && r.Remote != nil && !mixed(r) {
		s.all = append(s.all[:0], s.offers...)
		for n, o := range s.offers {
			if o > 0 && s.lends(v, nd, r, held, int32(n), 1) == 0 {
				s.offers[n] = 0
			}
		}
		if s.pick(r) {
			return true
		}
		copy(s.offers, s.all)
	}
	return s.pick(r)
}

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

// pick chooses among the offers: the best set again and again.
func (s *Selector) pick(r *model.Request) bool {
	s.nodes, s.gives = s.nodes[:0], s.gives[:0]
	left := int64(want(r))
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
	// No set suffices: the largest first, until one does for what is left.
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

// smallestOf is the smallest set that suffices, the first of several; nil if
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

// pickFirst takes nodes as they stand, or the first set that suffices.
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

// takeFrom takes nodes from the start of a set until left is nothing.
func (s *Selector) takeFrom(one *set, left int64) int64 {
	for n := one.first; n <= one.last && left > 0; n++ {
		give := min(int64(s.offers[n]), left)
		s.nodes, s.gives = append(s.nodes, n), append(s.gives, int32(give))
		left -= give
	}
	return left
}

// inNodeOrder sorts what was chosen: allocations are in node order.
func (s *Selector) inNodeOrder() {
	// What a node gives is remembered in its offer.
	for i, n := range s.nodes {
		s.offers[n] = s.gives[i]
	}
	slices.Sort(s.nodes)
	for i, n := range s.nodes {
		s.gives[i] = s.offers[n]
	}
}
