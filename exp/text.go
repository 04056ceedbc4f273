package exp

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/internal/misuse"
	"muster/internal/units"
	"muster/model"
	"muster/report"
)

// Find finds an experiment by its name. If there is none, the misuse.Error names the nearest one, or all.
func Find(list []Experiment, name string) (*Experiment, error) {
	names := Names(list, func(e *Experiment) string { return e.Name })
	if i := slices.Index(names, name); i >= 0 {
		return &list[i], nil
	}
	if near := model.Nearest(name, names); near != "" {
		return nil, misuse.Errorf("there is no experiment %q: did you mean %s?", name, near)
	}
	return nil, misuse.Errorf("there is no experiment %q: there are %s", name, strings.Join(names, ", "))
}

// CheckFigures returns a misuse.Error if the experiment does not have one of the figures.
func (e *Experiment) CheckFigures(figures []string) error {
	for _, name := range figures {
		switch {
		case len(e.Figures) == 0:
			return misuse.Errorf("--figure %s: experiment %s is made as a whole", name, e.Name)
		case !slices.Contains(e.Figures, name):
			return misuse.Errorf("--figure %s: experiment %s has %s", name, e.Name, strings.Join(e.Figures, ", "))
		}
	}
	return nil
}

// CheckFlag returns a misuse.Error if the experiment does not have the flag, or if the flag cannot have
// the value. The error names those of list that have it.
func (e *Experiment) CheckFlag(list []Experiment, name, value string) error {
	isIt := func(f Flag) bool { return f.Name == name }
	i := slices.IndexFunc(e.Flags, isIt)
	if i < 0 {
		var owners []string
		for _, other := range list {
			if slices.ContainsFunc(other.Flags, isIt) {
				owners = append(owners, other.Name)
			}
		}
		return misuse.Errorf("--%s: experiment %s has no such flag: it belongs to %s", name, e.Name, strings.Join(owners, ", "))
	}
	if err := e.Flags[i].Check(value); err != nil {
		return misuse.Errorf("%v", err)
	}
	return nil
}

// Listed is how an experiment is listed in JSON.
type Listed struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Summary string `json:"summary"`
	Runs    int    `json:"runs"`
	// Figures can be had alone; Flags are the experiment's own.
	Figures []string     `json:"figures"`
	Flags   []ListedFlag `json:"flags"`
}

// ListedFlag is a flag of an experiment.
type ListedFlag struct {
	Name    string   `json:"name"`
	Summary string   `json:"summary"`
	Values  []string `json:"values"`
}

// List describes experiments for programs. None of its lists is null in JSON.
func List(list []Experiment) []Listed {
	out := []Listed{}
	for _, e := range list {
		one := Listed{e.Name, e.Title, e.Summary, e.Runs, append([]string{}, e.Figures...), []ListedFlag{}}
		for _, f := range e.Flags {
			one.Flags = append(one.Flags, ListedFlag{f.Name, f.Summary, append([]string{}, f.Values...)})
		}
		out = append(out, one)
	}
	return out
}

// WriteHelp describes an experiment for people.
func (e *Experiment) WriteHelp(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n%s\n\nUsage:\n  muster reproduce %s [flags]\n\n%s unless --runs says otherwise.\n", e.Name, e.Title, e.Summary, e.Name, units.Plural(e.Runs, "run"))
	if len(e.Figures) > 0 {
		fmt.Fprintf(w, "Parts that can be had alone, with --figure: %s\n", strings.Join(e.Figures, ", "))
	}
	if len(e.Flags) > 0 {
		fmt.Fprintf(w, "\nFlags of its own:\n")
	}
	for _, flag := range e.Flags {
		values := ""
		if flag.Values != nil {
			values = " (" + strings.Join(flag.Values, ", ") + ")"
		}
		fmt.Fprintf(w, "  --%s  %s%s\n", flag.Name, flag.Summary, values)
	}
	fmt.Fprintf(w, "\nmuster help reproduce has the flags that all experiments have.\n")
}

// WriteText writes what an experiment found: its tables, or one for each part of its rows, and the
// notes. Tables are fitted to this many columns; 0 means no limit.
func (r *Result) WriteText(w io.Writer, title string, columns int) error {
	fmt.Fprintf(w, "%s\n", title)
	tables := r.Tables
	if len(tables) == 0 {
		for _, part := range Parts(r.Rows) {
			tables = append(tables, Table(r.Rows, part))
		}
	}
	for _, t := range tables {
		fmt.Fprintln(w)
		if err := t.WriteFitted(w, columns); err != nil {
			return err
		}
	}
	fmt.Fprint(w, "\nNotes\n")
	for _, n := range r.Notes {
		fmt.Fprintln(w, report.Item(n, noteWidth))
	}
	return nil
}

// noteWidth is how wide the notes are written.
const noteWidth = 96
