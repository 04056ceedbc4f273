package mapping

import "time"

// Table is what is known of all devices: what is queued, how long the last
// kernels took, and which calls are on their way between nodes. Whoever drives a
// mapper keeps it by telling what happens to each call: Assign, Begin, Finish.
//
// Every change costs the same, however many devices there are.
type Table struct {
	// Estimate is how the table finds what calls are expected to take. Whoever keeps
	// the table sets it before the first call, to EstimateOf the mapper.
	Estimate Estimate

	layout  *Layout
	window  int32
	loads   []load
	devices []device
	recent  []time.Duration // window entries a device: its last run times, in turn
	nodes   []traffic

	// idle lists the devices with nothing queued, in no order; at is the place of
	// each in it, or -1.
	idle []int32
	at   []int32
	// outbound[n] counts the devices on nodes with n outbound calls.
	outbound []int32

	calls int64 // that are queued, on all devices
	// ran and runs are the sum and number of the run times that are in windows.
	ran  time.Duration
	runs int64

	history History
	misses  misses
}

// load is what scans of all devices read, close together so that they are quick.
type load struct {
	queued  int32
	inbound int32         // of its node
	mean    time.Duration // of its last run times, at least 1 ns; unknown before the first
}

const unknown = time.Duration(-1)

type device struct {
	// next is where the next run time goes; seen how many entries count.
	next, seen int32
	sum        time.Duration
	// expected is what was expected of the calls that are queued; begun is when
	// the one that has its turn began, and overdue what its rest, when it has run for
	// long, is more than what was expected of all of it.
	expected time.Duration
	begun    time.Duration
	overdue  time.Duration
}

// traffic is the calls of a node that are served elsewhere, and those of others
// that it serves, until they are finished.
type traffic struct{ out, in int32 }

// NewTable returns the table of idle devices that keeps the last window run times
// of each (k in the paper).
func NewTable(l *Layout, window int) *Table {
	t := &Table{
		layout: l, window: int32(max(1, window)),
		loads: make([]load, l.Devices()), devices: make([]device, l.Devices()), nodes: make([]traffic, l.Nodes()),
		idle: make([]int32, l.Devices()), at: make([]int32, l.Devices()),
	}
	t.recent = make([]time.Duration, l.Devices()*int(t.window))
	for d := range t.idle {
		t.idle[d], t.at[d] = int32(d), int32(d)
		t.loads[d].mean = unknown
	}
	t.outbound = []int32{int32(l.Devices())}
	return t
}

// Layout is what the table is about.
func (t *Table) Layout() *Layout { return t.layout }

// Assign notes that a call was given to a device, or waits for its turn there.
// What it expects the call to take must be told to Begin and Finish.
func (t *Table) Assign(c *Call, d int32) (expected time.Duration) {
	if t.Estimate != ByWindow {
		expected = max(t.Expect(c, d), leastExpected)
	}
	t.devices[d].expected += expected
	t.calls++
	if t.loads[d].queued++; t.loads[d].queued == 1 {
		t.leaveIdle(d)
	}
	if to := t.layout.NodeOf[d]; to != c.Node {
		t.send(c.Node, to, 1)
	}
	return expected
}

// Begin notes that a call has its turn on a device.
func (t *Table) Begin(d int32, expected, now time.Duration) {
	dev := &t.devices[d]
	dev.begun, dev.overdue = now, t.misses.rest(expected)-expected
}

// Finish notes that a call has left a device on which it ran for so long.
func (t *Table) Finish(c *Call, d int32, expected, ran time.Duration) {
	dev := &t.devices[d]
	dev.expected -= expected
	dev.overdue = 0
	t.calls--
	if t.loads[d].queued--; t.loads[d].queued == 0 {
		t.enterIdle(d)
	}
	if to := t.layout.NodeOf[d]; to != c.Node {
		t.send(c.Node, to, -1)
	}
	t.remember(d, ran)
	if t.Estimate != ByWindow {
		t.misses.observe(expected, ran)
		t.history.Observe(c, time.Duration(float64(ran)*t.layout.Speed[d]))
	}
}

