package slurm_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/policy"
	"muster/policy/catalog"
	"muster/slurm"
	"muster/slurm/words"
)

// fake is a Slurm in virtual time, in which everything may go wrong.
type fake struct {
	t      testing.TB
	random *rand.Rand
	now    time.Duration
	next   uint64
	jobs   map[uint64]*fakeJob
	order  []uint64
	nodes  []slurm.Node
	free   map[string]int
	late   []late // requests that are carried out after the driver has its answer
	ended  map[uint64]int
	// faults is how likely things go wrong, from 0 to 1.
	faults float64
	// saved is what slurmctld has saved, which it does every few seconds; forgotten are the jobs
	// that were submitted after that when it was killed.
	saved     saved
	forgotten map[uint64]bool
	// lends says which nodes lend two GPUs each that Slurm does not know; nil if Slurm knows them.
	lends map[string]bool
	// alone says that all jobs are Muster's: no other job takes what it has freed.
	alone bool
}

type fakeJob struct {
	slurm.Job
	run, end time.Duration
	left     time.Duration // how long it still has to run, while it is suspended
}

// saved is the state of a slurmctld at one time.
type saved struct {
	at    time.Duration
	jobs  map[uint64]fakeJob
	ended map[uint64]int
}

type late struct {
	at time.Duration
	do func()
}

func newFake(t testing.TB, seed uint64, nodes, cpus, gpus int) *fake {
	f := &fake{t: t, random: rand.New(rand.NewPCG(seed, 7)), now: 1_800_000_000 * time.Second, next: 1, jobs: map[uint64]*fakeJob{}, free: map[string]int{}, ended: map[uint64]int{}, forgotten: map[uint64]bool{}}
	for i := range nodes {
		n := slurm.Node{Name: fmt.Sprintf("n%d", i+1), CPUs: cpus, Memory: 1 << 34, Threads: 1, GPUs: gpus, States: []string{"IDLE"}}
		f.nodes = append(f.nodes, n)
		f.free[n.Name] = cpus
	}
	return f
}

// submit adds a job, held if it is Muster's.
func (f *fake) submit(comment string, nodes, cpus int, run time.Duration) *fakeJob {
	j := &fakeJob{run: run, Job: slurm.Job{
		ID: f.next, Name: "job", User: "ann", Partition: "main", State: "PENDING", Submitted: f.now, AdminComment: comment,
		Held: comment != "", MinNodes: nodes, MaxNodes: nodes, CPUs: nodes * cpus, Tasks: nodes * cpus, CPUsPerTask: 1, TimeLimit: time.Hour,
	}}
	if j.Held {
		j.Reason = "JobHeldUser"
	}
	f.next++
	f.jobs[j.ID] = j
	f.order = append(f.order, j.ID)
	return j
}

// picture is what Slurm says now.
func (f *fake) picture() *slurm.Picture {
	p := &slurm.Picture{Asked: f.now, Nodes: slices.Clone(f.nodes), Partitions: []slurm.Partition{{Name: "main", Nodes: fmt.Sprintf("n[1-%d]", len(f.nodes)), Up: true}}, Reservations: []slurm.Reservation{}}
	for _, id := range f.order {
		if j := f.jobs[id]; j != nil {
			p.Jobs = append(p.Jobs, j.Job)
		}
	}
	if f.lends != nil {
		p.Lenders = []slurm.Lender{}
	}
	for _, n := range f.nodes {
		if f.lends[n.Name] {
			gpu := slurm.LentGPU{Name: "gpu", Memory: 16 << 30, Speed: 1, Up: true}
			p.Lenders = append(p.Lenders, slurm.Lender{Node: n.Name, GPUs: []slurm.LentGPU{gpu, gpu}})
		}
	}
	return p
}

// up says whether Slurm starts jobs on a node.
func (f *fake) up(name string) bool {
	i := slices.IndexFunc(f.nodes, func(n slurm.Node) bool { return n.Name == name })
	return f.nodes[i].States[0] == "IDLE" && len(f.nodes[i].States) == 1
}

