package tsubame

import (
	"muster/exp"
	"muster/report"
	"muster/sim"
	"muster/sim/simpage"
)

// shape is one way in which a queue can be congested. The paper shows one or more and describes
// none, so several are tried that differ in what matters.
type shape struct {
	name, meaning string
	settings      map[string]string
}

var shapes = []shape{
	{"alike", "500 jobs of 1 to 4 nodes and 1 to 3 GPUs a node, all there at the start", nil},
	{"single", "jobs of one node only", map[string]string{"max_nodes": "1"}},
	{"wide", "jobs of 1 to 16 nodes", map[string]string{"max_nodes": "16"}},
	{"spread", "the jobs come over 12 hours", map[string]string{"spread": "12h"}},
	{"twos", "all jobs ask for two GPUs a node, as in the paper's example", map[string]string{"gpu_mix": "0:1:0"}},
	{"threes", "half of the jobs ask for all three GPUs of a node", map[string]string{"gpu_mix": "1:1:2"}},
}

// congestedNodes is the size of the congested cluster. It is small for 500 jobs, so that the queue
// stays long until near the end.
const congestedNodes = 32

type congestedRuns struct {
	changes [][]float64 // of the makespan in per cent, by shape and seed
}

func (l *lab) congested() (*congestedRuns, error) {
	c := &congestedRuns{}
	for _, sh := range shapes {
		runs, err := l.run(study{generator: "congested", settings: sh.settings, nodes: []int{congestedNodes}, seeds: l.seeds})
		if err != nil {
			return nil, err
		}
		c.changes = append(c.changes, exp.Values(runs, func(b *both) float64 {
			return percent(b.g.Summarize().Makespan, b.r.Summarize().Makespan)
		}))
	}
	return c, nil
}

func (c *congestedRuns) rows() []exp.Row {
	var all []float64
	for _, list := range c.changes {
		all = append(all, list...)
	}
	rows := []exp.Row{
		exp.Over(partCongested, "congested_makespan_change_pct", "%", all).AgainstRange(-30, -15).
			Noting("time until all jobs are finished, over all shapes and seeds; the paper: 15 to 30 %% sooner"),
	}
	for i, sh := range shapes {
		rows = append(rows, exp.Over(partCongested, "congested_makespan_change_pct_"+sh.name, "%", c.changes[i]).
			AgainstRange(-30, -15).Noting("%s", sh.meaning))
	}
	return rows
}

func (c *congestedRuns) bars() *report.Bars {
	b := &report.Bars{
		Title: "Time until all jobs are finished, R queue against G queue", YLabel: "%",
		Note:   "The mean over the seeds, with the least and the most. The paper says 15 to 30 % sooner.",
		Series: []report.BarSeries{exp.MeanBars("Muster", c.changes)},
		Groups: exp.Names(shapes, func(s *shape) string { return s.name }),
	}
	return b
}

// gantts draw a small congested queue under both policies, as Figs. 7 and 8 do.
func (l *lab) gantts() ([]report.Section, error) {
	const nodes, blocks = 12, 10_000
	cluster, err := l.cluster.Resize(nodes)
	if err != nil {
		return nil, err
	}
	watchers := []*simpage.Recorder{simpage.NewRecorder(cluster, blocks), simpage.NewRecorder(cluster, blocks)}
	runs, err := l.run(study{
		generator: "congested", settings: map[string]string{"jobs": "60"}, nodes: []int{nodes}, seeds: l.seeds[:1],
		observe: func(p sim.Point) sim.Observer { return watchers[p.Index] },
	})
	if err != nil {
		return nil, err
	}
	seen := simpage.NewStudy(cluster, []sim.RunOf{
		{Point: sim.Point{Index: 0, Policy: gQueue, Seed: l.seeds[0], Nodes: nodes}, Result: runs[0].g},
		{Point: sim.Point{Index: 1, Policy: rQueue, Seed: l.seeds[0], Nodes: nodes}, Result: runs[0].r},
	}, watchers)
	titles := []string{
		"Fig. 7: a simulated set of jobs on the G queue",
		"Fig. 8: the same jobs on the R queue: native, base of a job that uses rCUDA, and rCUDA server",
	}
	var list []report.Section
	for _, s := range seen.Page().Sections {
		if g, ok := s.(*report.Gantt); ok {
			g.Title, titles = titles[0], titles[1:]
			list = append(list, g)
		}
	}
	return list, nil
}
