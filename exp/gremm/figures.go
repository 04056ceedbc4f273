package gremm

import (
	"fmt"
	"math"
	"slices"
	"time"

	"muster/exp"
	"muster/report"
	"muster/sim/kernels"
)

// The paper's mappers, with the names that it gives them.
var (
	static     = policy{"ST", "st"}
	reserving  = policy{"GR", "gr"}
	greedy     = policy{"AG", "ag"}
	randomised = policy{"AR", "ar"}
	ofPaper    = []policy{static, reserving, greedy, randomised}
	adaptive   = []policy{greedy, randomised}
	dynamic    = []policy{reserving, greedy, randomised}
)

// policy is a mapper with its name in the paper and its spelling in the mapping catalogue.
type policy struct{ name, mapper string }

// over makes one line per policy; set gives the policy's scenario at each label.
func over(list []policy, set func(mapper string, i int) scenario) []line {
	var lines []line
	for _, p := range list {
		lines = append(lines, line{p.name, func(i int) scenario { return set(p.mapper, i) }})
	}
	return lines
}

func one(p policy, set func(mapper string, i int) scenario) *line {
	return &over([]policy{p}, set)[0]
}

var (
	mixes     = []string{"W1", "W2", "W3", "W4", "W5"}
	lighter   = []string{"W6", "W7", "W8", "W9", "W10"}
	heavier   = []string{"W11", "W12", "W13", "W14", "W15"}
	unequal   = []string{"W3", "W4"} // the mixes with most to gain
	withBoth  = []string{"W2", "W3", "W4"}
	unmixed   = []string{"W1", "W5"}
	paperNote = "The paper's picture has no numbers in its text."
)

// network is a kind of network, by the bandwidth of a node's port.
type network struct {
	key, name string
	bandwidth int64
}

var networks = []network{{"gbe", "GbE", gbe}, {"ib", "IB", ib}}

func on(n network, s scenario) scenario {
	s.bandwidth = n.bandwidth
	return s
}

// gains are the differences of a number between two scenarios, seed by seed; nil if one of them was
// not run.
func (l *lab) gains(a, b scenario, m measured) []float64 {
	x, y := l.Found[a], l.Found[b]
	if x == nil || y == nil {
		return nil
	}
	return minus(exp.Values(x, m.of), exp.Values(y, m.of))
}

// relative is gains in per cent of the second scenario's number.
func (l *lab) relative(a, b scenario, m measured) []float64 {
	more := l.gains(a, b, m)
	for i := range more {
		more[i] *= 100 / m.of(&l.Found[b][i])
	}
	return more
}

// Fig. 2: the mix of workloads.

var mixPart = part{
	name: "2", title: "Fig. 2: the mix of heavy and light GPU users", about: aboutMix,
	sweeps: func(l *lab) []sweep {
		var list []sweep
		for _, n := range networks {
			list = append(list, sweep{
				key: "fig2_" + n.key, title: "Fig. 2, " + n.name, axis: "workload", labels: mixes,
				note:  "From heavy users alone (W1) to light users alone (W5). " + paperNote,
				lines: over(ofPaper, func(mapper string, i int) scenario { return on(n, l.plain(mixes[i], mapper)) }),
				shows: []measured{utilisation, waiting, waitingOfProcess},
			})
		}
		return list
	},
	tell: tellMix,
}

