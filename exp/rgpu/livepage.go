package rgpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/live"
	"muster/report"
)

const (
	liveLead = "The paper's jobs on a real Slurm with eight emulated nodes: real CUDA programs on software GPUs, of the job's own nodes (Slurm's own scheduler) and borrowed from any node, whole or in shares (Muster's driver and plug-in); " +
		"and the simulator's prediction of each run."

	livePart      = "On a real Slurm"
	liveErrors    = "The simulator's prediction: by how much it is off"
	liveBurst     = "The burst of submissions"
	liveScheduled = "What scheduling cost"
)

// liveColumn is one of the numbers of a run.
type liveColumn struct {
	metric, title, unit string
	digits              int
	of                  func(*liveNumbers) float64
}

var liveColumns = []liveColumn{
	{"time_s", "time, s", "s", 0, func(n *liveNumbers) float64 { return n.seconds }},
	{"jobs_per_min", "jobs/min", "jobs/min", 2, func(n *liveNumbers) float64 { return n.perMinute }},
	{"wait_s", "wait, s", "s", 0, func(n *liveNumbers) float64 { return n.wait }},
	{"slowdown", "slowdown", "", 2, func(n *liveNumbers) float64 { return n.slowdown }},
	{"gpu_allocated_pct", "GPUs allocated, %", "%", 1, func(n *liveNumbers) float64 { return exp.Mean(n.allocated) }},
	{"cores_pct", "cores used, %", "%", 1, func(n *liveNumbers) float64 { return n.cores }},
	{"fragmentation", "fragm.", "blocks", 2, func(n *liveNumbers) float64 { return n.fragmentation }},
	{"spread", "spread", "", 2, func(n *liveNumbers) float64 { return n.spread }},
}

// result makes rows, tables, notes and the page.
func (l *liveLab) result(missing []string) *exp.Result {
	r := exp.NewReport(name, title+", on a real Slurm", liveLead, l.notes(), strings.Join(missing, "; "))
	rows, table := l.columnRows()
	r.Show(livePart, rows, table)
	if len(rows) > 0 {
		r.Add(l.bars())
	}
	r.Show(exp.ClaimsPart, l.claimRows())
	r.Show(liveErrors, l.errorRows())
	r.Show(liveBurst, l.burstRows())
	r.Show(liveScheduled, l.loadRows())
	return &r.Result
}

// each calls f for every trial that was measured, in order.
func (l *liveLab) each(f func(t liveTrial, m liveMode, found []liveFound)) {
	for _, hours := range l.hours {
		for _, gpus := range l.gpus {
			for _, m := range liveModes {
				t := liveTrial{hours, m.key, gpus}
				if found := l.found[t]; found != nil {
					f(t, m, found)
				}
			}
		}
	}
}

func (t liveTrial) key() string { return fmt.Sprintf("%dh_%dgpu_%s", t.hours, t.gpus, t.mode) }

func realOf(of func(*liveNumbers) float64) func(*liveFound) float64 {
	return func(f *liveFound) float64 { return of(&f.real) }
}

func predictedOf(of func(*liveNumbers) float64) func(*liveFound) float64 {
	return func(f *liveFound) float64 { return of(&f.predicted) }
}

// columnRows are all measured numbers.
func (l *liveLab) columnRows() ([]exp.Row, *report.Table) {
	var rows []exp.Row
	t := &report.Table{
		Title:   "Measured, and {the simulator's prediction}, in the paper's time",
		Columns: []report.Column{{Name: "workload"}, {Name: "GPUs", Right: true}, {Name: "mode"}, {Name: "jobs", Right: true}, {Name: "speed-up", Right: true, Help: "The original's time over this one."}},
		Note:    "The prediction has what starting a job takes, measured on an idle cluster. GPUs allocated: the part of the time for which somebody had them, as in Table V.",
	}
	for _, c := range liveColumns {
		t.Columns = append(t.Columns, report.Column{Name: c.title, Right: true})
	}
	l.each(func(trial liveTrial, m liveMode, found []liveFound) {
		cells := []string{fmt.Sprintf("%d hours", trial.hours), fmt.Sprint(trial.gpus), m.title, fmt.Sprint(len(found[0].out.Jobs))}
		if gains := l.speedups(trial); gains != nil {
			cells = append(cells, fmt.Sprintf("%.2f", exp.Mean(gains)))
			if m.key != cuda {
				rows = append(rows, exp.Over(livePart, "live_"+trial.key()+"_speedup", "x", gains).Noting("the original's time over this one"))
			}
		} else {
			cells = append(cells, "-")
		}
		for _, c := range liveColumns {
			real, predicted := exp.Values(found, realOf(c.of)), exp.Values(found, predictedOf(c.of))
			row := exp.Over(livePart, "live_"+trial.key()+"_"+c.metric, c.unit, real).Noting("the simulator: %.*f", c.digits, exp.Mean(predicted))
			if theirs := l.paperShares(trial); c.metric == "gpu_allocated_pct" && theirs != nil {
				row = row.Against(exp.Mean(theirs))
			}
			rows = append(rows, row)
			cells = append(cells, fmt.Sprintf("%.*f {%.*f}", c.digits, exp.Mean(real), c.digits, exp.Mean(predicted)))
		}
		t.Rows = append(t.Rows, cells)
	})
	return rows, t
}

