package kernels

import (
	"math"
	"math/big"
	"slices"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/workload/phased"
)

// This file is the package comment written a second time, as plainly as it can
// be: it looks at everything to find what happens next, divides all ports from
// nothing after each instant, counts bytes exactly, and makes the table that a
// mapper sees by telling a new one all that has happened. It is slow, and shares
// no code with the engine that it judges.

type oracleState uint8

const (
	// Of a process.
	oComputing oracleState = iota
	oWantingCore
	oInCall
	oAtBarrier
	oEnded
	// Of a call.
	oQueued
	oDelayed
	oSending
	oArrived // its input, ahead of its turn
	oRunning
	oReturning
	oFinished
)

type oracleProcess struct {
	app, rank, node, home int32
	source                *phased.Source
	state                 oracleState
	due                   time.Duration // the end of its CPU phase
	draw                  phased.Draw
	begun, done           int64 // steps
	last                  int32 // the device that its last call was given
}

type oracleCall struct {
	number  int64
	process int32
	call    mapping.Call
	kernel  time.Duration
	state   oracleState
	device  int32
	due     time.Duration // of oDelayed and oRunning
	// While its data travel: what was left of them at since, in 2^-20 bytes, and the rate, in the
	// same unit per second.
	left  *big.Int
	since time.Duration
	rate  int64

	at       [Done + 1]time.Duration
	released bool
	ahead    bool          // it is sent before it joins the queue of its device
	joined   time.Duration // that queue
}

type oracleDevice struct {
	node   int32
	speed  float64
	queue  []*oracleCall
	holder *oracleCall
	idle   int // the turn in which it became idle
	result DeviceResult
}

// oracleNote is an entry for a table.
type oracleNote struct {
	at   time.Duration
	kind Stage // Queued, Holding or Released
	call *oracleCall
}

type oracle struct {
	Config
	layout *mapping.Layout
	mapper mapping.Mapper
	window int

	now     time.Duration
	procs   []*oracleProcess
	calls   []*oracleCall // all, in the order of launch
	devices []*oracleDevice
	shared  []*oracleCall
	cores   []int
	waiting [][]int32 // processes that want a core, by node
	turn    int
	notes   []oracleNote

	events []Event
	rates  []oracleRate
	result Result
}

type oracleRate struct {
	at   time.Duration
	call int64
	rate int64
}

var (
	oneSecond = big.NewInt(int64(time.Second))
	oneByte   = big.NewInt(1 << 20)
)

// newOracle is a run with a mapper that sees the given layout.
func newOracle(c Config, layout *mapping.Layout) (*oracle, error) {
	o := &oracle{Config: c, layout: layout, window: c.Window}
	if o.window == 0 {
		o.window = 10
	}
	var err error
	if o.mapper, err = c.Mapper(layout); err != nil {
		return nil, err
	}
	for n := range c.Cluster.Nodes {
		for _, t := range c.Cluster.Nodes[n].GPUs {
			o.devices = append(o.devices, &oracleDevice{node: int32(n), speed: c.Cluster.GPUTypes[t].Speed, idle: o.turn})
			o.turn++
		}
		o.cores = append(o.cores, c.Cluster.Nodes[n].Cores)
		o.waiting = append(o.waiting, nil)
	}
	node := int32(0)
	for a := range c.Workload.Apps {
		app := &c.Workload.Apps[a]
		result := AppResult{Name: app.Name}
		for range app.Nodes {
			per := app.PerNode
			if per == 0 {
				per = c.Cluster.Nodes[node].Cores
			}
			for i := range per {
				home, gpus := int32(-1), layout.First[node+1]-layout.First[node]
				if gpus > 0 {
					home = layout.First[node] + int32(i)%gpus
				}
				o.procs = append(o.procs, &oracleProcess{
					app: int32(a), rank: int32(result.Processes), node: node, home: home, last: -1,
					source: c.Workload.Sources(c.Seed).Of(a, result.Processes),
				})
				result.Processes++
			}
			node++
		}
		o.result.Apps = append(o.result.Apps, result)
	}
	return o, nil
}