func tellMix(l *lab, s *shown) {
	var all []float64
	for _, p := range dynamic {
		better := l.improved(p)
		if better == nil {
			return
		}
		s.claim("2", fmt.Sprintf("the utilisation is improved by dynamic policies in most of the cases (here %s; of W1 to W5, on GbE)", p.name),
			metric("claim_fig2", p.name, "cases_improved"), "of 5", better, exp.Mostly(len(mixes)))
		all = plus(all, better)
	}
	s.claim("2", "the utilisation is improved by dynamic policies in most of the cases (GR, AG and AR on W1 to W5, on GbE)", "claim_fig2_cases_improved", "of 15", all, exp.Mostly(len(mixes)*len(dynamic)))
	for _, w := range mixes {
		for _, p := range adaptive {
			s.claim("2", fmt.Sprintf("the adaptive policies improve utilisation significantly even on GbE (here %s on %s)", p.name, w),
				metric("claim_fig2", w, p.name, "over_st_points"), "points", l.gains(l.plain(w, p.mapper), l.plain(w, static.mapper), utilisation), exp.Above(0))
		}
	}
	for _, p := range adaptive {
		s.claim("2", fmt.Sprintf("dynamic mapping is particularly useful for mixed workloads (most gained by %s on W2 to W4, less the most on W1 and W5, which are not mixed)", p.name),
			metric("claim_fig2", p.name, "mixed_over_unmixed_points"), "points", minus(l.mostOver(p, withBoth), l.mostOver(p, unmixed)), exp.Above(0))
	}
	for _, w := range mixes {
		for _, p := range dynamic {
			s.claim("2", fmt.Sprintf("the mean waiting time is improved too (here %s on %s)", p.name, w),
				metric("claim_fig2", w, p.name, "wait_change_pct"), "%", l.relative(l.plain(w, p.mapper), l.plain(w, static.mapper), waiting), exp.Below(0))
		}
	}
	for _, w := range withBoth {
		for _, p := range adaptive {
			s.claim("2", fmt.Sprintf("the same, if each process counts as much as any other (here %s on %s)", p.name, w),
				metric("claim_fig2", w, p.name, "wait_of_process_change_pct"), "%", l.relative(l.plain(w, p.mapper), l.plain(w, static.mapper), waitingOfProcess), exp.Below(0))
		}
	}
}

// improved counts, for each seed, the mixes on which a policy has a higher utilisation than ST; nil
// if one was not run.
func (l *lab) improved(p policy) []float64 {
	better := make([]float64, len(l.seeds))
	for _, w := range mixes {
		gains := l.gains(l.plain(w, p.mapper), l.plain(w, static.mapper), utilisation)
		if gains == nil {
			return nil
		}
		for i, g := range gains {
			if g > 0 {
				better[i]++
			}
		}
	}
	return better
}

// mostOver is the largest gain of a policy over ST on any of the workloads, seed by seed.
func (l *lab) mostOver(p policy, workloads []string) []float64 {
	var all [][]float64
	for _, w := range workloads {
		all = append(all, l.gains(l.plain(w, p.mapper), l.plain(w, static.mapper), utilisation))
	}
	return fold(math.Max, all...)
}

// fold combines numbers seed by seed; nil if some of them were not run.
func fold(combine func(a, b float64) float64, lists ...[]float64) []float64 {
	out := slices.Clone(lists[0])
	for _, list := range lists {
		if list == nil {
			return nil
		}
		for i, v := range list {
			out[i] = combine(out[i], v)
		}
	}
	return out
}

// plus adds numbers seed by seed; nil counts as zeros.
func plus(a, b []float64) []float64 {
	if a == nil {
		return b
	}
	sum := make([]float64, len(a))
	for i := range a {
		sum[i] = a[i] + b[i]
	}
	return sum
}

// Fig. 3: kernels finished.

var kernelsPart = part{
	name: "3", title: "Fig. 3: kernels finished by each client", about: aboutKernels,
	sweeps: func(l *lab) []sweep {
		lines := over(ofPaper, func(mapper string, i int) scenario { return l.plain(mixes[i], mapper) })
		return []sweep{{
			key: "fig3", title: "Fig. 3", axis: "workload", labels: mixes, lines: lines, note: paperNote + " As many as in 10,000 s, whatever was simulated.",
			shows: []measured{finished(heavy, paperSpan.Seconds()), finished(light, paperSpan.Seconds())},
		}}
	},
	tell: tellKernels,
}

