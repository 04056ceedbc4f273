package preempt_test

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

// world drives a state with jobs of three classes. It stops jobs when it pleases:
// at once, or some steps later, as a living cluster does.
type world struct {
	t     *testing.T
	what  string
	rng   *rand.Rand
	state *policy.State
	c     *model.Cluster
	now   time.Duration
	slow  bool // stops take a while
	mode  policy.Mode

	jobs    []*model.Job
	running map[policy.JobID]time.Duration // when they end
	rest    map[policy.JobID]time.Duration // of suspended ones
	pending []policy.Stop
	stops   map[policy.JobID]int
	done    map[policy.JobID]bool
	log     []string
}

var classes = []string{"low", "mid", "high"}

func classOf(j *model.Job) int { return max(0, slices.Index(classes, j.QOS)) }

func newWorld(t *testing.T, spec string, seed uint64, slow bool) *world {
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 5))
	c := &model.Cluster{Name: "w", GPUTypes: []model.GPUType{{Name: "g", Memory: 16 << 30, Speed: 1}}}
	for i := range 2 + rng.IntN(4) {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 4, Memory: 8 << 30, GPUs: []int{0, 0}[:rng.IntN(3)]})
	}
	return &world{t: t, what: fmt.Sprintf("%s, seed %d, slow %v", spec, seed, slow), rng: rng, c: c, slow: slow, mode: p.Traits().Mode, state: policy.NewState(c, p),
		running: map[policy.JobID]time.Duration{}, rest: map[policy.JobID]time.Duration{}, stops: map[policy.JobID]int{}, done: map[policy.JobID]bool{}}
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: at %s: %s\n%s", w.what, w.now, fmt.Sprintf(format, args...), strings.Join(w.log, "\n"))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.failf("%v", err)
	}
}

func (w *world) submit() {
	r := model.Request{Nodes: 1 + w.rng.IntN(2), CoresPerNode: 1 + w.rng.IntN(4), Memory: int64(w.rng.IntN(3)) << 30}
	if w.rng.IntN(4) == 0 {
		r.GPUs = 1
	}
	run := time.Duration(1+w.rng.IntN(30)) * time.Second
	j := &model.Job{ID: fmt.Sprint("j", len(w.jobs)), QOS: classes[w.rng.IntN(3)], Run: run, WallTime: run, Request: r}
	id, err := w.state.Submit(j)
	if err != nil {
		return // impossible here
	}
	if int(id) != len(w.jobs) {
		w.failf("job %d, want %d", id, len(w.jobs))
	}
	w.jobs = append(w.jobs, j)
	w.log = append(w.log, fmt.Sprintf("%s submit %s %s %+v", w.now, j.ID, j.QOS, r))
}

// step decides until nobody is stopped any more, and looks at the result.
func (w *world) step() {
	for n := 0; ; n++ {
		if n > 200 {
			w.failf("jobs are stopped for ever at one instant")
		}
		plan := w.state.Step(w.now)
		for _, st := range plan.Starts {
			if st.Err != nil {
				w.failf("refused: %v", st.Err)
			}
			w.running[st.Job] = w.now + w.jobs[st.Job].Run
			w.log = append(w.log, fmt.Sprintf("%s start %s", w.now, w.jobs[st.Job].ID))
		}
		for _, r := range plan.Resumes {
			w.must(r.Err)
			w.running[r.Job] = w.now + w.rest[r.Job]
			delete(w.rest, r.Job)
			w.log = append(w.log, fmt.Sprintf("%s resume %s", w.now, w.jobs[r.Job].ID))
		}
		for _, s := range plan.Stops {
			if classOf(w.jobs[s.Job]) >= classOf(w.jobs[s.For]) {
				w.failf("job %s of %s is stopped for %s of %s", w.jobs[s.Job].ID, w.jobs[s.Job].QOS, w.jobs[s.For].ID, w.jobs[s.For].QOS)
			}
			w.log = append(w.log, fmt.Sprintf("%s stop %s for %s", w.now, w.jobs[s.Job].ID, w.jobs[s.For].ID))
			w.stops[s.Job]++
		}
		w.pending = append(w.pending, slices.Clone(plan.Stops)...)
		w.fits()
		if w.slow || len(w.pending) == 0 {
			break
		}
		for len(w.pending) > 0 {
			w.stopNow(0)
		}
	}
	if len(w.pending) == 0 {
		w.nobodyWaitsForLower()
	}
}

// stopNow does what was asked, unless the job has ended meanwhile.
func (w *world) stopNow(i int) {
	s := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	end, runs := w.running[s.Job]
	if !runs {
		return
	}
	delete(w.running, s.Job)
	switch s.How {
	case policy.Suspend:
		w.must(w.state.Suspended(s.Job))
		w.rest[s.Job] = max(end-w.now, 1)
	case policy.Requeue:
		w.must(w.state.Requeue(s.Job))
	case policy.Cancel:
		w.must(w.state.End(s.Job))
		w.done[s.Job] = true
	}
}