// oracleLayout is the description of the cluster for mappers.
func oracleLayout(c *model.Cluster, w *phased.Workload) *mapping.Layout {
	l := &mapping.Layout{First: []int32{0}}
	for n := range c.Nodes {
		for _, t := range c.Nodes[n].GPUs {
			l.NodeOf = append(l.NodeOf, int32(n))
			l.Speed = append(l.Speed, c.GPUTypes[t].Speed)
		}
		l.First = append(l.First, int32(len(l.NodeOf)))
		l.Cores = append(l.Cores, int32(c.Nodes[n].Cores))
		l.Owner = append(l.Owner, -1)
	}
	// Network properties are listed by node if they differ between nodes. Switches are numbered in
	// the order in which nodes name them.
	l.Bandwidth, l.Latency = c.Nodes[0].Link.Bandwidth, c.Remote.Latency+c.Nodes[0].Link.Latency
	l.Overhead, l.Far = c.Remote.Overhead, c.Remote.Far
	var names []string
	for _, n := range c.Nodes {
		if !slices.Contains(names, n.Switch) {
			names = append(names, n.Switch)
		}
	}
	for _, n := range c.Nodes {
		if slices.ContainsFunc(c.Nodes, func(o model.Node) bool { return o.Link.Bandwidth != n.Link.Bandwidth }) {
			l.Links = append(l.Links, n.Link.Bandwidth)
		}
		if slices.ContainsFunc(c.Nodes, func(o model.Node) bool { return o.Link.Latency != n.Link.Latency }) {
			l.Latencies = append(l.Latencies, c.Remote.Latency+n.Link.Latency)
		}
		if len(names) > 1 {
			l.Switch = append(l.Switch, int32(slices.Index(names, n.Switch)))
		}
	}
	node := 0
	for a := range w.Apps {
		l.Critical = append(l.Critical, w.Apps[a].Critical)
		for range w.Apps[a].Nodes {
			l.Owner[node] = int32(a)
			node++
		}
	}
	return l
}

func (o *oracle) run() *Result {
	for i := range o.procs {
		o.begin(int32(i))
	}
	o.instant()
	o.divide()
	for {
		next, ok := o.next()
		if !ok || o.Span > 0 && next > o.Span {
			break
		}
		o.pass(next)
		o.instant()
		o.divide()
	}
	if o.Span > 0 {
		o.pass(o.Span)
		o.result.End = o.Span
	} else {
		for i := range o.result.Apps {
			o.result.End = max(o.result.End, o.result.Apps[i].LastEnd)
		}
	}
	return o.finish()
}

// next is when something is due.
func (o *oracle) next() (time.Duration, bool) {
	next, ok := time.Duration(0), false
	see := func(at time.Duration, due bool) {
		if due && (!ok || at < next) {
			next, ok = at, true
		}
	}
	for _, p := range o.procs {
		see(p.dueAt())
	}
	for _, c := range o.calls {
		see(c.dueAt())
	}
	return next, ok
}

func (p *oracleProcess) dueAt() (time.Duration, bool) {
	return p.due, p.state == oComputing
}

func (c *oracleCall) dueAt() (time.Duration, bool) {
	switch c.state {
	case oDelayed, oRunning:
		return c.due, true
	case oSending, oReturning:
		if c.rate == 0 {
			return 0, false // until the ports are divided
		}
		rest := new(big.Int).Mul(c.left, oneSecond)
		return c.since + time.Duration(roundUp(rest, big.NewInt(c.rate)).Int64()), true
	}
	return 0, false
}

// roundUp is a / b, or the next whole number.
func roundUp(a, b *big.Int) *big.Int {
	q := new(big.Int).Add(a, b)
	return q.Sub(q, big.NewInt(1)).Div(q, b)
}

// leftAt is what is left of the data at an instant, exactly: in 2^-20 bytes, of which there
// are as many in a whole as nanoseconds in a second.
func (c *oracleCall) leftAt(now time.Duration) *big.Int {
	left := new(big.Int).Mul(c.left, oneSecond)
	left.Sub(left, new(big.Int).Mul(big.NewInt(c.rate), big.NewInt(int64(now-c.since))))
	if left.Sign() < 0 {
		return left.SetInt64(0)
	}
	return left
}

// pass lets time pass; the work of devices is counted.
func (o *oracle) pass(to time.Duration) {
	for _, d := range o.devices {
		if d.holder == nil {
			continue
		}
		d.result.Held += to - o.now
		if d.holder.state == oRunning {
			d.result.Busy += to - o.now
		}
	}
	o.now = to
}

// instant does what is due now, processes first, and what this brings about.
func (o *oracle) instant() {
	for o.processDue() || o.callDue() {
	}
}

func (o *oracle) processDue() bool {
	for i, p := range o.procs {
		if at, ok := p.dueAt(); ok && at <= o.now {
			o.process(int32(i))
			return true
		}
	}
	return false
}

func (o *oracle) callDue() bool {
	for _, c := range o.calls {
		if at, ok := c.dueAt(); ok && at <= o.now {
			o.call(c)
			return true
		}
	}
	return false
}

