// Package tsubame reproduces the paper on TSUBAME2.5's GPU queues: the existing G queue, and the
// proposed R queue, in which jobs share nodes and borrow GPUs through rCUDA.
//
// The paper's log is not public. The generated one follows what the paper publishes (see the
// generator tsubame of package workload). What it does not publish is varied, and the results show
// how much depends on it. Nothing here decides or simulates: the packages policy and sim do.
package tsubame

import (
	"context"
	"fmt"
	"maps"

	"muster/exp"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy"
	"muster/policy/catalog"
	"muster/report"
	"muster/sim"
	"muster/workload"
)

// Experiment is the whole experiment, simulated and live.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "R queue against G queue: a congested queue, a year on 480 nodes, and fewer nodes",
	Runs:    seedsTried,
	Flags:   liveFlags,
	Run:     exp.Live(liveFlags, runLive, run),
}

const (
	name  = "tsubame"
	title = "TSUBAME2.5: the G queue, and the R queue that borrows GPUs"
	// seedsTried keeps the run time of the whole within two minutes on two cores.
	seedsTried = 5

	gQueue = "g-queue"
	rQueue = "r-queue"
)

// The parts of the paper.
const (
	partCongested = "Congested queue (abstract, section 3)"
	partYear      = "A year on 480 nodes (section 4.2)"
	partNodes     = "Fewer nodes (Table 3)"
	partUnknown   = "What the paper does not say"
)

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	cluster, err := clusterfile.Preset("tsubame")
	if err != nil {
		return nil, err
	}
	l := &lab{ctx: ctx, cluster: cluster, options: o, seeds: o.Seeds(seedsTried)}
	l.expected = int64(2 * len(l.seeds) * (len(shapes) + 2*len(sizes) + len(variants)))

	congested, err := l.congested()
	if err != nil {
		return nil, err
	}
	year, err := l.year(nil)
	if err != nil {
		return nil, err
	}
	whole, err := l.year(whole75.settings)
	if err != nil {
		return nil, err
	}
	unknown, err := l.variants()
	if err != nil {
		return nil, err
	}
	gantts, err := l.gantts()
	if err != nil {
		return nil, err
	}

	r := &exp.Result{Name: name}
	r.Rows = append(r.Rows, congested.rows()...)
	r.Rows = append(r.Rows, year.rows()...)
	r.Rows = append(r.Rows, year.table3()...)
	r.Rows = append(r.Rows, whole.asVariant()...)
	r.Rows = append(r.Rows, unknown.rows()...)
	r.Notes = l.notes(year, whole)
	r.Page = l.page(r, congested, year, whole, unknown, gantts)
	return r, nil
}

// lab runs the simulations.
type lab struct {
	ctx     context.Context
	cluster *model.Cluster
	options exp.Options
	seeds   []uint64

	// Counts of simulations, for the progress bar: those done, and the total.
	made, expected int64
}

// study is a set of runs: both queues, for each seed, on each number of nodes.
type study struct {
	generator string
	settings  map[string]string
	nodes     []int
	seeds     []uint64
	observe   func(sim.Point) sim.Observer
}

// both are the runs of both queues with one seed and number of nodes.
type both struct{ g, r *sim.Result }

// run makes the runs of a study, ordered by seed, then by number of nodes. Jobs may exceed their
// wall times: the paper kills none, and a job that the R queue slows down must not appear shorter
// for being killed.
func (l *lab) run(s study) ([]both, error) {
	sweep := sim.Sweep{
		Cluster: l.cluster, Nodes: s.nodes, Seeds: s.seeds, NoKill: true, Observe: s.observe,
		Policies: []sim.NamedPolicy{named(gQueue), named(rQueue)},
		Workers:  l.options.Workers,
		Workload: func(seed uint64) ([]model.Job, error) {
			wl, err := workload.Generate(s.generator, s.settings, seed)
			if err != nil {
				return nil, err
			}
			return wl.Jobs, nil
		},
	}
	count := int64(2 * len(s.seeds) * len(s.nodes))
	if l.options.Progress != nil {
		const pieces = 1000 // steps of the progress bar per run
		sweep.Progress = func(done, all int64) {
			l.options.Progress(l.made*pieces+count*pieces*done/max(1, all), max(l.expected, l.made+count)*pieces)
		}
	}
	runs, err := sweep.Run(l.ctx)
	if err != nil {
		return nil, err
	}
	l.made += count
	list := make([]both, len(runs)/2)
	for i := range list {
		list[i] = both{runs[2*i].Result, runs[2*i+1].Result}
	}
	return list, nil
}

func named(spec string) sim.NamedPolicy {
	return sim.NamedPolicy{Name: spec, New: func() (policy.Policy, error) { return catalog.New(spec) }}
}

// with is a copy of settings with the given keys and values added.
func with(settings map[string]string, more ...string) map[string]string {
	out := maps.Clone(settings)
	if out == nil {
		out = map[string]string{}
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// percent is the change from a to b in per cent.
func percent(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return 100 * (b - a) / a
}

// settingsTable lists the parameters of a generated workload.
func settingsTable(generator string, set map[string]string) *report.Table {
	t := &report.Table{
		Title:   "Parameters of the generator " + generator,
		Columns: []report.Column{{Name: "parameter"}, {Name: "value"}, {Name: "meaning"}},
	}
	for _, g := range workload.Generators() {
		if g.Name != generator {
			continue
		}
		for _, p := range g.Parameters {
			value, ok := set[p.Name]
			if !ok {
				value = p.Default
			}
			t.Rows = append(t.Rows, []string{p.Name, value, p.Help})
		}
	}
	return t
}

// signed writes a number with its sign.
func signed(x float64) string { return fmt.Sprintf("%+.2f", x) }
