package gremm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
	"muster/internal/misuse"
	"muster/mapping"
	"muster/model"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// liveFlags are --live and the flags that go with it.
var liveFlags = append([]exp.Flag{
	{Name: "live", Summary: "run W1 to W5 in small with real programs on four nodes of software GPUs, each mapper beside the simulator's prediction", Switch: true},
	{Name: "full", Summary: "with --live: five times as long", Switch: true},
}, bench.Flags("with --live: ", "20s")...)

const (
	// liveFaster is the factor by which phases are shorter than in the paper.
	liveFaster = 20
	// liveSpan is the length of a run in the paper's time, and fullSpan that with --full.
	liveSpan, fullSpan = 80 * time.Second, 400 * time.Second
	// goodPrediction is the relative error up to which a prediction of the simulator counts as
	// good.
	goodPrediction = 0.15
	// tooLate is the mean wake-up delay, in seconds, above which the machine counts as busy with
	// other work. A run with a larger delay is repeated while patience is left.
	tooLate      = 0.0004
	livePatience = 20 * time.Second
)

// Networks of the live nodes.
const (
	starNetwork = "links of 100 MB/s"
	nearNetwork = "the loopback interface"
)

// liveLab makes the runs, one after the other.
type liveLab struct {
	*lab
	tools bench.Tools
	fleet *fleet
	m     *liveMeasured
	// patience is the remaining time that may be spent waiting for a quiet machine.
	patience time.Duration
}

// liveMeasured holds all measurements. It can be stored in a file.
type liveMeasured struct {
	Version int       `json:"version"`
	Machine string    `json:"machine"`
	Span    float64   `json:"span"` // seconds of the paper's time
	Seeds   []uint64  `json:"seeds"`
	Network string    `json:"network"`
	NoLink  string    `json:"no_link,omitempty"` // why there are no links with a bandwidth
	Profile profile   `json:"profile"`
	Runs    []liveRun `json:"runs"`
	// Own are the runs in which one node has all GPUs and maps the launches itself; NoOwn says why
	// there are none.
	Own     []liveRun `json:"own,omitempty"`
	NoOwn   string    `json:"no_own,omitempty"`
	Missing []string  `json:"missing,omitempty"`
}

// liveRun is a run of a workload with a mapper: the measured numbers, and the simulator's
// prediction for the same processes on the same cluster.
type liveRun struct {
	Workload  string      `json:"workload"`
	Mapper    string      `json:"mapper"`
	Seed      uint64      `json:"seed"`
	Real      liveNumbers `json:"real"`
	Predicted liveNumbers `json:"predicted"`
	// Late is the machine's mean wake-up delay during the run, in seconds.
	Late float64 `json:"late"`
}

// liveNumbers are the numbers of a run that are shown.
type liveNumbers struct {
	Utilisation float64 `json:"utilisation"` // per cent
	Wait        float64 `json:"wait"`        // seconds of the paper's time, mean over all kernels
	Kernels     float64 `json:"kernels"`     // finished per second of the paper's time
	Remote      float64 `json:"remote"`      // kernels that ran on another node, per cent
}

func numbersOf(o *outcome) liveNumbers {
	n := liveNumbers{Utilisation: o.utilisation, Wait: liveFaster * o.wait, Remote: o.remote}
	for _, d := range o.done {
		n.Kernels += d / liveFaster
	}
	return n
}

// profile is the cost of a call on an idle cluster. It is all that the simulator is told about the
// real one.
type profile struct {
	// Start is the fixed cost of a call on the process's own node, and Turn the cost of each turn
	// of the kernel's loop, in seconds.
	Start float64 `json:"start"`
	Turn  float64 `json:"turn"`
	// Latency (seconds) and Bandwidth (bytes per second) describe calls to other nodes.
	Latency   float64 `json:"latency"`
	Bandwidth float64 `json:"bandwidth"`
}

// turns is the number of turns that make a kernel take the given time.
func (p *profile) turns(gpu time.Duration) int {
	return max(0, int(math.Round((gpu.Seconds()-p.Start)/p.Turn)))
}

func runLive(ctx context.Context, o exp.Options) (*exp.Result, error) {
	if len(o.Figures) > 0 {
		return nil, misuse.Errorf("--live has no parts to choose from: leave --figure out")
	}
	return liveFrame.Run(ctx, o)
}

