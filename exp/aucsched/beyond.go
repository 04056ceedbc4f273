package aucsched

import (
	"fmt"

	"muster/exp"
	"muster/report"
)

// contender is a way to schedule that is compared with others.
type contender struct {
	name   string // in metrics and pictures
	policy string
	jobs   string // settings of the generator
}

var (
	bySlurm   = contender{"slurm", slurmPolicy, ""}
	byAuction = contender{"auction", auctionPolicy, ""}
	byMosaic  = contender{"mosaic", "mosaic", ""}
)

func (c contender) on(machine, version string) scenario {
	return scenario{machine, version, c.jobs, c.policy}
}

// onHard lists the scenarios of every contender on workload V, on the machines that the user asked
// for.
func (p *plan) onHard(list ...contender) []scenario {
	var all []scenario
	for _, m := range p.machines {
		for _, v := range hard {
			for _, c := range list {
				all = append(all, c.on(m.name, v))
			}
		}
	}
	return all
}

// sideBySide compares contenders on workload V in a table with a row for each number.
func (p *plan) sideBySide(partTitle, prefix string, list ...contender) (rows []exp.Row, t *report.Table) {
	t = &report.Table{
		Title:   partTitle,
		Columns: []report.Column{{Name: "machine"}, {Name: "workload"}, {Name: "method"}},
		Note:    "Means over the instances, which are the same for all methods.",
	}
	for _, c := range columns {
		t.Columns = append(t.Columns, report.Column{Name: c.title, Right: true})
	}
	for _, m := range p.machines {
		for _, v := range hard {
			for _, who := range list {
				found := p.Found[who.on(m.name, v)]
				if found == nil {
					continue
				}
				mean := meanOf(found)
				cells := []string{m.name, v, who.name}
				for _, c := range columns {
					cells = append(cells, c.text(&mean))
					rows = append(rows, exp.Over(partTitle, metricName(prefix, m.name, v, who.name, c.metric), c.unit, exp.Values(found, c.of)))
				}
				t.Rows = append(t.Rows, cells)
			}
		}
	}
	return rows, t
}

// Beyond both: our own policy, in the same columns.

var beyondPart = part{
	Name:  "beyond",
	Wants: func(p *plan) []scenario { return p.onHard(bySlurm, byAuction, byMosaic) },
	Show:  showBeyond,
}

const beyondTitle = "Beyond both: the policy mosaic on workload V"

func showBeyond(p *plan) exp.Shown {
	s := exp.Shown{Title: beyondTitle}
	rows, table := p.sideBySide(beyondTitle, "beyond", bySlurm, byAuction, byMosaic)
	s.Rows = rows
	s.Tables = []*report.Table{table}
	wins := &report.Table{
		Title:   "In how many of the six columns mosaic is no worse than the other",
		Columns: []report.Column{{Name: "machine"}, {Name: "workload"}, {Name: "than the auction", Right: true}, {Name: "than slurm", Right: true}, {Name: "than both", Right: true}, {Name: "worse in"}},
		Note:    "Of the means over the instances.",
	}
	for _, m := range p.machines {
		for _, v := range hard {
			ours, auction, slurm := p.Found[byMosaic.on(m.name, v)], p.Found[byAuction.on(m.name, v)], p.Found[bySlurm.on(m.name, v)]
			if ours == nil || auction == nil || slurm == nil {
				continue
			}
			one, two := columnsWon(ours, auction), columnsWon(ours, slurm)
			both, worse := 0, ""
			for i, c := range columns {
				if one[i] && two[i] {
					both++
				} else {
					worse += ", " + c.title
				}
			}
			if worse == "" {
				worse = ", none"
			}
			wins.Rows = append(wins.Rows, []string{m.name, v, fmt.Sprint(count(one)), fmt.Sprint(count(two)), fmt.Sprint(both), worse[2:]})
			s.Rows = append(s.Rows, exp.Single(beyondTitle, fmt.Sprintf("beyond_%s_%s_columns_no_worse_than_both", m.name, v), "of 6", float64(both)))
		}
	}
	if len(wins.Rows) > 0 {
		s.Tables = append(s.Tables, wins)
	}
	return s
}

// columnsWon says for each column whether the mean of a is no worse than that of b.
func columnsWon(a, b []numbers) []bool {
	x, y := meanOf(a), meanOf(b)
	won := make([]bool, len(columns))
	for i, c := range columns {
		if c.less {
			won[i] = c.of(&x) <= c.of(&y)
		} else {
			won[i] = c.of(&x) >= c.of(&y)
		}
	}
	return won
}

