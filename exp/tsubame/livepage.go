package tsubame

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"muster/exp"
	"muster/report"
)

const (
	liveTitle = "TSUBAME2.5, section 2.1: remote GPUs beside traffic, on Muster's own path"
	liveLead  = "Programs at one end of a network use the software GPU of a Muster node at the other, while others fill the network. The paper's rCUDA had InfiniBand FDR and a K20c; " +
		"only what the network does to a program can be compared."

	partCopies = "Fig. 2: copies beside traffic"
	partModel  = "The model of section 2.1, fitted to our path"
	partApps   = "Figs. 3 and 4: programs beside traffic"
)

// networks lists the measured networks, the link first.
func (m *liveMeasured) networks() []string {
	var list []string
	for _, n := range []string{shaped, loopback} {
		if _, there := m.Idle[n]; there {
			list = append(list, n)
		}
	}
	return list
}

func (m *liveMeasured) result() *exp.Result {
	r := exp.NewReport(name, liveTitle, liveLead, m.notes(), strings.Join(m.Missing, "; "))
	rows, table, chart := m.copyRows()
	r.Show(partCopies, rows, table)
	r.Add(chart)
	r.Show(partModel, m.modelRows())
	rows, bars := m.appRows()
	r.Show(partApps, rows)
	if bars != nil {
		r.Add(bars)
	}
	if rows, bars := m.queueRows(); bars != nil {
		r.Show(partQueues, rows)
		r.Add(bars)
	}
	r.Show(exp.ClaimsPart, m.claimRows())
	return &r.Result
}

func (m *liveMeasured) notes() []string {
	list := []string{
		fmt.Sprintf("Measured on %s; medians. A node (muster node) with a software GPU of %d million operations a second serves programs of examples/ at the other end of the network (muster run --node, without TLS, as rCUDA has none). "+
			"Every program checks its results. A copy to the GPU is timed until it is there.", m.Machine, gpuRate/1_000_000),
		fmt.Sprintf("The link: two network namespaces and a cable of %d MB/s in each direction, which its users share fairly (HTB), as the paper's InfiniBand was configured; all connections of the program are one user. "+
			"A user beside the program sends as much as it can, both ways, as ib_read_bw does one way. The loopback interface has no bandwidth of its own: there users compete for the processors.", linkRate/1_000_000),
		"The paper has numbers for few points of its pictures; only those stand beside ours. Equation 2 divides the bandwidth by the number n of ib_read_bw, the text by n + 1; both are fitted.",
		"jacobi copies its grid once and looks at the largest change now and then. md sends positions and fetches forces in every step, and sends lists of neighbours in every fifth: about 3 % of a step are copies on the idle link, " +
			"which is what the paper's 1.17 beside 6 others says of LAMMPS by its own model. That share was chosen; what more users make of it was not.",
	}
	if len(m.Queues) > 0 {
		list = append(list, fmt.Sprintf("The queues: a head and %d nodes of %d cores, %d software GPUs and 22 GiB, each a process. Jobs are those of the generator congested (docs/workloads.md) on one node, %d times as short; a process for each GPU multiplies matrices, and checks the products. "+
			"Under g-queue a node serves one job; under r-queue jobs share nodes, and the head grants them whole GPUs of other nodes.", queueNodes, queueCores, queueGPUs, queueScale))
	}
	if m.NoLink != "" {
		list = append(list, "Left out: the link with a bandwidth, and with it all that needs fair sharing. "+m.NoLink+".")
	}
	if m.Late > 0.0004 {
		list = append(list, fmt.Sprintf("The machine was busy with other things: it woke sleepers %.1f ms late on average. Latencies are too long by about that.", 1e3*m.Late))
	}
	return list
}

// copyRows are the times and bandwidths of copies, and the chart of them.
func (m *liveMeasured) copyRows() ([]exp.Row, *report.Table, *report.Chart) {
	var rows []exp.Row
	t := &report.Table{
		Title: "Copies beside users of the network: milliseconds, in and out, and MB/s in",
		Columns: []report.Column{{Name: "network"}, {Name: "size", Right: true}, {Name: "users beside", Right: true}, {Name: "in, ms", Right: true}, {Name: "out, ms", Right: true},
			{Name: "in, MB/s", Right: true}, {Name: "the model, ms", Right: true, Help: "The fitted model with n + 1."}},
	}
	chart := &report.Chart{Title: partCopies, XLabel: "bytes", YLabel: "seconds until a copy is done", LogX: true, LogY: true, YIsTime: true, Note: "Dots are medians of copies to the GPU; lines are the fitted model with n + 1."}
	for _, network := range m.networks() {
		model := m.fit(network, readings[0])
		for _, users := range m.axis(network, usersOf) {
			dots := report.Series{Name: fmt.Sprintf("%s, %d beside", network, users), Points: true, NoLine: true}
			line := report.Series{Name: fmt.Sprintf("%s, %d beside: model", network, users)}
			for _, bytes := range m.axis(network, bytesOf) {
				in, out := m.times(network, users, bytes, true), m.times(network, users, bytes, false)
				key := fmt.Sprintf("fig2_%s_%dusers_%dbytes", network, users, bytes)
				rows = append(rows, exp.OverMedian(partCopies, key+"_in_ms", "ms", scaled(in, 1e3)), exp.OverMedian(partCopies, key+"_out_ms", "ms", scaled(out, 1e3)))
				predicted := "-"
				dots.X, dots.Y = append(dots.X, float64(bytes)), append(dots.Y, median(in))
				if model != nil {
					says := model.time(readings[0], users, float64(bytes))
					predicted = fmt.Sprintf("%.2f", 1e3*says)
					line.X, line.Y = append(line.X, float64(bytes)), append(line.Y, max(says, 1e-6))
				}
				t.Rows = append(t.Rows, []string{network, byteSize(bytes), fmt.Sprint(users), fmt.Sprintf("%.2f", 1e3*median(in)), fmt.Sprintf("%.2f", 1e3*median(out)),
					fmt.Sprintf("%.1f", float64(bytes)/median(in)/1e6), predicted})
			}
			chart.Series = append(chart.Series, dots)
			if len(line.X) > 0 {
				chart.Series = append(chart.Series, line)
			}
		}
	}
	return rows, t, chart
}

