package aucsched

import (
	"cmp"
	"slices"
	"strings"

	"muster/exp"
	"muster/report"
)

// The trade-off: the effect of mosaic's knob.

// knobs are settings of mosaic's knob from one end to the other: the weight of the makespan against
// that of waiting.
var knobs = []string{"0", "10", "20", "30", "40", defaultKnob, "60", "80", "100"}

// defaultKnob is mosaic's default.
const defaultKnob = "50"

func mosaicAt(knob string) contender {
	if knob == defaultKnob {
		return byMosaic
	}
	return contender{"mosaic at " + knob, "mosaic:balance=" + knob, ""}
}

var tradeoffPart = part{Name: "tradeoff", Wants: wantTradeoff, Show: showTradeoff}

// tradeoffMachine is the smallest of the machines that the user asked for. One is enough to show
// the trade-off.
func (p *plan) tradeoffMachine() string { return p.machines[0].name }

func wantTradeoff(p *plan) []scenario {
	var list []scenario
	for _, v := range hard {
		for _, c := range append([]contender{bySlurm, byAuction}, knobContenders()...) {
			list = append(list, c.on(p.tradeoffMachine(), v))
		}
	}
	return list
}

func knobContenders() []contender {
	var list []contender
	for _, k := range knobs {
		list = append(list, mosaicAt(k))
	}
	return list
}

func showTradeoff(p *plan) exp.Shown {
	m := p.tradeoffMachine()
	title := "The trade-off: the knob of mosaic, on Machine-" + m
	s := exp.Shown{Title: title}
	t := &report.Table{Title: title, Columns: []report.Column{{Name: "workload"}, {Name: "method"}}}
	for _, c := range columns {
		t.Columns = append(t.Columns, report.Column{Name: c.title, Right: true})
	}
	for _, v := range hard {
		var list []tried
		for _, c := range append([]contender{bySlurm, byAuction}, knobContenders()...) {
			found := p.Found[c.on(m, v)]
			if found == nil {
				continue
			}
			mean := meanOf(found)
			list = append(list, tried{c, mean})
			cells := []string{v, c.name}
			if c == byMosaic {
				cells[1] += " at " + defaultKnob + ", the default"
			}
			for _, col := range columns {
				cells = append(cells, col.text(&mean))
				s.Rows = append(s.Rows, exp.Over(title, metricName("tradeoff", m, v, c.name, col.metric), col.unit, exp.Values(found, col.of)))
			}
			t.Rows = append(t.Rows, cells)
		}
		if len(list) > 0 {
			s.Pictures = append(s.Pictures,
				tradeoffChart(v, "wait", "wait, h", list, func(n *numbers) float64 { return n.wait }),
				tradeoffChart(v, "slowdown", "slowdown", list, func(n *numbers) float64 { return n.slowdown }))
		}
	}
	s.Tables = []*report.Table{t}
	return s
}

// tried is a contender with its numbers, as means over the instances.
type tried struct {
	contender
	numbers
}

// tradeoffChart draws slurm, the auction and mosaic's default as points, and a line through all
// settings of the knob.
func tradeoffChart(version, what, label string, list []tried, of func(*numbers) float64) *report.Chart {
	c := &report.Chart{Title: version + ": utilisation against the mean " + what, XLabel: "utilisation, %", YLabel: label, Note: "Right and low is good."}
	var knob []tried
	for _, one := range list {
		if strings.HasPrefix(one.policy, byMosaic.policy) {
			knob = append(knob, one)
		}
		for _, alone := range []contender{bySlurm, byAuction, byMosaic} {
			if one.contender == alone {
				c.Series = append(c.Series, report.Series{Name: alone.name, X: []float64{one.utilization}, Y: []float64{of(&one.numbers)}, Points: true, NoLine: true})
			}
		}
	}
	if len(knob) == 0 {
		return c
	}
	slices.SortStableFunc(knob, func(a, b tried) int { return cmp.Compare(a.utilization, b.utilization) })
	line := report.Series{Name: "mosaic at other places of its knob", Points: true}
	var places []string
	for _, one := range knob {
		line.X, line.Y = append(line.X, one.utilization), append(line.Y, of(&one.numbers))
		places = append(places, one.knob())
	}
	c.Series = append(c.Series, line)
	c.Note += " Along the line from left to right the knob is at " + strings.Join(places, ", ") + "; " + defaultKnob + " is the default."
	return c
}

