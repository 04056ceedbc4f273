package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// Experiment is the whole of it.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "sharing GPUs of a node: overhead, swapping, migration and preemption, measured on software GPUs",
	Runs:    runsMade,
	Figures: figureNames(),
	Flags: []exp.Flag{
		{Name: "scale", Summary: "make one of so many of the paper's iterations of programs of several processes, 1 for all of them (default 20)"},
		{Name: "programs", Summary: "the folder of the programs to run (default: examples/ beside this program)"},
		{Name: "patience", Summary: "how long to wait, in all, for a machine that is busy with other things (default 2m)"},
		{Name: "save", Summary: "keep what was measured in this file"},
		{Name: "from", Summary: "measure nothing, and show what --save kept in this file"},
	},
	Run: run,
}

const (
	name  = "noderuntime"
	title = "The node runtime: programs that share GPUs, on software GPUs"
	// runsMade keeps the whole within five minutes.
	runsMade = 1
)

// figure is one of the paper's figures.
type figure struct {
	name, part string
	mpi        bool // its programs need MPI
	scaled     []scaling
	parts      []*parallelFigure // of those that need MPI
	// plan lists what is to be measured: all points of the paper's, or some.
	plan func(all bool) []measurement
	show func(m *measured) shown
}

// shown is what becomes of the measurements of a figure.
type shown struct {
	rows     []exp.Row
	pictures []report.Section
}

// measurement is one run of some programs under one setting.
type measurement struct {
	key string
	// make runs it. The dice are the same for all measurements of a run.
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

func figureNames() []string {
	var names []string
	for _, f := range figures() {
		names = append(names, f.name)
	}
	return names
}

// lab is where measurements are made.
type lab struct {
	ctx      context.Context
	tools    tools
	m        *measured
	patience time.Duration // what is left to wait for a quiet machine
}

const maxScale = 1000

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	if from, given := o.Flags["from"]; given {
		m, err := load(from)
		if err != nil {
			return nil, err
		}
		return result(m), nil
	}
	l, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := l.measure(o); err != nil {
		return nil, err
	}
	if path, given := o.Flags["save"]; given {
		if err := l.m.save(path); err != nil {
			return nil, err
		}
	}
	r := result(l.m)
	r.Partial = l.m.Missing
	return r, nil
}

// prepare reads the flags and finds the tools, before anything is measured.
func prepare(ctx context.Context, o exp.Options) (*lab, error) {
	m := &measured{Version: savedVersion, Machine: bench.Machine(), Scale: defaultScale, All: len(o.Figures) > 0, Seeds: o.Seeds(runsMade), Alone: map[string]alone{}, Outcomes: map[string][]outcome{}}
	l := &lab{ctx: ctx, m: m, patience: defaultPatience}
	var err error
	if text, given := o.Flags["scale"]; given {
		if m.Scale, err = strconv.Atoi(text); err != nil || m.Scale < 1 || m.Scale > maxScale {
			return nil, exp.UsageError(fmt.Sprintf("--scale %s: give a number from 1, for all of the paper's iterations, to %d", text, maxScale))
		}
	}
	if text, given := o.Flags["patience"]; given {
		if l.patience, err = bench.Patience(text); err != nil {
			return nil, err
		}
	}
	if err := bench.Savable(o.Flags["save"]); err != nil {
		return nil, err
	}
	l.tools, err = findTools(o.Flags["programs"])
	return l, err
}

// measure makes all measurements of the figures that are wanted. When it is interrupted,
// it keeps what is complete by then, and Missing says what is not.
func (l *lab) measure(o exp.Options) error {
	chosen, err := l.choose(o)
	if err != nil {
		return err
	}
	err = l.measureAll(chosen, o.Progress)
	if err != nil && l.ctx.Err() != nil && l.m.keep(chosen) {
		return nil
	}
	return err
}

// choose gives the figures that are wanted and can be measured here.
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

