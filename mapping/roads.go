package mapping

import (
	"math"
	"math/bits"
	"time"
)

// roads are what lies between nodes: how long data and calls are under way.
type roads struct {
	layout *Layout
	// overhead of data, and how much more data and latency are to another switch, in thousandths.
	overhead, far uint64
	// until is, for each node, the first one after it that is not reached as it is; nil
	// where all nodes are reached alike.
	until []int32
	// all is the way between any two nodes, where there is no other.
	all *way
}

// roadsOf are the roads of a layout for a caller that asks rarely.
func roadsOf(l *Layout) roads {
	return roads{layout: l, overhead: thousandths(l.Overhead), far: thousandths(l.Far)}
}

// newRoads are the roads for a caller that asks at every call.
func newRoads(l *Layout) roads {
	r := roadsOf(l)
	nodes := l.Nodes()
	until, alike := make([]int32, nodes), true
	for n := nodes - 1; n >= 0; n-- {
		until[n] = int32(nodes)
		if n+1 < nodes {
			until[n] = until[n+1]
			if l.link(int32(n)) != l.link(int32(n+1)) || r.isFar(int32(n), int32(n+1)) {
				until[n], alike = int32(n+1), false
			}
		}
	}
	if !alike {
		r.until = until
	} else if l.Latencies == nil {
		all := r.way(0, 0)
		r.all = &all
	}
	return r
}

// thousandths of a factor; one that is not given is 1.
func thousandths(factor float64) uint64 {
	if factor == 0 {
		return 1000
	}
	return uint64(math.Round(factor * 1000))
}

// link is the bandwidth of a node; 0 without limit.
func (l *Layout) link(node int32) int64 {
	if l.Links == nil {
		return max(0, l.Bandwidth)
	}
	return max(0, l.Links[node])
}

func (r *roads) isFar(a, b int32) bool {
	return r.far != 1000 && r.layout.Switch != nil && r.layout.Switch[a] != r.layout.Switch[b]
}

// alike is the first devices of a span, which are all reached in the same way from other nodes.
func (r *roads) alike(p span) span {
	if r.until == nil {
		return p
	}
	return span{p.from, min(p.to, r.layout.First[r.until[r.layout.NodeOf[p.from]]])}
}

// way is the road of a call from one node to another, and back.
type way struct {
	bandwidth int64 // of the slower link; 0 without limit
	latency   time.Duration
	longer    uint64 // data take this many thousandths of the usual time
}

func (r *roads) way(from, to int32) way {
	if r.all != nil {
		return *r.all
	}
	a, b := r.layout.link(from), r.layout.link(to)
	w := way{bandwidth: min(a, b), latency: min(r.layout.Latency, tooLong), longer: r.overhead}
	if w.bandwidth == 0 {
		w.bandwidth = max(a, b)
	}
	if r.layout.Latencies != nil {
		w.latency = min(r.layout.Latencies[from], tooLong)
	}
	if r.isFar(from, to) {
		w.latency = time.Duration(scale(uint64(w.latency), r.far, 1000))
		w.longer = r.overhead * r.far / 1000
	}
	return w
}

// travel is how long data are on their way if they have the link to themselves.
func (w *way) travel(bytes int64) time.Duration {
	if w.bandwidth == 0 {
		return 0
	}
	alone := scale(uint64(max(0, bytes)), uint64(time.Second), uint64(w.bandwidth))
	if w.longer != 1000 {
		alone = scale(alone, w.longer, 1000)
	}
	return time.Duration(alone)
}

// tooLong bounds the time that data or calls travel, so that its multiples can be added: 9 hours.
const tooLong = 1 << 45

// scale is a x b / c, rounded down, but at most tooLong.
func scale(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return tooLong
	}
	q, _ := bits.Div64(hi, lo, c)
	return min(q, tooLong)
}
