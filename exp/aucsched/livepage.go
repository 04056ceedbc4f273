package aucsched

import (
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/live"
	"muster/report"
)

const (
	liveLead = "The paper's jobs on a real Slurm with emulated nodes: Slurm's own backfill against the auction and mosaic, which drive it from outside; and the simulator's prediction of each run."

	livePart   = "On a real Slurm"
	errorsPart = "The simulator's prediction: by how much it is off"
	loadPart   = "What scheduling cost"
)

// result makes rows, tables, notes and the page.
func (l *liveLab) result(missing []string) *exp.Result {
	r := exp.NewReport(name, title+", on a real Slurm", liveLead, l.notes(), strings.Join(missing, "; "))
	rows, table, bars := l.columnRows()
	r.Show(livePart, rows, table)
	if len(rows) > 0 {
		r.Add(bars)
	}
	r.Show(errorsPart, l.errorRows(), l.errorTable())
	r.Show(exp.ClaimsPart, l.claimRows())
	r.Show(loadPart, l.loadRows())
	return &r.Result
}

// comparable says whether a column of such a shortened workload can be compared with the paper's.
func (l *liveLab) comparable(c *column) bool {
	grows := c.metric == "runtime_h" || c.metric == "wait_h" || c.metric == "slowdown"
	return l.nodes == liveNodes && (!grows || l.hours == 4)
}

// each calls f for every trial that was measured, in order.
func (l *liveLab) each(f func(t trial, m method, found []measured)) {
	for _, v := range l.versions {
		for _, m := range l.methods {
			if found := l.found[trial{v, m.name}]; found != nil {
				f(trial{v, m.name}, m, found)
			}
		}
	}
}

// pick lists the measured numbers of runs, or one of their predictions.
func pick(list []measured, of func(*measured) *numbers) []numbers {
	var out []numbers
	for i := range list {
		out = append(out, *of(&list[i]))
	}
	return out
}

func reals(list []measured) []numbers {
	return pick(list, func(m *measured) *numbers { return &m.real })
}
func plains(list []measured) []numbers {
	return pick(list, func(m *measured) *numbers { return &m.plain })
}
func chargeds(list []measured) []numbers {
	return pick(list, func(m *measured) *numbers { return &m.charged })
}

// columnRows are the measured columns.
func (l *liveLab) columnRows() ([]exp.Row, *report.Table, *report.Bars) {
	var rows []exp.Row
	t := &report.Table{
		Title:   fmt.Sprintf("%d nodes, workloads of %g h: measured, {the simulator's prediction}, and (the paper's)", l.nodes, l.hours),
		Columns: []report.Column{{Name: "workload"}, {Name: "jobs", Right: true}, {Name: "scheduled by"}},
		Note:    "The prediction has what starting a job takes, measured on an idle cluster. Wait, fragmentation and spread with the standard deviation over jobs.",
	}
	for _, c := range columns {
		t.Columns = append(t.Columns, report.Column{Name: c.title, Right: true})
	}
	bars := &report.Bars{Title: "Utilisation", YLabel: "%", Note: "Outlines: the paper. Predicted: the simulator, with what a start takes.",
		Series: []report.BarSeries{{Name: "measured"}, {Name: "predicted"}, {Name: "paper", Reference: true}}}
	l.each(func(of trial, m method, found []measured) {
		v := of.version
		theirs, inTable := inPaper("5", v, m.paper)
		mean, charged := meanOf(reals(found)), meanOf(chargeds(found))
		cells := []string{v, fmt.Sprint(len(found[0].out.Jobs)), m.title}
		for _, c := range columns {
			row := exp.Over(livePart, fmt.Sprintf("live_%s_%s_%s", v, m.name, c.metric), c.unit, exp.Values(reals(found), c.of)).
				Noting("the simulator: %s", c.text(&charged))
			cell := fmt.Sprintf("%s {%s}", c.text(&mean), c.text(&charged))
			if inTable && l.comparable(&c) {
				row = row.Against(c.of(&theirs.numbers))
				cell += " (" + c.text(&theirs.numbers) + ")"
			}
			rows, cells = append(rows, row), append(cells, cell)
		}
		t.Rows = append(t.Rows, cells)
		bars.Groups = append(bars.Groups, v+" "+m.name)
		paper := exp.Nothing
		if inTable && l.nodes == liveNodes {
			paper = theirs.utilization
		}
		for i, value := range []float64{mean.utilization, charged.utilization, paper} {
			bars.Series[i].Values = append(bars.Series[i].Values, value)
		}
	})
	return rows, t, bars
}

