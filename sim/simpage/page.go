package simpage

import (
	"fmt"
	"math"
	"strings"

	"muster/report"
	"muster/sim"
)

// MaxBlocks limits the blocks in all Gantt charts of a page together, so that the file stays small
// enough to send.
const MaxBlocks = 400_000

// Page arranges the study as a page. The runs of the first seed and size must
// have been recorded, with blocks.
func (s *Study) Page() *report.Page {
	page := &report.Page{Title: s.title(), Lead: s.verdict()}
	add := func(list ...report.Section) { page.Sections = append(page.Sections, list...) }
	add(report.Heading("What was asked"), s.askedTable())
	add(report.Heading("Side by side"))
	if len(s.Runs) <= manyRuns {
		add(s.runTable())
	}
	add(s.jobTable())
	if len(s.Policies) > 1 {
		add(s.changeBars())
	}
	if len(s.Nodes) > 1 {
		add(report.Heading("More and fewer nodes"))
		add(s.sizeCharts()...)
	}
	if len(s.Seeds) > 1 {
		add(report.Heading("Other seeds"), s.seedTable())
	}
	add(report.Heading("Over time"))
	if where := report.FirstOf(s.Nodes, s.Seeds); where != "" {
		add(report.Text("What follows is of the runs " + where + "."))
	}
	add(s.usageCharts()...)
	if len(s.Policies) > 1 {
		add(report.Heading("Job by job"))
		add(s.differences()...)
	}
	add(report.Heading("Nodes over time"))
	add(s.gantts()...)
	if groups := s.Impossible(20); len(groups) > 0 {
		add(report.Heading("Impossible jobs"), report.Text("These could not start even on the idle cluster. They count nowhere else on this page."))
		for _, g := range groups {
			text := "Under " + strings.Join(g.Runs, ", ") + ":\n" + strings.Join(g.First, "\n")
			if more := g.Count - len(g.First); more > 0 {
				text += fmt.Sprintf("\nand %d more", more)
			}
			add(report.Pre(text))
		}
	}
	if why := s.Why(); len(why) > 0 {
		add(report.Heading("Why they waited"))
		for _, text := range why {
			add(report.Pre(strings.TrimRight(text, "\n")))
		}
	}
	add(s.explainedSections()...)
	if len(s.Runs) > manyRuns {
		add(report.Heading("All runs"), s.runTable())
	}
	if s.Command != "" {
		add(report.Heading("How to get this page"), report.Text("This command writes it again, byte for byte."), report.Pre(s.Command))
	}
	return page
}

// manyRuns is the largest number of runs whose table is at the top of the page.
const manyRuns = 12

func (s *Study) title() string {
	if len(s.Policies) == 1 {
		return "What if: " + s.Policies[0]
	}
	return "What if: " + strings.Join(s.Policies[1:], ", ") + " instead of " + s.Policies[0]
}

// verdict says in a sentence for each policy what it means for the jobs.
func (s *Study) verdict() string {
	var b strings.Builder
	for _, p := range s.points() {
		if p.nodes != s.Nodes[0] {
			break
		}
		on := ""
		if len(s.Nodes) > 1 {
			on = fmt.Sprintf(" on %d nodes", p.nodes)
		}
		mean := func(of func(*Run) float64) float64 { return p.over(of).mean }
		wait := mean(func(r *Run) float64 { return r.Summary.Wait.Mean })
		life := mean(func(r *Run) float64 { return r.Summary.Life.Mean })
		fmt.Fprintf(&b, "Under %s%s a job waits %s on average and is done %s after its submission", p.policy, on, report.Duration(wait), report.Duration(life))
		if p.runs[0].Against != nil {
			fmt.Fprintf(&b, " (%s and %s against %s); %s of the jobs wait longer, %s end later",
				signed(mean(func(r *Run) float64 { return r.Against.WaitChange })), signed(mean(func(r *Run) float64 { return r.Against.LifeChange })), s.Policies[0],
				report.Percent(mean(func(r *Run) float64 { return r.Against.WaitLonger.Percent })/100), report.Percent(mean(func(r *Run) float64 { return r.Against.EndLater.Percent })/100))
		}
		b.WriteString(".\n\n")
	}
	if len(s.Seeds) > 1 {
		fmt.Fprintf(&b, "Means over %d seeds.", len(s.Seeds))
	}
	return b.String()
}

