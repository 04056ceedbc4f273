package rgpu

import (
	"fmt"
	"math"

	"muster/exp"
	"muster/model/slurmopt"
	"muster/report"
	"muster/sim/simpage"
)

// Tables II to IV: what the jobs are.

var workloadsPart = part{
	Name: "workloads",
	Wants: func(*lab) []scenario {
		var list []scenario
		for _, h := range workloads {
			list = append(list, with(rcuda, onEight, h))
		}
		return list
	},
	Show: showWorkloads,
}

const workloadsTitle = "Table II: what the workloads are made of"

func showWorkloads(l *lab) exp.Shown {
	s := exp.Shown{Title: workloadsTitle, Tables: []*report.Table{
		launchTable("Table III: options for the most performance of each job, as parsed", table3),
		launchTable("Table IV: options for the most throughput, as parsed", append(table4[:len(table4):len(table4)],
			launch{"LAMMPS on 4 GPUs", "", lammpsOnFour})),
	}}
	for _, h := range workloads {
		found := l.Found[with(rcuda, onEight, h)]
		if found == nil {
			continue
		}
		for i, a := range applications {
			s.Rows = append(s.Rows, exp.Over(workloadsTitle, fmt.Sprintf("table2_%dh_%s", h, a.name), "jobs",
				exp.Values(found, func(o *outcome) float64 { return float64(o.counts[i]) })).Against(float64(table2[h][i])))
		}
		s.Rows = append(s.Rows, exp.Over(workloadsTitle, fmt.Sprintf("table2_%dh_total", h), "jobs", exp.Values(found, func(o *outcome) float64 {
			sum := 0
			for _, n := range o.counts {
				sum += n
			}
			return float64(sum)
		})).Against(float64(table2Totals[h])))
	}
	return listed(s)
}

// launchTable shows how Muster parses the paper's options.
func launchTable(title string, list []launch) *report.Table {
	t := &report.Table{Title: title, Columns: []report.Column{{Name: "application"}, {Name: "with"}, {Name: "options"}, {Name: "request"}}}
	for _, one := range list {
		for _, line := range [][2]string{{"CUDA", one.cuda}, {"rCUDA", one.rcuda}} {
			if line[1] == "" {
				continue
			}
			parsed, err := slurmopt.ParseLine(line[1])
			if err != nil {
				panic(fmt.Sprintf("rgpu: %s: %v", line[1], err)) // the lines are constants of this program
			}
			t.Rows = append(t.Rows, []string{one.application, line[0], line[1], simpage.Words(&parsed.Request)})
		}
	}
	return t
}

// Figs. 2 and 3: execution time and throughput.

var figuresPart = part{Name: "figures", Wants: wantFigures, Show: showFigures}

const figuresTitle = "Figs. 2 and 3: execution time and throughput"

// way is a series of a figure.
type way struct {
	key, name, meaning string
	scenario
}

// ways are the series of a figure, CUDA first. The last one is ours: a mode that decouples GPUs
// from nodes but does not share them, which separates the effect of decoupling from that of
// sharing. It has no bars in the left half of Fig. 2, which is about single jobs and not about
// throughput.
func ways(set setting, h int) []way {
	list := []way{{cuda, "CUDA", "GPUs of the job's own nodes", with(cuda, set, h)}}
	for _, r := range readings {
		list = append(list, way{rcuda + r.key, r.name, r.meaning, r.as(with(rcuda, set, h))})
	}
	if set != maxPerformance {
		list = append(list, way{exclusive, "rCUDA exclusive", "whole GPUs of any node, which nobody shares", with(exclusive, set, h)})
	}
	return list
}

func wantFigures(*lab) []scenario {
	var list []scenario
	for _, s := range settings {
		for _, h := range workloads {
			for _, w := range ways(s, h) {
				list = append(list, w.scenario)
			}
		}
	}
	return append(list, twelve, twelveInTurn)
}

// figureOf names the figure in which the paper shows a setting.
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

// bothBars are a figure of the paper: execution times, and the throughput, which the paper draws as
// a line.
type bothBars struct{ times, rates *report.Bars }

