package policy

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
)

// agree compares the two books, node by node.
func (s *State) agree(t *testing.T) {
	t.Helper()
	for n := range s.ledger.nodes {
		truth, seen := &s.ledger.nodes[n], s.view.nodes[n]
		if s.view.hidden != nil {
			h := &s.view.hidden[n]
			if h.out != (truth.state != NodeUp) || h.broken != truth.broken {
				t.Fatalf("node %d is %v in the ledger, hidden: %v", n, truth.state, h.out)
			}
			if h.out && (seen.cores != 0 || seen.memory != 0) || h.out && seen.gpus != 0 {
				t.Fatalf("node %d is %v, and %+v of it is free in the view", n, truth.state, seen)
			}
			seen.cores, seen.memory, seen.gpus = seen.cores+h.cores, seen.memory+h.memory, seen.gpus|h.gpus
		}
		if seen.cores != truth.cores || seen.memory != truth.memory || seen.gpus != truth.gpus || seen.closed != truth.closed {
			t.Fatalf("node %d: the view has %+v, the ledger %+v", n, seen, *truth)
		}
	}
	cores, gpus := int64(0), int64(0)
	for n := range s.view.nodes {
		cores += int64(s.view.nodes[n].cores)
		gpus += int64(len(devicesOf(s.view.nodes[n].gpus)))
	}
	if cores != s.view.freeCores || gpus != s.view.freeGPUs {
		t.Fatalf("the sums are %d cores and %d GPUs, not %d and %d", s.view.freeCores, s.view.freeGPUs, cores, gpus)
	}
}

func devicesOf(set uint64) (list []int) {
	for d := range 64 {
		if set>>d&1 != 0 {
			list = append(list, d)
		}
	}
	return list
}

// submit and step, or fail.
func (s *State) mustSubmit(t *testing.T, r model.Request) JobID {
	t.Helper()
	id, err := s.Submit(&model.Job{ID: "j", Run: 10, Request: r})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// firstFit starts whatever fits.
func firstFitter() *scripted {
	return &scripted{propose: func(v *View, p *Plan) {
		for c := v.Queue(); ; {
			id, _, ok := c.Next()
			if !ok {
				return
			}
			if a := v.Place(v.Shape(id), Sharing); a != nil {
				p.Start(id, a, Reason{})
			}
		}
	}}
}

// TestTheLedgerRefusesWhatIsOut: a policy that places a job on a node that drains, or
// on a device that is broken, is refused by both books.
func TestTheLedgerRefusesWhatIsOut(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(s *State) error
		want string
	}{
		{"draining", func(s *State) error { return s.SetNode(1, NodeDraining) }, "node n1 is draining"},
		{"down", func(s *State) error { return s.SetNode(1, NodeDown) }, "node n1 is down"},
		{"broken", func(s *State) error { return s.SetDevice(1, 0, false) }, "GPU 0 of node n1 is out of order"},
	} {
		started := false
		p := &scripted{}
		s := NewState(small(), p)
		id := s.mustSubmit(t, model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1})
		must(t, tc.do(s))
		p.propose = func(v *View, plan *Plan) {
			started = plan.Start(id, alloc(model.Part{Node: 1, Cores: 1, GPUs: 1}), Reason{})
		}
		if s.Step(0); started {
			t.Errorf("%s: the view let it pass", tc.name)
		}
		// And if the view is cheated, the ledger is not.
		p.propose = func(v *View, plan *Plan) {
			v.setOut(1, false)
			v.setBroken(1, 0, false)
			plan.Start(id, alloc(model.Part{Node: 1, Cores: 1, GPUs: 1}), Reason{})
		}
		if plan := s.Step(1); len(plan.Starts) != 1 || plan.Starts[0].Err == nil || !strings.Contains(plan.Starts[0].Err.Error(), tc.want) {
			t.Errorf("%s: the ledger says %v, want %q", tc.name, plan.Starts[0].Err, tc.want)
		}
	}
}

