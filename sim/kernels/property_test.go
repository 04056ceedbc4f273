package kernels

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/need"
	"muster/internal/seeds"
	"muster/mapping"
	"muster/workload/phased"
)

// checker watches a run, and says what breaks the rules of the model. It knows
// them from the package comment and shares no state with the engine.
type checker struct {
	config  Config
	layout  *mapping.Layout
	problem error

	now    time.Duration
	calls  []*checkedCall
	holder []*checkedCall // by device
	queues [][]*checkedCall
	shared []*checkedCall
	answer int32 // of the mapper, to the last launch
	// unsent are calls that are to be sent ahead, and whose latency is not over.
	unsent  []*checkedCall
	flows   map[int64]*checkedCall // under way, by number
	nodes   []NodeResult
	busy    []time.Duration
	held    []time.Duration
	kernels []int64
}

type checkedCall struct {
	number  int64
	process int32
	device  int32
	stage   Stage
	at      [Done + 1]time.Duration
	seen    [Done + 1]bool
	ahead   bool          // its input travels before it joins a queue
	joined  time.Duration // a queue of a device
	arrived time.Duration // its input; -1: not yet
	// Of the transfer under way: its bytes, how fast since when, and what has travelled,
	// in 2^-20 bytes / 10^9. What is left is in 2^-20 bytes, rounded as the model says.
	bytes   int64
	left    *big.Int
	due     time.Duration // when all will have travelled
	rate    int64
	since   time.Duration
	moved   *big.Int
	changes int64
}

func newChecker(c Config) *checker {
	l := oracleLayout(c.Cluster, c.Workload)
	return &checker{
		config: c, layout: l, holder: make([]*checkedCall, l.Devices()), queues: make([][]*checkedCall, l.Devices()),
		flows: map[int64]*checkedCall{}, nodes: make([]NodeResult, l.Nodes()),
		busy: make([]time.Duration, l.Devices()), held: make([]time.Duration, l.Devices()), kernels: make([]int64, l.Devices()),
	}
}

func (k *checker) fail(format string, args ...any) {
	if k.problem == nil {
		k.problem = fmt.Errorf("at %v: "+format, append([]any{k.now}, args...)...)
	}
}

// advance ends an instant: it checks that no call waits unnecessarily, and that the ports are
// divided fairly.
func (k *checker) advance(to time.Duration) {
	if to < k.now {
		k.fail("back to %v", to)
	}
	for to > k.now {
		k.endInstant()
		// Data that were sent ahead arrive without a word.
		next := to
		for _, c := range k.flows {
			if c.onItsWay() {
				next = min(next, c.due)
			}
		}
		k.now = next
		for _, c := range k.flows {
			if c.due <= next && c.onItsWay() {
				k.arriveAhead(c)
			}
		}
	}
}

func (k *checker) endInstant() {
	for d, h := range k.holder {
		if h == nil && (len(k.queues[d]) > 0 || len(k.shared) > 0) {
			k.fail("device %d is idle, and calls wait", d)
		}
		if h != nil && !h.seen[Running] && (!k.remote(h) || h.arrived >= 0) {
			k.fail("call %d has its turn and its data, and does not run", h.number)
		}
	}
	k.unsent = slices.DeleteFunc(k.unsent, func(c *checkedCall) bool { return c.seen[Sending] })
	for _, c := range k.unsent {
		if c.at[Queued]+k.latency(c) <= k.now {
			k.fail("call %d is not sent ahead", c.number)
		}
	}
	k.checkPorts()
}

// onItsWay says whether a call is sent ahead, and its input is not there yet.
func (c *checkedCall) onItsWay() bool { return c.ahead && c.arrived < 0 }

// arriveAhead has a call join the queue of its device. Of what else joins it at this instant the checker does not know
// whether it was before.
func (k *checker) arriveAhead(c *checkedCall) {
	k.arrive(c, k.nodeOf(c.process), k.layout.NodeOf[c.device])
	k.joinDevice(c)
}

func (k *checker) joinDevice(c *checkedCall) {
	c.joined = k.now
	k.queues[c.device] = append(k.queues[c.device], c)
}

