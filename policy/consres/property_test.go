package consres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	needs "muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/sim"
)

// watched is the policy, with its promises looked at after each step.
type watched struct {
	*scheduler
	t *testing.T
	// promised is the first promise to each job that was first in the queue when it
	// was made.
	promised map[policy.JobID]time.Duration
	checked  int
}

func (w *watched) Step(v *policy.View, plan *policy.Plan) {
	passes := w.passes
	w.scheduler.Step(v, plan)
	for _, st := range plan.Starts {
		if at, ok := w.promised[st.Job]; ok && v.Now() > at {
			w.t.Errorf("job %s was promised %v and starts at %v", v.Job(st.Job).ID, at, v.Now())
		}
	}
	if w.passes == passes {
		return
	}
	if w.group == 0 { // as Slurm's own authors say, groups of ends can delay any job
		w.notePromise(v)
	}
	w.keepsReservations(v, plan)
}

// notePromise notes what the first job that waits was promised.
func (w *watched) notePromise(v *policy.View) {
	queue := v.Queue()
	for id, _, ok := queue.Next(); ok; id, _, ok = queue.Next() {
		if v.Held(id) != nil {
			continue
		}
		if len(w.reserved) == 0 || w.reserved[0].job != id {
			return
		}
		if _, known := w.promised[id]; !known && !mixed(&v.Shape(id).Request) {
			w.promised[id] = w.reserved[0].at
		}
		return
	}
}

// keepsReservations checks a pass: when all end as expected, each reservation
// finds what it needs on its nodes, beside those before it.
func (w *watched) keepsReservations(v *policy.View, plan *policy.Plan) {
	for i := range w.reserved {
		r := &w.reserved[i]
		free := newTable(v.Cluster(), capacities(v))
		ends := v.Ends()
		for id, _, ok := ends.Next(); ok; id, _, ok = ends.Next() {
			if v.ExpectedEnd(id) > r.at {
				free.take(v.Held(id))
			}
		}
		hidden := newBitmap(len(v.Cluster().Nodes))
		for n := range v.Cluster().Nodes {
			if !slices.Contains(r.nodes, int32(n)) {
				hidden.set(int32(n))
			}
		}
		sh := v.Shape(r.job)
		var out model.Allocation
		var s Selector
		nd := needOf(v.Cluster(), &sh.Request)
		if !s.place(free, &nd, &sh.Request, hidden, nil, &out) {
			w.t.Errorf("at %v the reservation of job %s at %v on %v is worth nothing", v.Now(), v.Job(r.job).ID, r.at, r.nodes)
		}
		for k := range w.reserved[:i] {
			b := &w.reserved[k]
			if b.at < r.end && r.at < b.end && slices.ContainsFunc(r.nodes, func(n int32) bool { return slices.Contains(b.nodes, n) }) {
				w.t.Errorf("at %v jobs %s and %s are promised the same nodes", v.Now(), v.Job(b.job).ID, v.Job(r.job).ID)
			}
		}
		for _, st := range plan.Starts {
			if r.at >= v.ExpectedEnd(st.Job) || v.Held(r.job) != nil || before(v, st.Job, r.job) {
				continue
			}
			for _, p := range st.Alloc.Parts {
				if slices.Contains(r.nodes, p.Node) {
					w.t.Errorf("at %v job %s starts on a node that is reserved for job %s", v.Now(), v.Job(st.Job).ID, v.Job(r.job).ID)
				}
			}
		}
		w.checked++
	}
}

// before says whether a stands before b in the queue.
func before(v *policy.View, a, b policy.JobID) bool {
	ka, kb := policy.ByPriority(v.Job(a)), policy.ByPriority(v.Job(b))
	return ka < kb || ka == kb && a < b
}

// tameJobs never outlive their estimates, and come at any time.
func tameJobs(rng *rand.Rand, c *model.Cluster, count int) []model.Job {
	jobs := make([]model.Job, count)
	at := time.Duration(0)
	for i := range jobs {
		at += time.Duration(rng.IntN(40)) * time.Second
		j := model.Job{ID: fmt.Sprint(i), Submit: at, Run: time.Duration(1+rng.IntN(600)) * time.Second}
		j.WallTime = j.Run + time.Duration(rng.IntN(300))*time.Second
		r := &j.Request
		if rng.IntN(3) == 0 {
			r.CoresPerProcess = 1 + rng.IntN(3)
			r.Cores = r.CoresPerProcess * (1 + rng.IntN(8))
		} else {
			r.Nodes, r.CoresPerNode = 1+rng.IntN(len(c.Nodes)/2), 1+rng.IntN(8)
			r.Exclusive = rng.IntN(12) == 0
		}
		r.Contiguous = rng.IntN(4) == 0
		switch rng.IntN(4) {
		case 0:
			r.GPUs = 1 + rng.IntN(2)
		case 1:
			r.Remote = &model.RemoteGPUs{Count: 1 + rng.IntN(6)}
			if rng.IntN(2) == 0 {
				r.Remote.Memory, r.Remote.Shared = int64(1+rng.IntN(6)), true
				j.Intensity = 0.01 // so little that nobody is slowed down
			}
		}
		jobs[i] = j
	}
	return jobs
}

func TestReservationsAreKept(t *testing.T) {
	runs := needs.Rounds(15, 60)
	checked, borrowed := 0, 0
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := &model.Cluster{Name: "c", GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
		for i := range 4 + rng.IntN(30) {
			n := model.Node{Name: fmt.Sprint("n", i), Cores: 8}
			if rng.IntN(3) > 0 {
				n.GPUs = make([]int, 1+rng.IntN(2))
			}
			c.Nodes = append(c.Nodes, n)
		}
		jobs := tameJobs(rng, c, 120)
		entry, spec := &Slurm, ""
		if rng.IntN(2) == 0 {
			entry, spec = &RGPU, "select="+rankings[rng.IntN(len(rankings))]
		}
		if rng.IntN(2) == 0 {
			spec += ":bf_interval=0"
		}
		spec += fmt.Sprintf(":bf_resolution=%ds:bf_ends=%ds", 60*rng.IntN(2), 30*rng.IntN(2))
		spec = strings.TrimPrefix(spec, ":")
		once := func(watch bool) *sim.Result {
			p, err := entry.Make(spec)
			if err != nil {
				t.Fatal(err)
			}
			w := &watched{scheduler: p.(*scheduler), t: t, promised: map[policy.JobID]time.Duration{}}
			if watch {
				p = w
			}
			r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p})
			if err != nil {
				t.Fatal(err)
			}
			if r.Refused > 0 {
				t.Fatalf("seed %d %s %s: %d lines refused", seed, entry.Name, spec, r.Refused)
			}
			checked += w.checked
			return r
		}
		a, b := once(true), once(false)
		if t.Failed() {
			t.Fatalf("seed %d, %s %s, %d nodes", seed, entry.Name, spec, len(c.Nodes))
		}
		if !slices.Equal(a.Outcomes, b.Outcomes) {
			t.Fatalf("seed %d: two runs differ", seed)
		}
		for i := range a.Outcomes {
			if s := a.Outcomes[i].State; s != sim.Finished && s != sim.Impossible {
				t.Fatalf("seed %d: job %d is %v", seed, i, s)
			}
			if a.Outcomes[i].Borrowed {
				borrowed++
			}
		}
	}
	if checked < runs*50 || borrowed < runs {
		t.Errorf("%d reservations and %d borrowing jobs: the cases are too tame", checked, borrowed)
	}
}