// paperKernels is what the text says about Fig. 3: kernels of both clients on W3 under ST.
var paperKernels = map[string]float64{heavy: 12_000, light: 28_000}

func tellKernels(l *lab, s *shown) {
	t := &report.Table{
		Title:   "Fig. 3: W3 under ST, beside the numbers in the text",
		Columns: []report.Column{{Name: "client"}, {Name: "the paper, about", Right: true}, {Name: "ours in 10,000 s", Right: true}, {Name: "ours in 750 s", Right: true}},
		Note:    "The paper says that 10,000 s are simulated. A GPU with four such clients cannot finish as few kernels as it counts: 750 s give its numbers.",
	}
	for _, client := range []string{heavy, light} {
		found := l.Found[l.plain("W3", static.mapper)]
		if found == nil {
			return
		}
		cells := []string{client, report.Number(paperKernels[client])}
		for _, span := range []time.Duration{paperSpan, spanOfCountedKernels} {
			m := finished(client, span.Seconds())
			row := exp.Over(s.Title, metric("fig3_text_W3_ST", m.key), m.unit, exp.Values(found, m.of)).Against(paperKernels[client])
			if span == paperSpan {
				row = row.Noting("the span that the paper names; its numbers are those of 750 s")
			}
			s.told = append(s.told, row)
			cells = append(cells, cell(row, 0))
		}
		t.Rows = append(t.Rows, cells)
	}
	s.Tables = append([]*report.Table{t}, s.Tables...)
	for _, p := range dynamic {
		s.claim("3", fmt.Sprintf("with the dynamic policies the overall utilisation is improved (here %s on W3)", p.name),
			metric("claim_fig3_W3", p.name, "over_st_points"), "points", l.gains(l.plain("W3", p.mapper), l.plain("W3", static.mapper), utilisation), exp.Above(0))
		s.claim("3", fmt.Sprintf("client L completes less kernels if remote GPU mapping is allowed (here W3, %s)", p.name),
			metric("claim_fig3_W3_L", p.name, "change_pct"), "%", l.relative(l.plain("W3", p.mapper), l.plain("W3", static.mapper), finished(light, 1)), exp.Below(0))
	}
}

// Fig. 4: every GPU of the cluster.

// splits send a fixed part of client H's kernels to client L's GPUs.
var splits = []policy{
	{"split 1/4", "split:share=1/4:from=0:to=1"}, {"split 1/2", "split:share=1/2:from=0:to=1"}, {"split 3/4", "split:share=3/4:from=0:to=1"},
}

// paperSplit is the utilisation that the text gives for the split in halves.
const paperSplit = 92.5

var onDevicesOf = func(app string) measured {
	return measured{"utilisation_of_" + app + "_devices_pct", "GPU utilisation on the nodes of client " + app, "%", func(o *outcome) float64 { return o.onNodesOf(app) }, 1}
}

var balancePart = part{
	name: "4", title: "Fig. 4: every GPU on W4", about: aboutBalance,
	sweeps: func(l *lab) []sweep {
		return []sweep{{
			key: "fig4", title: "Fig. 4", axis: "workload", labels: []string{"W4"},
			lines: over(append(ofPaper[:len(ofPaper):len(ofPaper)], splits...), func(mapper string, _ int) scenario { return l.plain("W4", mapper) }),
			shows: []measured{utilisation, onDevicesOf(heavy), onDevicesOf(light)},
		}}
	},
	tell: tellBalance,
}

