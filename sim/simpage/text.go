package simpage

import (
	"fmt"
	"io"
	"strings"

	"muster/internal/units"
	"muster/report"
)

// WriteText writes the tables, and the answers to what was asked of jobs and steps, for a terminal of
// this many columns; 0 if that is unknown.
func (s *Study) WriteText(w io.Writer, columns int) error {
	if err := report.WriteTables(w, s.Tables(), columns); err != nil {
		return err
	}
	for _, text := range s.Why() {
		if _, err := fmt.Fprintf(w, "\n%s", text); err != nil {
			return err
		}
	}
	return s.WriteExplained(w)
}

// WriteImpossible names the jobs that cannot run. Runs with the same ones are told once.
func (s *Study) WriteImpossible(w io.Writer) {
	for _, group := range s.Impossible(5) {
		fmt.Fprintf(w, "impossible under %s: %s\n", strings.Join(group.Runs, ", "), units.Plural(group.Count, "job"))
		for _, line := range group.First {
			fmt.Fprintf(w, "  %s\n", line)
		}
		if more := group.Count - len(group.First); more > 0 {
			fmt.Fprintf(w, "  and %d more\n", more)
		}
	}
}
