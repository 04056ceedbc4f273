package aucsched

import (
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/report"
)

// Policies as the paper ran them: five bids per job with Slurm's own placement among them, and a
// step every 5 s, within which the solver had to finish.
const (
	slurmPolicy   = "slurm"
	auctionPolicy = "auction:bids_per_job=5:slurm_bids=on"
)

// extra is a line of Table 8: other settings, always without Slurm's placement among the bids.
type extra struct {
	name    string // suffix of the version
	policy  string
	of      []string
	meaning string
}

var extras = []extra{
	{"", "auction:bids_per_job=5:slurm_bids=off", hard, "5 bids a job"},
	{"-largest", "auction:bids_per_job=15:slurm_bids=off", hard, "15 bids a job"},
	{"-largest-longsolve", "auction:bids_per_job=15:slurm_bids=off:interval=10s", hard, "15 bids a job, a step every 10 s"},
	{"-largest-shortsolve", "auction:bids_per_job=15:slurm_bids=off:interval=3s", hard, "15 bids a job, a step every 3 s"},
	{"-contigonlybids", "auction:bids_per_job=5:slurm_bids=off:classes=AB", hard[:2], "5 bids a job, for neighbouring nodes only"},
}

var tablesPart = part{Name: "tables", Wants: wantTables, Show: showTables}

// line is a line of one of the tables, with the scenario that we run for it.
type line struct {
	table, version, method string
	scenario
	note string
}

// lines are the lines that the user asked for, in the paper's order.
func (p *plan) lines() []line {
	var list []line
	both := func(table, version string, workload, machine, auction, note string) {
		list = append(list,
			line{table, version, aucschedMethod, scenario{machine, workload, "", auction}, note},
			line{table, version, slurmMethod, scenario{machine, workload, "", slurmPolicy}, ""})
	}
	for _, m := range machines {
		if !slices.Contains(p.tables, m.table) || !p.onMachine(m.name) {
			continue
		}
		for _, v := range versions {
			both(m.table, v.name, v.name, m.name, auctionPolicy, "")
		}
	}
	if slices.Contains(p.tables, "8") && p.onMachine("L") {
		for _, e := range extras {
			for _, v := range e.of {
				both("8", v+e.name, v, "L", e.policy, e.meaning)
			}
		}
	}
	return list
}

func wantTables(p *plan) []scenario {
	var list []scenario
	for _, ln := range p.lines() {
		list = append(list, ln.scenario)
	}
	return list
}

// tableTitles of the paper.
var tableTitles = map[string]string{
	"5": "Table 5: Machine-S", "6": "Table 6: Machine-M", "7": "Table 7: Machine-L", "8": "Table 8: Machine-L without Slurm's bids",
}

// shortMethod is the name of a method in metrics.
func shortMethod(method string) string {
	if method == aucschedMethod {
		return "auction"
	}
	return "slurm"
}

func showTables(p *plan) exp.Shown {
	s := exp.Shown{Title: "The paper's tables"}
	for _, table := range []string{"5", "6", "7", "8"} {
		t := &report.Table{
			Title:   tableTitles[table] + ": ours, and the paper's in brackets",
			Columns: []report.Column{{Name: "workload"}, {Name: "theor., h", Right: true, Help: "Run times times cores asked for, over all cores."}, {Name: "method"}},
			Note:    "Wait, fragmentation and spread with the standard deviation over the jobs of an instance, averaged over the instances.",
		}
		for _, c := range columns {
			t.Columns = append(t.Columns, report.Column{Name: c.title, Right: true}, report.Column{Name: "(paper)", Right: true})
		}
		bars := newUtilizationBars(tableTitles[table] + ": utilisation")
		for _, ln := range p.lines() {
			ours := p.Found[ln.scenario]
			if ln.table != table || ours == nil {
				continue
			}
			theirs, ok := inPaper(table, ln.version, ln.method)
			if !ok {
				panic(fmt.Sprintf("aucsched: the paper has no %s %s in table %s", ln.version, ln.method, table))
			}
			s.Rows = append(s.Rows, ln.rows(ours, &theirs.numbers)...)
			t.Rows = append(t.Rows, ln.cells(ours, &theirs.numbers))
			bars.add(ln.version, ln.method, &theirs.numbers, ours)
		}
		if len(t.Rows) == 0 {
			continue
		}
		s.Tables = append(s.Tables, t)
		s.Pictures = append(s.Pictures, bars.bars)
	}
	return s
}

