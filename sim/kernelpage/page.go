package kernelpage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster/report"
)

// blocks is the number of blocks per run in the picture of devices over time. It keeps the file
// small enough to send.
func blocks(policies, devices int) int {
	return min(max(30_000/max(1, policies), 8*devices), 100_000)
}

// grey is the colour of time that belongs to no application.
const grey = len(report.Palette) - 1

// appColours are the colours of applications. Mappers take the palette from its beginning, so these
// are in another order to differ from them as far as possible.
var appColours = [grey]int{5, 6, 4, 3, 2, 1, 0}

func appColour(app int) int { return appColours[app%grey] }

// Page arranges the study as a page. The runs of the first seed and size must
// have been recorded.
func (s *Study) Page() *report.Page {
	for k := range s.Policies {
		s.Runs[k].Recorder.finish(s.Runs[k].Result.End)
	}
	page := &report.Page{Title: s.title(), Lead: s.verdict()}
	add := func(list ...report.Section) { page.Sections = append(page.Sections, list...) }
	add(report.Heading("What was asked"), s.askedTable())
	add(report.Heading("Side by side"), s.mapperTable(), s.useBars(), s.waitStacks())
	add(report.Heading("What each application got"), s.rateBars(), s.appTable())
	if len(s.Nodes) > 1 {
		add(report.Heading("More and fewer nodes"))
		add(s.sizeCharts()...)
	}
	add(report.Heading("GPU by GPU"))
	add(s.deviceStacks()...)
	add(report.Heading("The first seconds"))
	add(s.gantts()...)
	add(s.explainedSections()...)
	if len(s.Seeds) > 1 {
		add(report.Heading("All runs"), s.runTable())
	}
	if s.Command != "" {
		add(report.Heading("How to get this page"), report.Text("This command writes it again, byte for byte."), report.Pre(s.Command))
	}
	return page
}

func (s *Study) title() string {
	if len(s.Policies) == 1 {
		return "Kernels on devices: " + s.Policies[0]
	}
	return "Kernels on devices: " + strings.Join(s.Policies[1:], ", ") + " instead of " + s.Policies[0]
}

// verdict says in a sentence for each mapper what it means for the kernels.
func (s *Study) verdict() string {
	var b strings.Builder
	for k, policy := range s.Policies {
		mean := func(of Measure) float64 { return s.Over(0, k, of).Mean }
		fmt.Fprintf(&b, "Under %s the GPUs are in kernels %s of their time, and ", policy, percent(mean(Utilisation)))
		if mean(Kernels) == 0 {
			b.WriteString("no call was done")
		} else {
			fmt.Fprintf(&b, "a call waits %s: %s for its turn, %s for its data", wait(mean(Wait)), wait(mean(Queue)), wait(mean(Transfer)))
		}
		if k > 0 {
			var apps []string
			for app := range s.Runs[0].Workload.Apps {
				apps = append(apps, fmt.Sprintf("%s %s", s.Runs[0].Result.Apps[app].Name, signed(s.Against(0, k, OfApp(app).Rate).Mean, percent)))
			}
			fmt.Fprintf(&b, ". Kernels a second against %s: %s", s.Policies[0], strings.Join(apps, ", "))
		}
		b.WriteString(".\n\n")
	}
	if len(s.Nodes) > 1 {
		fmt.Fprintf(&b, "On %d nodes. ", s.Nodes[0])
	}
	b.WriteString(s.seedsInWords())
	return b.String()
}

func (s *Study) askedTable() *report.Table {
	t := &report.Table{Columns: []report.Column{{Name: "Input"}, {Name: "Value"}}}
	for _, row := range s.Asked {
		t.Rows = append(t.Rows, []string{row[0], row[1]})
	}
	return t
}

// onFirst names the size that the pictures show, if there are several.
func (s *Study) onFirst() string {
	if len(s.Nodes) > 1 {
		return fmt.Sprintf(", on %d nodes", s.Nodes[0])
	}
	return ""
}

