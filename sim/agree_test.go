package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"muster/model"
	"muster/policy/catalog"
	"muster/sim"
)

// spec is the policy with its options as the catalogue spells it.
func spec(policy string, opt oracleOptions) string {
	if policy != "easy" && policy != "conservative" {
		return policy
	}
	s := fmt.Sprintf("%s:depth=%d", policy, opt.Depth)
	if opt.Window > 0 {
		s += ":bf_window=" + opt.Window.String()
	}
	return s
}

// simulate runs the simulator and returns its result in the form of the oracle's.
func simulate(policy string, s *scenario) ([]oracleOutcome, error) {
	p, err := catalog.New(spec(policy, s.Options))
	if err != nil {
		return nil, err
	}
	seen := &recorder{out: make([]oracleOutcome, len(s.Jobs))}
	res, err := sim.Run(context.Background(), sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Policy: p,
		NoKill: !s.Options.Kill, Observe: seen})
	if err != nil {
		return nil, err
	}
	for i, o := range res.Outcomes {
		out := &seen.out[i]
		if out.Ran && (out.Start != o.Start || out.End != o.End) {
			return nil, fmt.Errorf("job %d: observed [%v, %v), reported [%v, %v)", i, out.Start, out.End, o.Start, o.End)
		}
		out.Killed = o.State == sim.Killed
		out.Impossible = o.State == sim.Impossible
	}
	return seen.out, nil
}

type recorder struct{ out []oracleOutcome }

func (r *recorder) Started(now time.Duration, job int, alloc *model.Allocation) {
	o := &r.out[job]
	o.Start, o.Ran = now, true
	o.Alloc = canonical(alloc)
}

func (r *recorder) Ended(now time.Duration, job int) { r.out[job].End = now }

// canonical is the allocation in one form: whole devices of the job's own nodes
// in the parts, the other grants in order.
func canonical(a *model.Allocation) model.Allocation {
	c := model.Allocation{Parts: slices.Clone(a.Parts)}
	for _, g := range a.Grants {
		if g.Memory == 0 && !a.Borrowed(g) {
			c.Parts[g.For].GPUs |= 1 << g.Device
		} else {
			c.Grants = append(c.Grants, g)
		}
	}
	slices.SortFunc(c.Grants, func(x, y model.Grant) int {
		return cmp.Or(cmp.Compare(x.For, y.For), cmp.Compare(x.Node, y.Node), cmp.Compare(x.Device, y.Device), cmp.Compare(x.Memory, y.Memory))
	})
	return c
}

// disagreement describes the first difference between the simulator and the oracle; "" if there is
// none. Times may differ by slack.
func disagreement(policy string, s *scenario, slack time.Duration) string {
	want := oracle(s.Cluster, s.Jobs, policy, s.Options)
	got, err := simulate(policy, s)
	if err != nil {
		return "the simulator failed: " + err.Error()
	}
	return difference(want, got, slack)
}

func difference(want, got []oracleOutcome, slack time.Duration) string {
	for i := range want {
		w, g := want[i], got[i]
		w.Alloc = canonical(&w.Alloc)
		same := (w.Start-g.Start).Abs() <= slack && (w.End-g.End).Abs() <= slack &&
			w.Ran == g.Ran && w.Killed == g.Killed && w.Impossible == g.Impossible && reflect.DeepEqual(w.Alloc, g.Alloc)
		if !same {
			return fmt.Sprintf("job %d:\n  oracle    %+v\n  simulator %+v", i, w, g)
		}
	}
	return ""
}

// check fails with the smallest scenario that still disagrees.
func check(t *testing.T, policy string, s *scenario, slack time.Duration, origin string) {
	t.Helper()
	if disagreement(policy, s, slack) == "" {
		return
	}
	small := shrink(s, func(s *scenario) bool { return disagreement(policy, s, slack) != "" })
	t.Fatalf("%s (%s)\n%s\n%s", spec(policy, s.Options), origin, small, disagreement(policy, small, slack))
}

// shrink drops jobs, then what makes jobs special, as long as it stays bad.
func shrink(s *scenario, bad func(*scenario) bool) *scenario {
	for again := true; again; {
		again = false
		try := func(change func(*scenario)) {
			next := *s
			next.Jobs = slices.Clone(s.Jobs)
			change(&next)
			if !reflect.DeepEqual(&next, s) && valid(&next) && bad(&next) {
				s, again = &next, true
			}
		}
		for i := len(s.Jobs) - 1; i >= 0; i-- {
			try(func(n *scenario) { n.Jobs = slices.Delete(n.Jobs, i, i+1) })
		}
		try(func(n *scenario) { n.Options.Depth = 0 })
		try(func(n *scenario) { n.Options.Window = 0 })
		try(func(n *scenario) { n.Options.Kill = true })
		for i := range s.Jobs {
			for _, change := range simpler {
				try(func(n *scenario) { change(&n.Jobs[i]) })
			}
		}
	}
	return s
}

