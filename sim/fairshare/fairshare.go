// Package fairshare divides the bandwidth of network ports among flows,
// max-min fairly: no flow can have more without taking from one that has no
// more. Rates are integers. After a change the work is in proportion to what
// the change does, not to the size of the network.
//
// It knows ports and flows, and nothing of jobs, kernels or time.
//
// # The division
//
// Imagine all rates rising together from nothing. A port that is full stops its
// flows, and is their bottleneck; the others go on. What the flows that were
// stopped before leave of a port is divided evenly among those that it stops,
// rounded down. Of ports that are full at the same rate the one with the lower
// number comes first.
//
// So the rates follow from the ports and flows that there are. The order in
// which flows came and went, and their names, leave no trace, to the last unit.
// Rounding takes no flow further from the exact division than one unit for each
// flow in the network.
//
// # How a change is followed
//
// The rate at which a port is full depends on its neighbours, the ports at
// the other ends of its flows, and only on those that are full before it.
// Exactly one set of rates agrees with itself in this way. Settle looks for
// ports that disagree with their neighbours and mends them, slowest first: all
// that is slower than the port it has come to is right already. What lies
// behind a port that does not change is not looked at.
package fairshare

import (
	"math"
	"slices"
)

// Flow names a flow. Names of removed flows are used again.
type Flow int32

// flow uses one port, or two: the second may be the one that stands for none.
type flow struct {
	ports [2]int32
	at    [2]int32 // its place in the lists of its ports
	rate  int64
}

// end is a flow as one of its ports sees it.
type end struct {
	flow  Flow
	other int32 // the flow's other port
}

// never is the rate of a port that is not full: its neighbours stop all its flows.
const never = math.MaxInt64

type port struct {
	capacity int64
	ends     []end
	// rate is that at which the port is full; due is what it has to be, as its
	// neighbours are.
	rate, due int64
	stale     bool // due is too low, perhaps
	touched   bool // in Network.touched
}

// Network is a set of ports and the flows through them.
type Network struct {
	// ports has one more at the end, which is never full: flows through one port
	// have it as their second.
	ports  []port
	flows  []flow
	vacant []Flow

	touched []int32 // ports at which flows came or went, or whose rates changed
	queue   []step  // heap of the ports that may have to change
	changed []Flow
}

// New returns a network of idle ports with these capacities, in bytes per second.
func New(capacity []int64) *Network {
	n := &Network{ports: make([]port, len(capacity)+1)}
	for i := range n.ports {
		n.ports[i].rate, n.ports[i].due = never, never
	}
	for i, c := range capacity {
		n.ports[i].capacity = c
	}
	return n
}

// Add puts a flow through port a and, unless it is negative, port b.
// Its rate is known after the next Settle.
func (n *Network) Add(a, b int32) Flow {
	var f Flow
	if l := len(n.vacant); l > 0 {
		f = n.vacant[l-1]
		n.vacant = n.vacant[:l-1]
	} else {
		f = Flow(len(n.flows))
		n.flows = append(n.flows, flow{})
	}
	none := int32(len(n.ports) - 1)
	if b < 0 || b == a {
		b = none
	}
	fl := &n.flows[f]
	*fl = flow{ports: [2]int32{a, b}, rate: -1}
	for i, p := range fl.ports {
		if p != none {
			fl.at[i] = int32(len(n.ports[p].ends))
			n.ports[p].ends = append(n.ports[p].ends, end{f, fl.ports[1-i]})
			n.touch(p)
		}
	}
	return f
}

// Remove ends a flow.
func (n *Network) Remove(f Flow) {
	fl := &n.flows[f]
	for i, p := range fl.ports {
		if int(p) == len(n.ports)-1 {
			continue
		}
		ends := n.ports[p].ends
		at, last := fl.at[i], ends[len(ends)-1]
		ends[at] = last
		n.ports[p].ends = ends[:len(ends)-1]
		if moved := &n.flows[last.flow]; moved.ports[0] == p {
			moved.at[0] = at
		} else {
			moved.at[1] = at
		}
		n.touch(p)
	}
	n.vacant = append(n.vacant, f)
}