// paperShares is the line of Table V for a trial that ran the whole workload; nil for any other.
func (l *liveLab) paperShares(t liveTrial) []float64 {
	for _, line := range table5 {
		if t.mode == rcuda && l.jobs == 0 && line.setting.launch == "throughput" && line.setting.gpus == t.gpus && line.hours == t.hours {
			return line.percent
		}
	}
	return nil
}

// speedups are the time in the original mode divided by that in the trial's mode, seed by seed; nil
// if one of them is missing.
func (l *liveLab) speedups(t liveTrial) []float64 {
	native, found := l.found[liveTrial{t.hours, cuda, t.gpus}], l.found[t]
	var list []float64
	for i := range min(len(native), len(found)) {
		list = append(list, native[i].real.seconds/found[i].real.seconds)
	}
	return list
}

// bars show the execution times, as the paper's figures do.
func (l *liveLab) bars() *report.Bars {
	b := &report.Bars{Title: "Execution time, in the paper's", YLabel: "s", Note: "Predicted: the simulator, with what a start takes.",
		Series: []report.BarSeries{{Name: "measured"}, {Name: "predicted"}}}
	l.each(func(t liveTrial, _ liveMode, found []liveFound) {
		b.Groups = append(b.Groups, fmt.Sprintf("%d h, %d GPUs, %s", t.hours, t.gpus, t.mode))
		time := liveColumns[0].of
		b.Series[0].Values = append(b.Series[0].Values, exp.Mean(exp.Values(found, realOf(time))))
		b.Series[1].Values = append(b.Series[1].Values, exp.Mean(exp.Values(found, predictedOf(time))))
	})
	return b
}

// errorRows are the errors of the simulator's predictions.
func (l *liveLab) errorRows() []exp.Row {
	var rows []exp.Row
	l.each(func(t liveTrial, _ liveMode, found []liveFound) {
		for _, c := range liveColumns {
			if list := live.Errors(exp.Values(found, realOf(c.of)), exp.Values(found, predictedOf(c.of))); len(list) > 0 {
				rows = append(rows, exp.Over(liveErrors, "error_"+t.key()+"_"+c.metric, "%", list))
			}
		}
	})
	return rows
}

// claimRows are the verdicts on the paper's claims.
func (l *liveLab) claimRows() []exp.Row {
	var rows []exp.Row
	add := func(id string, v exp.Verdict, says, because string) {
		rows = append(rows, v.Told(id, "", says, because))
	}
	for _, h := range l.hours {
		key := func(id string) string { return fmt.Sprintf("%s_%dh", id, h) }
		if gains := l.speedups(liveTrial{h, rcuda, 4}); gains != nil {
			v := exp.AboveOne(gains)
			if v == exp.Confirmed && exp.Mean(gains) <= 2 {
				v = exp.Direction
			}
			add(key("twice_on_four"), v, "on 4 GPUs shared ones are more than 2 times as fast as the original", fmt.Sprintf("%.2f times", exp.Mean(gains)))
		}
		kept, keptNative := l.kept(h, rcuda), l.kept(h, cuda)
		if kept != nil {
			v, because := exp.Refuted, fmt.Sprintf("%.0f %% of it", exp.Mean(kept))
			switch {
			case exp.Mean(kept) >= 90:
				v = exp.Confirmed
			case keptNative != nil && exp.Mean(kept) > exp.Mean(keptNative):
				v = exp.Direction
			}
			if keptNative != nil {
				because += fmt.Sprintf("; the original keeps %.0f %%", exp.Mean(keptNative))
			}
			add(key("kept"), v, "shared GPUs keep their throughput from 8 to 4", because)
		}
		few, many := l.found[liveTrial{h, rcuda, 4}], l.found[liveTrial{h, rcuda, 8}]
		if few != nil && many != nil {
			share := func(f *liveFound) float64 { return exp.Mean(f.real.allocated) }
			a, b := exp.Mean(exp.Values(few, share)), exp.Mean(exp.Values(many, share))
			v := exp.Holds(a > b)
			if v == exp.Confirmed && a < 95 {
				v = exp.Direction
			}
			add(key("allocated"), v, "on 4 GPUs they are allocated 97.7 to 99.6 % of the time, on 8 less (Table V)", fmt.Sprintf("%.1f %% on 4, %.1f %% on 8", a, b))
		}
	}
	if b := l.bursts[true]; b != nil {
		add("burst", exp.Holds(b.refused == 0 && b.out.Counts.Wrong == 0), "ours: the burst of submissions that overflowed the authors' controller does not hurt",
			fmt.Sprintf("%d of %d submissions refused, %d jobs on wrong nodes", b.refused, b.jobs, b.out.Counts.Wrong))
	}
	return rows
}

