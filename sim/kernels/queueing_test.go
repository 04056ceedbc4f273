package kernels

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"muster/internal/need"
	"muster/mapping"
	"muster/model"
	"muster/workload/phased"
)

// Where the model is one that queueing theory has solved, the engine must agree with
// it: to the nanosecond with the recursions for the same draws, and with the
// formulas for means as closely as the length of a run allows.

// openQueue is a queue in which calls arrive independently of the devices: one process launches
// them, and waits for none.
func openQueue(servers int, between, service phased.Dist, calls int64) Config {
	node := model.Node{Name: "n", Cores: 1}
	for range servers {
		node.GPUs = append(node.GPUs, 0)
	}
	step := phased.Step{Kernel: "k"}
	step.CPU.Dist, step.GPU.Dist = between, service
	return Config{
		Cluster: &model.Cluster{Nodes: []model.Node{node}, GPUTypes: []model.GPUType{{Name: "gpu", Speed: 1}}},
		Workload: &phased.Workload{Apps: []phased.App{{
			Name: "open", Nodes: 1, PerNode: 1, Async: true, Iterations: calls, Steps: []phased.Step{step},
		}}},
		Mapper: func(*mapping.Layout) (mapping.Mapper, error) { return anywhere, nil },
		Seed:   7,
	}
}

// observed are the times of each stage of each call; those that were not yet are -1.
type observed struct {
	calls []times
	then  func(Event) // may be nil
}

type times struct {
	process int32
	at      [Done + 1]time.Duration
}

func (o *observed) Event(e Event) {
	if e.Stage == Launched {
		o.calls = append(o.calls, times{process: e.Process, at: [Done + 1]time.Duration{-1, -1, -1, -1, -1, -1, -1, -1}})
	}
	o.calls[e.Call].at[e.Stage] = e.At
	if o.then != nil {
		o.then(e)
	}
}

func (*observed) Rate(time.Duration, int64, int64) {}

func observe(t *testing.T, c Config) *observed {
	t.Helper()
	o := &observed{}
	c.Observe = o
	if _, err := Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *observed) waits() []time.Duration {
	waits := make([]time.Duration, len(o.calls))
	for i := range o.calls {
		waits[i] = o.calls[i].at[Holding] - o.calls[i].at[Launched]
	}
	return waits
}

// draws are the steps of one process.
func draws(c *Config, app, rank int, calls int64) []phased.Draw {
	source := c.Workload.Sources(c.Seed).Of(app, rank)
	out := make([]phased.Draw, calls)
	for i := range out {
		out[i] = source.Next()
	}
	return out
}

func millis(ms float64) phased.Dist { return phased.ExponentialOf(time.Duration(ms * 1e6)) }

var openQueues = []struct {
	name             string
	servers          int
	between, service phased.Dist
	// want is the mean wait in milliseconds.
	want float64
	// precision is how far from it the bounds of confidence may be, of 1.
	precision float64
}{
	// rho = 0.7. M/M/1: rho/(1-rho) of a service time.
	{"M/M/1", 1, millis(10), millis(7), 7 * 0.7 / 0.3, 0.12},
	// M/D/1: half of it.
	{"M/D/1", 1, millis(10), phased.ConstantOf(7 * time.Millisecond), 7 * 0.7 / 0.3 / 2, 0.12},
	// Pollaczek and Khinchine: (1+cv^2)/2 of it. Four stages have a cv^2 of 1/4.
	{"M/E4/1", 1, millis(10), phased.ErlangOf(7*time.Millisecond, 4), 7 * 0.7 / 0.3 * 1.25 / 2, 0.12},
	{"M/H2/1", 1, millis(10), phased.HyperexponentialOf(7*time.Millisecond, 2), 7 * 0.7 / 0.3 * 5 / 2, 0.25},
	// From 0 to 14 the variance is 14^2/12, and cv^2 1/3.
	{"M/U/1", 1, millis(10), phased.UniformOf(0, 14*time.Millisecond), 7 * 0.7 / 0.3 * (1 + 1.0/3) / 2, 0.12},
	{"D/M/1", 1, phased.ConstantOf(10 * time.Millisecond), millis(7), 7 * gm1(0.7) / (1 - gm1(0.7)), 0.12},
	{"M/M/3", 3, millis(3), millis(7.2), erlangC(3, 2.4) * 7.2 / (3 - 2.4), 0.15},
	{"M/M/40", 40, millis(1), millis(36), erlangC(40, 36) * 36 / (40 - 36), 0.3},
}

