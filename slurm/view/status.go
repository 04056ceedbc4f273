package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/slurm"
)

// away says what to do about a Slurm that does not answer.
const away = "Start slurmctld and slurmrestd; jobs that run go on meanwhile, and nothing new is placed."

// summary says in half a sentence how many nodes and jobs a driver has.
func summary(s slurm.Status) string {
	text := fmt.Sprintf("%d of %d nodes up; of Muster's jobs %d wait, %d are placed, %d run; %d jobs are Slurm's", s.Up, s.Nodes, s.Waiting, s.Placed, s.Running, s.Slurms)
	if s.Lenders > 0 || s.Borrowed > 0 {
		text += fmt.Sprintf("; %s can be borrowed from %s, jobs have borrowed %d", units.Plural(s.Lendable, "GPU"), units.Plural(s.Lenders, "node"), s.Borrowed)
	}
	return text
}

// InWords says in a sentence what a driver does that answered with a status, or what to do if it did not.
func InWords(s slurm.Status, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("Muster does not place jobs: %v. muster slurm doctor says what else is missing.", err)
	case s.Problem != "":
		return fmt.Sprintf("Muster's driver runs, and Slurm does not answer it: %s. %s", report.Printable(s.Problem), away)
	}
	return fmt.Sprintf("Muster's driver runs: %s.", summary(s))
}

// WriteStatus tells people what a driver does, and lists its jobs, in this many columns; 0 means no
// limit.
func WriteStatus(w io.Writer, s slurm.Status, columns int) error {
	if s.Problem != "" {
		fmt.Fprintf(w, "Slurm does not answer the driver: %s\n%s As it was when Slurm last answered:\n", report.Printable(s.Problem), away) // the doctor looks for the first words
	}
	fmt.Fprintln(w, summary(s))
	fmt.Fprintf(w, "so far %d placed, %d on a wrong node, %d refused, %d recalled, %d left to Slurm", s.Counts.Placed, s.Counts.Wrong, s.Counts.Refused, s.Counts.Recalled, s.Counts.HandedOver)
	if s.Counts.Stopped > 0 {
		fmt.Fprintf(w, ", %d stopped for others", s.Counts.Stopped)
	}
	fmt.Fprintln(w)
	if s.Counts.Clashes > 0 {
		fmt.Fprintf(w, "Slurm has given jobs GPUs that were lent to others, %d times: muster slurm doctor says what to do\n", s.Counts.Clashes)
	}
	if len(s.Jobs) == 0 {
		return nil
	}
	var rows [][]string
	for _, j := range s.Jobs {
		rows = append(rows, []string{fmt.Sprint(j.ID), report.Printable(j.User), report.Printable(j.Name), j.State, report.Printable(strings.Join(j.Nodes, ",")), cmp.Or(report.Printable(strings.Join(j.Devices, ",")), "-"), report.Printable(j.Why)})
	}
	return report.WriteColumns(w, []string{"JOB", "USER", "NAME", "STATE", "NODES", "GPUS", "WHY"}, rows, 0, columns)
}
