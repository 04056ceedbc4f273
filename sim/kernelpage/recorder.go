package kernelpage

import (
	"time"

	"muster/model"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// Recorder is an observer of one run. It records which applications' kernels each device ran, and
// for the beginning of the run what the devices did, call by call.
type Recorder struct {
	processes []kernels.Process
	devices   []watched
	// busy is the time that each device spent in kernels of each application.
	busy [][]time.Duration

	// The picture: up to limit blocks, and the calls that they belong to.
	limit  int
	until  time.Duration // where the picture ends; 0 while it is still growing
	blocks []block
	calls  []call
	open   map[int64]int32 // index in calls of the calls in progress
	steps  []int64         // of each process so far
}

var _ kernels.Observer = (*Recorder)(nil)

// watched is a device with its current activity.
type watched struct {
	doing   doing
	since   time.Duration
	process int32
	number  int64 // of the call that holds it
	block   int32 // the current block, or -1
	call    int32 // index of the call in the picture, or -1
}

type doing uint8

const (
	idle doing = iota
	forData
	inKernel
)

// call is what the picture shows about a call.
type call struct {
	process                 int32
	step                    int64
	launched, held, running time.Duration
	done                    time.Duration // -1: not done at the end
	sent, returned          int64
	remote, ran             bool
}

type block struct {
	device, call int32
	from, to     time.Duration
	kernel       bool
}

// NewRecorder makes the recorder of a run. It keeps about the given number of blocks for the
// picture.
func NewRecorder(c *model.Cluster, w *phased.Workload, blocks int) *Recorder {
	r := &Recorder{processes: kernels.Processes(c, w), limit: blocks, open: map[int64]int32{}}
	r.steps = make([]int64, len(r.processes))
	r.devices = make([]watched, c.TotalGPUs())
	r.busy = make([][]time.Duration, len(r.devices))
	for d := range r.busy {
		r.devices[d] = watched{block: -1, call: -1}
		r.busy[d] = make([]time.Duration, len(w.Apps))
	}
	return r
}

// Rate is not recorded.
func (r *Recorder) Rate(time.Duration, int64, int64) {}

// Event implements kernels.Observer.
func (r *Recorder) Event(e kernels.Event) {
	c := r.callOf(e)
	switch e.Stage {
	case kernels.Holding:
		d := &r.devices[e.Device]
		d.process, d.number, d.call = e.Process, e.Call, -1
		if r.until == 0 && len(r.blocks) >= r.limit {
			r.until = max(1, e.At)
		}
		if c != nil {
			c.held = e.At
			if r.until == 0 {
				d.call = r.open[e.Call]
			}
		}
		r.turn(e, forData)
	case kernels.Sending:
		if c != nil {
			c.remote, c.sent = true, e.Bytes
		}
	case kernels.Running:
		if c != nil {
			c.running, c.ran = e.At, true
		}
		r.turn(e, inKernel)
	case kernels.Returning:
		if c != nil {
			c.returned = e.Bytes
		}
		// Another call may hold the device by now.
		if d := &r.devices[e.Device]; d.number == e.Call && d.doing == inKernel {
			r.turn(e, forData)
		}
	case kernels.Released:
		r.turn(e, idle)
	case kernels.Done:
		if c != nil {
			c.done = e.At
			delete(r.open, e.Call)
		}
	}
}

// callOf is the picture's entry for a call; nil if it has none. The picture includes the calls that
// were in progress when its last block began, but no later ones.
func (r *Recorder) callOf(e kernels.Event) *call {
	if e.Stage == kernels.Launched {
		r.steps[e.Process]++
		if r.until == 0 {
			r.open[e.Call] = int32(len(r.calls))
			r.calls = append(r.calls, call{process: e.Process, step: r.steps[e.Process], launched: e.At, done: -1})
		}
	}
	if len(r.open) == 0 {
		return nil
	}
	if k, known := r.open[e.Call]; known {
		return &r.calls[k]
	}
	return nil
}

// turn changes the activity of a device.
func (r *Recorder) turn(e kernels.Event, next doing) {
	d := &r.devices[e.Device]
	if d.doing == inKernel {
		r.busy[e.Device][r.processes[d.process].App] += e.At - d.since
	}
	if d.block >= 0 {
		r.blocks[d.block].to = e.At
		if r.blocks[d.block].from == e.At && int(d.block) == len(r.blocks)-1 {
			r.blocks = r.blocks[:d.block] // it had no duration
		}
		d.block = -1
	}
	d.doing, d.since = next, e.At
	if next != idle && d.call >= 0 {
		d.block = int32(len(r.blocks))
		r.blocks = append(r.blocks, block{device: e.Device, call: d.call, from: e.At, to: -1, kernel: next == inKernel})
	}
}

// finish ends what is in progress when the run is over.
func (r *Recorder) finish(end time.Duration) {
	for i := range r.devices {
		d := &r.devices[i]
		if d.doing != idle {
			r.turn(kernels.Event{At: end, Device: int32(i)}, idle)
		}
	}
	if r.until == 0 {
		r.until = end
	}
}
