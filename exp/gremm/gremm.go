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
	title string
	// rows come from sweeps, which have their own tables. told are all other rows.
	rows, told []exp.Row
	claims     []claim
	tables     []*report.Table
	pictures   []report.Section
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

// make runs what the selected parts need, and shows the results.
func (l *lab) make(ctx context.Context) (*exp.Result, error) {
	chosen := l.chosen()
	missing, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	return l.result(chosen, describeMissing(missing)).Found(ctx)
}

// chosen lists the parts that the user asked for, and registers the scenarios that they need.
func (l *lab) chosen() []part {
	list := exp.Wanted(l.options, parts, partName)
	for _, p := range list {
		for _, s := range p.sweeps(l.of(p)) {
			l.Want(s.scenarios()...)
		}
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
	s := shown{title: p.title}
	for _, one := range p.sweeps(l) {
		l.showSweep(&s, one)
	}
	if p.tell != nil {
		p.tell(l, &s)
	}
	s.rows = append(s.rows, s.told...)
	for _, c := range s.claims {
		s.rows = append(s.rows, c.row)
	}
	return s
}

// result makes rows, notes and the page of what was found.
func (l *lab) result(chosen []part, partial string) *exp.Report {
	r := exp.NewReport(name, title, lead, l.notes(chosen), partial)
	var all []shown
	var claims []claim
	for _, p := range chosen {
		if s := l.show(p); len(s.rows) > 0 {
			all, claims = append(all, s), append(claims, s.claims...)
		}
	}
	if len(claims) > 0 {
		t := claimsTable(claims)
		r.Add(report.Heading("What the paper says, and whether it comes out"))
		r.AddTables(t)
	}
	for _, s := range all {
		r.Begin(s.title, s.rows)
		r.Add(s.pictures...)
		r.AddTables(s.tables...)
		if len(s.told) > 0 {
			r.Tables = append(r.Tables, exp.Table(s.told, s.title))
			r.Add(exp.TableWithNotes(s.told, s.title))
		}
	}
	return r
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
