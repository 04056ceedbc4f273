package report

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var sampleTable = Table{
	Title: "Policies", Note: "Seed 1.",
	Columns: []Column{{Name: "Policy"}, {Name: "Jobs", Right: true}, {Name: "Wait", Right: true, Help: "mean"}, {Name: "Who"}},
	Rows: [][]string{
		{"g-queue", "1,200", "1 h 02 min", "ann"},
		{"easy", "7", "20 µs", "tab\there"},
		{"evil\x1b[2J\nname", "–", "", ""},
	},
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sampleTable.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.String())
	golden(t, "table.html", piece(t, &sampleTable))
}

func TestTableRefusesRaggedRows(t *testing.T) {
	if err := (&Table{Columns: []Column{{}}, Rows: [][]string{{}}}).WriteText(&bytes.Buffer{}); err == nil {
		t.Error("a row without cells was accepted")
	}
}

func TestChart(t *testing.T) {
	nan := math.NaN()
	c := &Chart{
		Title: "Use", XLabel: "time", YLabel: "share", Note: "A note.", XIsTime: true, YIsPercent: true,
		Series: []Series{
			{Name: "steps", X: []float64{0, 3600, 7200, 10800}, Y: []float64{0, 0.5, nan, 0.25}, Step: true},
			{Name: "band", X: []float64{0, 10800}, Y: []float64{0.1, 0.2}, Lo: []float64{0, 0.1}, Hi: []float64{0.2, 0.3}},
			{Name: "dots", X: []float64{9000, 1800}, Y: []float64{0.9, 0.8}, Lo: []float64{0.8, 0.7}, Hi: []float64{1, 0.9}, NoLine: true},
		},
	}
	golden(t, "chart.html", piece(t, c))
	wellFormed(t, c.SVG())
	alone := strings.Replace(c.SVG(), plotCSS, "STYLE", 1)
	golden(t, "chart.svg", alone)
}

func TestChartThatCannotBeDrawnSaysWhy(t *testing.T) {
	svg := (&Chart{Title: "c", Series: []Series{{Name: "s", X: []float64{1}}}}).SVG()
	if !strings.Contains(svg, "1 x values for 0 y values") {
		t.Error(svg)
	}
}

func TestEmptyDrawingsSayNoData(t *testing.T) {
	for _, s := range []Section{
		&Strips{}, &Chart{}, &Chart{Series: []Series{{Name: "a"}}}, &Chart{LogY: true, Series: []Series{{X: []float64{1}, Y: []float64{0}}}},
		&Bars{}, &Bars{Groups: []string{"g"}, Series: []BarSeries{{Values: []float64{math.NaN()}}}},
		&Histogram{}, &Histogram{LogX: true, Series: []Sample{{"a", []float64{0, -1}}}}, &Histogram{Series: []Sample{{"a", []float64{math.Inf(1)}}}},
	} {
		if html := piece(t, s); !strings.Contains(html, "no data") || strings.Contains(html, "NaN") {
			t.Errorf("%T: %s", s, html)
		}
	}
	if html := piece(t, &Gantt{}); !strings.Contains(html, `"blocks":0`) {
		t.Error(html)
	}
}

// TestThinnedLineKeepsItsPeaks draws 100,000 values of which one stands out.
func TestThinnedLineKeepsItsPeaks(t *testing.T) {
	const n, peak = 100_000, 54_321
	s := Series{X: make([]float64, n), Y: make([]float64, n)}
	for i := range s.X {
		s.X[i] = float64(i)
	}
	s.Y[peak] = 7
	a := newAxis(0, n, 9, numbers, false, false)
	a.from, a.to = 0, 900
	thin := s.thin(&a)
	if len(thin.X) > 4*901 {
		t.Errorf("%d values are left", len(thin.X))
	}
	for i, x := range thin.X {
		if i > 0 && x <= thin.X[i-1] {
			t.Fatalf("x %v after %v", x, thin.X[i-1])
		}
		if x == peak {
			if thin.Y[i] != 7 {
				t.Errorf("the peak is %v", thin.Y[i])
			}
			return
		}
	}
	t.Error("the peak is gone")
}

func TestBars(t *testing.T) {
	golden(t, "bars.html", piece(t, &Bars{
		Title: "Change", YLabel: "change", YIsPercent: true, Groups: []string{"wait", "run"},
		Series: []BarSeries{
			{Name: "paper", Values: []float64{-0.25, math.NaN()}, Reference: true},
			{Name: "ours", Values: []float64{-0.2, 0.1}, Lo: []float64{-0.3, 0.05}, Hi: []float64{-0.1, 0.15}},
		},
	}))
}

