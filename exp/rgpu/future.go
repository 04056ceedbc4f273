package rgpu

import (
	"fmt"
	"math"

	"muster/exp"
	"muster/report"
)

// Twelve MCUDA-MEME on four nodes: the cost of sharing when all jobs want the GPUs all the time.

var (
	twelve       = scenario{hours: 2, setting: onFour, mode: rcuda, policy: "rgpu", only: "MCUDA-MEME"}
	twelveInTurn = scenario{hours: 2, setting: onFour, mode: cuda, policy: "slurm", only: "MCUDA-MEME"}
)

// onlyCount is the number of jobs in a run of a single application.
const onlyCount = 12

func twelveRows(l *lab) []exp.Row {
	var rows []exp.Row
	for _, one := range []struct {
		scenario scenario
		metric   string
		paper    float64
		note     string
	}{
		{twelve, "twelve_meme_at_once_s", paperTwelveAtOnce, "twelve MCUDA-MEME share the same four GPUs; how busy one keeps a GPU was chosen for it"},
		{twelveInTurn, "twelve_meme_in_turn_s", paperTwelveInTurn, "one after the other"},
	} {
		if found := l.Found[one.scenario]; found != nil {
			rows = append(rows, exp.Over(figuresTitle, one.metric, "s", exp.Values(found, seconds)).Against(one.paper).Noting("%s", one.note))
		}
	}
	return rows
}

// What the authors left for future work: GPUs chosen by more than their memory.

// selections of the policy rgpu; the first is the paper's.
var selections = []string{"memory", "intensity", "speed", "distance", "all"}

// clusters on which the selections are tried.
var clusters = []string{likePaper, twoSpeeds, twoSwitches, bothVaried}

func clusterTitle(kind string) string {
	if kind == likePaper {
		return "the paper's cluster"
	}
	return kind
}

func selecting(how, cluster string, s setting, hours int) scenario {
	out := with(rcuda, s, hours)
	out.policy, out.cluster, out.traffic = "rgpu:select="+how, cluster, true
	return out
}

var selectPart = part{Name: "select", Wants: wantSelect, Show: showSelect}

const selectTitle = "Beyond the paper: GPUs chosen by compute intensity, speed and distance too"

// selectSettings: with fewer GPUs a bad choice costs more.
var selectSettings = []setting{onEight, onFour}

func wantSelect(*lab) []scenario {
	var list []scenario
	for _, cluster := range clusters {
		for _, set := range selectSettings {
			for _, h := range workloads {
				for _, how := range selections {
					list = append(list, selecting(how, cluster, set, h))
				}
			}
		}
	}
	return list
}

func showSelect(l *lab) exp.Shown {
	s := exp.Shown{Title: selectTitle}
	t := &report.Table{
		Title:   selectTitle,
		Columns: []report.Column{{Name: "cluster"}, {Name: "GPUs", Right: true}, {Name: "workload"}, {Name: selections[0] + ", s", Right: true}},
		Note:    "Execution time with the paper's choice by memory, and how much less it is, in %, when GPUs are chosen by more. Means over the seeds.",
	}
	for _, how := range selections[1:] {
		t.Columns = append(t.Columns, report.Column{Name: how + ", %", Right: true})
	}
	s.Tables = []*report.Table{t}
	for _, cluster := range clusters {
		bars := &report.Bars{Title: "Execution time on " + clusterTitle(cluster), YLabel: "s", Note: "Lines: the least and the most of the seeds."}
		if cluster == twoSwitches || cluster == bothVaried {
			bars.Note += fmt.Sprintf(" A GPU on the other switch costs %d times as much to reach.", farFactor)
		}
		for _, how := range selections {
			bars.Series = append(bars.Series, report.BarSeries{Name: how})
		}
		for _, set := range selectSettings {
			for _, h := range workloads {
				base := l.Found[selecting(selections[0], cluster, set, h)]
				if base == nil {
					continue
				}
				bars.Groups = append(bars.Groups, fmt.Sprintf("%d GPUs, %d h", set.gpus, h))
				cells := []string{clusterTitle(cluster), fmt.Sprint(set.gpus), fmt.Sprintf("%d hours", h), report.Number(math.Round(exp.Mean(exp.Values(base, seconds))))}
				for i, how := range selections {
					found := l.Found[selecting(how, cluster, set, h)]
					exp.AddBar(&bars.Series[i], exp.Values(found, seconds))
					if found == nil {
						cells = append(cells, "-")
						continue
					}
					key := fmt.Sprintf("select_%s%s_%dh_%s", clusterKey(cluster), set.name, h, how)
					s.Rows = append(s.Rows, exp.Over(selectTitle, key+"_time_s", "s", exp.Values(found, seconds)).Noting("on %s", clusterTitle(cluster)))
					if i > 0 {
						cells = append(cells, fmt.Sprintf("%+.1f", exp.Mean(gains(base, found, seconds))))
						s.Rows = append(s.Rows, exp.Over(selectTitle, key+"_gain_pct", "%", gains(base, found, seconds)).
							Noting("less execution time than with memory alone, on %s", clusterTitle(cluster)),
							exp.Over(selectTitle, key+"_run_gain_pct", "%", gains(base, found, func(o *outcome) float64 { return o.run })).
								Noting("less mean run time of a job"))
					}
				}
				t.Rows = append(t.Rows, cells)
			}
		}
		if len(bars.Groups) > 0 {
			s.Pictures = append(s.Pictures, bars)
		}
	}
	return told(s)
}

