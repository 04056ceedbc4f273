package ivm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// Experiment is the whole of it.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "elements on nine unequal GPUs of three nodes that share memory and balance their load, beside MPI, measured on software GPUs",
	Runs:    1,
	Figures: figureNames(),
	Flags: []exp.Flag{
		{Name: "scale", Summary: "how many of the paper's seconds take one here (default 70; its NBODY takes more than 700)"},
		{Name: "programs", Summary: "the folder of the programs to run (default: examples/ beside this program)"},
		{Name: "patience", Summary: "how long to wait, in all, for a machine that is busy with other things (default 2m)"},
		{Name: "save", Summary: "keep what was measured in this file"},
		{Name: "from", Summary: "measure nothing, and show what --save kept in this file"},
	},
	Run: run,
}

const (
	name  = "ivm"
	title = "IVM: elements that share memory and balance their load, on software GPUs"
)

// figure is a part of the paper's evaluation.
type figure struct {
	name, part string
	plan       func() []measurement
	show       func(m *measured) shown
}

// measurement is one program to be run.
type measurement struct {
	key string
	command
}

// shown is what becomes of the measurements of a figure.
type shown struct {
	rows     []exp.Row
	pictures []report.Section
}

func figures() []figure {
	return []figure{spawningFigure, monitoringFigure, smallFigure, trafficFigure}
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
	tools    bench.Tools
	mpiexec  string
	m        *measured
	patience time.Duration
	up       map[setting]*living // the clusters that are up
}

const (
	defaultScale    = 70
	defaultPatience = 2 * time.Minute
	maxScale        = 10_000
	// rate is how many operations a second a C2050 does at the default scale: so few that all nine GPUs together
	// need a small part of a processor, and each is what its users wait for.
	rate = 6e5
)

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
		if err := bench.Save(path, l.m); err != nil {
			return nil, err
		}
	}
	r := result(l.m)
	r.Partial = l.m.Missing
	return r, nil
}

// prepare reads the flags and finds the tools, before anything is measured.
func prepare(ctx context.Context, o exp.Options) (*lab, error) {
	l := &lab{ctx: ctx, m: newMeasured(o.Seeds(1)), patience: defaultPatience, up: map[setting]*living{}}
	if err := bench.Savable(o.Flags["save"]); err != nil {
		return nil, err
	}
	var err error
	if text, given := o.Flags["scale"]; given {
		if l.m.Scale, err = strconv.Atoi(text); err != nil || l.m.Scale < 1 || l.m.Scale > maxScale {
			return nil, exp.UsageError(fmt.Sprintf("--scale %s: give a number from 1 to %d", text, maxScale))
		}
	}
	if text, given := o.Flags["patience"]; given {
		if l.patience, err = bench.Patience(text); err != nil {
			return nil, err
		}
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], programs()...); err != nil {
		return nil, err
	}
	if l.mpiexec, err = exec.LookPath("mpiexec"); err != nil {
		return nil, errors.New("there is no mpiexec, which starts what IVM is compared with: install an MPI (Debian: apt-get install mpich libmpich-dev) and run make examples")
	}
	return l, nil
}

// measure makes all measurements of the figures that are wanted. When it is interrupted, it keeps what is
// complete by then, and Missing says what is not.
func (l *lab) measure(o exp.Options) error {
	var chosen []figure
	for _, f := range figures() {
		if o.Wants(f.name) {
			chosen = append(chosen, f)
			l.m.Figures = append(l.m.Figures, f.name)
		}
	}
	err := l.measureAll(planOf(chosen), o.Progress)
	for _, c := range l.up {
		c.stop()
	}
	if err != nil && l.ctx.Err() != nil && l.m.keep(chosen) {
		return nil
	}
	return err
}

// planOf lists what some figures need, once each.
func planOf(chosen []figure) []measurement {
	var plan []measurement
	for _, f := range chosen {
		for _, one := range f.plan() {
			if !slices.ContainsFunc(plan, func(m measurement) bool { return m.key == one.key }) {
				plan = append(plan, one)
			}
		}
	}
	return plan
}

// cluster gives a cluster, which stays up for others that want it. A small program runs on a new one before anything is
// measured: nodes that have just come up are busy with themselves.
func (l *lab) cluster(s setting) (*living, error) {
	if c := l.up[s]; c != nil {
		return c, nil
	}
	c, err := startCluster(l.ctx, l.tools, l.mpiexec, s, rate*float64(l.m.Scale)/defaultScale)
	if err != nil {
		return nil, err
	}
	l.up[s] = c
	first := command{program: "ivm-nw", args: []string{"--size", "90", "--way", "guided"}}
	if s.apart {
		first = command{mpi: smallest, program: "mpi-nw", args: []string{"--size", "90"}}
	}
	_, err = c.run(l.ctx, first)
	return c, err
}

func (l *lab) measureAll(plan []measurement, progress func(done, total int64)) error {
	done := 0
	for _, seed := range l.m.Seeds {
		for _, one := range plan {
			up, err := l.cluster(one.on)
			if err != nil {
				return err
			}
			c := one.command
			c.args = append(slices.Clone(c.args), "--seed", fmt.Sprint(seed))
			out, _, err := bench.Quietly(&l.patience, tooLate, func() (outcome, float64, error) {
				out, err := up.run(l.ctx, c)
				return out, out.Late, err
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
	r := &exp.Result{Name: name, Notes: notes(m), Page: &report.Page{Title: title, Lead: lead}}
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
	for _, f := range figures() {
		if slices.Contains(m.Figures, f.name) {
			show(f.part, f.show(m))
		}
	}
	show(partModel, shown{rows: modelRows(m)})
	show(partAims, shown{rows: aimRows(m)})
	show(exp.ClaimsPart, shown{rows: claimRows(m)})
	show(partScale, shown{rows: scaledRows(m)})
	return r
}
