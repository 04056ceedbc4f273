// Package kernels simulates processes that alternate between CPU and GPU, in
// virtual time: a mapper chooses a device for each kernel, data of calls to other
// nodes share the ports of the network max-min fairly, and a device serves one
// call at a time.
//
// It knows neither jobs nor daemons, and never reads a clock.
//
// # The model, exactly
//
// A process makes steps: a phase on a core, then a kernel. It has a core for the first,
// if need be after waiting for one of its node, first come first served, and none
// while its kernel is under way. A process without a CPU phase needs no core.
//
// At the end of the CPU phase the kernel is launched: the mapper names a
// device, and the call joins the end of its queue; or it names none, and the call joins the
// end of the queue that all devices share, unless a device is idle, which takes it then and there
// (the one that has been idle longest). A device serves its own queue first, then the shared one.
//
// A call that has its turn holds its device. On the process's own node the kernel
// begins at once. Elsewhere a latency passes first, that of remote calls and that of the link
// of the caller's node together; then the input travels from the caller's outbound port to the inbound port of the device's node, then the kernel runs,
// then the output travels the other way. The device is held until the kernel ends, or with
// HoldResults until the output has arrived. Of the input, Reuse x In, rounded down, is not sent to the device that
// was the last to be given to a call of the process when this one is launched. What travels is more by the cluster's overhead;
// it, and the latency, by the factor for far nodes where the two hang on different switches.
// With SendAhead, a call for which the mapper named a device of another node does not join its queue at the launch. Its latency passes and its
// input travels first, and nobody's device is held meanwhile; when the input is there the call joins the end of the queue, or has its turn at once
// if no call holds the device. Calls that the mapper left to any device are not sent ahead. Mappers see a call that is sent ahead on its device from the launch on.
// Of ports without a bandwidth there is always enough. A kernel takes its time divided by the device's speed, rounded down.
//
// When its output has arrived a call is done. The process then begins its next step;
// with Barrier, when all processes of its application have done theirs. With Async it begins the next
// step at the launch. A process has ended when it has made its last step and all its calls are done.
//
// The next to happen is always what is due first; of what is due at the same instant,
// the ends of CPU phases come before all else, in the order of processes, and what is due for calls
// follows in the order of their launch. CPU phases and kernels of no length end
// at the instant at which they begin, in their turn; latencies of no length and transfers
// of no bytes, or between ports of which there is always enough, are passed over at once. When nothing more is due at an instant, the ports are
// divided anew, and transfers that are faster or slower from then on end earlier or later. What is left of a
// transfer is kept in 2^-20 bytes, rounded up at each change of its rate; it is over at the
// first nanosecond by which all has travelled. No transfer is larger than 2^43-1 bytes, and
// no wait longer than 36 years. Where shares are equal, ports are filled in the order out, in of the first node, then of the next.
//
// Mappers see every launch, begin and end of a call on a device, in the order in which they
// happen; with Delay, those on other nodes from that much later on. The end that they see is that of holding the
// device. What is due at the end of the span still happens.
package kernels

import (
	"context"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/workload/phased"
)

// Config is one run.
type Config struct {
	// Cluster gives nodes, cores, devices with their speeds, the bandwidth of ports, and
	// what a call to another node costs. What remote devices lose of their memory does not matter here.
	Cluster  *model.Cluster
	Workload *phased.Workload
	// Mapper makes the mapper of the run.
	Mapper func(*mapping.Layout) (mapping.Mapper, error)
	Seed   uint64
	// Span is how long is simulated; 0 is until all processes have ended.
	Span time.Duration
	// Window is how many run times of a device count (k); 0 stands for 10.
	Window int
	Status Status
	// HoldResults keeps a device until the results of its call have arrived.
	HoldResults bool
	// SendAhead has the input of a call travel before it joins the queue of its device, not when it has its turn there.
	SendAhead bool
	// Explain names launches of which the result is to tell why they went where they went.
	Explain []Moment
	// Progress is called now and then with the time that is simulated.
	Progress func(now time.Duration)
	// Observe is told everything, where it is not nil.
	Observe Observer
}

// Status is how well nodes know the devices of others.
type Status struct {
	// Delay is how long it takes others to learn of a change.
	Delay time.Duration
	// FalsePositive is how often an idle device is taken to be busy, FalseNegative how
	// often a busy one is taken to be idle; of 1.
	FalsePositive, FalseNegative float64
}

// Stage is what happens to a call.
type Stage uint8

// The stages of a call, in order; with SendAhead, Sending may come before Holding. Local calls have no Sending and no Returning.
const (
	Launched  Stage = iota // by its process
	Queued                 // on a device, or on -1 in the shared queue
	Holding                // it has its turn on its device
	Sending                // its input, from now on
	Running                // its kernel, from now on
	Returning              // its output, from now on
	Released               // its device is free again: before Returning, with HoldResults after it
	Done
)

// Event is a stage of a call.
type Event struct {
	At      time.Duration
	Stage   Stage
	Call    int64 // numbered from 0, in the order of launch
	Process int32
	Device  int32
	// Bytes are those that are about to travel.
	Bytes int64
}

// Observer watches a run.
type Observer interface {
	Event(Event)
	// Rate tells how fast a call's data travel from now on, in bytes a second with 20 binary
	// digits after the point.
	Rate(at time.Duration, call int64, rate int64)
}

// Result is what came out.
type Result struct {
	// End is when the last process ended, or the span.
	End     time.Duration
	Devices []DeviceResult
	Nodes   []NodeResult
	Apps    []AppResult
	// Events is how many instants of calls and processes were simulated.
	Events int64
	// Explained are the launches that were asked for, as far as there were such, in their order.
	Explained []Explained
}

// DeviceResult is what became of one device.
type DeviceResult struct {
	Node int32
	// Busy is the time in kernels, Held with that in which it waited for data.
	Busy, Held time.Duration
	Kernels    int64
}

// NodeResult is what went through a node's ports until the end.
type NodeResult struct{ Sent, Received int64 }

// AppResult is what became of one application. The times are sums over the calls that are done.
type AppResult struct {
	Name      string
	Processes int
	// Launched calls, those Done, and of these those that were Remote.
	Launched, Done, Remote int64
	// Queue is the time before a call has its device, Transfer that of latency and data,
	// Run that of kernels.
	Queue, Transfer, Run time.Duration
	// Ended is how many of its processes have ended.
	Ended int
	// LastEnd is when the last of its processes ended.
	LastEnd time.Duration
}

// Utilisation is the part of all devices' time that was spent in kernels.
func (r *Result) Utilisation() float64 {
	if len(r.Devices) == 0 || r.End == 0 {
		return 0
	}
	busy := 0.0
	for i := range r.Devices {
		busy += r.Devices[i].Busy.Seconds()
	}
	return busy / float64(len(r.Devices)) / r.End.Seconds()
}

// Wait is the mean time, over all calls that are done, from launch to end without the kernel itself.
func (r *Result) Wait() time.Duration {
	sum, calls := 0.0, int64(0)
	for i := range r.Apps {
		sum += float64(r.Apps[i].Queue) + float64(r.Apps[i].Transfer)
		calls += r.Apps[i].Done
	}
	if calls == 0 {
		return 0
	}
	return time.Duration(sum / float64(calls))
}

// Run simulates. It ends early, with the context's error, when ctx does.
func Run(ctx context.Context, c Config) (*Result, error) {
	e, err := newEngine(c)
	if err != nil {
		return nil, err
	}
	return e.run(ctx)
}