// takeTurn takes a call that has its turn on a device from its queue, and says whether it was its turn.
func (k *checker) takeTurn(c *checkedCall, device int32) bool {
	own := k.queues[device]
	if i := slices.Index(own, c); i >= 0 {
		k.queues[device] = slices.Delete(slices.Clone(own), i, i+1)
		return !slices.ContainsFunc(own[:i], func(o *checkedCall) bool { return o.joined < c.joined || !o.ahead && !c.ahead })
	}
	if len(k.shared) == 0 || k.shared[0] != c {
		return false
	}
	k.shared = k.shared[1:]
	return !slices.ContainsFunc(own, func(o *checkedCall) bool { return o.joined < k.now || !o.ahead })
}

func (k *checker) remote(c *checkedCall) bool {
	return k.layout.NodeOf[c.device] != k.nodeOf(c.process)
}

func (k *checker) Event(e Event) {
	k.advance(e.At)
	if e.Stage == Launched {
		if e.Call != int64(len(k.calls)) {
			k.fail("call %d launched after %d", e.Call, len(k.calls))
		}
		k.calls = append(k.calls, &checkedCall{number: e.Call, process: e.Process, device: -1, arrived: -1})
	}
	if e.Call >= int64(len(k.calls)) {
		k.fail("call %d has stage %d before its launch", e.Call, e.Stage)
		return
	}
	c := k.calls[e.Call]
	if c.process != e.Process || c.seen[e.Stage] || c.seen[Done] || e.Stage > Holding && c.device != e.Device {
		k.fail("call %d: %+v cannot be", c.number, e)
	}
	c.seen[e.Stage], c.at[e.Stage] = true, e.At
	remote := e.Device >= 0 && k.layout.NodeOf[e.Device] != k.nodeOf(c.process)
	switch e.Stage {
	case Queued:
		c.device = e.Device
		c.ahead = k.config.SendAhead && remote && k.answer != mapping.Anywhere
		switch {
		case e.Device < 0:
			k.shared = append(k.shared, c)
		case c.ahead:
			k.unsent = append(k.unsent, c)
		default:
			k.joinDevice(c)
		}
	case Holding:
		if k.holder[e.Device] != nil {
			k.fail("call %d takes device %d from call %d", c.number, e.Device, k.holder[e.Device].number)
		}
		if !k.takeTurn(c, e.Device) {
			k.fail("call %d is served out of turn", c.number)
			return
		}
		k.holder[e.Device], c.device = c, e.Device
	case Sending:
		if !remote {
			k.fail("local call %d sends", c.number)
		}
		from := c.at[Holding]
		if c.ahead {
			from = c.at[Queued]
		}
		if c.ahead == c.seen[Holding] {
			k.fail("call %d sends at the wrong time", c.number)
			return
		}
		if latency := e.At - from; latency != k.latency(c) {
			k.fail("latency of call %d is %v", c.number, latency)
		}
		k.depart(c, e.Bytes)
		if c.ahead && k.unhindered(c, k.nodeOf(c.process), k.layout.NodeOf[e.Device]) {
			k.arriveAhead(c)
		}
	case Running:
		if k.holder[e.Device] != c || remote != c.seen[Sending] {
			k.fail("call %d runs without its turn or its data", c.number)
		}
		k.arrive(c, k.nodeOf(c.process), k.layout.NodeOf[e.Device])
		if from := max(c.at[Holding], c.arrived); from != e.At {
			k.fail("call %d runs at %v, and could at %v", c.number, e.At, from)
		}
	case Returning:
		k.ran(c)
		if !remote {
			k.fail("local call %d returns", c.number)
		}
		k.depart(c, e.Bytes)
	case Released:
		k.ran(c)
		if k.holder[e.Device] != c || remote && k.config.HoldResults != c.seen[Returning] {
			k.fail("call %d releases device %d at the wrong time", c.number, e.Device)
		}
		k.holder[e.Device] = nil
		k.held[e.Device] += e.At - c.at[Holding]
	case Done:
		if !c.seen[Running] || remote != c.seen[Returning] || !c.seen[Released] {
			k.fail("call %d is done too early", c.number)
		}
		if remote {
			k.arrive(c, k.layout.NodeOf[e.Device], k.nodeOf(c.process))
		} else if c.at[Released] != e.At {
			k.fail("local call %d is not done when its kernel is", c.number)
		}
	}
	c.stage = e.Stage
}

// ran counts a kernel at its end.
func (k *checker) ran(c *checkedCall) {
	if !c.seen[Running] {
		k.fail("call %d has not run", c.number)
	}
	if c.stage == Running {
		k.busy[c.device] += k.now - c.at[Running]
		k.kernels[c.device]++
	}
}

