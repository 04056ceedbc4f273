package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Histogram counts values in bins. It chooses the bins itself, with round numbers as their ends.
type Histogram struct {
	Title, XLabel, YLabel, Note string
	// LogY draws the counts on a log scale. LogX makes the widths of bins grow with the value.
	LogY, LogX bool
	Series     []Sample
	// Bins is the approximate number of bins; 0 lets the histogram choose.
	Bins int
	// XIsTime says that the values are seconds.
	XIsTime bool
	// FirstColour is the index of the first series' colour, so that a thing can have the same
	// colour in all pictures of a page.
	FirstColour int
}

// Sample is the values of one series of a histogram.
type Sample = struct {
	Name   string
	Values []float64
}

// binned has a histogram's counts as counts[series][bin]. Bin i is [edges[i], edges[i+1]).
type binned struct {
	edges  []float64
	counts [][]int
	left   int // values that fit into no bin
	most   int
}

func (h *Histogram) check() error {
	if h.Bins < 0 || h.Bins > 1000 {
		return fmt.Errorf("histogram %q: %d bins asked for; 1 to 1000 can be drawn, 0 chooses", h.Title, h.Bins)
	}
	return nil
}

func (h *Histogram) unit() unit {
	if h.XIsTime {
		return times
	}
	return numbers
}

// count sorts the values into about want bins.
func (h *Histogram) count(want int) binned {
	if h.Bins > 0 {
		want = h.Bins
	}
	var xs span
	for _, s := range h.Series {
		for _, v := range s.Values {
			if !h.LogX || v > 0 {
				xs.add(v)
			}
		}
	}
	b := binned{counts: make([][]int, len(h.Series))}
	place := func(v float64) int { return -1 }
	if xs.any && h.LogX {
		b.edges, place = logBins(xs, want)
	} else if xs.any {
		b.edges, place = evenBins(xs, want, h.unit())
	}
	for i, s := range h.Series {
		b.counts[i] = make([]int, max(0, len(b.edges)-1))
		for _, v := range s.Values {
			if !drawable(v) || (h.LogX && v <= 0) {
				b.left++
				continue
			}
			k := min(max(place(v), 0), len(b.edges)-2)
			b.counts[i][k]++
			b.most = max(b.most, b.counts[i][k])
		}
	}
	return b
}

// evenBins makes bins of equal width whose ends are multiples of it.
func evenBins(xs span, want int, u unit) ([]float64, func(float64) int) {
	width := xs.hi - xs.lo
	if width == 0 {
		width = 1
	}
	step := niceStep(width/float64(want), u)
	first := math.Floor(xs.lo / step)
	n := int(math.Floor(xs.hi/step)-first) + 1
	edges := make([]float64, n+1)
	for i := range edges {
		edges[i] = (first + float64(i)) * step
	}
	return edges, func(v float64) int { return int(math.Floor(v/step) - first) }
}

// logBins makes bins that grow by a constant factor, with a whole number of them per decade. The
// 1e-9 keeps a value on an edge in its bin despite the rounding of the logarithm.
func logBins(xs span, want int) ([]float64, func(float64) int) {
	decades := math.Max(1, math.Log10(xs.hi)-math.Log10(xs.lo))
	perDecade := math.Max(1, math.Floor(float64(want)/decades))
	first := math.Floor(math.Log10(xs.lo)*perDecade + 1e-9)
	n := int(math.Floor(math.Log10(xs.hi)*perDecade+1e-9)-first) + 1
	edges := make([]float64, n+1)
	for i := range edges {
		edges[i] = math.Pow(10, (first+float64(i))/perDecade)
	}
	return edges, func(v float64) int { return int(math.Floor(math.Log10(v)*perDecade+1e-9) - first) }
}

// note adds the number of values that fit into no bin to the caller's note.
func (h *Histogram) note(b binned) string {
	if b.left == 0 {
		return h.Note
	}
	why := "not finite"
	if h.LogX {
		why = "not above zero"
	}
	return strings.TrimSpace(fmt.Sprintf("%s Values not shown (%s): %s.", h.Note, why, Number(float64(b.left))))
}

