// Package kernels simulates processes that alternate between CPU and GPU, in virtual time: a mapper
// chooses a device for each kernel, the data of calls to other nodes share the ports of the network
// max-min fairly, and a device serves one call at a time.
//
// It knows neither jobs nor daemons, and never reads a clock.
//
// # The model, exactly
//
// A process makes steps: a phase on a core, then a kernel. For the CPU phase it needs a core of its
// node, for which it waits first come, first served. It has no core while its kernel is in
// progress. A process without a CPU phase needs no core.
//
// At the end of the CPU phase the process launches the kernel. The mapper names a device, and the
// call joins the end of that device's queue. Or the mapper names none: then the device that has
// been idle longest takes the call at once or, if none is idle, the call joins the end of the queue
// that all devices share. A device serves its own queue first, then the shared one.
//
// A call at the head of the queue holds its device. On the process's own node the kernel begins at
// once. On another node a latency passes first: that of remote calls plus that of the link of the
// caller's node. Then the input travels from the outbound port of the caller's node to the inbound
// port of the device's node, then the kernel runs, then the output travels the other way. The call
// holds the device until the kernel ends or, with HoldResults, until the output has arrived.
//
// Of the input, Reuse x In, rounded down, is not sent to the device that the process's previous
// call was given to, as of the launch. All that travels is multiplied by the cluster's overhead; it
// and the latency are multiplied by the factor for far nodes if the two nodes are on different
// switches. A port without a bandwidth has no limit. A kernel takes its time divided by the
// device's speed, rounded down.
//
// With SendAhead, a call for which the mapper named a device of another node does not join the
// queue at the launch. First its latency passes and its input travels, while it holds no device.
// When the input has arrived the call joins the end of the queue, or holds the device at once if no
// call does. Calls for which the mapper named no device are not sent ahead. Mappers see a call that
// is sent ahead on its device from the launch on.
//
// A call is done when its output has arrived. The process then begins its next step; with Barrier,
// when all processes of its application have finished theirs. With Async the process begins the
// next step at the launch. A process has ended when it has made its last step and all its calls are
// done.
//
// Events happen in the order of their times. Of events at the same instant, the ends of CPU phases
// come first, in the order of processes, and the events of calls follow in the order of their
// launch. CPU phases and kernels of length 0 end at the instant at which they begin, in that order.
// Latencies of length 0, and transfers of 0 bytes or between ports without a limit, are skipped at
// once. When no event of an instant is left, the bandwidth of the ports is divided again, and
// transfers whose rates change are rescheduled. The rest of a transfer is kept in units of 2^-20
// bytes, rounded up at each change of its rate; the transfer ends at the first nanosecond by which
// everything has travelled. No transfer is larger than 2^43-1 bytes, and no wait is longer than 36
// years. If shares are equal, ports are filled in the order out, in of the first node, then of the
// next.
//
// Mappers see every launch, begin and end of a call on a device, in the order in which they happen;
// with Delay, they see those of other nodes that much later. The end that they see is the end of
// holding the device. Events at the very end of the span still happen.
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
	// Cluster gives nodes, cores, devices with their speeds, the bandwidth of ports, and the cost
	// of calls to other nodes. The memory that remote devices lose does not matter here.
	Cluster  *model.Cluster
	Workload *phased.Workload
	// Mapper makes the mapper of the run.
	Mapper func(*mapping.Layout) (mapping.Mapper, error)
	Seed   uint64
	// Span is the time to simulate; 0 means until all processes have ended.
	Span time.Duration
	// Window is the number of run times of a device that count (k); 0 means 10.
	Window int
	Status Status
	// HoldResults keeps a device until the results of its call have arrived.
	HoldResults bool
	// SendAhead sends the input of a call before the call joins the queue of its device, not when
	// the call gets the device.
	SendAhead bool
	// Explain names the launches that the result is to explain.
	Explain []Moment
	// Progress is called now and then with the simulated time.
	Progress func(now time.Duration)
	// Observe, if not nil, is told every event.
	Observe Observer
}

// Status is how well nodes know the devices of others.
type Status struct {
	// Delay is how long it takes other nodes to learn of a change.
	Delay time.Duration
	// FalsePositive is the probability that an idle device is taken to be busy, FalseNegative that
	// a busy one is taken to be idle.
	FalsePositive, FalseNegative float64
}

// Stage is a point in the life of a call.
type Stage uint8

// The stages of a call, in order; with SendAhead, Sending may come before Holding. Local calls have
// no Sending and no Returning.
const (
	Launched  Stage = iota // its process has launched it
	Queued                 // it is in the queue of a device, or with device -1 in the shared queue
	Holding                // it holds its device from now on
	Sending                // its input travels from now on
	Running                // its kernel runs from now on
	Returning              // its output travels from now on
	Released               // its device is free again: before Returning, or with HoldResults after it
	Done
)

// Event is a stage of a call.
type Event struct {
	At      time.Duration
	Stage   Stage
	Call    int64 // numbered from 0, in the order of launch
	Process int32
	Device  int32
	// Bytes is the number of bytes that travel from now on.
	Bytes int64
}

// Observer watches a run.
type Observer interface {
	Event(Event)
	// Rate reports how fast a call's data travel from now on, in bytes per second with 20
	// fractional bits.
	Rate(at time.Duration, call int64, rate int64)
}

// Result is the outcome of a run.
type Result struct {
	// End is when the last process ended, or the span.
	End     time.Duration
	Devices []DeviceResult
	Nodes   []NodeResult
	Apps    []AppResult
	// Events is the number of simulated events.
	Events int64
	// Explained are the launches that Config.Explain names, as far as they happened, in their
	// order.
	Explained []Explained
}

// DeviceResult is the totals of one device.
type DeviceResult struct {
	Node int32
	// Busy is the time in kernels; Held also includes the time in which it waited for data.
	Busy, Held time.Duration
	Kernels    int64
}

// NodeResult is the bytes that went through a node's ports until the end.
type NodeResult struct{ Sent, Received int64 }

// AppResult is the totals of one application. The times are sums over the calls that are done.
type AppResult struct {
	Name      string
	Processes int
	// The number of calls that were launched, of those that are done, and of the done ones that
	// were remote.
	Launched, Done, Remote int64
	// Queue is the time until calls get their device, Transfer the time of latency and data, Run
	// the time of kernels.
	Queue, Transfer, Run time.Duration
	// Ended is the number of its processes that have ended.
	Ended int
	// LastEnd is when the last of its processes ended.
	LastEnd time.Duration
}

// Utilisation is the share of all devices' time that was spent in kernels.
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

// Wait is the mean time from launch to end without the kernel itself, over all calls that are done.
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
