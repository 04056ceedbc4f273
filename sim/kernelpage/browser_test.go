package kernelpage_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/browser"
	"muster/model/clusterfile"
	"muster/sim/kernelpage"
	"muster/sim/kernels"
	"muster/workload/phased"
)

var shots = flag.String("shots", "", "keep pictures of the browser test's page in this folder")

// study runs a workload on the paper's cluster under mappers, recorded.
func study(t *testing.T, workload string, nodes []int, seeds int, span time.Duration, policies ...string) *kernelpage.Study {
	t.Helper()
	whole, err := clusterfile.Preset("gremm")
	if err != nil {
		t.Fatal(err)
	}
	sweep := &kernels.Sweep{Common: kernels.Config{Span: span}, Mappers: policies, Workers: 1}
	for seed := range uint64(seeds) {
		sweep.Seeds = append(sweep.Seeds, seed+1)
	}
	for _, n := range nodes {
		cluster, err := whole.Resize(n)
		if err != nil {
			t.Fatal(err)
		}
		wl, err := phased.Load(workload, n)
		if err != nil {
			t.Fatal(err)
		}
		sweep.Sizes = append(sweep.Sizes, kernels.Size{Cluster: cluster, Workload: wl})
	}
	recorders := kernelpage.Record(sweep)
	runs, err := sweep.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return kernelpage.NewStudy(sweep, runs, recorders)
}

// TestPageInABrowser looks at a GPU, at a call and at the same call under another mapper.
func TestPageInABrowser(t *testing.T) {
	b := browser.Start(t)
	s := study(t, "W4", []int{24}, 3, 100*time.Second, "st", "ag", "probe")
	s.Asked = [][2]string{{"Cluster", "gremm"}, {"Workload", "W4"}}
	server := browser.Serve(t, s.Page().WriteHTML)
	b.Show(server)
	for name, count := range map[string]int{"figure.gantt": 3, "figure.chart": 6, "figure.table": 4} {
		var got int
		b.Script(&got, "return document.querySelectorAll(arguments_[0]).length", name)
		if got != count {
			t.Errorf("the page has %d of %s, want %d", got, name, count)
		}
	}

	// In a window of usual width no table is cut off, and the page has no room on the side.
	b.Width(1400)
	var cut []string
	b.Script(&cut, `const wide = [...document.querySelectorAll(".scroll"), document.documentElement].filter(e => e.scrollWidth > e.clientWidth);
		return wide.map(e => e.className + " " + e.textContent.slice(0, 40) + ": " + e.scrollWidth + " of " + e.clientWidth);`)
	if len(cut) > 0 {
		t.Errorf("cut off at the right: %q", cut)
	}
	if *shots != "" {
		b.Script(nil, `document.querySelectorAll("figure.table")[1].scrollIntoView({block: "start", behavior: "instant"})`)
		b.Settle()
		b.Screenshot(filepath.Join(*shots, "tables.png"))
	}
	b.Width(0)

	// Under st the GPUs of H's nodes are always busy, with kernels of H alone.
	first := s.Runs[0].Cluster.Nodes[0].Name
	var at [2]int
	b.Script(&at, `const gpu = document.querySelector('rect[data-tip^="' + arguments_[0] + ':0"]');
		gpu.scrollIntoView({block: "center", behavior: "instant"});
		const box = gpu.getBoundingClientRect();
		return [Math.round(box.x + box.width / 2), Math.round(box.y + box.height / 2)];`, first)
	b.Pointer(false, at)
	told := b.Tip()
	for _, want := range []string{first + ":0", "kernels of H", "kernels of L", "held for data", "0.0 %", "together"} {
		if !strings.Contains(told, want) {
			t.Errorf("of a GPU the page tells %q, want %q in it", told, want)
		}
	}
	if *shots != "" {
		b.Script(nil, `for (const h of document.querySelectorAll("h2")) if (h.textContent === "GPU by GPU") h.scrollIntoView({block: "start", behavior: "instant"})`)
		b.Settle()
		b.Screenshot(filepath.Join(*shots, "gpus.png"))
	}

	// The second step of a process of H is found under its own name.
	b.ScrollTo(1)
	b.Script(nil, `document.querySelectorAll("figure.gantt input")[1].focus()`)
	b.Keys("H.7#2\uE007")
	told = b.Tip()
	for _, want := range []string{"H.7#2", "Launched", "Queued for", "Kernel began", "GPU", first} {
		if !strings.Contains(told, want) {
			t.Errorf("of a call the page tells %q, want %q in it", told, want)
		}
	}
	if list := append(b.Complaints(), server.Others()...); len(list) > 0 {
		t.Errorf("the page complains or asks for more: %v", list)
	}
	if *shots == "" {
		return
	}
	b.Screenshot(filepath.Join(*shots, "call.png"))
	b.Show(server)
	var height int
	b.Script(&height, "return document.documentElement.scrollHeight")
	for at, i := 0, 0; at < height; at, i = at+900, i+1 {
		b.Script(nil, "scrollTo(0, arguments_[0])", at)
		b.Settle()
		b.Screenshot(filepath.Join(*shots, fmt.Sprintf("page-%02d.png", i)))
	}
}
