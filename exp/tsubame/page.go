package tsubame

import (
	"fmt"
	"strconv"

	"muster/exp"
	"muster/report"
)

// notes describe the method, the differences from the paper, and their reasons.
func (l *lab) notes(y, whole *yearRuns) []string {
	waitChange := func(o *oneYear) float64 { return o.whole.WaitChange }
	gainOn460 := func(o *oneYear) float64 { return o.gains[1].life.mean }
	borrows := y.mean(func(o *oneYear) float64 { _, r := o.onAll(); return borrowing(r) })
	notes := []string{
		fmt.Sprintf("Generated, not the paper's log, which is not public: seeds %d to %d, %d days. The G queue's mean wait and run time are inputs: "+
			"the load and the run times were chosen for them. What the R queue makes of it is the outcome, and nothing is fitted to it. What the "+
			"paper does not say is taken from other public logs where they have it: muster workload gen --list lists the parameters.",
			l.seeds[0], l.seeds[len(l.seeds)-1], y.days),
		fmt.Sprintf("The R queue changes the mean wait by %s %% here and by %.2f %% in the paper. What there is to gain depends on how many jobs ask for "+
			"all that a node has, and the paper does not say. Here it is half of them. With three of four it is %s %% (rows *_whole_nodes_75), and on "+
			"460 nodes the life time changes by %s s (paper: %s s). So of the real jobs few left room.",
			signed(y.mean(waitChange)), paperWaitChange, signed(whole.mean(waitChange)), signed(-whole.mean(gainOn460)), signed(-table3[1].life)),
		fmt.Sprintf("The paper's jobs run %.2f s longer on average, and one that borrows runs %.0f s longer (Table 1: 100 to 100,000 transfers, 4.67 ms each). "+
			"So about %.1f %% of them borrowed; here %.1f %% do. For the same reason execution times grow by more here.",
			-table3[len(table3)-1].run, meanTransfers*transferLatency, impliedBorrowing(), borrows),
		"How jobs come and how wide they are decides who loses. With an even load (rows *_even) nearly all of the wait goes; with wide jobs (rows *_wide) " +
			"many wait longer, because more small jobs start and many nodes are less often free at once. The paper's log had few losers: narrow " +
			"jobs, and a queue that was full at times and empty between. The plainest guess, in which every request is as likely as the next (rows " +
			"*_wide_none_whole), was tried first; that its gain is far from the paper's was the reason to look at other logs.",
		"No job is killed at its wall time, in either queue. The paper's text says that 450 nodes (about 4 %) would do; its Table 3 says 460.",
	}
	if y.days < fullYear {
		notes = append(notes, fmt.Sprintf("Only %d days were simulated: the numbers are not those of a year.", y.days))
	}
	return notes
}

func (l *lab) page(r *exp.Result, c *congestedRuns, y, whole *yearRuns, v *variantRuns, gantts []report.Section) *report.Page {
	p := &report.Page{
		Title: title,
		Lead: "The paper's numbers beside Muster's, on generated jobs. In the G queue a node serves one job at a time; in the R queue jobs that do not fit " +
			"so may share nodes and borrow the GPUs of others, at the price of the network.",
	}
	add := func(list ...report.Section) { p.Sections = append(p.Sections, list...) }
	add(report.Heading("What differs, and why"))
	for _, n := range r.Notes {
		add(report.Text(n))
	}
	add(report.Heading(partCongested), exp.TableWithNotes(r.Rows, partCongested), c.bars())
	add(gantts...)
	add(report.Heading(partYear), exp.TableWithNotes(r.Rows, partYear), y.bars())
	add(y.histograms()...)
	add(report.Heading(partNodes), exp.TableWithNotes(r.Rows, partNodes), y.gainChart("the default"), y.waitChart())
	add(report.Heading(partUnknown), v.table(y, whole), whole.gainChart("three of four jobs asking for whole nodes"), exp.TableWithNotes(r.Rows, partUnknown))
	add(report.Heading("How the jobs were made"),
		settingsTable("tsubame", map[string]string{"days": strconv.Itoa(y.days)}), settingsTable("congested", nil))
	return p
}

// mean is a number's mean over the seeds.
func (y *yearRuns) mean(of func(*oneYear) float64) float64 {
	return exp.Mean(exp.Values(y.years, of))
}

func (y *yearRuns) bars() *report.Bars {
	b := &report.Bars{
		Title: "Change of the means, R queue against G queue", YLabel: "%", Groups: []string{"wait", "run", "life"},
		Series: []report.BarSeries{
			{Name: "paper", Values: []float64{paperWaitChange, paperRunChange, paperLifeChange}, Reference: true},
			{Name: "Muster"},
		},
	}
	s := &b.Series[1]
	for _, m := range measures[:3] {
		exp.AddBar(s, y.each(m.of))
	}
	return b
}

func (y *yearRuns) histograms() []report.Section {
	one := func(title, label string, values []float64) *report.Histogram {
		return &report.Histogram{
			Title: title, XLabel: label, YLabel: "jobs", LogY: true, XIsTime: true,
			Series: []report.Sample{{Name: "jobs", Values: values}},
			Note:   "The first seed. Counts are on a log scale.",
		}
	}
	return []report.Section{
		one("Fig. 9: how much less jobs wait on the R queue", "G queue's wait less R queue's", negated(y.first.Wait)),
		one("Fig. 10: how much longer jobs run on the R queue", "R queue's run time less G queue's", y.first.Run),
		one("Fig. 11: how much sooner jobs finish on the R queue", "G queue's life time less R queue's", negated(y.first.Life)),
	}
}

func negated(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		if v != 0 { // avoids "-0"
			out[i] = -v
		}
	}
	return out
}

// gainChart is Table 3 as a picture.
func (y *yearRuns) gainChart(with string) *report.Chart {
	paper := report.Series{Name: "paper", Points: true}
	ours := report.Series{Name: "Muster, " + with, Points: true}
	for i, n := range sizes {
		paper.X, paper.Y = append(paper.X, float64(n)), append(paper.Y, table3[i].life)
		exp.AddPoint(&ours, float64(n), exp.Values(y.years, func(o *oneYear) float64 { return o.gains[i].life.mean }))
	}
	return &report.Chart{
		Title: "Table 3: life time gained by the R queue on fewer nodes, against the G queue on 480", XLabel: "nodes of the R queue",
		YLabel: "gained", YIsTime: true, Series: []report.Series{paper, ours},
	}
}

// waitChart shows both queues on every number of nodes.
func (y *yearRuns) waitChart() *report.Chart {
	c := &report.Chart{
		Title: "Mean wait on fewer nodes", XLabel: "nodes", YLabel: "mean wait", YIsTime: true, YMin: new(float64),
		Note: "What the R queue is worth in nodes: where its line meets the G queue's on 480.",
	}
	for _, queue := range []string{gQueue, rQueue} {
		s := report.Series{Name: queue, Points: true}
		for i, n := range sizes {
			exp.AddPoint(&s, float64(n), exp.Values(y.years, func(o *oneYear) float64 {
				if queue == gQueue {
					return o.g[i].Wait.Mean
				}
				return o.r[i].Wait.Mean
			}))
		}
		c.Series = append(c.Series, s)
	}
	return c
}