func (s *Study) intervalsInWords() string {
	if len(s.Seeds) == 1 {
		return ""
	}
	return fmt.Sprintf("Bars: means over %d seeds; lines: 95 %% confidence.", len(s.Seeds))
}

// series are the bars of one policy, one for each measure. Intervals are clipped to most, the
// largest value that the measure can have.
func (s *Study) series(policy int, of []Measure, most float64) report.BarSeries {
	b := report.BarSeries{Name: s.Policies[policy]}
	for _, m := range of {
		i := s.Over(0, policy, m)
		b.Values = append(b.Values, i.Mean)
		if len(s.Seeds) > 1 {
			b.Lo, b.Hi = append(b.Lo, max(0, i.Lo())), append(b.Hi, min(most, i.Hi()))
		}
	}
	return b
}

// useBars compare the utilisation of all GPUs and of those on each application's nodes.
func (s *Study) useBars() *report.Bars {
	b := &report.Bars{Title: "Use of the GPUs" + s.onFirst(), YLabel: "of their time in kernels", YIsPercent: true, Groups: []string{"all GPUs"}, Note: s.intervalsInWords()}
	of := []Measure{Utilisation}
	if apps := s.Runs[0].Workload.Apps; len(apps) > 1 {
		for app := range apps {
			b.Groups = append(b.Groups, "on nodes of "+apps[app].Name)
			of = append(of, OfApp(app).OwnGPUs)
		}
	}
	for k := range s.Policies {
		b.Series = append(b.Series, s.series(k, of, 1))
	}
	return b
}

func (s *Study) waitStacks() *report.Stacks {
	p := &report.Stacks{
		Title: "Mean wait of a call" + s.onFirst(), YLabel: "wait", YIsTime: true, Columns: s.Policies, Note: s.intervalsInWords(),
		Parts: []report.Part{{Name: "queue", Colour: 0}, {Name: "transfer", Colour: grey}},
	}
	for k := range s.Policies {
		p.Parts[0].Values = append(p.Parts[0].Values, s.Over(0, k, Queue).Mean)
		p.Parts[1].Values = append(p.Parts[1].Values, s.Over(0, k, Transfer).Mean)
		if len(s.Seeds) > 1 {
			i := s.Over(0, k, Wait)
			p.Lo, p.Hi = append(p.Lo, max(0, i.Lo())), append(p.Hi, i.Hi())
		}
	}
	return p
}

func (s *Study) rateBars() *report.Bars {
	b := &report.Bars{Title: "Throughput of the applications" + s.onFirst(), YLabel: "kernels a second", Note: s.intervalsInWords()}
	var of []Measure
	for app := range s.Runs[0].Workload.Apps {
		b.Groups = append(b.Groups, s.Runs[0].Workload.Apps[app].Name)
		of = append(of, OfApp(app).Rate)
	}
	for k := range s.Policies {
		b.Series = append(b.Series, s.series(k, of, math.Inf(1)))
	}
	return b
}

// sizeCharts draw the measures over the number of nodes.
func (s *Study) sizeCharts() []report.Section {
	list := []struct {
		chart *report.Chart
		of    Measure
	}{
		{&report.Chart{Title: "Use of the GPUs", YLabel: "of their time in kernels", YIsPercent: true}, Utilisation},
		{&report.Chart{Title: "Mean wait of a call", YLabel: "wait", YIsTime: true}, Wait},
		{&report.Chart{Title: "Calls done by GPUs of other nodes", YLabel: "of all calls", YIsPercent: true}, Remote},
	}
	sizes := make([]int, len(s.Nodes)) // sorted
	for i := range sizes {
		sizes[i] = i
	}
	slices.SortStableFunc(sizes, func(a, b int) int { return cmp.Compare(s.Nodes[a], s.Nodes[b]) })
	var sections []report.Section
	for _, c := range list {
		c.chart.XLabel = "nodes"
		if len(s.Seeds) > 1 {
			c.chart.Note = fmt.Sprintf("Points: means over %d seeds; lines: 95 %% confidence.", len(s.Seeds))
		}
		for k, policy := range s.Policies {
			line := report.Series{Name: policy, Points: true}
			for _, size := range sizes {
				i := s.Over(size, k, c.of)
				line.X, line.Y = append(line.X, float64(s.Nodes[size])), append(line.Y, i.Mean)
				if len(s.Seeds) > 1 {
					line.Lo, line.Hi = append(line.Lo, i.Lo()), append(line.Hi, i.Hi())
				}
			}
			c.chart.Series = append(c.chart.Series, line)
		}
		sections = append(sections, c.chart)
	}
	return sections
}