func (k *checker) latency(c *checkedCall) time.Duration {
	node, cluster := k.nodeOf(c.process), k.config.Cluster
	latency := cluster.Remote.Latency + cluster.Nodes[node].Link.Latency
	if cluster.Remote.Far != 0 && cluster.Distance(node, k.layout.NodeOf[c.device]) == 2 {
		latency = timesThousandths(latency, cluster.Remote.Far)
	}
	return latency
}

// nodeOf is that of a process; they are numbered by application and node.
func (k *checker) nodeOf(process int32) int32 {
	node := int32(0)
	for a := range k.config.Workload.Apps {
		app := &k.config.Workload.Apps[a]
		for range app.Nodes {
			per := app.PerNode
			if per == 0 {
				per = k.config.Cluster.Nodes[node].Cores
			}
			if process -= int32(per); process < 0 {
				return node
			}
			node++
		}
	}
	panic("no such process")
}

func (k *checker) depart(c *checkedCall, bytes int64) {
	c.bytes, c.rate, c.since, c.changes, c.moved = bytes, 0, k.now, 0, new(big.Int)
	c.left, c.due = new(big.Int).Mul(big.NewInt(bytes), big.NewInt(1<<20)), math.MaxInt64
	k.flows[c.number] = c
}

func (k *checker) Rate(at time.Duration, call, rate int64) {
	// Rates are reported at the end of an instant, so they are checked only when the next one
	// begins.
	if at != k.now {
		k.advance(at)
	}
	c, ok := k.flows[call]
	if !ok || rate <= 0 {
		k.fail("call %d is given a rate of %d", call, rate)
		return
	}
	c.move(at)
	c.rate = rate
	c.due = at + time.Duration(roundUp(new(big.Int).Mul(c.left, big.NewInt(1e9)), big.NewInt(rate)).Int64())
	c.changes++
}

func (c *checkedCall) move(to time.Duration) {
	travelled := new(big.Int).Mul(big.NewInt(c.rate), big.NewInt(int64(to-c.since)))
	c.moved.Add(c.moved, travelled)
	c.left.Sub(c.left, travelled.Div(travelled, big.NewInt(1e9)))
	c.since = to
}

// unhindered says whether nothing travels, or between ports of which there is always enough.
func (k *checker) unhindered(c *checkedCall, from, to int32) bool {
	return c.bytes == 0 || k.config.Cluster.Nodes[from].Link.Bandwidth == 0 && k.config.Cluster.Nodes[to].Link.Bandwidth == 0
}

// arrive ends a transfer: all its bytes have travelled, and had not a nanosecond before.
func (k *checker) arrive(c *checkedCall, from, to int32) {
	if _, ok := k.flows[c.number]; !ok {
		return // it is a local call, or its data are there
	}
	delete(k.flows, c.number)
	if !c.seen[Returning] {
		c.arrived = k.now
	}
	k.nodes[from].Sent += c.bytes
	k.nodes[to].Received += c.bytes
	if k.unhindered(c, from, to) {
		if c.changes > 0 || c.since != k.now {
			k.fail("nothing travels for call %d, and it takes time", c.number)
		}
		return
	}
	c.move(k.now)
	all := new(big.Int).Mul(big.NewInt(c.bytes), new(big.Int).Mul(big.NewInt(1<<20), big.NewInt(1e9)))
	over := new(big.Int).Sub(c.moved, all)
	// Each change of rate may round what is left up, by less than one unit.
	most := new(big.Int).Mul(big.NewInt(c.changes), big.NewInt(1e9))
	if over.Sign() < 0 || over.Cmp(most.Add(most, big.NewInt(c.rate))) >= 0 {
		k.fail("call %d: %v of 10^-9 x 2^-20 bytes too many or few have travelled, of %d bytes", c.number, over, c.bytes)
	}
}

