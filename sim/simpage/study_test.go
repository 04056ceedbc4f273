package simpage_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/model/clusterfile"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
	"muster/sim/simpage"
	"muster/workload"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test -update rewrites it. Got:\n%s", file, got)
	}
}

// twoNodes has two nodes of 4 cores and 2 devices.
func twoNodes() *model.Cluster {
	n := model.Node{Cores: 4, Memory: 8e9, GPUs: []int{0, 0}}
	a, b := n, n
	a.Name, b.Name = "n1", "n2"
	return &model.Cluster{Name: "two", GPUTypes: []model.GPUType{{Name: "g", Memory: 1e9, Speed: 1}}, Nodes: []model.Node{a, b}, Remote: model.Remote{Overhead: 1}}
}

// Four jobs that can be worked by hand. G queue: a and b hold a node each for an
// hour, c starts at 1 h, d is impossible. R queue: c starts at once with the devices that a
// and b leave, one of them borrowed. e is killed at its wall time.
func handJobs() []model.Job {
	one := model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1}
	return []model.Job{
		{ID: "a", User: "ann", Run: time.Hour, Request: one},
		{ID: "b", User: "us2", Run: time.Hour, Request: one},
		{ID: "c", User: "ann", Run: 30 * time.Minute, Request: model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 2}},
		{ID: "d", User: "us3", Run: time.Hour, Request: model.Request{Nodes: 3, CoresPerNode: 1}},
		{ID: "e", User: "dot", Submit: 2 * time.Hour, Run: time.Hour, WallTime: time.Minute, Request: model.Request{Nodes: 1, CoresPerNode: 4}},
	}
}

func TestHandWorkedStudy(t *testing.T) {
	s := study(t, twoNodes(), handJobs(), "g-queue", "r-queue")
	var text bytes.Buffer
	for _, table := range s.Tables() {
		if err := table.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		text.WriteByte('\n')
	}
	for _, g := range s.Impossible(5) {
		fmt.Fprintln(&text, strings.Join(g.Runs, ", "), g.Count, strings.Join(g.First, "; "))
	}
	golden(t, "hand.txt", text.Bytes())
	var jobs bytes.Buffer
	if err := s.WriteJobs(&jobs); err != nil {
		t.Fatal(err)
	}
	golden(t, "hand.csv", jobs.Bytes())
}

