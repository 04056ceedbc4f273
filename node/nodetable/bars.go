package nodetable

import (
	"fmt"
	"io"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/wire/status"
)

// bars draws what a node did since an earlier status: how much its devices were used, and
// how fast data moved. Bars of data are drawn against the fastest that was seen so far.
// They are made of characters that every terminal has.
type bars struct {
	columns  int                // of the screen; 0: as wide as paper
	fastest  map[string]float64 // bytes per second, by row
	coloured bool
}

// Work is green, however much it is: a GPU in full use, or the fastest copy so far, is no reason to
// act. Memory that is nearly full is yellow, since programs may have to be swapped. Only what a
// person has to mend is red.
const (
	green, yellow, red = "\x1b[32m", "\x1b[33m", "\x1b[31m"
	noColour           = "\x1b[0m"
	nearlyFull         = 0.9
)

const (
	paper    = 80
	barLabel = 10
	barValue = 34 // room for the words behind a bar
	mostBar  = 40
	leastBar = 4 // shorter ones say nothing: the words alone are written
)

// write draws the bars; nothing without an earlier status.
func (b *bars) write(w io.Writer, s, before *status.Node) {
	if before == nil || s.Up <= before.Up {
		return
	}
	span := s.Up - before.Up
	for i, d := range s.Devices {
		use, ok := useSince(s, before, i)
		if d.State == "removed" || !ok {
			continue
		}
		b.row(w, green, fmt.Sprintf("GPU %d", i), use, report.Percent(use)+" in use")
		if d.Memory > 0 {
			taken := float64(d.Memory-min(d.Free, d.Memory)) / float64(d.Memory)
			colour := green
			if taken >= nearlyFull {
				colour = yellow
			}
			b.row(w, colour, fmt.Sprintf("memory %d", i), taken, units.BriefSize(d.Memory-min(d.Free, d.Memory))+" of "+units.BriefSize(d.Memory))
		}
	}
	in, out, swapped := moved(s, before)
	b.data(w, "in", float64(in)/span)
	b.data(w, "out", float64(out)/span)
	b.data(w, "swap", float64(swapped)/span)
	fmt.Fprintln(w)
}

// data draws bytes per second.
func (b *bars) data(w io.Writer, label string, rate float64) {
	if b.fastest == nil {
		b.fastest = map[string]float64{}
	}
	b.fastest[label] = max(b.fastest[label], rate)
	part := 0.0
	if b.fastest[label] > 0 {
		part = rate / b.fastest[label]
	}
	b.row(w, green, label, part, briefRate(rate)+", at most "+briefRate(b.fastest[label]))
}

// briefRate writes bytes per second.
func briefRate(rate float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}} {
		if rate >= unit.size {
			return fmt.Sprintf("%.3g %s", rate/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f B/s", rate)
}

// row draws one bar, as long as the screen allows.
func (b *bars) row(w io.Writer, colour, label string, part float64, words string) {
	columns := b.columns
	if columns == 0 {
		columns = paper
	}
	length := min(mostBar, columns-barLabel-barValue-len(" [] "))
	if length < leastBar {
		fmt.Fprintf(w, "%-*s %s\n", barLabel, label, words)
		return
	}
	full := int(part*float64(length) + 0.5)
	if full == 0 && part > 0 {
		full = 1
	}
	drawn := strings.Repeat("#", full)
	if b.coloured && full > 0 {
		drawn = colour + drawn + noColour
	}
	fmt.Fprintf(w, "%-*s [%s%s] %s\n", barLabel, label, drawn, strings.Repeat("-", length-full), words)
}

// moved is how many bytes programs copied in and out, and the node swapped, between two
// statuses. Programs that have ended meanwhile count too.
func moved(s, before *status.Node) (in, out, swapped uint64) {
	earlier := map[uint64]status.Client{}
	for _, all := range [][]status.Client{before.Ended, before.Clients} {
		for _, c := range all {
			earlier[c.ID] = c
		}
	}
	for _, all := range [][]status.Client{s.Clients, s.Ended} {
		for _, c := range all {
			e := earlier[c.ID]
			in += c.CopiedIn - min(c.CopiedIn, e.CopiedIn)
			out += c.CopiedOut - min(c.CopiedOut, e.CopiedOut)
			swapped += c.SwapIn - min(c.SwapIn, e.SwapIn) + c.SwapOut - min(c.SwapOut, e.SwapOut)
		}
	}
	return in, out, swapped
}