// TestImpossibleBecomesPossible: Submit's answer is about the nodes there are.
func TestImpossibleBecomesPossible(t *testing.T) {
	s := NewState(&model.Cluster{}, firstFitter())
	for _, r := range []model.Request{
		{Nodes: 1, CoresPerNode: 8}, {Nodes: 1, NodeList: []string{"big"}}, {Nodes: 1, GPUs: 1, GPUType: "x"}, {Nodes: 1, GPUs: 2},
	} {
		if _, err := s.Submit(&model.Job{ID: "j", Request: r}); !errors.Is(err, ErrImpossible) {
			t.Errorf("%+v on no nodes: %v", r, err)
		}
	}
	n, err := s.AddNode(model.Node{Name: "big", Cores: 8, Memory: 10, GPUs: []int{0}}, model.GPUType{Name: "x", Memory: 5, Speed: 1})
	must(t, err)
	must(t, s.SetNode(n, NodeDown)) // up or not
	for _, r := range []model.Request{{Nodes: 1, CoresPerNode: 2}, {Nodes: 1, NodeList: []string{"big"}}, {Nodes: 1, GPUs: 1, GPUType: "x"}} {
		s.mustSubmit(t, r)
	}
	two := &model.Job{ID: "two", Request: model.Request{Nodes: 1, GPUs: 2}}
	if _, err := s.Submit(two); !errors.Is(err, ErrImpossible) {
		t.Errorf("two GPUs of one: %v", err)
	}
	must(t, s.AddDevices(n, []int{0}))
	if _, err := s.Submit(two); err != nil {
		t.Error(err)
	}
	if plan := s.Step(0); len(plan.Starts) != 0 {
		t.Errorf("%d jobs were started on a node that is down", len(plan.Starts))
	}
	must(t, s.SetNode(n, NodeUp))
	if plan := s.Step(1); len(plan.Starts) != 3 {
		t.Errorf("%d jobs were started, want 3: two GPUs are not enough for all", len(plan.Starts))
	}
	s.agree(t)
}

func TestNodesThatMakeNoSense(t *testing.T) {
	s := NewState(small(), firstFitter())
	for _, tc := range []struct {
		node  model.Node
		types []model.GPUType
		want  string
	}{
		{model.Node{Name: "n1", Cores: 1}, nil, `there is a node "n1" already`},
		{model.Node{Name: "x"}, nil, "cores must be between"},
		{model.Node{Cores: 1}, nil, "no name"},
		{model.Node{Name: "x", Cores: 1, GPUs: []int{2}}, nil, "GPU type 2 is not described"},
		{model.Node{Name: "x", Cores: 1, GPUs: []int{1}}, []model.GPUType{{Name: "a", Memory: 8, Speed: 1}}, "GPU type 1 is not described"},
		{model.Node{Name: "x", Cores: 1, GPUs: []int{0}}, []model.GPUType{{Name: "a", Memory: 9, Speed: 1}}, "known with other properties"},
		{model.Node{Name: "x", Cores: 1, GPUs: []int{0}}, []model.GPUType{{Name: "z", Memory: 9}}, "speed must be"},
	} {
		if _, err := s.AddNode(tc.node, tc.types...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.node, err, tc.want)
		}
	}
	if err := s.AddDevices(0, make([]int, 63)); err == nil {
		t.Error("a node has 65 devices")
	}
	if len(s.cluster.Nodes) != 3 || len(s.cluster.GPUTypes) != 2 || len(s.view.nodes) != 3 {
		t.Error("something of it stayed")
	}
}

// TestReservationsDoNotCountOnNodesThatGo: what a job on a draining node will
// give back is for nobody.
func TestReservationsDoNotCountOnNodesThatGo(t *testing.T) {
	p := &scripted{}
	s := NewState(small(), p)
	var ids []JobID
	for range 3 {
		ids = append(ids, s.mustSubmit(t, model.Request{Nodes: 1, CoresPerNode: 4, GPUs: 2}))
	}
	p.propose = func(v *View, plan *Plan) {
		for i, id := range ids {
			plan.Start(id, alloc(model.Part{Node: int32(i), Cores: 4, GPUs: 3}), Reason{})
		}
	}
	s.Step(0)
	wants := []model.Request{
		{Nodes: 3, CoresPerNode: 4},                      // plain
		{Nodes: 3, CoresPerNode: 4, Contiguous: true},    // by trial
		{Nodes: 1, Remote: &model.RemoteGPUs{Count: 6}},  // devices of all
		{Nodes: 1, CoresPerNode: 1, GPUs: 1, Memory: 50}, // any one node
	}
	for i, want := range []time.Duration{Never, Never, Never, 10} {
		id := s.mustSubmit(t, wants[i])
		at, late := time.Duration(0), time.Duration(0)
		p.propose = func(v *View, plan *Plan) {
			at = v.ReserveEarliest(v.Shape(id), Never)
			late, _ = NewProfileOf(v).Earliest(v.Shape(id), 5, v.Now(), Never)
		}
		if s.Step(1); at != 10 || late != 10 {
			t.Fatalf("%+v could start at %v or %v, want 10ns", wants[i], at, late)
		}
		must(t, s.SetNode(1, NodeDraining))
		if s.Step(2); at != want || want == Never && late != 0 || want != Never && late != want {
			t.Errorf("%+v with a node draining: %v and %v, want %v", wants[i], at, late, want)
		}
		must(t, s.SetNode(1, NodeUp))
		must(t, s.Cancel(id))
	}
	s.agree(t)
}

