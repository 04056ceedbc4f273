package gremm

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"muster/mapping"
	"muster/workload/phased"
)

// proxy is the proxy of section 3.1 of the paper: processes send it their kernels, a mapper chooses
// a device for each, and each device serves one call at a time, in order of arrival. It implements
// the model of sim/kernels with real processes and a real clock, and uses the same mappers.
//
// All its state belongs to the goroutine that calls run. The puppets' messages reach it one by one
// through fleet.next.
type proxy struct {
	fleet   *fleet
	layout  *mapping.Layout
	mapper  mapping.Mapper
	table   *mapping.Table
	view    mapping.View
	profile *profile
	span    time.Duration

	began   time.Time
	procs   []liveProcess
	devices []liveDevice
	shared  []int   // processes whose calls may run on any device, in order of arrival
	idle    []int32 // devices that serve no call; the first has been idle longest

	out   outcome
	waits []float64 // sum over the calls of each process, in seconds
	calls []int
}

// liveProcess is one of the workload's processes, with its current call.
type liveProcess struct {
	mapping.Call
	source   *phased.Source
	draw     phased.Draw
	device   int32
	expected time.Duration
	launched time.Duration
	begun    time.Duration
	ran      bool
}

type liveDevice struct {
	busy  bool
	queue []int
	spent time.Duration // total time in kernels
}

// newProxy prepares a run.
func newProxy(f *fleet, pr *profile, layout *mapping.Layout, work *phased.Workload, mapper string, seed uint64, span time.Duration) (*proxy, error) {
	m, err := mapping.New(mapper, layout)
	if err != nil {
		return nil, err
	}
	const window = 10 // k of the paper
	x := &proxy{fleet: f, layout: layout, mapper: m, table: mapping.NewTable(layout, window), profile: pr, span: span, devices: make([]liveDevice, layout.Devices())}
	x.table.Estimate = mapping.EstimateOf(m)
	x.view = mapping.View{Table: x.table, Local: x.table, Rand: rand.New(rand.NewPCG(seed, 0x6d6170))}
	for d := range x.devices {
		x.idle = append(x.idle, int32(d))
	}
	sources := work.Sources(seed)
	for i, a := range work.Apps {
		for rank := range a.Nodes * livePerNode {
			p := len(x.procs)
			node := int32(p / livePerNode)
			x.procs = append(x.procs, liveProcess{Call: mapping.Call{Process: int32(p), Rank: int32(rank), Node: node, App: int32(i), Home: node}, source: sources.Of(i, rank)})
		}
		x.out.apps, x.out.done = append(x.out.apps, a.Name), append(x.out.done, 0)
	}
	x.waits, x.calls = make([]float64, len(x.procs)), make([]int, len(x.procs))
	return x, nil
}

// run lets the processes work for the span, computes the numbers, and then waits until the puppets
// are idle, so that the next run can use them.
func (x *proxy) run(ctx context.Context) (outcome, error) {
	x.began = time.Now()
	for p := range x.procs {
		if err := x.compute(p); err != nil {
			return outcome{}, err
		}
	}
	over := time.After(x.span)
	for {
		m, late, err := x.fleet.next(ctx, over)
		if err != nil {
			return outcome{}, err
		}
		if late {
			break
		}
		if err := x.hear(m); err != nil {
			return outcome{}, err
		}
	}
	x.finish()
	return x.out, x.drain(ctx)
}

// now converts a time to the time since the start of the run.
func (x *proxy) now(at time.Time) time.Duration { return at.Sub(x.began) }

// compute starts the next step of a process with its CPU phase.
func (x *proxy) compute(p int) error {
	it := &x.procs[p]
	it.draw = it.source.Next()
	return x.fleet.puppets[p].tell("cpu %d", it.draw.CPU.Microseconds())
}

func (x *proxy) hear(m message) error {
	it := &x.procs[m.from]
	switch m.word {
	case "launch":
		x.fleet.puppets[m.from].busy = false
		return x.launch(m.from, x.now(m.at))
	case "ran":
		if x.fleet.mapper != "" {
			x.devices[it.device].spent += it.draw.GPU
			return nil
		}
		return x.release(it, x.now(m.at))
	default: // done
		x.account(it, x.now(m.at))
		return x.compute(m.from)
	}
}

