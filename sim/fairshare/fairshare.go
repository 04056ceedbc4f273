// Package fairshare divides the bandwidth of network ports among flows, max-min fairly: no flow can
// have more without taking from one that has no more. Rates are integers. After a change the work
// is in proportion to what the change affects, not to the size of the network.
//
// It knows ports and flows, and nothing of jobs, kernels or time.
//
// # The division
//
// Imagine all rates rising together from zero. When a port is full it stops its flows, and is their
// bottleneck; the others continue to rise. Each port divides the capacity that flows stopped
// elsewhere leave to it evenly among the flows that it stops, rounded down. If several ports are
// full at the same rate, the one with the lowest number stops its flows first.
//
// So the rates follow from the current ports and flows alone. Neither the order in which flows came
// and went nor their names have any effect, to the last unit. Rounding moves no flow further from
// the exact division than one unit for each flow in the network.
//
// # How a change is followed
//
// The rate at which a port is full depends on its neighbours (the ports at the other ends of its
// flows), and only on those that are full before it. Exactly one assignment of rates is consistent
// in this sense. Settle looks for ports that are inconsistent with their neighbours and corrects
// them, slowest first: when it reaches a port, all slower ones are already final. Ports behind a
// port that does not change are not visited.
package fairshare

import (
	"math"
	"slices"
)

// Flow identifies a flow. The names of removed flows are reused.
type Flow int32

// flow uses one port or two. A flow through one port has the extra port at the end of Network.ports
// as its second.
type flow struct {
	ports [2]int32
	at    [2]int32 // its index in the list of each port
	rate  int64
}

// end is a flow as one of its ports sees it.
type end struct {
	flow  Flow
	other int32 // the flow's other port
}

// never is the rate of a port that is never full, because its neighbours stop all its flows.
const never = math.MaxInt64

type port struct {
	capacity int64
	ends     []end
	// rate is the rate at which the port is full. due is what rate has to be, given its neighbours'
	// rates; Settle makes them equal.
	rate, due int64
	stale     bool // due may be too low, because a neighbour became slower; review must recompute it
	touched   bool // in Network.touched
}

// Network is a set of ports and the flows through them.
type Network struct {
	// ports has an extra element at the end, which is never full: the second port of flows that use
	// only one.
	ports  []port
	flows  []flow
	vacant []Flow

	touched []int32 // ports whose flows or rates changed since the last Settle
	queue   []step  // heap of the ports that may have to change; may hold outdated entries
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

// Add adds a flow through port a and, unless it is negative, port b. Its rate is valid after the
// next Settle.
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

// Remove removes a flow.
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

// Rate is the rate of a flow, in the unit of the capacities.
func (n *Network) Rate(f Flow) int64 { return n.flows[f].rate }

// Settle recomputes the rates after flows came or went, and returns the flows whose rates changed,
// in order. The slice is valid until the next call.
//
// It takes ports from the queue in the order of their steps, slowest first. A port's step is the
// lower of its old and its new rate, since from there on it affects its neighbours differently.
func (n *Network) Settle() []Flow {
	for _, p := range n.touched {
		n.review(p)
	}
	for len(n.queue) > 0 {
		s := n.pop()
		pt := &n.ports[s.port]
		switch {
		case s.rate != min(pt.due, pt.rate): // outdated: the port was pushed again since
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

// mend gives a port the rate that is due, and informs its neighbours. s is the earlier of the old
// and the new step of the port. Neighbours that are full before s do not depend on this port.
func (n *Network) mend(s step) {
	pt := &n.ports[s.port]
	slower := pt.due < pt.rate
	pt.rate = pt.due
	n.touch(s.port)
	for _, e := range pt.ends {
		other := &n.ports[e.other]
		switch {
		case !s.before(step{other.due, e.other}): // full before s: it does not depend on this port
		case !slower:
			n.review(e.other)
		case other.due == never || other.stale:
		default:
			// This port became slower and leaves the neighbour more capacity, so the neighbour is
			// full at the same rate or later. It is enough to review it when its turn comes:
			// otherwise a port with very many flows would be reviewed once for each of them.
			other.stale = true
			if other.due == other.rate {
				n.push(step{other.due, e.other})
			}
		}
	}
}

// review computes the rate at which a port is full, given its neighbours' current rates. It starts
// with an even division of the whole capacity. Flows whose other port is full before that are
// stopped there: review subtracts them and divides the rest among the others, which can only get
// more, and repeats until nothing changes.
func (n *Network) review(p int32) {
	pt := &n.ports[p]
	left, open := pt.capacity, int64(len(pt.ends))
	counted := step{-1, p} // neighbours full before this step have been subtracted
	for open > 0 {
		full := step{left / open, p}
		if full == counted {
			break
		}
		// A neighbour that is full before this port takes less than an even share, so the others
		// get the same or more.
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

// step is the event that a port is full at a rate. The common rise of all rates is a sequence of
// these steps.
type step struct {
	rate int64
	port int32
}

func (a step) before(b step) bool {
	return a.rate < b.rate || a.rate == b.rate && a.port < b.port
}

// push adds a step to the heap.
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

// pop removes the first step from the heap.
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
