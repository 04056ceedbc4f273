package report

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// Chart draws lines or steps over a common x axis.
type Chart struct {
	Title, XLabel, YLabel, Note string
	// XIsTime and YIsTime say that the values are seconds, YIsPercent that they are fractions.
	XIsTime, YIsTime, YIsPercent bool
	LogX, LogY                   bool
	// YMin and YMax fix the ends of the y axis; nil fits the data.
	YMin, YMax *float64
	Series     []Series
}

// Series is one line of a chart. A NaN in Y is a gap.
type Series struct {
	Name string
	X, Y []float64
	// Step holds each value until the next x, for a state over time.
	Step bool
	// Lo and Hi, if given, are bounds of each Y, drawn as a band, or as error bars with Points.
	Lo, Hi []float64
	// Points marks each value with a dot. NoLine draws only the dots; X then need not be sorted.
	Points, NoLine bool
}

func (c *Chart) check() error {
	if c.YMin != nil && c.YMax != nil && !(*c.YMin < *c.YMax) {
		return fmt.Errorf("chart %q: YMin %v is not below YMax %v", c.Title, *c.YMin, *c.YMax)
	}
	for _, s := range c.Series {
		if err := s.check(); err != nil {
			return fmt.Errorf("chart %q: series %q: %w", c.Title, s.Name, err)
		}
	}
	return nil
}

func (s *Series) check() error {
	if len(s.X) != len(s.Y) {
		return fmt.Errorf("%d x values for %d y values", len(s.X), len(s.Y))
	}
	if len(s.Lo) != len(s.Hi) || (s.Lo != nil && len(s.Lo) != len(s.Y)) {
		return fmt.Errorf("%d low and %d high bounds for %d values", len(s.Lo), len(s.Hi), len(s.Y))
	}
	for i, x := range s.X {
		if !drawable(x) {
			return fmt.Errorf("x value %d is %v", i, x)
		}
		if i > 0 && x < s.X[i-1] && !s.NoLine {
			return fmt.Errorf("x is out of order at value %d; sort it, or set NoLine", i)
		}
	}
	return nil
}

// SVG draws the chart as an SVG file of its own, for documents. If the chart cannot be drawn, the
// picture says why.
func (c *Chart) SVG() string {
	if err := c.check(); err != nil {
		c = &Chart{Title: err.Error()}
	}
	svg, _ := c.draw(true)
	return svg
}

func (c *Chart) writeHTML(h *htmlWriter) {
	svg, values := c.draw(false)
	h.raw(`<figure class="chart">`)
	h.caption(c.Title)
	h.raw(svg)
	h.json("values", values)
	h.note(c.Note)
	h.raw("</figure>\n")
}

// chartValues is what the page's script needs to show the values under the pointer.
type chartValues struct {
	// Plot is left, right, top and bottom of the drawing; X and Y are the values there.
	Plot       [4]float64     `json:"plot"`
	X          [2]float64     `json:"x"`
	Y          [2]float64     `json:"y"`
	LogX       bool           `json:"logX,omitempty"`
	LogY       bool           `json:"logY,omitempty"`
	XUnit      unit           `json:"xUnit"`
	YUnit      unit           `json:"yUnit"`
	XLabel     string         `json:"xLabel"`
	SeriesList []seriesValues `json:"series"`
}

type seriesValues struct {
	Name string `json:"name"`
	Step bool   `json:"step,omitempty"`
	X    column `json:"x"`
	Y    column `json:"y"`
	Lo   column `json:"lo,omitempty"`
	Hi   column `json:"hi,omitempty"`
}

// column is a list of numbers that is compact in JSON, with null for NaN.
type column []float64

func (c column) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, v := range c {
		if i > 0 {
			b = append(b, ',')
		}
		if drawable(v) {
			b = append(b, strconv.FormatFloat(v, 'g', 10, 64)...)
		} else {
			b = append(b, "null"...)
		}
	}
	return append(b, ']'), nil
}

