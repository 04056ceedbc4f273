package kernels

import (
	"math"
	"math/bits"
	"time"
)

// Transfers: the links divide their bandwidth fairly between the flows, in fixed point.

// fraction is the number of fractional bits of rates and of bytes in transit: both are fixed point,
// so that every machine computes the same.
const fraction = 20

// maxBytes is the largest transfer: with the fraction it still fits into 63 bits.
const maxBytes = math.MaxInt64 >> fraction

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