// liveFrame says how the measurements are made, checked and shown.
var liveFrame = bench.Frame[liveMeasured]{
	Measure: measureLive, Check: (*liveMeasured).check,
	Result: func(m *liveMeasured) (*exp.Result, error) { return m.result(), nil },
}

func measureLive(ctx context.Context, o exp.Options) (*liveMeasured, error) {
	l, err := newLiveLab(o)
	if err != nil {
		return nil, err
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], liveProgram); err != nil {
		return nil, err
	}
	return l.m, l.run(ctx)
}

func newLiveLab(o exp.Options) (*liveLab, error) {
	simulated, err := newLab(o)
	if err != nil {
		return nil, err
	}
	if _, given := o.Flags["span"]; !given {
		simulated.span = liveSpan
		if o.Flags["full"] != "" {
			simulated.span = fullSpan
		}
	}
	m := &liveMeasured{Version: liveVersion, Machine: bench.Machine(), Span: simulated.span.Seconds(), Seeds: o.Seeds(1), Network: starNetwork}
	l := &liveLab{lab: simulated, m: m}
	l.patience, err = bench.PatienceOf(o, livePatience)
	return l, err
}

// run starts the cluster and makes all runs. If the context ends, it keeps the complete ones.
func (l *liveLab) run(ctx context.Context) error {
	star, err := bench.NewStar(gbe, liveNodes)
	switch {
	case errors.Is(err, bench.ErrNoLink):
		star, l.m.NoLink, l.m.Network = bench.LoopbackStar(liveNodes), err.Error(), nearNetwork
	case err != nil:
		return err
	}
	defer star.Close()
	if l.fleet, err = startFleet(ctx, l.tools, star, ""); err != nil {
		return err
	}
	defer l.fleet.stop()
	l.m.Missing, err = live.Measure(ctx, l.options, l.steps())
	if err == nil && len(l.m.Runs) == 0 {
		err = ctx.Err()
	}
	return err
}

// steps lists all measurements.
func (l *liveLab) steps() []live.Step {
	list := []live.Step{{Name: "what a call takes", Work: 1, Do: func(ctx context.Context, _ func(int)) error { return l.measureCalls(ctx) }}}
	for _, w := range mixes {
		for _, p := range ofPaper {
			list = append(list, live.Step{Name: w + " with " + p.name, Work: 2, Do: func(ctx context.Context, _ func(int)) error { return l.mapped(ctx, w, p.mapper) }})
		}
	}
	own := []string{"W4"} // the workload of the paper's Fig. 4
	if l.options.Flags["full"] != "" {
		own = mixes
	}
	for _, p := range ofPaper {
		list = append(list, live.Step{Name: "a node that maps with " + p.name, Work: 4, Do: func(ctx context.Context, _ func(int)) error { return l.ownMapper(ctx, p.mapper, own) }})
	}
	return list
}

// measureCalls measures the cost of a call on the idle cluster. It takes the shortest of several
// calls, because other load on the machine can only lengthen one.
func (l *liveLab) measureCalls(ctx context.Context) error {
	// The cost of a turn comes from the difference of two long kernels. A short one would mislead:
	// a software GPU that was idle runs ahead of its rate for a moment.
	const few, some, many, large = 10, 2000, 20_000, 1 << 20
	p := l.fleet.puppets[0]
	shortest := func(device, turns, in int) (float64, error) {
		least := math.Inf(1)
		for range 9 {
			took, err := l.fleet.call(ctx, p, device, turns, in)
			if err != nil {
				return 0, err
			}
			least = min(least, took)
		}
		return least, nil
	}
	var near, short, long, far, loaded float64
	for _, c := range []struct {
		device, turns, in int
		to                *float64
	}{{0, few, 0, &near}, {0, some, 0, &short}, {0, many, 0, &long}, {1, few, 0, &far}, {1, few, large, &loaded}} {
		took, err := shortest(c.device, c.turns, c.in)
		if err != nil {
			return err
		}
		*c.to = took
	}
	pr := &l.m.Profile
	pr.Turn = (long - short) / (many - some)
	pr.Start = max(0, near-few*pr.Turn)
	pr.Latency = max(1e-6, far-near)
	pr.Bandwidth = large / max(1e-9, loaded-far)
	if pr.Turn <= 0 {
		return fmt.Errorf("%d turns took %v s, %d of them %v s: this machine is too busy to measure anything", many, long, some, short)
	}
	return nil
}

