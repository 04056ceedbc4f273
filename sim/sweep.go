package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"

	"muster/internal/parallel"
	"muster/model"
	"muster/policy"
	"muster/policy/history"
	"muster/policy/priority"
)

// Sweep is a set of runs: every policy on every size of the cluster with every seed.
type Sweep struct {
	Cluster *model.Cluster
	// Nodes are the sizes to try; none means the cluster unchanged.
	Nodes []int
	// Policies make a fresh policy for each run.
	Policies []NamedPolicy
	// Workload makes the jobs for a seed. It is called once per seed.
	Seeds    []uint64
	Workload func(seed uint64) ([]model.Job, error)
	NoKill   bool
	Bind     *Binding
	Outages  []Outage
	Watch    []int
	// Record, if set, receives a history of the first run. The policy in its header is that of the
	// run, unless RecordAs names one.
	Record   io.Writer
	RecordAs history.Header
	// Priority ranks the waiting jobs of every run; nil leaves it to the policies.
	Priority *priority.Config
	// Explain names steps to explain, in the runs of the first seed and size.
	Explain []Moment
	// Observe, if set, returns the observer of a run.
	Observe func(Point) Observer
	// Workers is the number of runs at the same time; the results do not depend on it.
	Workers int
	// Progress is called now and then, from any goroutine but never concurrently.
	Progress func(jobsDone, jobsInAll int64)
}

// NamedPolicy makes policies.
type NamedPolicy struct {
	Name string
	New  func() (policy.Policy, error)
}

// Point identifies a run of a sweep.
type Point struct {
	Index  int
	Policy string
	Seed   uint64
	Nodes  int
}

// RunOf is one run of a sweep.
type RunOf struct {
	Point
	*Result
}

// Run makes all runs, ordered by seed, then size, then policy. It stops at the first error, and
// when ctx ends.
func (s *Sweep) Run(ctx context.Context) ([]RunOf, error) {
	sizes := s.Nodes
	if len(sizes) == 0 {
		sizes = []int{len(s.Cluster.Nodes)}
	}
	clusters := make([]*model.Cluster, len(sizes))
	for i, n := range sizes {
		c, err := s.Cluster.Resize(n)
		if err != nil {
			return nil, err
		}
		clusters[i] = c
	}
	runs := make([]RunOf, len(s.Seeds)*len(sizes)*len(s.Policies))
	if err := parallel.Each(ctx, s.Workers, s.tasks(clusters, runs)); err != nil {
		return nil, err
	}
	return runs, nil
}

// tasks yields the runs. The jobs of a seed are generated when its first run starts, and dropped
// after its last: all seeds together may not fit into memory.
func (s *Sweep) tasks(clusters []*model.Cluster, runs []RunOf) iter.Seq[parallel.Task] {
	progress := parallel.NewProgress(len(runs), s.Progress)
	perSeed := int64(len(clusters) * len(s.Policies))
	return func(yield func(parallel.Task) bool) {
		index, known := 0, int64(0)
		for k, seed := range s.Seeds {
			jobs, err := s.Workload(seed)
			if err != nil {
				yield(func(context.Context) error { return fmt.Errorf("workload for seed %d: %w", seed, err) })
				return
			}
			// Assume that the seeds to come have as many jobs as this one.
			work := int64(len(jobs)) * perSeed
			known += work
			progress.Expect(known + work*int64(len(s.Seeds)-k-1))
			for _, cluster := range clusters {
				for _, named := range s.Policies {
					point := Point{Index: index, Policy: named.Name, Seed: seed, Nodes: len(cluster.Nodes)}
					index++
					if !yield(func(ctx context.Context) error {
						r, err := s.one(ctx, point, cluster, jobs, named, progress)
						if err == nil {
							runs[point.Index] = RunOf{point, r}
						}
						return err
					}) {
						return
					}
				}
			}
		}
	}
}

func (s *Sweep) one(ctx context.Context, p Point, c *model.Cluster, jobs []model.Job, named NamedPolicy, progress *parallel.Progress) (*Result, error) {
	pol, err := named.New()
	if err != nil {
		return nil, err
	}
	cfg := Config{
		Cluster: c, Jobs: jobs, Policy: pol, NoKill: s.NoKill, Bind: s.Bind, Outages: s.Outages, Watch: s.Watch, Priority: s.Priority,
		Progress: func(done int) { progress.Set(p.Index, int64(done)) },
	}
	if p.Index < len(s.Policies) {
		cfg.Explain = s.Explain
	}
	if p.Index == 0 && s.Record != nil {
		cfg.Record, cfg.RecordAs = s.Record, s.RecordAs
		cfg.RecordAs.Policy = cmp.Or(s.RecordAs.Policy, p.Policy)
	}
	if s.Observe != nil {
		cfg.Observe = s.Observe(p)
	}
	r, err := Run(ctx, cfg)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s on %d nodes, seed %d: %w", p.Policy, p.Nodes, p.Seed, err)
	}
	return r, err
}
