package simpage

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"muster/report"
)

// Tables show the study in numbers: a line for each run, then the effect on jobs and the jobs that
// lost, then, if there are several seeds, the spread over them.
func (s *Study) Tables() []*report.Table {
	list := []*report.Table{s.runTable(), s.jobTable()}
	if len(s.Seeds) > 1 {
		list = append(list, s.seedTable())
	}
	return list
}

// columns collects a table's columns and the cells under them.
type columns struct {
	heads []report.Column
	cells []func(*Run) string
}

func (c *columns) add(right bool, name, help string, cell func(*Run) string) {
	c.heads = append(c.heads, report.Column{Name: name, Help: help, Right: right})
	c.cells = append(c.cells, cell)
}

// count adds a column of counts if they are not 0 in all runs.
func (c *columns) count(runs []Run, name, help string, of func(*Run) int) {
	for i := range runs {
		if of(&runs[i]) > 0 {
			c.add(true, name, help, func(r *Run) string { return report.Number(float64(of(r))) })
			return
		}
	}
}

func (s *Study) runTable() *report.Table {
	var c columns
	c.add(false, "Policy", "", func(r *Run) string { return r.Policy })
	if len(s.Nodes) > 1 {
		c.add(true, "Nodes", "Nodes of the cluster.", func(r *Run) string { return strconv.Itoa(r.Nodes) })
	}
	if len(s.Seeds) > 1 {
		c.add(true, "Seed", "", func(r *Run) string { return strconv.FormatUint(r.Seed, 10) })
	}
	c.add(true, "Jobs", "All jobs of the workload.", func(r *Run) string { return report.Number(float64(r.Summary.Jobs)) })
	c.count(s.Runs, "Killed", "Jobs that reached their wall time.", func(r *Run) int { return r.Summary.Killed })
	c.count(s.Runs, "Lost", "Jobs that ended because a node failed.", func(r *Run) int { return r.Summary.Lost })
	c.count(s.Runs, "Requeued", "How often a job was put back into the queue because a node failed.", func(r *Run) int { return r.Summary.Requeues })
	if slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Summary.NodeHoursLost > 0 }) {
		c.add(true, "Nodes out", "How long nodes failed or drained, all together, until the last job was over.",
			func(r *Run) string { return report.Duration(r.Summary.NodeHoursLost * 3600) })
	}
	c.count(s.Runs, "Impossible", "Jobs that could not start even on the idle cluster. They count nowhere else.", func(r *Run) int { return r.Summary.Impossible })
	c.count(s.Runs, "Borrowing", "Jobs that used a GPU of another node.", func(r *Run) int { return r.Summary.Borrowing })
	c.count(s.Runs, "Rebinds", "How often a share was bound to another device while its job ran.", func(r *Run) int { return r.Result.Rebinds })
	c.add(true, "Makespan", "From the first submission to the last end.", func(r *Run) string { return report.Duration(r.Summary.Makespan) })
	c.add(true, "Cores", "Cores held, of all, over the makespan.", func(r *Run) string { return report.Percent(r.Summary.CoreUtilization) })
	if s.Cluster.TotalGPUs() > 0 {
		c.add(true, "GPUs", "GPUs held, of all, over the makespan.", func(r *Run) string { return report.Percent(r.Summary.GPUUtilization) })
	}
	for _, q := range s.quantities() {
		c.add(true, strings.ToUpper(q.name[:1])+q.name[1:], q.help+" Mean over the jobs that ran.", func(r *Run) string { return q.write(q.stats(&r.Summary).Mean) })
	}
	title := "Runs (wait, run, life and slowdown: means over jobs)"
	if s.fragmented() {
		title = "Runs (wait, run, life, slowdown, blocks and spread: means over jobs)"
	}
	t := &report.Table{Title: title, Columns: c.heads}
	for i := range s.Runs {
		row := make([]string, len(c.cells))
		for k, cell := range c.cells {
			row[k] = cell(&s.Runs[i])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (q *quantity) write(value float64) string {
	if q.isTime {
		return report.Duration(value)
	}
	return report.Number(rounded(value))
}

// rounded rounds a ratio to two decimals.
func rounded(x float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 2, 64), 64)
	if err != nil {
		return x
	}
	return r
}

// signed writes a change in per cent with its sign.
func signed(percent float64) string {
	if percent != 0 && math.Abs(percent) < 0.05 {
		return fmt.Sprintf("%+.1f %%", percent) // says only that it changed
	}
	text := report.Percent(percent / 100)
	if percent > 0 {
		return "+" + text
	}
	return text
}

