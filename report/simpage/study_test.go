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
	"muster/report/simpage"
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

// The page is the same bytes twice, and tells of clusters without GPUs, too.
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