// WriteText draws the histogram for a terminal.
func (h *Histogram) WriteText(w io.Writer) error {
	if err := h.check(); err != nil {
		return fmt.Errorf("%w", err)
	}
	const width = 40
	bins := h.count(16)
	b := bufio.NewWriter(w)
	title := clean(h.Title)
	if h.XLabel != "" {
		title = strings.TrimPrefix(title+" - "+clean(h.XLabel), " - ")
	}
	writeParagraph(b, title)
	var lows, highs []string
	for i := 0; i+1 < len(bins.edges); i++ {
		lows = append(lows, h.unit().format(bins.edges[i]))
		highs = append(highs, h.unit().format(bins.edges[i+1]))
	}
	for i, s := range h.Series {
		if len(h.Series) > 1 || s.Name != "" {
			fmt.Fprintf(b, "%s (%s)\n", clean(s.Name), Number(float64(len(s.Values))))
		}
		for k, n := range bins.counts[i] {
			bar := h.length(n, bins.most) * width
			fmt.Fprintf(b, "  %s to %s  %s %s\n", right(lows[k], widest(lows)), right(highs[k], widest(highs)), textBar(bar, width), Number(float64(n)))
		}
	}
	if len(bins.edges) == 0 {
		b.WriteString("  no data\n")
	}
	if h.LogY {
		b.WriteString("Bars grow with the logarithm of the count.\n")
	}
	writeParagraph(b, h.note(bins))
	return b.Flush()
}

// length is the length of a count's bar relative to the longest.
func (h *Histogram) length(n, most int) float64 {
	if h.LogY {
		return math.Log1p(float64(n)) / math.Log1p(float64(most))
	}
	return float64(n) / float64(most)
}

// textBar draws a bar in eighths of a character. A bar that is not zero is always visible.
func textBar(length float64, width int) string {
	eighths := int(math.Round(length * 8))
	if length > 0 {
		eighths = max(1, eighths)
	}
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return bar + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(bar)))
}

func widest(list []string) int {
	n := 0
	for _, s := range list {
		n = max(n, utf8.RuneCountInString(s))
	}
	return n
}

func right(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

func (h *Histogram) writeHTML(w *htmlWriter) {
	bins := h.count(40)
	w.raw(`<figure class="chart">`)
	w.caption(h.Title)
	w.raw(h.draw(bins))
	w.note(h.note(bins))
	w.raw("</figure>\n")
}

func (h *Histogram) draw(bins binned) string {
	n := len(bins.edges) - 1
	x := newAxis(0, 1, 9, h.unit(), false, false)
	if n > 0 {
		x = newAxis(bins.edges[0], bins.edges[n], 9, h.unit(), h.LogX, false)
	}
	y := newAxis(0, math.Max(1, float64(bins.most)), 5, numbers, false, true)
	if h.LogY {
		// Begin below one, so that a count of one has a height.
		y = newAxis(0.7, math.Max(2, float64(bins.most)), 5, numbers, true, false)
	}
	f := frame{xLabel: h.XLabel, yLabel: h.YLabel}
	for i, s := range h.Series {
		f.legend = append(f.legend, legendEntry{name: s.Name, mark: "box", class: seriesClass(h.FirstColour + i)})
	}
	p := newPlot(f, &x, &y, nil)
	if n <= 0 {
		p.empty()
		return p.finish()
	}
	for k := range n {
		h.bin(p, bins, k, &x, &y)
	}
	return p.finish()
}

func (h *Histogram) bin(p *plot, bins binned, k int, x, y *axis) {
	left, right := x.at(bins.edges[k]), x.at(bins.edges[k+1])
	gap := math.Min(1, (right-left)*0.1)
	width := (right - left - 2*gap) / float64(len(h.Series))
	tip, colours := []string{h.unit().format(bins.edges[k]) + " to " + h.unit().format(bins.edges[k+1])}, []int{}
	for i, s := range h.Series {
		n := bins.counts[i][k]
		if n > 0 {
			at := left + gap + float64(i)*width
			p.box("box "+seriesClass(h.FirstColour+i), at, at+width, y.from, y.at(float64(n)))
		}
		tip, colours = append(tip, clean(s.Name)+"\t"+Number(float64(n))+" of "+Number(float64(len(s.Values)))), append(colours, h.FirstColour+i)
	}
	p.hover(left, right, tip, colours)
	p.b.WriteByte('\n')
}