func tellBalance(l *lab, s *shown) {
	half := l.plain("W4", splits[1].mapper)
	if found := l.Found[half]; found != nil {
		s.told = append(s.told, exp.Over(s.Title, "fig4_text_split_half_utilisation_pct", "%", exp.Values(found, utilisation.of)).
			Against(paperSplit).Noting("1/2 of client H's processes use client L's GPUs"))
	}
	var charts []report.Section
	for _, c := range []struct {
		title string
		list  []policy
	}{{"Fig. 4: GPU utilisation on W4, mapped at run time", ofPaper}, {"Fig. 4: GPU utilisation on W4, static splits", splits}} {
		if chart := l.deviceChart(c.title, c.list); chart != nil {
			charts = append(charts, chart)
		}
	}
	s.Pictures = append(charts, s.Pictures...)

	for _, other := range []policy{splits[0], splits[2]} {
		s.claim("4", other.name+" is less efficient than 1/2", metric("claim_fig4_half_over", other.name, "points"), "points",
			l.gains(half, l.plain("W4", other.mapper), utilisation), exp.Above(0))
	}
	for _, p := range dynamic {
		s.claim("4", fmt.Sprintf("the split 1/2 is worse than the dynamic mapping policies (here %s)", p.name),
			metric("claim_fig4", p.name, "over_half_points"), "points", l.gains(l.plain("W4", p.mapper), half, utilisation), exp.Above(0))
	}
	for _, p := range adaptive {
		s.claim("4", fmt.Sprintf("%s outperforms ST", p.name), metric("claim_fig4", p.name, "over_st_points"), "points",
			l.gains(l.plain("W4", p.mapper), l.plain("W4", static.mapper), utilisation), exp.Above(0))
		s.claim("4", fmt.Sprintf("%s outperforms GR", p.name), metric("claim_fig4", p.name, "over_gr_points"), "points",
			l.gains(l.plain("W4", p.mapper), l.plain("W4", reserving.mapper), utilisation), exp.Above(0))
	}
	if found := l.Found[l.plain("W4", static.mapper)]; found != nil {
		s.claim("4", "under ST the nodes are used unevenly (those of H less those of L)", "claim_fig4_st_imbalance_points", "points",
			exp.Values(found, func(o *outcome) float64 { return o.onNodesOf(heavy) - o.onNodesOf(light) }), exp.Above(0))
	}
	uneven := measured{of: func(o *outcome) float64 { return math.Abs(o.onNodesOf(heavy) - o.onNodesOf(light)) }}
	s.claim("4", "GR is capable of balancing GPU utilisation (difference between the nodes of H and of L, less than under ST)", "claim_fig4_gr_imbalance_change_points", "points",
		l.gains(l.plain("W4", reserving.mapper), l.plain("W4", static.mapper), uneven), exp.Below(0))
}

// deviceChart has a line over the devices for each policy.
func (l *lab) deviceChart(title string, list []policy) report.Section {
	c := &report.Chart{
		Title: title, XLabel: "GPU", YLabel: "%", YMin: new(0.0), YMax: new(100.0),
		Note: "Means over the seeds. The first GPUs are on the nodes of client H, the others on those of client L. " + paperNote,
	}
	for _, p := range list {
		found := l.Found[l.plain("W4", p.mapper)]
		if found == nil {
			continue
		}
		one := report.Series{Name: p.name, Step: true}
		for d := range found[0].devices {
			one.X = append(one.X, float64(d))
			one.Y = append(one.Y, exp.Mean(exp.Values(found, func(o *outcome) float64 { return o.devices[d] })))
		}
		c.Series = append(c.Series, one)
	}
	if len(c.Series) == 0 {
		return nil
	}
	return c
}

// Fig. 5: how much the light client uses its GPUs.

var intensityPart = part{
	name: "5", title: "Fig. 5: how much the light client uses its GPUs",
	sweeps: func(l *lab) []sweep {
		var list []sweep
		for _, group := range [][]string{lighter, heavier} {
			list = append(list, sweep{
				key: "fig5", title: "Fig. 5, " + group[0] + " to " + group[4], axis: "workload", labels: group, note: paperNote,
				lines: over(ofPaper, func(mapper string, i int) scenario { return l.plain(group[i], mapper) }),
				shows: []measured{utilisation},
			})
		}
		return list
	},
	tell: tellIntensity,
}

// paperGain is the paper's "up to" gain in the lighter group. The text gives it in per cent and
// does not say of what.
const paperGain = 26

