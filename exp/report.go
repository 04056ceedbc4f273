package exp

import (
	"context"

	"muster/report"
)

// Report is a result under construction: each part adds its rows and its sections of the page.
type Report struct{ Result }

// NewReport makes a report without rows. partial says what is missing because of an interrupt; ""
// if nothing is.
func NewReport(name, title, lead string, notes []string, partial string) *Report {
	r := &Report{Result{Name: name, Partial: partial, Notes: notes, Page: &report.Page{Title: title, Lead: lead}}}
	if partial != "" {
		r.Add(report.Text("Interrupted: this is a part of it. Missing: " + partial + "."))
	}
	r.Add(report.Heading("How it was done, and what differs"))
	for _, n := range notes {
		r.Add(report.Text(n))
	}
	return r
}

// Add appends to the page.
func (r *Report) Add(list ...report.Section) { r.Page.Sections = append(r.Page.Sections, list...) }

// AddTables adds tables to the page and to the tables that replace the rows in a terminal.
func (r *Report) AddTables(list ...*report.Table) {
	r.Tables = append(r.Tables, list...)
	for _, t := range list {
		r.Add(t)
	}
}

// Begin adds the heading and the rows of a part. It returns false, and adds nothing, if the part
// has no rows.
func (r *Report) Begin(title string, rows []Row) bool {
	if len(rows) == 0 {
		return false
	}
	r.Rows = append(r.Rows, rows...)
	r.Add(report.Heading(title))
	return true
}

// Show adds a part. The terminal and the page show the part's own tables, if there are any, and
// otherwise its rows with their notes.
func (r *Report) Show(title string, rows []Row, own ...*report.Table) {
	if !r.Begin(title, rows) {
		return
	}
	if len(own) == 0 {
		own = []*report.Table{TableWithNotes(rows, title)}
		own[0].Title = title
	}
	r.AddTables(own...)
}

// ShowOnPage adds a part whose table of rows and notes appears only on the page, below its
// pictures. The terminal lists the rows of all parts.
func (r *Report) ShowOnPage(title string, rows []Row, pictures ...report.Section) {
	if r.Begin(title, rows) {
		r.Add(pictures...)
		r.Add(TableWithNotes(rows, title))
	}
}

// Found is the result of an experiment that supports partial results. If the context ended before
// there was any row, it returns the context's error.
func (r *Report) Found(ctx context.Context) (*Result, error) {
	if len(r.Rows) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &r.Result, nil
}

// Names lists the names of an experiment's parts, or of the elements of any other list.
func Names[P any](list []P, name func(*P) string) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = name(&list[i])
	}
	return names
}

// Wanted lists the parts that the user asked for, in the order of parts.
func Wanted[P any](o Options, parts []P, name func(*P) string) []P {
	var list []P
	for i := range parts {
		if o.Wants(name(&parts[i])) {
			list = append(list, parts[i])
		}
	}
	return list
}

// Live makes the Run of an experiment that has two modes: simulated by default, and live with the
// flag --live. The other flags in the list are refused without --live.
func Live(flags []Flag, live, simulated func(context.Context, Options) (*Result, error)) func(context.Context, Options) (*Result, error) {
	return func(ctx context.Context, o Options) (*Result, error) {
		if o.Flags["live"] != "" {
			return live(ctx, o)
		}
		if err := o.Without("live", flags); err != nil {
			return nil, err
		}
		return simulated(ctx, o)
	}
}
