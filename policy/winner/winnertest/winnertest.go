// Package winnertest makes auctions for testing and comparing solvers. The same
// seed gives the same problem. It knows what bids look like, not how a policy
// makes them.
package winnertest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"muster/policy/winner"
)

// The cores and GPUs of an idle node.
const (
	nodeCores = 8
	nodeGPUs  = 2
)

// Shape says what auction to make.
type Shape struct {
	Nodes int
	Jobs  int
	// MaxBids drops the bids of the later jobs; 0 means no limit.
	MaxBids int
	// Busy is the share of the runs of nodes that are partly in use, in percent.
	Busy int
	// Overlap lets bids begin at random nodes, which is harder than the blocks that
	// an auction makes.
	Overlap bool
	Seed    uint64
}

// String names the shape, for tables and sub-benchmarks.
func (s Shape) String() string {
	kind := "blocks"
	if s.Overlap {
		kind = "overlap"
	}
	limit := "all"
	if s.MaxBids > 0 {
		limit = fmt.Sprint(s.MaxBids)
	}
	return fmt.Sprintf("%s/nodes=%d/jobs=%d/bids=%s/busy=%d/seed=%d", kind, s.Nodes, s.Jobs, limit, s.Busy, s.Seed)
}

// Make makes the auction.
func Make(s Shape) *winner.Problem {
	m := &maker{Shape: s, rand: rand.New(rand.NewPCG(s.Seed, uint64(s.Nodes)<<32|uint64(s.Jobs)))}
	m.occupy()
	if s.Overlap {
		m.overlaps()
	} else {
		m.blocks()
	}
	return &m.p
}

type maker struct {
	Shape
	rand *rand.Rand
	p    winner.Problem
}

func (m *maker) between(low, high int) int { return low + m.rand.IntN(high-low+1) }

// occupy draws runs of nodes; all nodes of a run have the same amount left.
func (m *maker) occupy() {
	for len(m.p.Cores) < m.Nodes {
		cores, gpus := int32(nodeCores), int32(nodeGPUs)
		if m.rand.IntN(100) < m.Busy {
			cores, gpus = int32(m.rand.IntN(nodeCores)), int32(m.rand.IntN(nodeGPUs+1))
		}
		for range m.between(2, 24) {
			if len(m.p.Cores) < m.Nodes {
				m.p.Cores = append(m.p.Cores, cores)
				m.p.GPUs = append(m.p.GPUs, gpus)
			}
		}
	}
}

// preferences is the number of steps by which one bid of a job may be preferred
// to another.
const preferences = 256

// bid adds a bid of the latest job. The preference, 1 to 256, never outweighs
// priority, as in the paper.
func (m *maker) bid(priority int, preference int, b winner.Bid) {
	b.Job = int32(m.p.Jobs - 1)
	b.Value = int64(priority)*preferences + int64(preference)*2
	m.p.Bids = append(m.p.Bids, b)
}

// room says how many more bids may be made.
func (m *maker) room() int {
	if m.MaxBids == 0 {
		return 1 << 30
	}
	return m.MaxBids - len(m.p.Bids)
}

// overlaps makes jobs of 1 to 32 nodes that ask for the same on each node, with
// 5 to 15 bids at random places.
func (m *maker) overlaps() {
	for m.p.Jobs < m.Jobs {
		m.p.Jobs++
		width := m.between(1, min(32, max(1, m.Nodes/8)))
		cores := int32(1) << m.rand.IntN(4)
		gpus := m.gpus()
		priority := 1000 + width*int(cores)*m.between(5, 15)
		for range min(m.between(5, 15), m.room()) {
			nodes := m.somewhere(width, cores, gpus)
			if nodes != nil {
				m.bid(priority, m.between(1, preferences), winner.Bid{
					Nodes: nodes, Count: int32(width), PerNode: cores, GPUs: gpus,
				})
			}
		}
	}
}

func (m *maker) gpus() int32 {
	switch d := m.rand.IntN(100); {
	case d < 50:
		return 0
	case d < 85:
		return 1
	default:
		return 2
	}
}

