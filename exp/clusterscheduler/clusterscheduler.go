package clusterscheduler

import (
	"context"
	"fmt"
	"slices"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// Experiment is the whole experiment.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "batch, co-location and latency reduction on two clusters: a real head and nodes with software GPUs, and the same runs in the simulator",
	Runs:    runsMade,
	Figures: figureNames(),
	Flags:   bench.Flags("", "2m"),
	Run:     frame().Run,
}

const (
	name  = "clusterscheduler"
	title = "The cluster scheduler: policies of a cluster whose jobs share GPUs, on software GPUs"
	// runsMade keeps the run time of the whole within ten minutes.
	runsMade = 1
)

// figure is one of the paper's figures.
type figure struct {
	name, part string
	plan       func() []workload
	show       func(m *measured) shown
}

// shown is the output of a figure.
type shown struct {
	rows     []exp.Row
	pictures []report.Section
}

// figures in the paper's order.
func figures() []figure { return []figure{mappingFigure, boundFigure, weightFigure, mixFigure} }

func figureNames() []string { return exp.Names(figures(), figureName) }

func figureName(f *figure) string { return f.name }

// frame says how the measurements are made, checked and shown. It is a function and not a variable,
// because the check refers to the figures, which are part of Experiment.
func frame() bench.Frame[measured] {
	return bench.Frame[measured]{
		Measure: measure, Check: (*measured).check, Result: result,
		Partial: func(m *measured) string { return m.Missing },
	}
}

// prepare reads the flags and finds the tools, before anything is measured.
func prepare(ctx context.Context, o exp.Options) (*lab, error) {
	l := &lab{ctx: ctx, m: newMeasured(o.Seeds(runsMade))}
	var err error
	if l.patience, err = bench.PatienceOf(o, defaultPatience); err != nil {
		return nil, err
	}
	l.tools, err = bench.FindTools(o.Flags["programs"], programs...)
	return l, err
}

// measure makes all measurements of the figures that the user asked for. If it is interrupted, it
// keeps the complete figures, and Missing names the others.
func measure(ctx context.Context, o exp.Options) (*measured, error) {
	l, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	chosen := exp.Wanted(o, figures(), figureName)
	l.m.Figures = exp.Names(chosen, figureName)
	err = l.measureAll(chosen, o.Progress)
	closed := l.close()
	switch {
	case err == nil:
		err = closed
	case ctx.Err() != nil && l.m.Keep(needs(chosen)):
		err = nil
	}
	return l.m, err
}

// needs lists the workloads of each figure.
func needs(chosen []figure) []bench.Need {
	return bench.Needs(chosen, figureName, func(f *figure) []string { return exp.Names(f.plan(), keyOf) })
}

func keyOf(w *workload) string { return w.key }

// measureAll runs each workload of the figures once per seed.
func (l *lab) measureAll(chosen []figure, progress func(done, total int64)) error {
	if err := l.profile(); err != nil {
		return fmt.Errorf("the profile: %w", err)
	}
	var plan []workload
	for _, f := range chosen {
		plan = append(plan, f.plan()...)
	}
	return l.m.Measure(exp.Names(plan, keyOf), progress, func(i int, seed uint64) (outcome, error) { return l.run(&plan[i], seed) })
}

// result makes rows, notes and the page.
func result(m *measured) (*exp.Result, error) {
	var chosen []figure
	for _, f := range figures() {
		if slices.Contains(m.Figures, f.name) {
			chosen = append(chosen, f)
		}
	}
	if err := m.predictAll(chosen); err != nil {
		return nil, err
	}
	r := exp.NewReport(name, title, lead, notes(m), "")
	for _, f := range chosen {
		s := f.show(m)
		r.ShowOnPage(f.part, s.rows, s.pictures...)
	}
	r.ShowOnPage(exp.ClaimsPart, claimRows(m))
	r.ShowOnPage(partErrors, errorRows(m, chosen))
	r.ShowOnPage(partScale, scaledRows(m))
	return &r.Result, nil
}
