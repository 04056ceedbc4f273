package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/sim"
)

func outage(node int32, from, until int, kind sim.OutageKind) sim.Outage {
	return sim.Outage{Node: node, From: seconds(from), Until: seconds(until), Kind: kind, Requeue: true}
}

// TestOutagesByHand: the effects on jobs whose node fails or drains.
func TestOutagesByHand(t *testing.T) {
	one := func(id string, submit, run int, r model.Request) model.Job {
		return model.Job{ID: id, Submit: seconds(submit), Run: seconds(run), Request: r}
	}
	type want struct{ start, end int }
	lost := outage(0, 5, 20, sim.Fail)
	lost.Requeue = false
	forever := outage(1, 1, 9, sim.Drain)
	forever.Until = policy.Never
	for _, tc := range []struct {
		name      string
		jobs      []model.Job
		outages   []sim.Outage
		want      []want
		requeues  int
		lost      int
		nodeHours float64 // seconds, in fact
		coreTime  float64
	}{
		{"requeued, it starts anew", []model.Job{one("x", 0, 10, nodes(2))}, []sim.Outage{outage(1, 4, 7, sim.Fail)},
			[]want{{7, 17}}, 1, 0, 3, 32},
		{"a job elsewhere goes on", []model.Job{one("x", 0, 10, nodes(1)), one("y", 0, 10, nodes(1))}, []sim.Outage{outage(1, 4, 50, sim.Fail)},
			[]want{{0, 10}, {10, 20}}, 1, 0, 16, 16},
		{"lost", []model.Job{one("x", 0, 10, nodes(1)), one("y", 6, 2, nodes(1))}, []sim.Outage{lost},
			[]want{{0, 5}, {6, 8}}, 0, 1, 3, 20},
		{"drained, it goes on, and nothing comes", []model.Job{one("x", 0, 10, on("a")), one("y", 2, 1, on("a"))}, []sim.Outage{outage(0, 1, 15, sim.Drain)},
			[]want{{0, 10}, {15, 16}}, 0, 0, 14, 0},
		{"it ends when the node fails", []model.Job{one("x", 0, 10, nodes(2))}, []sim.Outage{outage(0, 10, 20, sim.Fail)},
			[]want{{0, 10}}, 0, 0, 0, 0},
		{"two outages at once", []model.Job{one("x", 0, 4, on("a"))},
			[]sim.Outage{outage(0, 1, 5, sim.Drain), outage(0, 2, 4, sim.Fail), outage(0, 3, 8, sim.Fail)},
			[]want{{8, 12}}, 1, 0, 7, 8},
		{"a lender fails", []model.Job{one("x", 0, 4, model.Request{Nodes: 1, CoresPerNode: 1, NodeList: []string{"a"}, Remote: &model.RemoteGPUs{Count: 3}})},
			[]sim.Outage{outage(1, 2, 6, sim.Fail)}, []want{{6, 10}}, 1, 0, 4, 2},
		{"a node that never comes back", []model.Job{one("x", 0, 4, nodes(1)), one("y", 2, 4, nodes(1))}, []sim.Outage{forever},
			[]want{{0, 4}, {4, 8}}, 0, 0, 7, 0},
		{"of a smaller cluster", []model.Job{one("x", 0, 4, nodes(1))}, []sim.Outage{outage(7, 1, 2, sim.Fail)}, []want{{0, 4}}, 0, 0, 0, 0},
	} {
		for _, spec := range []string{"fcfs", "first-fit", "easy", "conservative", "slurm:bf_interval=0"} {
			r := run(t, spec, sim.Config{Cluster: twoNodes(), Jobs: tc.jobs, Outages: tc.outages})
			for i, w := range tc.want {
				if o := &r.Outcomes[i]; o.Start != seconds(w.start) || o.End != seconds(w.end) {
					t.Errorf("%s, %s: job %d ran from %v to %v, want %d to %d", tc.name, spec, i, o.Start, o.End, w.start, w.end)
				}
			}
			s := r.Summarize()
			if s.Requeues != tc.requeues || s.Lost != tc.lost || r.NodeSecondsLost != tc.nodeHours || r.CoreSecondsLost != tc.coreTime || s.NodeHoursLost != tc.nodeHours/3600 {
				t.Errorf("%s, %s: %d requeues, %d lost, nodes out for %v s, core time lost %v s", tc.name, spec, s.Requeues, s.Lost, r.NodeSecondsLost, r.CoreSecondsLost)
			}
		}
	}
}

