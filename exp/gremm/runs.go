package gremm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/exp"
	"muster/internal/misuse"
	"muster/mapping"
	"muster/model"
	"muster/model/clusterfile"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// The paper's cluster, and the values that it varies. Bandwidths are in bytes per second.
const (
	paperNodes   = 24
	paperGPUs    = 3
	gbe          = int64(100_000_000)
	ib           = int64(1_000_000_000)
	boundless    = int64(0)
	paperLatency = time.Millisecond
	paperRatio   = 10.0 // KB uploaded for each ms of a kernel
	byteRatio    = 1e6  // bytes per second in 1 KB/ms
)

// scenario is a configuration that is run once per seed. Everything not named here is as in the
// paper. It is a key of Trials, so that parts that need the same run share it.
type scenario struct {
	workload string // W1 to W15, or one of our own
	mapper   string // as the mapping catalogue spells it
	nodes    int
	gpus     int // per node
	// bandwidth of a node's port in bytes per second, and latency of a remote call.
	bandwidth int64
	latency   time.Duration
	// ratio is the input in KB for each ms of a kernel; the output is half of that.
	ratio  float64
	status kernels.Status
	hold   bool // devices stay occupied until the results have arrived
	ahead  bool // input is sent before a call joins its device's queue
	window int  // k; 0 means the paper's 10
	// reuse is the fraction of a kernel's data that stays on its device.
	reuse float64
	// critical is the application whose devices no other may use.
	critical string
	barrier  bool
	span     time.Duration
}

