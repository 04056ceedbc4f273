package exp

import (
	"context"

	"muster/report"
)

// Report is a result that grows part by part, and its page with it.
type Report struct{ Result }

// NewReport is one with notes. Partial says what an interrupt has left out; "" for nothing.
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

// AddTables adds tables to the page and to what people see in a terminal in place of the rows.
func (r *Report) AddTables(list ...*report.Table) {
	r.Tables = append(r.Tables, list...)
	for _, t := range list {
		r.Add(t)
	}
}

// Begin begins a part with its rows, and says whether there are any: a part without rows is left out.
func (r *Report) Begin(title string, rows []Row) bool {
	if len(rows) == 0 {
		return false
	}
	r.Rows = append(r.Rows, rows...)
	r.Add(report.Heading(title))
	return true
}

// Show adds a part whose rows people see as they are, with their notes, unless there are tables of
// their own.
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

// ShowOnPage adds a part whose table, with notes, is on the page only, below its pictures. In a
// terminal people see the rows of all parts.
func (r *Report) ShowOnPage(title string, rows []Row, pictures ...report.Section) {
	if r.Begin(title, rows) {
		r.Add(pictures...)
		r.Add(TableWithNotes(rows, title))
	}
}

// Found is the result of an experiment that gives what it has when it is interrupted. If that is
// nothing, the context's error is all there is.
func (r *Report) Found(ctx context.Context) (*Result, error) {
	if len(r.Rows) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &r.Result, nil
}

// Names are those of the parts of an experiment, or of something else that it has a list of.
func Names[P any](list []P, name func(*P) string) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = name(&list[i])
	}
	return names
}

// Wanted are the parts that were asked for, in their order.
func Wanted[P any](o Options, parts []P, name func(*P) string) []P {
	var list []P
	for i := range parts {
		if o.Wants(name(&parts[i])) {
			list = append(list, parts[i])
		}
	}
	return list
}

// Live is the Run of an experiment that is simulated, unless the flag --live is given. The other
// flags of live ones go with that flag alone.
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
