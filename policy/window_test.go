package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
)

const minute = time.Minute

func windowed(t *testing.T, spec string, nodes int, list ...policy.Window) *policy.State {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &model.Cluster{Name: "w"}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 4, Memory: 8 << 30})
	}
	s := policy.NewState(c, p)
	if err := s.SetWindows(list); err != nil {
		t.Fatal(err)
	}
	return s
}

func job(id string, nodes int, estimate time.Duration) *model.Job {
	return &model.Job{ID: id, User: "u", Group: "g", Run: estimate, WallTime: estimate, Request: model.Request{Nodes: nodes, CoresPerNode: 4}}
}

func starts(t *testing.T, s *policy.State, now time.Duration) string {
	t.Helper()
	plan := s.Step(now)
	var list []string
	for _, st := range plan.Starts {
		if st.Err != nil {
			t.Fatal(st.Err)
		}
		text := s.View().Job(st.Job).ID
		for _, p := range st.Alloc.Parts {
			text += fmt.Sprint(" n", p.Node)
		}
		list = append(list, text)
	}
	if len(list) == 0 && plan.Wake != policy.Never {
		return "wake " + plan.Wake.String()
	}
	return strings.Join(list, "; ")
}

// Maintenance of n0 and n1 from 60 to 90 minutes: a job of an hour just fits before it, a longer
// one gets the other node, and one that needs two nodes waits for the end.
func TestMaintenanceByHand(t *testing.T) {
	s := windowed(t, "fcfs", 3, policy.Window{Name: "maint", From: 60 * minute, Until: 90 * minute, Nodes: []int32{0, 1}})
	submit := func(j *model.Job) policy.JobID {
		id, err := s.Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	a := submit(job("a", 1, 60*minute))
	submit(job("b", 1, 61*minute))
	c := submit(job("c", 2, 61*minute))
	if got := starts(t, s, 0); got != "a n0; b n2" {
		t.Fatal(got)
	}
	if why := s.Why(c); why != "by its time limit it would run into maint, from 01:00:00 to 01:30:00, and too few nodes are left without it" {
		t.Error(why)
	}
	d := submit(job("d", 1, 30*minute))
	if got := starts(t, s, 30*minute); got != "d n1" {
		t.Fatal(got)
	}
	e := submit(job("e", 1, 10*minute))
	if err := s.End(d); err != nil {
		t.Fatal(err)
	}
	if got := starts(t, s, 50*minute); got != "e n1" { // ends as the window begins
		t.Fatal(got)
	}
	for _, id := range []policy.JobID{a, e} {
		if err := s.End(id); err != nil {
			t.Fatal(err)
		}
	}
	submit(job("f", 1, minute))
	if got := starts(t, s, 60*minute); got != "wake 1h30m0s" {
		t.Fatal(got)
	}
	if got := starts(t, s, 90*minute); got != "c n0 n1" {
		t.Fatal(got)
	}
}

// A reservation for ann and the account lab: they may use it, others not; who names it runs inside only.
func TestReservationByHand(t *testing.T) {
	s := windowed(t, "easy", 2, policy.Window{Name: "course", From: 60 * minute, Until: 120 * minute, Nodes: []int32{0}, Users: []string{"ann"}, Accounts: []string{"lab"}})
	mine := job("mine", 1, 30*minute)
	mine.User, mine.Reservation = "ann", "course"
	long := job("long", 1, 90*minute)
	long.User, long.Reservation = "ann", "course"
	stranger := job("stranger", 1, 10*minute)
	stranger.Reservation = "course"
	lost := job("lost", 1, 10*minute)
	lost.Reservation = "curse"
	member := job("member", 2, 300*minute)
	member.Group = "lab"
	var ids []policy.JobID
	for _, j := range []*model.Job{mine, long, stranger, lost} {
		id, err := s.Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if got := starts(t, s, 0); got != "wake 1h0m0s" {
		t.Fatal(got)
	}
	for i, want := range []string{"reservation course begins at 01:00:00", "reservation course begins at 01:00:00",
		"user u and account g may not use reservation course", `there is no reservation "curse"`} {
		if got := s.Why(ids[i]); got != want {
			t.Errorf("why %d: %s, want %s", i, got, want)
		}
	}
	if s.Waiting() != 4 {
		t.Errorf("%d wait", s.Waiting())
	}
	if got := starts(t, s, 60*minute); got != "mine n0" {
		t.Fatal(got)
	}
	if why := s.Why(ids[1]); why != "reservation course ends at 02:00:00, before the job's estimate" {
		t.Error(why)
	}
	for _, id := range ids[1:] {
		if err := s.Cancel(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Submit(member); err != nil {
		t.Fatal(err)
	}
	if got := starts(t, s, 70*minute); got != "member n0 n1" {
		t.Fatal(got)
	}
	if s.Waiting() != 0 {
		t.Errorf("%d wait", s.Waiting())
	}
}

// Under every policy: no job is on a window's nodes at an instant of its estimate that lies in the window,
// unless it may be; those who named a window are inside; all others start in the end.
func TestEveryPolicyKeepsToWindows(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for _, e := range catalog.Entries {
		for seed := range seeds {
			playWindows(t, e.Name, seed)
		}
	}
}

func playWindows(t *testing.T, spec string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	var list []policy.Window
	for i := range 1 + rng.IntN(3) {
		from := time.Duration(10+rng.IntN(100)) * minute
		w := policy.Window{Name: fmt.Sprint("w", i), From: from, Until: from + time.Duration(1+rng.IntN(60))*minute, Users: []string{fmt.Sprint("u", i)}}
		for n := range int32(4) {
			if rng.IntN(2) == 0 {
				w.Nodes = append(w.Nodes, n)
			}
		}
		list = append(list, w)
	}
	s := windowed(t, spec, 4, list...)
	where := fmt.Sprintf("%s, seed %d", spec, seed)
	ends := map[policy.JobID]time.Duration{}
	jobs := map[policy.JobID]*model.Job{}
	now, started := time.Duration(0), 0
	for n := 0; n < 400; n++ {
		if len(jobs) < 30 {
			j := job(fmt.Sprint("j", n), 1+rng.IntN(3), time.Duration(1+rng.IntN(60))*minute)
			j.User = fmt.Sprint("u", rng.IntN(4))
			if rng.IntN(8) == 0 {
				j.Reservation = list[0].Name
			}
			id, err := s.Submit(j)
			if err != nil {
				t.Fatal(err)
			}
			jobs[id] = j
		}
		var over []policy.JobID
		for id, end := range ends {
			if end <= now {
				over = append(over, id)
			}
		}
		slices.Sort(over)
		for _, id := range over {
			if err := s.End(id); err != nil {
				t.Fatal(err)
			}
			delete(ends, id)
		}
		plan := s.Step(now)
		for _, st := range plan.Starts {
			if st.Err != nil {
				t.Fatalf("%s: %v", where, st.Err)
			}
			j := jobs[st.Job]
			started++
			ends[st.Job] = now + j.WallTime
			checkWindows(t, where, list, j, st.Alloc, now)
		}
		now += time.Duration(1+rng.IntN(8)) * minute
	}
	for id, j := range jobs {
		if j.Reservation == "" && s.View().Waits(id) {
			t.Fatalf("%s: job %s still waits at %s: %s", where, j.ID, now, s.Why(id))
		}
	}
	if started == 0 {
		t.Fatalf("%s: nothing was started", where)
	}
}

func checkWindows(t *testing.T, where string, list []policy.Window, j *model.Job, a *model.Allocation, now time.Duration) {
	t.Helper()
	for _, w := range list {
		named, may := j.Reservation == w.Name, slices.Contains(w.Users, j.User)
		if named && (!may || now < w.From || now+j.WallTime > w.Until) {
			t.Fatalf("%s: job %s of %s runs outside %s, at %s", where, j.ID, j.User, w.Name, now)
		}
		for _, p := range a.Parts {
			in := slices.Contains(w.Nodes, p.Node)
			if named && !in || !named && !may && in && now < w.Until && now+j.WallTime > w.From {
				t.Fatalf("%s: job %s of %s, estimate %s, is on node %d at %s, window %+v", where, j.ID, j.User, j.WallTime, p.Node, now, w)
			}
		}
	}
}

func TestWindowsThatMakeNoSense(t *testing.T) {
	s := windowed(t, "fcfs", 1)
	for _, list := range [][]policy.Window{
		{{From: 1, Until: 2}}, {{Name: "a", From: 2, Until: 2}}, {{Name: "a", Until: 1}, {Name: "a", Until: 1}}, {{Name: "a", Until: 1, Nodes: []int32{1}}},
	} {
		if err := s.SetWindows(list); err == nil {
			t.Errorf("%+v was taken", list)
		}
	}
}

// A node's devices are not lent into a window either.
func TestLendersKeepToWindows(t *testing.T) {
	p, err := catalog.New("r-queue")
	if err != nil {
		t.Fatal(err)
	}
	c := &model.Cluster{Name: "w", GPUTypes: []model.GPUType{{Name: "g", Memory: 1 << 34, Speed: 1}},
		Nodes: []model.Node{{Name: "n0", Cores: 4, Memory: 1 << 33, GPUs: []int{0}}, {Name: "n1", Cores: 4, Memory: 1 << 33}}}
	s := policy.NewState(c, p)
	if err := s.SetWindows([]policy.Window{{Name: "maint", From: 60 * minute, Until: 90 * minute, Nodes: []int32{0}}}); err != nil {
		t.Fatal(err)
	}
	j := job("a", 1, 120*minute)
	j.Request.GPUs = 1
	if _, err := s.Submit(j); err != nil {
		t.Fatal(err)
	}
	for _, st := range s.Step(0).Starts {
		if st.Err == nil || !strings.Contains(st.Err.Error(), "node n0 is kept for reservation maint") {
			t.Errorf("started at 0: %v", st.Err)
		}
	}
	if got := starts(t, s, 90*minute); got != "a n0" {
		t.Errorf("after the window: %s", got)
	}
}