// tick ends and starts the jobs that are due.
func (f *fake) tick(d time.Duration) {
	f.now += d
	for i := 0; i < len(f.late); {
		if l := f.late[i]; l.at <= f.now {
			f.late = slices.Delete(f.late, i, i+1)
			l.do()
		} else {
			i++
		}
	}
	for _, id := range f.order {
		j := f.jobs[id]
		switch {
		case j == nil:
		case j.State == "RUNNING" && j.end <= f.now:
			f.stop(j)
			j.State = "COMPLETED"
			f.ended[id]++
		case j.State == "PENDING" && !j.Held && j.Eligible <= f.now:
			f.start(j)
		case j.State == "COMPLETED" && j.end+30*time.Second < f.now:
			delete(f.jobs, id) // Slurm forgets it
		}
	}
}

// save makes slurmctld save its state.
func (f *fake) save() {
	f.saved = saved{at: f.now, jobs: map[uint64]fakeJob{}, ended: maps.Clone(f.ended)}
	for id, j := range f.jobs {
		f.saved.jobs[id] = *j
	}
}

// killController kills slurmctld and starts it again: what it had not saved never happened. Jobs
// that have ended since then seem to run until Slurm finds out that they do not.
func (f *fake) killController() {
	f.late = nil
	f.ended = maps.Clone(f.saved.ended)
	for _, id := range f.order {
		was, known := f.saved.jobs[id]
		switch j := f.jobs[id]; {
		case known && j != nil:
			*j = was
		case known:
			f.jobs[id] = &was
		default:
			delete(f.jobs, id)
			f.forgotten[id] = true
		}
	}
	for _, n := range f.nodes {
		f.free[n.Name] = n.CPUs
	}
	for _, j := range f.jobs {
		for _, u := range j.Uses {
			f.free[u.Node] -= u.CPUs
		}
		if j.State == "RUNNING" && j.end <= f.now {
			j.end = f.now + time.Duration(1+f.random.IntN(60))*time.Second
		}
	}
}

func (f *fake) stop(j *fakeJob) {
	for _, u := range j.Uses {
		f.free[u.Node] += u.CPUs
	}
	j.Uses = nil
}

// start starts a job on the nodes that it names, or on any.
func (f *fake) start(j *fakeJob) {
	cpus := j.CPUs / j.MinNodes
	var on []string
	if j.Required != "" {
		on = strings.Split(j.Required, ",")
	} else {
		for _, n := range f.nodes {
			if len(on) < j.MinNodes && f.free[n.Name] >= cpus && f.up(n.Name) {
				on = append(on, n.Name)
			}
		}
	}
	if len(on) != j.MinNodes {
		j.Reason = "Resources"
		return
	}
	give := make([]int, len(on))
	for i := range give {
		give[i] = cpus
	}
	if len(on) > 1 && j.MinCPUsPerNode <= 1 && j.Required != "" { // nothing is pinned: everything that is free on the first, then on the next
		slices.Sort(on)
		rest := j.CPUs
		for i, n := range on {
			give[i] = max(1, min(f.free[n], rest-(len(on)-1-i)))
			rest -= give[i]
		}
		if rest > 0 {
			j.Reason = "Resources"
			return
		}
	}
	for i, n := range on {
		if f.free[n] < give[i] || !f.up(n) {
			j.Reason = "Resources"
			if !f.up(n) {
				j.Reason = "ReqNodeNotAvail"
			}
			return
		}
	}
	j.State, j.Reason, j.Started, j.end = "RUNNING", "None", f.now, f.now+j.run
	j.Nodes = strings.Join(on, ",")
	for i, n := range on {
		f.free[n] -= give[i]
		j.Uses = append(j.Uses, slurm.Use{Node: n, CPUs: give[i]})
	}
}

