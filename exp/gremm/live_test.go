package gremm

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/bench/benchtest"
	"muster/exp/exptest"
	"muster/internal/misuse"
	"muster/mapping"
	"muster/sim/kernels"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// smallLive is a lab without a cluster, for what needs none.
func smallLive(t *testing.T) *liveLab {
	t.Helper()
	simulated, err := newLab(exp.Options{Seed: 1, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &liveLab{lab: simulated, m: &liveMeasured{Version: liveVersion, Seeds: []uint64{1}, Profile: profile{Start: 0.001, Turn: 1e-4, Latency: 5e-4, Bandwidth: 1e8}, Network: nearNetwork}}
}

// Kernels of a length have the turns for it, and all workloads fit on the live nodes.
func TestLiveSetup(t *testing.T) {
	l := smallLive(t)
	for gpu, want := range map[time.Duration]int{0: 0, time.Millisecond: 0, 11 * time.Millisecond: 100} {
		if got := l.m.Profile.turns(gpu); got != want {
			t.Errorf("%v: %d turns, want %d", gpu, got, want)
		}
	}
	for _, w := range mixes {
		work, err := l.workload(w)
		if err != nil || work.Nodes() != liveNodes {
			t.Errorf("%s: %+v, %v", w, work, err)
		}
	}
}

// What is shown of made-up runs: every run has a row and a prediction, errors are the right way round, and
// statements are judged.
func TestLiveShown(t *testing.T) {
	m := smallLive(t).m
	m.NoLink = bench.ErrNoLink.Error()
	for _, w := range mixes {
		for i, p := range ofPaper {
			o := liveNumbers{Utilisation: 80 + float64(i), Wait: 0.1, Kernels: 10}
			said := o
			said.Utilisation *= 1.1
			if w == "W1" {
				said.Utilisation = 2 * o.Utilisation
			}
			m.Own = append(m.Own, liveRun{w, p.mapper, 1, said, o, 0})
			m.Runs = append(m.Runs, liveRun{w, p.mapper, 1, o, said, 0})
		}
	}
	r := m.result()
	exptest.Page(t, r)
	want := map[string]float64{
		metric("live", "W4", "AG", "utilisation_pct"): 82, metric("live_off", "W4", "AG", "utilisation_pct"): 10, "live_good_utilisation_pct": 16, metric("live_own", "W5", "ST", "utilisation_pct"): 88,
		metric("claim_live", "W3", "GR", "over_st"): 1, "claim_live_predicted": 0, "live_bandwidth_mbs": 100,
	}
	for _, row := range r.Rows {
		if v, there := want[row.Metric]; there {
			delete(want, row.Metric)
			if math.Abs(row.Ours-v) > 1e-6 {
				t.Errorf("%s is %v, want %v", row.Metric, row.Ours, v)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("there are no rows for %v", want)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "Left out: links with a bandwidth") {
		t.Error(notes)
	}
}

func TestLiveFlags(t *testing.T) {
	for _, o := range []exp.Options{
		{Flags: map[string]string{"full": exp.On}},
		{Flags: map[string]string{"live": exp.On}, Figures: []string{"2"}},
		{Flags: map[string]string{"live": exp.On, "span": "soon"}},
		{Flags: map[string]string{"live": exp.On, "patience": "long"}},
		{Flags: map[string]string{"live": exp.On, "save": "nowhere/kept.json"}},
	} {
		if _, err := Experiment.Run(context.Background(), o); !misuse.Is(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Real processes on four nodes: all mappers have kernels run on devices of several nodes, or of the own
// node alone, and every process finds its results right.
func TestLiveRuns(t *testing.T) {
	l := smallLive(t)
	l.tools = benchtest.Tools(t, liveProgram)
	l.span = 6 * time.Second
	star := bench.LoopbackStar(liveNodes)
	var err error
	if l.fleet, err = startFleet(t.Context(), l.tools, star, ""); err != nil {
		t.Fatal(err)
	}
	defer l.fleet.stop()
	if err := l.measureCalls(t.Context()); err != nil {
		t.Fatal(err)
	}
	remote := 0.0
	for _, p := range ofPaper {
		if err := l.mapped(t.Context(), "W3", p.mapper); err != nil {
			t.Fatal(err)
		}
		real := pick(l.m.Runs, "W3", p.mapper)[0].Real
		if real.Kernels == 0 || real.Utilisation <= 0 || real.Remote > 0 && p == static {
			t.Errorf("%s: %+v", p.name, real)
		}
		remote += real.Remote
	}
	// Where a busy machine ends a handful of kernels in the span, one mapper may have chosen the own
	// node for all of them; not every one.
	if remote == 0 {
		t.Error("no mapper had a kernel run on a device of another node")
	}
}

// The proxy numbers processes as the simulator does: those of the first application on the first nodes.
func TestLiveLayout(t *testing.T) {
	l := smallLive(t)
	work, err := l.workload("W4")
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.clusterOf(scenario{nodes: liveNodes, gpus: 1, bandwidth: gbe, latency: paperLatency})
	if err != nil {
		t.Fatal(err)
	}
	var layout *mapping.Layout
	if _, err := kernels.Run(t.Context(), kernels.Config{Cluster: c, Workload: work, Seed: 1, Span: time.Second, Mapper: func(seen *mapping.Layout) (mapping.Mapper, error) {
		layout = seen
		return mapping.New("gr", seen)
	}}); err != nil {
		t.Fatal(err)
	}
	x, err := newProxy(nil, &l.m.Profile, layout, work, "gr", 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.procs) != liveNodes*livePerNode || x.procs[4].App != 1 || x.procs[4].Rank != 0 || x.procs[4].Node != 1 || x.procs[15].Home != 3 {
		t.Errorf("%+v", x.procs)
	}
}

// recordedLive is what `muster reproduce gremm --live --runs 2 --save FILE` measured.
const recordedLive = "testdata/live.json"

// What the recorded runs say of the statements is what docs/papers.md says.
func TestLiveClaims(t *testing.T) {
	r, err := Experiment.Run(t.Context(), exp.Options{Flags: map[string]string{"live": exp.On, "from": recordedLive}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	m, err := liveFrame.Load(recordedLive)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.claims() {
		if line := fmt.Sprintf("| %s | %s | %s |\n", c.verdict, c.says, c.because); !strings.Contains(string(docs), line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
	}
	for _, spoil := range []func(*liveMeasured){
		func(m *liveMeasured) { m.Version++ },
		func(m *liveMeasured) { m.Runs = nil },
		func(m *liveMeasured) { m.Runs[0].Mapper = "best" },
		func(m *liveMeasured) { m.Runs[0].Real.Utilisation = 0 },
	} {
		bad, err := liveFrame.Load(recordedLive)
		if err != nil {
			t.Fatal(err)
		}
		if spoil(bad); bad.check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