func (s *Study) askedTable() *report.Table {
	t := &report.Table{Columns: []report.Column{{Name: "Input"}, {Name: "Value"}}}
	for _, row := range s.Asked {
		t.Rows = append(t.Rows, []string{row[0], row[1]})
	}
	return t
}

// changeBars show the changes of the means against the first policy.
func (s *Study) changeBars() *report.Bars {
	b := &report.Bars{Title: "Change of the means against " + s.Policies[0], YLabel: "change", YIsPercent: true, FirstColour: 1}
	if len(s.Nodes) > 1 {
		b.Title += fmt.Sprintf(", on %d nodes", s.Nodes[0])
	}
	if len(s.Seeds) > 1 {
		b.Note = fmt.Sprintf("Bars: means over %d seeds; lines: lowest and highest.", len(s.Seeds))
	}
	for _, q := range quantities {
		if q.change != nil {
			b.Groups = append(b.Groups, q.name)
		}
	}
	for _, p := range s.points()[1:len(s.Policies)] {
		series := report.BarSeries{Name: p.policy}
		for _, q := range quantities {
			if q.change == nil {
				continue
			}
			o := p.over(func(r *Run) float64 { return q.change(r.Against) / 100 })
			series.Values = append(series.Values, o.mean)
			if len(s.Seeds) > 1 {
				series.Lo, series.Hi = append(series.Lo, o.lo), append(series.Hi, o.hi)
			}
		}
		b.Series = append(b.Series, series)
	}
	return b
}

// sizeCharts draw each measure over the number of nodes.
func (s *Study) sizeCharts() []report.Section {
	charts := []*report.Chart{
		{Title: "Mean wait", YLabel: "wait", YIsTime: true},
		{Title: "Mean life time", YLabel: "life time", YIsTime: true},
		{Title: "Mean slowdown", YLabel: "slowdown"},
		{Title: "Makespan", YLabel: "makespan", YIsTime: true},
		{Title: "Cores in use", YLabel: "of all cores", YIsPercent: true},
	}
	values := []func(*Run) float64{
		func(r *Run) float64 { return r.Summary.Wait.Mean },
		func(r *Run) float64 { return r.Summary.Life.Mean },
		func(r *Run) float64 { return r.Summary.Slowdown.Mean },
		func(r *Run) float64 { return r.Summary.Makespan },
		func(r *Run) float64 { return r.Summary.CoreUtilization },
	}
	if s.Cluster.TotalGPUs() > 0 {
		charts = append(charts, &report.Chart{Title: "GPUs in use", YLabel: "of all GPUs", YIsPercent: true})
		values = append(values, func(r *Run) float64 { return r.Summary.GPUUtilization })
	}
	var list []report.Section
	for i, c := range charts {
		c.Title += " against the number of nodes"
		c.XLabel = "nodes"
		if len(s.Seeds) > 1 {
			c.Note = fmt.Sprintf("Points: means over %d seeds; lines: lowest and highest.", len(s.Seeds))
		}
		for k, name := range s.Policies {
			line := report.Series{Name: name, Points: true}
			for j, p := range s.points() {
				if j%len(s.Policies) != k {
					continue
				}
				o := p.over(values[i])
				line.X, line.Y = append(line.X, float64(p.nodes)), append(line.Y, o.mean)
				if len(s.Seeds) > 1 {
					line.Lo, line.Hi = append(line.Lo, o.lo), append(line.Hi, o.hi)
				}
			}
			sortByX(&line)
			c.Series = append(c.Series, line)
		}
		list = append(list, c)
	}
	return list
}