func (c *Chart) draw(alone bool) (string, chartValues) {
	x, y, any := c.axes()
	f := frame{xLabel: c.XLabel, yLabel: c.YLabel, alone: alone}
	if alone {
		f.title = c.Title
	}
	for i, s := range c.Series {
		f.legend = append(f.legend, legendEntry{name: s.Name, mark: "line", class: seriesClass(i)})
	}
	p := newPlot(f, &x, &y, nil)
	values := chartValues{
		Plot: [4]float64{p.left, p.right, p.top, p.bottom},
		X:    [2]float64{x.lo, x.hi}, Y: [2]float64{y.lo, y.hi},
		LogX: c.LogX, LogY: c.LogY, XUnit: x.unit, YUnit: y.unit, XLabel: clean(c.XLabel),
		SeriesList: []seriesValues{},
	}
	if !any {
		p.empty()
		return p.finish(), values
	}
	for i := range c.Series {
		s := c.Series[i].thin(&x)
		s.draw(p, seriesClass(i), &x, &y)
		values.SeriesList = append(values.SeriesList, seriesValues{Name: clean(s.Name), Step: s.Step, X: s.X, Y: s.Y, Lo: s.Lo, Hi: s.Hi})
	}
	return p.finish(), values
}

// axes fits both axes to the series; any is false if there is no value at all.
func (c *Chart) axes() (x, y axis, any bool) {
	var xs, ys span
	for _, s := range c.Series {
		for i := range s.X {
			if (c.LogX && s.X[i] <= 0) || (c.LogY && s.Y[i] <= 0) {
				continue
			}
			xs.add(s.X[i])
			ys.add(s.Y[i])
			if s.Lo != nil {
				ys.add(s.Lo[i])
				ys.add(s.Hi[i])
			}
		}
	}
	any = xs.any && ys.any
	if !ys.any {
		ys = span{lo: 0, hi: 1, any: true}
	}
	if !xs.any {
		xs = span{lo: 0, hi: 1, any: true}
	}
	// Begin at zero, unless the values are far from it: then their differences matter more.
	if ys.lo > 0 && ys.lo < 0.7*ys.hi && !c.LogY {
		ys.lo = 0
	}
	if c.XIsTime && !c.LogX && startsNearZero(xs) {
		xs.lo = 0
	}
	round := c.YMin == nil && c.YMax == nil
	if c.YMin != nil {
		ys.lo = *c.YMin
	}
	if c.YMax != nil {
		ys.hi = *c.YMax
	}
	xu, yu := numbers, numbers
	if c.XIsTime {
		xu = times
	}
	if c.YIsTime {
		yu = times
	} else if c.YIsPercent {
		yu = percents
	}
	return newAxis(xs.lo, xs.hi, 9, xu, c.LogX, false), newAxis(ys.lo, ys.hi, 5, yu, c.LogY, round), any
}

// thin keeps only the values that are visible: the first, lowest, highest and last of each pixel
// column.
func (s Series) thin(x *axis) Series {
	const enough = 2000
	if s.NoLine {
		return s.sorted()
	}
	if len(s.X) <= enough {
		return s
	}
	var kept []int
	for i := 0; i < len(s.X); {
		column := math.Floor(x.at(s.X[i]))
		first, low, high := i, i, i
		for ; i < len(s.X) && math.Floor(x.at(s.X[i])) == column; i++ {
			// Comparisons with NaN are false, so a gap within a column disappears. It would not be
			// visible.
			if s.Y[i] < s.Y[low] || math.IsNaN(s.Y[low]) {
				low = i
			}
			if s.Y[i] > s.Y[high] || math.IsNaN(s.Y[high]) {
				high = i
			}
		}
		for _, k := range []int{first, min(low, high), max(low, high), i - 1} {
			if len(kept) == 0 || k > kept[len(kept)-1] {
				kept = append(kept, k)
			}
		}
	}
	return s.pick(kept)
}

func (s Series) sorted() Series {
	order := make([]int, len(s.X))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return s.X[order[a]] < s.X[order[b]] })
	return s.pick(order)
}