// maxColumns is the number of devices that a picture shows one by one. With more, neighbours are
// drawn together.
const maxColumns = 240

// maxApps is the number of applications with an entry of their own in a legend.
const maxApps = 12

// appNames are the names in the legend: the applications, with the last of many combined.
func (r *Run) appNames() []string {
	var names []string
	for app := range r.Workload.Apps {
		if app == maxApps-1 && len(r.Workload.Apps) > maxApps {
			return append(names, "other applications")
		}
		names = append(names, r.Workload.Apps[app].Name)
	}
	return names
}

// deviceStacks show which applications' kernels each device ran, in a picture for each mapper.
func (s *Study) deviceStacks() []report.Section {
	text := "A column is a GPU, as high as the part of its time that it spent in kernels of each application, and held for data of calls from other nodes. " +
		"Below stands to which application its node was given: other colours above it are kernels that came over the network."
	if where := report.FirstOf(s.Nodes, s.Seeds); where != "" {
		text += " Of the runs " + where + "."
	}
	list := []report.Section{report.Text(text)}
	for k := range s.Policies {
		list = append(list, s.Runs[k].deviceStack())
	}
	return list
}

func (r *Run) deviceStack() *report.Stacks {
	devices := len(r.Result.Devices)
	per := max(1, (devices+maxColumns-1)/maxColumns)
	p := &report.Stacks{Title: fmt.Sprintf("%s: %s", r.Policy, percent(Utilisation(r))), YIsPercent: true, YMax: new(1.0), Low: true}
	if per > 1 {
		p.Note = fmt.Sprintf("Each column is the mean of %d GPUs.", per)
	}
	names := r.appNames()
	for app, name := range names {
		p.Parts = append(p.Parts, report.Part{Name: "kernels of " + name, Colour: appColour(app)})
	}
	p.Parts = append(p.Parts, report.Part{Name: "held for data", Colour: grey})
	rows := r.deviceNames()
	for from := 0; from < devices; from += per {
		to := min(from+per, devices)
		name := rows[from]
		if to-from > 1 {
			name += " to " + rows[to-1]
		}
		p.Columns = append(p.Columns, name)
		shares := make([]float64, len(p.Parts))
		for d := from; d < to; d++ {
			whole := float64(to-from) * r.Result.End.Seconds()
			for app, busy := range r.Recorder.busy[d] {
				shares[min(app, len(names)-1)] += ratio(busy.Seconds(), whole)
			}
			shares[len(names)] += ratio((r.Result.Devices[d].Held - r.Result.Devices[d].Busy).Seconds(), whole)
		}
		for k := range p.Parts {
			p.Parts[k].Values = append(p.Parts[k].Values, shares[k])
		}
	}
	p.Bands = r.bands(per)
	return p
}

// bands say to which application the nodes of the columns belong.
func (r *Run) bands(per int) []report.Band {
	owners := r.owners()
	var list []report.Band
	for d := 0; d < len(r.Result.Devices); d += per {
		owner := owners[r.Result.Devices[d].Node]
		if owner < 0 {
			continue
		}
		column, name := d/per, "nodes of "+r.Workload.Apps[owner].Name
		if last := len(list) - 1; last >= 0 && list[last].Name == name && list[last].To == column-1 {
			list[last].To = column
			continue
		}
		list = append(list, report.Band{Name: name, Colour: appColour(min(owner, len(r.appNames())-1)), From: column, To: column})
	}
	return list
}

