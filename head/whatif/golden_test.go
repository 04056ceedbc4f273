package whatif_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/head/whatif"
	"muster/model"
	"muster/policy/catalog"
	"muster/wire/api"
)

var update = flag.Bool("update", false, "write testdata anew")

// handMade is a cluster of one node with two cores, and a history of 1,000 s that a
// reader can follow.
func handMade() (whatif.Header, []api.Job) {
	const t0 = 1_000_000
	h := whatif.Header{
		Name: "day", Began: (t0 - 500) * time.Second, From: t0 * time.Second, To: (t0 + 1000) * time.Second,
		Cluster:  &model.Cluster{Name: "hand", Nodes: []model.Node{{Name: "n1", Cores: 2, Memory: 1 << 30}, {Name: "gone", Cores: 64, Memory: 1 << 30}}},
		Machines: []head.Machine{{Name: "n1", Is: "up"}, {Name: "gone", Is: "down", Gone: true}},
		Policies: []whatif.Candidate{{Name: "fcfs", Spec: "fcfs", InForce: true}, {Name: "sjf", Spec: "sjf"}, {Name: "first-fit", Spec: "first-fit"}, {Name: "easy", Spec: "easy"}},
	}
	job := func(id uint64, user, options string, submit, start, end float64) api.Job {
		j := api.Job{ID: id, User: user, Name: "j", State: api.Completed, Options: options, Submit: t0 + submit, Eligible: t0 + submit, Directory: "/"}
		if start != none {
			j.Start, j.End, j.Elapsed = t0+start, t0+end, end-start
			said := 1
			if strings.Contains(options, "-n2") {
				said = 2
			}
			j.Cores, j.Parts = said, []api.Part{{Node: "n1", Cores: said, Memory: 0}}
		}
		return j
	}
	ended := []api.Job{
		job(1, "alice", "-n1 --time=10", -100, -100, 200), // runs when the period begins
		job(2, "bob", "-n2 --time=10", 0, 200, 400),       // must wait for 1
		job(3, "bob", "-n1 --time=1", 10, 400, 450),       // could have run beside 1, but for the order
		job(4, "carol", "-n1 --time=10", 20, none, none),  // is cancelled while it waits
		job(5, "alice", "-n1 --time=10", 460, 460, 760),   // waits for no other job
	}
	ended[3].State, ended[3].End = api.Cancelled, t0+300
	waits := job(6, "bob", "-n2 --time=10", 900, 950, none) // still runs at the end
	waits.State, waits.End, waits.Elapsed = api.Running, 0, 50
	held := job(7, "bob", "-n1", 900, none, none) // never reached the policy
	held.State, held.Eligible = api.Pending, 0
	h.Active = []api.Job{waits, held}
	return h, ended
}

// none is the time of what did not happen.
const none = -1e9