// waitingCosts says by how much select=all lengthens the makespan, and why; "" if it was not run or
// does not.
func (l *lab) waitingCosts() string {
	worst, least, most := 0.0, math.Inf(1), math.Inf(-1)
	for _, cluster := range clusters {
		for _, h := range workloads {
			base, all := l.Found[selecting("memory", cluster, onFour, h)], l.Found[selecting("all", cluster, onFour, h)]
			if base == nil || all == nil {
				continue
			}
			worst = min(worst, exp.Mean(gains(base, all, seconds)))
			sooner := exp.Mean(gains(base, all, func(o *outcome) float64 { return o.wait + o.run }))
			least, most = min(least, sooner), max(most, sooner)
		}
	}
	if worst == 0 {
		return ""
	}
	return fmt.Sprintf("On 4 GPUs select=all takes up to %.1f %% longer until all is done. It alone lets a job wait for a GPU that is less crowded; but MCUDA-MEME and LAMMPS ask for all four, so there is no better one, "+
		"and a GPU that fewer share is idle while they move their data, the more so if it is far. Without that waiting it would be about as fast as select=memory. A job is done sooner on average: %.0f to %.0f %% less from submission to end.",
		-worst, least, most)
}

// clusterKey is the cluster's part of metric names.
func clusterKey(kind string) string {
	return map[string]string{likePaper: "", twoSpeeds: "speeds_", twoSwitches: "switches_", bothVaried: "both_"}[kind]
}

// gains are the savings of other against base in per cent, seed by seed.
func gains(base, other []outcome, of func(*outcome) float64) []float64 {
	out := ratios(other, base, of)
	for i := range out {
		out[i] = 100 * (1 - out[i])
	}
	return out
}

// The burst: all jobs are submitted at once, which overflowed the authors' controller.

var burstPart = part{Name: "burst", Wants: wantBurst, Show: showBurst}

const burstTitle = "All jobs at once, against submissions that are delayed as the authors had to"

// delayed is the generator's setting for submissions one after the other. The paper does not say
// how long its delays were; these grow from 0 to 1 s.
const delayed = "delay=1s"

func inABurst(mode string, hours int) (burst, slow scenario) {
	burst = with(mode, onEight, hours)
	slow = burst
	slow.jobs = delayed
	return burst, slow
}

func wantBurst(*lab) []scenario {
	var list []scenario
	for _, h := range workloads {
		for _, mode := range []string{cuda, rcuda} {
			burst, slow := inABurst(mode, h)
			list = append(list, burst, slow)
		}
	}
	return list
}