func tellIntensity(l *lab, s *shown) {
	best := map[string][]float64{}
	for _, group := range [][]string{lighter, heavier} {
		points, relative := l.mostGained(group)
		if points == nil {
			return
		}
		best[group[0]] = points
		key := group[0] + "_to_" + group[4]
		inPoints := exp.Over(s.Title, metric("fig5", key, "most_gained_points"), "points", points).Noting("the most that a dynamic policy gains over ST on one of these workloads")
		asPart := exp.Over(s.Title, metric("fig5", key, "most_gained_relative_pct"), "%", relative).Noting("the same, of ST's utilisation")
		if group[0] == lighter[0] {
			inPoints, asPart = inPoints.Against(paperGain), asPart.Against(paperGain)
		}
		s.told = append(s.told, inPoints, asPart)
	}
	s.claim("5", "up to 26 % improvement in the lighter group (the most gained there, in points; as much to within 3 confirms it)", "claim_fig5_lighter_points", "points",
		best[lighter[0]], func(r exp.Row) exp.Verdict {
			v := exp.Above(0)(r)
			return exp.Graded(v != exp.Refuted, v == exp.Confirmed && math.Abs(r.Ours-paperGain) <= 3)
		})
	s.claim("5", "in the heavier group the improvement is limited (the best there less the best of the lighter group)", "claim_fig5_heavier_less_lighter_points", "points",
		minus(best[heavier[0]], best[lighter[0]]), exp.Below(0))
}

// mostGained is the largest gain of a dynamic policy over ST on any of the workloads, seed by seed:
// in percentage points, and relative to ST's utilisation.
func (l *lab) mostGained(workloads []string) (points, relative []float64) {
	none := make([]float64, len(l.seeds))
	inPoints, asPart := [][]float64{none}, [][]float64{none}
	for _, w := range workloads {
		for _, p := range dynamic {
			a, b := l.plain(w, p.mapper), l.plain(w, static.mapper)
			inPoints, asPart = append(inPoints, l.gains(a, b, utilisation)), append(asPart, l.relative(a, b, utilisation))
		}
	}
	return fold(math.Max, inPoints...), fold(math.Max, asPart...)
}

// Fig. 6: data, and the network.

// ratios are the amounts of data per computation, in KB/ms.
var ratios = []float64{1, 3, 10, 30, 100, 300, 1000, 3000, 10_000}

func ratioLabels() []string {
	return exp.Names(ratios, func(r *float64) string { return report.Number(*r) })
}

// moving is W4 with the given amount of data for each ms of a kernel.
func (l *lab) moving(ratio float64, mapper string, n network) scenario {
	s := on(n, l.plain("W4", mapper))
	s.ratio = ratio
	return s
}

const ratioAxis = "upload for each ms of a kernel, KB"

var networkPart = part{
	name: "6", title: "Fig. 6: data against computation, and the network", about: aboutNetwork,
	sweeps: func(l *lab) []sweep {
		var list []sweep
		for _, n := range networks {
			list = append(list, sweep{
				key: "fig6_" + n.key, title: "Fig. 6, W4 on " + n.name, axis: ratioAxis, labels: ratioLabels(), xs: ratios, logX: true, note: paperNote,
				lines: over(ofPaper, func(mapper string, i int) scenario { return l.moving(ratios[i], mapper, n) }),
				shows: []measured{utilisation},
			})
		}
		return list
	},
	tell: func(l *lab, s *shown) {
		first, last := ratios[0], ratios[len(ratios)-1]
		for _, n := range networks {
			for _, p := range dynamic {
				s.claim("6", fmt.Sprintf("the performance of the dynamic policies falls as the ratio grows (here %s on %s, from 1 to 10,000)", p.name, n.name), metric("claim_fig6", n.key, p.name, "change_points"), "points",
					l.gains(l.moving(last, p.mapper, n), l.moving(first, p.mapper, n), utilisation), exp.Below(0))
			}
			for _, p := range adaptive {
				s.claim("6", fmt.Sprintf("%s can still be as good as ST when the ratio is extremely high (%s, 10,000; no more than 1 point less)", p.name, n.name),
					metric("claim_fig6", n.key, p.name, "over_st_at_10000_points"), "points",
					l.gains(l.moving(last, p.mapper, n), l.moving(last, static.mapper, n), utilisation), exp.AtLeast(-1))
				s.claim("6", fmt.Sprintf("where remote execution does not pay %s falls back to ST (%s, the least margin over ST at any ratio; no more than 1 point less)", p.name, n.name),
					metric("claim_fig6", n.key, p.name, "least_over_st_points"), "points", l.leastOver(p, n), exp.AtLeast(-1))
			}
		}
	},
}

