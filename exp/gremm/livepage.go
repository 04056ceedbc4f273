package gremm

import (
	"fmt"
	"strings"

	"muster/exp"
	"muster/report"
)

const (
	liveTitle = "GREMM on real nodes: W1 to W5 in small, with real programs"
	liveLead  = "Sixteen processes on four nodes with a software GPU each. Each process computes and launches kernels in turn; a mapper names the GPU of the cluster that runs the next one, and its data go there through " +
		"Muster's gateways. Beside it the simulator's prediction for the same processes."

	partLive      = "W1 to W5 on four nodes"
	partLiveOwn   = "One node with four GPUs that maps launches itself"
	partLiveError = "The simulator's prediction: by how much it is off"
	partLiveSetup = "The set-up"
)

// liveColumn is one of the numbers of a run.
type liveColumn struct {
	key, title, unit string
	of               func(*liveNumbers) float64
	digits           int
}

var (
	liveUse     = liveColumn{"utilisation_pct", "GPU utilisation", "%", func(n *liveNumbers) float64 { return n.Utilisation }, 1}
	liveWait    = liveColumn{"wait_s", "mean waiting time", "s", func(n *liveNumbers) float64 { return n.Wait }, 2}
	liveKernels = liveColumn{"kernels_per_s", "kernels finished a second", "1/s", func(n *liveNumbers) float64 { return n.Kernels }, 2}
	liveRemote  = liveColumn{"remote_pct", "kernels on another node", "%", func(n *liveNumbers) float64 { return n.Remote }, 1}
	liveColumns = []liveColumn{liveUse, liveWait, liveKernels, liveRemote}
)

// means are the means of the measured and of the predicted numbers.
func (c *liveColumn) means(runs []liveRun) (real, predicted float64) {
	return report.IntervalOf(c.real(runs)).Mean, report.IntervalOf(exp.Values(runs, func(r *liveRun) float64 { return c.of(&r.Predicted) })).Mean
}

// real lists the measured numbers, one per run.
func (c *liveColumn) real(runs []liveRun) []float64 {
	return exp.Values(runs, func(r *liveRun) float64 { return c.of(&r.Real) })
}

func (m *liveMeasured) result() *exp.Result {
	r := exp.NewReport(name, liveTitle, liveLead, m.notes(), strings.Join(m.Missing, "; "))
	rows, table := liveRows(partLive, "live", m.Runs)
	r.Show(partLive, rows, table)
	r.Add(m.bars(&liveUse), m.bars(&liveWait))
	if len(m.Own) > 0 {
		rows, table := liveRows(partLiveOwn, "live_own", m.Own)
		r.Show(partLiveOwn, rows, table)
	}
	r.Show(partLiveError, m.errorRows())
	r.Show(exp.ClaimsPart, m.claimRows())
	r.Show(partLiveSetup, m.setupRows())
	return &r.Result
}

func (m *liveMeasured) notes() []string {
	list := []string{
		fmt.Sprintf("Measured on %s. Four nodes (muster node) with a software GPU of %d million operations a second each, %d processes on each node, as the paper has for a GPU. Phases are %d times shorter than in the paper, "+
			"and data are as much for each millisecond of a kernel; %.0f s of the paper's time were measured, and numbers are in its time. CPU phases are sleeps.", m.Machine, liveRate/1_000_000, livePerNode, liveFaster, m.Span),
		"As section 3.1 of the paper has it, processes bring their calls to a proxy: it asks the mapper, a value of package mapping as in the simulator, and lets one call at a time use a device. The program then copies its data to that GPU, " +
			"runs the kernel and fetches the results, on a device of its own node or over TLS on one of another (muster run --grant). Every result is checked.",
		"The prediction is of the same processes with the same draws, on a cluster with the latency and the bandwidth that calls were seen to have while nothing else ran.",
		"The nodes are connected by " + m.Network + ".",
	}
	if m.NoOwn != "" {
		line, _, _ := strings.Cut(m.NoOwn, "\n")
		list = append(list, "Left out: a node that maps the launches of its programs itself (muster run --mapping). "+line+".")
	} else if len(m.Own) > 0 {
		list = append(list, "\""+partLiveOwn+"\": programs that see one GPU launch kernels, and their node decides which of its four runs each (muster run --mapping). Which GPU that was is the node's to know, so no kernel counts as remote.")
	}
	if m.NoLink != "" {
		list = append(list, "Left out: links with a bandwidth. "+m.NoLink+".")
	}
	late := report.IntervalOf(exp.Values(m.Runs, func(r *liveRun) float64 { return r.Late })).Mean
	list = append(list, fmt.Sprintf("A run during which the machine woke sleepers more than %.1f ms late was made again, while there was patience (--patience). In the runs that count it woke them %.2f ms late on average, which is %.0f ms of the paper's time, and a "+
		"call wakes five. The simulator knows nothing of that.", 1e3*tooLate, 1e3*late, 1e3*late*liveFaster))
	return list
}