// What follows from the hand-made history, in its order:
//
//   - Counted are 2, 3, 5 and 6: 1 ran before, 4 was withdrawn, 7 was never seen.
//   - Measured, waits are 200, 390, 0 and 50 s: mean 160. Slowdowns are 400/200, 440/50, 1 and
//     100/50 = 2, 8.8, 1, 2: mean 3.45. Held are 200 of job 1, 2x200, 50, 300 and 2x50 core
//     seconds of 2x1000: 0.525. One job is not over.
//   - fcfs: job 6 was not started at 900 in truth, for no reason that is known, and is in the
//     simulation: waits are 200, 390, 0 and 0, mean 147.5. (Job 4, behind 3 in the queue, is
//     withdrawn at 300.)
//   - All others: 3 starts beside 1 at 10 and ends at 60. Under first-fit 4 starts then, and is
//     withdrawn, that is, ended, at 300: 2 waits until then, and 5 for 2, from 460 to 500. Under sjf it stands behind 2. Under
//     easy 2 has a reservation at 500, the limit of 1, and 4, of 600 s, would delay it. So 2 starts
//     at 200 under both.
func TestGolden(t *testing.T) {
	h, ended := handMade()
	w := workloadOf(t, h, ended)
	p := w.Period()
	for _, c := range h.Policies {
		trial := try(t, w, c.Spec)
		if c.InForce {
			p.Model = whatif.Accuracy(p.Measured, trial)
		}
		p.Policies = append(p.Policies, api.WhatIfPolicy{Policy: c.Name, InForce: c.InForce, Figures: &trial.Figures, Users: trial.Users})
	}
	if m := p.Measured; p.Jobs != 4 || m.MeanWait != 160 || m.MedianWait != 50 || m.P95Wait != 390 || m.MeanSlowdown != 3.45 || m.CoreUse != 0.525 || m.Unfinished != 1 || m.Makespan != 760 {
		t.Errorf("measured: %d jobs, %+v", p.Jobs, m)
	}
	for i, want := range []float64{147.5, 200 / 4.0, (300 + 40) / 4.0, 200 / 4.0} {
		if got := p.Policies[i].Figures.MeanWait; got != want {
			t.Errorf("%s: a mean wait of %v, not %v", p.Policies[i].Policy, got, want)
		}
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const path = "testdata/golden.json"
	if *update {
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(text)+"\n" {
		t.Errorf("the report is another one: read the difference, and write it with -update\n%s", text)
	}
}

// No value in a history makes a simulation fail: impossible ones are left out, and that is
// reported.
func TestHostileHistories(t *testing.T) {
	h, ended := handMade()
	fine := len(ended)
	bad := func(change func(*api.Job)) {
		j := ended[4]
		j.ID = uint64(100 + len(ended))
		change(&j)
		ended = append(ended, j)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, 1e18, 1e-300, 4e9} {
		bad(func(j *api.Job) { j.Submit = x })
		bad(func(j *api.Job) { j.Eligible = x })
		bad(func(j *api.Job) { j.Start = x })
		bad(func(j *api.Job) { j.End = x })
		bad(func(j *api.Job) { j.GPUShare = x })
	}
	bad(func(j *api.Job) { j.Options = "--no-such-option" })
	bad(func(j *api.Job) { j.Options = "'" })
	bad(func(j *api.Job) { j.Cores = -5 })
	odd := len(ended) - fine
	// These count: how long they say that they ran does not matter, nor what they had.
	bad(func(j *api.Job) { j.Elapsed = math.Inf(1) })
	bad(func(j *api.Job) { j.Elapsed = math.NaN() })
	bad(func(j *api.Job) { j.Elapsed = -7 })
	bad(func(j *api.Job) { j.Parts[0].Node = "nowhere" })
	bad(func(j *api.Job) {
		j.Devices = []api.Device{{For: "n1", Node: "n1", Device: 77}, {For: "x", Node: "n1", Device: -1}}
	})
	bad(func(j *api.Job) { j.Options = "-n1 --dependency=afterok:5:5:77777" })
	bad(func(j *api.Job) { j.Priority = math.MinInt64 })
	h.Turns = []head.NodeTurn{{At: -5, Node: 0, Is: "up"}, {At: 5, Node: 99, Is: "up"}, {At: h.From + 1, Node: 0, Was: "up", Is: "purple"}, {At: h.From + 2, Node: 0, Was: "?", Is: "up"}, {At: math.MaxInt64, Node: 0, Is: "down"}}
	h.Windows = []head.Window{{Name: "w", From: h.From, Until: math.MaxInt64, Nodes: []string{"nowhere"}}}
	w := workloadOf(t, h, ended)
	p := w.Period()
	said := 0
	for _, note := range p.Notes {
		var n int
		_, number, _ := strings.Cut(note, ": ")
		if _, err := fmt.Sscan(number, &n); err == nil && (strings.Contains(note, "no sense") || strings.Contains(note, "does not know")) {
			said += n
		}
	}
	// An end at 1e-300 or before the period makes a job that is none of it.
	if said < odd-8 || said > odd {
		t.Errorf("%d of %d odd jobs were named: %q", said, odd, p.Notes)
	}
	for _, e := range catalog.Entries {
		f := try(t, w, e.Name).Figures
		for _, x := range []float64{f.MeanWait, f.P95Wait, f.MeanSlowdown, f.Use, f.CoreUse, f.Makespan} {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				t.Errorf("%s: %+v", e.Name, f)
			}
		}
	}
}

// If there are very many users, those with most jobs are listed.
func TestManyUsers(t *testing.T) {
	h, ended := handMade()
	y, err := whatif.New(h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		j := ended[4]
		j.ID, j.User = uint64(1000+i), fmt.Sprint("user", i)
		y.Add(&j)
	}
	for _, j := range ended {
		y.Add(&j)
	}
	trial := try(t, y.Workload(), "fcfs")
	if len(trial.Users) != whatif.MaxUsers || trial.UsersLeftOut != 20_002-whatif.MaxUsers || trial.Users[0].User != "bob" {
		t.Errorf("%d users, %d left out, first %+v", len(trial.Users), trial.UsersLeftOut, trial.Users[0])
	}
}

// Tasks that each wait for that of another array are found without looking at all of it.
func TestArraysThatFollowEachOther(t *testing.T) {
	took := func(tasks int) time.Duration {
		best := time.Hour
		for range 3 {
			h, ended := handMade()
			y, err := whatif.New(h)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 * tasks {
				j, task := ended[4], i%tasks
				number := uint32(task)
				j.ID, j.ArrayTask, j.ArrayJob = uint64(1000+i), &number, 1000
				if i >= tasks {
					j.ArrayJob, j.Options = uint64(1000+tasks), j.Options+" --dependency=aftercorr:1000"
				}
				y.Add(&j)
			}
			began := cpuTime() // other processes do not count
			y.Workload()
			best = min(best, cpuTime()-began)
		}
		return best
	}
	if few, many := took(3000), took(24_000); many > 30*few {
		t.Errorf("3000 tasks took %v, eight times as many %v", few, many)
	}
}