func showBurst(l *lab) exp.Shown {
	s := exp.Shown{Title: burstTitle}
	bars := &report.Bars{Title: "Execution time on 8 GPUs", YLabel: "s", Series: []report.BarSeries{{Name: "all at once"}, {Name: "delayed"}}}
	for _, mode := range []string{cuda, rcuda} {
		for _, h := range workloads {
			a, b := inABurst(mode, h)
			burst, slow := l.Found[a], l.Found[b]
			if burst == nil || slow == nil {
				continue
			}
			key := fmt.Sprintf("burst_%dh_%s", h, mode)
			s.Rows = append(s.Rows,
				exp.Over(burstTitle, key+"_time_s", "s", exp.Values(burst, seconds)),
				exp.Over(burstTitle, key+"_delayed_time_s", "s", exp.Values(slow, seconds)),
				exp.Over(burstTitle, key+"_change_pct", "%", negated(gains(slow, burst, seconds))).Noting("above 0 the burst hurts"))
			bars.Groups = append(bars.Groups, fmt.Sprintf("%s, %d h", mode, h))
			exp.AddBar(&bars.Series[0], exp.Values(burst, seconds))
			exp.AddBar(&bars.Series[1], exp.Values(slow, seconds))
		}
	}
	if len(bars.Groups) > 0 {
		s.Pictures = append(s.Pictures, bars)
	}
	return listed(s)
}

func negated(values []float64) []float64 {
	for i, v := range values {
		if v != 0 { // and no -0
			values[i] = -v
		}
	}
	return values
}

// Sensitivity: what the paper does not say about its applications.

// guess is a setting of the generator that the paper does not give.
type guess struct{ name, jobs, meaning string }

var guesses = []guess{
	{"default", "", "GPU-Blast and LAMMPS keep a GPU busy half of the time"},
	{"light", "blast_intensity=0.1 lammps_intensity=0.1", "they keep it busy a tenth of the time"},
	{"heavy", "blast_intensity=1 lammps_intensity=1", "they keep it busy all the time"},
	{"slow_lammps", "lammps_on_one_gpu=37.5", "LAMMPS takes 2.5 times longer with CUDA, where its five processes share a GPU"},
	{"estimates", "estimates=2", "users ask for twice the time that their jobs take"},
}

var intensityPart = part{Name: "intensity", Wants: wantIntensity, Show: showIntensity}

const intensityTitle = "What the paper does not say about its applications"

func (g guess) with(mode string, s setting, hours int) scenario {
	out := with(mode, s, hours)
	out.jobs = g.jobs
	return out
}

// costly is the scenario with data to move to and from GPUs.
func costly(mode string, s setting, hours int) scenario {
	out := with(mode, s, hours)
	out.traffic = true
	return out
}

func wantIntensity(*lab) []scenario {
	var list []scenario
	for _, set := range []setting{onEight, onFour} {
		for _, h := range workloads {
			for _, mode := range []string{cuda, rcuda} {
				for _, g := range guesses {
					list = append(list, g.with(mode, set, h))
				}
				list = append(list, costly(mode, set, h))
			}
		}
	}
	return list
}

func showIntensity(l *lab) exp.Shown {
	s := exp.Shown{Title: intensityTitle}
	for _, set := range []setting{onEight, onFour} {
		bars := &report.Bars{Title: set.title + ": how many times faster rCUDA is than CUDA", YLabel: "x", Note: "Lines: the least and the most of the seeds."}
		add := func(name, meaning string, of func(mode string, h int) scenario) {
			series := report.BarSeries{Name: name}
			for _, h := range workloads {
				a, b := l.Found[of(cuda, h)], l.Found[of(rcuda, h)]
				if a == nil || b == nil {
					exp.AddBar(&series, nil)
					continue
				}
				faster := ratios(a, b, seconds)
				row := exp.Over(intensityTitle, fmt.Sprintf("guess_%s_%s_%dh_speedup", name, set.name, h), "x", faster).Noting("%s", meaning)
				if set == onFour {
					row = row.Against(2)
				}
				s.Rows = append(s.Rows, row)
				exp.AddBar(&series, faster)
			}
			bars.Series = append(bars.Series, series)
		}
		for _, h := range workloads {
			bars.Groups = append(bars.Groups, fmt.Sprintf("%d hours", h))
		}
		for _, g := range guesses {
			add(g.name, g.meaning, func(mode string, h int) scenario { return g.with(mode, set, h) })
		}
		add("traffic", fmt.Sprintf("jobs move %d MiB/s in %d transfers a second to and from their GPUs", bytesPerSecond>>20, transfersPerSecond),
			func(mode string, h int) scenario { return costly(mode, set, h) })
		s.Pictures = append(s.Pictures, bars)
	}
	return listed(s)
}
