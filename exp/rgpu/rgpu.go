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
type part = exp.Part[*lab, scenario]

// simulation says what is shown beside the parts.
var simulation = exp.Simulation[*lab, scenario]{
	Name: name, Title: title, Lead: lead, Missing: describeMissing,
	Notes: func(l *lab, _ []part) []string { return l.notes() },
	Extra: exp.Extra[*lab]{Of: figuresPart.Name, Says: "the pictures of the GPUs over time", Draw: drawGPUs},
}

var parts = []part{workloadsPart, figuresPart, sharesPart, selectPart, burstPart, intensityPart}

func partName(p *part) string { return p.Name }

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	l, err := newLab(o)
	if err != nil {
		return nil, err
	}
	return l.make(ctx)
}

// make runs what the selected parts need, and shows the results.
func (l *lab) make(ctx context.Context) (*exp.Result, error) {
	return simulation.Make(ctx, l, exp.Wanted(l.options, parts, partName))
}

// listed is the output of a part whose rows the page and the terminal list, too.
func listed(s exp.Shown) exp.Shown {
	s.Listed, s.Told = s.Rows, s.Rows
	return s
}

// told is the output of a part whose tables have all that the rows have, because there are too many rows to read.
func told(s exp.Shown) exp.Shown {
	s.Listed = s.Rows
	return s
}

func describeMissing(missing []scenario) string {
	return strings.Join(exp.Names(missing, func(s *scenario) string { return s.String() }), "; ")
}
