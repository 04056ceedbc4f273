package simpage_test

import (
	"bytes"
	"context"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/browser"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
	"muster/sim/simpage"
	"muster/workload"
	"muster/workload/bundled"
)

var shots = flag.String("shots", "", "keep pictures of the browser test's page in this folder")

// demo is what make demo shows: the bundled log under g-queue and r-queue.
func demo(t *testing.T) *simpage.Study {
	t.Helper()
	cluster, err := clusterfile.Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	log := bundled.Logs()[0]
	wl, _, err := workload.Read(bytes.NewReader(log.Data()), log.File, workload.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return study(t, cluster, wl.Jobs, "g-queue", "r-queue")
}

// study runs jobs under policies, recorded.
func study(t *testing.T, c *model.Cluster, jobs []model.Job, policies ...string) *simpage.Study {
	t.Helper()
	recorders := make([]*simpage.Recorder, len(policies))
	sweep := sim.Sweep{
		Cluster: c, Seeds: []uint64{1}, Workload: func(uint64) ([]model.Job, error) { return jobs, nil }, Workers: 1,
		Observe: func(p sim.Point) sim.Observer {
			recorders[p.Index] = simpage.NewRecorder(c, simpage.MaxBlocks)
			return recorders[p.Index]
		},
	}
	for _, name := range policies {
		sweep.Policies = append(sweep.Policies, sim.NamedPolicy{Name: name, New: func() (policy.Policy, error) { return catalog.New(name) }})
	}
	runs, err := sweep.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return simpage.NewStudy(c, runs, recorders)
}

// TestDemoInABrowser finds a job that borrows GPUs in the page of the demo.
func TestDemoInABrowser(t *testing.T) {
	b := browser.Start(t)
	s := demo(t)
	s.Asked = [][2]string{{"Cluster", "small"}, {"Workload", "small"}}
	server := browser.Serve(t, s.Page().WriteHTML)
	b.Show(server)

	job := -1
	for i, o := range s.Runs[1].Result.Outcomes {
		if o.Borrowed && o.End-o.Start > 3600e9 {
			job = i
			break
		}
	}
	if job < 0 {
		t.Fatal("no long job of the demo borrows GPUs under r-queue")
	}
	id := s.Runs[1].Result.Jobs[job].ID
	b.ScrollTo(1)
	b.Script(nil, `document.querySelectorAll("figure.gantt input")[1].focus()`)
	b.Keys(id + "\uE007")
	lenders, _ := s.Runs[1].Recorder.Lenders(job)
	for _, want := range []string{id, "Waited", "Ran", "Slowdown", "Borrowed from", lenders} {
		if told := b.Tip(); !strings.Contains(told, want) {
			t.Errorf("of job %s the page tells %q, want %q in it", id, told, want)
		}
	}
	for name, count := range map[string]int{"figure.gantt": 2, "figure.chart": 7, "figure.table": 3} {
		var got int
		b.Script(&got, "return document.querySelectorAll(arguments_[0]).length", name)
		if got != count {
			t.Errorf("the page has %d of %s, want %d", got, name, count)
		}
	}
	if list := append(b.Complaints(), server.Others()...); len(list) > 0 {
		t.Errorf("the page complains or asks for more: %v", list)
	}
	if *shots == "" {
		return
	}
	b.Show(server)
	b.ScrollTo(0)
	g := b.Gantt(1)
	x, y := g.At(float64(16*3600), 0.6) // 16 h into the log, the second GPU of n1
	b.Pointer(false, [2]int{x, y})
	b.Screenshot(filepath.Join(*shots, "gantts.png"))
	b.Show(server)
	var height int
	b.Script(&height, "return document.documentElement.scrollHeight")
	for at, i := 0, 0; at < height; at, i = at+900, i+1 {
		b.Script(nil, "scrollTo(0, arguments_[0])", at)
		b.Settle()
		b.Screenshot(filepath.Join(*shots, "page-"+string(rune('a'+i))+".png"))
	}
}

// TestExplainedStepInABrowser points at a bid in the picture of a step.
func TestExplainedStepInABrowser(t *testing.T) {
	b := browser.Start(t)
	server := browser.Serve(t, bidderStudy(t).Page().WriteHTML)
	b.Show(server)
	var at [2]int
	b.Script(&at, `const bid = document.querySelector('rect[data-tip^="job b"]');
		bid.scrollIntoView({block: "center", behavior: "instant"});
		const box = bid.getBoundingClientRect();
		return [Math.round(box.x + box.width / 2), Math.round(box.y + box.height / 2)];`)
	b.Pointer(false, at)
	told := b.Tip()
	for _, want := range []string{"job b", "Nodes", "n1", "Result", "lost"} {
		if !strings.Contains(told, want) {
			t.Errorf("of a bid the page tells %q, want %q in it", told, want)
		}
	}
	if list := append(b.Complaints(), server.Others()...); len(list) > 0 {
		t.Errorf("the page complains or asks for more: %v", list)
	}
	if *shots != "" {
		b.Screenshot(filepath.Join(*shots, "step.png"))
	}
}
