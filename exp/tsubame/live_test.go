package tsubame

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/bench/benchtest"
	"muster/exp/exptest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// The fit finds the constants that copies were made with.
func TestLiveFit(t *testing.T) {
	m := &liveMeasured{Idle: map[string]idle{shaped: {Bandwidth: 50e6, Trip: 1e-5}}}
	for users := range 5 {
		for _, bytes := range []int{1 << 10, 1 << 16, 1 << 22} {
			took := 3e-3 + 1.2*float64(bytes)*float64(users+1)/50e6
			m.Copies = append(m.Copies, copied{shaped, users, bytes, took, took})
		}
	}
	f := m.fit(shaped, readings[0])
	if math.Abs(f.latency-3e-3) > 1e-9 || math.Abs(f.overhead()-1.2) > 1e-9 || math.Abs(f.r2-1) > 1e-9 {
		t.Errorf("%+v", f)
	}
	if other := m.fit(shaped, readings[1]); other.r2 >= f.r2 || other.r2 < 0 {
		t.Errorf("divided by n: %+v", other)
	}
	if m.fit(loopback, readings[0]) != nil || leastSquares([]float64{1, 1, 1}, []float64{1, 2, 3}) != nil {
		t.Error("something was fitted to nothing")
	}
}

// recordedLive is what `muster reproduce tsubame --live --save FILE` measured.
const recordedLive = "testdata/live.json"

// What the recorded measurements say of the paper's statements is what docs/papers.md says.
func TestLiveClaims(t *testing.T) {
	r, err := Experiment.Run(t.Context(), exp.Options{Flags: map[string]string{"live": exp.On, "from": recordedLive}})
	if err != nil {
		t.Fatal(err)
	}
	page := exptest.Page(t, r)
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	m, err := liveFrame.Load(recordedLive)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range liveClaims() {
		value := c.of(m)
		line := fmt.Sprintf("| %s | %s | %.3f %s |\n", c.judge(exp.Row{Ours: value}), c.says, value, c.unit)
		if !strings.Contains(string(docs), line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
		if !strings.Contains(page, "claim_live_"+c.id) {
			t.Errorf("%s is not on the page", c.id)
		}
	}
}

// The simulator knows what the grants of both queues mean: in each recorded run mean waiting, and the time until
// all have ended, are within a tenth of what it says.
func TestQueuesArePredicted(t *testing.T) {
	m, err := liveFrame.Load(recordedLive)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Queues {
		q := &m.Queues[i]
		said, err := q.predicted(m.besides())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range queueTimes[:2] {
			if off := 100 * (x.of(said)/x.of(q) - 1); math.Abs(off) > 10 {
				t.Errorf("%s, seed %d, %s: %.2f s instead of %.2f s, off by %.1f %%", q.Policy, q.Seed, x.says, x.of(said), x.of(q), off)
			}
		}
	}
	if len(m.Queues) == 0 {
		t.Error("no queue was recorded")
	}
}

// Only what --save wrote is read.
func TestLiveFiles(t *testing.T) {
	for _, text := range []string{"", "{}", `{"version":2}`, `{"version":1,"surprise":1}`, `{"version":1,"copies":[{"network":"link","users":0,"bytes":1,"in":1,"out":1}]}`} {
		path := filepath.Join(t.TempDir(), "kept.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := liveFrame.Load(path); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := Experiment.Run(context.Background(), exp.Options{Flags: map[string]string{"full": exp.On}}); err == nil || !strings.Contains(err.Error(), "is for --live") {
		t.Error(err)
	}
}

// Copies, the Jacobi solver and molecular dynamics on a node at the other end of a network, beside
// traffic, and a congested queue: all results are right, and all times are there.
func TestLiveSmall(t *testing.T) {
	l := &liveLab{options: exp.Options{Runs: 1, Seed: 1}, tools: benchtest.Tools(t, copies, jacobi, md, pairs), m: &liveMeasured{Idle: map[string]idle{}}}
	l.size = liveSize{users: []int{0, 2}, loopbackUsers: []int{0}, appUsers: []int{0, 2}, mostBytes: 64 << 10, repeat: 1, idle: 50 * time.Millisecond, steps: map[string]int{jacobi: 2, md: 2}, queueJobs: 6}
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	network := shaped
	if l.m.NoLink != "" {
		network = loopback
		t.Log(l.m.NoLink)
	}
	for _, app := range applications {
		if slow := l.m.slowdown(network, app, 2); math.IsNaN(slow) {
			t.Errorf("%s was not measured: %+v", app, l.m.Apps)
		}
	}
	if len(l.m.Queues) != 2 || l.m.Queues[0].Lent > 0 {
		t.Errorf("the queues: %+v", l.m.Queues)
	}
	if r := l.m.result(); r.Check() != nil || len(l.m.Copies) < 5 {
		t.Errorf("%v, %d copies", r.Check(), len(l.m.Copies))
	}
}

// A user who may not make a link is told why, and measures only on the loopback interface.
func TestLiveWithoutLink(t *testing.T) {
	m := &liveMeasured{NoLink: bench.ErrNoLink.Error(), Idle: map[string]idle{loopback: {Bandwidth: 1e9, Trip: 1e-5}},
		Copies: []copied{{loopback, 0, 4096, 1e-4, 1e-4}}, Apps: []ranApp{{loopback, jacobi, 0, 1}, {loopback, jacobi, 2, 2}}}
	r := m.result()
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "Left out: the link with a bandwidth") {
		t.Error(notes)
	}
	if len(m.claimRows()) != 0 {
		t.Error("statements on sharing a link are judged without one")
	}
}
