// Package fairshare divides the bandwidth of network ports among flows,
// max-min fairly: no flow can have more without taking from one that has no
// more. Rates are integers, and only the part of the network that a change can
// reach is divided anew.
//
// It knows ports and flows, and nothing of jobs, kernels or time.
package fairshare

import "slices"

// Flow names a flow. Names of removed flows are used again.
type Flow int32

const none = int32(-1)

// flow uses one port, or two.
type flow struct {
	ports [2]int32
	at    [2]int32 // its place in the lists of its ports
	rate  int64
	fixed bool
	seen  bool
}

type port struct {
	capacity int64
	flows    []Flow

	// While the rates are worked out:
	left    int64
	unfixed int32
	seen    bool
}

// Network is a set of ports and the flows through them.
type Network struct {
	ports  []port
	flows  []flow
	vacant []Flow

	dirty   []int32
	reached []int32
	around  []Flow
	changed []Flow
	queue   []share
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
		n.ports[p].flows = append(n.ports[p].flows, f)
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
		n.flows[f].seen = false
	}
	slices.Sort(n.changed)
	return n.changed
}

// reach collects the ports and flows that a change at the dirty ports can touch.
func (n *Network) reach() {
	n.reached, n.around = n.reached[:0], n.around[:0]
	see := func(p int32) {
		if !n.ports[p].seen {
			n.ports[p].seen = true
			n.reached = append(n.reached, p)
		}
	}
	for _, p := range n.dirty {
		see(p)
	}
	n.dirty = n.dirty[:0]
	for i := 0; i < len(n.reached); i++ {
		for _, f := range n.ports[n.reached[i]].flows {
			fl := &n.flows[f]
			if fl.seen {
				continue
			}
			fl.seen, fl.fixed = true, false
			n.around = append(n.around, f)
			for _, p := range fl.ports {
				if p != none {
					see(p)
				}
			}
		}
	}
}

// share is what each unfixed flow of a port would get if it were the next to fill.
type share struct {
	rate int64
	port int32
}

func (a share) before(b share) bool {
	return a.rate < b.rate || a.rate == b.rate && a.port < b.port
}

// fill raises all rates together; the port that is full first fixes its flows.
func (n *Network) fill() {
	n.queue = n.queue[:0]
	for _, p := range n.reached {
		pt := &n.ports[p]
		pt.left, pt.unfixed = pt.capacity, int32(len(pt.flows))
		if pt.unfixed > 0 {
			n.push(share{pt.left / int64(pt.unfixed), p})
		}
	}
	for len(n.queue) > 0 {
		s := n.pop()
		pt := &n.ports[s.port]
		if pt.unfixed == 0 {
			continue
		}
		if now := pt.left / int64(pt.unfixed); now != s.rate {
			n.push(share{now, s.port}) // others left it more than it was entered with
			continue
		}
		for _, f := range pt.flows {
			fl := &n.flows[f]
			if fl.fixed {
				continue
			}
			fl.fixed = true
			if fl.rate != s.rate {
				fl.rate = s.rate
				n.changed = append(n.changed, f)
			}
			for _, q := range fl.ports {
				if q != none {
					n.ports[q].left -= s.rate
					n.ports[q].unfixed--
				}
			}
		}
	}
}

// push and pop keep queue a binary heap.
func (n *Network) push(s share) {
	q := append(n.queue, s)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q[i].before(q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
	n.queue = q
}

func (n *Network) pop() share {
	q := n.queue
	top := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q = q[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if q[c].before(q[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
	n.queue = q
	return top
}
