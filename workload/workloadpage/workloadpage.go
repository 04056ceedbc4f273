// Package workloadpage describes a log of jobs: as lines and bars for a terminal, as a document for
// programs, and as a page with charts.
//
// It arranges what package workload has computed and leaves the drawing to package report. It reads
// no files and knows no command line.
package workloadpage

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/model"
	"muster/report"
	"muster/workload"
)

// Description is the description of a log, and its JSON form.
type Description struct {
	workload.Summary
	Load *OfferedLoad `json:"offered_load,omitempty"`
	// Report is the report of the reader; nil for a generated log.
	Report *workload.ReadReport `json:"read,omitempty"`
}

// OfferedLoad is the submitted work relative to what the cluster can do in the same time.
type OfferedLoad struct {
	Cluster        string `json:"cluster"`
	*workload.Load        // nil if all jobs are submitted at once
}

// New describes a workload, and its load on a cluster unless that is nil.
func New(wl *workload.Workload, cluster *model.Cluster) *Description {
	d := &Description{Summary: workload.Describe(wl)}
	if d.Span == 0 {
		d.Interarrival = workload.Distribution{} // meaningless if all jobs are submitted at once
	}
	if cluster != nil {
		d.Load = &OfferedLoad{Cluster: cluster.Name}
		if d.Span > 0 {
			load := d.Summary.Load(len(cluster.Nodes), cluster.TotalCores(), cluster.TotalGPUs())
			d.Load.Load = &load
		}
	}
	return d
}

// lead describes the log in one line.
func (d *Description) lead(name string) string {
	text := fmt.Sprintf("%s: %s", name, report.Plural(d.Jobs, "job"))
	if d.Users > 0 {
		text += " of " + report.Plural(d.Users, "user")
	}
	if d.Span == 0 {
		return text + ", all submitted at once"
	}
	text += fmt.Sprintf(" over %s", report.Duration(d.Span))
	if !d.Start.IsZero() {
		text += fmt.Sprintf(" from %s", d.Start.Format(time.DateOnly))
	}
	return text + fmt.Sprintf(" (%s a day)", report.Number(math.Round(d.JobsPerDay*10)/10))
}

// work describes the total work of the jobs, and its share of the cluster.
func (d *Description) work() string {
	hours := func(seconds float64, what string) string {
		return report.Number(math.Round(seconds/3600)) + " " + what + " hours"
	}
	parts := []string{hours(d.CoreSeconds, "core")}
	if d.NodeSeconds > 0 {
		parts = append(parts, hours(d.NodeSeconds, "node"))
	}
	if d.GPUSeconds > 0 {
		parts = append(parts, hours(d.GPUSeconds, "GPU"))
	}
	return "Work: " + strings.Join(parts, ", ")
}

func (d *Description) offered() string {
	l := d.Load
	switch {
	case l == nil:
		return ""
	case l.Load == nil:
		return fmt.Sprintf("Offered load on %s: none can be told, all jobs come at once", l.Cluster)
	}
	parts := []string{"cores " + report.Percent(l.Cores)}
	if d.NodeSeconds > 0 {
		parts = append(parts, "whole nodes "+report.Percent(l.Nodes))
	}
	if d.GPUSeconds > 0 {
		parts = append(parts, "GPUs "+report.Percent(l.GPUs))
	}
	return fmt.Sprintf("Offered load on %s: %s", l.Cluster, strings.Join(parts, ", "))
}

// facts has one line for each quantity.
func (d *Description) facts() *report.Table {
	t := &report.Table{Columns: []report.Column{{Name: ""}}}
	for _, name := range []string{"jobs", "min", "median", "mean", "p95", "max"} {
		t.Columns = append(t.Columns, report.Column{Name: name, Right: true})
	}
	add := func(name string, x workload.Distribution, format func(float64) string) {
		if x.Count > 0 {
			t.Rows = append(t.Rows, []string{name, report.Number(float64(x.Count)),
				format(x.Min), format(x.Median), format(x.Mean), format(x.P95), format(x.Max)})
		}
	}
	add("run time", d.Run, report.Duration)
	add("wall time asked for", d.WallTime, report.Duration)
	add("run time / wall time", d.Accuracy, report.Percent)
	add("between submissions", d.Interarrival, report.Duration)
	add("nodes", d.Nodes, round)
	add("cores", d.Cores, round)
	add("GPUs, where asked for", d.GPUs, round)
	add("memory a node", d.Memory, size)
	return t
}

func round(x float64) string { return report.Number(math.Round(x*100) / 100) }

// size writes bytes in the largest decimal unit, with a digit after the point.
func size(bytes float64) string {
	unit := 0
	for bytes >= 999.95 && unit < 5 {
		bytes /= 1000
		unit++
	}
	return report.Number(math.Round(bytes*10)/10) + " " + []string{"B", "kB", "MB", "GB", "TB", "PB"}[unit]
}