func (s *Study) usageCharts() []report.Section {
	share := func(title, label string) *report.Chart {
		return &report.Chart{Title: title, XLabel: "time", YLabel: label, XIsTime: true, YIsPercent: true, YMin: new(0.0), YMax: new(1.0)}
	}
	gpus, cores := share("GPUs in use", "of all GPUs"), share("Cores in use", "of all cores")
	waiting := &report.Chart{Title: "Jobs waiting", XLabel: "time", YLabel: "jobs", XIsTime: true}
	averaged := false
	for _, r := range s.shown() {
		u := usageOf(r.Policy, r.Result, r.Recorder)
		gpus.Series, cores.Series, waiting.Series = append(gpus.Series, u.gpus), append(cores.Series, u.cores), append(waiting.Series, u.waiting)
		averaged = averaged || len(u.cores.X) > maxPoints
	}
	list := []*report.Chart{cores, waiting}
	if s.Cluster.TotalGPUs() > 0 {
		list = []*report.Chart{gpus, cores, waiting}
	}
	var sections []report.Section
	for _, c := range list {
		if averaged {
			c.Note = fmt.Sprintf("Averages over a %dth of the time each.", maxPoints)
		}
		sections = append(sections, c)
	}
	return sections
}

// differences are histograms of the changes for each job.
func (s *Study) differences() []report.Section {
	var list []report.Section
	for _, d := range []struct {
		title, label, less, more string
		of                       func(*sim.Comparison) []float64
	}{
		{"Wait", "wait", "wait shorter", "wait longer", func(c *sim.Comparison) []float64 { return c.Wait }},
		{"Run time", "run time", "run shorter", "run longer", func(c *sim.Comparison) []float64 { return c.Run }},
		{"Life time", "life time", "end earlier", "end later", func(c *sim.Comparison) []float64 { return c.Life }},
	} {
		histogram := &report.Histogram{
			Title: fmt.Sprintf("%s of each job, less that under %s", d.title, s.Policies[0]), YLabel: "jobs", XIsTime: true,
			XLabel: fmt.Sprintf("difference of the %s (left of 0: %s than under %s)", d.label, d.less, s.Policies[0]),
			LogY:   len(s.Runs[0].Result.Jobs) >= logFrom, FirstColour: 1,
		}
		var notes []string
		for _, r := range s.shown()[1:] {
			values := d.of(r.Against)
			histogram.Series = append(histogram.Series, report.Sample{Name: r.Policy, Values: values})
			less, more := 0, 0
			for _, v := range values {
				if v < 0 {
					less++
				} else if v > 0 {
					more++
				}
			}
			notes = append(notes, fmt.Sprintf("Under %s %s %s, %s %s; for %s nothing changes.", r.Policy,
				report.Plural(less, "job"), d.less, report.Number(float64(more)), d.more, report.Number(float64(len(values)-less-more))))
		}
		histogram.Note = strings.Join(notes, " ") + " A bar has the jobs from its left end up to, but without, its right end."
		list = append(list, histogram)
	}
	return list
}

// logFrom is the number of jobs from which on the peak of a histogram would hide everything else,
// so that a log scale is used.
const logFrom = 1000

// gantts draw the nodes over time, one for each policy.
func (s *Study) gantts() []report.Section {
	rows := make([]string, 0, s.Nodes[0])
	cluster := s.shown()[0].Result.Cluster
	for i := range cluster.Nodes {
		rows = append(rows, cluster.Nodes[i].Name)
	}
	kinds := []report.Kind{
		{Name: "native", Colour: "#0072b2", Help: "The job uses no GPU of another node, or its part on this node does not."},
		{Name: "borrows", Colour: "#d55e00", Help: "The job's processes run here and use GPUs of other nodes: what the TSUBAME paper calls the base of a job that uses rCUDA."},
		{Name: "lends", Colour: "#009e73", Help: "GPUs of this node serve a job on another node: the paper's rCUDA server."},
	}
	strip, borrowed := false, false
	for _, r := range s.shown() {
		borrowed = borrowed || r.Summary.Borrowing > 0
		r.Recorder.picture.prune()
		strip = strip || r.Recorder.picture.needsStrip()
	}
	if !borrowed {
		kinds = []report.Kind{{Name: "job", Colour: kinds[native].Colour}}
	}
	list := []report.Section{report.Text(heightsInWords(cluster.TotalGPUs() > 0, strip))}
	for _, r := range s.shown() {
		g := &report.Gantt{Title: r.Policy, Axis: "time", Rows: rows, Kinds: kinds}
		r.fill(g, strip)
		list = append(list, g)
	}
	return list
}

