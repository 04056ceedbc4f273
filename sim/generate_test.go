package sim_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/model"
)

// This file makes small random clusters and workloads with every feature that
// a request can have.

var allPolicies = []string{"fcfs", "sjf", "first-fit", "g-queue", "r-queue", "easy", "conservative"}

// scenario is one case: the cluster, the jobs and how they are to be scheduled.
type scenario struct {
	Cluster *model.Cluster
	Jobs    []model.Job
	Options oracleOptions
	Tame    bool // no job outlives its estimate
}

// String writes a scenario so that it can be read, and worked by hand.
func (s *scenario) String() string {
	var b strings.Builder
	c := s.Cluster
	fmt.Fprintf(&b, "%+v; remote %+v\n", s.Options, c.Remote)
	for _, t := range c.GPUTypes {
		fmt.Fprintf(&b, "type %+v\n", t)
	}
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "node %+v\n", n)
	}
	for i, j := range s.Jobs {
		req, err := json.Marshal(j.Request)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "job %d: submit %v run %v wall %v priority %d intensity %v traffic %+v %s\n",
			i, j.Submit, j.Run, j.WallTime, j.Priority, j.Intensity, j.Traffic, unset.ReplaceAll(req, nil))
	}
	return b.String()
}

// unset matches what a request leaves out.
var unset = regexp.MustCompile(`"[A-Za-z]+":(0|""|false|null),?`)

// generator draws scenarios. Times are whole seconds, so that much happens at
// once, unless fine says otherwise.
type generator struct {
	*rand.Rand
	traffic bool // jobs move data over the network, and slow each other down on shared devices
	fine    bool // times are random to the nanosecond
	// tame leaves out what lets a job outlive its estimate: slow devices and
	// devices of other nodes.
	tame bool
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) between(low, high int) int { return low + g.IntN(high-low+1) }

func (g *generator) span(low, high int) time.Duration {
	if g.fine {
		return time.Duration(low)*time.Second + time.Duration(g.Int64N(int64(high-low+1)*int64(time.Second)))
	}
	return seconds(g.between(low, high))
}

func (g *generator) scenario(maxNodes, maxJobs int) *scenario {
	s := &scenario{Cluster: g.cluster(g.between(1, maxNodes)), Tame: g.tame}
	for i := range g.between(1, maxJobs) {
		s.Jobs = append(s.Jobs, g.job(i, s.Cluster, maxJobs/2))
	}
	sortJobs(s.Jobs)
	s.Options.Kill = g.tame || g.chance(80)
	if g.chance(30) {
		s.Options.Depth = g.between(1, 4)
	}
	if g.chance(20) {
		s.Options.Window = g.span(0, 12) + 1
	}
	return s
}

