package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"

	"muster/model"
	"muster/policy"
	"muster/policy/history"
	"muster/policy/priority"
)

// Sweep is many runs: every policy on every size of the cluster with every seed.
type Sweep struct {
	Cluster *model.Cluster
	// Nodes are the sizes to try; none means the cluster as it is.
	Nodes []int
	// Policies make a fresh policy for each run.
	Policies []NamedPolicy
	// Workload gives the jobs for a seed. It is called once for each.
	Seeds    []uint64
	Workload func(seed uint64) ([]model.Job, error)
	NoKill   bool
	Outages  []Outage
	Watch    []int
	// Record, if set, gets a history of the first run. Its policy is that of the run,
	// unless RecordAs names one.
	Record   io.Writer
	RecordAs history.Header
	// Priority ranks the waiting jobs of every run; nil leaves it to the policies.
	Priority *priority.Config
	// Explain asks for accounts of steps, of the runs of the first seed and size.
	Explain []Moment
	// Observe, if set, gives each run its observer.
	Observe func(Point) Observer
	// Workers run at the same time; the results are the same with any number.
	Workers int
	// Progress is called now and then, from any goroutine but never two at once.
	Progress func(jobsDone, jobsInAll int64)
}

// NamedPolicy makes policies.
type NamedPolicy struct {
	Name string
	New  func() (policy.Policy, error)
}

// Point says which run of a sweep it is.
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

// Run makes all runs, in this order: seeds, then sizes, then policies. It
// stops at the first error, and at the end of ctx.
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
	perSeed := len(sizes) * len(s.Policies)
	runs := make([]RunOf, len(s.Seeds)*perSeed)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	progress := progressOf{call: s.Progress, done: make([]int, len(runs))}
	slots := make(chan struct{}, max(1, s.Workers))
	var wg sync.WaitGroup
	for k, seed := range s.Seeds {
		if ctx.Err() != nil {
			break // no workload need be made any more
		}
		jobs, err := s.Workload(seed)
		if err != nil {
			cancel(fmt.Errorf("workload for seed %d: %w", seed, err))
			break
		}
		progress.seed(int64(len(jobs))*int64(perSeed), len(s.Seeds)-k-1)
		for i := range perSeed {
			slots <- struct{}{}
			if ctx.Err() != nil {
				<-slots
				break
			}
			index := k*perSeed + i
			cluster, named := clusters[i/len(s.Policies)], s.Policies[i%len(s.Policies)]
			point := Point{Index: index, Policy: named.Name, Seed: seed, Nodes: len(cluster.Nodes)}
			wg.Go(func() {
				defer func() { <-slots }()
				r, err := s.one(ctx, point, cluster, jobs, named, &progress)
				if err != nil {
					cancel(err)
					return
				}
				runs[index] = RunOf{point, r}
			})
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return runs, nil
}

func (s *Sweep) one(ctx context.Context, p Point, c *model.Cluster, jobs []model.Job, named NamedPolicy, progress *progressOf) (*Result, error) {
	pol, err := named.New()
	if err != nil {
		return nil, err
	}
	cfg := Config{
		Cluster: c, Jobs: jobs, Policy: pol, NoKill: s.NoKill, Outages: s.Outages, Watch: s.Watch, Priority: s.Priority,
		Progress: func(done int) { progress.set(p.Index, done) },
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

// progressOf adds up what all runs have done.
type progressOf struct {
	sync.Mutex
	call  func(done, all int64)
	done  []int
	sum   int64
	known int64 // jobs of the seeds seen
	total int64 // with those to come, taken to be like the last
}

// seed says how many jobs one more seed has, and how many seeds follow.
func (p *progressOf) seed(jobs int64, follow int) {
	p.Lock()
	defer p.Unlock()
	p.known += jobs
	p.total = p.known + jobs*int64(follow)
}

func (p *progressOf) set(run, done int) {
	if p.call == nil {
		return
	}
	p.Lock()
	defer p.Unlock()
	p.sum += int64(done - p.done[run])
	p.done[run] = done
	p.call(p.sum, max(p.total, p.sum))
}