// checkPorts checks that no port exceeds its capacity, and that the division is max-min fair: each
// transfer has a port that is full and on which no transfer is faster. Rates are rounded down, so
// each transfer may leave a little.
func (k *checker) checkPorts() {
	type load struct{ capacity, sum, fastest, flows int64 }
	ports := make([]load, 2*k.layout.Nodes())
	through := func(c *checkedCall) [2]*load {
		from, to := k.nodeOf(c.process), k.layout.NodeOf[c.device]
		if c.stage == Returning || c.seen[Returning] {
			from, to = to, from
		}
		return [2]*load{&ports[2*from], &ports[2*to+1]}
	}
	for n := range k.layout.Nodes() {
		ports[2*n].capacity = k.config.Cluster.Nodes[n].Link.Bandwidth << 20
		ports[2*n+1].capacity = ports[2*n].capacity
	}
	for _, c := range k.flows {
		for _, p := range through(c) {
			p.sum += c.rate
			p.flows++
			p.fastest = max(p.fastest, c.rate)
		}
	}
	for i, p := range ports {
		if p.capacity > 0 && p.sum > p.capacity {
			k.fail("port %d carries %d of %d", i, p.sum, p.capacity)
		}
	}
	for _, c := range k.flows {
		fair := false
		for _, p := range through(c) {
			// What others leave is at most one unit each, on each port that stopped them.
			slack := 2 * int64(len(k.flows))
			fair = fair || p.capacity > 0 && p.sum+slack >= p.capacity && c.rate+slack >= p.fastest
		}
		if !fair {
			k.fail("call %d could travel faster than at %d", c.number, c.rate)
		}
	}
}

// end compares what is added up with the result.
func (k *checker) end(r *Result) error {
	if r.End < k.now {
		k.fail("the run ended before, at %v", r.End)
	}
	k.advance(r.End)
	sums := make([]AppResult, len(k.config.Workload.Apps))
	for _, c := range k.calls {
		app := &sums[k.layout.Owner[k.nodeOf(c.process)]]
		app.Launched++
		if !c.seen[Queued] {
			k.fail("call %d is nowhere", c.number)
		}
		if c.seen[Done] {
			run := c.at[Released] - c.at[Running]
			if c.seen[Returning] {
				run = c.at[Returning] - c.at[Running]
				app.Remote++
			}
			app.Done++
			app.Run += run
			app.Queue += c.at[Holding] - c.at[Launched]
			app.Transfer += c.at[Done] - c.at[Holding] - run
		}
	}
	for i := range sums {
		got := r.Apps[i]
		got.Name, got.Processes, got.Ended, got.LastEnd = "", 0, 0, 0
		if got != sums[i] {
			k.fail("application %d has %+v, not %+v", i, got, sums[i])
		}
	}
	if k.config.Span == 0 && (len(k.flows) > 0 || len(k.shared) > 0 || slices.ContainsFunc(k.holder, func(c *checkedCall) bool { return c != nil })) {
		k.fail("the run ended with calls under way")
	}
	for d, c := range k.holder {
		if c == nil {
			continue
		}
		k.held[d] += r.End - c.at[Holding]
		if c.stage == Running {
			k.busy[d] += r.End - c.at[Running]
		}
	}
	for d := range r.Devices {
		if want := (DeviceResult{Node: k.layout.NodeOf[d], Busy: k.busy[d], Held: k.held[d], Kernels: k.kernels[d]}); r.Devices[d] != want {
			k.fail("device %d has %+v, not %+v", d, r.Devices[d], want)
		}
	}
	k.endTransfers(r)
	return k.problem
}

// endTransfers counts what has travelled of transfers under way.
func (k *checker) endTransfers(r *Result) {
	unit := new(big.Int).Mul(big.NewInt(1<<20), big.NewInt(1e9))
	slack := make([]NodeResult, len(k.nodes)) // each may have one byte less, by rounding
	for _, c := range k.flows {
		c.move(r.End)
		moved := new(big.Int).Div(c.moved, unit).Int64()
		from, to := k.nodeOf(c.process), k.layout.NodeOf[c.device]
		if c.seen[Returning] {
			from, to = to, from
		}
		k.nodes[from].Sent += min(moved, c.bytes)
		k.nodes[to].Received += min(moved, c.bytes)
		slack[from].Sent++
		slack[to].Received++
	}
	sent, received := int64(0), int64(0)
	for n := range k.nodes {
		got, want := r.Nodes[n], k.nodes[n]
		sent, received = sent+got.Sent, received+got.Received
		if got.Sent > want.Sent || got.Sent < want.Sent-slack[n].Sent || got.Received > want.Received || got.Received < want.Received-slack[n].Received {
			k.fail("node %d has %+v, not %+v", n, got, want)
		}
	}
	if sent != received {
		k.fail("%d bytes were sent and %d received", sent, received)
	}
}