// gm1 is the root of sigma = A*(mu(1-sigma)), for arrivals at a constant distance.
func gm1(rho float64) float64 {
	sigma := 0.5
	for range 1000 {
		sigma = math.Exp(-(1 - sigma) / rho)
	}
	return sigma
}

// erlangC is the probability that a call must wait, with the given number of devices and load.
func erlangC(servers int, load float64) float64 {
	term, sum := 1.0, 0.0
	for k := range servers {
		sum += term
		term *= load / float64(k+1)
	}
	term *= float64(servers) / (float64(servers) - load)
	return term / (sum + term)
}

// TestWaitsFollowTheRecursion compares every single wait with Kiefer and Wolfowitz's
// recursion on the same draws, which is Lindley's where there is one device.
func TestWaitsFollowTheRecursion(t *testing.T) {
	const calls = 20_000
	for _, q := range openQueues {
		t.Run(q.name, func(t *testing.T) {
			c := openQueue(q.servers, q.between, q.service, calls)
			waits := observe(t, c).waits()
			free := make([]time.Duration, q.servers) // how long each device is busy yet
			lindley := time.Duration(0)
			for i, draw := range draws(&c, 0, 0, calls) {
				for s := range free {
					free[s] = max(0, free[s]-draw.CPU)
				}
				slices.Sort(free)
				if waits[i] != free[0] {
					t.Fatalf("call %d waits %v, not %v", i, waits[i], free[0])
				}
				free[0] += draw.GPU
				if q.servers == 1 {
					lindley = max(0, lindley-draw.CPU)
					if waits[i] != lindley {
						t.Fatalf("call %d waits %v, and after Lindley %v", i, waits[i], lindley)
					}
					lindley += draw.GPU
				}
			}
		})
	}
}

// TestSharedQueueOfNodesFollowsTheRecursion does so for processes and devices of several nodes between
// which data need no time.
func TestSharedQueueOfNodesFollowsTheRecursion(t *testing.T) {
	const calls = 3000
	c := openQueue(2, millis(5), millis(9), calls)
	for range 2 { // two more nodes, with a device on one
		n := model.Node{Name: fmt.Sprint("m", len(c.Cluster.Nodes)), Cores: 2}
		if len(c.Cluster.Nodes) == 1 {
			n.GPUs = []int{0}
		}
		c.Cluster.Nodes = append(c.Cluster.Nodes, n)
	}
	app := &c.Workload.Apps[0]
	app.Nodes, app.PerNode = 3, 1
	app.Steps[0].CPU.Dist = millis(10)
	app.Steps[0].GPU.Dist = millis(9)
	app.Steps[0].In = phased.Size{Bytes: phased.ConstantOf(int64(1e6))}
	app.Steps[0].Out = app.Steps[0].In
	o := observe(t, c)

	type arrival struct {
		at      time.Duration
		process int
		service time.Duration
	}
	var arrivals []arrival
	for p := range 3 {
		at := time.Duration(0)
		for _, draw := range draws(&c, 0, p, calls) {
			at += draw.CPU
			arrivals = append(arrivals, arrival{at, p, draw.GPU})
		}
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return int(a.at - b.at) })
	if len(arrivals) != len(o.calls) {
		t.Fatalf("%d calls, not %d", len(o.calls), len(arrivals))
	}
	free := make([]time.Duration, 3) // when each device is
	for i, a := range arrivals {
		slices.Sort(free)
		begin := max(a.at, free[0])
		got := &o.calls[i]
		if got.at[Launched] != a.at || int(got.process) != a.process || got.at[Running] != begin || got.at[Done] != begin+a.service {
			t.Fatalf("call %d is %+v, not launched at %v by %d, running at %v, done at %v", i, *got, a.at, a.process, begin, begin+a.service)
		}
		free[0] = begin + a.service
	}
}

// batches is how many parts of a run give one mean each.
const batches = 30

// unlikely is how many standard errors a mean of that many is off once in a thousand times
// (Student's t with 29 degrees of freedom, both sides).
const unlikely = 3.659

