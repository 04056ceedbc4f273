package auction

import (
	"muster/model"
	"muster/policy"
	"muster/policy/consres"
)

// table is what would be free if the Slurm bids made so far had won.
type table struct {
	view     *policy.View
	selector consres.Selector
	cores    []int32
	memory   []int64
	gpus     []uint64
	touched  []bool
	shared   map[device]int64 // memory of devices that went into shares
	alloc    model.Allocation // what the job that is bidding would take
	kept     bool
}

type device struct{ node, device int32 }

var _ consres.FreeView = (*table)(nil)

// copy makes it what is free in the view.
func (t *table) copy(v *policy.View) {
	t.view = v
	n := len(v.Cluster().Nodes)
	t.cores, t.memory = resized(t.cores, n), resized(t.memory, n)
	t.gpus, t.touched = resized(t.gpus, n), resized(t.touched, n)
	for i := range int32(n) {
		t.cores[i], t.memory[i], t.gpus[i] = v.FreeCores(i), v.FreeMemory(i), v.FreeGPUs(i)
		t.touched[i] = false
	}
	t.shared, t.kept = nil, false
}

// choose finds the nodes that Slurm would take.
func (t *table) choose(sh *policy.Shape, out *model.Allocation) bool {
	return t.selector.Select(t, sh, out)
}

// keep remembers what a job would take. Of several requests the first that
// found nodes counts, as a job runs once.
func (t *table) keep(a *model.Allocation) {
	if !t.kept {
		t.kept = true
		t.alloc.Parts, t.alloc.Grants = append(t.alloc.Parts[:0], a.Parts...), append(t.alloc.Grants[:0], a.Grants...)
	}
}

// settle takes what the last job would take, after all its bids were made.
func (t *table) settle() {
	if !t.kept {
		return
	}
	t.kept = false
	a := &t.alloc
	for i := range a.Parts {
		p := &a.Parts[i]
		t.cores[p.Node] -= p.Cores
		t.memory[p.Node] -= p.Memory
		t.gpus[p.Node] &^= p.GPUs
		t.touched[p.Node] = true
	}
	for _, g := range a.Grants {
		t.gpus[g.Node] &^= 1 << g.Device
		t.touched[g.Node] = true
		if g.Memory > 0 {
			if t.shared == nil {
				t.shared = map[device]int64{}
			}
			t.shared[device{g.Node, g.Device}] += g.Memory
		}
	}
}

func (t *table) Cluster() *model.Cluster  { return t.view.Cluster() }
func (t *table) FreeCores(n int32) int32  { return t.cores[n] }
func (t *table) FreeMemory(n int32) int64 { return t.memory[n] }
func (t *table) FreeGPUs(n int32) uint64  { return t.gpus[n] }

func (t *table) FreeShare(n, d int32) int64 {
	taken, some := t.shared[device{n, d}]
	if !some && t.view.FreeGPUs(n)>>d&1 != t.gpus[n]>>d&1 {
		return 0 // a Slurm bid takes the whole device
	}
	return t.view.FreeShare(n, d) - taken
}

// Closed also holds for a node on which a Slurm bid has left no core: an
// exclusive job does that.
func (t *table) Closed(n int32) bool    { return t.view.Closed(n) || t.cores[n] == 0 && t.touched[n] }
func (t *table) Untouched(n int32) bool { return t.view.Untouched(n) && !t.touched[n] }