func newBothBars(set setting) bothBars {
	of := func(what, unit string) *report.Bars {
		b := &report.Bars{Title: figureOf(set) + ": " + set.title + ", " + what, YLabel: unit, Note: "Lines: the least and the most of the seeds."}
		for _, w := range ways(set, workloads[0]) {
			b.Series = append(b.Series, report.BarSeries{Name: w.name})
		}
		return b
	}
	return bothBars{of("execution time", "s"), of("throughput", "jobs/min")}
}

func showFigures(l *lab) exp.Shown {
	s := exp.Shown{Title: figuresTitle}
	t := &report.Table{
		Title:   figuresTitle,
		Columns: []report.Column{{Name: "figure"}, {Name: "setting"}, {Name: "workload"}, {Name: "GPUs used by"}, {Name: "time, s", Right: true}, {Name: "jobs/min", Right: true}, {Name: "speed-up", Right: true}, {Name: "(paper)", Right: true}},
		Note:    "Means over the seeds. Speed-up: CUDA's time over this one. The paper's figures have no numbers; its text says more than 2 for 4 GPUs and a similar behaviour for maximum performance, both of shared GPUs.",
	}
	for _, set := range settings {
		bars := newBothBars(set)
		for _, h := range workloads {
			t.Rows = append(t.Rows, l.showWorkload(&s, bars, set, h)...)
		}
		if len(bars.times.Groups) > 0 {
			s.Pictures = append(s.Pictures, bars.times, bars.rates)
		}
	}
	var claims []exp.Row
	for _, h := range workloads {
		few := ways(onFour, h)
		for i, all := range ways(onEight, h) {
			claims = append(claims, l.kept(all, few[i])...)
		}
	}
	claims = append(claims, twelveRows(l)...)
	s.Rows = append(s.Rows, claims...)
	s.Tables = []*report.Table{t}
	if len(claims) > 0 {
		table := exp.Table(claims, figuresTitle)
		table.Title = "Throughput on 4 GPUs, of that on 8; and twelve MCUDA-MEME on four nodes"
		s.Tables = append(s.Tables, table)
	}
	return told(s)
}

// showWorkload adds one group of bars and its rows, if all of its scenarios were run, and returns
// its lines of the table for people.
func (l *lab) showWorkload(s *exp.Shown, bars bothBars, set setting, h int) (lines [][]string) {
	list := ways(set, h)
	for _, w := range list {
		if l.Found[w.scenario] == nil {
			return nil
		}
	}
	group := fmt.Sprintf("%d hours", h)
	bars.times.Groups, bars.rates.Groups = append(bars.times.Groups, group), append(bars.rates.Groups, group)
	native := l.Found[list[0].scenario]
	for i, w := range list {
		found, key := l.Found[w.scenario], fmt.Sprintf("%s_%dh_%s", set.name, h, w.key)
		time := exp.Over(figuresTitle, key+"_time_s", "s", exp.Values(found, seconds)).Noting("%s", w.meaning)
		rate := exp.Over(figuresTitle, key+"_jobs_per_min", "jobs/min", exp.Values(found, perMinute))
		s.Rows = append(s.Rows, time, rate)
		exp.AddBar(&bars.times.Series[i], exp.Values(found, seconds))
		exp.AddBar(&bars.rates.Series[i], exp.Values(found, perMinute))
		cells := []string{figureOf(set), set.title, group, w.name, report.Number(math.Round(time.Ours)), fmt.Sprintf("%.2f", rate.Ours)}
		if i == 0 {
			lines = append(lines, append(cells, "-", "-"))
			continue
		}
		speedup := exp.Over(figuresTitle, key+"_speedup", "x", ratios(native, found, seconds)).Noting("CUDA's execution time over this; %s", w.meaning)
		paper := "-"
		switch {
		case set == onFour && w.mode == rcuda:
			speedup, paper = speedup.Against(2).Noting("the paper: more than 2; %s", w.meaning), "> 2"
		case set == maxPerformance:
			speedup, paper = speedup.Against(1).Noting("the paper: a similar behaviour; %s", w.meaning), "about 1"
		}
		cells = append(cells, fmt.Sprintf("%.2f", speedup.Ours), paper)
		s.Rows = append(s.Rows, speedup)
		lines = append(lines, cells)
	}
	return lines
}

