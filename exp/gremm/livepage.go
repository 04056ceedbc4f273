package gremm

import (
	"fmt"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
	"muster/report"
)

const (
	liveTitle = "GREMM on real nodes: W1 to W5 in small, with real programs"
	liveLead  = "Sixteen processes on four nodes with a software GPU each. Each process computes and launches kernels in turn; a mapper names the GPU of the cluster that runs the next one, and its data go there through " +
		"Muster's gateways. Beside it the simulator's prediction for the same processes."

	partLive      = "W1 to W5 on four nodes"
	partLiveError = "The simulator's prediction: by how much it is off"
	partLiveSetup = "The set-up"
)

// liveShown are the numbers of a run.
var liveShown = []measured{
	utilisation,
	{"wait_s", "mean waiting time, in the paper's", "s", func(o *outcome) float64 { return liveFaster * o.wait }, 2},
	{"kernels_per_s", "kernels finished a second", "1/s", kernelsDone, 1},
	remoteShare,
}

func (l *liveLab) result(missing []string) *exp.Result {
	r := live.NewReport(name, liveTitle, liveLead, l.liveNotes(), missing)
	rows, table := l.liveRows()
	r.Show(partLive, rows, table)
	for _, m := range liveShown[:2] {
		r.Add(l.liveBars(m))
	}
	r.Show(partLiveError, l.errorRows())
	r.Show(exp.ClaimsPart, l.liveClaims())
	r.Show(partLiveSetup, l.setupRows())
	return &r.Result
}

func (l *liveLab) liveNotes() []string {
	list := []string{
		fmt.Sprintf("Measured on %s. Four nodes (muster node) with a software GPU of %d million operations a second each, %d processes on each node, as the paper has for a GPU. Phases are %d times shorter than in the paper, "+
			"and data are as much for each millisecond of a kernel; %v of the paper's time were measured. CPU phases are sleeps.", bench.Machine(), liveRate/1_000_000, livePerNode, liveFaster, l.span),
		"As section 3.1 of the paper has it, processes bring their calls to a proxy: it asks the mapper, a value of package mapping as in the simulator, and lets one call at a time use a device. The program then copies its data to that GPU, " +
			"runs the kernel and fetches the results, on a device of its own node or over TLS on one of another (muster run --grant). Every result is checked. The nodes do not map kernels by themselves here.",
		"The prediction is of the same processes with the same draws, on a cluster with the latency and the bandwidth that calls were seen to have while nothing else ran.",
		"The nodes are connected by " + l.network + ".",
	}
	if l.noLink != "" {
		list = append(list, "Left out: links with a bandwidth. "+l.noLink+".")
	}
	if l.late > 0.0004 {
		list = append(list, fmt.Sprintf("The machine was busy with other things: it woke sleepers %.1f ms late on average, which is %.0f ms of the paper's time, at every message.", 1e3*l.late, 1e3*l.late*liveFaster))
	}
	return list
}

// liveRows are what was measured, with the predictions.
func (l *liveLab) liveRows() ([]exp.Row, *report.Table) {
	var rows []exp.Row
	t := &report.Table{Title: "Measured, and {predicted}", Columns: []report.Column{{Name: "workload"}, {Name: "mapper"}}}
	for _, m := range liveShown {
		t.Columns = append(t.Columns, report.Column{Name: m.title + ", " + m.unit, Right: true})
	}
	l.each(func(r liveRun, p policy) {
		cells := []string{r.workload, p.name}
		for _, m := range liveShown {
			real := l.values(r, func(f *liveFound) float64 { return m.of(&f.real) })
			predicted := l.values(r, func(f *liveFound) float64 { return m.of(&f.predicted) })
			says := report.IntervalOf(predicted).Mean
			rows = append(rows, exp.Over(partLive, metric("live", r.workload, p.name, m.key), m.unit, real).Noting("the simulator: %.*f", m.digits, says))
			cells = append(cells, fmt.Sprintf("%.*f {%.*f}", m.digits, report.IntervalOf(real).Mean, m.digits, says))
		}
		t.Rows = append(t.Rows, cells)
	})
	return rows, t
}

