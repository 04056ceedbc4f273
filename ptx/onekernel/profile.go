package onekernel

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"muster/ptx/simt"
	"muster/report"
)

// sampling is the time between two samples of where the kernel is.
const sampling = time.Millisecond

// sample starts a goroutine that samples where the kernel is. The caller ends it with the
// returned function.
func sample(p *simt.Profile) (stop func()) {
	// The engine's workers keep all processors (P) of the Go runtime busy. Without one more, the
	// sampler would run only where the runtime happens to preempt a worker, and the profile
	// would be biased towards those places.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.Sample()
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// hottest is how many lines of a profile are printed without --all.
const hottest = 20

// writeProfile prints where a kernel spent its time: the hottest lines first, or all in
// the order of the code.
func writeProfile(w io.Writer, kernel string, lines []simt.ProfileLine, all bool) {
	samples, compiled, ops := 0.0, 0.0, uint64(0)
	for _, l := range lines {
		samples, compiled, ops = samples+l.Samples, compiled+l.Compiled, ops+l.LaneOps
	}
	fmt.Fprintf(w, "profile of %s: %s, %s of them in compiled code; %s lane operations\n",
		kernel, report.Plural(int(samples+0.5), "sample"), percent(compiled, samples), report.Number(float64(ops)))
	more := 0
	if !all {
		lines = slices.Clone(lines)
		slices.SortStableFunc(lines, func(a, b simt.ProfileLine) int {
			return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(b.LaneOps, a.LaneOps))
		})
		more = max(0, len(lines)-hottest)
		lines = lines[:len(lines)-more]
	}
	fmt.Fprintf(w, "%7s %7s %13s %15s %6s  %s\n", "time", "ops", "instructions", "lane ops", "line", "instruction")
	for _, l := range lines {
		fmt.Fprintf(w, "%7s %7s %13s %15s %6d  %s\n", percent(l.Samples, samples), percent(float64(l.LaneOps), float64(ops)),
			report.Number(float64(l.Instructions)), report.Number(float64(l.LaneOps)), l.Pos.Line, l.Text)
	}
	if more > 0 {
		fmt.Fprintf(w, "%s more: --all prints them, in the order of the code\n", report.Plural(more, "line"))
	}
}

// percent formats a part of a whole.
func percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// writeListings prints machine code, with a headline wherever the code for another PTX
// instruction begins.
func writeListings(w io.Writer, kernel string, listings []simt.Listing) {
	if len(listings) == 0 {
		fmt.Fprintf(w, "nothing of %s was compiled: it is empty or too large, or this processor has neither AVX-512 nor AVX2 with FMA\n", kernel)
	}
	for i, l := range listings {
		fmt.Fprintf(w, "machine code of %s", kernel)
		if len(listings) > 1 {
			fmt.Fprintf(w, ", %d of %d: blocks differ", i+1, len(listings))
		}
		fmt.Fprintf(w, ": %d of %s compiled\n", l.Compiled, report.Plural(l.Instructions, "instruction"))
		headline := ""
		for _, x := range l.Lines {
			about := "engine"
			if x.For != "" {
				about = fmt.Sprintf("line %d  %s", x.Pos.Line, x.For)
			}
			if x.Role != "" {
				about += "  (" + x.Role + ")"
			}
			if about != headline {
				headline = about
				fmt.Fprintln(w, about)
			}
			fmt.Fprintf(w, "  %06x  %-30s  %s\n", x.Offset, hex.EncodeToString(x.Bytes), strings.TrimSpace(x.Text))
		}
	}
}

// profileDocument is a line of a profile in a Document.
type profileDocument struct {
	Line         int     `json:"line"`
	Instruction  string  `json:"instruction"`
	Samples      float64 `json:"samples"`
	Compiled     float64 `json:"compiled_samples"`
	Instructions uint64  `json:"instructions"`
	LaneOps      uint64  `json:"lane_ops"`
}

// setProfile adds a profile.
func (doc *Document) setProfile(lines []simt.ProfileLine) {
	doc.Profile = []profileDocument{}
	for _, l := range lines {
		doc.Profile = append(doc.Profile, profileDocument{l.Pos.Line, l.Text, l.Samples, l.Compiled, l.Instructions, l.LaneOps})
	}
}

// codeDocument is an instruction of machine code in a Document.
type codeDocument struct {
	Offset      int    `json:"offset_bytes"`
	Bytes       string `json:"bytes"`
	Text        string `json:"text"`
	Role        string `json:"role"`
	Line        int    `json:"line"` // of the PTX text; 0 if it belongs to none
	Instruction string `json:"instruction"`
}

// setCode adds machine code.
func (doc *Document) setCode(listings []simt.Listing) {
	doc.Code = [][]codeDocument{}
	for _, l := range listings {
		code := []codeDocument{}
		for _, x := range l.Lines {
			code = append(code, codeDocument{x.Offset, hex.EncodeToString(x.Bytes), x.Text, x.Role, x.Pos.Line, x.For})
		}
		doc.Code = append(doc.Code, code)
	}
}