// liveRows are the measured numbers, with the predictions in their notes.
func liveRows(part, key string, runs []liveRun) ([]exp.Row, *report.Table) {
	var rows []exp.Row
	t := &report.Table{Title: part + ": measured, and {predicted}", Columns: []report.Column{{Name: "workload"}, {Name: "mapper"}}}
	for _, c := range liveColumns {
		t.Columns = append(t.Columns, report.Column{Name: c.title + ", " + c.unit, Right: true})
	}
	each(runs, func(w string, p policy, runs []liveRun) {
		cells := []string{w, p.name}
		for _, c := range liveColumns {
			real, predicted := c.means(runs)
			rows = append(rows, exp.Over(part, metric(key, w, p.name, c.key), c.unit, c.real(runs)).Noting("the simulator: %.*f", c.digits, predicted))
			cells = append(cells, fmt.Sprintf("%.*f {%.*f}", c.digits, real, c.digits, predicted))
		}
		t.Rows = append(t.Rows, cells)
	})
	return rows, t
}

// bars draw a measured number, with its prediction as an outline.
func (m *liveMeasured) bars(c *liveColumn) *report.Bars {
	b := &report.Bars{Title: c.title, YLabel: c.unit, Note: "The outlines are the simulator's predictions. " + paperNote, Groups: mixes}
	for _, p := range ofPaper {
		ours, outlines := report.BarSeries{Name: p.name}, report.BarSeries{Name: p.name + ", predicted", Reference: true}
		for _, w := range mixes {
			real, predicted := exp.Nothing, exp.Nothing
			if runs := pick(m.Runs, w, p.mapper); len(runs) > 0 {
				real, predicted = c.means(runs)
			}
			ours.Values, outlines.Values = append(ours.Values, real), append(outlines.Values, predicted)
		}
		b.Series = append(b.Series, outlines, ours)
	}
	return b
}

// errorRows are the errors of the predictions.
func (m *liveMeasured) errorRows() []exp.Row {
	var rows []exp.Row
	for _, c := range []*liveColumn{&liveUse, &liveKernels} {
		each(m.Runs, func(w string, p policy, runs []liveRun) {
			values := exp.Values(runs, func(r *liveRun) float64 { return 100 * c.off(r) })
			rows = append(rows, exp.Over(partLiveError, metric("live_off", w, p.name, c.key), "%", values).Noting("of the %s, predicted over measured less 1", c.title))
		})
		for _, of := range []struct {
			key, which string
			runs       []liveRun
		}{{"", "", m.Runs}, {"_quieter", ", of the half that was disturbed least", quieter(m.Runs)}} {
			within, worst := good(of.runs, c)
			rows = append(rows, exp.Single(partLiveError, "live_good_"+c.key+of.key, fmt.Sprintf("of %d", len(of.runs)), float64(within)).
				Noting("runs whose prediction of the %s is within %.0f %%%s; the worst is %.1f %% off", c.title, 100*goodPrediction, of.which, 100*worst))
		}
	}
	return rows
}

// liveClaim is a statement with its verdict and the number that decides it.
type liveClaim struct {
	id, says, because string
	verdict           exp.Verdict
}

// claims are the paper's statements on Fig. 2, and ours on the quality of the prediction.
func (m *liveMeasured) claims() []liveClaim {
	var list []liveClaim
	for _, w := range withBoth {
		for _, p := range dynamic {
			runs, other := pick(m.Runs, w, p.mapper), pick(m.Runs, w, static.mapper)
			if len(runs) == 0 || len(other) != len(runs) {
				continue
			}
			row := exp.Over(partLive, "", "points", minus(liveUse.real(runs), liveUse.real(other)))
			list = append(list, liveClaim{metric("live", w, p.name, "over_st"), fmt.Sprintf("%s uses the GPUs more than ST on %s", p.name, w), fmt.Sprintf("%+.1f points", row.Ours), exp.Above(0)(row)})
		}
	}
	for _, of := range []struct {
		id, which string
		runs      []liveRun
	}{{"live_predicted", "", m.Runs}, {"live_predicted_quieter", ", in the half of the runs that was disturbed least", quieter(m.Runs)}} {
		within, worst := good(of.runs, &liveUse)
		list = append(list, liveClaim{of.id, fmt.Sprintf("ours: the simulator predicts the use of the GPUs within %.0f %%%s", 100*goodPrediction, of.which),
			fmt.Sprintf("%d of %d runs; the worst is %.1f %% off", within, len(of.runs), 100*worst), exp.Holds(within == len(of.runs))})
	}
	return list
}

func (m *liveMeasured) claimRows() []exp.Row {
	var rows []exp.Row
	for _, c := range m.claims() {
		rows = append(rows, c.verdict.Told(c.id, "", c.says, c.because))
	}
	return rows
}

// setupRows are the measured costs of calls.
func (m *liveMeasured) setupRows() []exp.Row {
	single := func(key, unit string, value float64, note string) exp.Row {
		return exp.Single(partLiveSetup, "live_"+key, unit, value).Noting("%s", note)
	}
	return []exp.Row{
		single("call_ms", "ms", 1e3*m.Profile.Start, "what a call on the own node takes besides its turns; it is part of the kernel's time"),
		single("latency_ms", "ms", 1e3*m.Profile.Latency, "what a call on another node takes besides").Against(1),
		single("bandwidth_mbs", "MB/s", m.Profile.Bandwidth/1e6, "of what is sent to another node").Against(float64(gbe) / 1e6),
	}
}
