package slurm

import (
	"slices"

	"muster/model"
)

// The policies give every node of a job the same number of processors, as many as its largest share
// needs, and the placement pins that (MinCPUsNode): nothing else of a split can be said to Slurm once a
// job is submitted. What Slurm then does with tasks that cannot be divided equally differs by release.
// 22.05 has each node give what was pinned: 5 tasks on 2 nodes get 3 and 3 processors. From 24.11 on it
// wants as much to be free and takes less: 3 and 2, the first nodes in its order having one task more.
// The book has what Slurm will give from the placement on.

// trim gives back what Slurm will not take of an allocation that was just made for a job.
func (c *Core) trim(j *job, a *model.Allocation) {
	parts := slices.Clone(a.Parts)
	if !c.split(j, parts) {
		return
	}
	grants := c.grantsOf(j)
	if j.borrower {
		for i := range parts {
			parts[i].GPUs = 0 // they are among the grants
		}
	}
	before := j.number
	if c.must(c.state.End(before)); !c.adoptWhole(j, parts, grants) {
		panic("slurm: what was taken of nodes does not fit there when it is made less")
	}
	delete(c.numbered, before)
	c.stepDue = true
}

// split changes what each node gives to what Slurm will have it give. It is false where that is what was
// pinned, or not known to the end: the book is then corrected when the job starts.
func (c *Core) split(j *job, parts []model.Part) bool {
	f, n := &j.fact, len(parts)
	switch {
	case !c.cfg.Balanced, n < 2, parts[0].Exclusive, f.Tasks%n == 0, f.TasksPerNode > 0, j.before != nil:
		return false
	case c.cfg.Memory && f.MemoryPerNode == 0: // memory goes by processors
		return false
	}
	slices.SortFunc(parts, func(a, b model.Part) int { return int(a.Node - b.Node) })
	threads, changed := max(1, c.threads), false
	for i := range parts {
		tasks := f.Tasks / n
		if i < f.Tasks%n {
			tasks++
		}
		cpus := (tasks*max(1, f.CPUsPerTask) + threads - 1) / threads * threads
		if cpus > int(parts[i].Cores) {
			return false // it asks for more than its tasks need
		}
		changed = changed || cpus < int(parts[i].Cores)
		parts[i].Cores = int32(cpus)
	}
	return changed
}
