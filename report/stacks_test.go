package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestStacks(t *testing.T) {
	s := &Stacks{
		Title: "Wait", YLabel: "mean wait", YIsTime: true, Note: "Two mappers.", Columns: []string{"st", "<ag>"},
		Parts: []Part{{"queue", 0, []float64{4, 1}}, {"transfer\x1b[2J", 1, []float64{math.NaN(), 0.5}}},
		Lo:    []float64{3.5, 1.25}, Hi: []float64{4.5, 1.75},
	}
	golden(t, "stacks.html", piece(t, s))
	wellFormed(t, s.draw())

	low := &Stacks{
		Title: "GPUs", YIsPercent: true, YMax: new(1.0), Low: true, Columns: make([]string, 120),
		Parts: []Part{{"H", 0, make([]float64, 120)}}, Bands: []Band{{"nodes of <H>", 0, 0, 59}, {"L", 1, 60, 119}},
	}
	for i := range low.Columns {
		low.Columns[i], low.Parts[0].Values[i] = "gpu", 0.5
	}
	drawn := low.draw()
	wellFormed(t, drawn)
	if strings.Contains(drawn, ">gpu<") || !strings.Contains(drawn, ">nodes of &lt;H&gt;<") || strings.Count(drawn, `data-tip="gpu`) != 120 {
		t.Errorf("of 120 columns the bands are named, and the columns under the pointer alone: %s", drawn)
	}
}

func TestBadStacksAreRefused(t *testing.T) {
	for _, c := range []struct {
		stacks Stacks
		want   string
	}{
		{Stacks{Columns: []string{"a"}, Parts: []Part{{"p", 0, nil}}}, "0 values for 1 columns"},
		{Stacks{Columns: []string{"a"}, Parts: []Part{{"p", 0, []float64{-1}}}}, "the value -1 in column 0"},
		{Stacks{Columns: []string{"a"}, Hi: []float64{1}}, "0 low and 1 high bounds"},
		{Stacks{Columns: []string{"a"}, Lo: []float64{1, 2}, Hi: []float64{1, 2}}, "2 low and 2 high bounds for 1 columns"},
		{Stacks{Columns: []string{"a"}, Bands: []Band{{"b", 0, 0, 1}}}, "from column 0 to 1 of 1"},
	} {
		var out bytes.Buffer
		err := (&Page{Sections: []Section{&c.stacks}}).WriteHTML(&out)
		if err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("error %v, %d bytes written; want %q", err, out.Len(), c.want)
		}
	}
}

func TestEmptyStacksSayNoData(t *testing.T) {
	for _, s := range []*Stacks{{}, {Columns: []string{"a"}, Parts: []Part{{"p", 0, []float64{math.NaN()}}}}} {
		if html := piece(t, s); !strings.Contains(html, "no data") || strings.Contains(html, "NaN") {
			t.Error(html)
		}
	}
}