var simpler = []func(*model.Job){
	func(j *model.Job) { j.Request = model.Request{Nodes: 1} },
	func(j *model.Job) { j.Traffic = model.Traffic{} },
	func(j *model.Job) { j.Intensity = 1 },
	func(j *model.Job) { j.Alternatives = nil },
	func(j *model.Job) { j.Request.Run = 0 },
	func(j *model.Job) { j.Request.WallTime = 0 },
	func(j *model.Job) { j.Submit = 0 },
	func(j *model.Job) { j.Run = time.Second },
	func(j *model.Job) { j.WallTime = 0 },
	func(j *model.Job) { j.Priority = 0 },
	func(j *model.Job) { j.Request.Remote = nil },
	func(j *model.Job) { j.Request.GPUs, j.Request.GPUMemory = 0, 0 },
	func(j *model.Job) { j.Request.GPUMemory = 0 },
	func(j *model.Job) { j.Request.GPUType = "" },
	func(j *model.Job) { j.Request.NodeList = nil },
	func(j *model.Job) { j.Request.Contiguous = false },
	func(j *model.Job) { j.Request.Exclusive = false },
	func(j *model.Job) { j.Request.Memory = 0 },
	func(j *model.Job) { j.Request.MemoryPerCore = 0 },
	func(j *model.Job) { j.Request.CoresPerNode = 0 },
	func(j *model.Job) { j.Request.CoresPerProcess = 0 },
	func(j *model.Job) { j.Request.Cores = min(j.Request.Cores, 1) },
	func(j *model.Job) { j.Request.Nodes = min(j.Request.Nodes, 1) },
}

func valid(s *scenario) bool {
	for i := range s.Jobs {
		if s.Jobs[i].Validate() != nil || i > 0 && s.Jobs[i].Submit < s.Jobs[i-1].Submit {
			return false
		}
	}
	return true
}

func TestSimulatorByHand(t *testing.T) {
	for _, h := range handCases {
		t.Run(h.policy+"/"+h.name, func(t *testing.T) {
			h.options.Kill = true
			got, err := simulate(h.policy, &scenario{Cluster: h.cluster, Jobs: h.workload(), Options: h.options})
			if err != nil {
				t.Fatal(err)
			}
			for i := range got { // rates are rounded, so ends may be some nanoseconds late
				got[i].Start, got[i].End = got[i].Start.Round(time.Microsecond), got[i].End.Round(time.Microsecond)
			}
			h.check(t, got)
		})
	}
}

// The grid of the exhaustive test: every job is one of these shapes with one of these lengths.
var gridShapes = []model.Request{
	{Nodes: 1, CoresPerNode: 1},
	{Nodes: 1, CoresPerNode: 2},
	{Nodes: 2, CoresPerNode: 1},
	{Nodes: 2, CoresPerNode: 2},
	{Nodes: 1, GPUs: 1},
	{Nodes: 1, GPUs: 2},
	{Nodes: 2, GPUs: 1},
	{Nodes: 2, GPUs: 2},
	{Cores: 3},
	{Nodes: 1, Exclusive: true},
	{Nodes: 2, Contiguous: true, GPUs: 1},
	{Nodes: 1, GPUs: 1, GPUMemory: 4},
	{Nodes: 1, Remote: &model.RemoteGPUs{Count: 2}},
	{Cores: 4, CoresPerProcess: 2, Contiguous: true},
	{Cores: 3, GPUs: 1},
}

var gridLengths = []struct{ run, wall int }{{1, 0}, {2, 0}, {1, 2}, {2, 1}, {0, 0}}

func gridCluster(gpus ...int) *model.Cluster {
	c := handCluster(gpus...)
	for i := range c.Nodes {
		c.Nodes[i].Cores = 2
	}
	return c
}