// halt stops a job as Slurm does: a suspended one gives its processors back and stays on its nodes.
func (f *fake) halt(j *fakeJob, s slurm.Stop) {
	if j.State != "RUNNING" && (j.State != "SUSPENDED" || s.How == policy.Suspend) {
		return
	}
	asleep := j.State == "SUSPENDED"
	if s.How == policy.Suspend {
		for _, u := range j.Uses {
			f.free[u.Node] += u.CPUs
		}
		j.State, j.Held, j.AdminComment, j.left = "SUSPENDED", true, s.Comment, j.end-f.now
		return
	}
	if !asleep {
		f.stop(j)
	}
	j.Uses = nil
	if s.How == policy.Cancel {
		j.State, j.end = "COMPLETED", f.now
		f.ended[j.ID]++
		return
	}
	j.State, j.Held, j.Reason, j.Restarts, j.Eligible = "PENDING", true, "job requeued in held state", j.Restarts+1, f.now+20*time.Second
}

// resume resumes a suspended job. Slurm does not check whether others have its processors.
func (f *fake) resume(j *fakeJob, comment string) {
	if j.State != "SUSPENDED" {
		return
	}
	for _, u := range j.Uses {
		if f.free[u.Node] -= u.CPUs; f.free[u.Node] < 0 && f.alone {
			f.t.Errorf("job %d goes on, and others have its processors on %s", j.ID, u.Node)
		}
	}
	j.State, j.Held, j.AdminComment, j.end = "RUNNING", false, comment, f.now+j.left
}

// request applies a function to a pending job.
func (f *fake) request(c *slurm.Core, id uint64, do func(j *fakeJob)) {
	f.ask(c, id, func(j *fakeJob) {
		if j.State == "PENDING" {
			do(j)
		}
	})
}

// ask carries a request out, or does not, and returns what the driver is told.
func (f *fake) ask(c *slurm.Core, id uint64, do func(j *fakeJob)) {
	apply := func() {
		if j := f.jobs[id]; j != nil {
			do(j)
		}
	}
	fate, err := slurm.Done, error(nil)
	if f.random.Float64() < f.faults {
		err = fmt.Errorf("made up")
		switch f.random.IntN(4) {
		case 0:
			fate = slurm.Refused
		case 1:
			fate = slurm.Unknown
			apply()
		case 2:
			fate = slurm.Unknown
			f.late = append(f.late, late{f.now + time.Duration(f.random.IntN(2900))*time.Millisecond, apply})
		case 3:
			fate = slurm.Unknown
		}
	} else {
		apply()
	}
	if c != nil {
		c.Told(f.now, id, fate, err)
	}
}

// perform carries out the core's requests. A driver that dies half-way carries out some of them,
// and is told nothing.
func (f *fake) perform(c *slurm.Core, e slurm.Effects, dies bool) {
	told := c
	if dies {
		told = nil
		e.Places = e.Places[:f.random.IntN(len(e.Places)+1)]
		e.Recalls, e.Handovers, e.Splits = nil, nil, nil
		e.Stops, e.Resumes = e.Stops[:f.random.IntN(len(e.Stops)+1)], e.Resumes[:f.random.IntN(len(e.Resumes)+1)]
	}
	for _, p := range e.Places {
		f.checkBorrows(&p)
		f.request(told, p.Job.ID, func(j *fakeJob) {
			// A user may have released it meanwhile.
			if was, err := words.Parse(j.AdminComment); err != nil || !j.Held && was.Answer.For(j.ID, j.Restarts) {
				f.t.Errorf("job %d is placed twice", j.ID)
			}
			j.Required, j.AdminComment, j.Held, j.Reason = strings.Join(p.Nodes, ","), p.Comment, false, "None"
			j.MinNodes, j.MaxNodes, j.MinCPUsPerNode = len(p.Nodes), len(p.Nodes), p.CPUsPerNode
		})
	}
	for _, r := range e.Recalls {
		f.request(told, r.ID, func(j *fakeJob) { j.Held, j.Reason = true, "JobHeldUser" })
	}
	for _, h := range e.Handovers {
		f.request(told, h.Job.ID, func(j *fakeJob) { j.Held, j.AdminComment, j.Reason = false, h.Comment, "None" })
	}
	for _, s := range e.Stops {
		f.ask(told, s.Job.ID, func(j *fakeJob) { f.halt(j, s) })
	}
	for _, s := range e.Resumes {
		f.ask(told, s.Job.ID, func(j *fakeJob) { f.resume(j, s.Comment) })
	}
	for _, s := range e.Comments {
		if j := f.jobs[s.Job.ID]; j != nil {
			j.AdminComment = s.Comment
		}
	}
}

