package packing

import (
	"math/bits"
)

// A rule scores the nodes that suit a request: the highest is taken.
type rule interface {
	// score is that of node n, whose devices in set would do; device is the one
	// to take where the score depends on it, -1 where the tightest are taken.
	score(s *nodes, n int32, q *need, set uint64) (score, device int32)
}

// full is the best score that the original knows.
const full = 100

// alike likes all nodes as much.
type alike struct{}

func (alike) score(*nodes, int32, *need, uint64) (int32, int32) { return 0, -1 }

// dotProduct prefers nodes whose free resources and the request make a small product.
type dotProduct struct{}

func (dotProduct) score(s *nodes, n int32, q *need, set uint64) (int32, int32) {
	x := &s.list[n]
	asks := s.asks(n, q, s.tightest(n, set, q.gpus))
	cores := float64(float64(x.cores) / float64(s.mostCores) * (float64(q.cores) / float64(s.mostCores)))
	gpus := float64(0)
	if s.mostGPUs > 0 {
		gpus = float64(float64(x.idle) / float64(s.mostGPUs) * (float64(asks) / float64(s.mostGPUs)))
	}
	return int32(full * float64(1-(cores+gpus)/2)), -1
}

// bestFit prefers nodes of which little is left then.
type bestFit struct{}

func (bestFit) score(s *nodes, n int32, q *need, set uint64) (int32, int32) {
	x := &s.list[n]
	asks := s.asks(n, q, s.tightest(n, set, q.gpus))
	left := float64(float64(x.cores-q.cores) / float64(s.mostCores) * 0.5)
	if s.mostGPUs > 0 {
		left += float64(float64(x.idle-asks) / float64(s.mostGPUs) * 0.5)
	}
	return int32(float64(1-left) * full), -1
}

// clustering prefers nodes with tasks of the same tag and no others.
type clustering struct{}

func (clustering) score(s *nodes, n int32, q *need, _ uint64) (int32, int32) {
	if q.gpus == 0 {
		return 0, -1
	}
	x := &s.list[n]
	score := full / 4 * (s.mostGPUs - x.idle) / s.mostGPUs
	switch {
	case x.tags != nil && x.tags[q.tag] > 0 && x.kinds == 1:
		score += full / 4 * 3
	case x.tags != nil && x.tags[q.tag] > 0:
		score += full / 4 * 2
	case x.kinds == 0:
		score += full / 4
	}
	return score, -1
}

// gpuPacking prefers devices in use, then nodes in use, then small idle nodes.
type gpuPacking struct{}

func (gpuPacking) score(s *nodes, n int32, q *need, set uint64) (int32, int32) {
	if q.gpus == 0 {
		return 0, -1
	}
	x := &s.list[n]
	if free := int32(bits.OnesCount64(x.whole)); int(free) == len(x.left) {
		return max(full/3-free, free), -1
	}
	opened, ratio := int32(0), int32(0)
	for taken := s.tightest(n, set, q.gpus); taken != 0; taken &= taken - 1 {
		d := bits.TrailingZeros64(taken)
		if x.whole>>d&1 != 0 {
			opened++
		}
		ratio += x.left[d] * full / thousand
	}
	if opened > 0 {
		return max(full/2-opened, full/3), -1
	}
	return max(full-ratio/10, full/2), -1
}

// descent is FGD: it prefers what adds least to the fragments, or takes most
// from them.
type descent struct {
	target  *Target
	before  []seen // by node
	scratch []Level
}

// seen is a node's fragments, found out for one version of it.
type seen struct {
	version   uint32
	fragments int64
}

func (r *descent) score(s *nodes, n int32, q *need, set uint64) (int32, int32) {
	x := &s.list[n]
	if len(r.before) == 0 {
		r.before = make([]seen, len(s.list))
	}
	b := &r.before[n]
	if b.version != x.version {
		*b = seen{x.version, r.target.fragments(x.cores, x.levels)}
	}
	loss := func(devices uint64) int32 {
		r.scratch = s.after(n, q, devices, r.scratch)
		return r.target.score(b.fragments - r.target.fragments(x.cores-q.cores, r.scratch))
	}
	if q.share == 0 || q.gpus != 1 {
		return loss(s.tightest(n, set, q.gpus)), -1
	}
	best, device := int32(-1), int32(-1)
	for rest := set; rest != 0; rest &= rest - 1 {
		d := bits.TrailingZeros64(rest)
		if s.likeEarlier(n, set, d) {
			continue
		}
		if score := loss(1 << d); score > best {
			best, device = score, int32(d)
		}
	}
	return best, device
}

// likeEarlier says that a device of the set before d is the same and has as much left.
func (s *nodes) likeEarlier(n int32, set uint64, d int) bool {
	x, types := &s.list[n], s.cluster.Nodes[n].GPUs
	for rest := set & (1<<d - 1); rest != 0; rest &= rest - 1 {
		e := bits.TrailingZeros64(rest)
		if x.left[e] == x.left[d] && types[e] == types[d] {
			return true
		}
	}
	return false
}