// modelRows are the constants of the model on each network.
func (m *liveMeasured) modelRows() []exp.Row {
	var rows []exp.Row
	single := func(key, unit string, value float64) exp.Row {
		return exp.Single(partModel, "model_"+key, unit, value)
	}
	for _, network := range m.networks() {
		at := m.Idle[network]
		rows = append(rows,
			single(network+"_idle_mbs", "MB/s", at.Bandwidth/1e6).Noting("one connection without Muster, nobody else there"),
			single(network+"_round_trip_us", "us", 1e6*at.Trip).Noting("one byte and back without Muster, the shortest of 100"),
			single(network+"_small_copy_ms", "ms", 1e3*m.smallCopy(network)).Against(1e3*paperLatency).Noting("a copy of %s and back, halved, nobody else there", byteSize(leastBytes)))
		for _, r := range readings {
			if f := m.fit(network, r); f != nil {
				key := network + "_" + r.key
				rows = append(rows,
					single(key+"_r2", "", f.r2).Against(paperFit).Noting("the bandwidth divided by %s", r.says),
					single(key+"_overhead", "x", f.overhead()).Against(paperOverhead).Noting("time of a byte over what the idle network needs for it"),
					single(key+"_latency_ms", "ms", 1e3*f.latency).Against(1e3*paperLatency).Noting("the model's constant, which large copies decide"))
			}
		}
	}
	return rows
}

// smallCopy is half the time of the smallest copy to the GPU and back on an idle network.
func (m *liveMeasured) smallCopy(network string) float64 {
	least := m.axis(network, bytesOf)[0]
	return (median(m.times(network, 0, least, true)) + median(m.times(network, 0, least, false))) / 2
}

// appNetwork is the network on which applications ran: the link, or the loopback interface if there
// is no link.
func (m *liveMeasured) appNetwork() string {
	if slices.ContainsFunc(m.Apps, func(a ranApp) bool { return a.Network == shaped }) {
		return shaped
	}
	return loopback
}

// paperSlowdowns are the numbers that the text gives for Figs. 3 and 4.
var paperSlowdowns = map[string]map[int]float64{jacobi: {mostUsers: paperJacobi}, md: {6: paperSix, 8: paperEight}}

// appRows are the slow-downs of applications.
func (m *liveMeasured) appRows() ([]exp.Row, *report.Bars) {
	network := m.appNetwork()
	var rows []exp.Row
	var users []int
	for _, a := range m.Apps {
		if !slices.Contains(users, a.Users) {
			users = append(users, a.Users)
		}
	}
	slices.Sort(users)
	bars := &report.Bars{Title: partApps, YLabel: "x the time without traffic", Note: "The outlines are the paper's: Jacobi, and LAMMPS beside 6 and 8."}
	for _, n := range users {
		bars.Groups = append(bars.Groups, fmt.Sprintf("%d beside", n))
	}
	for _, app := range applications {
		s, theirs := report.BarSeries{Name: app}, report.BarSeries{Name: app + ", the paper", Reference: true}
		for _, n := range users {
			slow := m.slowdown(network, app, n)
			s.Values = append(s.Values, slow)
			paper, there := paperSlowdowns[app][n]
			if !there {
				paper = math.NaN()
			}
			theirs.Values = append(theirs.Values, paper)
			if math.IsNaN(slow) {
				continue
			}
			row := exp.OverMedian(partApps, fmt.Sprintf("%s_%dusers_slowdown", app, n), "x alone", scaled(m.seconds(network, app, n), 1/median(m.seconds(network, app, 0))))
			if there {
				row = row.Against(paper)
			}
			rows = append(rows, row.Noting("%.3f s beside %d users of the %s", median(m.seconds(network, app, n)), n, network))
		}
		bars.Series = append(bars.Series, theirs, s)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return rows, bars
}

func scaled(values []float64, by float64) []float64 {
	return exp.Values(values, func(v *float64) float64 { return *v * by })
}
