// Package gremm reproduces the paper on dynamic kernel/device mapping (GREMM), which asks at each
// launch which GPU of the cluster should run the kernel. It covers Figs. 2 to 9, both readings of
// what the paper leaves open, and what its authors left for future work, each with its gain.
//
// Nothing here decides or simulates: the packages mapping and sim/kernels do.
package gremm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"muster/exp"
	"muster/report"
)

// Experiment is the whole experiment, simulated and live.
var Experiment = exp.Experiment{
	Name:    name,
	Title:   title,
	Summary: "kernels mapped to devices anywhere in the cluster (Figs. 2 to 9), and what the authors left for the future; 18 minutes on two cores, --runs 1 --span 1000s for a quick look",
	Runs:    seedsTried,
	Figures: exp.Names(parts, partName),
	Flags:   append([]exp.Flag{{Name: "span", Summary: "how long is simulated, as 500s (default: the paper's 10000s; with --live 80s)"}}, liveFlags...),
	Run:     exp.Live(liveFlags, runLive, run),
}

const (
	name  = "gremm"
	title = "GREMM: kernels mapped to devices at run time"
	// seedsTried is the number of traces; the paper does not say how many it used.
	seedsTried = 5
	// paperSpan is the length of the paper's simulations. A run shorter than leastSpan would end
	// before every process has launched a kernel.
	paperSpan            = 10_000 * time.Second
	leastSpan, mostSpan  = 10 * time.Second, 1_000_000 * time.Second
	spanOfCountedKernels = 750 * time.Second
	// Our own parts are simulated for a quarter of the span, but for at least leastBrief.
	partOfTime = 4
	leastBrief = 500 * time.Second
)

// part is a part of the experiment that the user can ask for alone.
type part struct {
	name, title string
	// about, if set, is a note on the part.
	about string
	// ours marks a part that is no figure of the paper. It is simulated for a shorter span.
	ours bool
	// sweeps lists what is run and drawn.
	sweeps func(*lab) []sweep
	// tell, if set, adds rows and claims that no sweep shows.
	tell func(*lab, *shown)
}

// shown is the output of a part.
type shown struct {
	exp.Shown
	// told are rows that no sweep has in a table of its own.
	told   []exp.Row
	claims []claim
}

var parts = []part{
	mixPart, kernelsPart, balancePart, intensityPart, networkPart, weightsPart, scalabilityPart, stalePart,
	readingsPart, localityPart, groupsPart, protectPart, estimatesPart, choicesPart, barriersPart, scalePart,
}

func partName(p *part) string { return p.name }

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	l, err := newLab(o)
	if err != nil {
		return nil, err
	}
	return l.make(ctx)
}

// simulation says what is shown beside the parts.
var simulation = exp.Simulation[*lab, scenario]{Name: name, Title: title, Lead: lead, Missing: describeMissing, Notes: (*lab).notes, Summary: summarize}

type simulated = exp.Part[*lab, scenario]

// make runs what the selected parts need, and shows the results.
func (l *lab) make(ctx context.Context) (*exp.Result, error) {
	return simulation.Make(ctx, l, l.chosen())
}

// chosen lists the parts that the user asked for.
func (l *lab) chosen() []simulated {
	var list []simulated
	for _, p := range exp.Wanted(l.options, parts, partName) {
		list = append(list, simulated{Name: p.name, Wants: p.wants, Show: func(l *lab) exp.Shown { return l.show(p).Shown }})
	}
	return list
}

// wants lists the scenarios that the part needs.
func (p part) wants(l *lab) []scenario {
	var list []scenario
	for _, s := range p.sweeps(l.of(p)) {
		list = append(list, s.scenarios()...)
	}
	return list
}

// of is the lab for a part's runs: l itself, or a copy with the shorter span of our own parts.
func (l *lab) of(p part) *lab {
	if !p.ours {
		return l
	}
	brief := *l
	brief.usual = max(l.span/partOfTime, min(l.span, leastBrief))
	return &brief
}

// show makes rows, tables and pictures of a part.
func (l *lab) show(p part) shown {
	l = l.of(p)
	s := shown{Shown: exp.Shown{Title: p.title, PicturesFirst: true}}
	for _, one := range p.sweeps(l) {
		l.showSweep(&s, one)
	}
	if p.tell != nil {
		p.tell(l, &s)
	}
	s.Rows, s.Listed, s.Told = append(s.Rows, s.told...), s.told, s.told
	for _, c := range s.claims {
		s.Rows = append(s.Rows, c.row)
	}
	return s
}

// summarize adds the statements of all parts, with their verdicts.
func summarize(r *exp.Report, l *lab, _ []simulated) {
	var claims []claim
	for _, p := range exp.Wanted(l.options, parts, partName) {
		claims = append(claims, l.show(p).claims...)
	}
	if len(claims) > 0 {
		r.Add(report.Heading("What the paper says, and whether it comes out"))
		r.AddTables(claimsTable(claims))
	}
}

// describeMissing names the scenarios that were not run; of a long list, the first and the number
// of the others.
func describeMissing(missing []scenario) string {
	const enough = 8
	var list []string
	for i, s := range missing {
		if i == enough {
			list = append(list, fmt.Sprintf("and %d more", len(missing)-enough))
			break
		}
		list = append(list, s.String())
	}
	return strings.Join(list, "; ")
}