func (g *generator) cluster(nodes int) *model.Cluster {
	c := &model.Cluster{
		Name: "random",
		GPUTypes: []model.GPUType{
			{Name: "small", Memory: 4, Speed: 1, PeerBandwidth: 12e9},
			{Name: "large", Memory: 10, Speed: 2, PeerBandwidth: 12e9},
			{Name: "slow", Memory: 10, Speed: 0.5, PeerBandwidth: 12e9},
		},
		Remote: model.Remote{Latency: time.Duration(g.IntN(3)) * time.Second / 2, Overhead: 1.09, Far: []float64{0, 1.5, 2}[g.IntN(3)]},
	}
	latency := time.Duration(g.IntN(2)) * time.Second / 2
	types := g.between(1, len(c.GPUTypes))
	if g.tame {
		types = min(types, 2)
	}
	for i := range nodes {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: g.between(2, 5), Memory: int64(g.between(5, 14))}
		n.Link = model.Link{Bandwidth: int64(g.between(1, 4)) * 1e9, Latency: latency}
		if g.chance(50) {
			n.Switch = []string{"s", "t"}[g.IntN(2)]
			n.Weight = g.IntN(3)
		}
		if g.chance(75) {
			for range g.between(1, 4) {
				n.GPUs = append(n.GPUs, g.IntN(types))
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func sortJobs(jobs []model.Job) {
	slices.SortStableFunc(jobs, func(a, b model.Job) int { return cmp.Compare(a.Submit, b.Submit) })
}

func (g *generator) job(i int, c *model.Cluster, lastSubmit int) model.Job {
	j := model.Job{ID: fmt.Sprint(i), Submit: g.span(0, lastSubmit), Run: g.span(0, 8)}
	switch {
	case g.chance(30):
		j.WallTime = j.Run + g.span(0, 4)
	case g.chance(20):
		j.WallTime = g.span(1, 8)
	}
	if g.chance(30) {
		j.Priority = int64(g.between(-1, 2))
	}
	j.Request = g.request(c)
	j.Traffic = model.Traffic{NetConns: int64(g.IntN(3)), GPUConns: int64(g.IntN(3))}
	j.Intensity = 1.0 / 16 // 16 such jobs share a device without slowing each other down
	if g.traffic {
		j.Intensity = float64(g.IntN(1001)) / 1000
		if g.chance(80) {
			j.Traffic.NetBytes = g.Int64N(10e9)
			j.Traffic.GPUBytes = g.Int64N(10e9)
		}
	}
	if g.chance(15) {
		j.Request.Run = g.span(0, 8)
	}
	if g.chance(15) {
		j.Request.WallTime = g.span(0, 8)
	}
	if g.chance(10) { // for policies that choose
		j.Alternatives = []model.Request{{Cores: 1}}
	}
	return j
}

func (g *generator) request(c *model.Cluster) model.Request {
	var r model.Request
	if g.chance(20) {
		r.Cores = g.between(1, 6)
		if g.chance(40) {
			r.MemoryPerCore = int64(g.between(1, 4))
		}
		if g.chance(30) {
			r.Memory = int64(g.between(1, 5))
		}
		if g.chance(40) {
			r.CoresPerProcess = g.between(1, 3)
			r.Cores = r.CoresPerProcess * g.between(1, 3)
		}
		r.Contiguous = g.chance(35)
		g.devices(&r, 35)
	} else {
		r.Nodes = g.between(1, min(len(c.Nodes)+1, 3))
		switch g.IntN(3) {
		case 0:
			r.CoresPerNode = g.between(1, 3)
		case 1:
			r.Cores = g.between(1, 6)
		}
		if g.chance(30) {
			r.Memory = int64(g.between(1, 5))
		}
		if g.chance(20) {
			r.MemoryPerCore = int64(g.between(1, 3))
		}
		g.devices(&r, 50)
		r.Contiguous = g.chance(20)
		r.Exclusive = g.chance(10)
	}
	if g.chance(10) {
		r.GPUType = c.GPUTypes[g.IntN(len(c.GPUTypes))].Name
	}
	if !g.tame && g.chance(20) {
		r.Remote = &model.RemoteGPUs{Count: g.between(1, 3)}
		if g.chance(50) {
			r.Remote.Memory = int64(g.between(1, 6))
			r.Remote.Shared = g.chance(70)
		}
	}
	if g.chance(12) {
		for _, n := range c.Nodes {
			if g.chance(75) {
				r.NodeList = append(r.NodeList, n.Name)
			}
		}
	}
	if g.chance(15) {
		g.confine(&r, c)
	}
	return r
}

// confine limits a request as a partition does: it has GPUs of its nodes and of lenders alone.
func (g *generator) confine(r *model.Request, c *model.Cluster) {
	var nodes, lenders []string
	for _, n := range c.Nodes {
		switch {
		case g.chance(60):
			nodes, lenders = append(nodes, n.Name), append(lenders, n.Name)
		case g.chance(30):
			lenders = append(lenders, n.Name)
		}
	}
	if len(nodes) > 0 {
		j := model.Job{Request: *r}
		j.Confine(nodes, lenders)
		*r = j.Request
	}
}

// devices asks for GPUs of each node, or shares of them, in percent of all requests.
func (g *generator) devices(r *model.Request, percent int) {
	if !g.chance(percent) {
		return
	}
	r.GPUs = g.between(1, 2)
	shares := 30
	if g.traffic {
		shares = 50 // so that many meet on a device
	}
	if g.chance(shares) {
		r.GPUMemory = int64(g.between(1, 6))
	}
}