// measureAll makes each measurement of some figures once for every seed.
func (l *lab) measureAll(chosen []figure, progress func(done, total int64)) error {
	var plan []measurement
	for _, f := range chosen {
		plan = append(plan, f.plan(l.m.All)...)
	}
	done := 0
	for _, seed := range l.m.Seeds {
		for _, one := range plan {
			out, err := quietly(l, func() (outcome, disturbance, error) {
				out, err := one.make(l, rand.New(rand.NewPCG(seed, 0)))
				return out, out.disturbance, err
			})
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", one.key, seed, err)
			}
			l.m.Outcomes[one.key] = append(l.m.Outcomes[one.key], out)
			if done++; progress != nil {
				progress(int64(done), int64(len(l.m.Seeds)*len(plan)))
			}
		}
	}
	return nil
}

// result makes rows, notes and the page.
func result(m *measured) *exp.Result {
	var chosen []figure
	for _, f := range figures() {
		if slices.Contains(m.Figures, f.name) {
			chosen = append(chosen, f)
		}
	}
	r := &exp.Result{Name: name, Notes: notes(m)}
	r.Page = &report.Page{Title: title, Lead: lead}
	add := func(list ...report.Section) { r.Page.Sections = append(r.Page.Sections, list...) }
	rows := func(part string, rows []exp.Row) {
		if len(rows) > 0 {
			r.Rows = append(r.Rows, rows...)
			add(report.Heading(part))
		}
	}
	add(report.Heading("How it was done, and what differs"))
	for _, n := range r.Notes {
		add(report.Text(n))
	}
	for _, f := range chosen {
		s := f.show(m)
		rows(f.part, s.rows)
		add(s.pictures...)
		add(exp.TableWithNotes(s.rows, f.part))
	}
	for _, more := range []struct {
		part string
		rows []exp.Row
	}{{partInterAll, interAll(m)}, {partClaims, claimRows(m)}, {partScale, scaledRows(m, chosen)}} {
		rows(more.part, more.rows)
		if len(more.rows) > 0 {
			add(exp.TableWithNotes(more.rows, more.part))
		}
	}
	return r
}

// seconds are the times of a measurement.
func (m *measured) seconds(key string) []float64 {
	return m.each(key, func(o outcome) float64 { return o.Seconds })
}

func (m *measured) swaps(key string) []float64 {
	return m.each(key, func(o outcome) float64 { return float64(o.Swaps) })
}

func (m *measured) moves(key string) []float64 {
	return m.each(key, func(o outcome) float64 { return float64(o.Moves) })
}

func (m *measured) guests(key string) []float64 {
	return m.each(key, func(o outcome) float64 { return float64(o.Guests) })
}

func (m *measured) each(key string, of func(outcome) float64) []float64 {
	var all []float64
	for _, o := range m.Outcomes[key] {
		all = append(all, of(o))
	}
	return all
}

// ratios are the times of one measurement over those of another, run by run.
func (m *measured) ratios(key, over string) []float64 {
	a, b := m.seconds(key), m.seconds(over)
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return all
}

func (m *measured) has(key string) bool { return len(m.Outcomes[key]) > 0 }

// most is the largest of several medians. Runs are not looked at one by one: the
// largest of many single times says most of all how they vary.
func most(lists [][]float64) float64 { return slices.Max(medians(lists)) }

func medians(lists [][]float64) []float64 {
	var all []float64
	for _, list := range lists {
		all = append(all, median(list))
	}
	return all
}

// row is of the median: measured times have outliers.
func row(part, metric, unit string, values []float64) exp.Row {
	r := exp.Over(part, metric, unit, values)
	r.Ours = median(values)
	r.HalfWidth = nil // it would be that of the mean
	return r
}

func median(values []float64) float64 {
	sorted := slices.Clone(values)
	sort.Float64s(sorted)
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// series makes one series of bars, with the least and the most of all runs.
func series(label string, points [][]float64) report.BarSeries {
	s := report.BarSeries{Name: label}
	for _, values := range points {
		s.Values = append(s.Values, median(values))
		s.Lo, s.Hi = append(s.Lo, slices.Min(values)), append(s.Hi, slices.Max(values))
	}
	return s
}

// nothing is a bar that is not drawn.
var nothing = math.NaN()

// marked writes a number on each bar of a series.
func marked(s report.BarSeries, points [][]float64) report.BarSeries {
	for _, values := range points {
		s.Marks = append(s.Marks, report.Number(median(values)))
	}
	return s
}
