package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Palette is that of Okabe and Ito, in an order that keeps neighbours distinguishable for every
// kind of colour vision. The page's CSS has variants for dark screens.
var Palette = [8]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7f7f7f"}

const (
	plotWidth  = 920.0
	plotHeight = 320.0
	charWidth  = 6.7 // mean width of a character in the 12 px labels
	lineHeight = 18.0
	legendGap  = 16.0
)

// plot is an SVG drawing with two axes, under construction.
type plot struct {
	b                        strings.Builder
	left, right, top, bottom float64 // of the area between the axes
	height                   float64
}

// frame is everything around the drawing.
type frame struct {
	title          string // inside the drawing; "" within a page, which has a caption of its own
	xLabel, yLabel string
	legend         []legendEntry
	alone          bool    // the drawing is a file of its own and includes its style
	height         float64 // between the axes; 0 means the default
}

type legendEntry struct {
	name  string
	mark  string // "line", "box" or "outline"
	class string
}

// newPlot lays out the frame, fixes the positions of the axes and draws the grid. categories, if
// given, replace the ticks of x.
func newPlot(f frame, x, y *axis, categories []string) *plot {
	f.xLabel, f.yLabel = x.describe(f.xLabel), y.describe(f.yLabel)
	p := &plot{right: plotWidth - 20, top: 12}
	widest := 0
	for _, t := range y.ticks {
		widest = max(widest, utf8.RuneCountInString(y.label(t)))
	}
	p.left = math.Ceil(14 + float64(widest)*charWidth)
	var head strings.Builder
	if f.title != "" {
		fmt.Fprintf(&head, `<text class="title" x="0" y="%s">%s</text>`, px(p.top+8), escape(f.title))
		p.top += 24
	}
	if f.yLabel != "" {
		fmt.Fprintf(&head, `<text class="label" x="0" y="%s">%s</text>`, px(p.top+8), escape(f.yLabel))
	}
	p.top = p.legend(&head, f) + 14
	p.bottom = p.top + plotHeight - 90
	if f.height > 0 {
		p.bottom = p.top + f.height
	}
	p.height = p.bottom + 26
	if f.xLabel != "" {
		p.height += lineHeight
	}
	x.from, x.to = p.left, p.right
	y.from, y.to = p.bottom, p.top

	fmt.Fprintf(&p.b, `<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img"`, px(plotWidth), px(p.height))
	if f.alone {
		fmt.Fprintf(&p.b, ` width="%s" height="%s"`, px(plotWidth), px(p.height))
	}
	p.b.WriteString(">")
	if f.alone {
		p.b.WriteString("<style>" + plotCSS + "</style>")
	}
	p.b.WriteString(head.String() + "\n")
	p.grid(x, y, categories)
	if f.xLabel != "" {
		fmt.Fprintf(&p.b, `<text class="label" text-anchor="middle" x="%s" y="%s">%s</text>`,
			px((p.left+p.right)/2), px(p.height-5), escape(f.xLabel))
	}
	p.b.WriteByte('\n')
	return p
}

// legend writes the entries in lines, right-aligned, and returns the position below them.
func (p *plot) legend(b *strings.Builder, f frame) float64 {
	if len(f.legend) < 2 {
		if f.yLabel != "" {
			return p.top + 12
		}
		return p.top
	}
	first := 0.0 // the y label occupies the left end of the first line
	if f.yLabel != "" {
		first = float64(utf8.RuneCountInString(f.yLabel))*charWidth + 24
	}
	lines := [][]legendEntry{nil}
	room := p.right - first
	for _, e := range f.legend {
		w := entryWidth(e)
		if last := len(lines) - 1; w > room && len(lines[last]) > 0 {
			lines = append(lines, nil)
			room = p.right
		}
		room -= w
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
	}
	y := p.top + 8
	for i, line := range lines {
		if i > 0 {
			y += lineHeight
		}
		x := p.right + legendGap
		for _, e := range line {
			x -= entryWidth(e)
		}
		for _, e := range line {
			switch e.mark {
			case "line":
				fmt.Fprintf(b, `<path class="line %s" d="M%s %sh18"/>`, e.class, px(x), px(y-4))
			default:
				fmt.Fprintf(b, `<rect class="%s %s" x="%s" y="%s" width="12" height="10"/>`, e.mark, e.class, px(x+4), px(y-9))
			}
			fmt.Fprintf(b, `<text x="%s" y="%s">%s</text>`, px(x+24), px(y), escape(e.name))
			x += entryWidth(e)
		}
	}
	return y + 4
}

