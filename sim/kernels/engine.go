package kernels

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/sim/fairshare"
	"muster/workload/phased"
)

// none is the end of a list, and the device of a call that has no device yet.
const none = int32(-1)

// fraction is the number of fractional bits of rates and of bytes in transit: both are fixed point,
// so that every machine computes the same.
const fraction = 20

// maxBytes is the largest transfer: with the fraction it still fits into 63 bits.
const maxBytes = math.MaxInt64 >> fraction

// never is longer than any simulation; several of them can be added without overflow.
const never = math.MaxInt64 / 8

// maxAtOnce bounds the events of one instant, so that programs whose phases take no time end with
// an error instead of running for ever.
const maxAtOnce = 50_000_000

// engine is one simulation: events in virtual time, in one goroutine. The actors on the agenda are
// processes (a CPU phase ends) and calls (a stage ends); the actor number of call slot s is
// len(procs)+s. A call is the launch of one kernel. Its life is launch, give (a device), begin (it
// holds the device), goOut and sendInput (if the device is on another node), runKernel, endKernel,
// release, finish.
//
// Slots of calls are reused, so functions must not keep a pointer to a call across newCall, which
// may move the slice.
type engine struct {
	Config
	layout *mapping.Layout
	mapper mapping.Mapper
	truth  *mapping.Table
	reports
	view mapping.View

	now     time.Duration
	agenda  agenda
	procs   []process
	live    int // the number of processes that have not ended
	calls   []call
	vacant  []int32 // free slots of calls
	number  int64   // of the next call
	devices []device
	nodes   []node
	apps    []application
	shared  queue // calls that any device may take
	// idle lists the devices that no call holds, the one that has been idle longest first.
	idle list
	fair *fairshare.Network
	// overhead is the factor by which transfers grow, far the factor for nodes on different
	// switches; both in thousandths.
	overhead, far uint64
	callOfFlow    []int32  // by flow: its call
	unexplained   []Moment // the moments to explain that are yet to come
	result        *Result
}

type process struct {
	app, rank, node, home int32
	source                *phased.Source
	draw                  phased.Draw
	steps                 int64
	last                  int32 // the device of its latest call
	next                  int32 // the next process that waits for a core
	open                  int32 // the number of its calls that are not done
	onCore, stopped       bool  // stopped: it has made its last step
}

type call struct {
	mapping.Call
	resident [1]mapping.Resident
	number   int64
	device   int32
	next     int32         // the next call in its queue
	stage    Stage         // Holding while the latency passes
	arrived  bool          // its input was sent ahead and has arrived
	gpu      time.Duration // the kernel's run time at speed 1
	ran      time.Duration // its run time on its device

	launched, held time.Duration
	// expected is the run time that the true table expected, expectedFar the one that the delayed
	// table did, which may know less.
	expected, expectedFar time.Duration

	// A transfer in progress: what is left at the time since, in bytes with the fraction, and the
	// current rate.
	flow  fairshare.Flow
	bytes int64
	left  uint64
	rate  int64
	since time.Duration
	// toTell is the number of reports about the call that other nodes have not received yet; the
	// slot must not be reused before.
	toTell int32
}

type device struct {
	holder   int32 // the call that holds the device, or none
	queue    queue
	speed    float64
	busyFrom time.Duration // when the current kernel began
	heldFrom time.Duration // when the holder got the device
}

type node struct {
	free  int32 // free cores
	cores queue // processes that wait for one
}

type application struct {
	processes int32
	first     int32 // its first process
	arrived   int32 // the number of processes that wait at the barrier
}

// queue is a linked list of processes or calls, by their field next.
type queue struct{ head, tail int32 }

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

