package kernelpage_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/sim/kernelpage"
	"muster/sim/kernels"
	"muster/workload/phased"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./sim/kernelpage -update writes it; read the difference):\n%s", file, got)
	}
}

// plain is a cluster of nodes with GPUs, and a workload that gives half of them to each
// of two applications.
func plain(nodes, gpus int) (*model.Cluster, *phased.Workload) {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Speed: 1}}}
	for n := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%d", n+1), Cores: 2, GPUs: make([]int, gpus)})
	}
	return c, &phased.Workload{Apps: []phased.App{{Name: "H", Nodes: nodes / 2}, {Name: "L", Nodes: nodes - nodes/2}}}
}

// made is a run with known numbers: busy of 100 s of each GPU in kernels, and a number of calls.
func made(c *model.Cluster, w *phased.Workload, policy string, seed uint64, busy time.Duration, calls, remote int64, queue, transfer time.Duration, recorded bool) kernelpage.Run {
	r := kernelpage.Run{Policy: policy, Seed: seed, Cluster: c, Workload: w, Result: &kernels.Result{End: 100 * time.Second, Nodes: make([]kernels.NodeResult, len(c.Nodes))}}
	for n := range c.Nodes {
		for range c.Nodes[n].GPUs {
			r.Result.Devices = append(r.Result.Devices, kernels.DeviceResult{Node: int32(n), Busy: busy, Held: busy + time.Duration(remote)*time.Second/100})
		}
	}
	r.Result.Nodes[0].Sent, r.Result.Nodes[1].Received = remote*1000, remote*1000
	for i, a := range w.Apps {
		part := int64(3 - 2*i) // H has 3 of 4 calls
		r.Result.Apps = append(r.Result.Apps, kernels.AppResult{
			Name: a.Name, Processes: 2 * a.Nodes, Launched: calls*part/4 + 1, Done: calls * part / 4, Remote: remote * part / 4,
			Queue: queue * time.Duration(calls*part/4), Transfer: transfer * time.Duration(calls*part/4),
		})
	}
	if recorded {
		r.Recorder = kernelpage.NewRecorder(c, w, 100)
	}
	return r
}

// twoByTwo has two mappers and two seeds.
func twoByTwo() *kernelpage.Study {
	c, w := plain(4, 1)
	return &kernelpage.Study{
		Policies: []string{"st", "ag"}, Nodes: []int{4}, Seeds: []uint64{1, 2},
		Runs: []kernelpage.Run{
			made(c, w, "st", 1, 50*time.Second, 400, 0, 2*time.Second, 0, true),
			made(c, w, "ag", 1, 60*time.Second, 480, 240, time.Second, 100*time.Millisecond, true),
			made(c, w, "st", 2, 52*time.Second, 404, 0, 2*time.Second, 0, false),
			made(c, w, "ag", 2, 64*time.Second, 484, 242, time.Second, 120*time.Millisecond, false),
		},
	}
}

