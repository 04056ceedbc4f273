package kernels

import (
	"fmt"
	"math/rand/v2"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/workload/phased"
)

// chooser is a number from lo to hi, for a purpose; random or rapid's.
type chooser func(what string, lo, hi int) int

func randomly(rng *rand.Rand) chooser {
	return func(_ string, lo, hi int) int { return lo + rng.IntN(hi-lo+1) }
}

func pick[T any](choose chooser, what string, of ...T) T { return of[choose(what, 0, len(of)-1)] }

// smallConfig is a run small enough for the oracle, in which ties, idle nodes,
// calls without data and all else that is odd are likely.
func smallConfig(choose chooser) Config {
	c := &model.Cluster{
		Name: "small",
		GPUTypes: []model.GPUType{
			{Name: "plain", Speed: 1}, {Name: "fast", Speed: 2}, {Name: "slow", Speed: 0.5}, {Name: "odd", Speed: 1.3},
		},
		Remote: model.Remote{
			Latency:  pick(choose, "latency", 0, 0, 1, time.Millisecond, 3*time.Millisecond),
			Overhead: pick(choose, "overhead", 0, 0, 1, 1.09), Far: pick(choose, "far", 0, 0, 1.5),
		},
	}
	uniform := choose("uniform", 0, 1) == 1
	bandwidth := pick(choose, "bandwidth", int64(1000), 4096, 100_000, 999_983)
	nodes := choose("nodes", 1, 5)
	for n := range nodes {
		node := model.Node{Name: fmt.Sprint("n", n), Cores: choose("cores", 1, 3), Link: model.Link{Bandwidth: bandwidth}}
		kind := 0
		if !uniform {
			node.Switch = pick(choose, "switch", "a", "a", "b")
			node.Link.Bandwidth = pick(choose, "bandwidth", bandwidth, bandwidth, 0, 777, 50_000)
			node.Link.Latency = time.Duration(pick(choose, "link latency", 0, 0, 1)) * time.Millisecond
		}
		for range choose("gpus", 0, 3) {
			if !uniform {
				kind = choose("kind", 0, 3)
			}
			node.GPUs = append(node.GPUs, kind)
		}
		c.Nodes = append(c.Nodes, node)
	}
	if c.TotalGPUs() == 0 {
		c.Nodes[choose("node", 0, nodes-1)].GPUs = []int{0}
	}

	w := &phased.Workload{Name: "small"}
	endless := false
	for left := nodes; left > 0 && (len(w.Apps) == 0 || choose("another application", 0, 1) == 1); {
		app := phased.App{
			Name: fmt.Sprint("a", len(w.Apps)), Nodes: choose("of the nodes", 1, left), PerNode: choose("processes", 0, 4),
			Iterations: int64(choose("iterations", 0, 6)), Reuse: pick(choose, "reuse", 0, 0, 0.5, 1, 0.3),
			Critical: choose("critical", 0, 3) == 0,
		}
		switch choose("manner", 0, 5) {
		case 0:
			app.Async = true
		case 1, 2:
			app.Barrier = true
		}
		for s := range choose("steps", 1, 3) {
			step := phased.Step{Kernel: fmt.Sprint("k", s%2)}
			step.CPU.Dist = smallDist(choose, 0, 4, 1e6)
			step.GPU.Dist = smallDist(choose, 0, 6, 1e6)
			step.In, step.Out = smallSize(choose), smallSize(choose)
			app.Steps = append(app.Steps, step)
		}
		if first := &app.Steps[0]; app.Iterations == 0 {
			// Something must take time, or there is no end of launches at one instant.
			first.CPU.Dist = smallDist(choose, 1, 4, 1e6)
		}
		endless = endless || app.Iterations == 0
		left -= app.Nodes
		w.Apps = append(w.Apps, app)
	}
	config := Config{
		Cluster: c, Workload: w, Seed: uint64(choose("seed", 1, 1000)), Window: choose("window", 0, 3),
		HoldResults: choose("hold results", 0, 1) == 1, SendAhead: choose("send ahead", 0, 1) == 1,
	}
	if endless || choose("span", 0, 2) == 0 {
		config.Span = time.Duration(choose("span", 1, 40)) * time.Millisecond
	}
	if choose("delay", 0, 2) == 0 {
		config.Status.Delay = time.Duration(pick(choose, "delay", 1_000_000, 2_500_000, 20_000_000))
	}
	if choose("errs", 0, 3) == 0 {
		config.Status.FalsePositive = pick(choose, "false positives", 0, 0.5, 1)
		config.Status.FalseNegative = pick(choose, "false negatives", 0, 0.5, 1)
	}
	return config
}