// run processes events until none is left or the span is over. All events of an instant come first;
// only then does settle divide the bandwidth again, once for all transfers that began or ended at
// that instant. If that changed rates, new events may be due at the same instant, so the loop looks
// again before it moves the clock.
func (e *engine) run(ctx context.Context) (*Result, error) {
	for p := range e.procs {
		e.beginStep(int32(p))
	}
	atOnce := 0
	for {
		next, ok := e.agenda.first()
		if !ok || next.at != e.now {
			if e.settle() {
				continue
			}
			if !ok || e.Span > 0 && next.at > e.Span {
				break
			}
			e.now, atOnce = next.at, 0
		}
		if atOnce++; atOnce > maxAtOnce {
			return nil, fmt.Errorf("the programs take no time at all after %v: give their phases a length", e.now)
		}
		e.result.Events++
		if e.result.Events%8192 == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if e.Progress != nil {
				e.Progress(e.now)
			}
		}
		e.agenda.removeFirst()
		if int(next.actor) >= len(e.procs) {
			e.advance(next.actor - int32(len(e.procs)))
		} else if err := e.endCPU(next.actor); err != nil {
			return nil, err
		}
	}
	for i := range e.result.Apps {
		if a := &e.result.Apps[i]; max(a.Queue, a.Run, a.Transfer) == math.MaxInt64 {
			return nil, fmt.Errorf("the calls of application %s take more than 292 years together, which cannot be added up: simulate a shorter time", a.Name)
		}
	}
	e.close()
	return e.result, nil
}

// beginStep starts the next CPU phase of a process, or stops the process after its last step. A
// phase of length 0 needs no core, but goes through the agenda, so that recursion stays shallow.
func (e *engine) beginStep(p int32) {
	pr := &e.procs[p]
	if most := e.Workload.Apps[pr.app].Iterations; most > 0 && pr.steps == most {
		pr.stopped = true
		e.endIfDone(p)
		return
	}
	pr.steps++
	pr.draw = pr.source.Next()
	n := &e.nodes[pr.node]
	switch {
	case pr.draw.CPU == 0:
		e.agenda.set(p, e.now, int64(p))
	case n.free > 0:
		e.takeCore(p)
	default:
		e.join(&n.cores, p)
	}
}

// endIfDone ends a process that has made its last step and whose calls are done.
func (e *engine) endIfDone(p int32) {
	if pr := &e.procs[p]; pr.stopped && pr.open == 0 {
		e.live--
		app := &e.result.Apps[pr.app]
		app.Ended++
		app.LastEnd = e.now
	}
}

func (e *engine) takeCore(p int32) {
	pr := &e.procs[p]
	e.nodes[pr.node].free--
	pr.onCore = true
	e.agenda.set(p, model.After(e.now, pr.draw.CPU), int64(p))
}

// endCPU ends the CPU phase of a process: it gives the core to the next waiting process and
// launches the kernel.
func (e *engine) endCPU(p int32) error {
	pr := &e.procs[p]
	if pr.onCore {
		pr.onCore = false
		n := &e.nodes[pr.node]
		n.free++
		if next := n.cores.head; next != none {
			n.cores.head = e.procs[next].next
			e.takeCore(next)
		}
	}
	if err := e.launch(p); err != nil {
		return err
	}
	if e.Workload.Apps[pr.app].Async {
		e.beginStep(p)
	}
	return nil
}

// endStep lets a process begin its next step. If its application has a barrier, the process waits
// there until all have arrived.
func (e *engine) endStep(p int32) {
	pr := &e.procs[p]
	if !e.Workload.Apps[pr.app].Barrier {
		e.beginStep(p)
		return
	}
	a := &e.apps[pr.app]
	if a.arrived++; a.arrived == a.processes {
		a.arrived = 0
		for p := a.first; p < a.first+a.processes; p++ {
			e.beginStep(p)
		}
	}
}

// join puts a process at the end of a queue for cores.
func (e *engine) join(q *queue, p int32) {
	e.procs[p].next = none
	if q.head == none {
		q.head = p
	} else {
		e.procs[q.tail].next = p
	}
	q.tail = p
}

