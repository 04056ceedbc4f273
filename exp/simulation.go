package exp

import (
	"context"

	"muster/report"
)

// Simulator runs scenarios, each once per seed, whichever parts ask for it (see Trials).
type Simulator[Scenario any] interface {
	Want(...Scenario)
	// Simulate runs what is wanted, and returns what is missing because the context ended.
	Simulate(context.Context) (missing []Scenario, err error)
}

// Simulation is an experiment made of parts that show simulated scenarios.
type Simulation[Lab Simulator[Scenario], Scenario any] struct {
	Name, Title, Lead string
	Notes             func(Lab, []Part[Lab, Scenario]) []string
	// Missing describes the scenarios that an interrupt prevented.
	Missing func([]Scenario) string
	// Summary, if set, adds what stands above all parts.
	Summary func(*Report, Lab, []Part[Lab, Scenario])
	Extra   Extra[Lab]
}

// Part is a part of a simulation that the user can ask for alone.
type Part[Lab, Scenario any] struct {
	Name string
	// Wants lists the scenarios that the part needs, and Show makes its rows and pictures.
	Wants func(Lab) []Scenario
	Show  func(Lab) Shown
}

// Shown is the output of a part.
type Shown struct {
	Title    string
	Rows     []Row
	Tables   []*report.Table // for people, in place of the rows
	Pictures []report.Section
	// PicturesFirst puts them above the tables.
	PicturesFirst bool
	// Listed are rows that the page has in a table with notes, and Told those that a terminal has,
	// too.
	Listed, Told []Row
}

// Extra are pictures from runs of their own, which are made when nothing else is missing. They are
// below those of part Of or, with a Heading, below all parts. Says names them where they are
// missing.
type Extra[Lab any] struct {
	Of, Says, Heading string
	Draw              func(context.Context, Lab) ([]report.Section, error)
}

// Make runs what the parts need, and shows the results.
func (s *Simulation[Lab, Scenario]) Make(ctx context.Context, lab Lab, parts []Part[Lab, Scenario]) (*Result, error) {
	extra := false
	for _, p := range parts {
		lab.Want(p.Wants(lab)...)
		extra = extra || p.Name == s.Extra.Of
	}
	missing, err := lab.Simulate(ctx)
	if err != nil {
		return nil, err
	}
	partial := s.Missing(missing)
	var pictures []report.Section
	if partial == "" && extra {
		if pictures, err = s.Extra.Draw(ctx, lab); err != nil {
			if ctx.Err() == nil {
				return nil, err
			}
			pictures, partial = nil, s.Extra.Says
		}
	}
	return s.Report(lab, parts, pictures, partial).Found(ctx)
}

// Report makes rows, notes and the page of what was found.
func (s *Simulation[Lab, Scenario]) Report(lab Lab, parts []Part[Lab, Scenario], extra []report.Section, partial string) *Report {
	r := NewReport(s.Name, s.Title, s.Lead, s.Notes(lab, parts), partial)
	if s.Summary != nil {
		s.Summary(r, lab, parts)
	}
	for _, p := range parts {
		shown := p.Show(lab)
		if p.Name == s.Extra.Of && s.Extra.Heading == "" {
			shown.Pictures = append(shown.Pictures, extra...)
		}
		r.add(&shown)
	}
	if extra != nil && s.Extra.Heading != "" {
		r.Add(report.Heading(s.Extra.Heading))
		r.Add(extra...)
	}
	return r
}

// add adds a part, unless it has no rows.
func (r *Report) add(s *Shown) {
	if !r.Begin(s.Title, s.Rows) {
		return
	}
	if s.PicturesFirst {
		r.Add(s.Pictures...)
	}
	r.AddTables(s.Tables...)
	if !s.PicturesFirst {
		r.Add(s.Pictures...)
	}
	if len(s.Told) > 0 {
		r.Tables = append(r.Tables, Table(s.Told, s.Title))
	}
	if len(s.Listed) > 0 {
		r.Add(TableWithNotes(s.Listed, s.Title))
	}
}
