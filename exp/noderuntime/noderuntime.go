package noderuntime

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"muster/exp"
	"muster/report"
)

// Experiment is the whole of it.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "sharing GPUs of a node: overhead, swapping and preemption, measured on software GPUs",
	Runs:    runsMade,
	Figures: figureNames(),
	Run:     run,
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
	// plan lists what is to be measured: all points of the paper's, or some.
	plan func(all bool) []measurement
	show func(m measured) shown
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

// measured are the outcomes of measurements, one a run.
type measured map[string][]outcome

// figures in the paper's order.
func figures() []figure {
	list := []figure{overheadFigure, sharingFigure, swappingFigure, mixFigure, preliminaryFigure}
	for i, p := range []pattern{broadcast, scatterGather, barrier} {
		list = append(list, intraFigure(fmt.Sprintf("3-%d", 15+i), p))
	}
	for i, p := range []pattern{broadcast, scatterGather, barrier} {
		list = append(list, interFigure(fmt.Sprintf("3-%d", 18+i), p))
	}
	return list
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
	ctx                    context.Context
	short, long, processes *calibrator
	additions              *vectors // nil until measured
}

func newLab(ctx context.Context) *lab {
	on := func(s scale, c card) *calibrator {
		return &calibrator{scale: s, profile: s.profile(c), known: map[program]*script{}}
	}
	return &lab{ctx: ctx, short: on(short, c2050), long: on(long, c2050), processes: on(multi, gtx480)}
}

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	var chosen []figure
	for _, f := range figures() {
		if len(o.Figures) == 0 || slices.Contains(o.Figures, f.name) {
			chosen = append(chosen, f)
		}
	}
	l, seeds, m := newLab(ctx), o.Seeds(runsMade), measured{}
	var plan []measurement
	for _, f := range chosen {
		plan = append(plan, f.plan(len(o.Figures) > 0)...)
	}
	done := 0
	for _, seed := range seeds {
		for _, one := range plan {
			late := watchMachine()
			out, err := one.make(l, rand.New(rand.NewPCG(seed, 0)))
			out.late = late()
			if err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", one.key, seed, err)
			}
			m[one.key] = append(m[one.key], out)
			if done++; o.Progress != nil {
				o.Progress(int64(done), int64(len(seeds)*len(plan)))
			}
		}
	}
	return result(chosen, m, seeds, len(o.Figures) > 0), nil
}

// result makes rows, notes and the page.
func result(chosen []figure, m measured, seeds []uint64, all bool) *exp.Result {
	r := &exp.Result{Name: name, Notes: notes(m, seeds, all)}
	r.Page = &report.Page{Title: title, Lead: lead}
	add := func(list ...report.Section) { r.Page.Sections = append(r.Page.Sections, list...) }
	add(report.Heading("How it was done, and what differs"))
	for _, n := range r.Notes {
		add(report.Text(n))
	}
	for _, f := range chosen {
		s := f.show(m)
		r.Rows = append(r.Rows, s.rows...)
		add(report.Heading(f.part))
		add(s.pictures...)
		add(exp.TableWithNotes(s.rows, f.part))
	}
	if rows := interAll(m); len(rows) > 0 {
		r.Rows = append(r.Rows, rows...)
		add(report.Heading(partInterAll), exp.TableWithNotes(rows, partInterAll))
	}
	add(report.Heading("Scales"), scaleTable())
	return r
}

// seconds are the times of a measurement.
func (m measured) seconds(key string) []float64 {
	return m.each(key, func(o outcome) float64 { return o.seconds })
}

func (m measured) swaps(key string) []float64 {
	return m.each(key, func(o outcome) float64 { return float64(o.swaps) })
}

func (m measured) each(key string, of func(outcome) float64) []float64 {
	var all []float64
	for _, o := range m[key] {
		all = append(all, of(o))
	}
	return all
}

// ratios are the times of one measurement over those of another, run by run.
func (m measured) ratios(key, over string) []float64 {
	a, b := m.seconds(key), m.seconds(over)
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return all
}

func (m measured) has(key string) bool { return len(m[key]) > 0 }

// mostOf is the largest of several medians. Runs are not looked at one by one: the
// largest of many single times says most of all how they vary.
func mostOf(lists [][]float64) []float64 {
	most := math.Inf(-1)
	for _, list := range lists {
		most = max(most, median(list))
	}
	return []float64{most}
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
