package rgpu

import (
	"fmt"
	"math"

	"muster/exp"
	"muster/model/slurmopt"
	"muster/report"
	"muster/report/simpage"
)

// nothing is where there is no number.
var nothing = math.NaN()

// Tables II to IV: what the jobs are.

var workloadsPart = part{
	name: "workloads",
	wants: func() []scenario {
		var list []scenario
		for _, h := range workloads {
			list = append(list, with(rcuda, onEight, h))
		}
		return list
	},
	show: showWorkloads,
}

const workloadsTitle = "Table II: what the workloads are made of"

func showWorkloads(l *lab) shown {
	s := shown{title: workloadsTitle, tables: []*report.Table{
		launchTable("Table III: options for the most performance of each job, as parsed", table3),
		launchTable("Table IV: options for the most throughput, as parsed", append(table4[:len(table4):len(table4)],
			launch{"LAMMPS on 4 GPUs", "", lammpsOnFour})),
	}}
	for _, h := range workloads {
		found := l.found[with(rcuda, onEight, h)]
		if found == nil {
			continue
		}
		for i, a := range applications {
			s.rows = append(s.rows, exp.Over(workloadsTitle, fmt.Sprintf("table2_%dh_%s", h, a.name), "jobs",
				each(found, func(o *outcome) float64 { return float64(o.counts[i]) })).Against(float64(table2[h][i])))
		}
		s.rows = append(s.rows, exp.Over(workloadsTitle, fmt.Sprintf("table2_%dh_total", h), "jobs", each(found, func(o *outcome) float64 {
			sum := 0
			for _, n := range o.counts {
				sum += n
			}
			return float64(sum)
		})).Against(float64(table2Totals[h])))
	}
	return s
}

// launchTable shows what the paper's options mean to us.
func launchTable(title string, list []launch) *report.Table {
	t := &report.Table{Title: title, Columns: []report.Column{{Name: "application"}, {Name: "with"}, {Name: "options"}, {Name: "request"}}}
	for _, one := range list {
		for _, line := range [][2]string{{"CUDA", one.cuda}, {"rCUDA", one.rcuda}} {
			if line[1] == "" {
				continue
			}
			parsed, err := slurmopt.ParseLine(line[1])
			if err != nil {
				panic(fmt.Sprintf("rgpu: %s: %v", line[1], err)) // they are part of the program
			}
			t.Rows = append(t.Rows, []string{one.application, line[0], line[1], simpage.Words(&parsed.Request)})
		}
	}
	return t
}

// Figs. 2 and 3: execution time and throughput.

var figuresPart = part{name: "figures", wants: wantFigures, show: showFigures}

const figuresTitle = "Figs. 2 and 3: execution time and throughput"

func wantFigures() []scenario {
	var list []scenario
	for _, s := range settings {
		for _, h := range workloads {
			list = append(list, with(cuda, s, h), with(rcuda, s, h))
		}
	}
	return append(list, twelve, twelveInTurn)
}

// figureOf says where the paper shows a setting.
func figureOf(s setting) string {
	switch s {
	case maxPerformance:
		return "Fig. 2 left"
	case onEight:
		return "Fig. 2 right"
	case onSix:
		return "Fig. 3 left"
	}
	return "Fig. 3 right"
}

