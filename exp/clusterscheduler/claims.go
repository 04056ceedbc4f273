package clusterscheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"muster/exp"
	"muster/internal/units"
	"muster/report"
)

// claim is a statement of the paper's.
type claim = exp.Claim[*measured]

// nearly is the relative difference up to which times count as equal.
const nearly = 0.1

// plusMinus writes a mean with its interval.
func plusMinus(values []float64) string {
	i := report.IntervalOf(values)
	if len(values) == 1 {
		return fmt.Sprintf("%.2f", i.Mean)
	}
	return fmt.Sprintf("%.2f ± %.2f", i.Mean, i.Half)
}

// claims in the order of the figures.
func claims() []claim {
	list := slices.Concat(mappingClaims(), boundClaims(), weightClaims(), mixClaims())
	for i := range list {
		list[i].Cause = causes[list[i].ID]
	}
	return list
}

// claimRows are the verdicts.
func claimRows(m *measured) []exp.Row { return exp.ClaimRows(claims(), m) }

// onNodes are the median times of a program over all mappings to the given number of nodes.
func (m *measured) onNodes(a *app, nodes int) []float64 {
	var all []float64
	for _, counts := range mappings {
		if nodesIn(counts) == nodes {
			all = append(all, m.Median(mappingKey(a, counts)))
		}
	}
	return all
}

func mappingClaims() []claim {
	scales := func(id, says string, a *app, more bool) claim {
		return claim{ID: id, Says: says, Judge: func(m *measured) (exp.Verdict, string) {
			one, two, three := slices.Min(m.onNodes(a, 1)), slices.Min(m.onNodes(a, 2)), slices.Min(m.onNodes(a, 3))
			because := fmt.Sprintf("%.2f, %.2f and %.2f s at best on 1, 2 and 3 nodes", one, two, three)
			switch {
			case !more:
				return exp.Holds(one < min(two, three)), because
			case min(two, three) < one && three >= two:
				return exp.Direction, because
			}
			return exp.Holds(three < two && two < one), because
		}}
	}
	return exp.About("Fig. 4-2", []string{mappingKey(&mm, mappings[0])},
		scales("4_2_mm_one_node", "MM is communication-intensive: it fails to scale to several nodes", &mm, false),
		scales("4_2_nw_one_node", "NW is communication-intensive: it fails to scale to several nodes", &nw, false),
		scales("4_2_adfa_scales", "ADFA is compute-intensive: it is faster on more nodes", &adfaMiddle, true),
		claim{ID: "4_2_assignment_matters", Says: "with the same number of nodes it matters which node has how many processes", Judge: func(m *measured) (exp.Verdict, string) {
			most := 0.0
			for _, a := range mappingApps {
				for nodes := 1; nodes <= 3; nodes++ {
					all := m.onNodes(a, nodes)
					most = max(most, slices.Max(all)/slices.Min(all))
				}
			}
			return exp.Holds(most > 1+2*nearly), fmt.Sprintf("up to %.1f times as long", most)
		}},
		claim{ID: "4_2_adfa_long", Says: "MM and NW are short-running, ADFA is long-running", Judge: func(m *measured) (exp.Verdict, string) {
			key := func(a *app) float64 { return m.Median(mappingKey(a, []int{8, 0, 0})) }
			return exp.Holds(key(&adfaMiddle) > 2*max(key(&mm), key(&nw))), fmt.Sprintf("%.2f, %.2f and %.2f s on node 1", key(&mm), key(&nw), key(&adfaMiddle))
		}})
}

func boundClaims() []claim {
	var list []claim
	// on is a claim about the times with 2 and 3 nodes over those with 1.
	on := func(c *cluster, a *app, id, says string, judge func(two, three []float64) exp.Verdict, text func([]float64) string) {
		list = append(list, exp.About("Fig. 4-3", []string{boundKey(c, a, 1)}, claim{ID: "4_3_" + c.key + "_" + id, Says: "on the " + c.name + " " + says, Judge: func(m *measured) (exp.Verdict, string) {
			two, three := m.Ratios(boundKey(c, a, 2), boundKey(c, a, 1)), m.Ratios(boundKey(c, a, 3), boundKey(c, a, 1))
			return judge(two, three), fmt.Sprintf("%s and %s times as long with 2 and 3 nodes", text(two), text(three))
		}})...)
	}
	for _, c := range clusters {
		for _, a := range []*app{&mm, &nw} {
			on(c, a, a.program, a.name+" is best on a single node", func(two, three []float64) exp.Verdict { return min(exp.AboveOne(two), exp.AboveOne(three)) }, plusMinus)
		}
	}
	mean := func(ratios []float64) string { return fmt.Sprintf("%.2f", exp.Mean(ratios)) }
	on(&commodity, &adfaSmall, "adfa", "ADFA is not significantly affected by the number of nodes a job", func(two, three []float64) exp.Verdict {
		return exp.Holds(math.Max(math.Abs(exp.Mean(two)-1), math.Abs(exp.Mean(three)-1)) < 2*nearly)
	}, mean)
	on(&highEnd, &adfaSmall, "adfa", "ADFA turns out communication-intensive: more nodes do not make it faster", func(two, three []float64) exp.Verdict {
		return exp.Holds(min(exp.Mean(two), exp.Mean(three)) > 1-nearly)
	}, mean)
	return list
}