// process ends the CPU phase of a process.
func (o *oracle) process(i int32) {
	p := o.procs[i]
	if p.draw.CPU > 0 {
		if w := o.waiting[p.node]; len(w) > 0 {
			q := o.procs[w[0]]
			o.waiting[p.node] = w[1:]
			q.state, q.due = oComputing, o.now+q.draw.CPU
		} else {
			o.cores[p.node]++
		}
	}
	o.launch(i)
}

// begin begins the next step of a process.
func (o *oracle) begin(i int32) {
	p := o.procs[i]
	if app := &o.Workload.Apps[p.app]; app.Iterations > 0 && p.begun == app.Iterations {
		p.state = oInCall // with Async, its last calls may not be done
		o.endIfDone(p)
		return
	}
	p.begun++
	p.draw = p.source.Next()
	switch {
	case p.draw.CPU == 0:
		p.state, p.due = oComputing, o.now
	case o.cores[p.node] > 0:
		o.cores[p.node]--
		p.state, p.due = oComputing, o.now+p.draw.CPU
	default:
		p.state = oWantingCore
		o.waiting[p.node] = append(o.waiting[p.node], i)
	}
}

func (o *oracle) endIfDone(p *oracleProcess) {
	app := &o.Workload.Apps[p.app]
	if app.Iterations > 0 && p.done == app.Iterations {
		p.state = oEnded
		r := &o.result.Apps[p.app]
		r.Ended++
		r.LastEnd = o.now
	}
}

func (o *oracle) tell(c *oracleCall, s Stage, bytes int64) {
	c.at[s] = o.now
	o.events = append(o.events, Event{At: o.now, Stage: s, Call: c.number, Process: c.process, Device: c.device, Bytes: bytes})
}

func (o *oracle) note(kind Stage, c *oracleCall) {
	o.notes = append(o.notes, oracleNote{o.now, kind, c})
}

func (o *oracle) launch(i int32) {
	p := o.procs[i]
	app := &o.Workload.Apps[p.app]
	p.state = oInCall
	c := &oracleCall{
		number: int64(len(o.calls)), process: i, state: oQueued, device: -1,
		kernel: p.draw.GPU,
		call: mapping.Call{
			Process: i, Rank: p.rank, Node: p.node, App: p.app, Kernel: p.draw.Kernel, Home: p.home,
			In: p.draw.In, Out: p.draw.Out,
		},
	}
	if app.Reuse > 0 && p.last >= 0 {
		c.call.Resident = []mapping.Resident{{Device: p.last, Bytes: reused(app, p.draw.In)}}
	}
	o.calls = append(o.calls, c)
	o.tell(c, Launched, 0)
	o.result.Apps[p.app].Launched++

	d := o.mapper.Map(&c.call, o.view())
	named := d != mapping.Anywhere
	if !named {
		d = o.longestIdle()
	}
	c.device = d
	o.tell(c, Queued, 0)
	if d < 0 {
		o.shared = append(o.shared, c)
	} else {
		o.give(c, d)
		if c.ahead = o.SendAhead && named && o.remote(c); c.ahead {
			o.setOut(c)
		} else {
			o.join(c)
		}
	}
	if app.Async {
		o.begin(i)
	}
}

// give assigns a device to a call.
func (o *oracle) give(c *oracleCall, d int32) {
	c.device = d
	o.procs[c.process].last = d
	o.note(Queued, c)
}

func reused(app *phased.App, in int64) int64 {
	return min(in, int64(float64(app.Reuse*float64(in))))
}

func (o *oracle) longestIdle() int32 {
	best := int32(-1)
	for i, d := range o.devices {
		if d.holder == nil && (best < 0 || d.idle < o.devices[best].idle) {
			best = int32(i)
		}
	}
	return best
}

// view is what a mapper sees: new tables, filled with all that is known.
func (o *oracle) view() *mapping.View {
	v := &mapping.View{Now: o.now, Local: o.table(0)}
	v.Table = v.Local
	if o.Status.Delay > 0 {
		v.Table = o.table(o.Status.Delay)
	}
	if o.Status.FalsePositive > 0 || o.Status.FalseNegative > 0 {
		v.Wrong = &mapping.Wrong{Positive: o.Status.FalsePositive, Negative: o.Status.FalseNegative}
	}
	return v
}

func (o *oracle) table(delay time.Duration) *mapping.Table {
	t := mapping.NewTable(o.layout, o.window)
	t.Estimate = mapping.EstimateOf(o.mapper)
	expected := map[int64]time.Duration{}
	for _, n := range o.notes {
		if n.at+delay > o.now {
			break
		}
		c := n.call
		switch n.kind {
		case Queued:
			expected[c.number] = t.Assign(&c.call, c.device)
		case Holding:
			t.Begin(c.device, expected[c.number], n.at)
		case Released:
			t.Finish(&c.call, c.device, expected[c.number], o.kernelTime(c))
		}
	}
	return t
}