func showFigures(l *lab) shown {
	s := shown{title: figuresTitle}
	for _, set := range settings {
		times := &report.Bars{Title: figureOf(set) + ": " + set.title + ", execution time", YLabel: "s", Series: []report.BarSeries{{Name: "CUDA"}, {Name: "rCUDA"}},
			Note: "Lines: the least and the most of the seeds."}
		through := &report.Bars{Title: figureOf(set) + ": " + set.title + ", throughput", YLabel: "jobs/min", Series: []report.BarSeries{{Name: "CUDA"}, {Name: "rCUDA"}}}
		for _, h := range workloads {
			with0, with1 := l.found[with(cuda, set, h)], l.found[with(rcuda, set, h)]
			if with0 == nil || with1 == nil {
				continue
			}
			group := fmt.Sprintf("%d hours", h)
			times.Groups, through.Groups = append(times.Groups, group), append(through.Groups, group)
			for i, found := range [][]outcome{with0, with1} {
				key := fmt.Sprintf("%s_%dh_%s", set.name, h, [2]string{cuda, rcuda}[i])
				time := exp.Over(figuresTitle, key+"_time_s", "s", each(found, seconds))
				rate := exp.Over(figuresTitle, key+"_jobs_per_min", "jobs/min", each(found, perMinute))
				s.rows = append(s.rows, time, rate)
				addBar(&times.Series[i], time)
				addBar(&through.Series[i], rate)
			}
			speedup := exp.Over(figuresTitle, fmt.Sprintf("%s_%dh_speedup", set.name, h), "x", ratios(with0, with1, seconds)).
				Noting("CUDA's execution time over rCUDA's")
			if set == onFour {
				speedup = speedup.Against(2).Noting("the paper: more than 2")
			}
			s.rows = append(s.rows, speedup)
		}
		if len(times.Groups) > 0 {
			s.pictures = append(s.pictures, times, through)
		}
	}
	for _, h := range workloads {
		for _, mode := range []string{cuda, rcuda} {
			all, few := l.found[with(mode, onEight, h)], l.found[with(mode, onFour, h)]
			if all == nil || few == nil {
				continue
			}
			row := exp.Over(figuresTitle, fmt.Sprintf("throughput_kept_4_of_8_%dh_%s_pct", h, mode), "%", percent(ratios(few, all, perMinute)))
			if mode == rcuda {
				row = row.Against(100).Noting("the paper: throughput is kept, whether there are 4, 6 or 8 GPUs")
			}
			s.rows = append(s.rows, row)
		}
	}
	s.rows = append(s.rows, twelveRows(l)...)
	return s
}

func addBar(s *report.BarSeries, row exp.Row) {
	s.Values, s.Lo, s.Hi = append(s.Values, row.Ours), append(s.Lo, row.Low), append(s.Hi, row.High)
}

func percent(values []float64) []float64 {
	for i := range values {
		values[i] *= 100
	}
	return values
}

// Table V: for how long each GPU was allocated.

var sharesPart = part{
	name: "table-v",
	wants: func() []scenario {
		var list []scenario
		for _, line := range table5 {
			list = append(list, with(rcuda, line.setting, line.hours))
		}
		return list
	},
	show: showShares,
}

const sharesTitle = "Table V: part of the time for which each GPU was allocated"

func showShares(l *lab) shown {
	s := shown{title: sharesTitle}
	t := &report.Table{Title: sharesTitle + ", in %: ours, and the paper's in brackets", Columns: []report.Column{{Name: "setting"}, {Name: "workload"}}}
	for g := range 8 {
		t.Columns = append(t.Columns, report.Column{Name: fmt.Sprintf("GPU%d", g), Right: true})
	}
	for _, line := range table5 {
		found := l.found[with(rcuda, line.setting, line.hours)]
		if found == nil {
			continue
		}
		cells := []string{line.setting.title, fmt.Sprintf("%d hours", line.hours)}
		bars := &report.Bars{Title: fmt.Sprintf("%s, %d hours: allocated part of the time", line.setting.title, line.hours), YLabel: "%",
			Series: []report.BarSeries{{Name: "paper", Values: line.percent, Reference: true}, {Name: "Muster"}}}
		for g, theirs := range line.percent {
			row := exp.Over(sharesTitle, fmt.Sprintf("table5_%s_%dh_gpu%d_pct", line.setting.name, line.hours, g), "%",
				each(found, func(o *outcome) float64 { return o.allocated[g] })).Against(theirs)
			s.rows = append(s.rows, row)
			cells = append(cells, fmt.Sprintf("%.1f (%.1f)", row.Ours, theirs))
			bars.Groups = append(bars.Groups, fmt.Sprintf("GPU%d", g))
			addBar(&bars.Series[1], row)
		}
		for len(cells) < len(t.Columns) {
			cells = append(cells, "-")
		}
		t.Rows = append(t.Rows, cells)
		s.pictures = append(s.pictures, bars)
	}
	s.tables = []*report.Table{t}
	return s
}
