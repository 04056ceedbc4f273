package ivm

import (
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// The grids of Fig. 5-6. The paper's planes are 513 x 513.
const (
	planeWidth = 13
	planeScale = 16 // one plane here represents this many of the paper's
	iterations = 12
)

var grids = []int{1024, 2048, 3072, 4096}

// The ways in which HIMENO is run.
const (
	byMPI      = "mpi"
	byMonitor  = "omlb"
	byWeighing = "guided"
)

func gridKey(z int, way string) string { return fmt.Sprintf("himeno_%d_%s", z, way) }

const partMonitoring = "Fig. 5-6: HIMENO with OM-LB, and with our own balancer, beside MPI"

var monitoringFigure = figure{Name: "5-6", Part: partMonitoring,
	Plan: func(*measured) []measurement {
		var plan []measurement
		for _, z := range grids {
			args := []string{"--size", fmt.Sprint(z / planeScale), "--width", fmt.Sprint(planeWidth), "--repeat", fmt.Sprint(iterations)}
			elements := func(way string) []string { return append(slices.Clone(args), "--way", way) }
			plan = append(plan,
				measurement{gridKey(z, byMPI), command{on: eachApart, mpi: smallest, program: "mpi-himeno", args: args}},
				measurement{gridKey(z, byMonitor), command{on: eachApart, program: "ivm-himeno", args: elements("monitor")}},
				measurement{gridKey(z, byWeighing), command{on: together, program: "ivm-himeno", args: elements("guided")}})
		}
		return plan
	},
	Show: func(m *measured) bench.Shown {
		var s bench.Shown
		for _, z := range grids {
			base, om, ours := gridKey(z, byMPI), gridKey(z, byMonitor), gridKey(z, byWeighing)
			r := exp.OverMedian(partMonitoring, om+"_speedup", "x", m.speedups(om, base)).Noting("elements on the hosts in the end: %s", onHosts(m.Outcomes[om][0].Hosts))
			switch z {
			case grids[0]:
				r = r.Against(paperLeastGain)
			case grids[len(grids)-1]:
				r = r.Against(paperMostGain)
			}
			s.Rows = append(s.Rows, exp.OverMedian(partMonitoring, base+"_s", "s", m.Seconds(base)).Noting("%d planes with %d processes of MPI", z/planeScale, smallest), r,
				exp.OverMedian(partMonitoring, ours+"_speedup", "x", m.speedups(ours, base)).Noting("ours, one element a GPU; at most %.2f is possible", bound()))
		}
		s.Rows = append(s.Rows, deviationRows(m)...)
		s.Pictures = []report.Section{himenoPicture(m), deviationPicture(m)}
		return s
	},
}

// The paper's speed-ups on the smallest and the largest grid.
const (
	paperLeastGain = 1.00
	paperMostGain  = 1.34
)

func onHosts(n []int64) string {
	return strings.Join(exp.Names(n, func(v *int64) string { return fmt.Sprint(*v) }), ":")
}

func himenoPicture(m *measured) report.Section {
	b := &report.Bars{Title: "Fig. 5-6 (a): HIMENO", YLabel: "seconds", Note: "On the bars of OM-LB: elements on Host-I:Host-II:Host-III in the end; it begins with 3:4:2."}
	var points [3][][]float64
	for _, z := range grids {
		b.Groups = append(b.Groups, fmt.Sprint(z))
		for i, way := range []string{byMPI, byMonitor, byWeighing} {
			points[i] = append(points[i], m.Seconds(gridKey(z, way)))
		}
	}
	om := exp.MedianBars("OM-LB", points[1])
	for _, z := range grids {
		om.Marks = append(om.Marks, onHosts(m.Outcomes[gridKey(z, byMonitor)][0].Hosts))
	}
	b.Series = []report.BarSeries{exp.MedianBars("MPI", points[0]), om, exp.MedianBars("ours", points[2])}
	return b
}

// deviation is the deviation of the elements' times in an iteration, as the median over all runs.
func (m *measured) deviation(key string, iteration int) float64 {
	return exp.Median(m.Values(key, func(o *outcome) float64 { return o.Deviations[iteration] }))
}

func deviationRows(m *measured) []exp.Row {
	var rows []exp.Row
	largest := grids[len(grids)-1]
	for _, way := range []string{byMonitor, byWeighing} {
		key := gridKey(largest, way)
		for _, i := range []int{0, 1, 2, 3, iterations - 1} {
			rows = append(rows, exp.OverMedian(partMonitoring, fmt.Sprintf("%s_deviation_%d", key, i+1), "of the mean", m.Values(key, func(o *outcome) float64 { return o.Deviations[i] })).Noting("standard deviation of the elements' times in iteration %d", i+1))
		}
	}
	return rows
}

func deviationPicture(m *measured) report.Section {
	c := &report.Chart{Title: "Fig. 5-6 (b): standard deviation of the elements' times", XLabel: "iteration", YLabel: "of the mean", Note: "The largest grid."}
	for _, w := range []struct{ name, way string }{{"OM-LB", byMonitor}, {"ours", byWeighing}} {
		s := report.Series{Name: w.name}
		for i := range iterations {
			s.X = append(s.X, float64(i+1))
			s.Y = append(s.Y, m.deviation(gridKey(grids[len(grids)-1], w.way), i))
		}
		c.Series = append(c.Series, s)
	}
	return c
}
