package workloadpage

import (
	"math"
	"strings"
	"time"

	"muster/report"
	"muster/workload"
)

// Page is the description with charts.
func (d *Description) Page(wl *workload.Workload) *report.Page {
	lead := []string{d.lead(d.Name) + ".", d.work() + "."}
	if text := d.offered(); text != "" {
		lead = append(lead, text+".")
	}
	page := &report.Page{Title: "Workload " + d.Name, Lead: strings.Join(lead, " ")}
	add := func(s ...report.Section) { page.Sections = append(page.Sections, s...) }
	add(report.Heading("Numbers"), d.facts())
	if d.Report != nil && len(d.Report.Notes) > 0 {
		add(report.Text("Of the log: " + strings.Join(d.Report.Notes, "; ") + "."))
	}
	v := valuesOf(wl)
	add(report.Heading("How long and how large"),
		&report.Histogram{Title: "Run times", XLabel: "run time", YLabel: "jobs", XIsTime: true, LogX: true, Series: one(v.run)})
	if len(v.accuracy) > 0 {
		add(&report.Histogram{Title: "How well run times were estimated", XLabel: "run time / wall time asked for", YLabel: "jobs", Series: one(v.accuracy), Bins: 20})
	}
	if len(v.nodes) > 0 {
		add(&report.Histogram{Title: "Nodes", XLabel: "nodes of a job", YLabel: "jobs", LogX: true, Series: one(v.nodes)})
	}
	add(&report.Histogram{Title: "Cores", XLabel: "cores of a job", YLabel: "jobs", LogX: true, Series: one(v.cores)})
	if p := d.gpuPanel(); len(p.rows) > 0 {
		add(p.bars("jobs"))
	}
	if d.Span > 0 {
		add(report.Heading("When they come"), submissions(wl), demand(wl),
			&report.Histogram{Title: "Between submissions", XLabel: "time to the next", YLabel: "jobs", XIsTime: true, LogX: true, Series: one(v.gaps)},
			d.hourPanel().bars("jobs"))
		if p := d.weekdayPanel(); len(p.rows) > 0 {
			add(p.bars("jobs"))
		}
	}
	if groups := d.groupPanels(); len(groups) > 0 {
		add(report.Heading("Who, where and how it ended"))
		for _, p := range groups {
			add(p.bars("share"))
		}
	}
	return page
}

func one(values []float64) []report.Sample { return []report.Sample{{Name: "jobs", Values: values}} }

// bars draws a panel as a chart.
func (p panel) bars(label string) *report.Bars {
	b := &report.Bars{Title: p.title, YLabel: label, YIsPercent: p.share, Series: []report.BarSeries{{Name: label}}}
	for _, r := range p.rows {
		b.Groups = append(b.Groups, r.name)
		b.Series[0].Values = append(b.Series[0].Values, r.value)
	}
	return b
}

func (d *Description) hourPanel() panel {
	p := panel{title: hourTitle(d.Start.IsZero())}
	for hour, n := range d.ByHour {
		p.add(report.Number(float64(hour)), float64(n))
	}
	return p
}

// logValues are the values that the page's histograms show.
type logValues struct{ run, accuracy, nodes, cores, gaps []float64 }

func valuesOf(wl *workload.Workload) logValues {
	var v logValues
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		v.run = append(v.run, j.Run.Seconds())
		v.cores = append(v.cores, float64(j.Request.TotalCores()))
		if j.WallTime > 0 {
			v.accuracy = append(v.accuracy, j.Run.Seconds()/j.WallTime.Seconds())
		}
		if j.Request.Nodes > 0 {
			v.nodes = append(v.nodes, float64(j.Request.Nodes))
		}
		if i > 0 {
			v.gaps = append(v.gaps, (j.Submit - wl.Jobs[i-1].Submit).Seconds())
		}
	}
	return v
}

// pieces is the number of equal periods into which a log is divided for the charts over time.
const pieces = 120

// overTime sums value(job) over each period of the log.
func overTime(wl *workload.Workload, value func(i int) float64) report.Series {
	width := wl.Jobs[len(wl.Jobs)-1].Submit/pieces + 1
	s := report.Series{Step: true, X: make([]float64, pieces+1), Y: make([]float64, pieces+1)}
	for i := range s.X {
		s.X[i] = (time.Duration(i) * width).Seconds()
	}
	for i := range wl.Jobs {
		s.Y[wl.Jobs[i].Submit/width] += value(i)
	}
	s.Y[pieces] = math.NaN() // ends the last period
	return s
}

func submissions(wl *workload.Workload) *report.Chart {
	s := overTime(wl, func(int) float64 { return 1 })
	s.Name = "jobs"
	return &report.Chart{Title: "Submissions", XLabel: "time", YLabel: "jobs", XIsTime: true, Series: []report.Series{s}}
}

// demand is the arriving work over time, as the number of cores and GPUs that it would keep busy.
func demand(wl *workload.Workload) *report.Chart {
	width := (wl.Jobs[len(wl.Jobs)-1].Submit/pieces + 1).Seconds()
	cores := overTime(wl, func(i int) float64 {
		j := &wl.Jobs[i]
		return float64(j.Request.TotalCores()) * j.Run.Seconds() / width
	})
	cores.Name = "cores"
	gpus := overTime(wl, func(i int) float64 {
		j := &wl.Jobs[i]
		return float64(j.Request.TotalGPUs()) * j.Run.Seconds() / width
	})
	gpus.Name = "GPUs"
	return &report.Chart{
		Title: "Demand", XLabel: "time of submission", YLabel: "cores and GPUs", XIsTime: true, Series: []report.Series{cores, gpus},
		Note: "The work that is submitted in a piece of time over its length: so many cores and GPUs it would keep busy.",
	}
}