// errorsOf are the errors of a prediction in per cent, one per seed.
func errorsOf(c *column, real, predicted []numbers) []float64 {
	return live.Errors(exp.Values(real, c.of), exp.Values(predicted, c.of))
}

// errorRows are the simulator's errors, without and with the cost of a start.
func (l *liveLab) errorRows() []exp.Row {
	var rows []exp.Row
	l.each(func(t trial, m method, found []measured) {
		for _, c := range columns {
			if with := errorsOf(&c, reals(found), chargeds(found)); len(with) > 0 {
				key := fmt.Sprintf("%s_%s_%s", t.version, m.name, c.metric)
				rows = append(rows,
					exp.Over(errorsPart, "error_"+key, "%", with).Noting("with what a start takes"),
					exp.Over(errorsPart, "error_without_start_"+key, "%", errorsOf(&c, reals(found), plains(found))).Noting("as if starting took no time"))
			}
		}
	})
	return rows
}

// errorTable shows the errors to people.
func (l *liveLab) errorTable() *report.Table {
	t := &report.Table{Title: errorsPart + ", in %", Columns: []report.Column{{Name: "workload"}, {Name: "scheduled by"}},
		Note: "Predicted over measured, less 1: with what a start takes, and in brackets as if starting took no time."}
	for _, c := range columns {
		name, _, _ := strings.Cut(c.title, ",")
		t.Columns = append(t.Columns, report.Column{Name: name, Right: true})
	}
	l.each(func(of trial, m method, found []measured) {
		cells := []string{of.version, m.title}
		for _, c := range columns {
			cells = append(cells, fmt.Sprintf("%+.1f (%+.1f)", exp.Mean(errorsOf(&c, reals(found), chargeds(found))), exp.Mean(errorsOf(&c, reals(found), plains(found)))))
		}
		t.Rows = append(t.Rows, cells)
	})
	return t
}

// costs of scheduling, and how exactly it was done.
var costs = []live.Cost{
	{Metric: "slurmctld_ms_job", Unit: "ms", Of: live.ControllerPerJob, Note: "processor time of slurmctld a job, from the first start to the last end"},
	{Metric: "slurmrestd_ms_job", Unit: "ms", Of: live.RESTPerJob, Note: "of slurmrestd"},
	{Metric: "driver_ms_job", Unit: "ms", Of: live.DriverPerJob, Note: "of the driver and its policy"},
	{Metric: "latency_s", Unit: "s", Of: live.Latency, Note: "median, from the answer to a placement to the job's first command"},
	{Metric: "wrong_nodes", Unit: "jobs", Of: live.Wrong, Note: "started on other nodes than they were placed on"},
	{Metric: "recalled", Unit: "jobs", Of: live.Recalled, Note: "Slurm did not start them where they were placed, and they were placed again"},
}

func (l *liveLab) loadRows() []exp.Row {
	var rows []exp.Row
	l.each(func(t trial, m method, found []measured) {
		rows = append(rows, live.CostRows(loadPart, t.version+"_"+m.name, m.policy != "", outcomes(found), costs)...)
	})
	return rows
}

// liveStatement is a statement of the paper's section 6.2, or one of ours, about one column of two
// methods.
type liveStatement struct {
	id, says string
	metric   string
	// more is the method that has the larger value, according to the statement.
	more, less string
	// of selects the versions that it is about; nil selects all.
	of func(version) bool
	// orLevel accepts a value of mosaic that exceeds the smaller of the others by at most half a per
	// cent.
	orLevel bool
}

