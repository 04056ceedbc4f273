package auction

// Nodeset is a maximal run of neighbouring nodes that all have a free core and
// at least GPUs free GPUs: the 4-tuple of the paper.
type Nodeset struct {
	First, Last int32
	Cores       int64 // free on all its nodes together
	GPUs        int32 // free on each of its nodes, at least
}

// Nodesets lists the nodesets for each number of GPUs, from 0 to the largest
// number free on any node, in node order for each number. cores and gpus are
// what is free on each node.
func Nodesets(cores, gpus []int32) []Nodeset {
	sets, _ := appendNodesets(nil, nil, cores, gpus)
	return sets
}

// appendNodesets is Nodesets with reused memory. It also returns the index at
// which the sets of each number of GPUs begin, and as the last entry the number
// of sets.
func appendNodesets(sets []Nodeset, begins []int, cores, gpus []int32) ([]Nodeset, []int) {
	most := int32(0)
	for n, g := range gpus {
		if cores[n] > 0 {
			most = max(most, g)
		}
	}
	for g := int32(0); g <= most; g++ {
		begins = append(begins, len(sets))
		inside := false
		for n, c := range cores {
			if c <= 0 || gpus[n] < g {
				inside = false
				continue
			}
			if !inside {
				sets = append(sets, Nodeset{First: int32(n), GPUs: g})
				inside = true
			}
			s := &sets[len(sets)-1]
			s.Last = int32(n)
			s.Cores += int64(c)
		}
	}
	return sets, append(begins, len(sets))
}