// NewProfileOf is a profile with what runs.
func NewProfileOf(v *View) *Profile {
	p := NewProfile(v)
	p.At(v.Now())
	for _, id := range v.Running() {
		p.Hold(id, v.Held(id), v.Now(), v.ExpectedEnd(id))
	}
	return p
}

// TestMove follows a job that is to be moved: it is suspended, and then in the queue again or, if its driver
// cannot move it, stays what it is and is not proposed again.
func TestMove(t *testing.T) {
	p := firstFitter()
	s := NewState(small(), p)
	low := s.mustSubmit(t, model.Request{Nodes: 3, CoresPerNode: 4, Memory: 60, GPUs: 1})
	s.Step(0)
	start, want := p.propose, true
	move := func(v *View, plan *Plan) {
		if plan.Stop(low, Move, -1) != want {
			t.Errorf("that it is moved is proposed: %v", !want)
		}
	}
	p.propose = move
	s.Step(1)
	must(t, s.Suspended(low))
	s.Step(2) // one that is suspended can be moved, too
	want = false
	s.Step(3)
	must(t, s.Stays(low))
	s.Step(4)
	must(t, s.Resumed(low))
	s.Step(5)
	if err := s.Stays(low); err == nil {
		t.Error("one that runs stays")
	}
	must(t, s.Suspended(low))
	must(t, s.Requeue(low))
	s.agree(t)
	p.propose = start
	if plan := s.Step(6); len(plan.Starts) != 1 {
		t.Fatalf("%+v", plan.Starts)
	}
	p.propose, want = move, true
	s.Step(7)
	s.agree(t)
}

// TestParked: a suspended job that is to be left alone is neither resumed nor moved, before its driver says that
// it runs again, or stays where it is.
func TestParked(t *testing.T) {
	p := firstFitter()
	s := NewState(small(), p)
	id := s.mustSubmit(t, model.Request{Nodes: 1, CoresPerNode: 1})
	s.Step(0)
	if s.Parked(id) == nil {
		t.Error("one that runs is parked")
	}
	now, parked := time.Duration(0), false
	p.propose = func(v *View, plan *Plan) {
		m := plan.Mark()
		if v.Parked(id) != parked || plan.Resume(id) == parked {
			t.Errorf("at %d it is parked %v, and resumed all the same", now, v.Parked(id))
		}
		plan.UndoTo(m)
		if parked && plan.Stop(id, Move, -1) {
			t.Errorf("at %d it is moved", now)
		}
	}
	step := func() {
		t.Helper()
		now++
		s.Step(now)
		s.agree(t)
	}
	must(t, s.Suspended(id))
	step()
	must(t, s.Parked(id))
	parked = true
	step()
	must(t, s.Stays(id))
	parked = false
	step()
	must(t, s.Parked(id))
	must(t, s.Resumed(id))
	must(t, s.Suspended(id))
	step()
	must(t, s.Parked(id))
	must(t, s.Requeue(id))
	p.propose = firstFitter().propose
	step()
	must(t, s.Suspended(id))
	if s.view.Parked(id) {
		t.Error("it is parked still, although it has been requeued")
	}
}