func (s Series) pick(indices []int) Series {
	take := func(from []float64) []float64 {
		if from == nil {
			return nil
		}
		to := make([]float64, len(indices))
		for i, k := range indices {
			to[i] = from[k]
		}
		return to
	}
	s.X, s.Y, s.Lo, s.Hi = take(s.X), take(s.Y), take(s.Lo), take(s.Hi)
	return s
}

func (s *Series) draw(p *plot, class string, x, y *axis) {
	if s.Lo != nil && !s.Points && !s.NoLine {
		for _, r := range s.runs(x, y) {
			s.band(p, class, r[0], r[1], x, y)
		}
	}
	if !s.NoLine {
		for _, r := range s.runs(x, y) {
			fmt.Fprintf(&p.b, `<path class="line %s" d="%s"/>`, class, s.path(s.Y, r[0], r[1], x, y))
		}
	}
	for i := range s.X {
		if !s.visible(i, x, y) || !(s.Points || s.NoLine || len(s.X) == 1) {
			continue
		}
		if s.Lo != nil && drawable(s.Lo[i]) && drawable(s.Hi[i]) {
			p.errorBar(class, x.at(s.X[i]), within(y, s.Lo[i]), within(y, s.Hi[i]))
		}
		fmt.Fprintf(&p.b, `<circle class="dot %s" cx="%s" cy="%s" r="3"/>`, class, px(x.at(s.X[i])), px(within(y, s.Y[i])))
	}
	p.b.WriteByte('\n')
}

func (s *Series) visible(i int, x, y *axis) bool {
	return drawable(s.Y[i]) && !(x.log && s.X[i] <= 0) && !(y.log && s.Y[i] <= 0)
}

// runs lists the ranges [from, to) without a gap.
func (s *Series) runs(x, y *axis) [][2]int {
	var list [][2]int
	for i := 0; i < len(s.X); i++ {
		if !s.visible(i, x, y) {
			continue
		}
		from := i
		for i < len(s.X) && s.visible(i, x, y) {
			i++
		}
		list = append(list, [2]int{from, i})
	}
	return list
}

func (s *Series) path(values []float64, from, to int, x, y *axis) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		place := px(x.at(s.X[i])) + " " + px(within(y, values[i]))
		switch {
		case i == from:
			b.WriteString("M" + place)
		case s.Step:
			b.WriteString("H" + px(x.at(s.X[i])) + "V" + px(within(y, values[i])))
		default:
			b.WriteString("L" + place)
		}
	}
	return b.String()
}

// band fills the area between Lo and Hi. The outline goes forward along Lo and back along Hi, so
// the corners of steps are written for both directions.
func (s *Series) band(p *plot, class string, from, to int, x, y *axis) {
	var there, back []string
	for i := from; i < to; i++ {
		lo, hi := s.Lo[i], s.Hi[i]
		if !drawable(lo) || !drawable(hi) {
			lo, hi = s.Y[i], s.Y[i]
		}
		at := px(x.at(s.X[i]))
		if s.Step && i > from {
			there = append(there, at+" "+lastPlace(there))
			back = append(back, at+" "+lastPlace(back))
		}
		there = append(there, at+" "+px(within(y, lo)))
		back = append(back, at+" "+px(within(y, hi)))
	}
	for i := len(back) - 1; i >= 0; i-- {
		there = append(there, back[i])
	}
	fmt.Fprintf(&p.b, `<path class="band %s" d="M%sZ"/>`, class, strings.Join(there, "L"))
}

// lastPlace is the y of the last "x y" in a list.
func lastPlace(places []string) string {
	_, y, _ := strings.Cut(places[len(places)-1], " ")
	return y
}

// within clips a value to a y axis that the caller has fixed.
func within(y *axis, v float64) float64 {
	return y.at(math.Max(y.lo, math.Min(y.hi, v)))
}

// json puts data for the page's script beside a drawing. Go's encoder escapes <, > and &, so no
// text in it can end the script element.
func (h *htmlWriter) json(class string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		if h.err == nil {
			h.err = err
		}
		return
	}
	h.raw(`<script type="application/json" class="` + class + `">` + string(data) + "</script>")
}
