// Package mapping decides which device runs a kernel: one of the caller's own
// node, or one across the network, given queues, data and links.
//
// A decision is pure: it sees the call, what is known of the devices, and a
// random source that it was handed. The same mappers serve the simulator and the
// node runtime, each of which keeps a Table by telling it what happens. The
// package knows no clock, no socket and no simulator.
package mapping

import (
	"math/rand/v2"
	"time"
)

// Anywhere is the answer of a mapper that leaves a call in the one queue that
// all devices share: the next device to be free takes it.
const Anywhere = int32(-1)

// Layout is what stays: where the devices are. Devices and nodes are numbered
// from 0; the devices of a node have consecutive numbers.
type Layout struct {
	// NodeOf is the node of each device.
	NodeOf []int32
	// First is the first device of each node; those of node n are
	// First[n] to First[n+1]-1, so that there is one entry more than nodes.
	First []int32
	// Cores are those of each node.
	Cores []int32
	// Speed is that of each device; 1 is normal.
	Speed []float64
	// Owner is the application to which each node was given, or -1.
	Owner []int32
	// Critical says of each application whether its nodes' devices are to be kept for it.
	Critical []bool
	// Bandwidth is the nominal one of each node's link, in bytes per second; 0 is
	// without limit. Where links differ, Links has that of each node; else it is nil.
	Bandwidth int64
	Links     []int64
	// Latency is that of a call to another node; probe alone asks for it. Where it depends on
	// the node that calls, Latencies has it by that; else it is nil.
	Latency   time.Duration
	Latencies []time.Duration
	// Overhead multiplies what is sent. Far multiplies that and latency between nodes of
	// different switches. Not given, 0, they are 1.
	Overhead, Far float64
	// Switch is that of each node, by any number; nil where all have the same one.
	Switch []int32
}

// Devices is how many there are.
func (l *Layout) Devices() int { return len(l.NodeOf) }

// Nodes is how many there are.
func (l *Layout) Nodes() int { return len(l.Cores) }

// Call is a kernel that a process is launching, and for which a mapper is to choose a device.
type Call struct {
	// Process launches it, from a node; Rank counts the processes of its application.
	Process, Rank, Node, App int32
	// Kernel names the code: calls of one kernel resemble each other.
	Kernel int32
	// Home is the device of its own node that the process is bound to where
	// nothing is mapped at run time; -1 where its node has none.
	Home int32
	// In and Out are the bytes that go to a remote device and come back.
	In, Out int64
	// Resident says where parts of In are already.
	Resident []Resident
}

// Resident is data of a call that a device holds.
type Resident struct {
	Device int32
	Bytes  int64
}

// ResidentOn is how much of In need not travel to a device.
func (c *Call) ResidentOn(device int32) int64 {
	for i := range c.Resident {
		if c.Resident[i].Device == device {
			return min(c.Resident[i].Bytes, c.In)
		}
	}
	return 0
}

// Mapper chooses devices. A mapper may keep scratch memory, so two goroutines must not use one at
// the same time.
type Mapper interface {
	// Map says which device runs the call, or Anywhere.
	Map(c *Call, v *View) int32
}

// Estimate says how the time that a call will take on a device is estimated.
type Estimate uint8

const (
	// ByWindow takes the mean of the last kernels of the device, whichever they were.
	ByWindow Estimate = iota
	// ByKernel takes the mean of earlier calls of the same kernel.
	ByKernel
	// ByBytes takes the line through bytes and times of earlier calls of the same kernel.
	ByBytes
)

// An Estimator is a mapper that needs a table with estimates from kernels' history.
type Estimator interface {
	Estimate() Estimate
}

// EstimateOf is how the table of a mapper must estimate.
func EstimateOf(m Mapper) Estimate {
	if e, ok := m.(Estimator); ok {
		return e.Estimate()
	}
	return ByWindow
}

// View is what the node of a caller knows when it decides.
type View struct {
	Now time.Duration
	// Table is what is known of all devices. It may be behind the truth.
	Table *Table
	// Local is what is known of the devices of the caller's own node; it is the same
	// table where nothing is behind.
	Local *Table
	// Wrong, where it is not nil, makes the view of devices of other nodes err.
	Wrong *Wrong
	Rand  *rand.Rand
}

// Wrong makes the status of devices seem other than it is, with these probabilities.
type Wrong struct {
	// Positive is how often an idle device seems busy, Negative how often a busy one seems idle.
	Positive, Negative float64
	Rand               *rand.Rand

	// seen is what devices seemed to be, while it is kept for an account.
	keep bool
	seen []sight
}

// Queued is how many calls seem to wait or run on a device of another node.
func (v *View) Queued(device int32) int32 {
	n := v.Table.loads[device].queued
	if v.Wrong == nil {
		return n
	}
	n = v.Wrong.seems(n)
	if v.Wrong.keep {
		v.Wrong.seen = append(v.Wrong.seen, sight{device, n})
	}
	return n
}

// OutboundBandwidth is what data of a call may have from one node to another by equation 5, in
// bytes per second; 0 where there is no limit.
func (v *View) OutboundBandwidth(from, to int32) float64 {
	sharing := max(v.Local.Outbound(from), v.Table.Inbound(to)) + 1
	return v.nominal(from, to) / float64(sharing)
}

// InboundBandwidth is what its results may have on their way back by equation 6, or by the
// other reading of that; 0 where there is no limit.
func (v *View) InboundBandwidth(from, to int32, plus bool) float64 {
	return v.nominal(from, to) * float64(v.Table.layout.Devices()) / float64(v.inboundShare(from, plus))
}

// nominal is the bandwidth between two nodes when nothing else is under way.
func (v *View) nominal(from, to int32) float64 {
	r := roadsOf(v.Table.layout)
	w := r.way(from, to)
	return float64(w.bandwidth) * 1000 / float64(w.longer)
}

// inboundShare is among how many the link of a node is divided by equation 6, times the
// number of devices: at least that number, since a link is never faster than itself.
func (v *View) inboundShare(node int32, plus bool) uint64 {
	all := uint64(v.Table.layout.Devices())
	share := uint64(v.Table.sumOfBusier(node, v.Local.Inbound(node)))
	if plus {
		share += all
	}
	return max(share, all)
}

func (w *Wrong) seems(queued int32) int32 {
	if queued == 0 {
		if w.Rand.Float64() < w.Positive {
			return 1
		}
		return 0
	}
	if w.Rand.Float64() < w.Negative {
		return 0
	}
	return queued
}