// TestStopAndResume follows a job that makes way for another.
func TestStopAndResume(t *testing.T) {
	p := firstFitter()
	s := NewState(small(), p)
	low := s.mustSubmit(t, model.Request{Nodes: 3, CoresPerNode: 4, Memory: 60, GPUs: 1})
	s.Step(0)
	high := s.mustSubmit(t, model.Request{Nodes: 1, CoresPerNode: 2, Memory: 40})
	start := p.propose
	p.propose = func(v *View, plan *Plan) {
		if !plan.Stop(low, Suspend, high) || plan.Stop(low, Requeue, high) || plan.Stop(high, Cancel, -1) || plan.Stop(99, Cancel, -1) || plan.Resume(low) {
			t.Error("a job is stopped once, while it runs")
		}
	}
	plan := s.Step(1)
	if len(plan.Stops) != 1 || plan.Stops[0].Reason.Text(plan.View()) != "it makes way for job j" || s.view.freeCores != 0 {
		t.Fatalf("%+v, %d cores are free", plan.Stops, s.view.freeCores)
	}
	p.propose = func(v *View, plan *Plan) {
		if plan.Stop(low, Suspend, high) {
			t.Error("a job that is being stopped was proposed again")
		}
	}
	s.Step(2)
	must(t, s.Suspended(low))
	s.agree(t)
	p.propose = start
	if plan := s.Step(3); len(plan.Starts) != 1 || plan.Starts[0].Job != high {
		t.Fatalf("%+v", plan.Starts)
	}
	// Its memory is still there: only 40 bytes are left of each node.
	s.mustSubmit(t, model.Request{Nodes: 3, CoresPerNode: 1, Memory: 41})
	if plan := s.Step(4); len(plan.Starts) != 0 {
		t.Fatal("a suspended job lost its memory")
	}
	if err := s.Resumed(low); err == nil || !strings.Contains(err.Error(), "others have the cores of node n0") {
		t.Fatalf("resumed beside another: %v", err)
	}
	p.propose = func(v *View, plan *Plan) {
		if plan.Resume(low) {
			t.Error("resumed beside another")
		}
	}
	s.Step(5)
	must(t, s.End(high))
	p.propose = func(v *View, plan *Plan) {
		if !plan.Resume(low) || plan.Resume(low) {
			t.Error("it is resumed once")
		}
		start(v, plan)
	}
	plan = s.Step(6)
	if len(plan.Resumes) != 1 || plan.Resumes[0].Err != nil || len(plan.Starts) != 0 || s.view.freeCores != 0 {
		t.Fatalf("%+v, %d cores are free", plan, s.view.freeCores)
	}
	s.agree(t)
	must(t, s.Suspended(low)) // the driver could not
	p.propose = func(v *View, plan *Plan) { plan.Resume(low) }
	s.Step(7)
	must(t, s.Resumed(low))
	if end := s.view.ExpectedEnd(low); end != 15 { // 8 of 10 were left when it was suspended, at instant 2, and again at 6
		t.Errorf("expected to end at %d", end)
	}
	must(t, s.Requeue(low))
	if s.Waiting() != 2 {
		t.Errorf("%d jobs wait", s.Waiting())
	}
	s.agree(t)
}

// TestBooksAgree takes random steps with everything that can happen, and compares
// the books, the indexes and the queue after each.
func TestBooksAgree(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p := firstFitter()
		s := NewState(small(), p)
		for range 150 {
			s.mustSubmitAny(rng)
			s.jobs.each(func(id JobID, e *jobEntry) {
				if rng.IntN(3) > 0 {
					return
				}
				tell := []func(JobID) error{s.End, s.Requeue, s.Suspended, s.Resumed, s.Cancel, s.Stays, s.Parked}[rng.IntN(7)]
				_ = tell(id) // right or wrong
			})
			n := int32(rng.IntN(len(s.cluster.Nodes)))
			_ = s.SetNode(n, NodeState(rng.IntN(4)))
			_ = s.SetDevice(n, rng.Int32N(3), rng.IntN(2) == 0)
			if rng.IntN(20) == 0 {
				if _, err := s.AddNode(model.Node{Name: string(rune('A' + len(s.cluster.Nodes))), Cores: 1 + rng.IntN(80), Memory: 100, GPUs: []int{0, 1}}); err != nil {
					t.Fatal(err)
				}
			}
			s.Step(s.view.now + 1)
			s.agree(t)
			s.checkIndexes(t)
		}
	}
}

func (s *State) mustSubmitAny(rng *rand.Rand) {
	r := model.Request{Nodes: 1 + rng.IntN(3), CoresPerNode: 1 + rng.IntN(4), Memory: rng.Int64N(60), GPUs: rng.IntN(3), Exclusive: rng.IntN(5) == 0}
	switch rng.IntN(4) {
	case 0:
		r.Remote = &model.RemoteGPUs{Count: 1 + rng.IntN(2), Memory: 3, Shared: true}
	case 1:
		r.Remote = &model.RemoteGPUs{Count: 1 + rng.IntN(2)}
	}
	_, _ = s.Submit(&model.Job{ID: "j", Run: time.Duration(rng.IntN(9)), Request: r})
}