// jobTable has a row for each quantity, size and policy: its distribution over jobs, and for which
// jobs it got worse.
func (s *Study) jobTable() *report.Table {
	t := &report.Table{Title: "Jobs", Columns: []report.Column{
		{Name: "", Help: "What is measured of every job that ran."}, {Name: "Policy"},
	}}
	if len(s.Nodes) > 1 {
		t.Columns = append(t.Columns, report.Column{Name: "Nodes", Right: true})
	}
	t.Columns = append(t.Columns,
		report.Column{Name: "Mean", Right: true},
		report.Column{Name: "Median", Right: true},
		report.Column{Name: "P95", Right: true, Help: "What 95 of 100 jobs do not exceed."},
		report.Column{Name: "Worst", Right: true})
	compared := len(s.Policies) > 1
	if compared {
		t.Title = "Jobs, and who lost against " + s.Policies[0]
		t.Columns = append(t.Columns,
			report.Column{Name: "Change", Right: true, Help: "Of the mean, against " + s.Policies[0] + ", over the jobs that ran in both."},
			report.Column{Name: "Lost", Right: true, Help: "Jobs for which it got worse, of those that ran in both."},
			report.Column{Name: "by", Right: true, Help: "How much worse, on average over those jobs."},
			report.Column{Name: "at most", Right: true, Help: "How much worse for the job that lost most."})
	}
	if len(s.Seeds) > 1 {
		t.Note = fmt.Sprintf("Means over %d seeds; worst and at most: of all seeds.", len(s.Seeds))
	}
	for _, q := range s.quantities() {
		for i, p := range s.points() {
			row := []string{"", p.policy}
			if i == 0 {
				row[0] = q.name
			}
			if len(s.Nodes) > 1 {
				row = append(row, strconv.Itoa(p.nodes))
			}
			row = append(row,
				q.write(p.over(func(r *Run) float64 { return q.stats(&r.Summary).Mean }).mean),
				q.write(p.over(func(r *Run) float64 { return q.stats(&r.Summary).Median }).mean),
				q.write(p.over(func(r *Run) float64 { return q.stats(&r.Summary).P95 }).mean),
				q.write(p.over(func(r *Run) float64 { return q.stats(&r.Summary).Max }).hi))
			if compared {
				row = append(row, p.lost(&q)...)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// lost says how a quantity changed, and for which jobs it got worse.
func (p *point) lost(q *quantity) []string {
	if p.runs[0].Against == nil || q.change == nil {
		return []string{"", "", "", ""}
	}
	losers := p.over(func(r *Run) float64 { return q.losers(r.Against).Percent })
	cells := []string{signed(p.over(func(r *Run) float64 { return q.change(r.Against) }).mean), report.Percent(losers.mean / 100), "", ""}
	if losers.hi > 0 {
		cells[2] = report.Duration(p.over(func(r *Run) float64 { return q.losers(r.Against).Mean }).mean)
		cells[3] = report.Duration(p.over(func(r *Run) float64 { return q.losers(r.Against).Max }).hi)
	}
	return cells
}

// measure is a number of a run, for the spread over seeds and the charts over sizes.
type measure struct {
	name  string
	value func(*Run) float64
	write func(float64) string
	// compared says that the measure needs another policy to compare with.
	compared, ofGPUs, ofPlacement bool
}

func fraction(x float64) string { return report.Percent(x) }

var measures = func() []measure {
	list := []measure{
		{name: "makespan", value: func(r *Run) float64 { return r.Summary.Makespan }, write: report.Duration},
		{name: "cores in use", value: func(r *Run) float64 { return r.Summary.CoreUtilization }, write: fraction},
		{name: "GPUs in use", value: func(r *Run) float64 { return r.Summary.GPUUtilization }, write: fraction, ofGPUs: true},
	}
	for _, q := range quantities {
		list = append(list, measure{name: "mean " + q.name, value: func(r *Run) float64 { return q.stats(&r.Summary).Mean }, write: q.write})
	}
	for _, q := range placement {
		list = append(list, measure{name: "mean " + q.name, value: func(r *Run) float64 { return q.stats(&r.Summary).Mean }, write: q.write, ofPlacement: true})
	}
	for _, q := range quantities {
		if q.change != nil {
			list = append(list, measure{name: q.name + " against the first", value: func(r *Run) float64 { return q.change(r.Against) }, write: signed, compared: true})
		}
	}
	return list
}()

// seedTable shows the spread over the seeds.
func (s *Study) seedTable() *report.Table {
	t := &report.Table{
		Title:   fmt.Sprintf("Spread over %d seeds", len(s.Seeds)),
		Columns: []report.Column{{Name: ""}, {Name: "Policy"}},
	}
	if len(s.Nodes) > 1 {
		t.Columns = append(t.Columns, report.Column{Name: "Nodes", Right: true})
	}
	t.Columns = append(t.Columns, report.Column{Name: "Mean", Right: true}, report.Column{Name: "Lowest", Right: true}, report.Column{Name: "Highest", Right: true})
	for _, m := range measures {
		if m.ofGPUs && s.Cluster.TotalGPUs() == 0 || m.ofPlacement && !s.fragmented() {
			continue
		}
		first := true
		for _, p := range s.points() {
			if m.compared && p.runs[0].Against == nil {
				continue
			}
			row := []string{"", p.policy}
			if first {
				row[0], first = m.name, false
			}
			if len(s.Nodes) > 1 {
				row = append(row, strconv.Itoa(p.nodes))
			}
			o := p.over(m.value)
			t.Rows = append(t.Rows, append(row, m.write(o.mean), m.write(o.lo), m.write(o.hi)))
		}
	}
	return t
}