// kept is the percentage of the throughput on 8 GPUs that remains on 4, seed by seed.
func (l *liveLab) kept(hours int, mode string) []float64 {
	all, few := l.found[liveTrial{hours, mode, 8}], l.found[liveTrial{hours, mode, 4}]
	var list []float64
	for i := range min(len(all), len(few)) {
		list = append(list, 100*few[i].real.perMinute/all[i].real.perMinute)
	}
	return list
}

// burstRows describe the burst, with Slurm's own scheduler and with Muster's driver.
func (l *liveLab) burstRows() []exp.Row {
	var rows []exp.Row
	for _, driven := range []bool{false, true} {
		b := l.bursts[driven]
		if b == nil {
			continue
		}
		key, who := "burst_slurm_", "Slurm alone"
		if driven {
			key, who = "burst_muster_", "Slurm with Muster's driver, each job with a share of a GPU"
		}
		one := func(metric, unit string, v float64, note string) {
			rows = append(rows, exp.Single(liveBurst, key+metric, unit, v).Noting("%s: %s", who, note))
		}
		one("submitted_per_s", "jobs/s", float64(b.jobs-b.refused)/b.submit.Seconds(), fmt.Sprintf("%d jobs, %d sbatch at a time", b.jobs, burstWide))
		one("refused", "jobs", float64(b.refused), "submissions that sbatch gave up")
		one("all_s", "s", b.all.Seconds(), "from the first submission to the end of the last job, in real time")
		one("slurmctld_ms_job", "ms", 1e3*b.out.Controller.Seconds()/float64(b.jobs), "processor time of slurmctld a job, submission included")
		if driven {
			one("wrong", "jobs", float64(b.out.Counts.Wrong), "on other nodes than they were placed on")
		}
	}
	return rows
}

// costs of scheduling.
var costs = []live.Cost{
	{Metric: "slurmctld_ms_job", Unit: "ms", Of: live.ControllerPerJob, Note: "processor time of slurmctld a job"},
	{Metric: "latency_s", Unit: "s", Of: live.Latency, Note: "median, from the answer to a placement to the job's first command, its GPUs included"},
	{Metric: "wrong_nodes", Unit: "jobs", Of: live.Wrong, Note: "on other nodes than they were placed on"},
}

func (l *liveLab) loadRows() []exp.Row {
	var rows []exp.Row
	l.each(func(t liveTrial, m liveMode, found []liveFound) {
		rows = append(rows, live.CostRows(liveScheduled, t.key(), m.policy != "", outcomes(found), costs)...)
	})
	return rows
}

// outcomes are those of some runs.
func outcomes(list []liveFound) []*live.Outcome {
	var out []*live.Outcome
	for i := range list {
		out = append(out, list[i].out)
	}
	return out
}

func (l *liveLab) notes() []string {
	list := []string{
		fmt.Sprintf("A real Slurm %s with %d emulated nodes of %d cores, of which 8, 6 or 4 have a GPU; a fresh one for each run. Jobs are submitted with the options of Table IV, before the first may start. The original mode is Slurm's own backfill with "+
			"--gres=gpu; in the others Muster's driver places all jobs with the policy rgpu, and its plug-in gives each job's programs their GPUs (docs/slurm-gpus.md).", l.slurm, liveNodes, liveCores),
		fmt.Sprintf("GPU-Blast, LAMMPS and MCUDA-MEME are 1, 5 and 4 processes of examples/cuda/%s, a CUDA program that checks its results, on software GPUs; GROMACS, which uses none, sleeps. GPU-Blast and LAMMPS keep a GPU busy half of their time (a guess), MCUDA-MEME "+
			"%.0f %% (--meme; docs/papers.md has why there are three readings). Jobs take Table I's times on GPUs that nobody shares. All processes of a job are started on its first node; they use the GPUs of all its nodes.", gpuProgram, 100*l.meme),
		fmt.Sprintf("Time runs %g times faster than in the paper, and times are given in the paper's. What Slurm, the plug-in and CUDA take does not shrink with it. From the end of a job to the first command of the next one on its node: %.2f s with Slurm's scheduler, %.2f s "+
			"with Muster's driver and plug-in. The simulator is told that, and what each application took alone, on GPUs of its nodes and on borrowed ones (Table I in this time): %s.", l.speed, l.start[false].Seconds(), l.start[true].Seconds(), l.aloneWords()),
		live.MeasuredNote("daemons, GPUs and jobs", outcomes(slices.Concat(slices.Collect(maps.Values(l.found))...))),
	}
	if l.jobs > 0 {
		list = append(list, fmt.Sprintf("About %d jobs in the proportions of Table II; the paper had 71, 168 and 327. --full runs as many, at the paper's speed.", l.jobs))
	}
	return list
}

// aloneWords lists the run times of applications alone.
func (l *liveLab) aloneWords() string {
	var list []string
	for app := range profiled {
		list = append(list, fmt.Sprintf("%s %.2f and %.2f s (%.2f)", applications[app].name, l.alone[alone{app, false}].Seconds(), l.alone[alone{app, true}].Seconds(), l.job(app).own.Seconds()))
	}
	return strings.Join(list, ", ")
}
