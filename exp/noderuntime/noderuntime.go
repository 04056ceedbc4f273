package noderuntime

import (
	"context"
	"errors"
	"fmt"
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
	Figures: study().FigureNames(),
	Flags: append([]exp.Flag{
		{Name: "scale", Summary: "make one of so many of the paper's iterations of programs of several processes, 1 for all of them (default 20)"},
	}, bench.Flags("", "2m")...),
	Run: study().Run,
}

const (
	name  = "noderuntime"
	title = "The node runtime: programs that share GPUs, on software GPUs"
	// runsMade keeps the run time of the whole within five minutes.
	runsMade = 1
)

// figure is one of the paper's figures.
type figure struct {
	bench.Figure[measured, measurement]
	mpi    bool // its programs need MPI
	scaled []scaling
	parts  []*parallelFigure // of those that need MPI
}

// describe makes a figure: of its measurements, all points of the paper's, or a reduced set.
func describe(name, part string, scaled []scaling, plan func(*measured) []measurement, show func(*measured) bench.Shown) figure {
	return figure{Figure: bench.Figure[measured, measurement]{Name: name, Part: part, Plan: plan, Show: show}, scaled: scaled}
}

// measurement is one run of some programs under one setting.
type measurement struct {
	key string
	// make performs it. All measurements of a run get equal dice, so that they draw the same
	// programs.
	make func(l *lab, dice *rand.Rand) (outcome, error)
}

// Key implements bench.Keyed.
func (m measurement) Key() string { return m.key }

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

// lab makes the measurements.
type lab struct {
	ctx      context.Context
	tools    tools
	m        *measured
	patience time.Duration // remaining time that may be spent waiting for a quiet machine
}

const maxScale = 1000

// study says what is measured, and how it is kept and shown.
func study() *bench.Study[measured, outcome, measurement] {
	return &bench.Study[measured, outcome, measurement]{
		Name: name, Title: title, Lead: lead, Version: savedVersion,
		Figures: func() (list []bench.Figure[measured, measurement]) {
			for _, f := range figures() {
				list = append(list, f.Figure)
			}
			return list
		},
		Record: func(m *measured) *bench.Record[outcome] { return &m.Record },
		Begin:  begin, Check: (*measured).check, Good: func(*outcome) bool { return true },
		Notes: notes, Claims: claimRows,
		Parts: []bench.Part[measured]{{Title: partInterAll, Rows: interAll}, {Title: partClaims, Rows: claimRows}, {Title: partScale, Rows: scaledRows}},
	}
}

// begin reads the flags, finds the tools, and chooses the figures, before anything is measured.
func begin(ctx context.Context, o exp.Options) (*measured, bench.Lab[outcome, measurement], error) {
	m := newMeasured(o.Seeds(runsMade))
	m.All = len(o.Figures) > 0
	l := &lab{ctx: ctx, m: m}
	var err error
	if text, given := o.Flags["scale"]; given {
		if m.Scale, err = strconv.Atoi(text); err != nil || m.Scale < 1 || m.Scale > maxScale {
			return nil, nil, misuse.Errorf("--scale %s: give a number from 1, for all of the paper's iterations, to %d", text, maxScale)
		}
	}
	if l.patience, err = bench.PatienceOf(o, defaultPatience); err != nil {
		return nil, nil, err
	}
	if l.tools, err = findTools(o.Flags["programs"]); err != nil {
		return nil, nil, err
	}
	return m, l, l.choose(o)
}

// choose selects the figures that the user asked for and that can be measured on this machine.
func (l *lab) choose(o exp.Options) error {
	var left []string
	for _, f := range figures() {
		switch {
		case !o.Wants(f.Name):
		case f.mpi && l.tools.mpiexec == "":
			left = append(left, f.Name)
		default:
			l.m.Figures = append(l.m.Figures, f.Name)
		}
	}
	if len(left) > 0 {
		l.m.LeftOut = fmt.Sprintf("figures %s are left out: %s", strings.Join(left, ", "), noMPI)
	}
	if len(l.m.Figures) == 0 {
		return errors.New(l.m.LeftOut)
	}
	return nil
}

// Make makes a measurement, and again if the machine was busy.
func (l *lab) Make(one *measurement, seed uint64) (outcome, error) {
	out, _, err := bench.Quietly(&l.patience, tooLate, func() (outcome, float64, error) {
		out, err := one.make(l, rand.New(rand.NewPCG(seed, 0)))
		return out, out.Late, err
	})
	return out, err
}

// Close implements bench.Lab: every measurement stops its own nodes.
func (l *lab) Close() error { return nil }

func (m *measured) swaps(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return float64(o.Swaps) })
}

func (m *measured) moves(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return float64(o.Moves) })
}

func (m *measured) guests(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return float64(o.Guests) })
}

// most is the largest of several medians. It does not compare single runs, because the largest of
// many single times mainly shows how much they vary.
func most(lists [][]float64) float64 { return slices.Max(medians(lists)) }

func medians(lists [][]float64) []float64 {
	return exp.Values(lists, func(list *[]float64) float64 { return exp.Median(*list) })
}

// marked writes a number on each bar of a series.
func marked(s report.BarSeries, points [][]float64) report.BarSeries {
	for _, values := range points {
		s.Marks = append(s.Marks, report.Number(exp.Median(values)))
	}
	return s
}
