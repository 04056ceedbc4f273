package clusterscheduler

import (
	"context"
	"fmt"
	"slices"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// Experiment is the whole of it.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "batch, co-location and latency reduction on two clusters: a real head and nodes with software GPUs, and the same runs in the simulator",
	Runs:    runsMade,
	Figures: figureNames(),
	Flags: []exp.Flag{
		{Name: "programs", Summary: "the folder of the programs to run (default: examples/ beside this program)"},
		{Name: "patience", Summary: "how long to wait, in all, for a machine that is busy with other things (default 2m)"},
		{Name: "save", Summary: "keep what was measured in this file"},
		{Name: "from", Summary: "measure nothing, and show what --save kept in this file"},
	},
	Run: run,
}

const (
	name  = "clusterscheduler"
	title = "The cluster scheduler: policies of a cluster whose jobs share GPUs, on software GPUs"
	// runsMade keeps the whole within ten minutes.
	runsMade = 1
)

// figure is one of the paper's figures.
type figure struct {
	name, part string
	plan       func() []workload
	show       func(m *measured) shown
}

// shown is what becomes of the measurements of a figure.
type shown struct {
	rows     []exp.Row
	pictures []report.Section
}

// figures in the paper's order.
func figures() []figure { return []figure{mappingFigure, boundFigure, weightFigure, mixFigure} }

func figureNames() []string {
	var names []string
	for _, f := range figures() {
		names = append(names, f.name)
	}
	return names
}

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	if from, given := o.Flags["from"]; given {
		m, err := load(from)
		if err != nil {
			return nil, err
		}
		return result(m)
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
	r, err := result(l.m)
	if err != nil {
		return nil, err
	}
	r.Partial = l.m.Missing
	return r, nil
}

// prepare reads the flags and finds the tools, before anything is measured.
func prepare(ctx context.Context, o exp.Options) (*lab, error) {
	l := &lab{ctx: ctx, m: newMeasured(o.Seeds(runsMade)), patience: defaultPatience}
	if err := bench.Savable(o.Flags["save"]); err != nil {
		return nil, err
	}
	var err error
	if text, given := o.Flags["patience"]; given {
		if l.patience, err = bench.Patience(text); err != nil {
			return nil, err
		}
	}
	l.tools, err = bench.FindTools(o.Flags["programs"], programs...)
	return l, err
}

// measure makes all measurements of the figures that are wanted. When it is interrupted,
// it keeps what is complete by then, and Missing says what is not.
func (l *lab) measure(o exp.Options) error {
	var chosen []figure
	for _, f := range figures() {
		if o.Wants(f.name) {
			chosen = append(chosen, f)
			l.m.Figures = append(l.m.Figures, f.name)
		}
	}
	err := l.measureAll(chosen, o.Progress)
	closed := l.close()
	if err != nil && l.ctx.Err() != nil && l.m.keep(chosen) {
		return nil
	}
	if err == nil {
		err = closed
	}
	return err
}

// measureAll runs each workload of some figures once for every seed.
func (l *lab) measureAll(chosen []figure, progress func(done, total int64)) error {
	if err := l.profile(); err != nil {
		return fmt.Errorf("the profile: %w", err)
	}
	var plan []workload
	for _, f := range chosen {
		plan = append(plan, f.plan()...)
	}
	done := 0
	for _, seed := range l.m.Seeds {
		for i := range plan {
			out, err := l.run(&plan[i], seed)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", plan[i].key, seed, err)
			}
			l.m.Outcomes[plan[i].key] = append(l.m.Outcomes[plan[i].key], out)
			if done++; progress != nil {
				progress(int64(done), int64(len(l.m.Seeds)*len(plan)))
			}
		}
	}
	return nil
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
	r := &exp.Result{Name: name, Notes: notes(m)}
	r.Page = &report.Page{Title: title, Lead: lead}
	add := func(list ...report.Section) { r.Page.Sections = append(r.Page.Sections, list...) }
	show := func(part string, s shown) {
		if len(s.rows) == 0 {
			return
		}
		r.Rows = append(r.Rows, s.rows...)
		add(report.Heading(part))
		add(s.pictures...)
		add(exp.TableWithNotes(s.rows, part))
	}
	add(report.Heading("How it was done, and what differs"))
	for _, n := range r.Notes {
		add(report.Text(n))
	}
	for _, f := range chosen {
		show(f.part, f.show(m))
	}
	show(exp.ClaimsPart, shown{rows: claimRows(m)})
	show(partErrors, shown{rows: errorRows(m, chosen)})
	show(partScale, shown{rows: scaledRows(m)})
	return r, nil
}
