package clusterscheduler

import (
	"context"
	"fmt"

	"muster/exp"
	"muster/exp/bench"
)

// Experiment is the whole experiment.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "batch, co-location and latency reduction on two clusters: a real head and nodes with software GPUs, and the same runs in the simulator",
	Runs:    runsMade,
	Figures: study().FigureNames(),
	Flags:   bench.Flags("", "2m"),
	Run:     study().Run,
}

const (
	name  = "clusterscheduler"
	title = "The cluster scheduler: policies of a cluster whose jobs share GPUs, on software GPUs"
	// runsMade keeps the run time of the whole within ten minutes.
	runsMade = 1
)

// study says what is measured, and how it is kept and shown.
func study() *bench.Study[measured, outcome, workload] {
	return &bench.Study[measured, outcome, workload]{
		Name: name, Title: title, Lead: lead, Version: savedVersion,
		Figures: func() []figure { return []figure{mappingFigure, boundFigure, weightFigure, mixFigure, lateFigure} },
		Record:  func(m *measured) *bench.Record[outcome] { return &m.Record },
		Begin:   begin, Check: (*measured).check, Good: (*outcome).good, Fits: (*workload).fits, Prepare: (*measured).predictAll,
		Notes: notes, TooLate: tooLate, Claims: claimRows,
		Parts: []bench.Part[measured]{{Title: exp.ClaimsPart, Rows: claimRows}, {Title: partErrors, Rows: errorRows}, {Title: partScale, Rows: scaledRows}},
	}
}

// figure is one of the paper's figures.
type figure = bench.Figure[measured, workload]

// begin finds the tools, and measures the profile.
func begin(ctx context.Context, o exp.Options) (*measured, bench.Lab[outcome, workload], error) {
	l := &lab{ctx: ctx, m: newMeasured(o.Seeds(runsMade))}
	l.m.Figures = o.ChosenFigures(study().FigureNames())
	var err error
	if l.patience, err = bench.PatienceOf(o, defaultPatience); err != nil {
		return nil, nil, err
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], programs...); err != nil {
		return nil, nil, err
	}
	if err := l.profile(); err != nil {
		_ = l.Close()
		return nil, nil, fmt.Errorf("the profile: %w", err)
	}
	return l.m, l, nil
}