// checkIndexes holds the ladders to what counting says.
func (s *State) checkIndexes(t *testing.T) {
	t.Helper()
	for n := range int32(len(s.view.nodes)) {
		node := &s.view.nodes[n]
		for _, l := range []struct {
			*ladder
			has int64
		}{{&s.view.coreSteps, int64(node.cores)}, {&s.view.memorySteps, node.memory}, {&s.view.gpuSteps, int64(len(devicesOf(node.gpus)))}} {
			for _, step := range l.steps {
				if l.atLeast(step).has(n) != (l.has >= step) {
					t.Fatalf("node %d has %d, and the index says otherwise for %d", n, l.has, step)
				}
			}
		}
		if s.view.unhosted.has(n) != (node.hosted == 0) {
			t.Fatalf("node %d hosts %d jobs", n, node.hosted)
		}
	}
	queued := 0
	for c := s.view.Queue(); ; queued++ {
		if id, _, ok := c.Next(); !ok {
			break
		} else if s.jobs.at(id).status != waiting {
			t.Fatalf("job %d is in the queue, and does not wait", id)
		}
	}
}

// TestManyJobsLeaveMemory: what is kept does not grow with the jobs that are over.
// With 10 million jobs it is the same, and takes longer.
func TestManyJobsLeaveMemory(t *testing.T) {
	jobs := 3_000_000
	if testing.Short() {
		jobs = 300_000
	}
	s := NewState(small(), &scripted{propose: func(v *View, p *Plan) {
		for _, id := range v.Arrived() {
			p.Start(id, alloc(part(0, 1)), Reason{})
		}
	}})
	j := &model.Job{ID: "j", Request: model.Request{Nodes: 1, CoresPerNode: 1}}
	old, err := s.Submit(&model.Job{ID: "old", Request: model.Request{Nodes: 3, CoresPerNode: 4}}) // waits for ever
	must(t, err)
	size := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := uint64(0)
	for i := range jobs {
		_, err := s.Submit(j)
		must(t, err)
		if i%100 == 0 {
			for _, st := range s.Step(time.Duration(i)).Starts {
				if st.Err == nil {
					must(t, s.End(st.Job))
				}
			}
		}
		if s.Waiting() > 1000 {
			id, _, _ := firstBehind(s, old)
			must(t, s.Cancel(id))
		}
		if i == jobs/10 {
			before = size()
		}
	}
	pages := 0
	for _, p := range s.jobs.pages {
		if p != nil {
			pages++
		}
	}
	if after := size(); pages > 8 || after > before+before/4+1<<20 {
		t.Errorf("%d pages are in use, %d bytes after a tenth of the jobs and %d in the end", pages, before, after)
	}
	if err := s.End(5); err == nil || !strings.Contains(err.Error(), "job number 5 is over") {
		t.Errorf("the end of a job that is long over: %v", err)
	}
	runtime.KeepAlive(s)
}

// firstBehind is the first job in the queue that is not a given one.
func firstBehind(s *State, not JobID) (JobID, int64, bool) {
	c := s.view.Queue()
	id, key, ok := c.Next()
	if id == not {
		return c.Next()
	}
	return id, key, ok
}

// TestLateCallsAreErrors tells what was told before.
func TestLateCallsAreErrors(t *testing.T) {
	s := NewState(small(), firstFitter())
	id := s.mustSubmit(t, model.Request{Nodes: 1, CoresPerNode: 1})
	for _, tell := range []func(JobID) error{s.End, s.Requeue, s.Suspended, s.Resumed, s.Stays, s.Parked} {
		if tell(id) == nil || tell(id+1) == nil || tell(-1) == nil {
			t.Error("a job that waits, or does not exist, holds nothing")
		}
	}
	s.Step(0)
	if s.Cancel(id) == nil || s.Resumed(id) == nil {
		t.Error("it runs")
	}
	must(t, s.End(id))
	for range 2 {
		if s.End(id) == nil || s.Requeue(id) == nil || s.Cancel(id) == nil || s.Rank(id, 3) == nil {
			t.Error("it is over")
		}
		s.Step(1)
	}
	s.agree(t)
	if !slices.Equal(s.view.left, []JobID{}) {
		t.Error("there is something left to tell")
	}
}
