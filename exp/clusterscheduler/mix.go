package clusterscheduler

import (
	"fmt"
	"strings"

	"muster/exp"
	"muster/exp/bench"
	"muster/model"
	"muster/report"
)

const partMix = "Fig. 4-5: throughput and quality of service of mixed jobs (Table 4-5)"

// sequence lists the jobs of Table 4-5 for a cluster.
func sequence(c *cluster) []job {
	a, m, n := job{app: &adfa, processes: 8}, job{app: &mm, processes: 4}, job{app: &nw, processes: 4}
	if c == &highEnd {
		return []job{a, m, n, m, n, m}
	}
	return []job{a, m, n, m, n, a, n, n}
}

func mixKey(c *cluster, s *scheme) string { return fmt.Sprintf("fig4_5_%s_%s", c.key, s.key) }

// dedicatedKey is the key of a program that runs alone on a cluster, under the batch scheduler.
func dedicatedKey(c *cluster, app string) string {
	return fmt.Sprintf("fig4_5_%s_dedicated_%s", c.key, strings.ToLower(app))
}

func planMix(*measured) []workload {
	var list []workload
	for _, c := range clusters {
		for _, j := range []job{{app: &mm, processes: 4}, {app: &nw, processes: 4}, {app: &adfa, processes: 8}} {
			list = append(list, workload{dedicatedKey(c, j.app.name), batch.setting(c), batch.jobs(model.ReachDevice, j)})
		}
		for _, s := range schemes {
			list = append(list, workload{mixKey(c, s), s.setting(c), s.jobs(model.ReachDevice, sequence(c)...)})
		}
	}
	return list
}

// quality is the mean quality of service of the long or of the short jobs in an outcome: the time
// from submission to end, divided by the time on a dedicated cluster.
func quality(o *outcome, long bool, dedicated func(app string) float64) float64 {
	sum, n := 0.0, 0
	for i := range o.Jobs {
		j := &o.Jobs[i]
		if (j.Name == adfa.name) == long {
			sum += j.response() / dedicated(j.Name)
			n++
		}
	}
	return sum / float64(n)
}

// qualities are the qualities of service of a scheme, one per seed.
func (m *measured) qualities(c *cluster, s *scheme, long bool) []float64 {
	return exp.Values(m.Outcomes[mixKey(c, s)], func(o *outcome) float64 {
		return quality(o, long, func(app string) float64 { return m.Median(dedicatedKey(c, app)) })
	})
}

// predictedQuality is the simulator's prediction of quality.
func (m *measured) predictedQuality(c *cluster, s *scheme, long bool) float64 {
	o := m.predicted[mixKey(c, s)]
	return quality(&o, long, func(app string) float64 { return m.predicted[dedicatedKey(c, app)].Seconds })
}

// throughputs are the throughputs of a scheme relative to batch, one per seed.
func (m *measured) throughputs(c *cluster, s *scheme) []float64 {
	return m.Ratios(mixKey(c, &batch), mixKey(c, s))
}

func (m *measured) predictedThroughput(c *cluster, s *scheme) float64 {
	return m.predicted[mixKey(c, &batch)].Seconds / m.predicted[mixKey(c, s)].Seconds
}

var lengths = []struct {
	key, name string
	long      bool
}{{"long", "long-running", true}, {"short", "short-running", false}}

func showMix(m *measured) bench.Shown {
	var s bench.Shown
	for _, c := range clusters {
		throughput := &report.Bars{Title: "Throughput over batch, " + c.name, YLabel: "times that of batch"}
		service := &report.Bars{Title: "Quality of service, " + c.name, YLabel: "time over that on a cluster of one's own", Note: "1 is best."}
		var ours, theirs, simulated report.BarSeries
		var values [2][][]float64
		for _, j := range []*app{&mm, &nw, &adfa} {
			s.Rows = append(s.Rows, m.timeRow(partMix, dedicatedKey(c, j.name)))
		}
		for _, how := range schemes {
			key := mixKey(c, how)
			s.Rows = append(s.Rows, m.timeRow(partMix, key))
			all := m.throughputs(c, how)
			if how != &batch {
				r := exp.Over(partMix, key+"_throughput", "x batch", all)
				r = r.Noting("the simulator says %.2f", m.predictedThroughput(c, how))
				if paper, known := how.paper[c.key]; known {
					r = r.Against(paper)
				}
				s.Rows = append(s.Rows, r)
			}
			throughput.Groups, service.Groups = append(throughput.Groups, how.name), append(service.Groups, how.name)
			exp.AddBar(&ours, all)
			simulated.Values = append(simulated.Values, m.predictedThroughput(c, how))
			theirs.Values = append(theirs.Values, how.published(c))
			for i, l := range lengths {
				q := m.qualities(c, how, l.long)
				values[i] = append(values[i], q)
				s.Rows = append(s.Rows, exp.Over(partMix, key+"_qos_"+l.key, "x dedicated", q).Noting("the simulator says %.2f; 1 is best", m.predictedQuality(c, how, l.long)))
			}
		}
		ours.Name, theirs.Name, simulated.Name = "ours", "the paper's, where its text has it", "the simulator's"
		theirs.Reference = true
		throughput.Series = []report.BarSeries{theirs, ours, simulated}
		for i, l := range lengths {
			service.Series = append(service.Series, exp.MeanBars(l.name, values[i]))
		}
		s.Pictures = append(s.Pictures, throughput, service)
	}
	return s
}

var mixFigure = figure{Name: "4-5", Part: partMix, Plan: planMix, Show: showMix}