// somewhere walks from a random node on and takes the nodes that can serve the
// bid.
func (m *maker) somewhere(width int, cores, gpus int32) []int32 {
	var nodes []int32
	at := m.rand.IntN(m.Nodes)
	for range m.Nodes {
		if m.p.Cores[at] >= cores && m.p.GPUs[at] >= gpus {
			nodes = append(nodes, int32(at))
			if len(nodes) == width {
				slices.Sort(nodes)
				return nodes
			}
		}
		at = (at + 1) % m.Nodes
	}
	return nil
}

// blocks makes the bids of the paper: a third of the jobs ask for cores only, a
// third for nodes with 4 or 8 cores, a third for nodes with GPUs; each bids for
// both ends of free blocks, for their middles, and for blocks put together.
func (m *maker) blocks() {
	most := max(1, m.Nodes/8)
	for m.p.Jobs < m.Jobs {
		m.p.Jobs++
		width := m.between(1, most)
		var cores, gpus int32
		priority := width * nodeCores * 10
		switch m.rand.IntN(6) {
		case 0, 1:
			m.blockBids(priority, int32(width*nodeCores), 0, 0, 0)
			continue
		case 2, 3:
			cores = int32(4 * m.between(1, 2))
		case 4:
			cores, gpus = int32(m.between(1, 2)), 1
		default:
			cores, gpus = 2*int32(m.between(1, 2)), 2
		}
		m.blockBids(priority, 0, int32(width), cores, gpus)
	}
}

// block is a run of neighbouring nodes that can serve a job.
type block struct{ from, to int }

func (m *maker) freeBlocks(cores, gpus int32) (blocks []block) {
	for n := 0; n < m.Nodes; n++ {
		if m.p.Cores[n] < cores || m.p.GPUs[n] < gpus {
			continue
		}
		if k := len(blocks) - 1; k >= 0 && blocks[k].to == n {
			blocks[k].to++
		} else {
			blocks = append(blocks, block{n, n + 1})
		}
	}
	return blocks
}

// bidsPerJob is the paper's limit of bids per job.
const bidsPerJob = 15

// blockBids makes the bids of one job, which asks for total cores, or for cores
// and GPUs on each of a number of nodes.
func (m *maker) blockBids(priority int, total, width, cores, gpus int32) {
	blocks := m.freeBlocks(max(cores, 1), gpus)
	m.rand.Shuffle(len(blocks), func(i, k int) { blocks[i], blocks[k] = blocks[k], blocks[i] })
	left := min(bidsPerJob, m.between(3, bidsPerJob), m.room())
	offer := func(nodes []int32, preference int) {
		if left == 0 || nodes == nil {
			return
		}
		left--
		m.bid(priority, preference, winner.Bid{Nodes: nodes, Count: int32(len(nodes)), PerNode: cores, Total: total, GPUs: gpus})
	}
	for _, b := range blocks {
		offer(m.take(b.from, b.to, 1, total, width), m.between(193, preferences))
		offer(m.take(b.to-1, b.from-1, -1, total, width), m.between(193, preferences))
		if b.to-b.from > 2 {
			offer(m.take(m.between(b.from+1, b.to-2), b.to, 1, total, width), m.between(129, 192))
		}
	}
	// Two neighbours together; then all, from the first node on.
	slices.SortFunc(blocks, func(x, y block) int { return x.from - y.from })
	for k := 0; k+1 < len(blocks); k++ {
		if joined := m.join(blocks[k:k+2], total, width); joined != nil && joined[len(joined)-1] >= int32(blocks[k+1].from) {
			offer(joined, m.between(65, 128))
		}
	}
	offer(m.join(blocks, total, width), m.between(1, 64))
}

// take walks over a block until the job has what it asks for.
func (m *maker) take(from, to, step int, total, width int32) []int32 {
	var nodes []int32
	var sum int32
	for n := from; n != to; n += step {
		nodes = append(nodes, int32(n))
		sum += m.p.Cores[n]
		if total > 0 && sum >= total && int(total) >= len(nodes) || width > 0 && len(nodes) == int(width) {
			slices.Sort(nodes)
			return nodes
		}
	}
	return nil
}

func (m *maker) join(blocks []block, total, width int32) []int32 {
	var nodes []int32
	var sum int32
	for _, b := range blocks {
		for n := b.from; n < b.to; n++ {
			nodes = append(nodes, int32(n))
			sum += m.p.Cores[n]
			if total > 0 && sum >= total && int(total) >= len(nodes) || width > 0 && len(nodes) == int(width) {
				return nodes
			}
		}
	}
	return nil
}
