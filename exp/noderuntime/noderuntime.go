package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/internal/misuse"
	"muster/report"
)

// Experiment is the whole experiment.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "sharing GPUs of a node: overhead, swapping, migration and preemption, measured on software GPUs",
	Runs:    runsMade,
	Figures: figureNames(),
	Flags: append([]exp.Flag{
		{Name: "scale", Summary: "make one of so many of the paper's iterations of programs of several processes, 1 for all of them (default 20)"},
	}, bench.Flags("", "2m")...),
	Run: frame().Run,
}

const (
	name  = "noderuntime"
	title = "The node runtime: programs that share GPUs, on software GPUs"
	// runsMade keeps the run time of the whole within five minutes.
	runsMade = 1
)

// figure is one of the paper's figures.
type figure struct {
	name, part string
	mpi        bool // its programs need MPI
	scaled     []scaling
	parts      []*parallelFigure // of those that need MPI
	// plan lists the measurements: all points of the paper's, or a reduced set.
	plan func(all bool) []measurement
	show func(m *measured) shown
}

// shown is the output of a figure.
type shown struct {
	rows     []exp.Row
	pictures []report.Section
}

// measurement is one run of some programs under one setting.
type measurement struct {
	key string
	// make performs it. All measurements of a run get equal dice, so that they draw the same
	// programs.
	make func(l *lab, dice *rand.Rand) (outcome, error)
}

// figures in the paper's order.
func figures() []figure {
	list := []figure{overheadFigure, sharingFigure, swappingFigure, mixFigure, migrationFigure, clusterShortFigure, clusterLongFigure, preliminaryFigure}
	for i, p := range later {
		list = append(list, intraFigure(intraNumber(i), p))
	}
	for i, p := range later {
		list = append(list, interFigure(interNumber(i), p))
	}
	return append(list, parallelClusterFigure)
}

func figureNames() []string { return exp.Names(figures(), figureName) }

func figureName(f *figure) string { return f.name }

// lab makes the measurements.
type lab struct {
	ctx      context.Context
	tools    tools
	m        *measured
	patience time.Duration // remaining time that may be spent waiting for a quiet machine
}

const maxScale = 1000

// frame says how the measurements are made, checked and shown. It is a function and not a variable,
// because the check refers to the figures, which are part of Experiment.
func frame() bench.Frame[measured] {
	return bench.Frame[measured]{
		Measure: measure, Check: (*measured).check,
		Result:  func(m *measured) (*exp.Result, error) { return result(m), nil },
		Partial: func(m *measured) string { return m.Missing },
	}
}

// prepare reads the flags and finds the tools, before anything is measured.
func prepare(ctx context.Context, o exp.Options) (*lab, error) {
	m := newMeasured(o.Seeds(runsMade))
	m.All = len(o.Figures) > 0
	l := &lab{ctx: ctx, m: m}
	var err error
	if text, given := o.Flags["scale"]; given {
		if m.Scale, err = strconv.Atoi(text); err != nil || m.Scale < 1 || m.Scale > maxScale {
			return nil, misuse.Errorf("--scale %s: give a number from 1, for all of the paper's iterations, to %d", text, maxScale)
		}
	}
	if l.patience, err = bench.PatienceOf(o, defaultPatience); err != nil {
		return nil, err
	}
	l.tools, err = findTools(o.Flags["programs"])
	return l, err
}

// measure makes all measurements of the figures that the user asked for. If it is interrupted, it
// keeps the complete figures, and Missing names the others.
func measure(ctx context.Context, o exp.Options) (*measured, error) {
	l, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	chosen, err := l.choose(o)
	if err != nil {
		return nil, err
	}
	err = l.measureAll(chosen, o.Progress)
	if err != nil && ctx.Err() != nil && l.m.Keep(l.m.needs(chosen)) {
		err = nil
	}
	return l.m, err
}

// needs lists the measurements of each figure.
func (m *measured) needs(chosen []figure) []bench.Need {
	return bench.Needs(chosen, figureName, func(f *figure) []string { return exp.Names(f.plan(m.All), keyOf) })
}

func keyOf(m *measurement) string { return m.key }

// choose lists the figures that the user asked for and that can be measured on this machine.
func (l *lab) choose(o exp.Options) ([]figure, error) {
	var chosen []figure
	var left []string
	for _, f := range figures() {
		switch {
		case !o.Wants(f.name):
		case f.mpi && l.tools.mpiexec == "":
			left = append(left, f.name)
		default:
			chosen = append(chosen, f)
			l.m.Figures = append(l.m.Figures, f.name)
		}
	}
	if len(left) > 0 {
		l.m.LeftOut = fmt.Sprintf("figures %s are left out: %s", strings.Join(left, ", "), noMPI)
	}
	if len(chosen) == 0 {
		return nil, errors.New(l.m.LeftOut)
	}
	return chosen, nil
}

// measureAll makes each measurement of the figures once per seed.
func (l *lab) measureAll(chosen []figure, progress func(done, total int64)) error {
	var plan []measurement
	for _, f := range chosen {
		plan = append(plan, f.plan(l.m.All)...)
	}
	return l.m.Measure(exp.Names(plan, keyOf), progress, func(i int, seed uint64) (outcome, error) {
		return quietly(l, func() (outcome, disturbance, error) {
			out, err := plan[i].make(l, rand.New(rand.NewPCG(seed, 0)))
			return out, out.disturbance, err
		})
	})
}

// result makes rows, notes and the page.
func result(m *measured) *exp.Result {
	var chosen []figure
	for _, f := range figures() {
		if slices.Contains(m.Figures, f.name) {
			chosen = append(chosen, f)
		}
	}
	r := exp.NewReport(name, title, lead, notes(m), "")
	for _, f := range chosen {
		s := f.show(m)
		r.ShowOnPage(f.part, s.rows, s.pictures...)
	}
	r.ShowOnPage(partInterAll, interAll(m))
	r.ShowOnPage(partClaims, claimRows(m))
	r.ShowOnPage(partScale, scaledRows(m, chosen))
	return &r.Result
}

// seconds are the times of a measurement.
func (m *measured) seconds(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return o.Seconds })
}

func (m *measured) swaps(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return float64(o.Swaps) })
}

func (m *measured) moves(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return float64(o.Moves) })
}

func (m *measured) guests(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return float64(o.Guests) })
}

// ratios divides the times of two measurements, run by run.
func (m *measured) ratios(key, over string) []float64 {
	return exp.Ratios(m.seconds(key), m.seconds(over))
}

// most is the largest of several medians. It does not compare single runs, because the largest of
// many single times mainly shows how much they vary.
func most(lists [][]float64) float64 { return slices.Max(medians(lists)) }

func medians(lists [][]float64) []float64 {
	var all []float64
	for _, list := range lists {
		all = append(all, exp.Median(list))
	}
	return all
}

// nothing marks a bar that is not drawn.
var nothing = math.NaN()

// marked writes a number on each bar of a series.
func marked(s report.BarSeries, points [][]float64) report.BarSeries {
	for _, values := range points {
		s.Marks = append(s.Marks, report.Number(exp.Median(values)))
	}
	return s
}
