package live

import (
	"context"
	"fmt"
	"strings"

	"muster/exp"
	"muster/report"
)

// Step is one thing to measure. Runs follow each other: at the same time they would disturb each
// other.
type Step struct {
	Name string
	// Work is how much of it all it is, for the progress bar.
	Work int
	// Do does it, and tells how much of the work is done.
	Do func(ctx context.Context, progress func(done int)) error
}

// Measure does the steps. When the context ends it says which are missing; that is no error.
func Measure(ctx context.Context, o exp.Options, steps []Step) (missing []string, err error) {
	done, total := 0, 0
	for _, s := range steps {
		total += s.Work
	}
	for _, s := range steps {
		if ctx.Err() == nil {
			err := s.Do(ctx, func(n int) {
				if o.Progress != nil {
					o.Progress(int64(done+n), int64(total))
				}
			})
			if err != nil && ctx.Err() == nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		if ctx.Err() != nil {
			missing = append(missing, s.Name)
		}
		done += s.Work
	}
	return missing, nil
}

// Report is a result that grows part by part.
type Report struct{ exp.Result }

// NewReport is one with notes; missing is what an interrupt has left out.
func NewReport(name, title, lead string, notes, missing []string) *Report {
	r := &Report{exp.Result{Name: name, Partial: strings.Join(missing, "; "), Notes: notes, Page: &report.Page{Title: title, Lead: lead}}}
	if r.Partial != "" {
		r.Add(report.Text("Interrupted: this is a part of it. Missing: " + r.Partial + "."))
	}
	r.Add(report.Heading("How it was done, and what differs"))
	for _, n := range notes {
		r.Add(report.Text(n))
	}
	return r
}

// Add appends to the page.
func (r *Report) Add(list ...report.Section) { r.Page.Sections = append(r.Page.Sections, list...) }

// Show adds the rows of a part, which people see as they are, with their notes, unless there are
// tables of their own.
func (r *Report) Show(title string, rows []exp.Row, own ...*report.Table) {
	if len(rows) == 0 {
		return
	}
	r.Rows = append(r.Rows, rows...)
	if len(own) == 0 {
		own = []*report.Table{exp.TableWithNotes(rows, title)}
		own[0].Title = title
	}
	r.Tables = append(r.Tables, own...)
	r.Add(report.Heading(title))
	for _, t := range own {
		r.Add(t)
	}
}