func smallDist(choose chooser, lo, hi int, unit float64) phased.Dist {
	return phased.Dist{
		Kind: pick(choose, "distribution", phased.Constant, phased.Constant, phased.Exponential),
		Mean: unit * float64(choose("mean", lo, hi)),
	}
}

func smallSize(choose chooser) phased.Size {
	if choose("by time", 0, 3) == 0 {
		return phased.Size{PerSecond: int64(choose("bytes a second", 1, 20_000))}
	}
	return phased.Size{Bytes: smallDist(choose, 0, 5, pick(choose, "bytes", 1.0, 100))}
}

// seen is what a mapper was shown and what it answered.
type seen struct {
	Call mapping.Call
	Now  time.Duration
	// All is what the table says of all devices and nodes, Own what the one of its own node says.
	All, Own []int64
	Wrong    [2]float64
	Answer   int32
}

// watchedMapper has random numbers of its own, so that two implementations of
// the model give it the same ones, and keeps what it was shown.
type watchedMapper struct {
	inner mapping.Mapper
	rng   *rand.Rand
	wrong *rand.Rand
	seen  []seen
}

func watched(inner mapping.Mapper, seed uint64) *watchedMapper {
	return &watchedMapper{inner: inner, rng: rand.New(rand.NewPCG(seed, 1)), wrong: rand.New(rand.NewPCG(seed, 2))}
}

func (m *watchedMapper) Estimate() mapping.Estimate { return mapping.EstimateOf(m.inner) }

func (m *watchedMapper) Map(c *mapping.Call, v *mapping.View) int32 {
	s := seen{Call: *c, Now: v.Now}
	s.Call.Resident = append([]mapping.Resident(nil), c.Resident...)
	l := v.Table.Layout()
	for d := range int32(l.Devices()) {
		s.All = append(s.All, int64(v.Table.Queued(d)), int64(v.Table.Mean(d)), int64(v.Table.Backlog(d, v.Now)), int64(v.Table.Expect(c, d)))
	}
	for n := range int32(l.Nodes()) {
		s.All = append(s.All, int64(v.Table.Outbound(n)), int64(v.Table.Inbound(n)))
	}
	for d := l.First[c.Node]; d < l.First[c.Node+1]; d++ {
		s.Own = append(s.Own, int64(v.Local.Queued(d)), int64(v.Local.Mean(d)), int64(v.Local.Backlog(d, v.Now)))
	}
	own := *v
	own.Rand = m.rng
	if v.Wrong != nil {
		s.Wrong = [2]float64{v.Wrong.Positive, v.Wrong.Negative}
		own.Wrong = &mapping.Wrong{Positive: v.Wrong.Positive, Negative: v.Wrong.Negative, Rand: m.wrong}
	}
	s.Answer = m.inner.Map(c, &own)
	m.seen = append(m.seen, s)
	return s.Answer
}

// byHistory is a mapper that wants estimates from history.
type byHistory struct {
	mapping.Mapper
	estimate mapping.Estimate
}

func (h byHistory) Estimate() mapping.Estimate { return h.estimate }

// mapperFunc is a mapper without a state.
type mapperFunc func(c *mapping.Call, v *mapping.View) int32

func (f mapperFunc) Map(c *mapping.Call, v *mapping.View) int32 { return f(c, v) }

// anywhere leaves all calls in the shared queue.
var anywhere = mapperFunc(func(*mapping.Call, *mapping.View) int32 { return mapping.Anywhere })

// atHome uses the device of the process, where it has one.
var atHome = mapperFunc(func(c *mapping.Call, _ *mapping.View) int32 { return c.Home })

// atRandom uses any device, and now and then the shared queue.
var atRandom = mapperFunc(func(_ *mapping.Call, v *mapping.View) int32 {
	return v.Rand.Int32N(int32(v.Table.Layout().Devices())+1) - 1
})

// shortest uses a device on which least seems to wait.
var shortest = mapperFunc(func(c *mapping.Call, v *mapping.View) int32 {
	best, least := int32(-1), int32(0)
	for d := range int32(v.Table.Layout().Devices()) {
		n := v.Queued(d)
		if v.Table.Layout().NodeOf[d] == c.Node {
			n = v.Local.Queued(d)
		}
		if best < 0 || n < least {
			best, least = d, n
		}
	}
	return best
})
