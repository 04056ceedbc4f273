package kernels

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"muster/mapping"
	"muster/model"
	"muster/sim/fairshare"
)

// Making an engine: what a configuration must fulfil, and the tables that the run needs.

func newEngine(c Config) (*engine, error) {
	e := &engine{Config: c, shared: queue{none, none}, unexplained: slices.Clone(c.Explain), result: &Result{}}
	if err := e.check(); err != nil {
		return nil, err
	}
	e.lay()
	if e.Window == 0 {
		e.Window = 10
	}
	var err error
	if e.mapper, err = e.Mapper(e.layout); err != nil {
		return nil, err
	}
	e.truth = mapping.NewTable(e.layout, e.Window)
	e.truth.Estimate = mapping.EstimateOf(e.mapper)
	e.view = mapping.View{Table: e.truth, Local: e.truth, Rand: rand.New(rand.NewPCG(e.Seed, 0x6d6170))}
	if e.Status.Delay > 0 {
		e.reports.table = mapping.NewTable(e.layout, e.Window)
		e.reports.table.Estimate = e.truth.Estimate
		e.view.Table = e.reports.table
	}
	if e.Status.FalsePositive > 0 || e.Status.FalseNegative > 0 {
		e.view.Wrong = &mapping.Wrong{
			Positive: e.Status.FalsePositive, Negative: e.Status.FalseNegative, Rand: rand.New(rand.NewPCG(e.Seed, 0x77726f6e67)),
		}
	}
	e.populate()
	return e, nil
}

func (e *engine) check() error {
	switch {
	case e.Cluster == nil || e.Workload == nil || e.Mapper == nil:
		return errors.New("a run needs a cluster, a workload and a mapper")
	case e.Span < 0 || e.Status.Delay < 0 || e.Window < 0:
		return errors.New("the span, the delay of reports and the window cannot be negative")
	}
	if err := e.checkWindow(); err != nil {
		return err
	}
	if err := e.Workload.Validate(len(e.Cluster.Nodes)); err != nil {
		return err
	}
	for i := range e.Workload.Apps {
		a := &e.Workload.Apps[i]
		if e.Span == 0 && a.Iterations == 0 {
			return fmt.Errorf("application %s never ends: give a span of time to simulate, or the iterations it makes", a.Name)
		}
	}
	for _, p := range []float64{e.Status.FalsePositive, e.Status.FalseNegative} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("a share of false reports must be from 0 to 1, not %v", p)
		}
	}
	return e.Cluster.Validate()
}

// mostWindows bounds the run times that are kept for all devices together: 1 GiB of them.
const mostWindows = 1 << 30 / 8

func (e *engine) checkWindow() error {
	devices := 0
	for n := range e.Cluster.Nodes {
		devices += len(e.Cluster.Nodes[n].GPUs)
	}
	tables := 1
	if e.Status.Delay > 0 {
		tables = 2 // the true one, and the delayed one that other nodes see
	}
	if most := mostWindows / max(1, tables*devices); e.Window > most {
		return fmt.Errorf("a window of %d kernels on each of %d GPUs needs more than 1 GiB of memory: have one of %d at most", e.Window, devices, most)
	}
	return nil
}

// lay numbers the devices, and makes two ports per node for the network: out (2n) and in (2n+1).
func (e *engine) lay() {
	l := &mapping.Layout{}
	capacity := make([]int64, 0, 2*len(e.Cluster.Nodes))
	for n := range e.Cluster.Nodes {
		nd := &e.Cluster.Nodes[n]
		l.First = append(l.First, int32(len(l.NodeOf)))
		l.Cores = append(l.Cores, int32(nd.Cores))
		l.Owner = append(l.Owner, none)
		for _, t := range nd.GPUs {
			l.NodeOf = append(l.NodeOf, int32(n))
			l.Speed = append(l.Speed, e.Cluster.GPUTypes[t].Speed)
		}
		port := min(nd.Link.Bandwidth, maxBytes) << fraction
		capacity = append(capacity, port, port)
	}
	l.First = append(l.First, int32(len(l.NodeOf)))
	n := 0
	for i := range e.Workload.Apps {
		a := &e.Workload.Apps[i]
		l.Critical = append(l.Critical, a.Critical)
		for range a.Nodes {
			l.Owner[n] = int32(i)
			n++
		}
	}
	e.layRoads(l)
	e.layout = l
	e.overhead, e.far = thousandths(e.Cluster.Remote.Overhead), thousandths(e.Cluster.Remote.Far)
	e.fair = fairshare.New(capacity)
}

// layRoads describes the network to mappers. Values per node are given only if nodes differ.
func (e *engine) layRoads(l *mapping.Layout) {
	l.Overhead, l.Far = e.Cluster.Remote.Overhead, e.Cluster.Remote.Far
	first, unlike, late, switches := &e.Cluster.Nodes[0], false, false, map[string]int32{}
	for n := range e.Cluster.Nodes {
		nd := &e.Cluster.Nodes[n]
		l.Links = append(l.Links, nd.Link.Bandwidth)
		l.Latencies = append(l.Latencies, model.After(e.Cluster.Remote.Latency, nd.Link.Latency))
		if _, known := switches[nd.Switch]; !known {
			switches[nd.Switch] = int32(len(switches))
		}
		l.Switch = append(l.Switch, switches[nd.Switch])
		unlike = unlike || nd.Link.Bandwidth != first.Link.Bandwidth
		late = late || nd.Link.Latency != first.Link.Latency
	}
	l.Bandwidth, l.Latency = l.Links[0], l.Latencies[0]
	if !unlike {
		l.Links = nil
	}
	if !late {
		l.Latencies = nil
	}
	if len(switches) == 1 {
		l.Switch = nil
	}
}

// populate makes devices, nodes and processes.
func (e *engine) populate() {
	e.devices = make([]device, e.layout.Devices())
	e.result.Devices = make([]DeviceResult, e.layout.Devices())
	e.idle = newList(len(e.devices))
	for d := range e.devices {
		e.devices[d] = device{holder: none, queue: queue{none, none}, speed: e.layout.Speed[d]}
		e.result.Devices[d].Node = e.layout.NodeOf[d]
		e.idle.append(int32(d))
	}
	e.nodes = make([]node, e.layout.Nodes())
	e.result.Nodes = make([]NodeResult, e.layout.Nodes())
	for n := range e.nodes {
		e.nodes[n] = node{free: e.layout.Cores[n], cores: queue{none, none}}
	}
	n, sources := int32(0), e.Workload.Sources(e.Seed)
	for i := range e.Workload.Apps {
		a := &e.Workload.Apps[i]
		app := application{first: int32(len(e.procs))}
		rank := int32(0)
		for range a.Nodes {
			per := a.PerNode
			if per == 0 {
				per = e.Cluster.Nodes[n].Cores
			}
			local := e.layout.First[n+1] - e.layout.First[n]
			for k := range int32(per) {
				home := none
				if local > 0 {
					home = e.layout.First[n] + k%local
				}
				e.procs = append(e.procs, process{
					app: int32(i), rank: rank, node: n, home: home, last: none, next: none,
					source: sources.Of(i, int(rank)),
				})
				rank++
			}
			n++
		}
		app.processes = rank
		e.apps = append(e.apps, app)
		e.result.Apps = append(e.result.Apps, AppResult{Name: a.Name, Processes: int(rank)})
	}
	e.live = len(e.procs)
	e.agenda.grow(len(e.procs))
}