// deviceNames are the names of the nodes with the index of the device on its node.
func (r *Run) deviceNames() []string {
	var names []string
	for n := range r.Cluster.Nodes {
		for k := range r.Cluster.Nodes[n].GPUs {
			names = append(names, fmt.Sprintf("%s:%d", r.Cluster.Nodes[n].Name, k))
		}
	}
	return names
}

// gantts draw the devices call by call from the beginning, up to the time for which all mappers
// were recorded.
func (s *Study) gantts() []report.Section {
	until := time.Duration(0)
	for k := range s.Policies {
		if end := s.Runs[k].Recorder.until; until == 0 || end < until {
			until = end
		}
	}
	text := fmt.Sprintf("A row is a GPU, a block a call that holds it: coloured while its kernel runs, grey while it waits for data. The first %s are shown. "+
		"The same step of a process has the same name under all mappers: the pointer marks it in all pictures, and the field finds it.", report.Duration(until.Seconds()))
	list := []report.Section{report.Text(text)}
	for k := range s.Policies {
		list = append(list, s.Runs[k].gantt(until))
	}
	return list
}

func (r *Run) gantt(until time.Duration) *report.Gantt {
	g := &report.Gantt{Title: r.Policy, Axis: "time", Find: "Find a call, as H.7#2", Rows: r.deviceNames()}
	names := r.appNames()
	for app, name := range names {
		g.Kinds = append(g.Kinds, report.Kind{Name: "kernel of " + name, Colour: report.Palette[appColour(app)]})
	}
	g.Kinds = append(g.Kinds, report.Kind{Name: "held for data", Colour: report.Palette[grey], Help: "The GPU is held for a call from another node: for the latency, the input, and where so configured the results."})
	number := make(map[int32]int32)
	for i := range r.Recorder.blocks {
		b := &r.Recorder.blocks[i]
		if b.from >= until || b.to <= b.from {
			continue
		}
		k, known := number[b.call]
		if !known {
			k = int32(len(g.Jobs))
			number[b.call] = k
			g.Jobs = append(g.Jobs, r.tell(&r.Recorder.calls[b.call], g.Rows[b.device]))
		}
		kind := len(names)
		if b.kernel {
			kind = min(int(r.Recorder.processes[r.Recorder.calls[b.call].process].App), len(names)-1)
		}
		g.Blocks = append(g.Blocks, report.Block{Row: b.device, Start: b.from.Seconds(), End: min(b.to, until).Seconds(), Hi: 1, Kind: uint8(kind), Job: k})
	}
	return g
}

// tell is what the page shows about a call.
func (r *Run) tell(c *call, device string) report.GanttJob {
	p := r.Recorder.processes[c.process]
	lines := []string{
		"Launched\t" + fmt.Sprintf("at %s on %s", report.Duration(c.launched.Seconds()), r.Cluster.Nodes[p.Node].Name),
		"Queued for\t" + report.Duration((c.held - c.launched).Seconds()),
	}
	if c.remote {
		lines = append(lines, "Sent\t"+Size(float64(c.sent)))
	}
	if c.ran {
		if c.remote {
			lines = append(lines, "Held before\t"+report.Duration((c.running-c.held).Seconds()))
		}
		lines = append(lines, "Kernel began\tat "+report.Duration(c.running.Seconds()))
	}
	if c.returned > 0 {
		lines = append(lines, "Results\t"+Size(float64(c.returned)))
	}
	if c.done >= 0 {
		lines = append(lines, "Done\t"+report.Duration((c.done-c.launched).Seconds())+" after its launch")
	}
	where := "of its own node"
	if c.remote {
		where = "of another node"
	}
	lines = append(lines, "GPU\t"+device+", "+where)
	return report.GanttJob{ID: fmt.Sprintf("%s.%d#%d", r.Workload.Apps[p.App].Name, p.Rank, c.step), Lines: lines}
}
