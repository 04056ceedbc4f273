package question

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/misuse"
	"muster/model"
	"muster/policy/priority"
	"muster/policy/script"
	"muster/sim"
	"muster/workload"
)

// asked is a question that can be answered.
func asked() Jobs {
	return Jobs{
		Cluster: "small", Workload: "small", Bundled: true, Policies: "fcfs,easy:depth=5", Seeds: "1..2", Traffic: TrafficEstimate, Workers: 1,
		Scripts: Scripts{File: os.ReadFile},
	}
}

func TestJobs(t *testing.T) {
	q := asked()
	s, err := q.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if s.Cluster == nil || len(s.Policies) != 2 || s.Policies[1].Name != "easy:depth=5" || !slices.Equal(s.Seeds, []uint64{1, 2}) || s.Nodes != nil {
		t.Errorf("%+v", s)
	}
	first, read, err := q.Read(s, strings.NewReader(""), workload.ReadOptions{})
	if err != nil || len(first.Jobs) == 0 {
		t.Fatalf("%v, %v", read, err)
	}
	jobs, err := s.Workload(2)
	if err != nil || len(jobs) != len(first.Jobs) {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	q.Why = first.Jobs[0].ID
	if _, _, err := q.Read(s, strings.NewReader(""), workload.ReadOptions{}); err != nil || !slices.Equal(s.Watch, []int{0}) {
		t.Errorf("%v, %v", s.Watch, err)
	}
}

// What makes no sense is refused with what to write instead.
func TestJobsRefused(t *testing.T) {
	for want, change := range map[string]func(*Jobs){
		"say which cluster":               func(q *Jobs) { q.Cluster = "" },
		"say which policies":              func(q *Jobs) { q.Policies = "" },
		"--policy:":                       func(q *Jobs) { q.Policies = "fast" },
		"fcfs is named twice":             func(q *Jobs) { q.Policies = "fcfs, fcfs" },
		"--nodes:":                        func(q *Jobs) { q.Nodes = "many" },
		"at least one node":               func(q *Jobs) { q.Nodes = "0..3" },
		"--seeds:":                        func(q *Jobs) { q.Seeds = "x" },
		"ask for at most 100000":          func(q *Jobs) { q.Seeds = "1..60000" },
		"--workers must be 1":             func(q *Jobs) { q.Workers = 0 },
		"--traffic much: use estimate":    func(q *Jobs) { q.Traffic = "much" },
		"steps are numbered from 1":       func(q *Jobs) { q.Explain = "0" },
		"12 is named twice":               func(q *Jobs) { q.Explain = "12, 12" },
		"say which jobs":                  func(q *Jobs) { q.Workload = "" },
		"--why: there is no job \"none\"": func(q *Jobs) { q.Why = "none" },
	} {
		q := asked()
		change(&q)
		s, err := q.Sweep()
		if err == nil {
			_, _, err = q.Read(s, strings.NewReader(""), workload.ReadOptions{})
		}
		if !misuse.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A file that cannot be read is no mistake in what was typed.
func TestFilesThatFail(t *testing.T) {
	broken := errors.New("the disk is broken")
	q := asked()
	q.Priority, q.ReadPriority = "p.yaml", func(string) (*priority.Config, error) { return nil, broken }
	if _, err := q.Sweep(); !errors.Is(err, broken) || misuse.Is(err) {
		t.Error(err)
	}
	q = asked()
	q.Outages = filepath.Join(t.TempDir(), "none")
	if _, err := q.Sweep(); !errors.Is(err, os.ErrNotExist) || misuse.Is(err) {
		t.Error(err)
	}
}

func TestAsked(t *testing.T) {
	q := asked()
	q.Nodes, q.Outages, q.Priority, q.NoKill, q.LateBinding = "2,4", "o.csv", "p.yaml", true, "1s"
	s := &sim.Sweep{Cluster: &model.Cluster{Name: "c"}, Seeds: []uint64{1, 2}, Outages: make([]sim.Outage, 1)}
	rows := map[string]string{}
	for _, row := range q.Asked(&workload.Workload{Jobs: make([]model.Job, 3)}, s) {
		rows[row[0]] = row[1]
	}
	for name, want := range map[string]string{
		"Workload": "small: 3 jobs", "Policies": "fcfs, easy:depth=5", "Nodes": "2,4", "Seeds": "1..2", "Outages": "o.csv: 1 outage",
		"Priorities": "p.yaml", "Wall times": "do not kill", "Late binding of shares": "a move takes 1s", "Network traffic": "estimated as in the TSUBAME paper where the log does not say",
	} {
		if rows[name] != want {
			t.Errorf("%s: %q, want %q", name, rows[name], want)
		}
	}
}

// A script is read once for all runs, and what fails in it is told.
func TestScripts(t *testing.T) {
	read := 0
	file := func(source string) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { read++; return []byte(source), nil }
	}
	bundled := script.AllBundled()
	if len(bundled) == 0 {
		t.Fatal("no script comes with Muster")
	}
	s := Scripts{File: file(string(bundled[0].Source))}
	for range 3 {
		if _, err := s.make("./mine.star"); err != nil {
			t.Fatal(err)
		}
	}
	var told strings.Builder
	if err := s.Tell(&told); err != nil || told.Len() > 0 || read != 1 || len(s.made) != 3 {
		t.Errorf("read %d times, %d made: %q, %v", read, len(s.made), told.String(), err)
	}
	if _, err := CheckScript(t.Context(), "./mine.star", s.File); err != nil {
		t.Errorf("%s: %v", bundled[0].Name, err)
	}
	if _, err := CheckScript(t.Context(), "easy", s.File); !misuse.Is(err) {
		t.Error(err)
	}
	if _, err := CheckScript(t.Context(), "./idle.star", file("def decide(view, plan):\n    pass\n")); err == nil || !strings.Contains(err.Error(), "plan.start") {
		t.Errorf("a script that starts nothing: %v", err)
	}
}

func kernelsAsked() Kernels {
	return Kernels{Cluster: "gremm", Workload: "W4", Policies: "st,ag", Seeds: "1", Span: "10s", Delay: "0s", Hold: HoldKernel, Send: SendTurn, Window: 10, Workers: 1}
}

func TestKernels(t *testing.T) {
	q := kernelsAsked()
	q.Nodes, q.Hold, q.Send, q.Explain = "4,8", HoldResults, SendAhead, "7,12.5s"
	s, err := q.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Sizes) != 2 || len(s.Sizes[1].Cluster.Nodes) != 8 || !s.Common.HoldResults || !s.Common.SendAhead || len(s.Common.Explain) != 2 || s.Common.Explain[0].Call != 7 {
		t.Errorf("%+v", s)
	}
	for want, change := range map[string]func(*Kernels){
		"--policy:":                   func(q *Kernels) { q.Policies = "best" },
		"st is named twice":           func(q *Kernels) { q.Policies = "st,st" },
		"--span:":                     func(q *Kernels) { q.Span = "long" },
		"has no end":                  func(q *Kernels) { q.Span = "0" },
		"--false-positive is a share": func(q *Kernels) { q.FalsePositive = 5 },
		"--window is 1 to":            func(q *Kernels) { q.Window = 0 },
		"--hold x: use kernel":        func(q *Kernels) { q.Hold = "x" },
		"--send x: use turn":          func(q *Kernels) { q.Send = "x" },
		"--workers must be":           func(q *Kernels) { q.Workers = 0 },
		"100 has no unit":             func(q *Kernels) { q.Bandwidth = "100" },
		"--latency:":                  func(q *Kernels) { q.Latency = "short" },
		"--workload:":                 func(q *Kernels) { q.Workload = "W99" },
		"calls are numbered from 1":   func(q *Kernels) { q.Explain = "-1" },
	} {
		q := kernelsAsked()
		change(&q)
		if _, err := q.Sweep(); !misuse.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	q = kernelsAsked()
	q.Workload = "./none.yaml"
	if _, err := q.Sweep(); err == nil || misuse.Is(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The network that was asked for replaces the cluster's, which stays as it was.
func TestWithNetwork(t *testing.T) {
	c := &model.Cluster{Nodes: make([]model.Node, 2)}
	c.Nodes[0].Link = model.Link{Bandwidth: 5, Latency: 7}
	got, err := withNetwork(c, "0", "1ms")
	if err != nil || got.Nodes[0].Link != (model.Link{}) || got.Remote.Latency.Milliseconds() != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if c.Nodes[0].Link.Bandwidth != 5 || c.Nodes[0].Link.Latency != 7 {
		t.Errorf("the cluster was changed: %+v", c.Nodes[0].Link)
	}
	if got, err := withNetwork(c, "100MB/s", ""); err != nil || got.Nodes[1].Link.Bandwidth != 100_000_000 || got.Nodes[0].Link.Latency != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whatever is asked for is a step, a time, or an error that says how to ask.
func FuzzMoments(f *testing.F) {
	for _, list := range []string{"", "1", "12,1h30m", "1-00:00:00", "0", "-1", "x", "1,,2", "99999999999999999999", "1e3"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		moments, err := parseMoments(list, "step", "1h30m")
		if err != nil {
			if !strings.Contains(err.Error(), "--explain") {
				t.Errorf("%q: %v", list, err)
			}
			return
		}
		for _, m := range moments {
			if m.Step < 0 || m.At < 0 || m.Step > 0 && m.At > 0 {
				t.Errorf("%q is %+v", list, moments)
			}
		}
	})
}
