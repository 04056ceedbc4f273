package simpage

import (
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/sim"
)

// Study is a completed sweep with its results.
type Study struct {
	Cluster *model.Cluster
	// Asked has the inputs: names and values, in the order of the page.
	Asked [][2]string
	// Start is when the log begins; the zero time if the log has no dates.
	Start time.Time
	// Command is the command line that makes the page again.
	Command string

	// Policies, Nodes and Seeds are in the order in which they were given. All other policies are
	// compared with the first.
	Policies []string
	Nodes    []int
	Seeds    []uint64
	Runs     []Run // ordered by seed, then size, then policy
}

// Run is one run of a study.
type Run struct {
	sim.Point
	Result  *sim.Result
	Summary sim.Summary
	// Against is the comparison with the first policy for the same seed and size; nil for the
	// first.
	Against *sim.Comparison
	// Recorder observed the run; nil if none did.
	Recorder *Recorder
}

// NewStudy computes the numbers of a sweep. recorders has one recorder per run, or nil, or is nil
// itself.
func NewStudy(c *model.Cluster, runs []sim.RunOf, recorders []*Recorder) *Study {
	s := &Study{Cluster: c, Runs: make([]Run, len(runs))}
	policies, sizes, seeds := map[string]bool{}, map[int]bool{}, map[uint64]bool{}
	for i, r := range runs {
		if !policies[r.Policy] {
			policies[r.Policy] = true
			s.Policies = append(s.Policies, r.Policy)
		}
		if !sizes[r.Nodes] {
			sizes[r.Nodes] = true
			s.Nodes = append(s.Nodes, r.Nodes)
		}
		if !seeds[r.Seed] {
			seeds[r.Seed] = true
			s.Seeds = append(s.Seeds, r.Seed)
		}
		s.Runs[i] = Run{Point: r.Point, Result: r.Result, Summary: r.Summarize()}
		if recorders != nil {
			s.Runs[i].Recorder = recorders[i]
		}
	}
	for i := range s.Runs {
		base := i - i%len(s.Policies)
		if i == base {
			continue
		}
		c := sim.Compare(runs[base].Result, runs[i].Result)
		if i >= len(s.Policies) {
			// The differences of single jobs are shown only for the first seed and size.
			c.Wait, c.Run, c.Life = nil, nil, nil
		}
		s.Runs[i].Against = &c
	}
	return s
}

// Record makes the recorders for the runs of a sweep. The page needs those of the first seed and
// size, with blocks. The list of jobs, and explanations of single jobs, need all. It returns nil if
// neither is wanted.
func Record(s *sim.Sweep, page, jobs bool) []*Recorder {
	if !page && !jobs {
		return nil
	}
	recorders := make([]*Recorder, len(s.Seeds)*max(1, len(s.Nodes))*len(s.Policies))
	s.Observe = func(p sim.Point) sim.Observer {
		drawn := page && p.Index < len(s.Policies)
		if !drawn && !jobs {
			return nil
		}
		cluster, err := s.Cluster.Resize(p.Nodes)
		if err != nil {
			panic(err) // the sweep has just done the same without an error
		}
		blocks := 0
		if drawn {
			blocks = MaxBlocks / len(s.Policies)
		}
		recorders[p.Index] = NewRecorder(cluster, blocks)
		return recorders[p.Index]
	}
	return recorders
}

// shown are the runs that the pictures show: those of the first seed and size.
func (s *Study) shown() []Run { return s.Runs[:len(s.Policies)] }

// point is one policy on one size, with the runs of all seeds.
type point struct {
	policy string
	nodes  int
	runs   []*Run
}

// points are ordered by size, then by policy.
func (s *Study) points() []point {
	per := len(s.Nodes) * len(s.Policies)
	list := make([]point, per)
	for i := range s.Runs {
		p := &list[i%per]
		p.policy, p.nodes = s.Runs[i].Policy, s.Runs[i].Nodes
		p.runs = append(p.runs, &s.Runs[i])
	}
	return list
}

// over is a value over all seeds: its mean, minimum and maximum.
type over struct{ mean, lo, hi float64 }

func (p *point) over(value func(*Run) float64) over {
	o := over{lo: math.Inf(1), hi: math.Inf(-1)}
	for _, r := range p.runs {
		v := value(r)
		o.mean += v
		o.lo, o.hi = math.Min(o.lo, v), math.Max(o.hi, v)
	}
	o.mean /= float64(len(p.runs))
	return o
}

// quantity is a quantity that a run measures for every job.
type quantity struct {
	name, help string
	isTime     bool
	stats      func(*sim.Summary) *sim.Stats
	// Accessors of a comparison; nil if jobs are not compared by this quantity.
	change func(*sim.Comparison) float64
	losers func(*sim.Comparison) *sim.Losers
}

var quantities = []quantity{
	{
		"wait", "From submission to start.", true, func(s *sim.Summary) *sim.Stats { return &s.Wait },
		func(c *sim.Comparison) float64 { return c.WaitChange }, func(c *sim.Comparison) *sim.Losers { return &c.WaitLonger },
	},
	{
		"run", "From start to end.", true, func(s *sim.Summary) *sim.Stats { return &s.Run },
		func(c *sim.Comparison) float64 { return c.RunChange }, func(c *sim.Comparison) *sim.Losers { return &c.RunLonger },
	},
	{
		"life", "From submission to end.", true, func(s *sim.Summary) *sim.Stats { return &s.Life },
		func(c *sim.Comparison) float64 { return c.LifeChange }, func(c *sim.Comparison) *sim.Losers { return &c.EndLater },
	},
	{"slowdown", "Life time over run time; runs count as 10 s at least.", false, func(s *sim.Summary) *sim.Stats { return &s.Slowdown }, nil, nil},
}

// placement are the quantities that say where jobs ran.
var placement = []quantity{
	{"blocks", "Blocks of neighbouring nodes that a job ran on: fragmentation.", false, func(s *sim.Summary) *sim.Stats { return &s.Fragmentation }, nil, nil},
	{"spread", "Nodes from a job's first to its last, over the nodes that it had.", false, func(s *sim.Summary) *sim.Stats { return &s.Spread }, nil, nil},
}

// quantities are those worth showing. Placement is left out if every job's nodes are contiguous.
func (s *Study) quantities() []quantity {
	if s.fragmented() {
		return append(quantities[:len(quantities):len(quantities)], placement...)
	}
	return quantities
}

func (s *Study) fragmented() bool {
	return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Summary.Fragmentation.Max > 1 })
}
