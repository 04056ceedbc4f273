package report

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
)

func smallGantt() *Gantt {
	return &Gantt{
		Title: "Nodes", Note: "A note.", Axis: "t", Rows: []string{"n1", "n2"},
		Kinds: []Kind{{Name: "cores", Help: "help"}, {Name: "down", Colour: "#123456"}},
		Jobs:  []GanttJob{{ID: "7", Lines: []string{"User\tann", "plain\nline"}}, {ID: "8"}},
		Blocks: []Block{
			{Row: 1, Start: 5, End: 6, Hi: 1, Kind: 1, Job: -1},
			{Row: 0, Start: 2, End: 4, Lo: 0.5, Hi: 1, Job: 1},
			{Row: 0, Start: 0, End: 4, Hi: 0.5, Job: 0},
		},
	}
}

// TestGantt keeps the packed data out of the golden file, which would else
// depend on the compressor, and looks at it unpacked.
func TestGantt(t *testing.T) {
	html := piece(t, smallGantt())
	const begin = `class="data">`
	from := strings.Index(html, begin) + len(begin)
	to := from + strings.Index(html[from:], "<")
	golden(t, "gantt.html", html[:from]+"DATA"+html[to:])

	zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(html[from:to])))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	const n = 3
	var dump strings.Builder
	for _, c := range []struct {
		name string
		size int
	}{{"start", 8}, {"end", 8}, {"row", 4}, {"job", 4}, {"kind", 1}, {"lo", 1}, {"hi", 1}} {
		fmt.Fprintf(&dump, "%-5s % x\n", c.name, data[:n*c.size])
		data = data[n*c.size:]
	}
	fmt.Fprintf(&dump, "jobs  %q\n", data)
	golden(t, "gantt.data.txt", dump.String())
}

func TestGanttLeavesTheCallersBlocksAlone(t *testing.T) {
	g := smallGantt()
	piece(t, g)
	if fmt.Sprint(g.Blocks) != fmt.Sprint(smallGantt().Blocks) {
		t.Errorf("blocks are now %v", g.Blocks)
	}
}

func TestGanttThinsToTheLargestBlocksAndSaysSo(t *testing.T) {
	g := smallGantt() // areas 1 (no job), 1 (job 8), 2 (job 7)
	blocks, jobs, note := g.thin(2)
	if len(blocks) != 2 || blocks[0].Job != -1 || blocks[1].End != 4 || blocks[1].Job != 0 {
		t.Errorf("blocks %v", blocks)
	}
	if len(jobs) != 1 || jobs[0].ID != "7" {
		t.Errorf("jobs %v", jobs)
	}
	if want := "Thinned: the 1 smallest of 3 blocks, 25.0 % of the occupied area, are left out. Jobs left out with them: 1."; note != want {
		t.Errorf("note %q, want %q", note, want)
	}
	if _, _, note := g.thin(3); note != "" {
		t.Errorf("nothing was left out, but: %q", note)
	}
}

func BenchmarkGanttHalfAMillionBlocks(b *testing.B) {
	g := &Gantt{Kinds: []Kind{{Name: "a"}}}
	for r := range 1000 {
		g.Rows = append(g.Rows, fmt.Sprintf("n%04d", r))
		for k := range 500 {
			g.Jobs = append(g.Jobs, GanttJob{ID: fmt.Sprint(len(g.Jobs)), Lines: []string{"User\tann", "Waited\t" + Duration(float64(k*r))}})
			g.Blocks = append(g.Blocks, Block{Row: int32(r), Start: float64(k * 1000), End: float64(k*1000 + r), Hi: 1, Job: int32(len(g.Blocks))})
		}
	}
	page := &Page{Sections: []Section{g}}
	for b.Loop() {
		var out bytes.Buffer
		if err := page.WriteHTML(&out); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.Len())/1e6, "MB/page")
	}
}
