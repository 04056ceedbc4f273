package fgd

import (
	"context"
	"math/bits"
	"math/rand/v2"

	"muster/model"
	"muster/policy"
	"muster/policy/packing"
)

// arrives is the total demand of all pods, relative to the cluster's GPUs.
const arrives = 1.3

// sample is the sequence of arriving pods: all of them, shuffled, followed by pods drawn at random
// from them, until the demand reaches 130 % of the GPUs. If all pods together exceed that, the last
// are dropped.
func sample(pods []model.Job, capacity int64, seed uint64) []*model.Job {
	r := rand.New(rand.NewPCG(seed, 0))
	list := make([]*model.Job, len(pods))
	for i := range pods {
		list[i] = &pods[i]
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	limit, sum := int64(arrives*float64(capacity)), int64(0)
	for i, j := range list {
		if sum += demand(j); sum > limit {
			return list[:i]
		}
	}
	for {
		j := &pods[r.IntN(len(pods))]
		if sum += demand(j); sum > limit {
			return list
		}
		list = append(list, j)
	}
}

// points is the number of demands at which a run is sampled: 0 to 130 %.
const points = 131

// course is the course of one run: values by arrived demand, in per cent of the cluster's GPUs.
type course struct {
	allocated  [points]float64
	fragmented [points]float64
	gaps       [tenths]float64 // idle GPUs at the end, by the tenths that are left of the device
	pods       int
	failed     int
	borrowing  int // pods that use a GPU of another node
}

// tenths of a device, and whole ones.
const tenths = 11

// final is the last value.
func final(values *[points]float64) float64 { return values[points-1] }

// ratio is the percentage of the idle GPUs that is fragments.
func (c *course) ratio(at int) float64 {
	idle := 100 - c.allocated[at]
	if idle <= 0 {
		return 0
	}
	return 100 * c.fragmented[at] / idle
}

// gauge measures the fragmentation of a cluster as it fills up.
type gauge struct {
	cluster *model.Cluster
	target  *packing.Target
	pooled  bool
	cores   []int32
	left    [][]int32
	lost    []float64 // fragments of each node
	sum     float64
	levels  []packing.Level
}

func newGauge(c *model.Cluster, t *packing.Target, pooled bool) *gauge {
	g := &gauge{cluster: c, target: t, pooled: pooled, lost: make([]float64, len(c.Nodes))}
	for n := range c.Nodes {
		g.cores = append(g.cores, int32(c.Nodes[n].Cores))
		left := make([]int32, len(c.Nodes[n].GPUs))
		for d := range left {
			left[d] = 1000
		}
		g.left = append(g.left, left)
		g.look(int32(n))
	}
	return g
}

// look recomputes a node's fragments and updates the sum.
func (g *gauge) look(n int32) {
	g.levels = g.levels[:0]
	for d, t := range g.cluster.Nodes[n].GPUs {
		g.levels = append(g.levels, packing.Level{Type: int32(t), Left: g.left[n][d], Count: 1})
	}
	f := g.target.Fragments(g.cores[n], g.levels)
	g.sum += f - g.lost[n]
	g.lost[n] = f
}

// take subtracts a pod's allocation from what is free.
func (g *gauge) take(a *model.Allocation) {
	for i := range a.Parts {
		part := &a.Parts[i]
		g.cores[part.Node] -= part.Cores
		for set := part.GPUs; set != 0; set &= set - 1 {
			g.left[part.Node][bits.TrailingZeros64(set)] = 0
		}
		g.look(part.Node)
	}
	for _, s := range a.Grants {
		if s.Memory == 0 {
			g.left[s.Node][s.Device] = 0
		} else {
			g.left[s.Node][s.Device] -= int32(s.Memory / milliGPU)
		}
		g.look(s.Node)
	}
}

// fragments is the fragmentation of the cluster, in thousandths of GPUs. Decoupled GPUs are treated
// as one node, because a task lacks cores only if no node has enough.
func (g *gauge) fragments() float64 {
	if !g.pooled {
		return g.sum
	}
	most := int32(0)
	counts := map[packing.Level]int32{}
	g.levels = g.levels[:0]
	for n := range g.left {
		most = max(most, g.cores[n])
		for d, t := range g.cluster.Nodes[n].GPUs {
			counts[packing.Level{Type: int32(t), Left: g.left[n][d]}]++
		}
	}
	for l, n := range counts { // the map's order does not matter, since a sum of whole numbers is exact
		l.Count = n
		g.levels = append(g.levels, l)
	}
	return g.target.Fragments(most, g.levels)
}

// fill submits the pods one after the other. Each is placed or dropped at once; none ends.
func fill(ctx context.Context, c *model.Cluster, p policy.Policy, pods []*model.Job, g *gauge) (*course, error) {
	capacity := 1000 * int64(c.TotalGPUs())
	state := policy.NewState(c, p)
	state.Expect(len(pods))
	out := &course{pods: len(pods)}
	used, arrived, next := int64(0), int64(0), 0
	mark := func(upTo int) {
		if next > upTo {
			return
		}
		allocated, fragmented := percent(used, capacity), 100*g.fragments()/float64(capacity)
		for ; next <= upTo; next++ {
			out.allocated[next], out.fragmented[next] = allocated, fragmented
		}
	}
	for i, j := range pods {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		mark(min(points-1, int(100*arrived/capacity)))
		arrived += demand(j)
		id, err := state.Submit(j)
		if err != nil {
			out.failed++
			continue
		}
		plan := state.Step(0)
		if len(plan.Starts) == 0 {
			out.failed++
			if err := state.Cancel(id); err != nil {
				return nil, err
			}
			continue
		}
		start := &plan.Starts[0]
		if start.Err != nil {
			return nil, start.Err
		}
		used += demand(j)
		g.take(start.Alloc)
		if start.Alloc.UsesBorrowed() {
			out.borrowing++
		}
	}
	mark(points - 1)
	for n := range g.left {
		for _, left := range g.left[n] {
			out.gaps[left/100] += float64(left) / 1000
		}
	}
	return out, nil
}

func percent(part, whole int64) float64 { return 100 * float64(part) / float64(whole) }
