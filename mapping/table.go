package mapping

import (
	"math/bits"
	"time"
)

// Table is what is known of all devices: what is queued, how long the last kernels took, and which
// calls are on their way between nodes. The driver of a mapper maintains it by reporting what
// happens to each call: Assign, Begin, Finish.
//
// Every change costs the same, however many devices there are.
type Table struct {
	// Estimate is how the table computes what calls are expected to take. The owner of the table
	// sets it before the first call, to EstimateOf the mapper.
	Estimate Estimate

	layout  *Layout
	window  int
	loads   []load
	devices []device
	recent  []time.Duration // window entries a device: its last run times, in turn
	nodes   []traffic
	blocks  []block // of the loads

	// idle lists the devices with nothing queued, in no order; at is the place of
	// each in it, or -1.
	idle []int32
	at   []int32
	// outbound[n] counts the devices on nodes with n outbound calls, up to the most that
	// any node with devices has.
	outbound []int32

	calls int64 // that are queued, on all devices
	// ran and runs are the sum and number of the run times that are in windows.
	ran  total
	runs int64

	history history
	misses  misses

	busiest int32 // the most inbound calls that a node has had
}

// load is what scans of all devices read, close together so that they are quick.
type load struct {
	queued  int32
	inbound int32 // of its node
	// mean is that of its last run times, at least 1 ns, but so short that queued times it
	// is not more than forever; unknown before the first.
	mean time.Duration
}

const unknown = time.Duration(-1)

// bound keeps the product that scans need within its bounds.
func (l *load) bound() {
	if l.mean != unknown && multiple(l.queued, l.mean) == forever {
		l.mean = forever / time.Duration(l.queued)
	}
}

type device struct {
	// next is where the next run time goes; seen how many entries count.
	next, seen int
	sum        time.Duration
	// expected is what was expected of the calls that are queued, at most forever; begun
	// is when the one that has its turn began, and overdue what its rest, when it has run
	// for long, is more than what was expected of all of it.
	expected time.Duration
	begun    time.Duration
	overdue  time.Duration
	// others is how many of the queued calls Beside has told of, and othersTake how much of
	// expected is theirs.
	others     int32
	othersTake time.Duration
}

// traffic is the calls of a node that are served elsewhere, and those of others
// that it serves, until they are finished.
type traffic struct{ out, in int32 }

// total is a sum of times, of any number of devices: more than one word holds.
type total struct{ high, low uint64 }

func (s *total) add(t time.Duration) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, uint64(t), 0)
	s.high += carry
}

func (s *total) take(t time.Duration) {
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, uint64(t), 0)
	s.high -= borrow
}

// mean is the total divided by of, the number of times that were added.
func (s *total) mean(of int64) time.Duration {
	mean, _ := bits.Div64(s.high, s.low, uint64(of))
	return time.Duration(mean)
}

// NewTable returns the table of idle devices that keeps the last window run times
// of each (k in the paper), which need 8 bytes each.
func NewTable(l *Layout, window int) *Table {
	t := &Table{
		layout: l, window: max(1, window),
		loads: make([]load, l.Devices()), devices: make([]device, l.Devices()), nodes: make([]traffic, l.Nodes()), blocks: newBlocks(l.Devices()),
		idle: make([]int32, l.Devices()), at: make([]int32, l.Devices()),
	}
	t.recent = make([]time.Duration, l.Devices()*t.window)
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
		expected = min(max(t.Expect(c, d), leastExpected), forever-t.devices[d].expected)
	}
	t.devices[d].expected += expected
	t.calls++
	if t.loads[d].queued++; t.loads[d].queued == 1 {
		t.leaveIdle(d)
	}
	t.loads[d].bound()
	t.touch(d)
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
		t.history.observe(c, bounded(float64(ran)*t.layout.Speed[d]))
	}
}

// remember puts a run time into the window of a device. Their sum is no longer than the
// device has been there; that of all devices may be.
func (t *Table) remember(d int32, ran time.Duration) {
	dev := &t.devices[d]
	slot := &t.recent[t.place(d)]
	dev.sum += ran - *slot
	t.ran.add(ran)
	t.ran.take(*slot)
	*slot = ran
	if dev.next++; dev.next == t.window {
		dev.next = 0
	}
	if dev.seen < t.window {
		dev.seen++
		t.runs++
	}
	t.loads[d].mean = max(1, dev.sum/time.Duration(dev.seen))
	t.loads[d].bound()
	t.touch(d)
}

