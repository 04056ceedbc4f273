package report

import (
	"fmt"
	"math"
)

// Bars draws groups of bars, with one bar of every series in each group. A comparison with a paper
// has two series, the first of them with Reference.
type Bars struct {
	Title, YLabel, Note string
	YIsTime, YIsPercent bool
	Groups              []string
	// FirstColour is the index of the first series' colour.
	FirstColour int
	Series      []BarSeries
}

// BarSeries has one value per group; NaN draws no bar.
type BarSeries struct {
	Name   string
	Values []float64
	// Lo and Hi, if given, are the ends of the error bars.
	Lo, Hi []float64
	// Marks, if given, are written on the bars instead of their values.
	Marks []string
	// Reference draws outlines, for numbers to compare with.
	Reference bool
}

func (b *Bars) check() error {
	for _, s := range b.Series {
		if len(s.Values) != len(b.Groups) {
			return fmt.Errorf("bars %q: series %q has %d values for %d groups", b.Title, s.Name, len(s.Values), len(b.Groups))
		}
		if len(s.Lo) != len(s.Hi) || (s.Lo != nil && len(s.Lo) != len(s.Values)) {
			return fmt.Errorf("bars %q: series %q has %d low and %d high bounds for %d values", b.Title, s.Name, len(s.Lo), len(s.Hi), len(s.Values))
		}
		if s.Marks != nil && len(s.Marks) != len(s.Values) {
			return fmt.Errorf("bars %q: series %q has %d marks for %d values", b.Title, s.Name, len(s.Marks), len(s.Values))
		}
	}
	return nil
}

func (b *Bars) writeHTML(h *htmlWriter) {
	h.raw(`<figure class="chart">`)
	h.caption(b.Title)
	h.raw(b.draw())
	h.note(b.Note)
	h.raw("</figure>\n")
}

func (b *Bars) unit() unit {
	switch {
	case b.YIsTime:
		return times
	case b.YIsPercent:
		return percents
	}
	return numbers
}

func (b *Bars) draw() string {
	var ys span
	ys.add(0)
	any := false
	for _, s := range b.Series {
		for i, v := range s.Values {
			any = any || drawable(v)
			ys.add(v)
			if s.Lo != nil {
				ys.add(s.Lo[i])
				ys.add(s.Hi[i])
			}
		}
	}
	if ys.lo == ys.hi {
		ys.hi = 1
	}
	y := newAxis(ys.lo, ys.hi, 5, b.unit(), false, true)
	x := axis{lo: 0, hi: float64(max(1, len(b.Groups)))}
	f := frame{yLabel: b.YLabel}
	for i, s := range b.Series {
		f.legend = append(f.legend, legendEntry{name: s.Name, mark: s.mark(), class: seriesClass(b.FirstColour + i)})
	}
	p := newPlot(f, &x, &y, append([]string{}, b.Groups...))
	if !any {
		p.empty()
		return p.finish()
	}
	for g := range b.Groups {
		b.group(p, g, &x, &y)
	}
	fmt.Fprintf(&p.b, `<path class="axis" d="M%s %sH%s"/>`, px(p.left), px(y.at(0)), px(p.right))
	return p.finish()
}

func (s *BarSeries) mark() string {
	if s.Reference {
		return "outline"
	}
	return "box"
}

func (b *Bars) group(p *plot, g int, x, y *axis) {
	room := x.at(1) - x.at(0)
	width := math.Min(56, 0.8*room/float64(len(b.Series)))
	left := x.at(float64(g)+0.5) - width*float64(len(b.Series))/2
	tip, colours := []string{b.Groups[g]}, []int{}
	for i, s := range b.Series {
		v := s.Values[g]
		told := clean(s.Name) + "\t" + b.unit().format(v)
		if drawable(v) {
			at := left + (float64(i)+0.5)*width
			p.box(s.mark()+" "+seriesClass(b.FirstColour+i), at-width*0.44, at+width*0.44, y.at(0), y.at(v))
			end := v // end of the bar, where its label goes: beyond zero on the bar's side
			if s.Lo != nil && drawable(s.Lo[g]) && drawable(s.Hi[g]) {
				p.errorBar("ink", at, y.at(s.Lo[g]), y.at(s.Hi[g]))
				end = math.Max(end, s.Hi[g])
				if v < 0 {
					end = math.Min(v, s.Lo[g])
				}
				told += " (" + b.unit().format(s.Lo[g]) + " to " + b.unit().format(s.Hi[g]) + ")"
			}
			label := b.unit().format(v)
			if s.Marks != nil {
				label = clean(s.Marks[g])
				told += ", marked " + label
			}
			if float64(len(label))*charWidth <= width+4 {
				above := y.at(end) - 4
				if v < 0 {
					above = y.at(end) + 12
				}
				fmt.Fprintf(&p.b, `<text class="value" text-anchor="middle" x="%s" y="%s">%s</text>`, px(at), px(above), escape(label))
			}
		}
		tip, colours = append(tip, told), append(colours, b.FirstColour+i)
	}
	p.hover(x.at(float64(g)), x.at(float64(g+1)), tip, colours)
	p.b.WriteByte('\n')
}