// rows has one row for each column of the paper, and one for each standard deviation that it
// prints.
func (ln *line) rows(ours []numbers, theirs *numbers) []exp.Row {
	var rows []exp.Row
	prefix := "table" + ln.table + "_" + ln.version + "_"
	part := tableTitles[ln.table]
	add := func(metric, unit string, of func(*numbers) float64) {
		row := exp.Over(part, prefix+metric, unit, exp.Values(ours, of)).Against(of(theirs))
		row.Note = strings.TrimSpace(ln.note + slips[prefix+metric])
		rows = append(rows, row)
	}
	if ln.method == aucschedMethod {
		add("theoretical_h", "h", func(n *numbers) float64 { return n.theoretical })
	}
	method := shortMethod(ln.method) + "_"
	for _, c := range columns {
		add(method+c.metric, c.unit, c.of)
		if c.std != nil {
			add(method+stdName(c.metric), c.unit, c.std)
		}
	}
	return rows
}

// stdName puts _std before the unit: wait_h becomes wait_std_h.
func stdName(metric string) string {
	if base, ok := strings.CutSuffix(metric, "_h"); ok {
		return base + "_std_h"
	}
	return metric + "_std"
}

// slips are misprints in the paper.
var slips = map[string]string{
	"table8_V.2_auction_slowdown":        " the paper's 3.00 is surely a slip: all others like it are above 30",
	"table6_I.1_auction_utilization_pct": " the paper's does not belong to its run time: 4.02 h of 4.47 h are 90 %",
	"table6_I.1_slurm_utilization_pct":   " the paper's does not belong to its run time: 4.02 h of 4.53 h are 89 %",
}

// cells are a line of the table that people read.
func (ln *line) cells(ours []numbers, theirs *numbers) []string {
	mean := meanOf(ours)
	row := []string{ln.version, fmt.Sprintf("%.2f (%.2f)", mean.theoretical, theirs.theoretical), ln.method}
	for _, c := range columns {
		row = append(row, c.text(&mean), "("+c.text(theirs)+")")
	}
	return row
}

// text writes a number as the paper does.
func (c *column) text(n *numbers) string {
	text := fmt.Sprintf("%.*f", c.digits, c.of(n))
	if c.std != nil {
		text += fmt.Sprintf("±%.2f", c.std(n))
	}
	return text
}

// utilizationBars show the paper's utilisation and ours, for both methods, by version.
type utilizationBars struct{ bars *report.Bars }

func newUtilizationBars(title string) utilizationBars {
	return utilizationBars{&report.Bars{
		Title: title, YLabel: "%", Note: "Outlines: the paper. Lines: the least and the most of the instances.",
		Series: []report.BarSeries{
			{Name: "AUCSCHED, paper", Reference: true}, {Name: "auction"}, {Name: "SLURM/BF, paper", Reference: true}, {Name: "slurm"},
		},
	}}
}

// add puts the bars of a line into its version's group. A group whose other method is missing has
// gaps.
func (b *utilizationBars) add(version, method string, theirs *numbers, ours []numbers) {
	if n := len(b.bars.Groups); n == 0 || b.bars.Groups[n-1] != version {
		b.bars.Groups = append(b.bars.Groups, version)
		for i := range b.bars.Series {
			exp.AddBar(&b.bars.Series[i], nil)
		}
	}
	first, last := 0, len(b.bars.Groups)-1
	if method == slurmMethod {
		first = 2
	}
	row := exp.Over("", "", "", exp.Values(ours, utilization))
	b.bars.Series[first].Values[last] = theirs.utilization
	s := &b.bars.Series[first+1]
	s.Values[last], s.Lo[last], s.Hi[last] = row.Ours, row.Low, row.High
}
