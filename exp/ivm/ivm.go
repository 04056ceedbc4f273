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
	"muster/internal/misuse"
	"muster/report"
)

// Experiment is the whole experiment.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "elements on nine unequal GPUs of three nodes that share memory and balance their load, beside MPI, measured on software GPUs",
	Runs:    1,
	Figures: figureNames(),
	Flags: append([]exp.Flag{
		{Name: "scale", Summary: "how many of the paper's seconds take one here (default 70; its NBODY takes more than 700)"},
	}, bench.Flags("", "2m")...),
	Run: frame().Run,
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

// measurement is one program run.
type measurement struct {
	key string
	command
}

// shown is the output of a figure.
type shown struct {
	rows     []exp.Row
	pictures []report.Section
}

func figures() []figure {
	return []figure{spawningFigure, monitoringFigure, smallFigure, trafficFigure}
}

func figureNames() []string { return exp.Names(figures(), figureName) }

func figureName(f *figure) string { return f.name }

// lab makes the measurements.
type lab struct {
	ctx      context.Context
	tools    bench.Tools
	mpiexec  string
	m        *measured
	patience time.Duration
	up       map[setting]*living // the clusters that are running
}

const (
	defaultScale    = 70
	defaultPatience = 2 * time.Minute
	maxScale        = 10_000
	// rate is how many operations per second a C2050 executes at the default scale. It is so low
	// that all nine GPUs together need a small part of one processor, so that programs wait for
	// GPUs and not for processors.
	rate = 6e5
)

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
	l := &lab{ctx: ctx, m: newMeasured(o.Seeds(1)), up: map[setting]*living{}}
	var err error
	if text, given := o.Flags["scale"]; given {
		if l.m.Scale, err = strconv.Atoi(text); err != nil || l.m.Scale < 1 || l.m.Scale > maxScale {
			return nil, misuse.Errorf("--scale %s: give a number from 1 to %d", text, maxScale)
		}
	}
	if l.patience, err = bench.PatienceOf(o, defaultPatience); err != nil {
		return nil, err
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], programs()...); err != nil {
		return nil, err
	}
	if l.mpiexec, err = exec.LookPath("mpiexec"); err != nil {
		return nil, errors.New("there is no mpiexec, which starts what IVM is compared with: install an MPI (Debian: apt-get install mpich libmpich-dev) and run make examples")
	}
	return l, nil
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
	err = l.measureAll(planOf(chosen), o.Progress)
	for _, c := range l.up {
		c.stop()
	}
	if err != nil && ctx.Err() != nil && l.m.Keep(needs(chosen)) {
		err = nil
	}
	return l.m, err
}

// needs lists the measurements of each figure.
func needs(chosen []figure) []bench.Need {
	return bench.Needs(chosen, figureName, func(f *figure) []string { return exp.Names(f.plan(), keyOf) })
}

func keyOf(m *measurement) string { return m.key }

// planOf lists the measurements that the figures need, each once.
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

// cluster returns a running cluster with a setting, and starts one if there is none. A new cluster
// first runs a small program that is not measured, because nodes are busy with their own start for
// a moment.
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
	return l.m.Measure(exp.Names(plan, keyOf), progress, func(i int, seed uint64) (outcome, error) {
		up, err := l.cluster(plan[i].on)
		if err != nil {
			return outcome{}, err
		}
		c := plan[i].command
		c.args = append(slices.Clone(c.args), "--seed", fmt.Sprint(seed))
		out, _, err := bench.Quietly(&l.patience, tooLate, func() (outcome, float64, error) {
			out, err := up.run(l.ctx, c)
			return out, out.Late, err
		})
		return out, err
	})
}

// result makes rows, notes and the page.
func result(m *measured) *exp.Result {
	r := exp.NewReport(name, title, lead, notes(m), "")
	for _, f := range figures() {
		if slices.Contains(m.Figures, f.name) {
			s := f.show(m)
			r.ShowOnPage(f.part, s.rows, s.pictures...)
		}
	}
	r.ShowOnPage(partModel, modelRows(m))
	r.ShowOnPage(partAims, aimRows(m))
	r.ShowOnPage(exp.ClaimsPart, claimRows(m))
	r.ShowOnPage(partScale, scaledRows(m))
	return &r.Result
}