func (t *Table) remember(d int32, ran time.Duration) {
	dev := &t.devices[d]
	slot := &t.recent[d*t.window+dev.next]
	dev.sum += ran - *slot
	t.ran += ran - *slot
	*slot = ran
	if dev.next++; dev.next == t.window {
		dev.next = 0
	}
	if dev.seen < t.window {
		dev.seen++
		t.runs++
	}
	t.loads[d].mean = max(1, dev.sum/time.Duration(dev.seen))
}

// send changes the number of calls that one node has given to another.
func (t *Table) send(from, to, by int32) {
	n := &t.nodes[from]
	devices := t.layout.First[from+1] - t.layout.First[from]
	t.outbound[n.out] -= devices
	n.out += by
	for int(n.out) >= len(t.outbound) {
		t.outbound = append(t.outbound, 0)
	}
	t.outbound[n.out] += devices

	t.nodes[to].in += by
	for d := t.layout.First[to]; d < t.layout.First[to+1]; d++ {
		t.loads[d].inbound += by
	}
}

func (t *Table) leaveIdle(d int32) {
	i, last := t.at[d], t.idle[len(t.idle)-1]
	t.idle[i], t.at[last] = last, i
	t.idle = t.idle[:len(t.idle)-1]
	t.at[d] = -1
}

func (t *Table) enterIdle(d int32) {
	t.at[d] = int32(len(t.idle))
	t.idle = append(t.idle, d)
}

// Queued is how many calls wait or run on a device (N of equation 2).
func (t *Table) Queued(d int32) int32 { return t.loads[d].queued }

// Idle lists the devices on which nothing waits or runs, in no order. The slice is valid
// until the table changes.
func (t *Table) Idle() []int32 { return t.idle }

// Waiting is how many calls, on all devices, have another before them.
func (t *Table) Waiting() int64 { return t.calls - int64(len(t.loads)-len(t.idle)) }

// Mean is the mean of the last run times of a device, at least 1 ns; of a device that
// has run nothing yet, that of all; 0 where nothing has run at all.
func (t *Table) Mean(d int32) time.Duration {
	if mean := t.loads[d].mean; mean != unknown {
		return mean
	}
	return t.meanOfAll()
}

func (t *Table) meanOfAll() time.Duration {
	if t.runs == 0 {
		return 0
	}
	return max(1, t.ran/time.Duration(t.runs))
}

// Outbound is how many unfinished calls of a node were given to others.
func (t *Table) Outbound(node int32) int32 { return t.nodes[node].out }

// Inbound is how many unfinished calls of others a node has.
func (t *Table) Inbound(node int32) int32 { return t.nodes[node].in }

// SumOfBusier is the sum, over the devices of all nodes but one, of the outbound calls of
// its node or of floor, whichever is more (the sum of equation 6). It costs as
// much as there are different numbers of outbound calls.
func (t *Table) SumOfBusier(but, floor int32) int64 {
	sum := int64(0)
	for out, devices := range t.outbound {
		sum += int64(devices) * int64(max(int32(out), floor))
	}
	own := t.layout.First[but+1] - t.layout.First[but]
	return sum - int64(own)*int64(max(t.nodes[but].out, floor))
}

// Expect is how long a call is expected to run on a device, from the history of its
// kernel; 0 where that is unknown, as it is with ByWindow.
func (t *Table) Expect(c *Call, d int32) time.Duration {
	if t.Estimate == ByWindow {
		return 0
	}
	return t.atSpeed(t.history.Expect(c, t.Estimate), d)
}

// atSpeed is how long a device takes for what takes so long at normal speed.
func (t *Table) atSpeed(normal time.Duration, d int32) time.Duration {
	if s := t.layout.Speed[d]; s != 1 {
		return time.Duration(float64(normal) / s)
	}
	return normal
}

// Backlog is how long a device is expected to be busy with what it has, from the
// history of the kernels, at least 1 ns for each call; 0 with ByWindow.
func (t *Table) Backlog(d int32, now time.Duration) time.Duration {
	dev := &t.devices[d]
	return dev.expected + max(dev.overdue, dev.begun-now)
}