// everyWorkload calls f with all workloads of n jobs of the given shapes and
// lengths, the first submitted at 0 and each of the rest together with the one before it, or a second later;
// or with every second, third and so on of them.
func everyWorkload(n, shapes, lengths, every int, f func([]model.Job)) {
	jobs := make([]model.Job, n)
	count := 0
	var fill func(i int, submit time.Duration)
	fill = func(i int, submit time.Duration) {
		if i == n {
			if count++; count%every == 0 {
				f(jobs)
			}
			return
		}
		for later := range 2 {
			if i == 0 && later > 0 {
				break
			}
			for _, shape := range gridShapes[:shapes] {
				for _, l := range gridLengths[:lengths] {
					jobs[i] = model.Job{ID: fmt.Sprint(i), Submit: submit + seconds(later),
						Run: seconds(l.run), WallTime: seconds(l.wall), Request: shape}
					fill(i+1, submit+seconds(later))
				}
			}
		}
	}
	fill(0, 0)
}

// Of the workloads of two and three jobs make test has some of all shapes and lengths, and make soak has all.
func TestAgreesOnEveryTinyWorkload(t *testing.T) {
	grids := []struct {
		jobs, shapes, lengths, every int
		clusters                     []*model.Cluster
	}{
		{1, len(gridShapes), len(gridLengths), 1, []*model.Cluster{gridCluster(0), gridCluster(2, 0), gridCluster(1, 2, 1)}},
		{2, len(gridShapes), len(gridLengths), 1, []*model.Cluster{gridCluster(2), gridCluster(1, 1), gridCluster(0, 2, 1)}},
		{3, 8, 2, 1, []*model.Cluster{gridCluster(1, 2)}},
	}
	switch {
	case testing.Short():
		grids[1].shapes, grids[1].lengths = 8, 3
		grids[2].shapes = 4
	case !soak:
		grids[1].every, grids[2].every = 7, 7 // no divisor of how many shapes and lengths there are
	}
	for _, policy := range allPolicies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			for _, g := range grids {
				for _, c := range g.clusters {
					everyWorkload(g.jobs, g.shapes, g.lengths, g.every, func(jobs []model.Job) {
						check(t, policy, &scenario{Cluster: c, Jobs: jobs, Options: oracleOptions{Kill: true}}, 0, "grid")
					})
				}
			}
		})
	}
}

// soak: make soak runs more cases than make test.
var soak = os.Getenv("MUSTER_SOAK") != ""

// howMany is how many cases a test has.
func howMany(short, usual, soaked uint64) uint64 {
	switch {
	case testing.Short():
		return short
	case soak:
		return soaked
	}
	return usual
}

func TestAgreesOnRandomWorkloads(t *testing.T) {
	cases := howMany(300, 600, 5000)
	for _, policy := range allPolicies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			for seed := range cases {
				g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
				check(t, policy, g.scenario(6, 15), 0, fmt.Sprint("seed ", seed))
			}
		})
	}
}

// TestAgreesUnderContention compares runs in which jobs slow each other down.
// The simulator's time and rates are integers and the oracle's are not, so
// that times differ a little. Where two instants of a run are so close that
// this could change their order, the run proves nothing and is left out.
func TestAgreesUnderContention(t *testing.T) {
	const slack = 2 * time.Microsecond
	cases := howMany(300, 500, 4000)
	for _, policy := range allPolicies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			left := uint64(0)
			for seed := range cases {
				g := &generator{Rand: rand.New(rand.NewPCG(seed, 2)), traffic: true, fine: true}
				s := g.scenario(5, 9)
				if tooClose(s, oracle(s.Cluster, s.Jobs, policy, s.Options), slack) {
					left++
					continue
				}
				check(t, policy, s, slack, fmt.Sprint("seed ", seed))
			}
			if left > cases/20 {
				t.Errorf("%d of %d runs were left out", left, cases)
			}
		})
	}
}

// tooClose says whether two different times that a policy may have compared
// lie within twice the slack.
func tooClose(s *scenario, out []oracleOutcome, slack time.Duration) bool {
	var times []time.Duration
	for i := range s.Jobs {
		times = append(times, s.Jobs[i].Submit)
		if out[i].Ran {
			times = append(times, out[i].Start, out[i].End)
		}
	}
	for _, t := range slices.Clone(times) {
		for i := range s.Jobs {
			times = append(times, t+estimate(&s.Jobs[i]))
		}
		if s.Options.Window > 0 {
			times = append(times, t+s.Options.Window)
		}
	}
	slices.Sort(times)
	for i := 1; i < len(times); i++ {
		if gap := times[i] - times[i-1]; 0 < gap && gap <= 2*slack {
			return true
		}
	}
	return false
}