// launch asks the mapper for a device for the kernel of a process, and queues the call there. With
// mapping.Anywhere the call goes to the device that has been idle longest, or to the shared queue
// if none is idle.
func (e *engine) launch(p int32) error {
	pr := &e.procs[p]
	s := e.newCall()
	c := &e.calls[s]
	*c = call{
		Call: mapping.Call{
			Process: p, Rank: pr.rank, Node: pr.node, App: pr.app, Kernel: pr.draw.Kernel, Home: pr.home,
			In: min(pr.draw.In, maxBytes), Out: min(pr.draw.Out, maxBytes),
		},
		number: e.number, device: none, next: none, gpu: pr.draw.GPU, launched: e.now,
	}
	e.number++
	pr.open++
	e.result.Apps[pr.app].Launched++
	if reuse := e.Workload.Apps[pr.app].Reuse; reuse > 0 && pr.last != none {
		c.resident[0] = mapping.Resident{Device: pr.last, Bytes: int64(float64(reuse * float64(c.In)))}
		c.Resident = c.resident[:]
	}
	e.tell(s, Launched, 0)
	e.reports.deliver(e)
	e.view.Now = e.now
	var d int32
	if len(e.unexplained) > 0 && e.asked(c) {
		d = e.explain(c)
	} else {
		d = e.mapper.Map(&c.Call, &e.view)
	}
	anywhere := d == mapping.Anywhere && len(e.devices) > 0
	switch {
	case anywhere:
		if d = e.idle.head; d == none {
			e.tell(s, Queued, 0)
			e.wait(&e.shared, s)
			return nil
		}
	case d < 0 || int(d) >= len(e.devices):
		return fmt.Errorf("the mapper chose device %d for a process on node %s: there are %d, numbered from 0", d, e.Cluster.Nodes[pr.node].Name, len(e.devices))
	}
	e.give(s, d)
	e.tell(s, Queued, 0)
	if e.SendAhead && !anywhere && e.remote(&e.calls[s]) {
		e.goOut(s)
	} else {
		e.joinDevice(s)
	}
	return nil
}

// give assigns a call to a device, and enters it in the true table.
func (e *engine) give(s, d int32) {
	c := &e.calls[s]
	c.device = d
	e.procs[c.Process].last = d
	c.expected = e.truth.Assign(&c.Call, d)
	e.report(s, assigned)
}

// wait puts a call at the end of a queue.
func (e *engine) wait(q *queue, s int32) {
	if q.head == none {
		q.head = s
	} else {
		e.calls[q.tail].next = s
	}
	q.tail = s
}

// begin makes a call the holder of its device.
func (e *engine) begin(s int32) {
	c := &e.calls[s]
	d := &e.devices[c.device]
	d.holder, d.heldFrom = s, e.now
	e.idle.remove(c.device)
	c.held = e.now
	e.truth.Begin(c.device, c.expected, e.now)
	e.report(s, begun)
	e.tell(s, Holding, 0)
	if !e.remote(c) || c.arrived {
		e.runKernel(s)
	} else {
		e.goOut(s)
	}
}

// goOut starts the way of a call to another node: first the latency passes, then its input is sent.
func (e *engine) goOut(s int32) {
	c := &e.calls[s]
	c.stage = Holding
	latency := model.After(e.Cluster.Remote.Latency, e.Cluster.Nodes[c.Node].Link.Latency)
	if latency = time.Duration(e.further(int64(latency), c.Node, e.layout.NodeOf[c.device])); latency > 0 {
		e.at(s, latency)
		return
	}
	e.sendInput(s)
}

func (e *engine) remote(c *call) bool { return e.layout.NodeOf[c.device] != c.Node }

// at schedules the end of a call's stage. Events of one instant are ordered by the number of the
// call, not by its slot, so that the reuse of slots does not change the order.
func (e *engine) at(s int32, after time.Duration) {
	e.agenda.set(int32(len(e.procs))+s, model.After(e.now, after), int64(len(e.procs))+e.calls[s].number)
}

// advance ends the current stage of a call.
func (e *engine) advance(s int32) {
	c := &e.calls[s]
	switch c.stage {
	case Holding: // the latency is over
		e.sendInput(s)
	case Sending:
		e.endTransfer(s)
		e.arrive(s)
	case Running:
		e.endKernel(s)
	case Returning:
		e.endTransfer(s)
		e.finish(s)
	}
}

func (e *engine) sendInput(s int32) {
	c := &e.calls[s]
	c.stage = Sending
	bytes := c.In - c.ResidentOn(c.device)
	if !e.transfer(s, bytes, c.Node, e.layout.NodeOf[c.device]) {
		e.arrive(s)
	}
}

// arrive continues a call whose input has arrived: it runs if it holds the device; if the input was
// sent ahead, it queues for the device.
func (e *engine) arrive(s int32) {
	c := &e.calls[s]
	if e.devices[c.device].holder == s {
		e.runKernel(s)
		return
	}
	c.arrived = true
	e.joinDevice(s)
}