func count(list []bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}

// The bound: no schedule does better.

var boundPart = part{
	Name: "bound",
	Wants: func(p *plan) []scenario {
		var list []scenario
		for _, m := range p.machines {
			for _, v := range versions {
				list = append(list, scenario{m.name, v.name, "", boundPolicy})
			}
		}
		return append(list, p.onHard(withRemote, bySlurm, byAuction, byMosaic)...)
	},
	Show: showBound,
}

// withRemote is the bound if GPUs may be on any node.
var withRemote = contender{"at most with remote GPUs", boundPolicy, remoteJobs}

const boundTitle = "The best possible: a proven bound on the run time of each instance"

func showBound(p *plan) exp.Shown {
	s := exp.Shown{Title: boundTitle}
	t := &report.Table{
		Title: boundTitle,
		Columns: []report.Column{
			{Name: "machine"}, {Name: "workload"}, {Name: "theor., h", Right: true},
			{Name: "runtime at least, h", Right: true}, {Name: "util at most, %", Right: true, Help: "Nobody can use more of the cores: the theoretical run time over the proven bound."},
			{Name: "with remote GPUs, %", Right: true, Help: "The same where GPUs may be anywhere."},
			{Name: "slurm, %", Right: true}, {Name: "auction, %", Right: true}, {Name: "mosaic, %", Right: true},
		},
		Note: "A dash where the method was not run on this workload.",
	}
	for _, m := range p.machines {
		bars := &report.Bars{
			Title: "Machine-" + m.name + ": utilisation, and what nobody can exceed", YLabel: "%",
			Note:   "Outlines: the proven bound. Lines: the least and the most of the instances.",
			Series: []report.BarSeries{{Name: "at most", Reference: true}, {Name: "slurm"}, {Name: "auction"}, {Name: "mosaic"}},
		}
		for _, v := range versions {
			found := p.Found[scenario{m.name, v.name, "", boundPolicy}]
			if found == nil {
				continue
			}
			best := meanOf(found)
			cells := []string{m.name, v.name, fmt.Sprintf("%.2f", best.theoretical), fmt.Sprintf("%.2f", best.runtime), fmt.Sprintf("%.1f", best.utilization)}
			key := "bound_" + m.name + "_" + v.name
			s.Rows = append(s.Rows,
				exp.Over(boundTitle, key+"_runtime_h", "h", exp.Values(found, func(n *numbers) float64 { return n.runtime })).Noting("no schedule is shorter"),
				exp.Over(boundTitle, key+"_utilization_pct", "%", exp.Values(found, utilization)).Noting("no schedule uses more"))
			if remote := p.Found[withRemote.on(m.name, v.name)]; remote != nil {
				mean := meanOf(remote)
				cells = append(cells, fmt.Sprintf("%.1f", mean.utilization))
				s.Rows = append(s.Rows, exp.Over(boundTitle, key+"_remote_utilization_pct", "%", exp.Values(remote, utilization)).
					Noting("no schedule uses more, even where GPUs may be anywhere"))
			} else {
				cells = append(cells, "-")
			}
			bars.Groups = append(bars.Groups, v.name)
			bars.Series[0].Values = append(bars.Series[0].Values, best.utilization)
			for i, who := range []contender{bySlurm, byAuction, byMosaic} {
				runs := p.Found[who.on(m.name, v.name)]
				use := exp.Values(runs, utilization)
				exp.AddBar(&bars.Series[i+1], use)
				if runs == nil {
					cells = append(cells, "-")
					continue
				}
				cells = append(cells, fmt.Sprintf("%.1f", exp.Mean(use)))
				s.Rows = append(s.Rows, exp.Over(boundTitle, key+"_"+who.name+"_of_best_pct", "%", reached(found, runs)).
					Noting("the shortest run time possible over that of %s: what is missing to 100 is all that anybody could gain", who.name))
			}
			t.Rows = append(t.Rows, cells)
		}
		if len(bars.Groups) > 0 {
			s.Pictures = append(s.Pictures, bars)
		}
	}
	s.Tables = []*report.Table{t}
	return s
}

// reached is how close the runs come to the bound in per cent, instance by instance.
func reached(bound, runs []numbers) []float64 {
	out := make([]float64, len(runs))
	for i := range runs {
		out[i] = 100 * bound[i].runtime / runs[i].runtime
	}
	return out
}