// Forget forgets how long kernels took on a device, because that was long ago: it counts as one that has
// run nothing yet.
func (t *Table) Forget(d int32) {
	dev := &t.devices[d]
	for i := range t.window {
		slot := &t.recent[int(d)*t.window+i]
		t.ran.take(*slot)
		*slot = 0
	}
	t.runs -= int64(dev.seen)
	dev.next, dev.seen, dev.sum = 0, 0, 0
	t.loads[d].mean = unknown
	t.touch(d)
}

// Beside says how many calls of others wait or run on a device now, and how long one of them is
// expected to take. They are calls that nobody tells the table of one by one: those of programs that
// map their launches by tables of their own, or not at all. What was said before is forgotten.
func (t *Table) Beside(d, calls int32, each time.Duration) {
	dev, load := &t.devices[d], &t.loads[d]
	before := load.queued
	load.queued += calls - dev.others
	t.calls += int64(calls - dev.others)
	dev.others = calls
	dev.expected -= dev.othersTake
	dev.othersTake = 0
	if t.Estimate != ByWindow && calls > 0 {
		dev.othersTake = min(multiple(calls, max(each, leastExpected)), forever-dev.expected)
		dev.expected += dev.othersTake
	}
	switch {
	case before == 0 && load.queued > 0:
		t.leaveIdle(d)
	case before > 0 && load.queued == 0:
		t.enterIdle(d)
	}
	load.bound()
	t.touch(d)
}

// Others is how many calls of others are on a device, as Beside has said.
func (t *Table) Others(d int32) int32 { return t.devices[d].others }

// place is where the next run time of a device goes. Many devices with long windows
// have more places than 32 bits count.
func (t *Table) place(d int32) int { return int(d)*t.window + t.devices[d].next }

// send changes the number of calls that one node has given to another, by one.
func (t *Table) send(from, to, by int32) {
	n := &t.nodes[from]
	before := n.out
	n.out += by
	if devices := t.layout.First[from+1] - t.layout.First[from]; devices > 0 {
		if int(n.out) == len(t.outbound) {
			t.outbound = append(t.outbound, 0)
		}
		t.outbound[n.out] += devices
		t.outbound[before] -= devices
		if last := len(t.outbound) - 1; t.outbound[last] == 0 {
			t.outbound = t.outbound[:last]
		}
	}

	t.nodes[to].in += by
	t.busiest = max(t.busiest, t.nodes[to].in)
	for d := t.layout.First[to]; d < t.layout.First[to+1]; d++ {
		t.loads[d].inbound += by
		t.touch(d)
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
	if dev := &t.devices[d]; dev.seen > 0 {
		return max(1, dev.sum/time.Duration(dev.seen))
	}
	return t.meanOfAll()
}

func (t *Table) meanOfAll() time.Duration {
	if t.runs == 0 {
		return 0
	}
	return max(1, t.ran.mean(t.runs))
}

// Outbound is how many unfinished calls of a node were given to others.
func (t *Table) Outbound(node int32) int32 { return t.nodes[node].out }

// Inbound is how many unfinished calls of others a node has.
func (t *Table) Inbound(node int32) int32 { return t.nodes[node].in }

// sumOfBusier is the sum, over the devices of all nodes but one, of the outbound calls of
// its node or of floor, whichever is more (the sum of equation 6). It costs as
// much as the most outbound calls are that a node has now.
func (t *Table) sumOfBusier(but, floor int32) int64 {
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
	return t.atSpeed(t.history.expect(c, t.Estimate), d)
}

// atSpeed is how long a device takes for what takes so long at normal speed.
func (t *Table) atSpeed(normal time.Duration, d int32) time.Duration {
	if s := t.layout.Speed[d]; s != 1 {
		return bounded(float64(normal) / s)
	}
	return normal
}

// forever bounds times, so that a few of them can be added: 36 years.
const forever = 1 << 60

// bounded is a time in nanoseconds, however fast or slow a device is.
func bounded(nanoseconds float64) time.Duration {
	return time.Duration(min(forever, nanoseconds))
}

// multiple is a multiple of a time, at most forever.
func multiple(n int32, each time.Duration) time.Duration {
	if high, low := bits.Mul64(uint64(n), uint64(each)); high == 0 && low < forever {
		return time.Duration(low)
	}
	return forever
}

// Backlog is how long a device is expected to be busy with what it has, from the
// history of the kernels, at least 1 ns for each call; 0 with ByWindow.
func (t *Table) Backlog(d int32, now time.Duration) time.Duration {
	dev := &t.devices[d]
	return dev.expected + max(dev.overdue, dev.begun-now)
}
