package head

import (
	"math"
	"time"

	"muster/wire/api"
)

// Slices makes slices of large requests smaller, until restore is called.
func Slices(load, looked int) (restore func()) {
	a, b, c := maxLoad, leastLoad, maxLooked
	maxLoad, leastLoad, maxLooked = load, 1, looked
	return func() { maxLoad, leastLoad, maxLooked = a, b, c }
}

// JobList lists the jobs that have not ended, or ended recently, in the order of their numbers.
func (c *Core) JobList(now time.Duration, f Filter) []api.Job {
	jobs, _ := c.JobsFrom(now, f, 0, math.MaxInt)
	return jobs
}

// Job returns one job, or the tasks of an array.
func (c *Core) Job(now time.Duration, ref Ref) ([]api.Job, bool) {
	jobs, _, known := c.JobFrom(now, ref, 0, math.MaxInt)
	return jobs, known
}

// NodeList lists the nodes.
func (c *Core) NodeList(now time.Duration) []api.Node {
	nodes, _ := c.NodesFrom(now, 0, math.MaxInt)
	return nodes
}

// Lines is in how many lines jobs wait for limits.
func (c *Core) Lines() int { return len(c.users.standing()) }