// joinDevice makes a call take its device if it is free, or queue for it.
func (e *engine) joinDevice(s int32) {
	d := &e.devices[e.calls[s].device]
	if d.holder == none {
		e.begin(s)
	} else {
		e.wait(&d.queue, s)
	}
}

func (e *engine) runKernel(s int32) {
	c := &e.calls[s]
	d := &e.devices[c.device]
	c.stage = Running
	e.tell(s, Running, 0)
	d.busyFrom = e.now
	c.ran = c.gpu
	if d.speed != 1 {
		c.ran = time.Duration(min(float64(c.gpu)/d.speed, never))
	}
	e.at(s, c.ran)
}

func (e *engine) endKernel(s int32) {
	c := &e.calls[s]
	r := &e.result.Devices[c.device]
	r.Busy += c.ran
	r.Kernels++
	held := e.HoldResults && e.remote(c)
	c.stage = Returning
	if !held {
		e.release(s)
	}
	if !e.remote(c) || !e.transfer(s, c.Out, e.layout.NodeOf[c.device], c.Node) {
		e.finish(s)
	}
}

// release frees the device of a call. The device takes the next call of its own queue, or if that
// is empty the next of the shared queue.
func (e *engine) release(s int32) {
	c := &e.calls[s]
	d := &e.devices[c.device]
	e.result.Devices[c.device].Held += e.now - d.heldFrom
	d.holder = none
	e.idle.append(c.device)
	e.truth.Finish(&c.Call, c.device, c.expected, c.ran)
	e.report(s, finished)
	e.tell(s, Released, 0)
	if next := d.queue.head; next != none {
		d.queue.head = e.calls[next].next
		e.begin(next)
	} else if next := e.shared.head; next != none {
		e.shared.head = e.calls[next].next
		e.give(next, c.device)
		e.begin(next)
	}
}

// finish ends a call, and lets its process continue.
func (e *engine) finish(s int32) {
	c := &e.calls[s]
	if e.devices[c.device].holder == s {
		e.release(s)
	}
	a := &e.result.Apps[c.App]
	a.Done++
	if e.remote(c) {
		a.Remote++
	}
	a.Queue = model.After(a.Queue, c.held-c.launched)
	a.Run = model.After(a.Run, c.ran)
	a.Transfer = model.After(a.Transfer, e.now-c.held-c.ran)
	e.tell(s, Done, 0)
	p, app := c.Process, c.App
	c.stage = Done
	e.forget(s)
	e.procs[p].open--
	if e.Workload.Apps[app].Async {
		e.endIfDone(p)
	} else {
		e.endStep(p)
	}
}

// transfer starts the transfer of a call's data, and returns whether it takes time. A node with
// bandwidth 0 has no limit: its port does not take part, and without any port the transfer is
// immediate.
func (e *engine) transfer(s int32, bytes int64, from, to int32) bool {
	c := &e.calls[s]
	bytes = min(e.further(scaled(bytes, e.overhead), from, to), maxBytes)
	e.tell(s, c.stage, bytes)
	out, in := 2*from, 2*to+1
	if e.Cluster.Nodes[from].Link.Bandwidth == 0 {
		out, in = in, none
		if e.Cluster.Nodes[to].Link.Bandwidth == 0 {
			out = none
		}
	} else if e.Cluster.Nodes[to].Link.Bandwidth == 0 {
		in = none
	}
	if bytes == 0 || out == none {
		e.moved(from, to, bytes)
		return false
	}
	c.bytes, c.left, c.rate, c.since = bytes, uint64(bytes)<<fraction, 0, e.now
	c.flow = e.fair.Add(out, in)
	for int(c.flow) >= len(e.callOfFlow) {
		e.callOfFlow = append(e.callOfFlow, none)
	}
	e.callOfFlow[c.flow] = s
	return true
}

// further is a cost between two nodes: higher if they are on different switches.
func (e *engine) further(cost int64, a, b int32) int64 {
	if e.far == 1000 || e.Cluster.Distance(a, b) < 2 {
		return cost
	}
	return scaled(cost, e.far)
}

