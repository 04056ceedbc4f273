package report

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/browser"
	"muster/internal/need"
)

var shots = flag.String("shots", "", "keep pictures of the browser test's pages in this folder")

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// TestGanttsInABrowser uses two Gantts that share their time axis as a person would.
func TestGanttsInABrowser(t *testing.T) {
	b := browser.Start(t)
	jobs := []GanttJob{{ID: "alpha", Lines: []string{"User\tann"}}, {ID: "beta"}, {ID: hostile, Lines: []string{hostile}}, {ID: "delta-7"}}
	kinds := []Kind{{Name: "cores"}, {Name: "GPUs", Help: "Graphics"}}
	rows := []string{"n1", "n2", "n3", "n4"}
	page := &Page{Title: hostile, Sections: []Section{
		&Gantt{Title: "first", Axis: "t", Rows: rows, Kinds: kinds, Jobs: jobs, Blocks: []Block{
			{Row: 0, Start: 0, End: 500, Hi: 1, Job: 0},
			{Row: 1, Start: 0, End: 500, Hi: 0.5, Job: 0},
			{Row: 1, Start: 100, End: 900, Lo: 0.5, Hi: 1, Job: 1, Kind: 1},
			{Row: 2, Start: 400, End: 1000, Hi: 1, Job: 2},
			{Row: 3, Start: 10, End: 12, Hi: 1, Job: 3},
		}},
		&Gantt{Title: "second", Axis: "t", Rows: rows, Kinds: kinds, Jobs: jobs, Blocks: []Block{
			{Row: 3, Start: 0, End: 600, Hi: 1, Job: 0},
			{Row: 2, Start: 100, End: 800, Hi: 1, Job: 1},
		}},
	}}
	server := browser.Serve(t, page.WriteHTML)
	b.Show(server)
	g := b.Gantt(0)
	if g.From != 0 || g.To != 1000 {
		t.Errorf("the first Gantt shows %v to %v, want 0 to 1000", g.From, g.To)
	}

	for _, c := range []struct {
		t, row float64
		want   []string
	}{
		{250, 0.5, []string{"alpha", "ann", "n1"}},
		{250, 1.25, []string{"alpha", "n2"}},
		{250, 1.75, []string{"beta", "GPUs"}},
		{700, 2.5, []string{hostile}},
		{800, 0.5, nil},
	} {
		x, y := g.At(c.t, c.row)
		b.Pointer(false, [2]int{x, y})
		told := b.Tip()
		for _, want := range c.want {
			if !strings.Contains(told, want) {
				t.Errorf("at %v s, row %v: the tip says %q, want %q in it", c.t, c.row, told, want)
			}
		}
		if c.want == nil && told != "" {
			t.Errorf("at %v s, row %v: the tip says %q, want none", c.t, c.row, told)
		}
	}

	// Over alpha, the blocks of alpha are marked in both Gantts: not dimmed there, dimmed elsewhere.
	x, y := g.At(250, 0.5)
	b.Pointer(false, [2]int{x, y})
	var dimmed []bool
	b.Script(&dimmed, `
		const marks = [...document.querySelectorAll(".marks")].map(c => c.getContext("2d").getImageData(0, 0, c.width, c.height));
		const alpha = (gantt, t, row) => {
			const m = marks[gantt], left = +document.querySelectorAll("figure.gantt")[gantt].dataset.left;
			const x = Math.round(left + (m.width - left) * t / 1000), y = Math.round((m.height - 26) * row / 4);
			return m.data[(y * m.width + x) * 4 + 3] > 0;
		};
		return [alpha(0, 250, 0.5), alpha(0, 250, 1.2), alpha(0, 700, 2.5), alpha(1, 300, 3.5), alpha(1, 300, 2.5)]`)
	if got, want := fmt.Sprint(dimmed), "[false false true false true]"; got != want {
		t.Errorf("dimmed %s, want %s", got, want)
	}
	if *shots != "" {
		b.Screenshot(filepath.Join(*shots, "hover.png"))
	}

	// The wheel zooms about the pointer, and the second Gantt follows.
	x, y = g.At(250, 0.5)
	b.Wheel(x, y, -200)
	zoomed := b.Gantt(0)
	if size := zoomed.To - zoomed.From; !(size < 900) {
		t.Errorf("after the wheel %v s are visible, want fewer than 900", size)
	}
	if back, _ := zoomed.At(250, 0.5); !near(float64(back), float64(x), 1.5) {
		t.Errorf("250 s was at %d and is at %d: the zoom was not about the pointer", x, back)
	}
	if other := b.Gantt(1); other.From != zoomed.From || other.To != zoomed.To {
		t.Errorf("the second Gantt shows %v to %v, the first %v to %v", other.From, other.To, zoomed.From, zoomed.To)
	}

	// Dragging moves time with the pointer.
	b.Pointer(true, [2]int{x, y}, [2]int{x - 20, y}, [2]int{x - 100, y})
	dragged := b.Gantt(0)
	if moved := (dragged.From - zoomed.From) / (zoomed.To - zoomed.From) * g.Plot[2]; !near(moved, 100, 1) {
		t.Errorf("a drag by 100 px moved %v px", moved)
	}

	// Keys, on what has the focus.
	b.Script(nil, `document.querySelector(".blocks").focus()`)
	b.Keys("0")
	if all := b.Gantt(0); all.From != 0 || all.To != 1000 {
		t.Errorf("after 0 the Gantt shows %v to %v", all.From, all.To)
	}
	b.Keys("++")
	if in := b.Gantt(1); !near(in.To-in.From, 490, 1) {
		t.Errorf("after ++ the second Gantt shows %v s, want 490", in.To-in.From)
	}
	b.Keys("-")
	before := b.Gantt(0)
	b.Keys("\uE012") // arrow left
	if after := b.Gantt(0); !(after.From < before.From) {
		t.Errorf("the left arrow went from %v to %v", before.From, after.From)
	}
	// The browser takes two clicks for a double click only if they come soon after each other, which on a
	// busy machine may take several attempts.
	all := b.Gantt(0)
	for range 20 {
		b.Actions(map[string]any{"type": "pointer", "id": "mouse", "actions": []map[string]any{
			{"type": "pointerMove", "duration": 0, "x": x, "y": y},
			{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0},
			{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0},
		}})
		if all = b.Gantt(0); all.From == 0 && all.To == 1000 {
			break
		}
	}
	if all.From != 0 || all.To != 1000 {
		t.Errorf("after a double click the Gantt shows %v to %v", all.From, all.To)
	}

	// Search finds a job of two seconds, by a part of its ID, and goes there.
	b.Script(nil, `document.querySelector("input").focus()`)
	b.Keys("delta\uE007")
	if told := b.Tip(); !strings.Contains(told, "delta-7") || !strings.Contains(told, "n4") {
		t.Errorf("the search for delta says %q", told)
	}
	if found := b.Gantt(0); found.To-found.From > 20 || found.From > 10 || found.To < 12 {
		t.Errorf("the search shows %v to %v, want a little around 10 to 12", found.From, found.To)
	}
	b.Script(nil, `document.querySelector("input").value = ""`)
	b.Keys("nobody\uE007")
	if told := b.Tip(); !strings.Contains(told, "No job") {
		t.Errorf("a search for nobody says %q", told)
	}

	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the console says %v", list)
	}
	if len(server.Others()) > 0 {
		t.Errorf("the page asked for %v", server.Others())
	}
	var loaded []string
	b.Script(&loaded, `return performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:"))`)
	if len(loaded) > 0 {
		t.Errorf("the page loaded %v", loaded)
	}
	var stolen bool
	b.Script(&stolen, `return "stolen" in globalThis`)
	if stolen {
		t.Error("hostile text ran as a script")
	}
}