// panel is a small bar chart: names with their values.
type panel struct {
	title string
	rows  []panelRow
	share bool // values are fractions, not numbers of jobs
}

type panelRow struct {
	name  string
	value float64
	count string
}

// Sizes of the drawing, so that everything fits a terminal of 100 by 60 characters.
const (
	maxPanelRows = 11
	maxGPUCounts = 5
	maxNames     = 5
	maxLogName   = 32
)

// widths are the widths of a panel and its parts, in characters.
type widths struct{ name, count, bar, panel int }

var (
	oneOfTwo   = widths{16, 9, 18, 50}
	oneOfThree = widths{12, 7, 8, 33}
)

// panels are the charts of quantities that have data, in pairs of similar height.
func (d *Description) panels() []panel {
	size := sizePanel("Nodes", d.Nodes)
	if d.Nodes.Count == 0 {
		size = sizePanel("Cores", d.Cores)
	}
	return slices.DeleteFunc([]panel{
		binPanel("Run time", d.Run, timeBin),
		binPanel("Between submissions", d.Interarrival, timeBin),
		size,
		binPanel("Run time / wall time asked for", d.Accuracy, percentBin),
		d.gpuPanel(),
		d.weekdayPanel(),
	}, panel.empty)
}

func (p panel) empty() bool { return len(p.rows) == 0 }

// groupPanels show which users submit jobs, where the jobs run and how they end, as far as the log
// says.
func (d *Description) groupPanels() []panel {
	byJobs := func(g workload.Group) float64 { return g.Share }
	byWork := func(g workload.Group) float64 { return g.CoreSeconds / max(1, d.CoreSeconds) }
	return slices.DeleteFunc([]panel{
		groupPanel("Users, by core time", d.TopUsers, byWork),
		groupPanel("Queues, by jobs", d.Queues, byJobs),
		groupPanel("How jobs ended", d.Statuses, byJobs),
	}, panel.empty)
}

// binPanel shows a distribution. If it has too many bins, those at the emptier end are merged.
func binPanel(title string, x workload.Distribution, name func(workload.Bin) string) panel {
	bins := slices.Clone(x.Bins)
	for len(bins) > maxPanelRows {
		last := len(bins) - 1
		if bins[0].Count+bins[1].Count < bins[last].Count+bins[last-1].Count {
			bins[1].From = bins[0].From
			bins[1].Count += bins[0].Count
			bins = bins[1:]
		} else {
			bins[last-1].To = bins[last].To
			bins[last-1].Count += bins[last].Count
			bins = bins[:last]
		}
	}
	p := panel{title: title}
	for _, b := range bins {
		p.add(name(b), float64(b.Count))
	}
	return p
}

// sizePanel shows whole numbers, so its last bin can end at the largest of them.
func sizePanel(title string, x workload.Distribution) panel {
	x.Bins = slices.Clone(x.Bins)
	if last := len(x.Bins) - 1; last >= 0 {
		x.Bins[last].To = x.Max + 1
	}
	return binPanel(title, x, wholeBin)
}

func (p *panel) add(name string, jobs float64) {
	p.rows = append(p.rows, panelRow{name, jobs, report.Number(jobs)})
}

// timeBin names a bin of times in round units.
func timeBin(b workload.Bin) string {
	switch {
	case b.From == 0:
		return "below " + shortTime(b.To)
	case b.To != math.Trunc(b.To):
		return "from " + shortTime(b.From)
	}
	return shortTime(b.From) + " – " + shortTime(b.To)
}

// shortTime writes a time in the largest unit of which it is a whole number.
func shortTime(seconds float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}} {
		if seconds >= u.size && math.Mod(seconds, u.size) == 0 {
			return report.Number(seconds/u.size) + " " + u.name
		}
	}
	return report.Number(seconds) + " s"
}

// wholeBin names a bin of whole numbers.
func wholeBin(b workload.Bin) string {
	last := b.To - 1
	if last <= b.From {
		return report.Number(b.From)
	}
	return report.Number(b.From) + " – " + report.Number(last)
}

func percentBin(b workload.Bin) string {
	percent := func(x float64) string { return report.Number(math.Round(x * 100)) }
	if b.From >= 1 {
		return "100 % and more"
	}
	return percent(b.From) + " – " + percent(b.To) + " %"
}

func (d *Description) gpuPanel() panel {
	p := panel{title: "GPUs a node"}
	if d.GPUs.Count == 0 {
		return p
	}
	rest := 0
	for i, m := range d.GPUMix {
		if i < maxGPUCounts {
			p.add(report.Number(float64(m.GPUs)), float64(m.Jobs))
		} else {
			rest += m.Jobs
		}
	}
	if rest > 0 {
		p.add("more", float64(rest))
	}
	for _, kind := range []struct {
		name string
		jobs int
	}{{"a share of each", d.SharedGPUs}, {"GPUs anywhere", d.RemoteGPUs}} {
		if kind.jobs > 0 {
			p.add(kind.name, float64(kind.jobs))
		}
	}
	return p
}

