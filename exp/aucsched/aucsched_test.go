package aucsched

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/exptest"
	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/mosaic"
	"muster/report"
	"muster/sim"
)

// standIn is the experiment with a machine of eight nodes, few jobs, and a policy
// of no account: for tests of what is done with the runs.
func standIn(t *testing.T, o exp.Options) (*plan, []part) {
	t.Helper()
	p, wanted, err := newPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	small := &model.Cluster{GPUTypes: []model.GPUType{{Name: "gpu", Speed: 1}}}
	for i := range 8 {
		small.Nodes = append(small.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 8, GPUs: []int{0, 0}})
	}
	for _, m := range machines {
		p.clusters[m.name] = small
	}
	p.policies = func(string) (policy.Policy, error) { return catalog.New("easy") }
	p.generate = func(settings map[string]string, seed uint64) ([]model.Job, error) {
		rng := rand.New(rand.NewPCG(seed, uint64(len(settings["workload"]))))
		var jobs []model.Job
		for i := range 30 {
			jobs = append(jobs, model.Job{
				ID: fmt.Sprint(i), Run: time.Duration(60+rng.IntN(540)) * time.Second,
				Request: model.Request{Nodes: 1 + rng.IntN(4), CoresPerNode: 1 + rng.IntN(8), Contiguous: settings["contiguous"] == "100"},
			})
		}
		return jobs, nil
	}
	p.bound = func(c *model.Cluster, jobs []model.Job) (time.Duration, error) { return theoretical(c, jobs), nil }
	return p, wanted
}

// A hand-made run: two jobs on four nodes of two cores.
func TestMeasure(t *testing.T) {
	c := &model.Cluster{}
	for i := range 4 {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint(i), Cores: 2})
	}
	hour := time.Hour
	n, err := measure(&sim.Result{
		Cluster: c,
		Jobs: []model.Job{
			{ID: "a", Run: 2 * hour, Request: model.Request{Nodes: 2, CoresPerNode: 2}}, // 8 core hours
			{ID: "b", Run: hour, Request: model.Request{Cores: 8}},                      // 8 core hours
		},
		Outcomes: []sim.Outcome{
			{Start: 0, End: 2 * hour, State: sim.Finished, Nodes: 2, Blocks: 2, Span: 4},
			{Start: 2 * hour, End: 3 * hour, State: sim.Finished, Nodes: 4, Blocks: 1, Span: 4},
		},
	})
	want := numbers{
		theoretical: 2, runtime: 3, utilization: 200.0 / 3, wait: 1, waitSTD: 1,
		fragmentation: 1.5, fragmentationSTD: 0.5, slowdown: 2, spread: 1.5, spreadSTD: 0.5,
		favour: 0.5, // b is the middle of two, and counts as small and as large: 1 h over 2 h
	}
	if err != nil || math.Abs(n.utilization-want.utilization) > 1e-9 {
		t.Fatalf("%+v, %v", n, err)
	}
	n.utilization = want.utilization
	if n != want {
		t.Errorf("got  %+v\nwant %+v", n, want)
	}
	if _, err := measure(&sim.Result{Cluster: c, Jobs: make([]model.Job, 1), Outcomes: []sim.Outcome{{State: sim.Impossible}}}); err == nil {
		t.Error("a run with an impossible job has numbers")
	}
}

// All parts together give a result that can be shown, the same with any number of workers.
func TestEveryPart(t *testing.T) {
	r := exptest.SameWithWorkers(t, func(workers int) (*exp.Result, error) {
		p, wanted := standIn(t, exp.Options{Seed: 1, Runs: 2, Workers: workers})
		return p.make(t.Context(), wanted)
	}, 1, 2)
	gantts := 0
	for _, section := range r.Page.Sections {
		if _, ok := section.(*report.Gantt); ok {
			gantts++
		}
	}
	if gantts != 3 {
		t.Errorf("%d pictures of nodes over time, want those of slurm, auction and mosaic", gantts)
	}
	if r.Partial != "" {
		t.Errorf("all was run, yet %s is missing", r.Partial)
	}
	count := map[string]int{}
	for _, row := range r.Rows {
		if row.Paper != nil {
			count[row.Part]++
		}
	}
	for table, want := range map[string]int{"5": 15, "6": 15, "7": 15, "8": 14} {
		// Six columns and three deviations of each method, and the theoretical run time.
		if got := count[tableTitles[table]]; got != want*(2*9+1) {
			t.Errorf("table %s: %d numbers of the paper, want %d", table, got, want*(2*9+1))
		}
	}
}