func text(t *testing.T, s *kernelpage.Study) string {
	t.Helper()
	var b bytes.Buffer
	for _, table := range s.Tables() {
		if err := table.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func page(t *testing.T, s *kernelpage.Study) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Page().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTables(t *testing.T) {
	s := twoByTwo()
	golden(t, "tables.txt", text(t, s))

	// One mapper is compared with none, one seed has no interval.
	s.Policies, s.Seeds, s.Runs = s.Policies[:1], s.Seeds[:1], s.Runs[:1]
	if got := text(t, s); strings.ContainsAny(got, "Δ±") {
		t.Error(got)
	}

	// Applications that have ended are compared by their ends; before that, no end is shown.
	for i := range s.Runs[0].Result.Apps {
		a := &s.Runs[0].Result.Apps[i]
		a.Ended, a.LastEnd = a.Processes, 80*time.Second
	}
	if got := text(t, s); !strings.Contains(got, "1 min 20 s") {
		t.Error(got)
	}
}

func TestNumbers(t *testing.T) {
	s := twoByTwo()
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	over := s.Over(0, 1, kernelpage.Utilisation)
	near("the use under ag", over.Mean, 0.62)
	near("its interval", over.Half, 12.706205*0.02)
	margin := s.Margin(0, 1, kernelpage.Utilisation)
	near("the margin", margin.Mean, 0.11)
	near("its interval", margin.Half, 12.706205*0.01) // seed by seed: 0.10 and 0.12
	near("the change of the wait", s.Against(0, 1, kernelpage.Wait).Mean, (1.1+1.12)/2/2-1)
	near("remote", kernelpage.Remote(&s.Runs[1]), 0.5)
	near("moved", kernelpage.Moved(&s.Runs[1]), 240e3)
	near("held for data", kernelpage.ForData(&s.Runs[1]), 0.024)
	ran := s.Runs[1]
	for i := range ran.Result.Apps { // 500 ms each
		ran.Result.Apps[i].Run = 500 * time.Millisecond * time.Duration(ran.Result.Apps[i].Done)
	}
	near("the time of a kernel", kernelpage.KernelTime(&ran), 0.5)
	near("the turnaround", kernelpage.Turnaround(&ran), 1.6)
	near("that of an application", kernelpage.OfApp(1).Turnaround(&ran), 1.6)
	if i := s.Against(0, 1, func(*kernelpage.Run) float64 { return 0 }); !math.IsNaN(i.Mean) {
		t.Errorf("a change from nothing is %v", i.Mean)
	}
}

// A mapper under which no call is done has no mean wait, and is not the best of all. That
// most calls are not done is said.
func TestNothingDone(t *testing.T) {
	c, w := plain(4, 1)
	s := &kernelpage.Study{Policies: []string{"st", "gr", "ag"}, Nodes: []int{4}, Seeds: []uint64{1}, Runs: []kernelpage.Run{
		made(c, w, "st", 1, 50*time.Second, 400, 0, 2*time.Second, 0, true),
		made(c, w, "gr", 1, 0, 0, 0, 0, 0, true),
		made(c, w, "ag", 1, 50*time.Second, 4, 0, 2*time.Second, 0, true),
	}}
	for name, of := range map[string]kernelpage.Measure{
		"wait": kernelpage.Wait, "queue": kernelpage.Queue, "transfer": kernelpage.Transfer, "turnaround": kernelpage.Turnaround, "remote": kernelpage.Remote,
		"wait of an application": kernelpage.OfApp(0).Wait, "turnaround of an application": kernelpage.OfApp(0).Turnaround, "remote of an application": kernelpage.OfApp(0).Remote,
	} {
		if got := of(&s.Runs[1]); !math.IsNaN(got) {
			t.Errorf("%s of no call is %v", name, got)
		}
	}
	if i := s.Against(0, 1, kernelpage.Wait); !math.IsNaN(i.Mean) {
		t.Errorf("against st the wait of no call changes by %v", i.Mean)
	}
	golden(t, "nothing.txt", text(t, s))
	if html := page(t, s); !strings.Contains(html, "Under gr the GPUs are in kernels 0.0 % of their time, and no call was done.") ||
		!strings.Contains(html, "are in no mean: 2 of 2 under gr, 2 of 6 under ag.") || strings.Count(html, "NaN") != strings.Count(page(t, twoByTwo()), "NaN") { // the page's own program knows the word
		t.Error("the page does not say that no call was done")
	}
	// Of several sizes it says which.
	s.Policies, s.Nodes, s.Runs = s.Policies[:1], []int{4, 8}, []kernelpage.Run{s.Runs[0], made(c, w, "st", 1, 0, 0, 0, 0, 0, false)}
	if got := text(t, s); !strings.Contains(got, "in no mean: 2 of 2 under st on 8 nodes.") {
		t.Error(got)
	}
}

// Where GPUs differ in speed the time of the kernel itself belongs to the comparison.
func TestSpeedsDiffer(t *testing.T) {
	c, w := plain(4, 1)
	s := &kernelpage.Study{Policies: []string{"st"}, Nodes: []int{4}, Seeds: []uint64{1}, Runs: []kernelpage.Run{made(c, w, "st", 1, 50*time.Second, 400, 0, 2*time.Second, 0, false)}}
	for i := range s.Runs[0].Result.Apps {
		a := &s.Runs[0].Result.Apps[i]
		a.Run = time.Duration(a.Done) * time.Duration(i+1) * time.Second
	}
	c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: "same", Speed: 1}, model.GPUType{Name: "fast", Speed: 2})
	c.Nodes[0].GPUs[0] = 1
	if got := text(t, s); strings.Contains(got, "urnaround") || strings.Contains(got, "speed") {
		t.Errorf("all GPUs have the same speed:\n%s", got)
	}
	c.Nodes[3].GPUs[0] = 2
	golden(t, "speeds.txt", text(t, s))
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1 KB", 1234: "1.23 KB", 12345: "12.3 KB", 999_499: "999 KB", 999_500: "1.00 MB", 864e9: "864 GB", 1e18: "1000 PB"} {
		if got := kernelpage.Size(bytes); got != want {
			t.Errorf("%v bytes are %q, want %q", bytes, got, want)
		}
	}
}

// Of many GPUs neighbours are drawn together, and none is left out.
func TestManyGPUs(t *testing.T) {
	c, w := plain(1000, 3)
	s := &kernelpage.Study{Policies: []string{"st"}, Nodes: []int{1000}, Seeds: []uint64{1}, Runs: []kernelpage.Run{made(c, w, "st", 1, 50*time.Second, 400, 0, 0, 0, true)}}
	html := page(t, s)
	if !strings.Contains(html, "Each column is the mean of 13 GPUs.") || !strings.Contains(html, "n1:0 to n5:0") || !strings.Contains(html, "n997:2 to n1000:2") {
		t.Error("3,000 GPUs are not drawn in columns of 13")
	}
	if n := strings.Count(html, " to n"); n > 240 {
		t.Errorf("%d columns", n)
	}
}

// Sizes may have been asked for in any order; the curves are in theirs.
func TestSizes(t *testing.T) {
	s := &kernelpage.Study{Policies: []string{"st", "ag"}, Nodes: []int{8, 4}, Seeds: []uint64{1, 2}}
	for _, seed := range s.Seeds {
		for _, n := range s.Nodes {
			c, w := plain(n, 1)
			for _, policy := range s.Policies {
				s.Runs = append(s.Runs, made(c, w, policy, seed, time.Duration(n)*10*time.Second, 400, 40, time.Second, 0, true))
			}
		}
	}
	if got := s.Over(1, 0, kernelpage.Utilisation).Mean; math.Abs(got-0.4) > 1e-9 {
		t.Errorf("on 4 nodes the use is %v, want 0.4", got)
	}
	html := page(t, s)
	if !strings.Contains(html, "More and fewer nodes") || !strings.Contains(html, `"x":[4,8]`) {
		t.Error("there is no curve from 4 to 8 nodes")
	}
	if !strings.Contains(html, "on 8 nodes") {
		t.Error("the pictures do not say of which size they are")
	}
}
