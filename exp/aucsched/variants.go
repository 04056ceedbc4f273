package aucsched

import (
	"strings"

	"muster/exp"
	"muster/report"
)

// The trade-off: what the knob of mosaic buys.

// knobs of mosaic, from one end to the other: how much the end of all counts
// against waiting.
var knobs = []string{"0", "20", "40", "60", "80", "100"}

func mosaicAt(knob string) contender {
	return contender{"mosaic at " + knob, "mosaic:balance=" + knob, ""}
}

var tradeoffPart = part{name: "tradeoff", wants: wantTradeoff, show: showTradeoff}

// tradeoffMachine: one machine tells enough, the smallest of those asked for.
func (p *plan) tradeoffMachine() string { return p.machines[0].name }

func wantTradeoff(p *plan) []scenario {
	var list []scenario
	for _, v := range hard {
		for _, c := range append([]contender{bySlurm, byAuction, byMosaic}, knobContenders()...) {
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

func showTradeoff(p *plan) shown {
	m := p.tradeoffMachine()
	title := "The trade-off: the knob of mosaic, on Machine-" + m
	s := shown{title: title}
	t := &report.Table{Title: title, Columns: []report.Column{{Name: "workload"}, {Name: "method"}}}
	for _, c := range columns {
		t.Columns = append(t.Columns, report.Column{Name: c.title, Right: true})
	}
	for _, v := range hard {
		charts := []*report.Chart{
			{Title: v + ": utilisation against the mean wait", XLabel: "utilisation, %", YLabel: "wait, h", Note: "Right and low is good."},
			{Title: v + ": utilisation against the mean slowdown", XLabel: "utilisation, %", YLabel: "slowdown", Note: "Right and low is good."},
		}
		ys := []func(*numbers) float64{func(n *numbers) float64 { return n.wait }, func(n *numbers) float64 { return n.slowdown }}
		put := func(series string, list []contender) {
			line := []report.Series{{Name: series, Points: true, NoLine: true}, {Name: series, Points: true, NoLine: true}}
			for _, c := range list {
				found := p.found[c.on(m, v)]
				if found == nil {
					continue
				}
				mean := meanOf(found)
				cells := []string{v, c.name}
				for _, col := range columns {
					cells = append(cells, col.text(&mean))
					s.rows = append(s.rows, exp.Over(title, metricName("tradeoff", m, v, c.name, col.metric), col.unit, each(found, col.of)))
				}
				t.Rows = append(t.Rows, cells)
				for i := range line {
					line[i].X, line[i].Y = append(line[i].X, mean.utilization), append(line[i].Y, ys[i](&mean))
				}
			}
			for i := range line {
				if len(line[i].X) > 0 {
					charts[i].Series = append(charts[i].Series, line[i])
				}
			}
		}
		put("slurm", []contender{bySlurm})
		put("auction", []contender{byAuction})
		put("mosaic", []contender{byMosaic})
		put("mosaic, other knobs", knobContenders())
		for _, c := range charts {
			if len(c.Series) > 0 {
				s.pictures = append(s.pictures, c)
			}
		}
	}
	s.tables = []*report.Table{t}
	return s
}

// metricName joins words; names for people lose their spaces and commas.
func metricName(words ...string) string {
	return strings.NewReplacer(" ", "_", ",", "").Replace(strings.Join(words, "_"))
}

// onOne is a part that sets contenders side by side on workload V, on the smallest
// machine that was asked for.
func onOne(name, title string, list ...contender) part {
	return part{
		name:  name,
		wants: func(p *plan) []scenario { return p.smallest().onHard(list...) },
		show: func(p *plan) shown {
			rows, table := p.smallest().sideBySide(title, name, list...)
			return shown{title: title, rows: rows, tables: []*report.Table{table}}
		},
	}
}

// smallest is the plan for one machine.
func (p *plan) smallest() *plan {
	one := *p
	one.machines = p.machines[:1]
	return &one
}

// remoteJobs may have their GPUs anywhere.
const remoteJobs = "remote=yes"

var (
	rgpuRemote   = contender{"rgpu, remote GPUs", "rgpu", remoteJobs}
	mosaicRemote = contender{"mosaic, remote GPUs", "mosaic", remoteJobs}
)

// What decoupling GPUs from nodes is worth on the same workloads, on all machines.
var remotePart = part{
	name:  "remote",
	wants: func(p *plan) []scenario { return p.onHard(bySlurm, rgpuRemote, byMosaic, mosaicRemote) },
	show: func(p *plan) shown {
		rows, table := p.sideBySide(remoteTitle, "remote", bySlurm, rgpuRemote, byMosaic, mosaicRemote)
		return shown{title: remoteTitle, rows: rows, tables: []*report.Table{table}}
	},
}

const remoteTitle = "GPUs from anywhere: workload V with remote GPUs"

// Alternatives that the user gives: the paper's second objective. What they are worth
// depends on how much longer a job takes without GPUs.
var alternativesPart = onOne("alternatives", "Half of the GPU jobs would do with cores alone, in so many times their time: the auction on workload V", byAuction,
	contender{"auction, alternatives in 1.0 times", auctionPolicy, "alternatives=50 cores_slowdown=1"},
	contender{"auction, alternatives in 1.5 times", auctionPolicy, "alternatives=50 cores_slowdown=1.5"},
	contender{"auction, alternatives in 2.0 times", auctionPolicy, "alternatives=50 cores_slowdown=2"},
	contender{"auction, alternatives in 4.0 times", auctionPolicy, "alternatives=50 cores_slowdown=4"})

// The authors' earlier plug-in, which looks for no neighbours. Its programs are
// larger, so that the search for their solutions is cut short.
var ipschedPart = onOne("ipsched", "The earlier formulation without neighbours (IPSCHED) on workload V", byAuction,
	contender{"ipsched", "auction:form=ipsched:iterations=2000:tree_nodes=0", ""})

// larger jobs than the generator's: on the smallest machine, as many cores as it has nodes.
const larger = "max_cores=128"

// What the two guesses about the jobs are worth.
var guessesPart = onOne("guesses", "Other guesses about the jobs of workload V: the largest first, or up to 128 cores",
	bySlurm, contender{"slurm, largest first", slurmPolicy, "priority=size"}, contender{"slurm, larger jobs", slurmPolicy, larger},
	byAuction, contender{"auction, largest first", auctionPolicy, "priority=size"}, contender{"auction, larger jobs", auctionPolicy, larger})

// wrongTimes: users ask for twice the time that their jobs take.
const wrongTimes = "estimates=2"

// What plans are worth where run times are not known.
var estimatesPart = onOne("estimates", "Run times that are known, and users who ask for twice the time, on workload V",
	bySlurm, contender{"slurm, twice the time", slurmPolicy, wrongTimes}, byAuction, contender{"auction, twice the time", auctionPolicy, wrongTimes},
	byMosaic, contender{"mosaic, twice the time", byMosaic.policy, wrongTimes})
