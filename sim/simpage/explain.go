package simpage

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/model"
	"muster/policy"
	"muster/report"
	"muster/sim"
)

// explained calls f for every step that the user asked about, in the order of the policies. title
// names the step.
func (s *Study) explained(f func(r *Run, e *sim.Explained, title string)) {
	for i := range s.shown() {
		r := &s.Runs[i]
		for k := range r.Result.Explained {
			e := &r.Result.Explained[k]
			f(r, e, fmt.Sprintf("Step %s explained: %s, at %s", report.Number(float64(e.Step)), r.Policy, clock(e.At)))
		}
	}
}

// WriteExplained writes the explanations of steps for a terminal.
func (s *Study) WriteExplained(w io.Writer) error {
	var err error
	s.explained(func(_ *Run, e *sim.Explained, title string) {
		if err == nil {
			_, err = fmt.Fprintf(w, "\n%s\n%s\n", title, e.Lead)
		}
		for i := range e.Tables {
			if err == nil {
				_, err = fmt.Fprintln(w)
			}
			if err == nil {
				err = stepTable(&e.Tables[i]).WriteText(w)
			}
		}
	})
	return err
}

// explainedSections are the explanations for the page, with pictures.
func (s *Study) explainedSections() []report.Section {
	var list []report.Section
	s.explained(func(r *Run, e *sim.Explained, title string) {
		list = append(list, report.Heading(title), report.Text(e.Lead))
		if len(e.Bars) > 0 {
			list = append(list, stepPicture(e.Explanation, r.Result.Cluster))
		}
		for i := range e.Tables {
			list = append(list, stepTable(&e.Tables[i]))
		}
	})
	return list
}

// stepTable is a table of an explanation, with columns of numbers aligned to the right.
func stepTable(t *policy.ExplanationTable) *report.Table {
	out := &report.Table{Title: t.Title, Rows: t.Rows}
	for i, name := range t.Columns {
		numbers := len(t.Rows) > 0
		for _, row := range t.Rows {
			if i < len(row) && row[i] != "" {
				_, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSuffix(row[i], " %"), ",", ""), 64)
				numbers = numbers && err == nil
			}
		}
		out.Columns = append(out.Columns, report.Column{Name: name, Right: numbers})
	}
	return out
}

// The colours of a step's picture.
const (
	won = iota
	lost
)

// stepPicture draws which bids wanted which nodes, and which won them.
func stepPicture(e *policy.Explanation, c *model.Cluster) *report.Strips {
	bars := e.Bars
	s := &report.Strips{
		Title: "Who wanted which nodes", XLabel: "nodes",
		Kinds: []report.StripKind{
			won:  {Name: cmp.Or(e.Won, "won"), Colour: 0},
			lost: {Name: cmp.Or(e.Lost, "lost"), Colour: 7},
		},
	}
	for i := range c.Nodes {
		s.Columns = append(s.Columns, c.Nodes[i].Name)
	}
	rows := 0
	for _, b := range bars {
		rows = max(rows, int(b.Row)+1)
	}
	s.Rows = make([]string, min(rows, policy.MaxExplanationRows))
	if rows > len(s.Rows) {
		s.Note = fmt.Sprintf("The first %d of %d rows.", len(s.Rows), rows)
	}
	for _, b := range bars {
		if int(b.Row) >= len(s.Rows) {
			continue
		}
		name := ""
		if b.Row >= 0 {
			if s.Rows[b.Row] == "" {
				s.Rows[b.Row] = b.Label
			}
			name = s.Rows[b.Row]
		}
		strip := report.Strip{Row: int(b.Row), From: int(b.From), To: int(b.To), Kind: lost, Lines: []string{name}}
		if b.Label != "" && b.Label != name {
			strip.Lines = append(strip.Lines, b.Label)
		}
		if 0 <= b.From && b.From <= b.To && int(b.To) < len(s.Columns) {
			strip.Lines = append(strip.Lines, "Nodes\t"+model.CompressNodes(s.Columns[b.From:b.To+1]))
		}
		if b.Won {
			strip.Kind = won
		}
		strip.Lines = append(strip.Lines, "Result\t"+s.Kinds[strip.Kind].Name)
		s.Strips = append(s.Strips, strip)
	}
	return s
}