// A mark replaces the value on its bar, and cannot inject markup.
func TestMarkedBars(t *testing.T) {
	text := piece(t, &Bars{Groups: []string{"g"}, Series: []BarSeries{{Name: "s", Values: []float64{12.5}, Marks: []string{"<7>"}}}})
	if !strings.Contains(text, ">&lt;7&gt;</text>") || strings.Contains(text, ">12.5</text>") || !strings.Contains(text, "12.5, marked") {
		t.Error(text)
	}
}

func TestStrips(t *testing.T) {
	s := &Strips{
		Title: "Bids", Note: "Two jobs.", XLabel: "nodes", Columns: []string{"n1", "n2", "<n3>"}, Rows: []string{"job a", "evil\x1b[2J<b>"},
		Kinds: []StripKind{{"won", 0}, {"lost", 7}},
		Strips: []Strip{
			{Row: 0, From: 0, To: 1, Lines: []string{"job a", "Value\t12"}},
			{Row: 1, From: 0, To: 0, Kind: 1, Lines: []string{`<script>"`}},
			{Row: 1, From: 2, To: 2, Kind: 1},
		},
	}
	golden(t, "strips.html", piece(t, s))
	wellFormed(t, s.draw())
	// With many rows, the names appear only under the pointer; every strip among many columns is
	// still visible.
	s.Columns, s.Rows = make([]string, 5000), make([]string, maxNamed+1)
	if many := s.draw(); strings.Count(many, "<text") > 20 || strings.Contains(many, `width="0`) {
		t.Error(many)
	}
}

func TestHistogram(t *testing.T) {
	h := &Histogram{
		Title: "Waits", XLabel: "wait", YLabel: "jobs", XIsTime: true, Bins: 4, Note: "Two runs.",
		Series: []Sample{{"a", []float64{0, 30, 61, 200, 239}}, {"b", []float64{-20, 5, 6, 7, math.NaN()}}},
	}
	text := func() string {
		var b bytes.Buffer
		if err := h.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	golden(t, "histogram.txt", text())
	golden(t, "histogram.html", piece(t, h))
	h.LogY, h.LogX = true, true
	golden(t, "histogram-log.txt", text())
	golden(t, "histogram-log.html", piece(t, h))
}

// FuzzHistogram checks that each value is in one bin, and in the right one.
func FuzzHistogram(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, uint8(3), false)
	f.Add(1e18, 1e18+256, -1e-300, uint8(0), true)
	f.Fuzz(func(t *testing.T, a, b, c float64, bins uint8, log bool) {
		h := &Histogram{LogX: log, Bins: int(bins), Series: []Sample{{"", []float64{a, b, c}}}}
		counted := h.count(20)
		sum := counted.left
		for _, n := range counted.counts[0] {
			sum += n
		}
		if sum != 3 || len(counted.edges) > 2000 {
			t.Fatalf("%d of 3 values counted, %d edges", sum, len(counted.edges))
		}
	})
}

// The label of a bar is beyond its end: below a bar that points down.
func TestLabelsOfNegativeBars(t *testing.T) {
	b := &Bars{Title: "t", Groups: []string{"down", "up"}, Series: []BarSeries{{Name: "s", Values: []float64{-6, 2}}}}
	drawn := b.draw()
	places := map[string]float64{}
	for _, m := range regexp.MustCompile(`class="value"[^>]* y="([0-9.]+)">([^<]*)<`).FindAllStringSubmatch(drawn, -1) {
		places[m[2]], _ = strconv.ParseFloat(m[1], 64)
	}
	zero := regexp.MustCompile(`class="axis" d="M[0-9.]+ ([0-9.]+)H`).FindAllStringSubmatch(drawn, -1)
	at, _ := strconv.ParseFloat(zero[len(zero)-1][1], 64)
	if len(places) != 2 || places["-6"] <= at || places["2"] >= at {
		t.Errorf("zero is at %v, labels are at %v", at, places)
	}
}

// An axis that is logarithmic says so.
func TestLogarithmicAxesSaySo(t *testing.T) {
	h := &Histogram{Title: "t", XLabel: "run time", YLabel: "jobs", LogX: true, LogY: true, Series: []Sample{{Name: "s", Values: []float64{1, 10, 100}}}}
	drawn := h.draw(h.count(10))
	for _, want := range []string{">run time, logarithmic<", ">jobs, logarithmic<"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("no %s in the picture", want)
		}
	}
}
