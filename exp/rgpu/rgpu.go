// Package rgpu reproduces the paper on Slurm with rCUDA, in which GPUs are
// decoupled from nodes and shared by their memory: its workloads with local GPUs
// and with remote ones, on a cluster that has fewer and fewer GPUs. Then what
// its authors left for the future: GPUs chosen by how busy jobs keep them, by
// their speed and by their distance.
//
// The real applications are stood for by their run times and by how busy they
// keep a GPU; the latter the paper does not say, and it is varied. Nothing here
// decides or simulates: that is done by the packages policy and sim.
package rgpu

import (
	"context"
	"strings"

	"muster/exp"
	"muster/report"
)

// Experiment is the whole of it.
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
	// seedsTried are orders of the jobs; the paper had one for each workload.
	seedsTried = 5
)

// part is something that can be had alone.
type part struct {
	name string
	// wants lists what must be run for it.
	wants func() []scenario
	// show makes rows and pictures of what was found.
	show func(*lab) shown
}

// shown is what becomes of the runs of a part.
type shown struct {
	title    string
	rows     []exp.Row
	tables   []*report.Table // for people
	pictures []report.Section
	// told says that the tables have what the rows have, which are too many to read.
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

// make runs what the parts need that were asked for, and shows it.
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
			partial = "the pictures of the GPUs over time" // and nothing else
		}
	}
	return l.result(chosen, gantts, partial).Found(ctx)
}

// chosen are the parts that were asked for; what they need is wanted from now on.
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