// fits adds up what running jobs hold, and what suspended ones keep.
func (w *world) fits() {
	cores, memory := make([]int, len(w.c.Nodes)), make([]int64, len(w.c.Nodes))
	devices := make([]uint64, len(w.c.Nodes))
	add := func(id policy.JobID, runs bool) {
		for _, p := range w.state.Allocation(id).Parts {
			memory[p.Node] += p.Memory
			if runs {
				if devices[p.Node]&p.GPUs != 0 {
					w.failf("a GPU is held twice")
				}
				cores[p.Node] += int(p.Cores)
				devices[p.Node] |= p.GPUs
			}
		}
	}
	for id := range w.running {
		add(id, true)
	}
	for id := range w.rest {
		add(id, false)
	}
	for i, n := range w.c.Nodes {
		if cores[i] > n.Cores || memory[i] > n.Memory {
			w.failf("node %s is oversubscribed: %d cores, %d bytes", n.Name, cores[i], memory[i])
		}
	}
}

// nobodyWaitsForLower: the first waiting job of the highest class that waits cannot
// start even if all jobs of lower classes were stopped.
func (w *world) nobodyWaitsForLower() {
	v := w.view()
	first := policy.JobID(-1)
	for id := range w.jobs {
		id := policy.JobID(id)
		if v.Waits(id) && (first < 0 || classOf(w.jobs[id]) > classOf(w.jobs[first]) ||
			classOf(w.jobs[id]) == classOf(w.jobs[first]) && v.Precedes(id, first)) {
			first = id
		}
	}
	if first < 0 || classOf(w.jobs[first]) == 0 {
		return
	}
	how := policy.Requeue
	if strings.Contains(w.what, "=suspend") {
		how = policy.Suspend
	}
	var lower []policy.Stop
	for id := range w.running {
		if classOf(w.jobs[id]) < classOf(w.jobs[first]) {
			lower = append(lower, policy.Stop{Job: id, How: how})
		}
	}
	if v.Suppose(lower, nil, v.Shape(first), w.mode) != nil {
		w.failf("%s of %s waits, though stopping lower classes would let it start: %s", w.jobs[first].ID, w.jobs[first].QOS, w.state.Why(first))
	}
}

func (w *world) view() *policy.View { return w.state.View() }

// play lets jobs come and go, and then waits for all to end.
func (w *world) play(jobs int) {
	idle := 0
	for len(w.jobs) < jobs || len(w.running)+len(w.rest)+w.state.Waiting() > 0 || len(w.pending) > 0 {
		w.now += time.Duration(w.rng.IntN(5)) * time.Second
		if len(w.jobs) < jobs && w.rng.IntN(2) == 0 {
			w.submit()
		}
		for len(w.pending) > 0 && w.rng.IntN(2) == 0 {
			w.stopNow(w.rng.IntN(len(w.pending)))
		}
		for _, id := range w.ending() {
			w.must(w.state.End(id))
			delete(w.running, id)
			w.done[id] = true
			w.log = append(w.log, fmt.Sprintf("%s end %s", w.now, w.jobs[id].ID))
		}
		w.step()
		if idle++; idle > 5000 {
			w.failf("jobs wait for ever: %d running, %d suspended, %d waiting", len(w.running), len(w.rest), w.state.Waiting())
		}
	}
	if len(w.done) != len(w.jobs) {
		w.failf("%d of %d jobs are over", len(w.done), len(w.jobs))
	}
	above := make([]int, 3)
	for _, j := range w.jobs {
		for c := range classOf(j) {
			above[c]++
		}
	}
	for id, n := range w.stops {
		if n > above[classOf(w.jobs[id])] {
			w.failf("job %s was stopped %d times, but there are only %d jobs of higher classes", w.jobs[id].ID, n, above[classOf(w.jobs[id])])
		}
	}
}

func (w *world) ending() (list []policy.JobID) {
	for id, end := range w.running {
		if end <= w.now {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// Under every policy and in every way of stopping: only lower classes are stopped, the
// first of the highest class waits only for its own kind or better, nothing is
// oversubscribed, all jobs end, and none is stopped more often than there are jobs above it.
func TestClassesPreempt(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for _, e := range catalog.Entries {
		for _, how := range []string{"suspend", "requeue", "cancel"} {
			for seed := range seeds {
				for _, slow := range []bool{false, true} {
					w := newWorld(t, fmt.Sprintf("%s:preempt=%s:qos=low<mid<high", e.Name, how), seed, slow)
					w.play(40)
				}
			}
		}
	}
}