func (o *oracle) kernelTime(c *oracleCall) time.Duration {
	if s := o.devices[c.device].speed; s != 1 {
		return time.Duration(float64(c.kernel) / s)
	}
	return c.kernel
}

func (o *oracle) remote(c *oracleCall) bool { return o.devices[c.device].node != c.call.Node }

// join has a call wait for its device, unless that is idle.
func (o *oracle) join(c *oracleCall) {
	c.joined = o.now
	d := o.devices[c.device]
	if d.holder != nil {
		d.queue = append(d.queue, c)
		return
	}
	o.hold(c)
}

// hold gives a call its turn on its device.
func (o *oracle) hold(c *oracleCall) {
	o.devices[c.device].holder = c
	o.tell(c, Holding, 0)
	o.note(Holding, c)
	if !o.remote(c) || c.state == oArrived {
		o.start(c)
	} else {
		o.setOut(c)
	}
}

// setOut begins the way of a call to another node.
func (o *oracle) setOut(c *oracleCall) {
	latency := o.Cluster.Remote.Latency + o.Cluster.Nodes[c.call.Node].Link.Latency
	if o.far(c) {
		latency = timesThousandths(latency, o.Cluster.Remote.Far)
	}
	c.state, c.due = oDelayed, o.now+latency
	if latency == 0 {
		o.call(c)
	}
}

func (o *oracle) start(c *oracleCall) {
	c.state, c.due = oRunning, o.now+o.kernelTime(c)
	o.tell(c, Running, 0)
}

// call does what is due for a call.
func (o *oracle) call(c *oracleCall) {
	switch c.state {
	case oDelayed:
		bytes := c.call.In
		for _, r := range c.call.Resident {
			if r.Device == c.device {
				bytes -= r.Bytes
			}
		}
		bytes = o.onTheWire(c, bytes)
		o.tell(c, Sending, bytes)
		o.travel(c, oSending, bytes)
	case oSending:
		if c.ahead {
			c.state = oArrived
			o.join(c)
		} else {
			o.start(c)
		}
	case oRunning:
		d := o.devices[c.device]
		d.result.Kernels++
		if !o.remote(c) {
			o.release(c)
			o.done(c)
			return
		}
		if !o.HoldResults {
			o.release(c)
		}
		bytes := o.onTheWire(c, c.call.Out)
		o.tell(c, Returning, bytes)
		o.travel(c, oReturning, bytes)
	case oReturning:
		if o.HoldResults {
			o.release(c)
		}
		o.done(c)
	}
}

// onTheWire is what travels for bytes of a call.
func (o *oracle) onTheWire(c *oracleCall, bytes int64) int64 {
	if o.Cluster.Remote.Overhead != 0 {
		bytes = timesThousandths(bytes, o.Cluster.Remote.Overhead)
	}
	if o.far(c) {
		bytes = timesThousandths(bytes, o.Cluster.Remote.Far)
	}
	return bytes
}

// far says whether a call's node and device are on different switches, and the cluster has a factor
// for that.
func (o *oracle) far(c *oracleCall) bool {
	return o.Cluster.Remote.Far != 0 && o.Cluster.Distance(c.call.Node, o.layout.NodeOf[c.device]) == 2
}

// timesThousandths multiplies by a factor that has three digits after the point.
func timesThousandths[T int64 | time.Duration](n T, factor float64) T {
	return n * T(math.Round(factor*1000)) / 1000
}

// travel sets data on their way.
func (o *oracle) travel(c *oracleCall, s oracleState, bytes int64) {
	c.state, c.rate, c.since = s, 0, o.now
	c.left = new(big.Int).Mul(big.NewInt(bytes), oneByte)
	out, in := o.ends(c)
	if bytes == 0 || o.Cluster.Nodes[out].Link.Bandwidth == 0 && o.Cluster.Nodes[in].Link.Bandwidth == 0 {
		o.call(c)
	}
}

// ends are the nodes from and to which data travel.
func (o *oracle) ends(c *oracleCall) (out, in int32) {
	if c.state == oSending {
		return c.call.Node, o.devices[c.device].node
	}
	return o.devices[c.device].node, c.call.Node
}