// kept is the part of the throughput on 8 GPUs that remains on 4.
func (l *lab) kept(all, few way) []exp.Row {
	onAll, onFew := l.Found[all.scenario], l.Found[few.scenario]
	if onAll == nil || onFew == nil {
		return nil
	}
	row := exp.Over(figuresTitle, fmt.Sprintf("throughput_kept_4_of_8_%dh_%s_pct", all.hours, all.key), "%", percent(ratios(onFew, onAll, perMinute)))
	if all.mode == rcuda {
		row = row.Against(100).Noting("the paper: kept, whether there are 4, 6 or 8 GPUs")
	}
	return []exp.Row{row}
}

func percent(values []float64) []float64 {
	for i := range values {
		values[i] *= 100
	}
	return values
}

// Table V: the time for which each GPU was allocated.

var sharesPart = part{
	Name: "table-v",
	Wants: func(*lab) []scenario {
		var list []scenario
		for _, line := range table5 {
			for _, r := range readings {
				list = append(list, r.as(with(rcuda, line.setting, line.hours)))
			}
		}
		return list
	},
	Show: showShares,
}

const sharesTitle = "Table V: part of the time for which each GPU was allocated"

func showShares(l *lab) exp.Shown {
	s := exp.Shown{Title: sharesTitle}
	for _, r := range readings {
		t := &report.Table{Title: sharesTitle + ", in %: ours, and the paper's in brackets", Note: r.meaning + ".", Columns: []report.Column{{Name: "setting"}, {Name: "workload"}}}
		for g := range 8 {
			t.Columns = append(t.Columns, report.Column{Name: fmt.Sprintf("GPU%d", g), Right: true})
		}
		apart := map[string][]float64{} // by launch
		for _, line := range table5 {
			found := l.Found[r.as(with(rcuda, line.setting, line.hours))]
			if found == nil {
				continue
			}
			cells := []string{line.setting.title, fmt.Sprintf("%d hours", line.hours)}
			for g, theirs := range line.percent {
				row := exp.Over(sharesTitle, fmt.Sprintf("table5_%s_%dh_gpu%d%s_pct", line.setting.name, line.hours, g, r.key), "%",
					exp.Values(found, func(o *outcome) float64 { return o.allocated[g] })).Against(theirs)
				s.Rows = append(s.Rows, row)
				cells = append(cells, fmt.Sprintf("%.1f (%.1f)", row.Ours, theirs))
				apart[line.setting.launch] = append(apart[line.setting.launch], math.Abs(row.Ours-theirs))
			}
			for len(cells) < len(t.Columns) {
				cells = append(cells, "-")
			}
			t.Rows = append(t.Rows, cells)
		}
		if len(t.Rows) == 0 {
			continue
		}
		s.Tables = append(s.Tables, t)
		for _, launch := range []string{maxPerformance.launch, onEight.launch} {
			if values := apart[launch]; len(values) > 0 {
				row := exp.Single(sharesTitle, "table5_"+launch+r.key+"_mean_difference_pct", "points", exp.Mean(values))
				t.Note += fmt.Sprintf(" Mean difference to the paper's with the options for %s: %.1f points.", launch, row.Ours)
				s.Rows = append(s.Rows, row.Noting("mean difference to the paper's, over all GPUs and workloads; %s", r.meaning))
			}
		}
	}
	s.Pictures = l.shareBars()
	return told(s)
}

// shareBars show Table V on 8 and on 4 GPUs.
func (l *lab) shareBars() []report.Section {
	var list []report.Section
	for _, line := range table5 {
		bars := &report.Bars{Title: fmt.Sprintf("%s, %d hours: allocated part of the time", line.setting.title, line.hours), YLabel: "%",
			Series: []report.BarSeries{{Name: "paper", Values: line.percent, Reference: true}}}
		for g := range line.percent {
			bars.Groups = append(bars.Groups, fmt.Sprintf("GPU%d", g))
		}
		for _, r := range readings {
			found := l.Found[r.as(with(rcuda, line.setting, line.hours))]
			if found == nil {
				continue
			}
			series := report.BarSeries{Name: r.name}
			for g := range line.percent {
				exp.AddBar(&series, exp.Values(found, func(o *outcome) float64 { return o.allocated[g] }))
			}
			bars.Series = append(bars.Series, series)
		}
		if len(bars.Series) > 1 {
			list = append(list, bars)
		}
	}
	return list
}
