// Package whatifpage shows how other policies would have handled a cluster's own history, as tables
// for a terminal and as a page. It knows the head's document, and neither the head nor the
// simulator.
package whatifpage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"muster/report"
	"muster/wire/api"
)

// figures is the table of a period: what was measured, the simulation of the policy in force, the
// difference between the two, and the simulations of all other policies.
func figures(p *api.WhatIfPeriod, zone *time.Location) *report.Table {
	t := &report.Table{
		Title: title(p, zone),
		Columns: []report.Column{
			{Name: "Policy"}, {Name: ""},
			{Name: "Wait", Right: true, Help: "mean time from submission to start; of jobs that had not started, to the end of the period"},
			{Name: "Change", Right: true, Help: "of the mean wait, against the policy in force, both simulated"},
			{Name: "Median", Right: true, Help: "half of the jobs waited no longer"}, {Name: "P95", Right: true, Help: "95 of 100 jobs waited no longer"},
			{Name: "Slowdown", Right: true, Help: "mean of wait and run together over run, where runs count as 10 s at least"},
			{Name: "GPUs", Right: true, Help: "part of all GPUs that jobs held"}, {Name: "Cores", Right: true, Help: "part of all cores that jobs held"},
			{Name: "Unfinished", Right: true, Help: "jobs that waited or ran at the end"}, {Name: "Impossible", Right: true, Help: "jobs that this policy could never start; they count nowhere else"},
		},
	}
	t.Rows = append(t.Rows, row(p.Policy, "measured", &p.Measured, ""))
	base := (*api.WhatIfFigures)(nil)
	for i := range p.Policies {
		l := &p.Policies[i]
		if !l.InForce {
			continue
		}
		t.Rows = append(t.Rows, line(l, nil))
		if base = l.Figures; p.Model != nil {
			t.Rows = append(t.Rows, difference(p.Policy, p.Model))
		}
	}
	for i := range p.Policies {
		if l := &p.Policies[i]; !l.InForce {
			t.Rows = append(t.Rows, line(l, base))
		}
	}
	return t
}

func title(p *api.WhatIfPeriod, zone *time.Location) string {
	at := func(seconds float64) string { return time.Unix(int64(seconds), 0).In(zone).Format("2006-01-02 15:04") }
	return fmt.Sprintf("Last %s, %s to %s: %s jobs; simulated %s", p.Name, at(p.From), at(p.To), report.Number(float64(p.Jobs)), at(p.MadeAt))
}

func row(policy, what string, f *api.WhatIfFigures, change string) []string {
	return []string{
		policy, what, report.Duration(f.MeanWait), change, report.Duration(f.MedianWait), report.Duration(f.P95Wait), report.Number(math.Round(f.MeanSlowdown*100) / 100),
		report.Percent(f.Use), report.Percent(f.CoreUse), strconv.Itoa(f.Unfinished), count(f.Impossible),
	}
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// line is the row of a simulated policy, or of the reason why there are no figures.
func line(l *api.WhatIfPolicy, base *api.WhatIfFigures) []string {
	if l.Figures == nil {
		return []string{l.Policy, l.Error, "", "", "", "", "", "", "", "", ""}
	}
	change := ""
	if base != nil && base.MeanWait > 0 {
		change = fmt.Sprintf("%+.1f %%", 100*(l.Figures.MeanWait/base.MeanWait-1))
	}
	return row(l.Policy, "simulated", l.Figures, change)
}

// difference is the row with the error of the prediction.
func difference(policy string, m *api.WhatIfAccuracy) []string {
	span := func(seconds float64) string { return signed(seconds, report.Duration) }
	return []string{
		policy, "error of the simulation", span(m.MeanWait), "", span(m.MedianWait), span(m.P95Wait), signed(math.Round(m.MeanSlowdown*100)/100, report.Number),
		signed(m.Use, report.Percent), signed(m.CoreUse, report.Percent), fmt.Sprintf("%+d", m.Unfinished), "",
	}
}

func signed(x float64, format func(float64) string) string {
	if x > 0 {
		return "+" + format(x)
	}
	return format(x)
}

// users is a table of users' mean waits, measured and simulated.
func users(p *api.WhatIfPeriod, most int) *report.Table {
	t := &report.Table{Title: "Mean waits of users", Columns: []report.Column{{Name: "User"}, {Name: "Jobs", Right: true}, {Name: "Measured", Right: true}}}
	type cell struct {
		user string
		at   int
	}
	waits, users := map[cell]float64{}, map[string]api.WhatIfUser{}
	for i := range p.Policies {
		t.Columns = append(t.Columns, report.Column{Name: p.Policies[i].Policy, Right: true, Help: "simulated"})
		for _, u := range p.Policies[i].Users {
			waits[cell{u.User, i}] = u.MeanWait
			if u.Jobs > users[u.User].Jobs {
				users[u.User] = u
			}
		}
	}
	list := slices.Collect(maps.Values(users))
	slices.SortFunc(list, func(a, b api.WhatIfUser) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.User, b.User)) })
	if len(list) > most {
		t.Note = fmt.Sprintf("%d users with fewer jobs are not shown.", len(list)-most)
		list = list[:most]
	}
	for _, u := range list {
		row := []string{u.User, strconv.Itoa(u.Jobs), report.Duration(u.MeanWaitMeasured)}
		for i := range p.Policies {
			text := ""
			if wait, ok := waits[cell{u.User, i}]; ok {
				text = report.Duration(wait)
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// shownUsers is the number of users on a page.
const shownUsers = 100

// Page shows the whole document.
func Page(w *api.WhatIf, zone *time.Location) *report.Page {
	p := &report.Page{
		Title: "What if",
		Lead:  "What other policies would have made of this cluster's own jobs. Measured is what happened. Everything else is simulated; the policy that was in force is simulated too, and how far that is from what was measured says how much the other figures are worth.",
	}
	for i := range w.Periods {
		period := &w.Periods[i]
		if period.MadeAt == 0 {
			continue
		}
		p.Sections = append(p.Sections, report.Heading("Last "+period.Name), figures(period, zone), bars(period), users(period, shownUsers))
		for _, note := range period.Notes {
			p.Sections = append(p.Sections, report.Text(note+"."))
		}
	}
	return p
}

// bars draws the mean waits.
func bars(p *api.WhatIfPeriod) *report.Bars {
	b := &report.Bars{Title: "Mean wait", YLabel: "mean wait", YIsTime: true, Groups: []string{"measured"}}
	values := []float64{p.Measured.MeanWait}
	for i := range p.Policies {
		if f := p.Policies[i].Figures; f != nil {
			b.Groups, values = append(b.Groups, p.Policies[i].Policy), append(values, f.MeanWait)
		}
	}
	b.Series = []report.BarSeries{{Name: "mean wait", Values: values}}
	return b
}