// checkProcesses computes from the launches when each CPU phase was: before its launch, for the
// time that was drawn. No process has two phases at the same time, no node more than it has cores,
// and no process waits while a core is free.
func (k *checker) checkProcesses() error {
	processes := 0
	for a := range k.config.Workload.Apps {
		processes += k.processesOf(a)
	}
	calls := make([][]*checkedCall, processes)
	for _, c := range k.calls {
		calls[c.process] = append(calls[c.process], c)
	}
	phases := make([][]cpuPhase, k.layout.Nodes())
	first := 0
	for a := range k.config.Workload.Apps {
		app := &k.config.Workload.Apps[a]
		of := calls[first : first+k.processesOf(a)]
		for rank := range of {
			if app.Iterations > 0 && int64(len(of[rank])) > app.Iterations {
				return fmt.Errorf("process %d has made %d steps of %d", first+rank, len(of[rank]), app.Iterations)
			}
			found, err := k.phasesOf(app, of, rank, k.config.Workload.Sources(k.config.Seed).Of(a, rank))
			if err != nil {
				return fmt.Errorf("process %d: %w", first+rank, err)
			}
			node := k.nodeOf(int32(first + rank))
			phases[node] = append(phases[node], found...)
		}
		first += len(of)
	}
	for n := range phases {
		if err := checkCores(phases[n], k.config.Cluster.Nodes[n].Cores); err != nil {
			return fmt.Errorf("node %d: %w", n, err)
		}
	}
	return nil
}

func (k *checker) processesOf(app int) int {
	n := 0
	for node, owner := range k.layout.Owner {
		if owner != int32(app) {
			continue
		}
		if per := k.config.Workload.Apps[app].PerNode; per > 0 {
			n += per
		} else {
			n += k.config.Cluster.Nodes[node].Cores
		}
	}
	return n
}

// cpuPhase of a process that could begin it when it was ready.
type cpuPhase struct{ ready, begin, end time.Duration }

func (k *checker) phasesOf(app *phased.App, of [][]*checkedCall, rank int, source *phased.Source) ([]cpuPhase, error) {
	var phases []cpuPhase
	for i, c := range of[rank] {
		draw := source.Next()
		ready := time.Duration(0)
		switch {
		case i > 0 && app.Async:
			ready = of[rank][i-1].at[Launched]
		case i > 0 && app.Barrier:
			for _, other := range of {
				if len(other) < i || !other[i-1].seen[Done] {
					return nil, fmt.Errorf("step %d begins before the barrier", i)
				}
				ready = max(ready, other[i-1].at[Done])
			}
		case i > 0:
			if !of[rank][i-1].seen[Done] {
				return nil, fmt.Errorf("step %d begins before the one before it has ended", i)
			}
			ready = of[rank][i-1].at[Done]
		}
		begin := c.at[Launched] - draw.CPU
		if begin < ready || draw.CPU == 0 && begin != ready {
			return nil, fmt.Errorf("the CPU phase of step %d begins at %v, and could at %v", i, begin, ready)
		}
		if draw.CPU > 0 {
			phases = append(phases, cpuPhase{ready, begin, c.at[Launched]})
		}
		if run := time.Duration(float64(draw.GPU) / k.speed(c)); c.seen[Released] && c.at[Running]+run != c.endOfKernel() {
			return nil, fmt.Errorf("the kernel of step %d took %v, not %v", i, c.endOfKernel()-c.at[Running], run)
		}
	}
	return phases, nil
}

func (k *checker) speed(c *checkedCall) float64 {
	if c.device < 0 {
		return 1
	}
	return k.layout.Speed[c.device]
}

func (c *checkedCall) endOfKernel() time.Duration {
	if c.seen[Returning] {
		return c.at[Returning]
	}
	return c.at[Released]
}