// both runs a workload with a mapper on a fleet, and simulates the same on a cluster, once per
// seed.
func (l *liveLab) both(ctx context.Context, f *fleet, cluster *model.Cluster, workload, mapper string) ([]liveRun, error) {
	work, err := l.workload(workload)
	if err != nil {
		return nil, err
	}
	span := l.span / liveFaster
	var runs []liveRun
	for _, seed := range l.m.Seeds {
		var layout *mapping.Layout
		result, err := l.simulate(ctx, kernels.Config{Cluster: cluster, Workload: work, Seed: seed, Span: span, Mapper: func(seen *mapping.Layout) (mapping.Mapper, error) {
			layout = seen
			return mapping.New(mapper, seen)
		}})
		if err != nil {
			return nil, err
		}
		real, late, err := bench.Quietly(&l.patience, tooLate, func() (outcome, float64, error) {
			x, err := newProxy(f, &l.m.Profile, layout, work, mapper, seed, span)
			if err != nil {
				return outcome{}, 0, err
			}
			watch := bench.Watch()
			out, err := x.run(ctx)
			return out, watch(), err
		})
		if err != nil {
			return nil, err
		}
		predicted := measure(result, work)
		runs = append(runs, liveRun{workload, mapper, seed, numbersOf(&real), numbersOf(&predicted), late})
	}
	return runs, nil
}

// mapped makes the runs of a workload in which the proxy maps.
func (l *liveLab) mapped(ctx context.Context, workload, mapper string) error {
	latency := time.Duration(l.m.Profile.Latency * float64(time.Second))
	cluster, err := l.clusterOf(scenario{nodes: liveNodes, gpus: 1, bandwidth: int64(l.m.Profile.Bandwidth), latency: latency})
	if err != nil {
		return err
	}
	runs, err := l.both(ctx, l.fleet, cluster, workload, mapper)
	l.m.Runs = append(l.m.Runs, runs...)
	return err
}

// ownMapper makes the runs in which one node has all GPUs and maps the launches itself. The
// simulator models that as nodes between which data travel in no time. If such a node cannot be
// started, these runs are left out and NoOwn says why.
func (l *liveLab) ownMapper(ctx context.Context, mapper string, workloads []string) error {
	if l.m.NoOwn != "" {
		return nil
	}
	cluster, err := l.clusterOf(scenario{nodes: liveNodes, gpus: 1, bandwidth: boundless})
	if err != nil {
		return err
	}
	f, err := startFleet(ctx, l.tools, bench.LoopbackStar(1), mapper)
	if err != nil {
		l.m.NoOwn = err.Error()
		return ctx.Err()
	}
	defer f.stop()
	for _, w := range workloads {
		runs, err := l.both(ctx, f, cluster, w, mapper)
		if err != nil {
			return err
		}
		l.m.Own = append(l.m.Own, runs...)
	}
	return nil
}

// workload is one of the paper's workloads for the live nodes, with all phases shortened by
// liveFaster.
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

// pick selects the runs of a workload with a mapper.
func pick(runs []liveRun, workload, mapper string) []liveRun {
	var list []liveRun
	for _, r := range runs {
		if r.Workload == workload && r.Mapper == mapper {
			list = append(list, r)
		}
	}
	return list
}

// each calls f for every workload and mapper that was run, in order.
func each(runs []liveRun, f func(workload string, p policy, runs []liveRun)) {
	for _, w := range mixes {
		for _, p := range ofPaper {
			if some := pick(runs, w, p.mapper); len(some) > 0 {
				f(w, p, some)
			}
		}
	}
}

// quieter is the half of the runs during which the machine was least busy.
func quieter(runs []liveRun) []liveRun {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b liveRun) int { return cmp.Compare(a.Late, b.Late) })
	return sorted[:(len(sorted)+1)/2]
}

// off is the relative error of a prediction.
func (c *liveColumn) off(r *liveRun) float64 { return c.of(&r.Predicted)/c.of(&r.Real) - 1 }

// good counts the runs whose prediction is within goodPrediction, and returns the largest error.
func good(runs []liveRun, c *liveColumn) (good int, worst float64) {
	for i := range runs {
		by := math.Abs(c.off(&runs[i]))
		if worst = max(worst, by); by <= goodPrediction {
			good++
		}
	}
	return good, worst
}