// The page has the same bytes twice, and works for clusters without GPUs.
func TestPageOfCoresOnly(t *testing.T) {
	c := twoNodes()
	for i := range c.Nodes {
		c.Nodes[i].GPUs = nil
	}
	jobs := []model.Job{
		{ID: "a", Run: time.Hour, Request: model.Request{Cores: 5}},
		{ID: "none", Run: 0, Request: model.Request{Cores: 1}},
	}
	write := func() string {
		var b bytes.Buffer
		if err := study(t, c, jobs, "fcfs").Page().WriteHTML(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	page := write()
	if page != write() {
		t.Error("two pages of the same study differ")
	}
	if !strings.Contains(page, "share of its cores") || strings.Contains(page, "GPUs in use") {
		t.Error("the page speaks of GPUs, or not of cores")
	}
}

// A study in which no job ran at all still has a page.
func TestPageOfNothing(t *testing.T) {
	jobs := []model.Job{{ID: "d", Run: time.Hour, Request: model.Request{Nodes: 3, CoresPerNode: 1}}}
	var b bytes.Buffer
	if err := study(t, twoNodes(), jobs, "fcfs", "easy").Page().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "Impossible jobs") {
		t.Error("the page does not name the impossible job")
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		request model.Request
		want    string
	}{
		{model.Request{Cores: 1}, "1 core anywhere"},
		{model.Request{Cores: 8, CoresPerProcess: 4, GPUs: 1, Memory: 2e9}, "8 cores anywhere, 4 together, 1 GPU on each node, 2GB on each node"},
		{model.Request{Cores: 7, MemoryPerCore: 1 << 30}, "7 cores anywhere, 1GiB a core"},
		{model.Request{Nodes: 1, CoresPerNode: 4, GPUs: 1, Memory: 8e9}, "1 node, 4 cores, 1 GPU, 8GB"},
		{model.Request{Nodes: 3, Cores: 7, GPUs: 2, GPUType: "a100", Contiguous: true}, "3 nodes, each with 3 cores, 2 a100 GPUs; next to each other"},
		{model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1, GPUMemory: 2e9, Exclusive: true, NodeList: []string{"n1", "n2"}}, "1 node, 1 core, 1 GPU of 2GB; alone on them; only on n[1-2]"},
		{model.Request{Nodes: 1, CoresPerNode: 1, Remote: &model.RemoteGPUs{Count: 4, Memory: 1e9, Shared: true}}, "1 node, 1 core; 4 GPUs of 1GB anywhere"},
	} {
		if got := simpage.Words(&c.request); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// bidder is a policy that starts every job with its last request, on node 1, and explains it.
type bidder struct{}

func (bidder) Traits() policy.Traits                 { return policy.Traits{Alternatives: true} }
func (bidder) Why(*policy.View, policy.JobID) string { return "it lost" }

func (bidder) Step(v *policy.View, p *policy.Plan) {
	for c := v.Queue(); ; {
		id, _, ok := c.Next()
		if !ok {
			return
		}
		last := v.Requests(id) - 1
		if a := v.Place(v.ShapeAs(id, last), policy.Sharing); a != nil {
			p.StartAs(id, last, a, policy.Reason{Code: policy.Won})
		}
	}
}

func (bidder) Explain(v *policy.View) *policy.Explanation {
	return &policy.Explanation{
		Lead: "Two bids, one winner.",
		Tables: []policy.ExplanationTable{{
			Title: "Bids", Columns: []string{"job", "value"}, Rows: [][]string{{"a<", "1,200"}, {"b", "7"}},
		}},
		Bars: []policy.ExplanationBar{
			{Row: 0, From: 0, To: 1, Won: true, Label: "job a<"},
			{Row: 1, From: 0, To: 0, Label: "job b"},
			{Row: policy.MaxExplanationRows, From: 0, To: 0, Label: "too many"},
		},
	}
}

// bidderStudy has one job, which is granted its second alternative, and an
// explained step with a table and a picture.
func bidderStudy(t *testing.T) *simpage.Study {
	t.Helper()
	jobs := []model.Job{{
		ID: "a", Run: time.Hour, Request: model.Request{Nodes: 3},
		Alternatives: []model.Request{{Nodes: 4}, {Cores: 6, CoresPerProcess: 3, Run: 2 * time.Hour, WallTime: time.Minute}},
	}}
	recorder := simpage.NewRecorder(twoNodes(), simpage.MaxBlocks)
	result, err := sim.Run(t.Context(), sim.Config{
		Cluster: twoNodes(), Jobs: jobs, Policy: bidder{}, Observe: recorder, Watch: []int{0}, Explain: []sim.Moment{{Step: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	run := sim.RunOf{Point: sim.Point{Policy: "bidder", Seed: 1, Nodes: 2}, Result: result}
	return simpage.NewStudy(twoNodes(), []sim.RunOf{run}, []*simpage.Recorder{recorder})
}

// A job with a granted alternative is shown with it, and a step with its tables and its picture.
func TestAlternativesAndExplainedSteps(t *testing.T) {
	s := bidderStudy(t)
	var csv, text, page bytes.Buffer
	for _, err := range []error{s.WriteJobs(&csv), s.WriteExplained(&text), s.Page().WriteHTML(&page)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := ",killed,false,2,n[1-2],,2,1,2,\n"; !strings.HasSuffix(csv.String(), want) {
		t.Errorf("the list of jobs ends in %q, want %q", csv.String(), want)
	}
	const explained = `
Step 1 explained: bidder, at 00:00:00
Two bids, one winner.

Bids
job  value
---  -----
a<   1,200
b        7

Started
job  asks for                          nodes   why
---  --------------------------------  ------  -----------------------
a    6 cores on any nodes, 3 together  n[1-2]  its bid won the auction
`
	if text.String() != explained {
		t.Errorf("the step is told as %s", &text)
	}
	why := s.Why()[0]
	for _, want := range []string{
		"  00:00:00  submitted: 3 nodes, each with 1 core\n            or alternative 1: 4 nodes, each with 1 core\n",
		"or alternative 2: 6 cores anywhere, 3 together\n",
		"started: its bid won the auction, with alternative 2: 6 cores on any nodes, 3 together\n",
		"killed at its wall time of 00:01:00: it runs for 2 h 00 min in the log\n",
	} {
		if !strings.Contains(why, want) {
			t.Errorf("%q is not in %s", want, why)
		}
	}
	for _, want := range []string{
		">Step 1 explained: bidder, at 00:00:00</h2>", "<p>Two bids, one winner.</p>", "<td data-right>1,200</td>",
		`data-tip="job a&lt;&#10;Nodes&#9;n[1-2]&#10;Result&#9;won"`, `data-tip="job b&#10;Nodes&#9;n1&#10;Result&#9;lost"`,
		"The first 300 of 301 rows.",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

// Every policy's explanation of a step can be written, whatever it contains.
func TestEveryPolicyExplains(t *testing.T) {
	cluster, err := clusterfile.Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	wl, err := workload.Generate("congested", map[string]string{"jobs": "40", "max_nodes": "4"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range catalog.Entries {
		p, err := catalog.New(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		recorder := simpage.NewRecorder(cluster, simpage.MaxBlocks)
		result, err := sim.Run(t.Context(), sim.Config{
			Cluster: cluster, Jobs: wl.Jobs, Policy: p, Observe: recorder, Explain: []sim.Moment{{Step: 1}, {Step: 12}},
		})
		if err != nil {
			t.Fatal(err)
		}
		run := sim.RunOf{Point: sim.Point{Policy: e.Name, Seed: 1, Nodes: len(cluster.Nodes)}, Result: result}
		s := simpage.NewStudy(cluster, []sim.RunOf{run}, []*simpage.Recorder{recorder})
		var text, page bytes.Buffer
		if err := s.WriteExplained(&text); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		if err := s.Page().WriteHTML(&page); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		for _, want := range []string{"Step 1 explained: " + e.Name, "Step 12 explained: " + e.Name} {
			if !strings.Contains(text.String(), want) || !strings.Contains(page.String(), want) {
				t.Errorf("%q is missing", want)
			}
		}
		grey, wanted := map[string]string{"auction": ">lost<", "slurm": ">reserved<", "rgpu": ">reserved<", "mosaic": ">planned<"}[e.Name]
		if drawn := strings.Contains(page.String(), "Who wanted which nodes"); drawn != wanted {
			t.Errorf("%s has a picture: %v", e.Name, drawn)
		}
		if wanted && !strings.Contains(page.String(), grey) {
			t.Errorf("the picture of %s does not name %s", e.Name, grey)
		}
	}
}

// The placement of jobs is shown as soon as one ran on nodes that are not contiguous.
func TestFragmentation(t *testing.T) {
	c := twoNodes()
	third := c.Nodes[1]
	third.Name = "n3"
	c.Nodes = append(c.Nodes, third)
	jobs := []model.Job{
		{ID: "middle", Run: time.Hour, Request: model.Request{Nodes: 1, CoresPerNode: 4, NodeList: []string{"n2"}}},
		{ID: "around", Run: time.Hour, Request: model.Request{Nodes: 2, CoresPerNode: 4}},
	}
	table := func(jobs []model.Job) string {
		var b bytes.Buffer
		if err := study(t, c, jobs, "fcfs").Tables()[0].WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := table(jobs[1:]); strings.Contains(got, "Blocks") {
		t.Errorf("nothing is fragmented, but the table is\n%s", got)
	}
	// One job has one block of one node, the other two, and three nodes for two.
	got := table(jobs)
	if !strings.Contains(got, "Slowdown  Blocks  Spread\n") || !strings.Contains(got, "       1     1.5    1.25\n") {
		t.Errorf("the table is\n%s", got)
	}
}
