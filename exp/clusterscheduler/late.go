package clusterscheduler

import (
	"fmt"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// Fig. 4-5's jobs with GPUs that the nodes bind, and bind again: the jobs' grants reach the cluster, and the nodes'
// runtimes move processes to faster and emptier GPUs while they run. The paper does not say whether its runtimes
// did that in this experiment, so the figure beside the recorded one has fixed grants.

const partLate = "Fig. 4-5 with GPUs bound late: processes go to faster and emptier GPUs of any node"

var lateSchemes = []*scheme{&batch, &near, &quick}

func lateKey(c *cluster, s *scheme) string { return fmt.Sprintf("late_%s_%s", c.key, s.key) }

func planLate(*measured) []workload {
	var list []workload
	for _, c := range clusters {
		for _, s := range lateSchemes {
			how := s.setting(c)
			how.roam = s != &batch
			list = append(list, workload{lateKey(c, s), how, s.jobs(how.reach(), sequence(c)...)})
		}
	}
	return list
}

// moves are how often programs moved, for each seed.
func (m *measured) moves(key string) []float64 {
	return exp.Values(m.Outcomes[key], func(o *outcome) float64 { return float64(o.Moves) })
}

func showLate(m *measured) bench.Shown {
	var s bench.Shown
	for _, c := range clusters {
		b := &report.Bars{Title: "Throughput over batch with GPUs bound late, " + c.name, YLabel: "times that of batch"}
		var ours, theirs report.BarSeries
		for _, how := range lateSchemes {
			key := lateKey(c, how)
			all := m.Ratios(lateKey(c, &batch), key)
			s.Rows = append(s.Rows, m.timeRow(partLate, key))
			b.Groups, theirs.Values = append(b.Groups, how.name), append(theirs.Values, how.published(c))
			exp.AddBar(&ours, all)
			if how == &batch {
				continue
			}
			r := exp.Over(partLate, key+"_throughput", "x batch", all).Noting("%.1f moves, of which the simulator knows nothing", exp.Mean(m.moves(key)))
			if paper, known := how.paper[c.key]; known {
				r = r.Against(paper)
			}
			s.Rows = append(s.Rows, r, exp.Over(partLate, key+"_used", "% of the GPUs", m.usedByLate(c, how)).Noting("what the kernels need of all GPUs together, over the time; the rest is starts, kernels that must end before a move, and GPUs that wait for the last processes"))
		}
		least, bound := m.lateBound(c)
		s.Rows = append(s.Rows,
			exp.Single(partLate, "late_"+c.key+"_bound_s", "s", least).Noting("no policy and no binding is faster: a start, and all kernels on all GPUs without a pause"),
			exp.Over(partLate, "late_"+c.key+"_bound_throughput", "x batch", bound).Noting("so this is the most that the GPUs allow"))
		ours.Name, theirs.Name, theirs.Reference = "ours", "the paper's", true
		b.Series = []report.BarSeries{theirs, ours}
		s.Pictures = append(s.Pictures, b)
	}
	return s
}

// lateBound is the least time that the jobs take on a cluster, whatever places and binds them, and for each seed
// how many times that is as fast as batch.
func (m *measured) lateBound(c *cluster) (least float64, overBatch []float64) {
	least = m.Profile.least(c.whole(), sequence(c))
	for _, seconds := range m.Seconds(lateKey(c, &batch)) {
		overBatch = append(overBatch, seconds/least)
	}
	return least, overBatch
}

// usedByLate is which part of the time of all GPUs the kernels need, in per cent, for each seed.
func (m *measured) usedByLate(c *cluster, s *scheme) (used []float64) {
	needed := m.Profile.needed(c.whole(), sequence(c))
	for _, seconds := range m.Seconds(lateKey(c, s)) {
		used = append(used, 100*needed/seconds)
	}
	return used
}

var lateFigure = figure{Name: "late", Part: partLate, Plan: planLate, Show: showLate}
