package tsubame

import (
	"fmt"
	"strconv"

	"muster/exp"
	"muster/report"
	"muster/sim"
)

// variant changes an assumption about the jobs that the paper leaves open. If the change affects
// the wait of the G queue, the load is recalibrated as the generator's default was: the value, in
// steps of 0.01, that brings the mean wait over 20 seeds closest to the paper's.
type variant struct {
	name, meaning string
	settings      map[string]string
}

var variants = []variant{
	{"whole_nodes_90", "nine of ten jobs ask for all that a node has", map[string]string{"whole_nodes": "90"}},
	{"even", "jobs come 4 at a time instead of 50, so the load is more even", map[string]string{"burst": "4", "load": "0.84"}},
	{"wide", "jobs come 4 at a time and ask for 1 to 64 nodes, each size with as much work as the next",
		map[string]string{"burst": "4", "node_mix": "64:32:16:8:4:2:1", "load": "0.83"}},
	{"wide_none_whole", "as wide, and none asks for a whole node for its own sake",
		map[string]string{"burst": "4", "node_mix": "64:32:16:8:4:2:1", "load": "0.83", "whole_nodes": "0"}},
}

// whole75 is simulated for a full year, because Table 3 depends most on the share of jobs that ask
// for whole nodes.
var whole75 = variant{"whole_nodes_75", "three of four jobs ask for all that a node has", map[string]string{"whole_nodes": "75"}}

// variantDays: two months show the same in a sixth of the time.
const variantDays = 60

type variantRuns struct {
	days int
	of   [][]sim.Comparison // by variant and seed, without the differences of single jobs
}

func (l *lab) variants() (*variantRuns, error) {
	v := &variantRuns{days: l.days(variantDays)}
	for _, one := range variants {
		runs, err := l.run(study{
			generator: "tsubame", settings: with(one.settings, "days", strconv.Itoa(v.days)),
			nodes: sizes[len(sizes)-1:], seeds: l.seeds,
		})
		if err != nil {
			return nil, err
		}
		var list []sim.Comparison
		for _, b := range runs {
			c := sim.Compare(b.g, b.r)
			c.Wait, c.Run, c.Life = nil, nil, nil
			list = append(list, c)
		}
		v.of = append(v.of, list)
	}
	return v, nil
}

// measures of a comparison, with the paper's numbers.
var measures = []struct {
	metric, unit string
	of           func(*sim.Comparison) float64
	paper        float64
}{
	{"wait_change_pct", "%", func(c *sim.Comparison) float64 { return c.WaitChange }, paperWaitChange},
	{"run_change_pct", "%", func(c *sim.Comparison) float64 { return c.RunChange }, paperRunChange},
	{"life_change_pct", "%", func(c *sim.Comparison) float64 { return c.LifeChange }, paperLifeChange},
	{"wait_longer_pct", "% of jobs", func(c *sim.Comparison) float64 { return c.WaitLonger.Percent }, paperWaitLonger},
	{"finish_later_pct", "% of jobs", func(c *sim.Comparison) float64 { return c.EndLater.Percent }, paperEndLater},
}

func (v *variantRuns) rows() []exp.Row {
	var rows []exp.Row
	for i, one := range variants {
		for _, m := range measures {
			rows = append(rows, exp.Over(partUnknown, m.metric+"_"+one.name, m.unit, exp.Values(v.of[i], m.of)).
				Against(m.paper).Noting("%s", one.meaning))
		}
	}
	return rows
}

// asVariant gives the rows of a year made with whole75.
func (y *yearRuns) asVariant() []exp.Row {
	var rows []exp.Row
	for _, m := range measures {
		rows = append(rows, exp.Over(partUnknown, m.metric+"_"+whole75.name, m.unit, y.each(m.of)).Against(m.paper).Noting("%s", whole75.meaning))
	}
	for i, n := range sizes {
		rows = append(rows, exp.Over(partUnknown, fmt.Sprintf("table3_life_gain_s_%d_%s", n, whole75.name), "s",
			exp.Values(y.years, func(o *oneYear) float64 { return o.gains[i].life.mean })).Against(table3[i].life).Noting("%s", whole75.meaning))
	}
	return rows
}

// each lists a number for every seed, on all 480 nodes.
func (y *yearRuns) each(of func(*sim.Comparison) float64) []float64 {
	return exp.Values(y.years, func(o *oneYear) float64 { return of(&o.whole) })
}

// table has a line for each variant, because its five numbers say more together.
func (v *variantRuns) table(y, whole *yearRuns) *report.Table {
	t := &report.Table{
		Title: "Other guesses about the jobs, on 480 nodes: R queue against G queue",
		Note:  fmt.Sprintf("Means over the seeds. The first two lines of ours are of %d days, the others of %d.", y.days, v.days),
		Columns: []report.Column{
			{Name: "what jobs are like"}, {Name: "wait, %", Right: true}, {Name: "run, %", Right: true}, {Name: "life, %", Right: true},
			{Name: "wait longer, % of jobs", Right: true}, {Name: "finish later, % of jobs", Right: true},
		},
	}
	add := func(what string, value func(i int) float64) {
		cells := []string{what}
		for i := range measures {
			text := report.Number(value(i))
			if i < 3 {
				text = signed(value(i))
			}
			cells = append(cells, text)
		}
		t.Rows = append(t.Rows, cells)
	}
	add("the paper's log", func(i int) float64 { return measures[i].paper })
	add("half of the jobs ask for all that a node has (the default)", func(i int) float64 { return exp.Mean(y.each(measures[i].of)) })
	add(whole75.meaning, func(i int) float64 { return exp.Mean(whole.each(measures[i].of)) })
	for k, one := range variants {
		add(one.meaning, func(i int) float64 { return exp.Mean(exp.Values(v.of[k], measures[i].of)) })
	}
	return t
}
