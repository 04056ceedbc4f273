// Package fairshare divides the bandwidth of network ports among flows,
// max-min fairly: no flow can have more without taking from one that has no
// more. Rates are integers, and only the part of the network that a change can
// reach is divided anew.
//
// It knows ports and flows, and nothing of jobs, kernels or time.
package fairshare

import (
	"math"
	"slices"
)

// Flow names a flow. Names of removed flows are used again.
type Flow int32

const none = int32(-1)

// flow uses one port, or two.
type flow struct {
	ports [2]int32
	at    [2]int32 // its place in the lists of its ports
	rate  int64
	was   int64 // before it was divided anew
	fixed bool
	seen  bool // in around
}

type port struct {
	capacity int64
	flows    []Flow

	// While the rates are worked out:
	left    int64 // for flows not fixed yet
	unfixed int32
	seen    bool // in reached
	// most is the largest number of flows since the last settlement.
	most int32
}

// Network is a set of ports and the flows through them.
//
// Imagine all rates rising together from nothing; a port that is full stops
// its flows. What happens below a level at which no changed port can be full,
// before or after, is not touched by the change: flows slower than that keep
// their rates. Of the others only those are divided anew that are connected
// to a changed port.
type Network struct {
	ports  []port
	flows  []flow
	vacant []Flow

	dirty   []int32 // ports at which something changed
	reached []int32 // ports of the flows that are divided anew
	around  []Flow  // those flows
	changed []Flow
	queue   []share // heap of the ports that are not full yet
}

// New returns a network of idle ports with these capacities, in bytes per second.
func New(capacity []int64) *Network {
	n := &Network{ports: make([]port, len(capacity))}
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
	if b == a {
		b = none
	}
	n.flows[f] = flow{ports: [2]int32{a, max(b, none)}, rate: -1}
	for i, p := range n.flows[f].ports {
		if p == none {
			continue
		}
		n.flows[f].at[i] = int32(len(n.ports[p].flows))
		pt := &n.ports[p]
		pt.flows = append(pt.flows, f)
		pt.most = max(pt.most, int32(len(pt.flows)))
		n.dirty = append(n.dirty, p)
	}
	return f
}

// Remove ends a flow.
func (n *Network) Remove(f Flow) {
	for i, p := range n.flows[f].ports {
		if p == none {
			continue
		}
		list := n.ports[p].flows
		n.ports[p].most = max(n.ports[p].most, int32(len(list)))
		at, last := n.flows[f].at[i], list[len(list)-1]
		list[at] = last
		n.ports[p].flows = list[:len(list)-1]
		if n.flows[last].ports[0] == p {
			n.flows[last].at[0] = at
		} else {
			n.flows[last].at[1] = at
		}
		n.dirty = append(n.dirty, p)
	}
	n.vacant = append(n.vacant, f)
}

// Rate is what a flow gets, in bytes per second.
func (n *Network) Rate(f Flow) int64 { return n.flows[f].rate }

// Settle works the rates out again after flows came or went, and returns, in
// order, those that changed. The slice is valid until the next call.
func (n *Network) Settle() []Flow {
	n.changed = n.changed[:0]
	if len(n.dirty) == 0 {
		return nil
	}
	n.reach()
	n.fill()
	for _, p := range n.reached {
		n.ports[p].seen = false
	}
	for _, f := range n.around {
		fl := &n.flows[f]
		fl.seen = false
		if fl.rate != fl.was {
			n.changed = append(n.changed, f)
		}
	}
	slices.Sort(n.changed)
	return n.changed
}

// reach collects what a change at the dirty ports can touch.
func (n *Network) reach() {
	level := int64(math.MaxInt64)
	n.reached, n.around = n.reached[:0], n.around[:0]
	see := func(p int32) {
		if !n.ports[p].seen {
			n.ports[p].seen = true
			n.reached = append(n.reached, p)
		}
	}
	for _, p := range n.dirty {
		pt := &n.ports[p]
		see(p)
		level = min(level, pt.capacity/int64(max(1, pt.most, int32(len(pt.flows))))-rounding)
		pt.most = 0
	}
	n.dirty = n.dirty[:0]
	for i := 0; i < len(n.reached); i++ {
		pt := &n.ports[n.reached[i]]
		pt.left, pt.unfixed = pt.capacity, 0
		for _, f := range pt.flows {
			fl := &n.flows[f]
			if fl.rate >= 0 && fl.rate < level {
				pt.left -= fl.rate
				continue
			}
			pt.unfixed++
			if fl.seen {
				continue
			}
			fl.seen, fl.fixed, fl.was = true, false, fl.rate
			n.around = append(n.around, f)
			for _, q := range fl.ports {
				if q != none {
					see(q)
				}
			}
		}
	}
}

// rounding allows for the rests of divisions.
const rounding = 64

// share is what each unfixed flow of a port would get if it were the next to fill.
type share struct {
	rate int64
	port int32
}

func (a share) before(b share) bool {
	return a.rate < b.rate || a.rate == b.rate && a.port < b.port
}

// fill raises the rates; the port that is full first fixes its flows.
func (n *Network) fill() {
	n.queue = n.queue[:0]
	for _, p := range n.reached {
		if pt := &n.ports[p]; pt.unfixed > 0 {
			n.queue = append(n.queue, share{pt.left / int64(pt.unfixed), p})
		}
	}
	for i := (len(n.queue) - 2) / 4; i >= 0; i-- {
		n.sink(i)
	}
	for len(n.queue) > 0 {
		s := n.queue[0]
		pt := &n.ports[s.port]
		if pt.unfixed == 0 {
			last := len(n.queue) - 1
			n.queue[0] = n.queue[last]
			n.queue = n.queue[:last]
			n.sink(0)
			continue
		}
		if now := pt.left / int64(pt.unfixed); now != s.rate {
			n.queue[0].rate = now // others left it more than it was entered with
			n.sink(0)
			continue
		}
		for _, f := range pt.flows {
			if fl := &n.flows[f]; fl.seen && !fl.fixed {
				n.fix(fl, s.rate)
			}
		}
	}
}

func (n *Network) fix(fl *flow, rate int64) {
	fl.fixed, fl.rate = true, rate
	for _, p := range fl.ports {
		if p != none {
			n.ports[p].left -= rate
			n.ports[p].unfixed--
		}
	}
}

// sink restores the heap, a 4-ary one, below element i.
func (n *Network) sink(i int) {
	q := n.queue
	if i >= len(q) {
		return
	}
	s := q[i]
	for {
		c := 4*i + 1
		if c >= len(q) {
			break
		}
		least := c
		for k := c + 1; k < min(c+4, len(q)); k++ {
			if q[k].before(q[least]) {
				least = k
			}
		}
		if !q[least].before(s) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = s
}