// scaled is n times a factor in thousandths, rounded down, at most never.
func scaled(n int64, thousandths uint64) int64 {
	hi, lo := bits.Mul64(uint64(n), thousandths)
	if hi >= 1000 {
		return never
	}
	q, _ := bits.Div64(hi, lo, 1000)
	return int64(min(q, never))
}

// thousandths is a factor in thousandths; a factor of 0 means that none was given, which is 1.
func thousandths(factor float64) uint64 {
	if factor == 0 {
		return 1000
	}
	return uint64(math.Round(factor * 1000))
}

// moved counts bytes that have arrived.
func (e *engine) moved(from, to int32, bytes int64) {
	e.result.Nodes[from].Sent += bytes
	e.result.Nodes[to].Received += bytes
}

func (e *engine) endTransfer(s int32) {
	c := &e.calls[s]
	e.fair.Remove(c.flow)
	e.moved(e.ends(c))
	c.rate = 0
}

// ends is the source, the target and the size of a call's transfer.
func (e *engine) ends(c *call) (from, to int32, bytes int64) {
	if c.stage == Sending {
		return c.Node, e.layout.NodeOf[c.device], c.bytes
	}
	return e.layout.NodeOf[c.device], c.Node, c.bytes
}

// settle divides the bandwidth of the ports again after transfers have begun or ended, and
// reschedules the transfers whose rates changed. It returns whether any did.
func (e *engine) settle() bool {
	changed := e.fair.Settle()
	for _, f := range changed {
		s := e.callOfFlow[f]
		c := &e.calls[s]
		c.progress(e.now)
		c.rate = max(1, e.fair.Rate(f))
		if e.Observe != nil {
			e.Observe.Rate(e.now, c.number, c.rate)
		}
		e.at(s, timeFor(c.left, c.rate))
	}
	return len(changed) > 0
}

// progress subtracts what was transferred at the current rate since the last call of it.
func (c *call) progress(now time.Duration) {
	hi, lo := bits.Mul64(uint64(c.rate), uint64(now-c.since))
	done, _ := bits.Div64(hi, lo, uint64(time.Second)) // no overflow: a transfer ends before the quotient exceeds 64 bits
	c.left -= min(done, c.left)
	c.since = now
}

// timeFor is how long it takes to transfer left at a rate, rounded up.
func timeFor(left uint64, rate int64) time.Duration {
	hi, lo := bits.Mul64(left, uint64(time.Second))
	if hi >= uint64(rate) {
		return never
	}
	q, rest := bits.Div64(hi, lo, uint64(rate))
	if rest > 0 {
		q++
	}
	return time.Duration(min(q, never))
}

// close counts what is in progress at the end: devices that are held, and the bytes of transfers
// that have arrived, rounded down.
func (e *engine) close() {
	r := e.result
	r.End = e.Span
	if e.Span == 0 {
		r.End = e.now
	}
	for d := range e.devices {
		s := e.devices[d].holder
		if s == none {
			continue
		}
		r.Devices[d].Held += r.End - e.devices[d].heldFrom
		if e.calls[s].stage == Running {
			r.Devices[d].Busy += r.End - e.devices[d].busyFrom
		}
	}
	for i := range e.calls {
		if c := &e.calls[i]; c.rate > 0 {
			c.progress(r.End)
			from, to, bytes := e.ends(c)
			e.moved(from, to, bytes-int64((c.left+1<<fraction-1)>>fraction))
		}
	}
}

// tell reports a stage of a call to the observer, if there is one.
func (e *engine) tell(s int32, stage Stage, bytes int64) {
	if e.Observe == nil {
		return
	}
	c := &e.calls[s]
	e.Observe.Event(Event{At: e.now, Stage: stage, Call: c.number, Process: c.Process, Device: c.device, Bytes: bytes})
}

func (e *engine) newCall() int32 {
	if l := len(e.vacant); l > 0 {
		s := e.vacant[l-1]
		e.vacant = e.vacant[:l-1]
		return s
	}
	e.calls = append(e.calls, call{})
	e.agenda.grow(len(e.procs) + len(e.calls))
	return int32(len(e.calls) - 1)
}

// forget frees the slot of a call that is done, once all reports about it have been delivered.
func (e *engine) forget(s int32) {
	if c := &e.calls[s]; c.stage == Done && c.toTell == 0 {
		e.vacant = append(e.vacant, s)
	}
}