var liveStatements = []liveStatement{
	{"utilization", "the auction's utilisation is above Slurm's", "utilization_pct", "auction", "slurm", nil, false},
	{"slowdown", "its slowdown is above Slurm's (in all 45 rows)", "slowdown", "auction", "slurm", nil, false},
	{"wait", "its wait is above Slurm's (in 41 of 45 rows)", "wait_h", "auction", "slurm", nil, false},
	{"spread", "its spread is below Slurm's where not all jobs are contiguous (in 24 of 30 rows)", "spread", "slurm", "auction", loose, false},
	{"fragmentation", "its fragmentation is above Slurm's where not all jobs are contiguous", "fragmentation", "auction", "slurm", loose, false},
	{"mosaic_utilization", "ours: mosaic's utilisation is above both", "utilization_pct", "mosaic", "", nil, false},
	{"mosaic_wait", "ours: its wait is below both", "wait_h", "", "mosaic", nil, false},
	{"mosaic_slowdown", "ours: its slowdown is below both", "slowdown", "", "mosaic", nil, false},
	{"mosaic_fragmentation", "ours: its fragmentation is below both, or level", "fragmentation", "", "mosaic", nil, true},
	{"mosaic_spread", "ours: its spread is below both, or level", "spread", "", "mosaic", nil, true},
}

func loose(v version) bool { return v.contiguous < 100 }

// claimRows are the verdicts, one for each statement and version.
func (l *liveLab) claimRows() []exp.Row {
	var rows []exp.Row
	for _, s := range liveStatements {
		for _, v := range l.versions {
			if s.of != nil && !s.of(versionOf(v)) {
				continue
			}
			if verdict, because := l.judge(&s, v); verdict != exp.Unknown {
				rows = append(rows, verdict.Told(s.id+"_"+v, v, s.says, because))
			}
		}
	}
	return rows
}

// judge gives the verdict for the runs of a version, and the numbers behind it.
func (l *liveLab) judge(s *liveStatement, version string) (exp.Verdict, string) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.metric == s.metric })
	of := func(method string) []float64 {
		return exp.Values(reals(l.found[trial{version, method}]), columns[i].of)
	}
	if s.more != "" && s.less != "" {
		return judgePair(s, version, &columns[i], of(s.more), of(s.less))
	}
	auction, slurm, mosaic := of("auction"), of("slurm"), of("mosaic")
	if len(auction) == 0 || len(slurm) == 0 || len(mosaic) == 0 {
		return exp.Unknown, ""
	}
	a, b, m := exp.Mean(auction), exp.Mean(slurm), exp.Mean(mosaic)
	holds := m > max(a, b)
	if s.less == "mosaic" {
		holds = m < min(a, b) || s.orLevel && m <= 1.005*min(a, b)
	}
	return exp.Holds(holds), fmt.Sprintf("slurm %.4g, auction %.4g, mosaic %.4g", b, a, m)
}

// judgePair compares two methods seed by seed. If the paper has both, the ratio of its own numbers
// decides whether the amount agrees, too.
func judgePair(s *liveStatement, version string, c *column, more, less []float64) (exp.Verdict, string) {
	n := min(len(more), len(less))
	if n == 0 {
		return exp.Unknown, ""
	}
	ratios := make([]float64, n)
	for k := range ratios {
		ratios[k] = more[k] / less[k]
	}
	because := fmt.Sprintf("%s %.4g, %s %.4g", s.more, exp.Mean(more), s.less, exp.Mean(less))
	a, foundA := inPaper("5", version, aucschedMethod)
	b, foundB := inPaper("5", version, slurmMethod)
	if !foundA || !foundB {
		return exp.AboveOne(ratios), because
	}
	paper := c.of(&a.numbers) / c.of(&b.numbers)
	if s.more == "slurm" {
		paper = 1 / paper
	}
	because += fmt.Sprintf("; the paper's ratio is %.2f, ours %.2f", paper, exp.Mean(ratios))
	if paper <= 1 { // the statement is not true of this row of the paper itself
		return exp.AboveOne(ratios), because + "; this row of the paper does not say so itself"
	}
	return exp.Amount(exp.Mean(ratios), paper), because
}
