package ivm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"muster/exp"
	"muster/exp/bench"
)

// Experiment is the whole experiment.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "elements on nine unequal GPUs of three nodes that share memory and balance their load, beside MPI, measured on software GPUs",
	Runs:    1,
	Figures: study().FigureNames(),
	Flags: append([]exp.Flag{
		{Name: "scale", Summary: "how many of the paper's seconds take one here (default 70; its NBODY takes more than 700)"},
	}, bench.Flags("", "2m")...),
	Run: study().Run,
}

const (
	name  = "ivm"
	title = "IVM: elements that share memory and balance their load, on software GPUs"
)

// study says what is measured, and how it is kept and shown.
func study() *bench.Study[measured, outcome, measurement] {
	return &bench.Study[measured, outcome, measurement]{
		Name: name, Title: title, Lead: lead, Version: savedVersion,
		Figures: func() []figure { return []figure{spawningFigure, monitoringFigure, smallFigure, trafficFigure} },
		Record:  func(m *measured) *bench.Record[outcome] { return &m.Record },
		Begin:   begin, Check: (*measured).check, Good: (*outcome).good, Fits: (*measurement).fits,
		Notes: notes, TooLate: tooLate, Claims: claimRows,
		Parts: []bench.Part[measured]{{Title: partModel, Rows: modelRows}, {Title: partAims, Rows: aimRows}, {Title: exp.ClaimsPart, Rows: claimRows}, {Title: partScale, Rows: scaledRows}},
	}
}

// figure is a part of the paper's evaluation.
type figure = bench.Figure[measured, measurement]

// measurement is one program run.
type measurement struct {
	key string
	command
}

// Key implements bench.Keyed.
func (m measurement) Key() string { return m.key }

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

// begin reads the flags and finds the tools, before anything is measured.
func begin(ctx context.Context, o exp.Options) (*measured, bench.Lab[outcome, measurement], error) {
	m := newMeasured(o.Seeds(1))
	l := &lab{ctx: ctx, m: m, up: map[setting]*living{}}
	m.Figures = o.ChosenFigures(study().FigureNames())
	var err error
	if err := o.Whole("scale", 1, maxScale, &m.Scale); err != nil {
		return nil, nil, err
	}
	if l.patience, err = bench.PatienceOf(o, defaultPatience); err != nil {
		return nil, nil, err
	}
	if l.tools, err = bench.FindTools(o.Flags["programs"], programs()...); err != nil {
		return nil, nil, err
	}
	if l.mpiexec, err = exec.LookPath("mpiexec"); err != nil {
		return nil, nil, errors.New("there is no mpiexec, which starts what IVM is compared with: install an MPI (Debian: apt-get install mpich libmpich-dev) and run make examples")
	}
	return m, l, nil
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

// Make runs a program, and again if the machine was busy.
func (l *lab) Make(one *measurement, seed uint64) (outcome, error) {
	up, err := l.cluster(one.on)
	if err != nil {
		return outcome{}, err
	}
	c := one.command
	c.args = append(slices.Clone(c.args), "--seed", fmt.Sprint(seed))
	out, _, err := bench.Quietly(&l.patience, tooLate, func() (outcome, float64, error) {
		out, err := up.run(l.ctx, c)
		return out, out.Late, err
	})
	return out, err
}

// Close stops all clusters.
func (l *lab) Close() error {
	for _, c := range l.up {
		c.stop()
	}
	return nil
}