// launch maps the call of a process, and starts or queues it.
func (x *proxy) launch(p int, now time.Duration) error {
	it := &x.procs[p]
	it.Kernel, it.In, it.Out, it.launched = it.draw.Kernel, min(it.draw.In, liveBytes), min(it.draw.Out, liveBytes), now
	if x.fleet.mapper != "" { // the node maps the call and queues it
		it.device, it.begun, it.ran = it.Home, now, true // only the node knows the device; count the call at home
		return x.fleet.puppets[p].tell("run 0 %d %d %d", x.profile.turns(it.draw.GPU), it.In, it.Out)
	}
	x.view.Now = now
	d := x.mapper.Map(&it.Call, &x.view)
	if d == mapping.Anywhere {
		if len(x.idle) == 0 {
			x.shared = append(x.shared, p)
			return nil
		}
		d = x.idle[0]
	}
	x.assign(p, d)
	if x.devices[d].busy {
		x.devices[d].queue = append(x.devices[d].queue, p)
		return nil
	}
	return x.begin(p, now)
}

// assign records that the call of a process is mapped to a device.
func (x *proxy) assign(p int, d int32) {
	it := &x.procs[p]
	it.device = d
	it.expected = x.table.Assign(&it.Call, d)
}

// begin starts the call of a process on its device, which must be idle.
func (x *proxy) begin(p int, now time.Duration) error {
	it := &x.procs[p]
	x.devices[it.device].busy = true
	for i, d := range x.idle {
		if d == it.device {
			x.idle = append(x.idle[:i], x.idle[i+1:]...)
			break
		}
	}
	it.begun, it.ran = now, false
	x.table.Begin(it.device, it.expected, now)
	return x.fleet.puppets[p].tell("run %d %d %d %d", it.device, x.profile.turns(it.draw.GPU), it.In, it.Out)
}

// release frees the device of a call whose kernel has run. The next call in the device's own queue
// gets it; if there is none, the oldest call that may run on any device does.
func (x *proxy) release(it *liveProcess, now time.Duration) error {
	d := &x.devices[it.device]
	d.busy, it.ran = false, true
	d.spent += it.draw.GPU
	x.idle = append(x.idle, it.device)
	x.table.Finish(&it.Call, it.device, it.expected, it.draw.GPU)
	switch {
	case len(d.queue) > 0:
		next := d.queue[0]
		d.queue = d.queue[1:]
		return x.begin(next, now)
	case len(x.shared) > 0:
		next := x.shared[0]
		x.shared = x.shared[1:]
		x.assign(next, it.device)
		return x.begin(next, now)
	}
	return nil
}

// account counts a finished call.
func (x *proxy) account(it *liveProcess, now time.Duration) {
	x.out.done[it.App]++
	x.calls[it.Process]++
	x.waits[it.Process] += (now - it.launched - it.draw.GPU).Seconds()
	if x.layout.NodeOf[it.device] != it.Node {
		x.out.remote++
		x.out.moved += float64(it.In+it.Out) / 1e6
	}
}

// finish turns the counters into an outcome, as measure does for the simulator.
func (x *proxy) finish() {
	span := x.span.Seconds()
	for p := range x.procs {
		// A kernel that is running at the end of the span counts for the part within it.
		if it := &x.procs[p]; it.begun > 0 && !it.ran && x.devices[it.device].busy {
			x.devices[it.device].spent += min(it.draw.GPU, x.span-it.begun)
		}
	}
	for d := range x.devices {
		percent := 100 * x.devices[d].spent.Seconds() / span
		x.out.devices = append(x.out.devices, percent)
		x.out.utilisation += percent / float64(len(x.devices))
		x.out.owners = append(x.out.owners, int(x.layout.Owner[x.layout.NodeOf[d]]))
	}
	calls := 0
	for p := range x.procs {
		calls += x.calls[p]
		x.out.wait += x.waits[p]
	}
	x.out.wait /= math.Max(1, float64(calls))
	x.out.remote *= 100 / math.Max(1, float64(calls))
	x.out.moved /= math.Max(1, float64(calls))
	x.out.waitOfProcess = x.ofProcesses()
	for i := range x.out.done {
		x.out.done[i] /= span
	}
}

// ofProcesses is the mean over all processes of the mean wait of their application's calls, as in
// measure.
func (x *proxy) ofProcesses() float64 {
	sum := 0.0
	for i := range x.out.apps {
		waited, calls, processes := 0.0, 0, 0
		for p := range x.procs {
			if x.procs[p].App == int32(i) {
				waited, calls, processes = waited+x.waits[p], calls+x.calls[p], processes+1
			}
		}
		sum += float64(processes) * waited / math.Max(1, float64(calls))
	}
	return sum / float64(len(x.procs))
}

// drain waits until no puppet is working. Calls still queued for a device are dropped: their
// puppets have reported "launch" and wait for the next command.
func (x *proxy) drain(ctx context.Context) error {
	for p := range x.fleet.puppets {
		for x.fleet.puppets[p].busy {
			m, _, err := x.fleet.next(ctx, nil)
			if err != nil {
				return err
			}
			if m.word != "ran" {
				x.fleet.puppets[m.from].busy = false
			}
		}
	}
	return nil
}