func TestOutagesThatMakeNoSense(t *testing.T) {
	stuck := outage(0, 1, 2, sim.Fail)
	stuck.Until = policy.Never
	for _, tc := range []struct {
		outage sim.Outage
		want   string
	}{
		{outage(-1, 1, 2, sim.Fail), "there is no node -1"},
		{outage(0, 2, 2, sim.Fail), "it must end after it begins"},
		{outage(0, -2, 2, sim.Fail), "it must end after it begins"},
		{outage(0, 1, 2, 7), "there is no kind 7"},
		{stuck, "1 jobs wait for ever, since nodes do not come back; the first says: job x: "},
	} {
		p, err := catalog.New("fcfs")
		if err != nil {
			t.Fatal(err)
		}
		_, err = sim.Run(context.Background(), sim.Config{
			Cluster: twoNodes(), Policy: p, Outages: []sim.Outage{tc.outage},
			Jobs: []model.Job{{ID: "x", Run: seconds(5), Request: nodes(2)}},
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.outage, err, tc.want)
		}
	}
}

// outWatcher keeps its own books of a run with outages.
type outWatcher struct {
	c       *model.Cluster
	outages []sim.Outage
	held    map[int]model.Allocation
	starts  []int
	err     error
}

func (w *outWatcher) Started(now time.Duration, job int, a *model.Allocation) {
	nodes := make([]int32, 0, len(a.Parts))
	for _, p := range a.Parts {
		nodes = append(nodes, p.Node)
	}
	for _, g := range a.Grants {
		nodes = append(nodes, g.Node)
	}
	for _, x := range w.outages {
		if x.From <= now && now < x.Until && slices.Contains(nodes, x.Node) {
			w.err = fmt.Errorf("at %v job %d starts on node %d, which is out from %v to %v", now, job, x.Node, x.From, x.Until)
		}
	}
	if _, runs := w.held[job]; runs {
		w.err = fmt.Errorf("at %v job %d starts while it runs", now, job)
	}
	w.held[job] = model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
	w.starts[job]++
	for _, n := range nodes {
		w.fits(n)
	}
}

// fits adds up all that is held of a node.
func (w *outWatcher) fits(n int32) {
	node := &w.c.Nodes[n]
	cores, memory, users := int32(0), int64(0), make([]int64, len(node.GPUs))
	for _, a := range w.held {
		for _, p := range a.Parts {
			if p.Node == n {
				cores, memory = cores+p.Cores, memory+p.Memory
				for d, t := range node.GPUs {
					users[d] += int64(p.GPUs>>d&1) * max(1, w.c.GPUTypes[t].Memory)
				}
			}
		}
		for _, g := range a.Grants {
			if g.Node == n {
				share := g.Memory
				if share == 0 {
					share = max(1, w.c.GPUTypes[node.GPUs[g.Device]].Memory)
				}
				users[g.Device] += share
			}
		}
	}
	for d, t := range node.GPUs {
		if users[d] > max(1, w.c.GPUTypes[t].Memory) {
			w.err = fmt.Errorf("device %d of node %d is given out twice", d, n)
		}
	}
	if int(cores) > node.Cores || memory > node.Memory {
		w.err = fmt.Errorf("node %d gives %d cores and %d bytes", n, cores, memory)
	}
}

func (w *outWatcher) Ended(now time.Duration, job int) {
	if _, runs := w.held[job]; !runs {
		w.err = fmt.Errorf("at %v job %d ends, and does not run", now, job)
	}
	delete(w.held, job)
}

// TestOutagesUnderEveryPolicy draws clusters, jobs and outages. Nothing runs where
// it cannot, every job is over in the end, and the history of the run gives the same
// plans when it is played again.
func TestOutagesUnderEveryPolicy(t *testing.T) {
	cases := howMany(3, 6, 12)
	for _, e := range catalog.Entries {
		t.Run(e.Name, func(t *testing.T) {
			for seed := range cases {
				g := &generator{Rand: rand.New(rand.NewPCG(seed, 31)), traffic: seed%2 == 0}
				s := g.scenario(6, 40)
				if err := withOutages(e.Name, s, g); err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, s)
				}
			}
		})
	}
}