// checkBorrows checks that a job gets as many GPUs as it asks for, of nodes that lend.
func (f *fake) checkBorrows(p *slurm.Place) {
	f.t.Helper()
	c, err := words.Parse(p.Comment)
	if err != nil {
		f.t.Fatal(err)
	}
	n := 0
	for _, list := range p.Borrows {
		for _, b := range list {
			if n++; f.lends != nil && !f.lends[b.Node] {
				f.t.Errorf("job %d gets GPU %s, which nobody lends", p.Job.ID, b.Device)
			}
		}
	}
	if n != c.Request.GPUs || len(c.Answer.Devices) != n {
		f.t.Errorf("job %d gets %d GPUs: %s", p.Job.ID, n, p.Comment)
	}
}

// check finds GPUs that two jobs borrow at the same time.
func (f *fake) check() {
	f.t.Helper()
	owner := map[words.Device]uint64{}
	shares := map[words.Device]int64{}
	for _, id := range f.order {
		j := f.jobs[id]
		if j == nil || j.State == "COMPLETED" || j.State == "PENDING" && j.Held {
			continue
		}
		c, err := words.Parse(j.AdminComment)
		if err != nil {
			f.t.Fatal(err)
		}
		if !c.Answer.For(j.ID, j.Restarts) {
			continue
		}
		for _, d := range c.Answer.Devices {
			if c.Request.Shares() {
				if shares[d] += c.Request.MemoryMB; shares[d] > 16<<10 || owner[d] != 0 {
					f.t.Errorf("job %d has a share of GPU %s, of which others have too much", j.ID, d)
				}
				continue
			}
			if owner[d] != 0 || shares[d] > 0 {
				f.t.Errorf("jobs %d and %d both have GPU %s", owner[d], j.ID, d)
			}
			owner[d] = j.ID
		}
	}
}

func newCore(t testing.TB, spec string, lending bool) *slurm.Core {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return slurm.New(slurm.Config{Lending: lending}, p)
}

// mishap does something that users, administrators and hardware do.
func (f *fake) mishap() {
	n := &f.nodes[f.random.IntN(len(f.nodes))]
	switch f.random.IntN(7) {
	case 6:
		f.killController()
	case 0:
		n.States = []string{"IDLE", "DRAIN"}
	case 1, 2:
		n.States = []string{"IDLE"}
	case 3: // a node dies, and its jobs are requeued
		for _, id := range f.order {
			if j := f.jobs[id]; j != nil && j.State == "RUNNING" && slices.Contains(strings.Split(j.Nodes, ","), n.Name) {
				f.stop(j)
				j.State, j.Reason, j.Restarts, j.Eligible = "PENDING", "BeginTime", j.Restarts+1, f.now+20*time.Second
			}
		}
	case 4: // a user releases a job, which asks for nothing that Slurm does not have
		for _, id := range f.order {
			if j := f.jobs[id]; j != nil && j.Held && j.State == "PENDING" && j.AdminComment == "muster:req" {
				j.Held, j.Reason = false, "None"
				return
			}
		}
	case 5: // a user cancels a job
		for _, id := range f.order {
			if j := f.jobs[id]; j != nil && j.State == "PENDING" && f.random.IntN(10) == 0 {
				j.State, j.end = "COMPLETED", f.now
				f.ended[id]++
				return
			}
		}
	}
}

