package bench

import (
	"context"
	"fmt"
	"slices"

	"muster/exp"
	"muster/report"
)

// Study is an experiment made of figures, each of which shows measurements that are kept in a Record: how they are made
// once per seed, what an interrupt leaves, what of a file is refused, and how it is all shown. Measured is what is kept
// (it embeds the record), and One a measurement that is to be made.
type Study[Measured any, Outcome timed, One Keyed] struct {
	Name, Title, Lead string
	// Version is that of what is kept in files.
	Version int
	Figures func() []Figure[Measured, One]
	Record  func(*Measured) *Record[Outcome]
	// Begin reads the flags and finds the programs, before anything is measured. The record names the figures that are
	// to be measured.
	Begin func(context.Context, exp.Options) (*Measured, Lab[Outcome, One], error)
	// Check validates what was read from a file, apart from the record itself. Good validates one outcome, and Fits, if
	// set, whether outcomes are those of a measurement.
	Check func(*Measured) error
	Good  func(*Outcome) bool
	Fits  func(*One, []Outcome) error
	// Prepare, if set, computes what is shown beside the measurements.
	Prepare func(*Measured) error
	// Notes describe the method. Those about statements that do not hold are added, and those about what is missing and
	// about a busy machine, one that woke sleepers more than TooLate seconds late; 0 leaves these to Notes.
	Notes   func(*Measured) []string
	TooLate float64
	// Claims are the rows of verdicts, and Parts are shown behind the figures.
	Claims func(*Measured) []exp.Row
	Parts  []Part[Measured]
}

// Figure is a part of a study that the user can ask for alone.
type Figure[Measured any, One Keyed] struct {
	Name, Part string
	// Plan lists its measurements, some of which other figures may share.
	Plan func(*Measured) []One
	Show func(*Measured) Shown
}

// Shown is the output of a figure.
type Shown struct {
	Rows     []exp.Row
	Pictures []report.Section
}

// Part is a table of a study that belongs to no figure.
type Part[Measured any] struct {
	Title string
	Rows  func(*Measured) []exp.Row
}

// Keyed is a measurement that is known by its key in the record.
type Keyed interface{ Key() string }

// Lab makes measurements.
type Lab[Outcome any, One Keyed] interface {
	Make(one *One, seed uint64) (Outcome, error)
	// Close ends what was started for the measurements.
	Close() error
}

// Run shows the measurements that --from names, or makes them (see Frame).
func (s *Study[Measured, Outcome, One]) Run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	return s.Frame().Run(ctx, o)
}

// Frame makes, checks and shows the measurements.
func (s *Study[Measured, Outcome, One]) Frame() Frame[Measured] {
	return Frame[Measured]{Measure: s.measure, Check: s.check, Result: s.Result, Partial: func(m *Measured) string { return s.Record(m).Missing }}
}

// FigureNames lists what the user can ask for.
func (s *Study[Measured, Outcome, One]) FigureNames() []string {
	return exp.Names(s.Figures(), func(f *Figure[Measured, One]) string { return f.Name })
}

// Chosen are the figures that the record has.
func (s *Study[Measured, Outcome, One]) Chosen(m *Measured) []Figure[Measured, One] {
	return slices.DeleteFunc(s.Figures(), func(f Figure[Measured, One]) bool { return !slices.Contains(s.Record(m).Figures, f.Name) })
}

// Plan lists the measurements of the chosen figures, each once.
func (s *Study[Measured, Outcome, One]) Plan(m *Measured) []One {
	var plan []One
	seen := map[string]bool{}
	for _, f := range s.Chosen(m) {
		for _, one := range f.Plan(m) {
			if !seen[one.Key()] {
				seen[one.Key()] = true
				plan = append(plan, one)
			}
		}
	}
	return plan
}

// measure makes all measurements of the chosen figures. If it is interrupted, it keeps the complete figures, and the
// record names the others.
func (s *Study[Measured, Outcome, One]) measure(ctx context.Context, o exp.Options) (*Measured, error) {
	m, lab, err := s.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	plan := s.Plan(m)
	err = s.Record(m).Measure(exp.Names(plan, keyOf[One]), o.Progress, func(i int, seed uint64) (Outcome, error) { return lab.Make(&plan[i], seed) })
	closed := lab.Close()
	switch {
	case err == nil:
		err = closed
	case ctx.Err() != nil && s.Keep(m):
		err = nil
	}
	return m, err
}

func keyOf[One Keyed](one *One) string { return (*one).Key() }

// Keep drops the incomplete part of an interrupted record (see Record.Keep).
func (s *Study[Measured, Outcome, One]) Keep(m *Measured) bool {
	var needs []Need
	for _, f := range s.Chosen(m) {
		needs = append(needs, Need{f.Name, exp.Names(f.Plan(m), keyOf[One])})
	}
	return s.Record(m).Keep(needs)
}

// check validates measurements that were read from a file: every figure must have all of its own, as many as seeds.
func (s *Study[Measured, Outcome, One]) check(m *Measured) error {
	r := s.Record(m)
	if err := r.checkVersion(s.Version); err != nil {
		return err
	}
	if err := s.Check(m); err != nil {
		return err
	}
	for key, list := range r.Outcomes {
		for i := range list {
			if t := list[i].timing(); !(t.Seconds > 1e-9 && t.Seconds < 1e9) || !(t.Late >= 0 && t.Late < 1e3) || !s.Good(&list[i]) {
				return fmt.Errorf("%s: %+v", key, list[i])
			}
		}
	}
	for _, name := range r.Figures {
		if !slices.Contains(s.FigureNames(), name) {
			return fmt.Errorf("there is no figure %q", name)
		}
	}
	for _, one := range s.Plan(m) {
		list := r.Outcomes[one.Key()]
		if len(list) != len(r.Seeds) {
			return fmt.Errorf("%s was measured %d times, with %d seeds", one.Key(), len(list), len(r.Seeds))
		}
		if s.Fits == nil {
			continue
		}
		if err := s.Fits(&one, list); err != nil {
			return fmt.Errorf("%s %w", one.Key(), err)
		}
	}
	return nil
}

// Result makes rows, notes and the page.
func (s *Study[Measured, Outcome, One]) Result(m *Measured) (*exp.Result, error) {
	if s.Prepare != nil {
		if err := s.Prepare(m); err != nil {
			return nil, err
		}
	}
	notes := append(s.Notes(m), s.Record(m).caveats(s.TooLate)...)
	for _, r := range s.Claims(m) {
		if r.Ours < 1 {
			notes = append(notes, r.Note)
		}
	}
	r := exp.NewReport(s.Name, s.Title, s.Lead, notes, "")
	for _, f := range s.Chosen(m) {
		shown := f.Show(m)
		r.ShowOnPage(f.Part, shown.Rows, shown.Pictures...)
	}
	for _, p := range s.Parts {
		r.ShowOnPage(p.Title, p.Rows(m))
	}
	return &r.Result, nil
}