func entryWidth(e legendEntry) float64 {
	return 24 + float64(utf8.RuneCountInString(e.name))*charWidth + legendGap
}

func (p *plot) grid(x, y *axis, categories []string) {
	p.b.WriteString(`<g class="grid">`)
	for _, t := range y.ticks {
		fmt.Fprintf(&p.b, `<path d="M%s %sH%s"/>`, px(p.left), px(y.at(t)), px(p.right))
	}
	if categories == nil {
		for _, t := range x.ticks {
			fmt.Fprintf(&p.b, `<path d="M%s %sV%s"/>`, px(x.at(t)), px(p.top), px(p.bottom))
		}
	}
	p.b.WriteString("</g>")
	fmt.Fprintf(&p.b, `<path class="axis" d="M%s %sH%s"/>`, px(p.left), px(p.bottom), px(p.right))
	for _, t := range y.ticks {
		fmt.Fprintf(&p.b, `<text class="tick" text-anchor="end" x="%s" y="%s">%s</text>`, px(p.left-8), px(y.at(t)+4), escape(y.label(t)))
	}
	if categories != nil {
		p.categories(categories)
		return
	}
	free := math.Inf(-1)
	for _, t := range x.ticks {
		label := x.label(t)
		half := float64(utf8.RuneCountInString(label)) * charWidth / 2
		at := math.Min(x.at(t), plotWidth-half)
		if at-half < free {
			continue
		}
		free = at + half + 8
		fmt.Fprintf(&p.b, `<text class="tick" text-anchor="middle" x="%s" y="%s">%s</text>`, px(at), px(p.bottom+18), escape(label))
	}
}

func (p *plot) categories(names []string) {
	room := (p.right - p.left) / float64(len(names))
	for i, name := range names {
		fmt.Fprintf(&p.b, `<text class="tick" text-anchor="middle" x="%s" y="%s">%s</text>`,
			px(p.left+(float64(i)+0.5)*room), px(p.bottom+18), escape(shorten(clean(name), int(room/charWidth))))
	}
}

// shorten cuts a text to n characters, of which the last is then an ellipsis.
func shorten(s string, n int) string {
	n = max(n, 2)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// box draws a bar between two positions on the y axis.
func (p *plot) box(class string, left, right, y0, y1 float64) {
	top, bottom := math.Min(y0, y1), math.Max(y0, y1)
	fmt.Fprintf(&p.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, px(left), px(top), px(right-left), px(bottom-top))
}

// errorBar draws the interval of a value.
func (p *plot) errorBar(class string, x, lo, hi float64) {
	fmt.Fprintf(&p.b, `<path class="error %s" d="M%s %sh6m-3 0V%sm-3 0h6"/>`, class, px(x-3), px(lo), px(hi))
}

// hover adds lines to show when the pointer is over a part of the drawing. The lines after the
// first have the given colours.
func (p *plot) hover(left, right float64, lines []string, colours []int) {
	safe := make([]string, len(lines))
	for i, line := range lines {
		safe[i] = strings.ReplaceAll(html.EscapeString(cleanPair(line)), "\t", "&#9;")
	}
	classes := make([]string, len(colours))
	for i, c := range colours {
		classes[i] = seriesClass(c)
	}
	fmt.Fprintf(&p.b, `<rect class="hover" x="%s" y="%s" width="%s" height="%s" data-colours="%s" data-tip="%s"/>`,
		px(left), px(p.top), px(right-left), px(p.bottom-p.top), strings.Join(classes, " "), strings.Join(safe, "&#10;"))
}

// empty writes that there is no data.
func (p *plot) empty() {
	fmt.Fprintf(&p.b, `<text class="label" text-anchor="middle" x="%s" y="%s">no data</text>`,
		px((p.left+p.right)/2), px((p.top+p.bottom)/2))
}

func (p *plot) finish() string {
	p.b.WriteString("\n</svg>\n")
	return p.b.String()
}

// px writes a position to a tenth of a pixel.
func px(v float64) string {
	s := trimZeros(strconv.FormatFloat(v, 'f', 1, 64))
	if s == "-0" {
		return "0"
	}
	return s
}

// seriesClass is the CSS class for the colour of the i-th series.
func seriesClass(i int) string { return "s" + strconv.Itoa(i%len(Palette)) }