// The flags choose.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		flags   map[string]string
		figures []string
		parts   []string // of the rows; nil for an error
	}{
		{map[string]string{"table": "5"}, nil, []string{claimsTitle, tableTitles["5"]}},
		{map[string]string{"table": "7,8", "machine": "L"}, nil, []string{claimsTitle, tableTitles["7"], tableTitles["8"]}},
		{map[string]string{"table": "5", "machine": "M"}, nil, nil},
		{map[string]string{"machine": "S"}, []string{"bound"}, []string{boundTitle}},
		{map[string]string{"table": "6"}, []string{"tables"}, []string{tableTitles["6"]}},
	} {
		p, wanted := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 2, Flags: c.flags, Figures: c.figures})
		r, err := p.make(t.Context(), wanted)
		if (err == nil) != (c.parts != nil) {
			t.Errorf("%v %v: %v", c.flags, c.figures, err)
		} else if err == nil && !slices.Equal(exp.Parts(r.Rows), c.parts) {
			t.Errorf("%v %v: %v, want %v", c.flags, c.figures, exp.Parts(r.Rows), c.parts)
		}
	}
}

// subsets of a list: all that have something in them, with commas between.
func subsets(list []string) []string {
	var out []string
	for set := 1; set < 1<<len(list); set++ {
		var chosen []string
		for i, one := range list {
			if set>>i&1 == 1 {
				chosen = append(chosen, one)
			}
		}
		out = append(out, strings.Join(chosen, ","))
	}
	return out
}

// Any choice of machines, tables and parts gives a result that can be shown, or
// an error that says why there is nothing to do. What parts show does not depend on
// other parts, so that all of them beside each one alone are all choices.
func TestEveryChoiceCanBeShown(t *testing.T) {
	tables := append(subsets([]string{"5", "6", "7", "8"}), "")
	figures := [][]string{nil, exp.Names(parts, partName)}
	for _, name := range exp.Names(parts, partName) {
		figures = append(figures, []string{name})
	}
	for _, machine := range append(subsets(machineNames()), "") {
		for _, figure := range figures {
			some := tables
			if len(figure) == 1 && figure[0] != tablesPart.Name {
				some = tables[:1] // it shows none of them, or all that there are
			}
			for _, table := range some {
				flags := map[string]string{"machine": machine, "table": table}
				maps.DeleteFunc(flags, func(_, value string) bool { return value == "" })
				p, wanted, err := newPlan(exp.Options{Seed: 1, Runs: 1, Flags: flags, Figures: figure})
				if err != nil {
					t.Fatal(err)
				}
				if p.wantAll(wanted) != nil {
					tablesOnly := !slices.ContainsFunc(wanted, func(one part) bool { return one.Name != tablesPart.Name && one.Name != claimsPart.Name })
					if !tablesOnly || machine == "" || table == "" {
						t.Errorf("%v %v: nothing to do", flags, figure)
					}
					continue
				}
				for _, s := range p.Wanted {
					p.Found[s] = []numbers{{theoretical: 1, utilization: 50, runtime: 2}}
				}
				if err := simulation.Report(p, wanted, nil, "").Check(); err != nil {
					t.Errorf("%v %v: %v", flags, figure, err)
				}
			}
		}
	}
}

// What is done when the pictures are interrupted is not lost.
func TestInterruptedPictures(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, wanted := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 1, Figures: []string{"beyond"}, Flags: map[string]string{"machine": "S"}})
	made := 0
	p.policies = func(string) (policy.Policy, error) {
		if made++; made > len(hard)*3 { // those of the pictures
			cancel()
		}
		return catalog.New("easy")
	}
	r, err := p.make(ctx, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(r.Partial, "pictures") || len(r.Rows) != len(hard)*(3*len(columns)+1) {
		t.Errorf("%d rows; missing: %q", len(r.Rows), r.Partial)
	}
	exptest.Page(t, r)
}

