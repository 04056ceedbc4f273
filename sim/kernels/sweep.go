package kernels

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"muster/internal/parallel"
	"muster/mapping"
	"muster/model"
	"muster/workload/phased"
)

// Sweep is a set of runs: every mapper on every size with every seed.
type Sweep struct {
	// Common is the configuration of all runs. The sweep itself sets the cluster, workload, mapper
	// and seed of each run, and its observer and progress. Explain applies to the runs of the first
	// seed and size.
	Common Config
	// Mappers are as mapping.New reads them.
	Mappers []string
	Sizes   []Size
	Seeds   []uint64
	// Observe, if set, returns the observer of a run, or nil.
	Observe func(Point) Observer
	// Trace, if set, receives every stage of every call of the first seed and size, as CSV.
	Trace io.Writer
	// Workers is the number of runs at the same time; the results do not depend on it.
	Workers int
	// Progress is called now and then, from any goroutine but never two at once.
	Progress func(done, total int64)
}

// Size is a cluster, and the workload that fits its number of nodes.
type Size struct {
	Cluster  *model.Cluster
	Workload *phased.Workload
}

// Point identifies a run of a sweep.
type Point struct {
	Index  int
	Mapper string
	Seed   uint64
	Size
}

// RunOf is one run of a sweep.
type RunOf struct {
	Point
	*Result
}

// First says whether the run with this index is one of the first seed and size.
func (s *Sweep) First(index int) bool { return index < len(s.Mappers) }

// Points lists the runs, in this order: seeds, then sizes, then mappers.
func (s *Sweep) Points() []Point {
	var list []Point
	for _, seed := range s.Seeds {
		for _, size := range s.Sizes {
			for _, mapper := range s.Mappers {
				list = append(list, Point{Index: len(list), Mapper: mapper, Seed: seed, Size: size})
			}
		}
	}
	return list
}

// Run makes all runs, in the order of Points. It stops at the first error, and at the end
// of ctx.
func (s *Sweep) Run(ctx context.Context) ([]RunOf, error) {
	var trace *Trace
	if s.Trace != nil {
		trace = NewTrace(s.Trace)
	}
	points := s.Points()
	runs := make([]RunOf, len(points))
	if err := parallel.Each(ctx, s.Workers, s.tasks(points, runs, trace)); err != nil {
		return nil, err
	}
	if trace != nil {
		return runs, trace.Flush()
	}
	return runs, nil
}

// progressSteps is the number of steps that each run counts in the progress.
const progressSteps = 1000

// tasks yields the runs. Traced runs wait for each other (each for the channel that the one before
// closes), so that the trace is the same with any number of workers and need not be kept in memory.
func (s *Sweep) tasks(points []Point, runs []RunOf, trace *Trace) iter.Seq[parallel.Task] {
	progress := parallel.NewProgress(len(points), s.Progress)
	progress.Expect(progressSteps * int64(len(points)))
	return func(yield func(parallel.Task) bool) {
		turn := make(chan struct{}) // closed when the traced run before is done
		close(turn)
		for _, p := range points {
			mine, next := turn, make(chan struct{})
			traced := trace != nil && s.First(p.Index)
			if traced {
				turn = next
			}
			if !yield(func(ctx context.Context) error {
				defer close(next)
				var tracer Observer
				if traced {
					<-mine
					tracer = trace.Of(p)
				}
				r, err := s.one(ctx, p, tracer, progress)
				runs[p.Index] = RunOf{p, r}
				return err
			}) {
				return
			}
		}
	}
}

// one makes a run. The tracer may be nil.
func (s *Sweep) one(ctx context.Context, p Point, tracer Observer, progress *parallel.Progress) (*Result, error) {
	cfg := s.Common
	cfg.Cluster, cfg.Workload, cfg.Seed = p.Cluster, p.Workload, p.Seed
	cfg.Mapper = func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New(p.Mapper, l) }
	if cfg.Span > 0 {
		cfg.Progress = func(now time.Duration) {
			progress.Set(p.Index, int64(float64(now)/float64(cfg.Span)*progressSteps))
		}
	}
	if !s.First(p.Index) {
		cfg.Explain = nil
	}
	cfg.Observe = s.observer(p, tracer)
	r, err := Run(ctx, cfg)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s on %d nodes, seed %d: %w", p.Mapper, len(p.Cluster.Nodes), p.Seed, err)
	}
	progress.Set(p.Index, progressSteps)
	return r, err
}

// observer is the observer of a run; nil if there is none.
func (s *Sweep) observer(p Point, tracer Observer) Observer {
	var watch observers
	if s.Observe != nil {
		if o := s.Observe(p); o != nil {
			watch = append(watch, o)
		}
	}
	if tracer != nil {
		watch = append(watch, tracer)
	}
	if watch == nil {
		return nil
	}
	return watch
}

// observers passes every event to each of them, one after the other.
type observers []Observer

func (o observers) Event(e Event) {
	for _, each := range o {
		each.Event(e)
	}
}

func (o observers) Rate(at time.Duration, call, rate int64) {
	for _, each := range o {
		each.Rate(at, call, rate)
	}
}