// within says whether means of batches agree with what is expected. precision is how wide
// the bounds may be, of what is expected, so that the test means something.
func within(t *testing.T, what string, means []float64, want, precision float64) {
	t.Helper()
	sum, squares := 0.0, 0.0
	for _, m := range means {
		sum += m
	}
	n := float64(len(means))
	mean := sum / n
	for _, m := range means {
		squares += (m - mean) * (m - mean)
	}
	bound := unlikely * math.Sqrt(squares/(n-1)/n)
	t.Logf("%s: %.6g +- %.2g, theory %.6g", what, mean, bound, want)
	if math.Abs(mean-want) > bound {
		t.Errorf("%s is %.6g +- %.2g, and in theory %.6g", what, mean, bound, want)
	}
	if bound > precision*want {
		t.Errorf("%s is known to +- %.2g only, of %.6g", what, bound, want)
	}
}

// batchMeans divides the observations into batches, without the first part (the warm-up), and
// returns the mean of each.
func batchMeans(of []time.Duration) []float64 {
	size := len(of) / (batches + 1)
	means := make([]float64, batches)
	for b := range means {
		sum := 0.0
		for _, x := range of[(b+1)*size : (b+2)*size] {
			sum += float64(x) / 1e6
		}
		means[b] = sum / float64(size)
	}
	return means
}

func TestMeanWaitsOfOpenQueues(t *testing.T) {
	calls := int64(need.Rounds(200_000, 400_000))
	for _, q := range openQueues {
		t.Run(q.name, func(t *testing.T) {
			precision := q.precision
			n := calls
			if testing.Short() {
				n, precision = n/10, 4*precision
			}
			o := observe(t, openQueue(q.servers, q.between, q.service, n))
			within(t, "the wait in ms", batchMeans(o.waits()), q.want, precision)
		})
	}
}

// TestPortIsProcessorSharing: uploads that arrive at random and share one port take 1/(1-rho) times
// their time alone, for any distribution of their sizes.
func TestPortIsProcessorSharing(t *testing.T) {
	calls := int64(100_000)
	if testing.Short() {
		calls /= 10
	}
	for _, sizes := range []struct {
		name      string
		dist      phased.Dist
		precision float64
	}{
		{"constant", phased.ConstantOf(int64(60_000)), 0.05},
		{"exponential", phased.ExponentialOf(int64(60_000)), 0.1},
		{"hyperexponential", phased.HyperexponentialOf(int64(60_000), 2), 0.15},
	} {
		t.Run(sizes.name, func(t *testing.T) {
			precision := sizes.precision
			if testing.Short() {
				precision *= 4
			}
			// 60 KB at 100 MB/s take 0.6 ms, and come each millisecond. No call waits for one of
			// 128 devices, whose ports are wide enough.
			c := openQueue(64, millis(1), phased.Dist{}, calls)
			c.Cluster.Nodes[0].Name = "m"
			more := c.Cluster.Nodes[0]
			more.Name = "more"
			caller := model.Node{Name: "caller", Cores: 1, Link: model.Link{Bandwidth: 100_000_000}}
			c.Cluster.Nodes = []model.Node{caller, c.Cluster.Nodes[0], more}
			c.Workload.Apps[0].Steps[0].In = phased.Size{Bytes: sizes.dist}
			o := observe(t, c)
			took := make([]time.Duration, len(o.calls))
			for i := range o.calls {
				at := &o.calls[i].at
				if at[Holding] != at[Launched] {
					t.Fatalf("call %d has waited for a device", i)
				}
				took[i] = at[Running] - at[Sending]
			}
			within(t, "the upload in ms", batchMeans(took), 0.6/(1-0.6), precision)
		})
	}
}

// busyBatches watches how many kernels run, on average over each part of a span.
type busyBatches struct {
	observed
	size  time.Duration
	since map[int64]time.Duration
	busy  []float64 // of size
	ended []float64 // kernels
}

func (b *busyBatches) watch(e Event) {
	switch e.Stage {
	case Running:
		b.since[e.Call] = e.At
	case Released:
		b.count(b.since[e.Call], e.At)
		if i := int(e.At / b.size); i < len(b.ended) {
			b.ended[i]++
		}
		delete(b.since, e.Call)
	}
}

func (b *busyBatches) count(from, to time.Duration) {
	for from < to {
		i := int(from / b.size)
		if i >= len(b.busy) {
			return
		}
		part := min(to, time.Duration(i+1)*b.size)
		b.busy[i] += float64(part-from) / float64(b.size)
		from = part
	}
}