func weightClaims() []claim {
	var list []claim
	compare := func(set int, a *app, better bool, says string) {
		before, after := weightKey(&highEnd, a, 0), weightKey(&highEnd, a, set)
		list = append(list, exp.About("Fig. 4-4", []string{before}, claim{ID: fmt.Sprintf("4_4_wg%d_%s", set+1, a.program), Says: says + " for " + a.name, Judge: func(m *measured) (exp.Verdict, string) {
			gains := m.Ratios(before, after)
			because := plusMinus(gains) + " times the throughput of WG1"
			if better {
				return exp.AboveOne(gains), because
			}
			return exp.AboveOne(m.Ratios(after, before)), because
		}})...)
	}
	compare(1, &mm, true, "WG2 (4:8:4) is better than WG1 (4:3:2)")
	compare(1, &nw, false, "WG2 (4:8:4) is not better than WG1 (4:3:2)")
	compare(1, &adfaSmall, true, "WG2 (4:8:4) is better than WG1 (4:3:2)")
	for _, a := range sixApps {
		compare(2, a, true, "WG3 (8:4:4) is better than WG1")
	}
	return list
}

func mixClaims() []claim {
	var list []claim
	for _, c := range clusters {
		for _, s := range []*scheme{&near, &quick} {
			list = append(list, exp.About("Fig. 4-5", []string{mixKey(c, s)}, claim{ID: fmt.Sprintf("4_5_%s_%s", c.key, s.key), Says: fmt.Sprintf("on the %s %s has %.4g times the throughput of batch", c.name, s.name, s.paper[c.key]),
				Judge: func(m *measured) (exp.Verdict, string) {
					all := m.throughputs(c, s)
					return exp.Amount(exp.Mean(all), s.paper[c.key]), plusMinus(all) + " times"
				}})...)
		}
	}
	for _, c := range clusters {
		list = append(list, serviceClaims(c)...)
	}
	return list
}

// serviceClaims are the claims about quality of service.
func serviceClaims(c *cluster) []claim {
	of := func(m *measured, s *scheme, long bool) float64 {
		return exp.Mean(m.qualities(c, s, long))
	}
	gap := func(m *measured, s *scheme) float64 { return math.Abs(of(m, s, false) - of(m, s, true)) }
	on := func(id, says string, yes func(m *measured) bool, shown ...*scheme) claim {
		return claim{ID: "4_5_" + c.key + "_" + id, Says: "on the " + c.name + " " + says, Judge: func(m *measured) (exp.Verdict, string) {
			var text []string
			for _, s := range shown {
				text = append(text, fmt.Sprintf("%s: long %.2f, short %.2f", s.name, of(m, s, true), of(m, s, false)))
			}
			return exp.Holds(yes(m)), strings.Join(text, "; ")
		}}
	}
	return exp.About("Fig. 4-5", []string{mixKey(c, &batch)},
		on("batch_unfair", "batch serves long jobs well and penalises short ones", func(m *measured) bool { return of(m, &batch, false) > (1+nearly)*of(m, &batch, true) }, &batch),
		on("colocation_short", "co-location improves the quality of service of short jobs", func(m *measured) bool { return of(m, &near, false) < of(m, &batch, false) }, &batch, &near),
		on("latency_fairer", "latency reduction reduces the difference between long and short jobs further", func(m *measured) bool { return gap(m, &quick) < gap(m, &near) }, &near, &quick))
}

// causes explain why our results differ from the paper's, as far as we know.
var causes = map[string]string{
	"4_2_adfa_scales": "The slowest GPU decides how long ADFA takes, since each process has as much to do: on two nodes every process has a GPU of its own but one already, and a third node adds only its part of the network",
	"4_4_wg2_pairs":   few, "4_4_wg2_align": few, "4_4_wg2_adfa": few, "4_4_wg3_pairs": few, "4_4_wg3_align": few, "4_4_wg3_adfa": few,
	"4_5_highend_colocation": free, "4_5_highend_latency": free,
	"4_5_commodity_colocation": bound, "4_5_commodity_latency": bound,
	"4_5_highend_latency_fairer": already, "4_5_commodity_latency_fairer": equal,
	"4_3_commodity_pairs": "All three runs agree, but they differ by a third, and three of them leave a wide interval",
}