// leastOver is the smallest margin of a policy over ST at any ratio, seed by seed.
func (l *lab) leastOver(p policy, n network) []float64 {
	var all [][]float64
	for _, ratio := range ratios {
		all = append(all, l.gains(l.moving(ratio, p.mapper, n), l.moving(ratio, static.mapper, n), utilisation))
	}
	return fold(math.Min, all...)
}

// Fig. 7: weights that do not adapt.

// fixed are constant weights; the paper does not say which it used. On W4 its equations 10 and 11
// give alpha between about 0.002 and 0.005, and beta 1 at 1 KB/ms, 54 at 10, and 5,400 at 100.
var fixed = []policy{
	{"alpha=0.003 beta=1", "ar:alpha=0.003:beta=1"},
	{"alpha=0.003 beta=50", "ar:alpha=0.003:beta=50"},
	{"alpha=0.003 beta=5000", "ar:alpha=0.003:beta=5000"},
	{"alpha=0.1 beta=50", "ar:alpha=0.1:beta=50"},
	{"alpha=1 beta=1", "ar:alpha=1:beta=1"},
	{"alpha=1 beta=5000", "ar:alpha=1:beta=5000"},
}

var weightsPart = part{
	name: "7", title: "Fig. 7: fixed weights against adaptive ones",
	sweeps: func(l *lab) []sweep {
		return []sweep{{
			key: "fig7", title: "Fig. 7, W4 on GbE", axis: ratioAxis, labels: ratioLabels(), xs: ratios, logX: true,
			note:  paperNote + " Nor does it say which fixed weights it had.",
			lines: over(append([]policy{randomised}, fixed...), func(mapper string, i int) scenario { return l.moving(ratios[i], mapper, networks[0]) }),
			shows: []measured{utilisation},
		}}
	},
	tell: func(l *lab, s *shown) {
		s.claim("7", "AR can track the best performance over the entire range (its largest shortfall to the best fixed weights; no more than 2 points)",
			"claim_fig7_ar_largest_shortfall_points", "points", l.shortfall(randomised), exp.AtMost(2))
		if short := l.bestFixed(); short != nil {
			s.claim("7", "fixed weights favour either low or high ratios (the least of their largest shortfalls, more than AR's)",
				"claim_fig7_fixed_least_shortfall_more_points", "points", minus(short, l.shortfall(randomised)), exp.Above(0))
		}
	},
}

// shortfall is the largest amount, over all ratios, by which a policy is below the best of AR and
// the fixed weights.
func (l *lab) shortfall(p policy) []float64 {
	var all [][]float64
	for _, ratio := range ratios {
		for _, other := range append([]policy{randomised}, fixed...) {
			all = append(all, l.gains(l.moving(ratio, other.mapper, networks[0]), l.moving(ratio, p.mapper, networks[0]), utilisation))
		}
	}
	return fold(math.Max, all...)
}

// bestFixed is the smallest shortfall of any of the fixed weights.
func (l *lab) bestFixed() []float64 {
	var all [][]float64
	for _, p := range fixed {
		all = append(all, l.shortfall(p))
	}
	return fold(math.Min, all...)
}

// Fig. 8: more GPUs, and more nodes.