func (n *Network) touch(p int32) {
	if !n.ports[p].touched {
		n.ports[p].touched = true
		n.touched = append(n.touched, p)
	}
}

// Rate is what a flow gets, in bytes per second.
func (n *Network) Rate(f Flow) int64 { return n.flows[f].rate }

// Settle works the rates out again after flows came or went, and returns, in
// order, those that changed. The slice is valid until the next call.
func (n *Network) Settle() []Flow {
	for _, p := range n.touched {
		n.review(p)
	}
	for len(n.queue) > 0 {
		s := n.pop()
		pt := &n.ports[s.port]
		switch {
		case s.rate != min(pt.due, pt.rate): // entered anew since
		case pt.stale:
			n.review(s.port)
		case pt.due != pt.rate:
			n.mend(s)
		}
	}
	n.changed = n.changed[:0]
	for _, p := range n.touched {
		pt := &n.ports[p]
		pt.touched = false
		for _, e := range pt.ends {
			fl := &n.flows[e.flow]
			if rate := min(pt.rate, n.ports[e.other].rate); rate != fl.rate {
				fl.rate = rate
				n.changed = append(n.changed, e.flow)
			}
		}
	}
	n.touched = n.touched[:0]
	slices.Sort(n.changed)
	return n.changed
}

// mend gives a port the rate that is due, and lets its neighbours know. At s the
// port is full, or was.
func (n *Network) mend(s step) {
	pt := &n.ports[s.port]
	slower := pt.due < pt.rate
	pt.rate = pt.due
	n.touch(s.port)
	for _, e := range pt.ends {
		other := &n.ports[e.other]
		switch {
		case !s.before(step{other.due, e.other}): // full before s: it cannot tell
		case !slower:
			n.review(e.other)
		case other.due == never || other.stale:
		default:
			// It is full as before, or later, so it is time enough when it comes up:
			// a port of very many flows need not be reviewed for each of them.
			other.stale = true
			if other.due == other.rate {
				n.push(step{other.due, e.other})
			}
		}
	}
}

// review works out when a port is full, as its neighbours are now.
func (n *Network) review(p int32) {
	pt := &n.ports[p]
	left, open := pt.capacity, int64(len(pt.ends))
	counted := step{-1, p} // neighbours that are full before this are taken off
	for open > 0 {
		full := step{left / open, p}
		if full == counted {
			break
		}
		// Each that is full first leaves the others the same or more.
		for _, e := range pt.ends {
			if o := (step{n.ports[e.other].rate, e.other}); o.before(full) && !o.before(counted) {
				left -= o.rate
				open--
			}
		}
		counted = full
	}
	pt.stale, pt.due = false, never
	if open > 0 {
		pt.due = counted.rate
	}
	if pt.due != pt.rate {
		n.push(step{min(pt.due, pt.rate), p})
	}
}

// step is a port that is full at a rate: of these steps the rise of all rates
// consists.
type step struct {
	rate int64
	port int32
}

func (a step) before(b step) bool {
	return a.rate < b.rate || a.rate == b.rate && a.port < b.port
}

// push enters a port in the heap.
func (n *Network) push(s step) {
	n.queue = append(n.queue, s)
	q := n.queue
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !s.before(q[up]) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = s
}

// pop takes the first out of the heap.
func (n *Network) pop() step {
	top, last := n.queue[0], len(n.queue)-1
	s := n.queue[last]
	n.queue = n.queue[:last]
	q := n.queue
	i := 0
	for {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && q[c+1].before(q[c]) {
			c++
		}
		if !q[c].before(s) {
			break
		}
		q[i] = q[c]
		i = c
	}
	if last > 0 {
		q[i] = s
	}
	return top
}