var weekdays = []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

func (d *Description) weekdayPanel() panel {
	p := panel{title: "Submissions by weekday (UTC)"}
	if d.Span < 7*86400 {
		return p
	}
	for i, n := range d.ByWeekday {
		p.add(weekdays[i], float64(n))
	}
	return p
}

// groupPanel shows the largest groups, if the log has more than one.
func groupPanel(title string, groups []workload.Group, share func(workload.Group) float64) panel {
	p := panel{title: title, share: true}
	if len(groups) < 2 {
		return p
	}
	for _, g := range groups[:min(maxNames, len(groups))] {
		name := g.Name
		if name == "" {
			name = "(not told)"
		}
		x := share(g)
		p.rows = append(p.rows, panelRow{name, x, report.Percent(x)})
	}
	return p
}

// WriteText prints the description for a terminal.
func (d *Description) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, line := range []string{d.lead(report.Short(d.Name, maxLogName)), d.work(), d.offered()} {
		if line != "" {
			fmt.Fprintln(out, report.Printable(line))
		}
	}
	fmt.Fprintln(out)
	if err := d.facts().WriteText(out); err != nil {
		return err
	}
	panels := d.panels()
	for i := 0; i < len(panels); i += 2 {
		fmt.Fprintln(out)
		writeBeside(out, panels[i:min(i+2, len(panels))], oneOfTwo)
	}
	if groups := d.groupPanels(); len(groups) > 0 {
		fmt.Fprintln(out)
		writeBeside(out, groups, oneOfThree)
	}
	if d.Span > 0 {
		fmt.Fprintln(out)
		writeHours(out, d.ByHour, d.Start.IsZero())
	}
	return out.Flush()
}

// writeBeside draws panels side by side.
func writeBeside(w io.Writer, panels []panel, size widths) {
	for i := -1; ; i++ {
		line, more := "", false
		for _, p := range panels {
			part := ""
			switch {
			case i < 0:
				part, more = p.title, true
			case i < len(p.rows):
				part, more = p.line(i, size), true
			}
			line += fill(part, size.panel)
		}
		if !more {
			return
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// line is a row of the panel as text.
func (p *panel) line(i int, size widths) string {
	r := p.rows[i]
	most := 0.0
	for _, other := range p.rows {
		most = max(most, other.value)
	}
	length := 0.0
	if most > 0 {
		length = r.value / most
	}
	return fmt.Sprintf("  %s %*s %s", fill(report.Short(report.Printable(r.name), size.name), size.name), size.count, r.count, bar(length, size.bar))
}

// bar draws a length from 0 to 1 in eighths of a character. A bar that is not zero is always
// visible.
func bar(length float64, width int) string {
	eighths := int(math.Round(length * 8 * float64(width)))
	if length > 0 {
		eighths = max(1, eighths)
	}
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// hourTitle says what the hours mean: in a log without dates they count from its start.
func hourTitle(relative bool) string {
	if relative {
		return "Submissions by hour of the log"
	}
	return "Submissions by hour (UTC)"
}

// writeHours draws the day, with two characters per hour.
func writeHours(w io.Writer, hours []int, relative bool) {
	title := hourTitle(relative)
	busiest := slices.Index(hours, slices.Max(hours))
	steps := []rune("▁▂▃▄▅▆▇█")
	var line strings.Builder
	for _, n := range hours {
		step := ' '
		if n > 0 {
			step = steps[(n*len(steps)-1)/hours[busiest]]
		}
		line.WriteString(strings.Repeat(string(step), 2))
	}
	fmt.Fprintf(w, "%s  %s  most: %d h, %s\n", title, line.String(), busiest, report.Number(float64(hours[busiest])))
	fmt.Fprintf(w, "%s  0           6           12          18       24\n", strings.Repeat(" ", len(title)))
}

// fill pads a text with blanks to a width.
func fill(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// WriteRead says what was found in a log of that name beside its jobs.
func WriteRead(w io.Writer, name string, r *workload.ReadReport) {
	fmt.Fprintf(w, "%s: %s in %s of %s\n", name, report.Plural(r.Jobs, "job"), report.Plural(r.Lines, "line"), r.Format)
	for _, note := range r.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
	if r.Bad == 0 {
		return
	}
	fmt.Fprintf(w, "  bad lines left out: %d\n", r.Bad)
	for _, b := range r.FirstBad {
		fmt.Fprintf(w, "    %v\n", &workload.LineError{File: name, Line: b.Line, Column: b.Column, Reason: b.Reason})
	}
	if more := r.Bad - len(r.FirstBad); more > 0 {
		fmt.Fprintf(w, "    and %d more\n", more)
	}
}