func heightsInWords(gpus, strip bool) string {
	switch {
	case !gpus:
		return "A row is a node; the height of a block is the job's share of its cores."
	case strip:
		return "A row is a node; the height of a block is the job's share of its GPUs. Jobs that hold none of the node's own GPUs stand in the strip at the bottom of the row, with their share of its cores."
	}
	return "A row is a node; the height of a block is the job's share of its GPUs."
}

// needsStrip says whether some job held only cores of a node that has devices.
func (p *picture) needsStrip() bool {
	for i := range p.closed {
		if p.closed[i].ofCores && len(p.devices[p.closed[i].node]) > 0 {
			return true
		}
	}
	return false
}

// place is the part of its row that a segment takes.
func (p *picture) place(s *segment, strip bool) (lo, hi float32) {
	devices := float32(len(p.devices[s.node]))
	if devices == 0 {
		return s.lo, s.hi
	}
	part := float32(0)
	if strip {
		part = max(0.25, 1/(devices+1))
	}
	if s.ofCores {
		return 1 - part + s.lo*part, min(1, 1-part+s.hi*part)
	}
	return s.lo / devices * (1 - part), s.hi / devices * (1 - part)
}

// fill puts the recorded blocks and their jobs into a Gantt.
func (r *Run) fill(g *report.Gantt, strip bool) {
	p := r.Recorder.picture
	number := make(map[int32]int32)
	area := 0.0
	for i := range p.closed {
		s := &p.closed[i]
		area += p.areaOf(s)
		k, known := number[s.job]
		if !known {
			k = int32(len(g.Jobs))
			number[s.job] = k
			g.Jobs = append(g.Jobs, r.tell(int(s.job)))
		}
		lo, hi := p.place(s, strip)
		g.Blocks = append(g.Blocks, report.Block{Row: s.node, Start: s.start.Seconds(), End: s.end.Seconds(), Lo: lo, Hi: hi, Kind: s.kind, Job: k})
	}
	if p.lostJobs > 0 {
		g.Note = fmt.Sprintf("To keep the page small, the %s smallest jobs are left out: %s of the occupied area.",
			report.Number(float64(p.lostJobs)), report.Percent(p.lostArea/math.Max(p.lostArea+area, math.SmallestNonzeroFloat64)))
	}
}

// tell is what the page shows about a job.
func (r *Run) tell(job int) report.GanttJob {
	j, o := &r.Result.Jobs[job], &r.Result.Outcomes[job]
	wait, run := o.Start-j.Submit, o.End-o.Start
	hosts, _ := r.Recorder.Hosts(job)
	if o.Blocks > 1 {
		hosts += fmt.Sprintf(" (%d blocks over %d nodes)", o.Blocks, o.Span)
	}
	lines := make([]string, 0, 10)
	if j.User != "" {
		lines = append(lines, "User\t"+j.User)
	}
	lines = append(lines,
		"Asked for\t"+Words(&j.Request))
	if o.Alternative > 0 {
		lines = append(lines, "Granted\t"+alternative(j, o))
	}
	lines = append(lines,
		"Submitted\t"+report.Duration(j.Submit.Seconds()),
		"Waited\t"+report.Duration(wait.Seconds()),
		"Ran\t"+report.Duration(run.Seconds()),
		"Slowdown\t"+report.Number(rounded(sim.Slowdown(wait, run))),
		"On\t"+hosts)
	if lenders, count := r.Recorder.Lenders(job); count > 0 {
		lines = append(lines, "Borrowed from\t"+lenders)
	}
	if o.State == sim.Killed {
		lines = append(lines, "Killed\tat its wall time")
	}
	return report.GanttJob{ID: j.ID, Lines: lines}
}

// sortByX sorts the points of a line. Sizes may have been given in any order.
func sortByX(s *report.Series) {
	for i := 1; i < len(s.X); i++ {
		for k := i; k > 0 && s.X[k] < s.X[k-1]; k-- {
			for _, column := range [][]float64{s.X, s.Y, s.Lo, s.Hi} {
				if column != nil {
					column[k], column[k-1] = column[k-1], column[k]
				}
			}
		}
	}
}