var (
	gpuCounts  = []int{1, 2, 3, 4, 6}
	nodeCounts = []int{12, 24, 48, 96}
	// ages of the information that a node has about others.
	ages = []time.Duration{0, 100 * time.Millisecond, time.Second, 10 * time.Second}
)

func counts(list []int) (words []string, xs []float64) {
	return labels(list), exp.Values(list, func(n *int) float64 { return float64(*n) })
}

// labels are values in words.
func labels[V any](list []V) []string {
	return exp.Names(list, func(v *V) string { return fmt.Sprint(*v) })
}

func (l *lab) withGPUs(n int, mapper string) scenario {
	s := l.plain("W4", mapper)
	s.gpus = n
	return s
}

// known describes the age of a status in words.
func known(age time.Duration) string {
	if age == 0 {
		return "status at once"
	}
	return fmt.Sprintf("status %v old", age)
}

// old is the scenario with a delay before a node learns of a change on another node.
func old(age time.Duration, s scenario) scenario {
	s.status = kernels.Status{Delay: age}
	return s
}

var scalabilityPart = part{
	name: "8", title: "Fig. 8: more GPUs a node, and more nodes", about: aboutScalability,
	sweeps: func(l *lab) []sweep {
		gpuLabels, gpuXs := counts(gpuCounts)
		nodeLabels, nodeXs := counts(nodeCounts)
		gpus := func(mapper string, i int) scenario { return l.withGPUs(gpuCounts[i], mapper) }
		list := []sweep{{
			key: "fig8_gpus", title: "Fig. 8, GPUs of a node, W4", axis: "GPUs of each node", labels: gpuLabels, xs: gpuXs, note: paperNote,
			lines: over(adaptive, gpus), over: one(static, gpus), shows: []measured{utilisation},
		}}
		for _, age := range ages {
			if age > time.Second {
				continue
			}
			nodes := func(mapper string, i int) scenario { return old(age, l.large("W4", mapper, nodeCounts[i])) }
			sw := sweep{
				key: "fig8_nodes", title: "Fig. 8, nodes, W4", axis: "nodes", labels: nodeLabels, xs: nodeXs, logX: true, note: paperNote,
				lines: over(adaptive, nodes), over: one(static, nodes), shows: []measured{utilisation},
			}
			if age > 0 {
				sw.key, sw.title = metric("fig8_nodes_status", age.String()), "Fig. 8, nodes, W4, "+known(age)
				sw.note = "Ours: the paper says that AG's information gets worse with size; here it is old."
				sw.over = one(static, func(mapper string, i int) scenario { return l.large("W4", mapper, nodeCounts[i]) })
			}
			list = append(list, sw)
		}
		return list
	},
	tell: tellScalability,
}

func tellScalability(l *lab, s *shown) {
	grown := func(few, many, fewST, manyST scenario) []float64 {
		before, after := l.gains(few, fewST, utilisation), l.gains(many, manyST, utilisation)
		if before == nil || after == nil {
			return nil
		}
		return minus(after, before)
	}
	for _, p := range adaptive {
		few, many := gpuCounts[1], gpuCounts[3]
		s.claim("8", fmt.Sprintf("%s scales well over the GPUs of a node (margin over ST at %d less that at %d)", p.name, many, few), metric("claim_fig8_gpus", p.name, "margin_growth_points"), "points",
			grown(l.withGPUs(few, p.mapper), l.withGPUs(many, p.mapper), l.withGPUs(few, static.mapper), l.withGPUs(many, static.mapper)), exp.Above(0))
	}
	most := gpuCounts[len(gpuCounts)-1]
	s.claim("8", fmt.Sprintf("with more GPUs a node, static mapping leaves more of them unused (ST's use with %d a node less that with %d)", most, gpuCounts[0]), "claim_fig8_gpus_st_change_points", "points",
		l.gains(l.withGPUs(most, static.mapper), l.withGPUs(gpuCounts[0], static.mapper), utilisation), exp.Below(0))
	first, last := nodeCounts[0], nodeCounts[len(nodeCounts)-1]
	for _, age := range []time.Duration{0, 100 * time.Millisecond} {
		for _, p := range adaptive {
			few, many := l.large("W4", p.mapper, first), l.large("W4", p.mapper, last)
			values := grown(old(age, few), old(age, many), l.large("W4", static.mapper, first), l.large("W4", static.mapper, last))
			key := metric("claim_fig8_nodes_status", age.String(), p.name, "margin_growth_points")
			if p == randomised {
				s.claim("8", fmt.Sprintf("AR scales well over the nodes (margin over ST at %d less that at %d, %s; no more than 1 point lost)", last, first, known(age)), key, "points", values, exp.AtLeast(-1))
			} else {
				s.claim("8", fmt.Sprintf("AG does not scale well with the nodes (margin over ST at %d less that at %d, %s; more than 1 point lost)", last, first, known(age)), key, "points", values, exp.Below(-1))
			}
		}
	}
}

