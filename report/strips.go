package report

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode/utf8"
)

// Strips draws ranges over many columns, such as the nodes of a cluster: a row for each thing that
// asks for some, with a strip over each range of neighbours that it asks for.
type Strips struct {
	Title, Note string
	// XLabel says what the columns are; Columns has their names.
	XLabel  string
	Columns []string
	// Rows has the names of the rows. If there are many, a name appears only under the pointer.
	Rows   []string
	Kinds  []StripKind
	Strips []Strip
}

// StripKind is a colour with a meaning.
type StripKind struct {
	Name string
	// Colour is an index into the Palette.
	Colour int
}

// Strip covers the columns From to To, inclusive, in a row.
type Strip struct {
	Row, From, To, Kind int
	// Lines are shown under the pointer. A tab separates name and value.
	Lines []string
}

func (s *Strips) check() error {
	fail := func(i int, format string, args ...any) error {
		return fmt.Errorf("strips %q: strip %d %s", s.Title, i, fmt.Sprintf(format, args...))
	}
	for i, b := range s.Strips {
		switch {
		case b.Row < 0 || b.Row >= len(s.Rows):
			return fail(i, "is in row %d of %d", b.Row, len(s.Rows))
		case b.From < 0 || b.To < b.From || b.To >= len(s.Columns):
			return fail(i, "reaches from column %d to %d of %d", b.From, b.To, len(s.Columns))
		case b.Kind < 0 || b.Kind >= len(s.Kinds):
			return fail(i, "is of kind %d of %d", b.Kind, len(s.Kinds))
		}
	}
	return nil
}

func (s *Strips) writeHTML(h *htmlWriter) {
	h.raw(`<figure class="chart">`)
	h.caption(s.Title)
	h.raw(s.draw())
	h.note(s.Note)
	h.raw("</figure>\n")
}

const (
	namedRow    = 16.0 // height of a row with its name beside it
	plainRow    = 8.0
	maxNamed    = 80 // rows; with more, the names are not written
	maxRowName  = 40 // characters
	columnTicks = 10
)

func (s *Strips) draw() string {
	p := &plot{right: plotWidth - 20, top: 12, left: 20}
	row := plainRow
	if len(s.Rows) <= maxNamed {
		row = namedRow
		widest := 0
		for _, name := range s.Rows {
			widest = max(widest, min(maxRowName, utf8.RuneCountInString(clean(name))))
		}
		p.left = math.Ceil(14 + float64(widest)*charWidth)
	}
	f := frame{}
	for _, k := range s.Kinds {
		f.legend = append(f.legend, legendEntry{name: k.Name, mark: "box", class: seriesClass(k.Colour)})
	}
	var head strings.Builder
	p.top = p.legend(&head, f) + 14
	p.bottom = p.top + row*float64(max(1, len(s.Rows)))
	p.height = p.bottom + 26 + lineHeight
	fmt.Fprintf(&p.b, `<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img">%s`, px(plotWidth), px(p.height), head.String()+"\n")
	column := (p.right - p.left) / float64(max(1, len(s.Columns)))
	s.columns(p, column)
	if row == namedRow {
		for i, name := range s.Rows {
			fmt.Fprintf(&p.b, `<text class="tick" text-anchor="end" x="%s" y="%s">%s</text>`,
				px(p.left-8), px(p.top+(float64(i)+0.5)*row+4), escape(shorten(clean(name), maxRowName)))
		}
		p.b.WriteByte('\n')
	}
	for _, b := range s.Strips {
		left, top := p.left+float64(b.From)*column, p.top+float64(b.Row)*row
		// A strip of one column among thousands must remain visible.
		width := math.Max(1, float64(b.To-b.From+1)*column-math.Min(1, column/4))
		lines := make([]string, len(b.Lines))
		for i, line := range b.Lines {
			lines[i] = strings.ReplaceAll(html.EscapeString(cleanPair(line)), "\t", "&#9;")
		}
		fmt.Fprintf(&p.b, `<rect class="box %s" x="%s" y="%s" width="%s" height="%s" data-tip="%s"/>`+"\n", seriesClass(s.Kinds[b.Kind].Colour),
			px(left), px(top+row*0.12), px(width), px(row*0.76), strings.Join(lines, "&#10;"))
	}
	if len(s.Strips) == 0 {
		p.empty()
	}
	return p.finish()
}

// columns draws the axis at the bottom, with the names of some columns.
func (s *Strips) columns(p *plot, width float64) {
	fmt.Fprintf(&p.b, `<path class="axis" d="M%s %sH%s"/>`, px(p.left), px(p.bottom), px(p.right))
	step := max(1, int(niceStep(float64(len(s.Columns))/columnTicks, numbers)))
	free := math.Inf(-1)
	for i := 0; i < len(s.Columns); i += step {
		name := shorten(clean(s.Columns[i]), 16)
		half := float64(utf8.RuneCountInString(name)) * charWidth / 2
		at := p.left + (float64(i)+0.5)*width
		fmt.Fprintf(&p.b, `<path class="axis" d="M%s %sv4"/>`, px(at), px(p.bottom))
		if at-half < free || at+half > plotWidth {
			continue
		}
		free = at + half + 8
		fmt.Fprintf(&p.b, `<text class="tick" text-anchor="middle" x="%s" y="%s">%s</text>`, px(at), px(p.bottom+18), escape(name))
	}
	fmt.Fprintf(&p.b, `<text class="label" text-anchor="middle" x="%s" y="%s">%s</text>`+"\n", px((p.left+p.right)/2), px(p.height-5), escape(s.XLabel))
}
