package gremm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
	"muster/mapping"
	"muster/model"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// liveFlags are those of --live.
var liveFlags = []exp.Flag{
	{Name: "live", Summary: "run W1 to W5 in small with real programs on four nodes of software GPUs, each mapper beside the simulator's prediction", Switch: true},
	{Name: "full", Summary: "with --live: five times as long", Switch: true},
	{Name: "programs", Summary: "with --live: the folder of the programs to run (default: examples/ beside this program)"},
}

const (
	// liveFaster is by how much phases are shorter than in the paper.
	liveFaster = 20
	// liveSpan is how long is measured, in the paper's time, and fullSpan with --full.
	liveSpan, fullSpan = 80 * time.Second, 400 * time.Second
	// goodPrediction is by how much the simulator may be off, in parts.
	goodPrediction = 0.15
)

// Networks of the live nodes.
const (
	starNetwork = "links of 100 MB/s"
	nearNetwork = "the loopback interface"
)

// liveLab makes the runs, one after the other.
type liveLab struct {
	*lab
	tools   bench.Tools
	fleet   *fleet
	network string
	noLink  string // why there are no links with a bandwidth
	profile profile
	found   map[liveRun][]liveFound
	late    float64
}

// liveRun is a workload with a mapper.
type liveRun struct{ workload, mapper string }

// liveFound is what was measured, and what the simulator says of the same processes on the same cluster.
type liveFound struct{ real, predicted outcome }

// profile is what a call takes on an idle cluster. The simulator knows nothing else of it.
type profile struct {
	// start is what a call takes on the own node besides its turns, and turn each of them, in seconds.
	start, turn float64
	// latency and bandwidth are of calls to other nodes, in seconds and bytes a second.
	latency, bandwidth float64
}

// turns is how many fill a kernel of a length.
func (p *profile) turns(gpu time.Duration) int {
	return max(0, int(math.Round((gpu.Seconds()-p.start)/p.turn)))
}

func runLive(ctx context.Context, o exp.Options) (*exp.Result, error) {
	if len(o.Figures) > 0 {
		return nil, exp.UsageError("--live has no parts to choose from: leave --figure out")
	}
	simulated, err := newLab(o)
	if err != nil {
		return nil, err
	}
	l := &liveLab{lab: simulated, found: map[liveRun][]liveFound{}}
	l.seeds = o.Seeds(1)
	if _, given := o.Flags["span"]; !given {
		l.span = liveSpan
		if o.Flags["full"] != "" {
			l.span = fullSpan
		}
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], liveProgram); err != nil {
		return nil, err
	}
	return l.run(ctx)
}

// run starts the cluster, makes all runs and shows what is complete.
func (l *liveLab) run(ctx context.Context) (*exp.Result, error) {
	star, err := bench.NewStar(gbe, liveNodes)
	l.network = starNetwork
	switch {
	case errors.Is(err, bench.ErrNoLink):
		star, l.noLink, l.network = bench.LoopbackStar(liveNodes), err.Error(), nearNetwork
	case err != nil:
		return nil, err
	}
	defer star.Close()
	if l.fleet, err = startFleet(ctx, l.tools, star); err != nil {
		return nil, err
	}
	defer l.fleet.stop()
	late := bench.Watch()
	missing, err := live.Measure(ctx, l.options, l.steps())
	l.late = late()
	if err != nil {
		return nil, err
	}
	if len(l.found) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l.result(missing), nil
}

// steps are all that is measured.
func (l *liveLab) steps() []live.Step {
	list := []live.Step{{Name: "what a call takes", Work: 1, Do: func(ctx context.Context, _ func(int)) error { return l.measureCalls(ctx) }}}
	for _, w := range mixes {
		for _, p := range ofPaper {
			list = append(list, live.Step{Name: w + " with " + p.name, Work: 2, Do: func(ctx context.Context, _ func(int)) error { return l.both(ctx, liveRun{w, p.mapper}) }})
		}
	}
	return list
}

