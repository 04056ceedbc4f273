package trace

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"muster/report"
)

// Clocks says how exactly the times of the program and of its node are aligned.
func (t *Trace) Clocks() string {
	worst := int64(0)
	for _, p := range t.Processes {
		worst = max(worst, p.Error)
	}
	if worst == 0 {
		return "the program and its node have one clock"
	}
	return fmt.Sprintf("the node's times are moved to the program's clock by round trips, to within %s", brief(worst))
}

// LeftOut says what the timeline lacks, one sentence for each thing.
func (t *Trace) LeftOut() []string {
	var all []string
	for _, p := range t.Processes {
		if p.callsGap.missing > 0 {
			all = append(all, fmt.Sprintf("%s of %s calls of process %d%s: the sums count them; raise --limit to have more", number(p.callsGap.missing), number(p.CallsMade), p.Pid, t.between(p.callsGap)))
		}
		if p.nodeGap.missing > 0 {
			all = append(all, fmt.Sprintf("%s of %s records of what the node did for process %d%s; raise --limit to have more", number(p.nodeGap.missing), number(p.NodeMade), p.Pid, t.between(p.nodeGap)))
		}
		if p.NodeLost > 0 {
			all = append(all, fmt.Sprintf("%s kernels and copies of process %d, which came faster than they could be recorded", number(p.NodeLost), p.Pid))
		}
		if !p.Ended {
			all = append(all, fmt.Sprintf("what the node did in the last 10 ms of process %d, perhaps: it ended without exit()", p.Pid))
		}
	}
	if t.Skipped > 0 {
		all = append(all, fmt.Sprintf("%s, of which nothing could be recorded", plural(uint64(t.Skipped), "process", "processes")))
	}
	return all
}

func (t *Trace) between(g gap) string {
	if g.end == 0 {
		return ""
	}
	return fmt.Sprintf(" between %s and %s", brief(g.begin-t.Begin), brief(g.end-t.Begin))
}

// number writes a number with commas.
func number(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// brief writes a time with three digits.
func brief(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= 100*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(ns)/1e6)
	case d >= time.Microsecond:
		return fmt.Sprintf("%.3g us", float64(ns)/1e3)
	}
	return fmt.Sprintf("%d ns", ns)
}

// size writes a number of bytes.
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, unit := float64(n), 0
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 {
		return plural(n, "byte", "bytes")
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + " " + units[unit]
}

// mostCosts is how many of the costliest things Write tells.
const mostCosts = 5

// Write says what the timeline shows, which was written to a file of that name: the costliest things,
// what was left out, and how exact its times are.
func (t *Trace) Write(w io.Writer, file string) {
	if words := t.ElementWords(); words != "" {
		fmt.Fprintf(w, "muster: %s\n", words)
	}
	if len(t.Processes) == 0 && len(t.Elements) == 0 {
		fmt.Fprintf(w, "muster: the program called no function of CUDA; the timeline in %s is empty\n", file)
		return
	}
	if len(t.Processes) > 0 {
		t.writeCosts(w)
	}
	fmt.Fprintf(w, "muster: the timeline is in %s: open it at https://ui.perfetto.dev\n", file)
}

func (t *Trace) writeCosts(w io.Writer) {
	fmt.Fprintf(w, "muster: where the time went, from the first call to the last (%s):\n", t.Duration())
	costs := t.Costs()
	for _, cost := range costs[:min(len(costs), mostCosts)] {
		fmt.Fprintf(w, "  %s\n", report.Printable(cost.Sentence))
	}
	for _, sentence := range t.LeftOut() {
		fmt.Fprintf(w, "left out: %s\n", report.Printable(sentence))
	}
	fmt.Fprintf(w, "muster: %s\n", t.Clocks())
}

// Duration is the time from the first recorded event to the last.
func (t *Trace) Duration() string { return brief(t.End - t.Begin) }
