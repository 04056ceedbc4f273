package tenjobs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/model/clusterfile"
	"muster/policy/catalog"
	"muster/sim"
	"muster/workload"
)

const page = "../../docs/example.md"

func TestPageIsTrue(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	cluster, err := clusterfile.Read(strings.NewReader(fence(t, text, "yaml")), page)
	if err != nil {
		t.Fatal(err)
	}
	wl, _, err := workload.Read(strings.NewReader(fence(t, text, "csv")), page, workload.ReadOptions{Format: workload.CSV})
	if err != nil {
		t.Fatal(err)
	}
	if len(wl.Jobs) != 10 {
		t.Fatalf("the page has %d jobs", len(wl.Jobs))
	}
	want := table(t, text)
	if len(want) != 5 {
		t.Fatalf("the table has %d policies, want 5", len(want))
	}
	for policy, cells := range want {
		t.Run(policy, func(t *testing.T) {
			run := simulate(t, cluster, wl.Jobs, policy)
			for i := range wl.Jobs {
				id := wl.Jobs[i].ID
				if got := run.cell(i); got != cells[id] {
					t.Errorf("job %s: the page says %q, the simulator %q", id, cells[id], got)
				}
			}
			s := run.result.Summarize()
			for name, got := range map[string]string{
				"mean wait":    fmt.Sprintf("%.1f", s.Wait.Mean),
				"last end":     fmt.Sprint(s.Makespan),
				"cores in use": fmt.Sprintf("%.0f %%", 100*s.CoreUtilization),
			} {
				if got != cells[name] {
					t.Errorf("%s: the page says %s, the simulator %s", name, cells[name], got)
				}
			}
			_, section, _ := strings.Cut(text, "\n## "+policy+"\n")
			if got, chart := run.chart(), fence(t, section, "text"); got != chart {
				t.Errorf("the page has the chart\n%s\nthe simulator gives\n%s", chart, got)
			}
		})
	}
}

// fence is the first fenced block of a kind.
func fence(t *testing.T, text, kind string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n```"+kind+"\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatalf("the page has no %s block where one is expected", kind)
	}
	return block
}

// table reads the results: for each policy, by the first cell of the row.
func table(t *testing.T, text string) map[string]map[string]string {
	t.Helper()
	_, rest, _ := strings.Cut(text, "\n## The results\n")
	var header []string
	want := make(map[string]map[string]string)
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if header != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case header == nil:
			header = cells
			for _, policy := range header[1:] {
				want[policy] = make(map[string]string)
			}
		case len(cells) != len(header):
			t.Fatalf("%s: the row has %d cells, the header %d", line, len(cells), len(header))
		default:
			for i, policy := range header[1:] {
				want[policy][cells[0]] = cells[i+1]
			}
		}
	}
	return want
}

// history is a run with what each job held, as an observer of the simulator.
type history struct {
	cluster *model.Cluster
	result  *sim.Result
	places  []string // by job: the nodes, and after + those that lend
	rows    []*row   // by node, cores before devices
	of      map[int][]*row
}

// row is one core or device over time, a letter a second.
type row struct {
	node, busy int // busy by this job + 1, 0 for none
	device     bool
	letter     byte
	line       []byte
}

func simulate(t *testing.T, c *model.Cluster, jobs []model.Job, spec string) *history {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{cluster: c, places: make([]string, len(jobs)), of: make(map[int][]*row)}
	for n := range c.Nodes {
		for i := range c.Nodes[n].Cores + len(c.Nodes[n].GPUs) {
			h.rows = append(h.rows, &row{node: n, device: i >= c.Nodes[n].Cores})
		}
	}
	h.result, err = sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p, Observe: observer{h, jobs}})
	if err != nil {
		t.Fatal(err)
	}
	end := time.Duration(0)
	for _, o := range h.result.Outcomes {
		end = max(end, o.End)
	}
	for _, r := range h.rows {
		r.fill(end, '.')
	}
	return h
}

type observer struct {
	*history
	jobs []model.Job
}

func (o observer) Started(now time.Duration, job int, a *model.Allocation) {
	var nodes, lenders []string
	letter := o.jobs[job].ID[0]
	for _, part := range a.Parts {
		nodes = append(nodes, o.cluster.Nodes[part.Node].Name)
		cores, device := int(part.Cores), 0
		for _, r := range o.rows {
			switch {
			case r.node != int(part.Node):
			case r.device:
				if part.GPUs&(1<<device) != 0 {
					o.take(r, job, letter, now)
				}
				device++
			case r.busy == 0 && cores > 0:
				o.take(r, job, letter, now)
				cores--
			}
		}
	}
	for _, g := range a.Grants {
		lenders = append(lenders, o.cluster.Nodes[g.Node].Name)
		device := 0
		for _, r := range o.rows {
			if r.node == int(g.Node) && r.device {
				if device == int(g.Device) {
					o.take(r, job, letter|0x20, now)
				}
				device++
			}
		}
	}
	o.places[job] = strings.Join(nodes, " ")
	if len(lenders) > 0 {
		o.places[job] += " +" + strings.Join(lenders, " ")
	}
}

func (o observer) take(r *row, job int, letter byte, now time.Duration) {
	r.fill(now, '.')
	r.busy, r.letter = job+1, letter
	o.of[job] = append(o.of[job], r)
}

func (o observer) Ended(now time.Duration, job int) {
	for _, r := range o.of[job] {
		r.fill(now, r.letter)
		r.busy = 0
	}
}

func (r *row) fill(until time.Duration, letter byte) {
	for len(r.line) < int(until/time.Second) {
		r.line = append(r.line, letter)
	}
}

// cell is a job's start, end and place as the page's table writes them.
func (h *history) cell(job int) string {
	o := h.result.Outcomes[job]
	return fmt.Sprintf("%g–%g %s", o.Start.Seconds(), o.End.Seconds(), h.places[job])
}

// chart draws the cores of each node, and its GPUs beside them.
func (h *history) chart() string {
	const axis = "0....5....10...15...20...25"
	var b strings.Builder
	fmt.Fprintf(&b, "     cores                            GPUs\n     %-33s%s\n", axis, axis)
	for n := range h.cluster.Nodes {
		var cores, devices []*row
		for _, r := range h.rows {
			switch {
			case r.node != n:
			case r.device:
				devices = append(devices, r)
			default:
				cores = append(cores, r)
			}
		}
		for i, r := range cores {
			name, device := "", ""
			if i == 0 {
				name = h.cluster.Nodes[n].Name
			}
			if i < len(devices) {
				device = string(devices[i].line)
			}
			fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-5s%-33s%s", name, r.line, device), " "))
		}
	}
	return b.String()
}