// liveBars draw a number, measured and predicted.
func (l *liveLab) liveBars(m measured) *report.Bars {
	b := &report.Bars{Title: m.title, YLabel: m.unit, Note: "The outlines are the simulator's predictions. " + paperNote}
	groups := map[string]int{}
	l.each(func(r liveRun, _ policy) {
		if _, known := groups[r.workload]; !known {
			groups[r.workload] = len(b.Groups)
			b.Groups = append(b.Groups, r.workload)
		}
	})
	for _, p := range ofPaper {
		real, predicted := report.BarSeries{Name: p.name}, report.BarSeries{Name: p.name + ", predicted", Reference: true}
		for _, w := range b.Groups {
			a, b := nothing, nothing
			if r := (liveRun{w, p.mapper}); len(l.found[r]) > 0 {
				a = report.IntervalOf(l.values(r, func(f *liveFound) float64 { return m.of(&f.real) })).Mean
				b = report.IntervalOf(l.values(r, func(f *liveFound) float64 { return m.of(&f.predicted) })).Mean
			}
			real.Values, predicted.Values = append(real.Values, a), append(predicted.Values, b)
		}
		b.Series = append(b.Series, predicted, real)
	}
	return b
}

// errorRows are by how much predictions are off.
func (l *liveLab) errorRows() []exp.Row {
	var rows []exp.Row
	for _, m := range []measured{utilisation, liveShown[2]} {
		l.each(func(r liveRun, p policy) {
			values := l.values(r, off(m.of))
			for i := range values {
				values[i] *= 100
			}
			rows = append(rows, exp.Over(partLiveError, metric("live_off", r.workload, p.name, m.key), "%", values).Noting("of the %s, predicted over measured less 1", m.title))
		})
		good, all := l.good(m.of)
		rows = append(rows, exp.Over(partLiveError, "live_good_"+m.key, fmt.Sprintf("of %d", all), []float64{float64(good)}).
			Noting("runs whose prediction of the %s is within %.0f %%; the worst is %.1f %% off", m.title, 100*goodPrediction, 100*l.mostOff(m.of)))
	}
	return rows
}

// liveClaims are statements of the paper on Fig. 2, and ours on the prediction.
func (l *liveLab) liveClaims() []exp.Row {
	var rows []exp.Row
	gain := func(w string, p policy) ([]float64, bool) {
		a, b := l.found[liveRun{w, p.mapper}], l.found[liveRun{w, static.mapper}]
		if len(a) == 0 || len(b) < len(a) {
			return nil, false
		}
		list := make([]float64, len(a))
		for i := range a {
			list[i] = a[i].real.utilisation - b[i].real.utilisation
		}
		return list, true
	}
	for _, w := range withBoth {
		for _, p := range dynamic {
			if gains, ok := gain(w, p); ok {
				row := exp.Over(exp.ClaimsPart, "", "points", gains)
				v := exp.Above(0)(row)
				rows = append(rows, v.Row(metric("live", w, p.name, "over_st")).Noting("%s: %s uses the GPUs more than ST on %s (by %.1f points)", v, p.name, w, row.Ours))
			}
		}
	}
	if good, all := l.good(utilisation.of); all > 0 {
		v := exp.Holds(good == all)
		rows = append(rows, v.Row("live_predicted").Noting("%s: the simulator predicts the utilisation of every run within %.0f %% (%d of %d)", v, 100*goodPrediction, good, all))
	}
	return rows
}

// setupRows are what calls were seen to take.
func (l *liveLab) setupRows() []exp.Row {
	single := func(key, unit string, value float64, note string) exp.Row {
		return exp.Over(partLiveSetup, "live_"+key, unit, []float64{value}).Noting("%s", note)
	}
	return []exp.Row{
		single("call_ms", "ms", 1e3*l.profile.start, "what a call on the own node takes besides its turns; it is part of the kernel's time"),
		single("latency_ms", "ms", 1e3*l.profile.latency, "what a call on another node takes besides").Against(1),
		single("bandwidth_mbs", "MB/s", l.profile.bandwidth/1e6, "of what is sent to another node").Against(float64(gbe) / 1e6),
	}
}