// watchBusy runs, and gives the mean number of running kernels in each part of the span
// but the first, and the kernels ended in it.
func watchBusy(t *testing.T, c Config) (busy, ended []float64) {
	t.Helper()
	b := &busyBatches{size: c.Span / (batches + 1), since: map[int64]time.Duration{}, busy: make([]float64, batches+1), ended: make([]float64, batches+1)}
	b.then = b.watch
	c.Observe = b
	if _, err := Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	for _, since := range b.since {
		b.count(since, c.Span)
	}
	return b.busy[1:], b.ended[1:]
}

// repairmen is the mean number of busy devices if the processes alternate between a time of their
// own and one on any of the devices, both exponential: M/M/c//N.
func repairmen(servers, processes int, own, service float64) float64 {
	weight, sum, busy := 1.0, 0.0, 0.0
	for k := range processes + 1 {
		sum += weight
		busy += weight * float64(min(k, servers))
		weight *= float64(processes-k) * service / own / float64(min(k+1, servers))
	}
	return busy / sum
}

// gremm is the cluster of the paper, with as many nodes as are wanted.
func gremm(nodes int, bandwidth int64) *model.Cluster {
	c := &model.Cluster{Name: "gremm", GPUTypes: []model.GPUType{{Name: "gpu", Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 12, GPUs: []int{0, 0, 0}, Link: model.Link{Bandwidth: bandwidth}})
	}
	return c
}

// TestStaticMappingIsMachineRepair: four processes share each GPU. W1 and W5 have one
// application each, W3 half the nodes for each.
func TestStaticMappingIsMachineRepair(t *testing.T) {
	heavy, light := repairmen(1, 4, 750, 2250), repairmen(1, 4, 2250, 750)
	if math.Abs(heavy-0.99963) > 5e-6 || math.Abs(light-0.79389) > 5e-6 {
		t.Fatalf("the formula gives %.6f and %.6f", heavy, light)
	}
	for _, w := range []struct {
		name            string
		busy, perSecond float64
		precision       float64
	}{
		{"W1", 72 * heavy, 72 * heavy / 2.25, 0.01},
		{"W3", 36 * (heavy + light), 36*heavy/2.25 + 36*light/0.75, 0.01},
		{"W5", 72 * light, 72 * light / 0.75, 0.01},
	} {
		t.Run(w.name, func(t *testing.T) {
			work, err := phased.Paper(w.name, 24)
			if err != nil {
				t.Fatal(err)
			}
			c := Config{
				Cluster: gremm(24, 100_000_000), Workload: work, Seed: 3, Span: time.Duration(need.Rounds(7000, 10_000)) * time.Second,
				Mapper: func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New("st", l) },
			}
			precision := w.precision
			if testing.Short() {
				c.Span, precision = c.Span/10, 3*precision
			}
			busy, ended := watchBusy(t, c)
			within(t, "the number of busy GPUs", busy, w.busy, precision)
			perSecond := make([]float64, len(ended))
			for i := range ended {
				perSecond[i] = ended[i] / (c.Span / (batches + 1)).Seconds()
			}
			within(t, "kernels a second", perSecond, w.perSecond, precision)
		})
	}
}

// TestGlobalQueueIsMachineRepair: with ports of which there is always enough, and no latency, one queue for
// all GPUs is M/M/c//N.
func TestGlobalQueueIsMachineRepair(t *testing.T) {
	for _, w := range []struct {
		name    string
		cpu, ms float64
	}{{"W5", 2250, 750}, {"W10", 2625, 325}, {"W15", 1815, 1125}} {
		t.Run(w.name, func(t *testing.T) {
			work, err := phased.Paper(w.name, 2)
			if err != nil {
				t.Fatal(err)
			}
			c := Config{
				Cluster: gremm(2, 0), Workload: work, Seed: 4, Span: time.Duration(need.Rounds(40_000, 100_000)) * time.Second,
				Mapper: func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New("gr", l) },
			}
			precision := 0.01
			if testing.Short() {
				c.Span, precision = c.Span/10, 3*precision
			}
			busy, _ := watchBusy(t, c)
			within(t, "the number of busy GPUs", busy, repairmen(6, 24, w.cpu, w.ms), precision)
		})
	}
}