func (o *oracle) release(c *oracleCall) {
	d := o.devices[c.device]
	c.released = true
	o.tell(c, Released, 0)
	o.note(Released, c)
	d.holder = nil
	switch {
	case len(d.queue) > 0:
		next := d.queue[0]
		d.queue = d.queue[1:]
		o.hold(next)
	case len(o.shared) > 0:
		next := o.shared[0]
		o.shared = o.shared[1:]
		o.give(next, c.device)
		o.hold(next)
	default:
		d.idle = o.turn
		o.turn++
	}
}

func (o *oracle) done(c *oracleCall) {
	c.state = oFinished
	o.tell(c, Done, 0)
	p := o.procs[c.process]
	app, r := &o.Workload.Apps[p.app], &o.result.Apps[p.app]
	kernel := o.kernelTime(c)
	r.Done++
	r.Queue += c.at[Holding] - c.at[Launched]
	r.Run += kernel
	if o.remote(c) {
		r.Remote++
		r.Transfer += o.now - c.at[Holding] - kernel
	}
	p.done++
	switch {
	case app.Async:
		if p.state == oInCall {
			o.endIfDone(p)
		}
	case app.Barrier:
		p.state = oAtBarrier
		for _, q := range o.procs {
			if q.app == p.app && q.state != oAtBarrier {
				return
			}
		}
		for i, q := range o.procs {
			if q.app == p.app {
				o.begin(int32(i))
			}
		}
	default:
		o.begin(c.process)
	}
}

// divide gives each transfer its rate: all rise together, and a port that is
// full stops those that use it.
func (o *oracle) divide() {
	nodes := len(o.Cluster.Nodes)
	type port struct {
		left    int64
		flows   []*oracleCall
		unfixed int64
	}
	ports := make([]port, 2*nodes) // out, in, of each node
	for n := range nodes {
		ports[2*n].left = o.Cluster.Nodes[n].Link.Bandwidth << 20
		ports[2*n+1].left = ports[2*n].left
	}
	before := map[*oracleCall]int64{}
	for _, c := range o.calls {
		if c.state != oSending && c.state != oReturning {
			continue
		}
		before[c] = c.rate
		c.rate = 0
		out, in := o.ends(c)
		for _, p := range []int{2 * int(out), 2*int(in) + 1} {
			if ports[p].left > 0 {
				ports[p].flows = append(ports[p].flows, c)
				ports[p].unfixed++
			}
		}
	}
	for {
		full := -1
		for p := range ports {
			if ports[p].unfixed > 0 && (full < 0 || ports[p].left/ports[p].unfixed < ports[full].left/ports[full].unfixed) {
				full = p
			}
		}
		if full < 0 {
			break
		}
		rate := ports[full].left / ports[full].unfixed
		for _, c := range ports[full].flows {
			if c.rate != 0 {
				continue
			}
			c.rate = rate
			for p := range ports {
				for _, f := range ports[p].flows {
					if f == c {
						ports[p].left -= rate
						ports[p].unfixed--
					}
				}
			}
		}
	}
	for _, c := range o.calls {
		if was, ok := before[c]; ok && was != c.rate {
			now := c.rate
			c.rate = was
			c.left, c.since = roundUp(c.leftAt(o.now), oneSecond), o.now
			c.rate = now
			o.rates = append(o.rates, oracleRate{o.now, c.number, c.rate})
		}
	}
}

// finish adds up what came out.
func (o *oracle) finish() *Result {
	r := &o.result
	for _, d := range o.devices {
		d.result.Node = d.node
		r.Devices = append(r.Devices, d.result)
	}
	r.Nodes = make([]NodeResult, len(o.Cluster.Nodes))
	sent := make([]*big.Int, 2*len(r.Nodes))
	for i := range sent {
		sent[i] = new(big.Int)
	}
	for _, e := range o.events {
		if e.Stage != Sending && e.Stage != Returning || e.Bytes == 0 {
			continue
		}
		c := o.calls[e.Call]
		moved := new(big.Int).Mul(big.NewInt(e.Bytes), oneByte)
		from, to := c.call.Node, o.devices[c.device].node
		if e.Stage == Returning {
			from, to = to, from
		}
		if e.Stage == Sending && c.state == oSending || e.Stage == Returning && c.state == oReturning {
			moved.Sub(moved, roundUp(c.leftAt(o.now), oneSecond))
		}
		moved.Div(moved, oneByte)
		sent[from].Add(sent[from], moved)
		sent[len(r.Nodes)+int(to)].Add(sent[len(r.Nodes)+int(to)], moved)
	}
	for n := range r.Nodes {
		r.Nodes[n] = NodeResult{sent[n].Int64(), sent[len(r.Nodes)+n].Int64()}
	}
	return r
}