// TestSamplePageInABrowser hovers over a chart, a histogram and a column's help.
func TestSamplePageInABrowser(t *testing.T) {
	b := browser.Start(t)
	b.Show(browser.Serve(t, samplePage().WriteHTML))
	for _, c := range []struct {
		selector string
		want     []string
	}{
		{"figure.chart svg.plot", []string{"g-queue", "r-queue", "%"}},
		{"rect.hover", []string{"0 s to", "g-queue", "of 300"}},
		{"th.help", []string{"From the first submission"}},
	} {
		var place [2]float64
		b.Script(&place, `
			const e = document.querySelector(arguments_[0]);
			e.scrollIntoView({block: "center"});
			const r = e.getBoundingClientRect();
			return [r.left + r.width / 2, r.top + r.height / 2]`, c.selector)
		b.Settle()
		b.Pointer(false, [2]int{int(place[0]), int(place[1])})
		told := b.Tip()
		for _, want := range c.want {
			if !strings.Contains(told, want) {
				t.Errorf("over %s the tip says %q, want %q in it", c.selector, told, want)
			}
		}
		if *shots != "" && c.selector == "figure.chart svg.plot" {
			b.Screenshot(filepath.Join(*shots, "chart.png"))
		}
	}
	if *shots != "" {
		b.ScrollTo(0)
		b.Screenshot(filepath.Join(*shots, "gantt.png"))
		g := b.Gantt(0)
		x, y := g.At(g.From+(g.To-g.From)/2, 12.4)
		b.Pointer(false, [2]int{x, y})
		b.Screenshot(filepath.Join(*shots, "gantt-hover.png"))
		b.Wheel(x, y, -300)
		b.Wheel(x, y, -300)
		b.Wheel(x, y, -300)
		b.Screenshot(filepath.Join(*shots, "gantt-zoomed.png"))
		b.Scheme("dark")
		b.Screenshot(filepath.Join(*shots, "gantt-dark.png"))
		b.Script(nil, "scrollTo(0, 700)")
		b.Settle()
		b.Screenshot(filepath.Join(*shots, "dark.png"))
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the console says %v", list)
	}
}

