package report

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Stacks draws a stacked column for each of many neighbouring things, for example what each spent
// its time on.
type Stacks struct {
	Title, YLabel, Note string
	YIsTime, YIsPercent bool
	// YMax fixes the end of the y axis; nil fits the data.
	YMax    *float64
	Columns []string
	Parts   []Part
	// Lo and Hi, if given, are the ends of the error bars of whole columns.
	Lo, Hi []float64
	// Bands name ranges of neighbouring columns, below them.
	Bands []Band
	// Low halves the height, for many pictures below each other.
	Low bool
}

// Part is one layer of all columns; NaN draws nothing. The first is at the bottom.
type Part struct {
	Name string
	// Colour is an index into the Palette.
	Colour int
	Values []float64
}

// Band covers the columns From to To, inclusive.
type Band struct {
	Name             string
	Colour, From, To int
}

func (s *Stacks) check() error {
	for _, p := range s.Parts {
		if len(p.Values) != len(s.Columns) {
			return fmt.Errorf("stacks %q: part %q has %d values for %d columns", s.Title, p.Name, len(p.Values), len(s.Columns))
		}
		for i, v := range p.Values {
			if v < 0 {
				return fmt.Errorf("stacks %q: part %q has the value %v in column %d; want 0 or more", s.Title, p.Name, v, i)
			}
		}
	}
	if len(s.Lo) != len(s.Hi) || (s.Lo != nil && len(s.Lo) != len(s.Columns)) {
		return fmt.Errorf("stacks %q: %d low and %d high bounds for %d columns", s.Title, len(s.Lo), len(s.Hi), len(s.Columns))
	}
	for _, b := range s.Bands {
		if b.From < 0 || b.To < b.From || b.To >= len(s.Columns) {
			return fmt.Errorf("stacks %q: band %q reaches from column %d to %d of %d", s.Title, b.Name, b.From, b.To, len(s.Columns))
		}
	}
	return nil
}

func (s *Stacks) writeHTML(h *htmlWriter) {
	h.raw(`<figure class="chart">`)
	h.caption(s.Title)
	h.raw(s.draw())
	h.note(s.Note)
	h.raw("</figure>\n")
}

func (s *Stacks) unit() unit {
	switch {
	case s.YIsTime:
		return times
	case s.YIsPercent:
		return percents
	}
	return numbers
}

func (s *Stacks) draw() string {
	ys := span{any: true} // from 0 on
	any := false
	for i := range s.Columns {
		ys.add(s.height(i))
		if s.Hi != nil {
			ys.add(s.Hi[i])
		}
		for _, p := range s.Parts {
			any = any || drawable(p.Values[i])
		}
	}
	if s.YMax != nil && drawable(*s.YMax) {
		ys.hi = *s.YMax
	}
	if ys.hi <= 0 {
		ys.hi = 1
	}
	f := frame{yLabel: s.YLabel}
	want := 5
	if s.Low {
		f.height, want = plotHeight/2-60, 2
	}
	y := newAxis(0, ys.hi, want, s.unit(), false, true)
	x := axis{lo: 0, hi: float64(max(1, len(s.Columns)))}
	for _, p := range s.Parts {
		f.legend = append(f.legend, legendEntry{name: p.Name, mark: "box", class: seriesClass(p.Colour)})
	}
	// If there are too many columns for names, these appear only under the pointer.
	var names []string
	if room := (plotWidth - 80) / float64(max(1, len(s.Columns))); len(s.Bands) == 0 && room >= 5*charWidth {
		names = append([]string{}, s.Columns...)
	}
	p := newPlot(f, &x, &y, names)
	if !any {
		p.empty()
		return p.finish()
	}
	for i := range s.Columns {
		s.column(p, i, &x, &y)
	}
	for _, b := range s.Bands {
		p.band(b, &x)
	}
	return p.finish()
}

// height is the height of a whole column.
func (s *Stacks) height(column int) float64 {
	sum := 0.0
	for _, p := range s.Parts {
		if drawable(p.Values[column]) {
			sum += p.Values[column]
		}
	}
	return sum
}

func (s *Stacks) column(p *plot, i int, x, y *axis) {
	left, right := x.at(float64(i)), x.at(float64(i+1))
	middle := (left + right) / 2
	half := math.Min(40, 0.42*(right-left))
	tip, colours, from := []string{s.Columns[i]}, []int{}, 0.0
	place := func(v float64) float64 { return y.at(math.Min(v, y.hi)) }
	for _, part := range s.Parts {
		v := part.Values[i]
		if !drawable(v) {
			continue
		}
		if v > 0 {
			p.box("box "+seriesClass(part.Colour), middle-half, middle+half, place(from), place(from+v))
		}
		from += v
		tip, colours = append(tip, clean(part.Name)+"\t"+s.unit().format(v)), append(colours, part.Colour)
	}
	whole := s.unit().format(from)
	top := from
	if s.Lo != nil && drawable(s.Lo[i]) && drawable(s.Hi[i]) {
		p.errorBar("ink", middle, place(s.Lo[i]), place(s.Hi[i]))
		top = math.Max(top, s.Hi[i])
		whole += " (" + s.unit().format(s.Lo[i]) + " to " + s.unit().format(s.Hi[i]) + ")"
	}
	if label := s.unit().format(from); float64(len(label))*charWidth <= right-left {
		fmt.Fprintf(&p.b, `<text class="value" text-anchor="middle" x="%s" y="%s">%s</text>`, px(middle), px(place(top)-4), escape(label))
	}
	if len(s.Parts) > 1 {
		tip = append(tip, "together\t"+whole)
	}
	p.hover(left, right, tip, colours)
	p.b.WriteByte('\n')
}

// band draws a range below the axis, with its name if there is room.
func (p *plot) band(b Band, x *axis) {
	left, right := x.at(float64(b.From))+0.5, x.at(float64(b.To+1))-0.5
	fmt.Fprintf(&p.b, `<rect class="box %s" x="%s" y="%s" width="%s" height="4"/>`, seriesClass(b.Colour), px(left), px(p.bottom+2), px(right-left))
	if name := clean(b.Name); float64(utf8.RuneCountInString(name))*charWidth <= right-left {
		fmt.Fprintf(&p.b, `<text class="tick" text-anchor="middle" x="%s" y="%s">%s</text>`, px((left+right)/2), px(p.bottom+19), escape(name))
	}
	p.b.WriteByte('\n')
}