// knob is the contender's setting of mosaic's knob.
func (c contender) knob() string {
	if _, place, given := strings.Cut(c.policy, "="); given {
		return place
	}
	return defaultKnob
}

// metricName joins words to a metric. Spaces and commas in them are replaced.
func metricName(words ...string) string { return inMetrics.Replace(strings.Join(words, "_")) }

var inMetrics = strings.NewReplacer(" ", "_", ",", "")

// onOne is a part that compares contenders on workload V, on the smallest of the machines that the
// user asked for.
func onOne(name, title string, list ...contender) part {
	return part{
		Name:  name,
		Wants: func(p *plan) []scenario { return p.smallest().onHard(list...) },
		Show: func(p *plan) exp.Shown {
			rows, table := p.smallest().sideBySide(title, name, list...)
			return exp.Shown{Title: title, Rows: rows, Tables: []*report.Table{table}}
		},
	}
}

// smallest is the plan restricted to its smallest machine.
func (p *plan) smallest() *plan {
	one := *p
	one.machines = p.machines[:1]
	return &one
}

// remoteJobs may have their GPUs on any node.
const remoteJobs = "remote=yes"

var (
	rgpuRemote   = contender{"rgpu, remote GPUs", "rgpu", remoteJobs}
	mosaicRemote = contender{"mosaic, remote GPUs", "mosaic", remoteJobs}
)

// remotePart shows the gain of decoupling GPUs from nodes on the same workloads, on all machines.
var remotePart = part{
	Name:  "remote",
	Wants: func(p *plan) []scenario { return p.onHard(bySlurm, rgpuRemote, byMosaic, mosaicRemote) },
	Show: func(p *plan) exp.Shown {
		rows, table := p.sideBySide(remoteTitle, "remote", bySlurm, rgpuRemote, byMosaic, mosaicRemote)
		return exp.Shown{Title: remoteTitle, Rows: rows, Tables: []*report.Table{table}}
	},
}

const remoteTitle = "GPUs from anywhere: workload V with remote GPUs"

// alternativesPart gives jobs alternative requests, the paper's second objective. Their gain
// depends on how much longer a job takes without GPUs.
var alternativesPart = onOne("alternatives", "Half of the GPU jobs would do with cores alone, in so many times their time: the auction on workload V", byAuction,
	contender{"auction, alternatives in 1.0 times", auctionPolicy, "alternatives=50 cores_slowdown=1"},
	contender{"auction, alternatives in 1.5 times", auctionPolicy, "alternatives=50 cores_slowdown=1.5"},
	contender{"auction, alternatives in 2.0 times", auctionPolicy, "alternatives=50 cores_slowdown=2"},
	contender{"auction, alternatives in 4.0 times", auctionPolicy, "alternatives=50 cores_slowdown=4"})

// ipschedPart runs the authors' earlier plug-in, which does not look for contiguous nodes. Its
// integer programs are larger, so the search for their solutions is limited.
var ipschedPart = onOne("ipsched", "The earlier formulation without neighbours (IPSCHED) on workload V", byAuction,
	contender{"ipsched", "auction:form=ipsched:iterations=2000:tree_nodes=0", ""})

// larger are larger jobs than the generator's default: up to as many cores as the smallest machine
// has nodes.
const larger = "max_cores=128"

// guessesPart shows how much depends on our two guesses about the jobs.
var guessesPart = onOne("guesses", "Other guesses about the jobs of workload V: the largest first, or up to 128 cores",
	bySlurm, contender{"slurm, largest first", slurmPolicy, "priority=size"}, contender{"slurm, larger jobs", slurmPolicy, larger},
	byAuction, contender{"auction, largest first", auctionPolicy, "priority=size"}, contender{"auction, larger jobs", auctionPolicy, larger})

// wrongTimes: users ask for twice the time that their jobs take.
const wrongTimes = "estimates=2"

// estimatesPart shows the value of planning ahead if run times are not known.
var estimatesPart = onOne("estimates", "Run times that are known, and users who ask for twice the time, on workload V",
	bySlurm, contender{"slurm, twice the time", slurmPolicy, wrongTimes}, byAuction, contender{"auction, twice the time", auctionPolicy, wrongTimes},
	byMosaic, contender{"mosaic, twice the time", byMosaic.policy, wrongTimes})
