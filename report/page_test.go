package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile is a name that tries everything: to end a script, to be markup, an
// attribute, a terminal sequence.
const hostile = `</script><script>stolen=1</script><img src=x onerror=stolen=1>"' onload="stolen=1`

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./report -update writes it; read the difference):\n%s", file, got)
	}
}

// piece gives the HTML of one section.
func piece(t *testing.T, s Section) string {
	t.Helper()
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	h := newHTMLWriter(&b)
	s.writeHTML(h)
	if h.err != nil {
		t.Fatal(h.err)
	}
	if err := h.w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wellFormed fails where a piece of SVG is no XML.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

func TestTextPieces(t *testing.T) {
	golden(t, "prose.html", piece(t, Heading("One & two"))+piece(t, Text("First\nparagraph.\n\n\nSecond <b>one</b>."))+piece(t, Pre("a  b\n\tc <d>")))
}

func TestPageShell(t *testing.T) {
	var b bytes.Buffer
	p := &Page{Title: "A & B", Lead: "One.\n\nTwo.", Sections: []Section{Heading("x"), Heading("y"), Heading("z")}}
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(strings.ReplaceAll(b.String(), pageJS, "SCRIPT"), plotCSS+pageCSS, "STYLE")
	policy := strings.Index(page, "sha256-")
	page = page[:policy] + "HASH" + page[policy+strings.Index(page[policy:], "&#39;"):]
	golden(t, "shell.html", page)
}

func TestBadSectionsAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	block := func(change func(*Block)) *Gantt {
		b := Block{Start: 1, End: 2, Hi: 1}
		change(&b)
		return &Gantt{Title: "g", Rows: []string{"r"}, Kinds: []Kind{{}}, Jobs: []GanttJob{{}}, Blocks: []Block{b}}
	}
	nan := zero() / zero()
	for _, c := range []struct {
		section Section
		want    string
	}{
		{&Table{Title: "t", Columns: []Column{{}}, Rows: [][]string{{"a", "b"}}}, "row 1 has 2 cells for 1 columns"},
		{&Chart{Title: "c", Series: []Series{{Name: "s", X: []float64{1}}}}, "1 x values for 0 y values"},
		{&Chart{Title: "c", Series: []Series{{Name: "s", X: []float64{1}, Y: []float64{1}, Lo: []float64{1}}}}, "1 low and 0 high bounds"},
		{&Chart{Title: "c", Series: []Series{{Name: "s", X: []float64{2, 1}, Y: []float64{1, 1}}}}, "out of order at value 1"},
		{&Chart{Title: "c", Series: []Series{{Name: "s", X: []float64{nan}, Y: []float64{1}}}}, "x value 0 is NaN"},
		{&Chart{Title: "c", YMin: new(2.0), YMax: new(1.0)}, "YMin 2 is not below YMax 1"},
		{&Bars{Title: "b", Groups: []string{"g"}, Series: []BarSeries{{Name: "s"}}}, "0 values for 1 groups"},
		{&Bars{Title: "b", Groups: []string{"g"}, Series: []BarSeries{{Values: []float64{1}, Hi: []float64{1}}}}, "0 low and 1 high bounds"},
		{&Bars{Title: "b", Groups: []string{"g"}, Series: []BarSeries{{Values: []float64{1}, Marks: []string{"a", "b"}}}}, "2 marks for 1 values"},
		{&Histogram{Title: "h", Bins: -1}, "-1 bins"},
		{&Strips{Title: "s", Strips: []Strip{{}}}, "in row 0 of 0"},
		{&Strips{Title: "s", Rows: []string{"r"}, Columns: []string{"c"}, Strips: []Strip{{To: 1}}}, "from column 0 to 1 of 1"},
		{&Strips{Title: "s", Rows: []string{"r"}, Columns: []string{"c"}, Strips: []Strip{{}}}, "of kind 0 of 0"},
		{&Gantt{Title: "g", Kinds: []Kind{{Name: "k", Colour: "red;"}}}, "want #rrggbb"},
		{block(func(b *Block) { b.Row = 1 }), "in row 1 of 1"},
		{block(func(b *Block) { b.Kind = 1 }), "of kind 1 of 1"},
		{block(func(b *Block) { b.Job = 1 }), "job 1 of 1"},
		{block(func(b *Block) { b.Job = -2 }), "job -2 of 1"},
		{block(func(b *Block) { b.End = 0.5 }), "from 1 to 0.5 s"},
		{block(func(b *Block) { b.Start = nan }), "from NaN to 2 s"},
		{block(func(b *Block) { b.Hi = 1.5 }), "height 0 to 1.5"},
		{block(func(b *Block) { b.Lo = float32(nan) }), "height NaN to 1"},
	} {
		var out bytes.Buffer
		err := (&Page{Sections: []Section{Text("before"), c.section}}).WriteHTML(&out)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "section 2") {
			t.Errorf("error %v, want %q in section 2", err, c.want)
		}
		if out.Len() > 0 {
			t.Errorf("%q: %d bytes were written", c.want, out.Len())
		}
	}
}

