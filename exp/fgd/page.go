package fgd

import (
	"fmt"
	"slices"

	"muster/exp"
	"muster/report"
)

func page(r *exp.Result, scenes []*scene) *report.Page {
	p := &report.Page{
		Title: title,
		Lead: "Pods of a cloud's trace come until 130 % of the cluster's GPUs are asked for. What is left unallocated then is what a policy wastes: in GPUs whose node has no cores left, and in " +
			"gaps beside shares. The six policies of the FGD paper, beside three that take GPUs from any node.",
	}
	add := func(list ...report.Section) { p.Sections = append(p.Sections, list...) }
	add(report.Heading("What is shown, and how"))
	for _, n := range r.Notes {
		add(report.Text(n))
	}
	add(report.Heading("Unallocated at the end"), wasted(scenes))
	for _, s := range scenes {
		add(report.Heading(s.part()))
		if s.name == "default" {
			add(s.beside())
		}
		add(s.unallocated(), s.fragments(), s.gaps(), exp.TableWithNotes(r.Rows, s.part()))
	}
	return p
}

// drawn are the contenders in the charts, as many as there are colours. The tables have all.
func drawn() []contender {
	return slices.DeleteFunc(slices.Clone(contenders), func(k contender) bool {
		return k.name == fgdRandomTies || k.name == fgdDecoupled
	})
}

func wastedBy(c *course) float64 { return 100 - allocated(c) }

// wasted compares the workloads.
func wasted(scenes []*scene) *report.Bars {
	b := &report.Bars{Title: "GPUs not allocated when 130 % have been asked for", YLabel: "% of GPUs"}
	for _, s := range scenes {
		b.Groups = append(b.Groups, s.name)
	}
	for _, k := range drawn() {
		bar := report.BarSeries{Name: k.name}
		for _, s := range scenes {
			exp.AddBar(&bar, s.of(k.name, wastedBy))
		}
		b.Series = append(b.Series, bar)
	}
	return b
}

// beside compares the authors' numbers with ours.
func (s *scene) beside() *report.Bars {
	b := &report.Bars{
		Title: "GPUs not allocated at the end: the authors' program and Muster", YLabel: "% of GPUs",
		Series: []report.BarSeries{{Name: "the authors", Reference: true}, {Name: "Muster"}},
	}
	theirs, ours := &b.Series[0], &b.Series[1]
	for _, k := range contenders {
		paper, known := published[s.name][k.name]
		if !known {
			continue
		}
		b.Groups = append(b.Groups, k.name)
		theirs.Values = append(theirs.Values, 100-paper.allocated)
		exp.AddBar(ours, s.of(k.name, wastedBy))
	}
	return b
}

// from is the demand from which on the policies differ; before it every pod is placed.
const from = 88

// lines draws a value of each contender over the arrived demand.
func (s *scene) lines(c *report.Chart, from int, value func(c *course, at int) float64) *report.Chart {
	c.XLabel = "demand that has arrived, % of the cluster's GPUs"
	for _, k := range drawn() {
		l := report.Series{Name: k.name}
		for at := from; at < points; at++ {
			l.X = append(l.X, float64(at))
			l.Y = append(l.Y, s.mean(k.name, func(c *course) float64 { return value(c, at) }))
		}
		c.Series = append(c.Series, l)
	}
	return c
}

func (s *scene) unallocated() *report.Chart {
	return s.lines(&report.Chart{
		Title: "GPUs not allocated, " + s.name, YLabel: "% of GPUs", YMin: new(float64),
		Note: "Until a policy runs out of places all lines fall together.",
	}, from, func(c *course, at int) float64 { return 100 - c.allocated[at] })
}

func (s *scene) fragments() *report.Chart {
	return s.lines(&report.Chart{
		Title: "Fragments, " + s.name, YLabel: "% of GPUs", YMin: new(float64),
		Note: "What a task that is expected could not use of the idle GPUs, on average.",
	}, 0, func(c *course, at int) float64 { return c.fragmented[at] })
}

// gaps shows on which devices the idle GPUs are at the end, by what is left of each.
func (s *scene) gaps() *report.Bars {
	b := &report.Bars{
		Title: "What is left of devices at the end, " + s.name, YLabel: "GPUs idle",
		Note: "By how much of its device it is. What is left beside a share of 810 thousandths, the most common one, is too small for nearly all pods.",
	}
	for i := range tenths {
		if i == tenths-1 {
			b.Groups = append(b.Groups, "whole")
			break
		}
		b.Groups = append(b.Groups, fmt.Sprintf("%d-%d %%", 10*i, 10*i+9))
	}
	for _, name := range []string{"best-fit", fgdCoupled, bestFitDecoupled, pricedFit} {
		bar := report.BarSeries{Name: name}
		for i := range tenths {
			bar.Values = append(bar.Values, s.mean(name, func(c *course) float64 { return c.gaps[i] }))
		}
		b.Series = append(b.Series, bar)
	}
	return b
}