// Everything goes wrong, and drivers die all the time: no GPU has two borrowers, no job is placed
// twice, and when all is calm again every job ends, once.
func TestNothingIsLostOrBookedTwice(t *testing.T) {
	runs := need.Rounds(6, 40)
	for i := range runs {
		for _, spec := range []string{"easy", "first-fit"} {
			seed := uint64(i)
			t.Run(fmt.Sprintf("%s/%d", spec, seed), func(t *testing.T) { live(t, seed, spec, false) })
			t.Run(fmt.Sprintf("%s/%d/lenders", spec, seed), func(t *testing.T) { live(t, seed, spec, true) })
		}
	}
}

func live(t *testing.T, seed uint64, spec string, lending bool) {
	f := newFake(t, seed, 6, 4, 2)
	f.faults = 0.2
	if lending {
		f.lends = map[string]bool{}
		for i := range f.nodes {
			f.nodes[i].GPUs = 0
		}
	}
	c := newCore(t, spec, lending)
	var all []uint64
	for step := range 400 {
		if step < 200 {
			if f.random.IntN(2) == 0 {
				comment := []string{"muster:req", "muster:req rgpu=1", "muster:req rgpu=3", "muster:req rgpu=1 mem=4096M mode=shar", "", "muster:req rgpu=2 mem=4096M"}[f.random.IntN(6)]
				all = append(all, f.submit(comment, 1+f.random.IntN(2), 1+f.random.IntN(4), time.Duration(1+f.random.IntN(20))*time.Second).ID)
			}
			if f.now-f.saved.at > 5*time.Second {
				f.save()
			}
			if f.random.IntN(8) == 0 {
				f.mishap()
			}
			if lending && f.random.IntN(4) == 0 {
				f.lends[f.nodes[f.random.IntN(len(f.nodes))].Name] = f.random.IntN(3) > 0
			}
		} else {
			f.faults = 0
			for i := range f.nodes {
				f.nodes[i].States = []string{"IDLE"}
				if lending {
					f.lends[f.nodes[i].Name] = true
				}
			}
		}
		p := f.picture()
		f.tick(time.Duration(f.random.IntN(300)) * time.Millisecond) // the listing is in transit
		c.Observe(f.now, p)
		c.Step(f.now)
		if step%7 == 0 {
			c.Explain(f.now, 5, 10*time.Second)
		}
		dies := step < 200 && f.random.IntN(15) == 0
		f.perform(c, c.Take(), dies)
		if dies {
			c = newCore(t, spec, lending)
			if lending {
				clear(f.lends) // nodes take a while to find the next driver
			}
		}
		f.tick(time.Duration(100+f.random.IntN(2000)) * time.Millisecond)
		f.check()
		if t.Failed() {
			t.FailNow()
		}
	}
	for range 300 {
		c.Observe(f.now, f.picture())
		c.Step(f.now)
		f.perform(c, c.Take(), false)
		f.tick(5 * time.Second)
		f.check()
	}
	for _, id := range all {
		if f.ended[id] != 1 && !f.forgotten[id] {
			j := f.jobs[id]
			t.Errorf("job %d ended %d times: %+v; %s", id, f.ended[id], j, c.Why(id))
		}
	}
	if s := c.Status(10); s.Waiting+s.Placed+s.Running != 0 {
		t.Errorf("left: %+v", s)
	}
}

// A burst costs what it places: parsing a listing, deciding, and making the requests.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{250, 1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				f := newFake(b, 1, (n+7)/8, 8, 0)
				for range n {
					f.submit("muster:req", 1, 1, time.Minute)
				}
				c := newCore(b, "easy", false)
				c.Observe(f.now-time.Minute, &slurm.Picture{Jobs: []slurm.Job{}, Nodes: f.nodes, Asked: f.now - time.Minute})
				p := f.picture()
				b.StartTimer()
				c.Observe(f.now, p)
				c.Step(f.now)
				if e := c.Take(); len(e.Places) != n {
					b.Fatalf("%d placed", len(e.Places))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/job")
		})
	}
}