func (s scenario) String() string {
	words := []string{s.workload, s.mapper}
	say := func(different bool, format string, args ...any) {
		if different {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(s.nodes != paperNodes, "%d nodes", s.nodes)
	say(s.gpus != paperGPUs, "%d GPUs a node", s.gpus)
	say(s.bandwidth == boundless, "boundless network")
	say(s.bandwidth != gbe && s.bandwidth != boundless, "%d MB/s", s.bandwidth/1_000_000)
	say(s.latency != paperLatency, "latency %v", s.latency)
	say(s.ratio != paperRatio, "%v KB/ms", s.ratio)
	say(s.status.Delay != 0, "status %v old", s.status.Delay)
	say(s.status.FalsePositive != 0, "%v of the idle seem busy", s.status.FalsePositive)
	say(s.status.FalseNegative != 0, "%v of the busy seem idle", s.status.FalseNegative)
	say(s.hold, "devices held for results")
	say(s.ahead, "data sent ahead")
	say(s.window != 0, "k=%d", s.window)
	say(s.reuse != 0, "reuse %v", s.reuse)
	say(s.critical != "", "%s critical", s.critical)
	say(s.barrier, "barriers")
	return strings.Join(words, " ")
}

// outcome is what is kept of a run's result.
type outcome struct {
	utilisation float64 // per cent
	wait        float64 // seconds, mean over all kernels
	// waitOfProcess is the mean over all processes of the mean wait of their kernels.
	waitOfProcess float64
	// devices is the utilisation of each device in per cent. owners is the index of the application
	// on the device's node.
	devices []float64
	owners  []int
	// done is the number of kernels of each application finished per second. remote is the
	// percentage of all kernels that ran on another node.
	done   []float64
	apps   []string
	remote float64
	// moved is the data moved between nodes per kernel in both directions, in MB.
	moved float64
}

// ofApp is the number of kernels that an application finished per second.
func (o *outcome) ofApp(app string) float64 {
	if i := slices.Index(o.apps, app); i >= 0 {
		return o.done[i]
	}
	return 0
}

// onNodesOf is the mean utilisation of the devices on an application's nodes.
func (o *outcome) onNodesOf(app string) float64 {
	sum, n := 0.0, 0
	for i, u := range o.devices {
		if o.apps[o.owners[i]] == app {
			sum += u
			n++
		}
	}
	return sum / float64(max(1, n))
}

// lab runs scenarios, each once per seed.
type lab struct {
	options exp.Options
	seeds   []uint64
	// span is the simulated time that the user asked for. usual is that of runs of the paper's
	// size; it is shorter in our own parts.
	span, usual time.Duration
	cluster     *model.Cluster
	// simulate runs the simulator; tests replace it.
	simulate func(context.Context, kernels.Config) (*kernels.Result, error)

	exp.Trials[scenario, outcome]
}

func newLab(o exp.Options) (*lab, error) {
	l := &lab{options: o, seeds: o.Seeds(seedsTried), span: paperSpan, simulate: kernels.Run}
	if text, given := o.Flags["span"]; given {
		span, err := time.ParseDuration(text)
		if err != nil || span < leastSpan || span > mostSpan {
			return nil, misuse.Errorf("--span %s: give a time from %v to %v, as 500s or 10m", text, leastSpan, mostSpan)
		}
		l.span = span
	}
	l.usual = l.span
	var err error
	l.cluster, err = clusterfile.Preset("gremm")
	return l, err
}

// plain is a scenario in the paper's setting.
func (l *lab) plain(workload, mapper string) scenario {
	return scenario{
		workload: workload, mapper: mapper, nodes: paperNodes, gpus: paperGPUs,
		bandwidth: gbe, latency: paperLatency, ratio: paperRatio, span: l.usual,
	}
}

// large is a scenario with any number of nodes. On a larger cluster the span is shorter in
// proportion, so that about as many kernels are simulated as on the paper's, but at least a minute.
func (l *lab) large(workload, mapper string, nodes int) scenario {
	s := l.plain(workload, mapper)
	s.nodes, s.span = nodes, l.span
	if nodes > paperNodes {
		s.span = max(l.span*paperNodes/time.Duration(nodes), min(l.span, leastLarge))
	}
	return s
}

const leastLarge = 60 * time.Second

// Simulate runs all registered scenarios, and returns those that are missing because the context ended.
func (l *lab) Simulate(ctx context.Context) (missing []scenario, err error) {
	weight := func(s scenario) int64 { return int64(s.nodes) * int64(s.span/time.Second) }
	return l.Run(ctx, l.options, l.seeds, weight, l.one)
}

// one simulates a scenario with a seed.
func (l *lab) one(ctx context.Context, s scenario, seed uint64) (outcome, error) {
	cluster, err := l.clusterOf(s)
	if err != nil {
		return outcome{}, err
	}
	work, err := workloadOf(s)
	if err != nil {
		return outcome{}, err
	}
	r, err := l.simulate(ctx, kernels.Config{
		Cluster: cluster, Workload: work, Seed: seed, Span: s.span, Window: s.window, Status: s.status, HoldResults: s.hold, SendAhead: s.ahead,
		Mapper: func(layout *mapping.Layout) (mapping.Mapper, error) { return mapping.New(s.mapper, layout) },
	})
	if err != nil {
		return outcome{}, err
	}
	return measure(r, work), nil
}

// clusterOf is the paper's cluster with the scenario's changes.
func (l *lab) clusterOf(s scenario) (*model.Cluster, error) {
	c, err := l.cluster.Resize(s.nodes)
	if err != nil {
		return nil, err
	}
	out := *c
	out.Nodes = slices.Clone(c.Nodes)
	for i := range out.Nodes {
		n := &out.Nodes[i]
		n.GPUs = slices.Repeat(n.GPUs[:1], s.gpus)
		n.Link.Bandwidth = s.bandwidth
	}
	// Change the latency by the difference: the preset may divide it between link and remote call.
	out.Remote.Latency += s.latency - paperLatency
	return &out, out.Validate()
}

// workloadOf is the workload of a scenario.
func workloadOf(s scenario) (*phased.Workload, error) {
	var w *phased.Workload
	if s.workload == twoKernels {
		w = twoKernelWorkload(s.nodes)
	} else {
		var err error
		if w, err = phased.Paper(s.workload, s.nodes); err != nil {
			return nil, err
		}
	}
	for i := range w.Apps {
		a := &w.Apps[i]
		a.Reuse, a.Barrier, a.Critical = s.reuse, s.barrier, a.Name == s.critical
		for k := range a.Steps {
			a.Steps[k].In = phased.Size{PerSecond: int64(s.ratio * byteRatio)}
			a.Steps[k].Out = phased.Size{PerSecond: int64(s.ratio * byteRatio / 2)}
		}
	}
	return w, nil
}

// twoKernels is W4 with another client H. It alternates between a short and a long kernel, with the
// same mean times as before.
const twoKernels = "two-kernels"

func twoKernelWorkload(nodes int) *phased.Workload {
	step := func(kernel string, cpu, gpu time.Duration) phased.Step {
		return phased.Step{Kernel: kernel, CPU: exponential(cpu), GPU: exponential(gpu)}
	}
	return &phased.Workload{Name: twoKernels, Apps: []phased.App{
		{Name: heavy, Nodes: nodes / 4, Steps: []phased.Step{step("short", 750*time.Millisecond, 250*time.Millisecond), step("long", 750*time.Millisecond, 4250*time.Millisecond)}},
		{Name: light, Nodes: nodes - nodes/4, Steps: []phased.Step{step("light", 2250*time.Millisecond, 750*time.Millisecond)}},
	}}
}

func exponential(mean time.Duration) phased.Time {
	return phased.Time{Dist: phased.Dist{Kind: phased.Exponential, Mean: float64(mean)}}
}

// heavy and light are the names of the paper's clients.
const heavy, light = "H", "L"

func measure(r *kernels.Result, w *phased.Workload) outcome {
	o := outcome{utilisation: 100 * r.Utilisation(), wait: r.Wait().Seconds()}
	var ownerOf []int
	for i, a := range w.Apps {
		ownerOf = append(ownerOf, slices.Repeat([]int{i}, a.Nodes)...)
	}
	end := r.End.Seconds()
	for i := range r.Devices {
		o.devices = append(o.devices, 100*r.Devices[i].Busy.Seconds()/end)
		o.owners = append(o.owners, ownerOf[r.Devices[i].Node])
	}
	var done, remote, sent, processes float64
	for i := range r.Apps {
		a := &r.Apps[i]
		// The processes of an application are statistically alike, so its mean stands for each of
		// theirs.
		o.waitOfProcess += float64(float64(a.Processes) * (a.Queue + a.Transfer).Seconds() / float64(max(1, a.Done)))
		processes += float64(a.Processes)
		o.apps, o.done = append(o.apps, a.Name), append(o.done, float64(a.Done)/end)
		done += float64(a.Done)
		remote += float64(a.Remote)
	}
	for i := range r.Nodes {
		sent += float64(r.Nodes[i].Sent)
	}
	o.waitOfProcess /= processes
	o.remote, o.moved = 100*remote/max(1, done), sent/1e6/max(1, done)
	return o
}