// Fig. 9: wrong information about other nodes.

var wrongs = []float64{0, 0.25, 0.5, 0.75, 1}

func (l *lab) wrong(workload string, positive, negative float64) scenario {
	s := l.plain(workload, randomised.mapper)
	s.status = kernels.Status{FalsePositive: positive, FalseNegative: negative}
	return s
}

var stalePart = part{
	name: "9", title: "Fig. 9: when what is known of other nodes is wrong",
	sweeps: func(l *lab) []sweep {
		positive, negative := stale("fig9_false_positive", "Fig. 9, AR, false positives", "part of the idle GPUs that seem busy"), stale("fig9_false_negative", "Fig. 9, AR, false negatives", "part of the busy GPUs that seem idle")
		for _, w := range mixes {
			positive.lines = append(positive.lines, line{w, func(i int) scenario { return l.wrong(w, wrongs[i], 0) }})
			negative.lines = append(negative.lines, line{w, func(i int) scenario { return l.wrong(w, 0, wrongs[i]) }})
		}
		list := []sweep{positive, negative}
		for k := range list {
			list[k].labels, list[k].xs, list[k].note = labels(wrongs), wrongs, paperNote
			list[k].baseline(l)
		}
		for _, p := range adaptive {
			aged := stale("fig9_delay_"+p.mapper, "Status that is old, "+p.name, "age of the status")
			aged.labels = labels(ages)
			for _, w := range withBoth {
				aged.lines = append(aged.lines, line{w, func(i int) scenario { return old(ages[i], l.plain(w, p.mapper)) }})
			}
			aged.note = "Ours: a real delay instead of ratios."
			aged.baseline(l)
			list = append(list, aged)
		}
		return list
	},
	tell: tellStale,
}

func stale(key, title, axis string) sweep {
	return sweep{key: key, title: title, axis: axis, shows: []measured{utilisation}}
}

// baseline compares each line with ST on the line's own workload.
func (sw *sweep) baseline(l *lab) {
	sw.overOwn = func(ln line) line {
		return line{static.name, func(int) scenario { return l.plain(ln.name, static.mapper) }}
	}
}

func tellStale(l *lab, s *shown) {
	lost := make([]float64, len(l.seeds))
	for _, w := range mixes {
		more := l.gains(l.wrong(w, 1, 0), l.wrong(w, 0, 1), utilisation)
		if more == nil {
			return
		}
		for i, v := range more {
			lost[i] += v / float64(len(mixes))
		}
		s.told = append(s.told, exp.Over(s.Title, metric("fig9", w, "all_false_positive_over_all_false_negative_points"), "points", more))
	}
	s.claim("9", "AR is more sensitive to false negatives than to false positives (what is lost more when all busy GPUs seem idle than when all idle ones seem busy, mean of W1 to W5)",
		"claim_fig9_false_negatives_cost_more_points", "points", lost, exp.Above(0))
}
