package policy

import (
	"math/bits"

	"muster/model"
)

// OnNode is what a caller wants a node to give to a job.
type OnNode struct {
	Node int32
	// Cores is used for requests whose cores are spread over any nodes; other requests say
	// themselves what each node gives.
	Cores int32
}

// Gives is the number of cores that a node would give to a job of this shape now, together with the
// memory and devices it needs there; 0 if the node cannot serve it. For spread cores it is at most
// want.
func (v *View) Gives(sh *Shape, n, want int32) int32 {
	switch {
	case sh.impossible != "" || sh.allowed != nil && !sh.allowed.has(n):
		return 0
	case sh.nodes == 0:
		part, _ := v.spreadOn(sh, n, want)
		return part.Cores
	}
	var part model.Part
	if !v.suits(sh, n, &part) {
		return 0
	}
	return part.Cores
}

// PlaceExactly places a shape on nodes that the caller has chosen, in node order. It returns nil if
// they are not free, or do not give exactly what the shape asks for. It chooses devices as Place
// does, except that a request with MoreGPUs gets a share for each of its processes, on the devices
// with the most memory left. The result is valid until the next placement.
func (v *View) PlaceExactly(sh *Shape, on []OnNode) *model.Allocation {
	v.fresh = false
	v.out.Parts, v.out.Grants = v.out.Parts[:0], v.out.Grants[:0]
	if sh.impossible != "" || len(on) == 0 || sh.nodes > 0 && len(on) != int(sh.nodes) {
		return nil
	}
	sum, last := int64(0), int32(-1)
	for i, o := range on {
		if o.Node <= last || int(o.Node) >= len(v.nodes) || sh.Request.Contiguous && i > 0 && o.Node != last+1 {
			return nil
		}
		last = o.Node
		part, ok := v.partFor(sh, o)
		if !ok {
			return nil
		}
		switch {
		case sh.Request.MoreGPUs:
			v.addEvenShares(sh, &part, int32(i))
		case sh.gpuMemory > 0:
			v.addShares(sh, o.Node, int32(i))
		}
		v.out.Parts = append(v.out.Parts, part)
		sum += int64(part.Cores)
	}
	if sh.nodes == 0 && sum != int64(sh.cores) || sh.Request.Remote != nil && !v.remote(sh, Sharing) {
		return nil
	}
	v.fresh = true
	return &v.out
}

// addEvenShares adds a share for each process of a part, which is number user, as far as there are
// devices: on those with the most memory left, the lowest number first among equals. The grants are
// in the order of device numbers.
func (v *View) addEvenShares(sh *Shape, part *model.Part, user int32) {
	n, chosen := part.Node, uint64(0)
	for range max(sh.gpus, part.Cores/max(1, sh.granule)) {
		best, most := int32(-1), sh.gpuMemory-1
		for d := range int32(len(v.cluster.Nodes[n].GPUs)) {
			if left := v.shareOn(sh, n, d); chosen>>d&1 == 0 && left > most {
				best, most = d, left
			}
		}
		if best < 0 {
			break // no further device; partFor has made sure of the number that the shape asks for
		}
		chosen |= 1 << best
	}
	for ; chosen != 0; chosen &= chosen - 1 {
		v.out.Grants = append(v.out.Grants, model.Grant{For: user, Node: n, Device: int32(bits.TrailingZeros64(chosen)), Memory: sh.gpuMemory})
	}
}

// partFor is what a chosen node gives.
func (v *View) partFor(sh *Shape, o OnNode) (part model.Part, ok bool) {
	if sh.allowed != nil && !sh.allowed.has(o.Node) {
		return part, false
	}
	if sh.nodes == 0 {
		part, ok = v.spreadOn(sh, o.Node, o.Cores)
		return part, ok && part.Cores == o.Cores
	}
	ok = v.suits(sh, o.Node, &part)
	return part, ok
}