func zero() float64 { return 0 }

// TestNothingHostileSurvives puts the hostile name everywhere a name can be.
func TestNothingHostileSurvives(t *testing.T) {
	x := hostile + "\x1b[2J\u202e\xff\x00"
	numbers := []float64{1, 2}
	page := &Page{Title: x, Lead: x, Sections: []Section{
		Heading(x), Heading(x), Heading(x), Text(x), Pre(x),
		&Table{Title: x, Note: x, Columns: []Column{{Name: x, Help: x}}, Rows: [][]string{{x}}},
		&Chart{Title: x, XLabel: x, YLabel: x, Note: x, Series: []Series{{Name: x, X: numbers, Y: numbers}, {Name: x}}},
		&Bars{Title: x, YLabel: x, Note: x, Groups: []string{x, x}, Series: []BarSeries{{Name: x, Values: numbers}, {Name: x, Values: numbers}}},
		&Histogram{Title: x, XLabel: x, YLabel: x, Note: x, Series: []Sample{{x, numbers}, {x, numbers}}},
		&Gantt{Title: x, Note: x, Axis: x, Rows: []string{x}, Kinds: []Kind{{Name: x, Help: x}}, Jobs: []GanttJob{{ID: x, Lines: []string{x, x + "\t" + x}}}, Blocks: []Block{{End: 1, Hi: 1}}},
	}}
	var b bytes.Buffer
	if err := page.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	// The only scripts are the page's own and the data of the chart and the Gantt.
	if n := strings.Count(strings.ToLower(b.String()), "<script"); n != 4 {
		t.Errorf("%d script elements, want 4", n)
	}
	for _, bad := range []string{"<script>stolen", "<img", `" onload`, "\x1b", "\u202e", "\x00", "\xff"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	wellFormed(t, page.Sections[6].(*Chart).SVG())
	for _, i := range []int{7, 8} {
		html := piece(t, page.Sections[i])
		wellFormed(t, html[strings.Index(html, "<svg"):strings.Index(html, "</svg>")+6])
	}
}

func TestPageNamesNothingOutside(t *testing.T) {
	var b bytes.Buffer
	if err := samplePage().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	rest := strings.ReplaceAll(b.String(), "http://www.w3.org/2000/svg", "")
	for _, bad := range []string{"http://", "https://", " src=", "@import", "url("} {
		if strings.Contains(rest, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
}

type failingWriter struct{ after int }

func (f *failingWriter) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriteErrorsAreReported(t *testing.T) {
	for _, after := range []int{0, 5000, 50000, 100000} {
		if err := samplePage().WriteHTML(&failingWriter{after}); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("after %d bytes: error %v, want disk full", after, err)
		}
	}
}