// checkCores: phases that ended are known, and they alone, so that a core may be busy
// with one that has not.
func checkCores(phases []cpuPhase, cores int) error {
	for _, p := range phases {
		busy := 0
		for _, q := range phases {
			if q.begin <= p.begin && p.begin < q.end {
				busy++
			}
		}
		if busy > cores {
			return fmt.Errorf("%d CPU phases at %v", busy, p.begin)
		}
		if p.begin > p.ready && !slices.ContainsFunc(phases, func(q cpuPhase) bool { return q.end == p.begin }) {
			return fmt.Errorf("a CPU phase begins at %v, though no core became free then, and could at %v", p.begin, p.ready)
		}
	}
	byReady := slices.Clone(phases)
	slices.SortStableFunc(byReady, func(a, b cpuPhase) int { return int(a.ready - b.ready) })
	for i := 1; i < len(byReady); i++ {
		if a, b := byReady[i-1], byReady[i]; a.ready < b.ready && a.begin > b.begin {
			return fmt.Errorf("a CPU phase wanted at %v begins after one wanted at %v", a.ready, b.ready)
		}
	}
	return nil
}

// overheard is a mapper that remembers its last answer.
type overheard struct {
	mapping.Mapper
	answer *int32
}

func (m overheard) Estimate() mapping.Estimate { return mapping.EstimateOf(m.Mapper) }

func (m overheard) Map(c *mapping.Call, v *mapping.View) int32 {
	*m.answer = m.Mapper.Map(c, v)
	return *m.answer
}

// checkRun runs, and checks everything.
func checkRun(config Config, mapper string) error {
	k := newChecker(config)
	config.Mapper = func(l *mapping.Layout) (mapping.Mapper, error) {
		m, err := namedMapper(mapper, l)
		return overheard{m, &k.answer}, err
	}
	config.Observe = k
	result, err := Run(context.Background(), config)
	if err != nil {
		return err
	}
	if err := k.end(result); err != nil {
		return err
	}
	if err := k.checkProcesses(); err != nil {
		return err
	}
	config.Observe = nil
	for _, threads := range []int{1, 2} {
		before := runtime.GOMAXPROCS(threads)
		again, err := Run(context.Background(), config)
		runtime.GOMAXPROCS(before)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(again, result) {
			return fmt.Errorf("again, unobserved, on %d threads, the result is\n%+v, not\n%+v", threads, *again, *result)
		}
	}
	return nil
}

// TestRunKeepsTheRules runs small configurations, which rapid makes smaller where one fails.
func TestRunKeepsTheRules(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		choose := func(what string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, what) }
		config := smallConfig(choose)
		name := rapid.SampledFrom(mapperNames).Draw(t, "mapper")
		if _, err := namedMapper(name, oracleLayout(config.Cluster, config.Workload)); err != nil {
			t.Skip(err) // not on this cluster: it has no GPU, or none that is not protected; rapid draws another
		}
		if err := checkRun(config, name); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMoreRunsKeepTheRules does so without favour for small numbers, and now and then with more
// nodes, calls and sharing than the oracle can bear.
func TestMoreRunsKeepTheRules(t *testing.T) {
	runs := need.Rounds(1000, 2500)
	if testing.Short() {
		runs = 500
	}
	for seed := range uint64(runs) {
		choose := randomly(rand.New(rand.NewPCG(seed, 78)))
		config := smallConfig(choose)
		// In an overloaded open queue with data sent ahead, the data of all calls travel
		// concurrently, and each instant costs time in proportion to them.
		async := slices.ContainsFunc(config.Workload.Apps, func(a phased.App) bool { return a.Async })
		if seed%50 == 49 && !(async && config.SendAhead) {
			enlarge(&config, 20, 5)
		}
		name := pick(choose, "mapper", mapperNames...)
		if _, err := namedMapper(name, oracleLayout(config.Cluster, config.Workload)); err != nil {
			continue
		}
		if err := checkRun(config, name); err != nil {
			t.Errorf("seed %d, mapper %s: %v", seed, name, err)
		}
	}
}

// enlarge adds nodes like those that there are, with an application for them, and makes the
// run some times as long.
func enlarge(c *Config, nodes, times int) {
	if c.Span == 0 {
		c.Span = 200 * time.Millisecond
	}
	c.Span *= time.Duration(times)
	for i := range c.Workload.Apps {
		c.Workload.Apps[i].Iterations *= 8 * int64(times)
	}
	for i := range nodes {
		n := c.Cluster.Nodes[i]
		n.Name = fmt.Sprint("more", i)
		c.Cluster.Nodes = append(c.Cluster.Nodes, n)
	}
	app := c.Workload.Apps[0]
	app.Name, app.Nodes, app.PerNode = "more", len(c.Cluster.Nodes)-c.Workload.Nodes(), 6
	c.Workload.Apps = append(c.Workload.Apps, app)
}