// The line of the trade-off goes through all places of the knob; the others are points.
func TestTradeoffChart(t *testing.T) {
	i := slices.IndexFunc(mosaic.Entry.Options, func(o model.Option) bool { return o.Name == "balance" })
	if got := mosaic.Entry.Options[i].Default; got != defaultKnob {
		t.Errorf("mosaic has its knob at %s", got)
	}
	list := []tried{{bySlurm, numbers{utilization: 70, wait: 3}}, {byAuction, numbers{utilization: 80, wait: 2}}}
	for i, c := range knobContenders() {
		list = append(list, tried{c, numbers{utilization: 90 - 5*float64(i%2), wait: float64(i)}})
	}
	c := tradeoffChart("V.1", "wait", "wait, h", list, func(n *numbers) float64 { return n.wait })
	if err := (&report.Page{Title: "x", Sections: []report.Section{c}}).WriteHTML(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if len(c.Series) != 4 {
		t.Fatalf("%d series", len(c.Series))
	}
	for i, s := range c.Series {
		if line := i == 3; s.NoLine == line || line != (len(s.X) == len(knobs)) {
			t.Errorf("%s: %d points, no line: %v", s.Name, len(s.X), s.NoLine)
		}
	}
	if want := "the knob is at 10, 30, 50, 80, 0, 20, 40, 60, 100; 50 is the default"; !strings.Contains(c.Note, want) {
		t.Errorf("note: %s", c.Note)
	}
}

// Work that no time.Duration can count in core hours has a theoretical time all the same.
func TestTheoreticalOfMuchWork(t *testing.T) {
	c := &model.Cluster{Nodes: []model.Node{{Name: "n", Cores: 100_000}}}
	jobs := make([]model.Job, 1000)
	for i := range jobs {
		jobs[i] = model.Job{Run: 3*time.Hour + 7, Request: model.Request{Cores: 33_333}}
	}
	// 1000 x 33,333 x (3 h + 7 ns) / 100,000, rounded down.
	if got, want := theoretical(c, jobs), 999*time.Hour+3564*time.Second+2333; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// An interrupted experiment shows the rows that are complete, and names those that are not.
func TestPartial(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := exp.Options{Seed: 1, Runs: 2, Workers: 1, Flags: map[string]string{"table": "5"}}
	o.Progress = func(done, total int64) {
		if 2*done >= total {
			cancel()
		}
	}
	p, wanted := standIn(t, o)
	r, err := p.make(ctx, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if n := len(r.Rows); n < 100 || n > 15*19-100 {
		t.Errorf("half of the work gave %d of %d rows", n, 15*19)
	}
	if !strings.Contains(r.Partial, "V.3") || strings.Contains(r.Partial, "I.1,") || !strings.Contains(r.Partial, "machine S slurm") {
		t.Errorf("missing: %s", r.Partial)
	}
	exptest.Page(t, r)
	for _, row := range r.Rows {
		if strings.Contains(row.Metric, "V.3") {
			t.Errorf("%s is shown", row.Metric)
		}
	}
	p, wanted = standIn(t, o)
	if _, err := p.make(ctx, wanted); err == nil {
		t.Error("an experiment that found nothing shows something")
	}
}

// JSON has the fields that scripts rely on.
func TestJSON(t *testing.T) {
	p, wanted := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 2, Flags: map[string]string{"table": "5"}})
	r, err := p.make(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Name string
		Rows []struct {
			Metric, Unit string
			Paper        *float64
			Ours         float64
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	// Beside the rows of the table there are statements that need no other: all but three.
	if read.Name != "aucsched" || len(read.Rows) != 15*19+len(statements())-3 {
		t.Errorf("%s with %d rows", read.Name, len(read.Rows))
	}
	for _, row := range read.Rows {
		if row.Metric == "table5_V.3_slurm_utilization_pct" && *row.Paper == 65 && row.Unit == "%" && row.Ours > 0 {
			return
		}
	}
	t.Error("there is no table5_V.3_slurm_utilization_pct with the paper's 65 %")
}

// The number of instances is the paper's, unless all parts are run.
func TestInstances(t *testing.T) {
	for _, c := range []struct {
		o    exp.Options
		want int
	}{
		{exp.Options{}, instancesOfAll},
		{exp.Options{Runs: 5}, 5},
		{exp.Options{Figures: []string{"bound"}}, instances},
		{exp.Options{Flags: map[string]string{"machine": "S"}}, instances},
		{exp.Options{Flags: map[string]string{"table": "5"}}, instances},
	} {
		p, _, err := newPlan(c.o)
		if err != nil || len(p.seeds) != c.want {
			t.Errorf("%+v: %d instances, want %d; %v", c.o, len(p.seeds), c.want, err)
		}
	}
	for hours, ok := range map[string]bool{"0.25": true, "100": true, "101": false, "NaN": false, "0": false} {
		if _, _, err := newPlan(exp.Options{Flags: map[string]string{"hours": hours}}); (err == nil) != ok {
			t.Errorf("%s hours: %v", hours, err)
		}
	}
}
