package simpage

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"muster/internal/units"
	"muster/policy/history"
	"muster/report"
)

// ReplayDocument is a replayed history, as JSON.
type ReplayDocument struct {
	File       string          `json:"file"`
	Cluster    string          `json:"cluster"`
	Policy     string          `json:"policy"`
	Muster     string          `json:"muster"`
	Events     int             `json:"events"`
	Plans      int             `json:"plans"`
	Started    int             `json:"started"`
	Time       float64         `json:"time_s"` // of the last plan
	Cut        bool            `json:"cut"`
	Same       bool            `json:"same"`
	Difference *jsonDifference `json:"difference"`
}

type jsonDifference struct {
	Line int             `json:"line"`
	Time float64         `json:"time_s"`
	Then json.RawMessage `json:"then"`
	Now  json.RawMessage `json:"now"`
}

// Replayed makes the document of a replayed history; file is its name.
func Replayed(file string, r *history.Result) ReplayDocument {
	doc := ReplayDocument{File: file, Cluster: r.Header.Cluster.Name, Policy: r.Header.Policy, Muster: r.Header.Muster,
		Events: r.Events, Plans: r.Steps, Started: r.Starts, Time: r.Last.Seconds(), Cut: r.Cut, Same: r.Difference == nil}
	if d := r.Difference; d != nil {
		doc.Difference = &jsonDifference{d.Line, d.At.Seconds(), d.Then, d.Now}
	}
	return doc
}

// WriteReplayed describes a replayed history to people.
func WriteReplayed(w io.Writer, r *history.Result) error {
	fmt.Fprintf(w, "%s in %s under %s; jobs started: %d\n", units.Plural(r.Events, "event"), units.FormatDuration(r.Last), report.Printable(r.Header.Policy), r.Starts)
	if r.Cut {
		fmt.Fprintln(w, "it is cut off in the middle of a line: whoever wrote it was stopped, or still writes")
	}
	if d := r.Difference; d != nil {
		_, err := fmt.Fprintf(w, "the first difference is in line %d, at %s:\n  then  %s\n  now   %s\n", d.Line, units.FormatDuration(d.At), report.Printable(string(d.Then)), report.Printable(string(d.Now)))
		return err
	}
	_, err := fmt.Fprintf(w, "the same %s\n", units.Plural(r.Steps, "plan"))
	return err
}

// ComparedDocument is what another policy would have decided at every step of a history, as JSON.
type ComparedDocument struct {
	File      string     `json:"file"`
	Recorded  string     `json:"recorded_policy"`
	Policy    string     `json:"policy"`
	Plans     int        `json:"plans"`
	Different int        `json:"different"`
	Started   int        `json:"started"`
	Same      int        `json:"same"`
	Elsewhere int        `json:"elsewhere"`
	Waits     int        `json:"waits"`
	Instead   int        `json:"instead"`
	Cut       bool       `json:"cut"`
	First     []jsonStep `json:"first"`
}

type jsonStep struct {
	Line      int      `json:"line"`
	Time      float64  `json:"time_s"`
	Waits     []string `json:"waits,omitempty"`
	Elsewhere []string `json:"elsewhere,omitempty"`
	Instead   []string `json:"instead,omitempty"`
}

// Compared is the document of a comparison with another policy.
func Compared(file, other string, r *history.Comparison) ComparedDocument {
	doc := ComparedDocument{File: file, Recorded: r.Header.Policy, Policy: other, Plans: r.Steps, Different: r.Different,
		Started: r.Starts, Same: r.Same, Elsewhere: r.Elsewhere, Waits: r.Waits, Instead: r.Instead, Cut: r.Cut, First: []jsonStep{}}
	for _, d := range r.First {
		doc.First = append(doc.First, jsonStep{d.Line, d.At.Seconds(), d.Waits, d.Elsewhere, d.Instead})
	}
	return doc
}

// WriteCompared describes a comparison with another policy to people.
func WriteCompared(w io.Writer, r *history.Comparison, other string) error {
	fmt.Fprintf(w, "Of %s by %s, %s would have decided %d otherwise.\n", units.Plural(r.Steps, "plan"), report.Printable(r.Header.Policy), report.Printable(other), r.Different)
	fmt.Fprintf(w, "Of %s started, %d would have started as they did, %d in another place, %d not then; %d would have started that did not.\n",
		units.Plural(r.Starts, "job"), r.Same, r.Elsewhere, r.Waits, r.Instead)
	for i, d := range r.First {
		if i == 0 {
			fmt.Fprintln(w, "\nThe first differences:")
		}
		var parts []string
		for _, p := range []struct {
			what string
			jobs []string
		}{{"not started", d.Waits}, {"in another place", d.Elsewhere}, {"started instead", d.Instead}} {
			if len(p.jobs) > 0 {
				parts = append(parts, p.what+": "+report.Printable(someOf(p.jobs)))
			}
		}
		fmt.Fprintf(w, "  line %d, at %s: %s\n", d.Line, units.FormatDuration(d.At), strings.Join(parts, "; "))
	}
	return nil
}

// someOf names the first jobs of a long list.
func someOf(jobs []string) string {
	const most = 5
	if extra := len(jobs) - most; extra > 0 {
		return strings.Join(jobs[:most], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	return strings.Join(jobs, ", ")
}