// measureCalls finds out what a call takes while nobody else is there: the shortest of several, since
// others who use the machine can only make it longer.
func (l *liveLab) measureCalls(ctx context.Context) error {
	const few, many, large = 10, 2000, 1 << 20
	p := l.fleet.puppets[0]
	shortest := func(device, turns, in int) (float64, error) {
		least := math.Inf(1)
		for range 15 {
			took, err := l.fleet.call(ctx, p, device, turns, in)
			if err != nil {
				return 0, err
			}
			least = min(least, took)
		}
		return least, nil
	}
	var near, long, far, loaded float64
	for _, c := range []struct {
		device, turns, in int
		to                *float64
	}{{0, few, 0, &near}, {0, many, 0, &long}, {1, few, 0, &far}, {1, few, large, &loaded}} {
		took, err := shortest(c.device, c.turns, c.in)
		if err != nil {
			return err
		}
		*c.to = took
	}
	pr := &l.profile
	pr.turn = (long - near) / (many - few)
	pr.start = max(0, near-few*pr.turn)
	pr.latency = max(1e-6, far-near)
	pr.bandwidth = large / max(1e-9, loaded-far)
	if pr.turn <= 0 {
		return fmt.Errorf("%d turns took %v s, %d of them %v s: this machine is too busy to measure anything", many, long, few, near)
	}
	return nil
}

// both makes a run, and the simulator's of the same.
func (l *liveLab) both(ctx context.Context, r liveRun) error {
	for _, seed := range l.seeds {
		work, err := l.workload(r.workload)
		if err != nil {
			return err
		}
		cluster, err := l.clusterLike()
		if err != nil {
			return err
		}
		span := l.span / liveFaster
		var found liveFound
		var layout *mapping.Layout
		result, err := l.simulate(ctx, kernels.Config{Cluster: cluster, Workload: work, Seed: seed, Span: span, Mapper: func(seen *mapping.Layout) (mapping.Mapper, error) {
			layout = seen
			return mapping.New(r.mapper, seen)
		}})
		if err != nil {
			return err
		}
		found.predicted = measure(result, work)
		x, err := newProxy(l.fleet, &l.profile, layout, work, r.mapper, seed, span)
		if err != nil {
			return err
		}
		if found.real, err = x.run(ctx); err != nil {
			return err
		}
		l.found[r] = append(l.found[r], found)
	}
	return nil
}

// workload is one of the paper's on the live nodes, with phases that are as many times shorter.
func (l *liveLab) workload(name string) (*phased.Workload, error) {
	w, err := phased.Paper(name, liveNodes)
	if err != nil {
		return nil, err
	}
	for i := range w.Apps {
		a := &w.Apps[i]
		a.PerNode = livePerNode
		for k := range a.Steps {
			a.Steps[k].CPU.Mean /= liveFaster
			a.Steps[k].GPU.Mean /= liveFaster
		}
	}
	return w, nil
}

// clusterLike is the simulator's cluster with what calls were seen to take.
func (l *liveLab) clusterLike() (*model.Cluster, error) {
	latency := time.Duration(l.profile.latency * float64(time.Second))
	return l.clusterOf(scenario{nodes: liveNodes, gpus: 1, bandwidth: int64(l.profile.bandwidth), latency: latency})
}

// values are a number of a run, seed by seed.
func (l *liveLab) values(r liveRun, of func(*liveFound) float64) []float64 {
	return exp.Values(l.found[r], of)
}

// off is by how much the prediction is off, in parts of what was measured.
func off(of func(*outcome) float64) func(*liveFound) float64 {
	return func(f *liveFound) float64 { return of(&f.predicted)/of(&f.real) - 1 }
}

// each calls f for every run that was made, in order.
func (l *liveLab) each(f func(r liveRun, p policy)) {
	for _, w := range mixes {
		for _, p := range ofPaper {
			if r := (liveRun{w, p.mapper}); len(l.found[r]) > 0 {
				f(r, p)
			}
		}
	}
}

// kernelsDone is how many a second all processes finished.
func kernelsDone(o *outcome) float64 {
	sum := 0.0
	for _, d := range o.done {
		sum += d
	}
	return sum
}

// good counts the runs whose prediction is within goodPrediction.
func (l *liveLab) good(of func(*outcome) float64) (good, all int) {
	l.each(func(r liveRun, _ policy) {
		for _, v := range l.values(r, off(of)) {
			if all++; math.Abs(v) <= goodPrediction {
				good++
			}
		}
	})
	return good, all
}

// mostOff is by how much the worst prediction is off, in parts.
func (l *liveLab) mostOff(of func(*outcome) float64) float64 {
	var all []float64
	l.each(func(r liveRun, _ policy) {
		for _, v := range l.values(r, off(of)) {
			all = append(all, math.Abs(v))
		}
	})
	return slices.Max(all)
}