// Causes that several statements share.
const (
	few     = "Six jobs of a second or less hardly fill the cluster, so that weights change little; runs differ by more"
	free    = "It is more here: what processes on one node send each other costs next to nothing, where the paper's 800 MB an iteration were copied in memory, and batch pays for the network with every job that it deals out over the nodes"
	bound   = "Two ADFA jobs are most of the work, and the listing gives equal processes to GPUs of which most are half as fast as the others, where grants keep them. Bound late they come nearer to what the GPUs allow, of which the figure with late binding has the bound"
	equal   = "With co-location long and short jobs do equally well already; letting short ones go first makes a difference again, in their favour"
	already = "Short jobs have it better than on a cluster of their own under batch already with co-location, since they need no network then; letting them go first as well widens the difference"
)

const partErrors = "Prediction: what the simulator says, over what was measured, less one"

// errorRows compare the simulator with the measurements: for each workload, and in total for each
// figure.
func errorRows(m *measured) []exp.Row {
	var rows, sums []exp.Row
	for _, f := range study().Chosen(m) {
		var all, fewer []float64
		for _, w := range f.Plan(m) {
			measured, predicted := m.Median(w.key), m.predicted[w.key].Seconds
			e := 100 * (predicted/measured - 1)
			all, fewer = append(all, e), append(fewer, math.Abs(e))
			rows = append(rows, exp.Single(partErrors, "error_"+w.key, "%", e).Noting("measured %.2f s, predicted %.2f s%s", measured, predicted, samePlaces(m, w.key)))
		}
		sums = append(sums,
			exp.Single(partErrors, "error_"+figureKey(f)+"_mean", "%", exp.Mean(all)).Noting("mean of %d workloads, from %.0f %% to %.0f %%", len(all), slices.Min(all), slices.Max(all)),
			exp.Single(partErrors, "error_"+figureKey(f)+"_mean_size", "%", exp.Mean(fewer)).Noting("mean of the sizes, whatever the sign"))
		if f.Name == mixFigure.Name || f.Name == lateFigure.Name {
			sums = append(sums, m.quietRow(f))
		}
	}
	return append(sums, rows...)
}

// quiet is the mean wake-up delay of a machine, in seconds, that hardly lengthened a run: half of those of Fig. 4-5
// had less.
const quiet = 0.0005

// tolerance is by how much a prediction may be off, in per cent.
const tolerance = 10

// offBy is by how much the prediction of the time of a run is off, in per cent.
func (m *measured) offBy(key string, run int) float64 {
	return 100 * (m.predicted[key].Seconds/m.Outcomes[key][run].Seconds - 1)
}

// quietErrors are by how much the simulator is off in the runs of the mixed jobs while the machine was quiet.
func (m *measured) quietErrors(f figure) (errors map[string][]float64) {
	errors = map[string][]float64{}
	for _, w := range f.Plan(m) {
		for run, o := range m.Outcomes[w.key] {
			if o.Late < quiet && len(w.jobs) > 1 {
				errors[w.key] = append(errors[w.key], m.offBy(w.key, run))
			}
		}
	}
	return errors
}

// quietRow is how many of these are close.
func (m *measured) quietRow(f figure) exp.Row {
	n, within, worst := 0, 0, 0.0
	for _, list := range m.quietErrors(f) {
		for _, e := range list {
			n++
			if math.Abs(e) <= tolerance {
				within++
			}
			worst = max(worst, math.Abs(e))
		}
	}
	return exp.Single(partErrors, "error_"+figureKey(f)+"_quiet_within", "runs", float64(within)).Noting("of %d of mixed jobs during which the machine was quiet are within %d %%; the worst is %.0f %% off", n, tolerance, worst)
}

func figureKey(f figure) string {
	if f.Name == lateFigure.Name {
		return "late"
	}
	return "fig" + f.Name[:1] + "_" + f.Name[2:]
}

// samePlaces says how many jobs ran on the same nodes in the simulator as in the first measured
// run.
func samePlaces(m *measured, key string) string {
	same, jobs := 0, m.Outcomes[key][0].Jobs
	for i := range jobs {
		if jobs[i].Where == m.predicted[key].Jobs[i].Where {
			same++
		}
	}
	return fmt.Sprintf("; %d of %s were placed the same", same, units.Plural(len(jobs), "job"))
}