func withOutages(name string, s *scenario, g *generator) error {
	w := &outWatcher{c: s.Cluster, held: map[int]model.Allocation{}, starts: make([]int, len(s.Jobs))}
	for range g.between(1, 8) {
		from := g.span(0, 30)
		x := sim.Outage{Node: int32(g.IntN(len(s.Cluster.Nodes))), From: from, Until: from + g.span(1, 20), Requeue: g.chance(70)}
		if g.chance(40) {
			x.Kind = sim.Drain
		}
		w.outages = append(w.outages, x)
	}
	p, err := catalog.New(name)
	if err != nil {
		return err
	}
	var written bytes.Buffer
	r, err := sim.Run(context.Background(), sim.Config{
		Cluster: s.Cluster, Jobs: s.Jobs, Policy: p, Outages: w.outages, Observe: w, Record: &written, RecordAs: history.Header{Policy: name},
	})
	if err != nil {
		return err
	}
	if w.err != nil {
		return w.err
	}
	if r.Refused > 0 || len(w.held) > 0 {
		return fmt.Errorf("%d starts were refused, %d jobs run in the end", r.Refused, len(w.held))
	}
	again := 0
	for i, n := range w.starts {
		o := &r.Outcomes[i]
		if ran := o.Ran() || o.State == sim.Lost; ran != (n > 0) || o.State == sim.Pending || o.State == sim.Running {
			return fmt.Errorf("job %d is %v, and was started %d times", i, o.State, n)
		}
		again += max(0, n-1)
	}
	if again != r.Requeues {
		return fmt.Errorf("%d requeues, and jobs were started %d times more than they need be", r.Requeues, again)
	}
	played, err := history.Replay(&written, catalog.New)
	if err != nil {
		return err
	}
	if d := played.Difference; d != nil {
		return fmt.Errorf("line %d of the history: %s was decided, and is %s now", d.Line, d.Then, d.Now)
	}
	return nil
}

func TestReadOutages(t *testing.T) {
	c := handCluster(1, 1, 1)
	got, err := sim.ReadOutages(strings.NewReader("# maintenance\nnodes,from,until,kind,requeue\n\"a,b\",1h,1-00:00:00,drain,\nc,0,,fail,no\n"), c)
	want := []sim.Outage{
		{Node: 0, From: time.Hour, Until: 24 * time.Hour, Kind: sim.Drain, Requeue: true},
		{Node: 1, From: time.Hour, Until: 24 * time.Hour, Kind: sim.Drain, Requeue: true},
		{Node: 2, Until: policy.Never, Kind: sim.Fail},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                      "it is empty: the first line is nodes,from,until,kind,requeue",
		"node,from\n":                           "line 1: the first line must be nodes,from,until,kind,requeue or",
		"nodes,from,until,kind\na,1h,2h\n":      "line 2: it has 3 columns, and the first line 4",
		"nodes,from,until,kind\nz,1h,2h,fail\n": `line 2: there is no node "z" in the cluster`,
		"nodes,from,until,kind\na,soon,2h,fail\n":               "line 2: from: ",
		"nodes,from,until,kind\na,1h,late,fail\n":               "line 2: until: ",
		"nodes,from,until,kind\na,2h,1h,fail\n":                 "line 2: until 1h is not after from 2h",
		"nodes,from,until,kind\na,1h,2h,explode\n":              `line 2: kind is fail or drain, not "explode"`,
		"nodes,from,until,kind,requeue\na,1h,2h,fail,perhaps\n": `line 2: requeue is yes or no, not "perhaps"`,
		"nodes,from,until,kind\na[,1h,2h,fail\n":                "line 2: nodes: ",
		"nodes,from,until,kind\n\"a,1h\n":                       "line 2, column ",
	} {
		if _, err := sim.ReadOutages(strings.NewReader(text), c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzReadOutages(f *testing.F) {
	f.Add("nodes,from,until,kind,requeue\n\"a,b\",1h,1-00:00:00,drain,\nc,0,,fail,no\n")
	f.Add("nodes,from,until,kind\n\"[a-c]\",1h,2h,fail\n")
	c := handCluster(1, 1, 1)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := sim.ReadOutages(strings.NewReader(text), c)
		for _, x := range list {
			if err != nil || x.Node < 0 || x.Node > 2 || x.From < 0 || x.Until <= x.From {
				t.Errorf("%+v, %v", x, err)
			}
		}
	})
}