// TestHalfAMillionBlocks loads as many blocks as a page is designed for, and logs how long the page
// takes. It asserts only that the page still shows the right job.
func TestHalfAMillionBlocks(t *testing.T) {
	need.IsSoak(t)
	b := browser.Start(t)
	const rows, perRow = 1000, 500
	g := &Gantt{Title: "many", Kinds: []Kind{{Name: "a"}, {Name: "b"}}}
	for r := range rows {
		g.Rows = append(g.Rows, fmt.Sprintf("n%04d", r))
		for k := range perRow {
			i := r*perRow + k
			g.Jobs = append(g.Jobs, GanttJob{ID: fmt.Sprintf("j%d", i), Lines: []string{fmt.Sprintf("User\tu%d", i%97), fmt.Sprintf("Waited\t%s", Duration(float64(i*7919%100000)))}})
			g.Blocks = append(g.Blocks, Block{Row: int32(r), Start: float64(k*1000 + r), End: float64(k*1000 + r + 400 + i*31%600), Hi: 1, Kind: uint8(i % 2), Job: int32(i)})
		}
	}
	b.Show(browser.Serve(t, (&Page{Title: "many", Sections: []Section{g}}).WriteHTML))
	var spent []float64
	b.Script(&spent, `
		const c = document.querySelector(".blocks"), box = c.getBoundingClientRect(), list = [];
		for (let i = 0; i < 12; i++) {
			const begin = performance.now();
			c.dispatchEvent(new WheelEvent("wheel", {deltaY: i < 6 ? -100 : 100, clientX: box.left + 500, clientY: box.top + 200}));
			await new Promise(requestAnimationFrame);
			await new Promise(r => setTimeout(r));
			list.push(Math.round(performance.now() - begin));
		}
		return [Math.round(performance.now()), ...list]`)
	t.Logf("ready and drawn 12 times after %v ms; each zoom %v ms", spent[0], spent[1:])
	b.Script(nil, `document.querySelector("input").focus()`)
	b.Keys("j250123\uE007")
	if told := b.Tip(); !strings.Contains(told, "j250123") || !strings.Contains(told, "n0500") {
		t.Errorf("the search for j250123 says %q", told)
	}
	s := b.Gantt(0)
	x, y := s.At(123*1000+500+200, 500.5)
	b.Pointer(false, [2]int{x, y})
	if told := b.Tip(); !strings.Contains(told, "j250123") {
		t.Errorf("over j250123 the tip says %q", told)
	}
	if *shots != "" {
		b.Screenshot(filepath.Join(*shots, "many-zoomed.png"))
		b.Script(nil, `document.querySelector(".blocks").focus()`)
		b.Keys("0")
		b.Screenshot(filepath.Join(*shots, "many.png"))
	}
}

// TestPageSpeaksAsGoDoes compares the script's words for numbers with Go's.
func TestPageSpeaksAsGoDoes(t *testing.T) {
	b := browser.Start(t)
	b.Show(browser.Serve(t, (&Page{Title: "words"}).WriteHTML))
	// No exact halves: JavaScript rounds them up, Go to even.
	values := []float64{0, 1, -1, 9.94, 9.96, 12.346, 59.4, 59.6, 60, 61, 119.7, 3599.4, 3599.7, 3600, 3725, 86340, 86370, 86400, 273600, 8.64e7, 9e9,
		0.5, 0.123456, 0.00012345, 0.000012345, 1e-9, 1234.56, 999999.4, 1e14, 1e15, 1.2346e17, -0.25243, 0.00042, 12.3456}
	var words [][3]string
	b.Script(&words, `const m = musterReport; return arguments_[0].map(v => [m.number(v), m.percent(v), m.duration(v)])`, values)
	for i, v := range values {
		if want := [3]string{Number(v), Percent(v), Duration(v)}; words[i] != want {
			t.Errorf("of %v the page says %q, Go %q", v, words[i], want)
		}
	}
	ticks := [][3]float64{{0, 1, 10}, {0.25, 0.05, 2}, {42, 2, 200}, {90, 30, 250}, {2700, 900, 7000}, {5400, 1800, 20000}, {43200, 21600, 200000},
		{43200, 43200, 900000}, {172800, 86400, 900000}, {90061, 1, 100000}, {90061.5, 0.5, 100000}, {-7200, 3600, 9000}, {86400000, 8640000, 1e8}}
	var labels []string
	b.Script(&labels, `return arguments_[0].map(a => musterReport.timeTick(...a))`, ticks)
	for i, a := range ticks {
		if want := timeTick(a[0], a[1], a[2]); labels[i] != want {
			t.Errorf("of tick %v the page says %q, Go %q", a, labels[i], want)
		}
	}
}
