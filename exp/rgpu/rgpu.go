// Package rgpu reproduces the paper on Slurm with rCUDA, in which GPUs are decoupled from nodes and
// shared by their memory. It runs the paper's workloads with local and with remote GPUs, on a
// cluster with ever fewer GPUs. Then it tries what the authors left for future work: choosing GPUs
// by how busy jobs keep them, by their speed and by their distance.
//
// An application is represented by its run time and by how busy it keeps a GPU. The paper does not
// give the latter, so it is varied. Nothing here decides or simulates: the packages policy and sim
// do.
package rgpu

import (
	"context"
	"strings"

	"muster/exp"
	"muster/report"
)

// Experiment is the whole experiment, simulated and live.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "Slurm with remote GPUs shared by memory, on 8, 6 and 4 GPUs (Tables II to V, Figs. 2 and 3), and better selection",
	Runs:    seedsTried,
	Figures: exp.Names(parts, partName),
	Flags:   liveFlags,
	Run:     exp.Live(liveFlags, runLive, run),
}

const (
	name  = "rgpu"
	title = "Slurm with rCUDA: GPUs decoupled from nodes"
	// seedsTried is the number of random orders of the jobs; the paper had one for each workload.
	seedsTried = 5
)

// part is a part of the experiment that the user can ask for alone.
type part struct {
	name string
	// wants lists the scenarios that the part needs.
	wants func() []scenario
	// show makes the rows and pictures of the part.
	show func(*lab) shown
}

// shown is the output of a part.
type shown struct {
	title    string
	rows     []exp.Row
	tables   []*report.Table // for people
	pictures []report.Section
	// told says that the tables contain all that the rows do, because there are too many rows to
	// read.
	told bool
}

var parts = []part{workloadsPart, figuresPart, sharesPart, selectPart, burstPart, intensityPart}

func partName(p *part) string { return p.name }

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	l, err := newLab(o)
	if err != nil {
		return nil, err
	}
	return l.make(ctx)
}

// make runs what the selected parts need, and shows the results.
func (l *lab) make(ctx context.Context) (*exp.Result, error) {
	chosen := l.chosen()
	missing, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	partial := describeMissing(missing)
	var gantts []report.Section
	if partial == "" && l.options.Wants(figuresPart.name) {
		if gantts, err = l.gantts(ctx); err != nil {
			if ctx.Err() == nil {
				return nil, err
			}
			partial = "the pictures of the GPUs over time" // the only thing that is missing
		}
	}
	return l.result(chosen, gantts, partial).Found(ctx)
}

// chosen lists the parts that the user asked for, and registers the scenarios that they need.
func (l *lab) chosen() []part {
	list := exp.Wanted(l.options, parts, partName)
	for _, p := range list {
		l.Want(p.wants()...)
	}
	return list
}

// result makes rows, notes and the page of what was found.
func (l *lab) result(chosen []part, gantts []report.Section, partial string) *exp.Report {
	r := exp.NewReport(name, title, lead, l.notes(), partial)
	for _, p := range chosen {
		s := p.show(l)
		if !r.Begin(s.title, s.rows) {
			continue
		}
		r.AddTables(s.tables...)
		r.Add(s.pictures...)
		if p.name == figuresPart.name {
			r.Add(gantts...)
		}
		if !s.told {
			r.Tables = append(r.Tables, exp.Table(s.rows, s.title))
		}
		r.Add(exp.TableWithNotes(s.rows, s.title))
	}
	return r
}

func describeMissing(missing []scenario) string {
	return strings.Join(exp.Names(missing, func(s *scenario) string { return s.String() }), "; ")
}
