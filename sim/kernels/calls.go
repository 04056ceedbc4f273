package kernels

import (
	"fmt"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/sim/fairshare"
)

// The life of a call, from launch to finish; see engine for its stages.

type call struct {
	mapping.Call
	resident [1]mapping.Resident
	number   int64
	device   int32
	next     int32         // the next call in its queue
	stage    Stage         // Holding while the latency passes
	arrived  bool          // its input was sent ahead and has arrived
	gpu      time.Duration // the kernel's run time at speed 1
	ran      time.Duration // its run time on its device

	launched, held time.Duration
	// expected is the run time that the true table expected, expectedFar the one that the delayed
	// table did, which may know less.
	expected, expectedFar time.Duration

	// A transfer in progress: what is left at the time since, in bytes with the fraction, and the
	// current rate.
	flow  fairshare.Flow
	bytes int64
	left  uint64
	rate  int64
	since time.Duration
	// toTell is the number of reports about the call that other nodes have not received yet; the
	// slot must not be reused before.
	toTell int32
}

type device struct {
	holder   int32 // the call that holds the device, or none
	queue    queue
	speed    float64
	busyFrom time.Duration // when the current kernel began
	heldFrom time.Duration // when the holder got the device
}

// launch asks the mapper for a device for the kernel of a process, and queues the call there. With
// mapping.Anywhere the call goes to the device that has been idle longest, or to the shared queue
// if none is idle.
func (e *engine) launch(p int32) error {
	pr := &e.procs[p]
	s := e.newCall()
	c := &e.calls[s]
	*c = call{
		Call: mapping.Call{
			Process: p, Rank: pr.rank, Node: pr.node, App: pr.app, Kernel: pr.draw.Kernel, Home: pr.home,
			In: min(pr.draw.In, maxBytes), Out: min(pr.draw.Out, maxBytes),
		},
		number: e.number, device: none, next: none, gpu: pr.draw.GPU, launched: e.now,
	}
	e.number++
	pr.open++
	e.result.Apps[pr.app].Launched++
	if reuse := e.Workload.Apps[pr.app].Reuse; reuse > 0 && pr.last != none {
		c.resident[0] = mapping.Resident{Device: pr.last, Bytes: int64(float64(reuse * float64(c.In)))}
		c.Resident = c.resident[:]
	}
	e.tell(s, Launched, 0)
	e.reports.deliver(e)
	e.view.Now = e.now
	var d int32
	if len(e.unexplained) > 0 && e.asked(c) {
		d = e.explain(c)
	} else {
		d = e.mapper.Map(&c.Call, &e.view)
	}
	anywhere := d == mapping.Anywhere && len(e.devices) > 0
	switch {
	case anywhere:
		if d = e.idle.head; d == none {
			e.tell(s, Queued, 0)
			e.wait(&e.shared, s)
			return nil
		}
	case d < 0 || int(d) >= len(e.devices):
		return fmt.Errorf("the mapper chose device %d for a process on node %s: there are %d, numbered from 0", d, e.Cluster.Nodes[pr.node].Name, len(e.devices))
	}
	e.give(s, d)
	e.tell(s, Queued, 0)
	if e.SendAhead && !anywhere && e.remote(&e.calls[s]) {
		e.goOut(s)
	} else {
		e.joinDevice(s)
	}
	return nil
}

// give assigns a call to a device, and enters it in the true table.
func (e *engine) give(s, d int32) {
	c := &e.calls[s]
	c.device = d
	e.procs[c.Process].last = d
	c.expected = e.truth.Assign(&c.Call, d)
	e.report(s, assigned)
}

// wait puts a call at the end of a queue.
func (e *engine) wait(q *queue, s int32) {
	if q.head == none {
		q.head = s
	} else {
		e.calls[q.tail].next = s
	}
	q.tail = s
}

// begin makes a call the holder of its device.
func (e *engine) begin(s int32) {
	c := &e.calls[s]
	d := &e.devices[c.device]
	d.holder, d.heldFrom = s, e.now
	e.idle.remove(c.device)
	c.held = e.now
	e.truth.Begin(c.device, c.expected, e.now)
	e.report(s, begun)
	e.tell(s, Holding, 0)
	if !e.remote(c) || c.arrived {
		e.runKernel(s)
	} else {
		e.goOut(s)
	}
}

// goOut starts the way of a call to another node: first the latency passes, then its input is sent.
func (e *engine) goOut(s int32) {
	c := &e.calls[s]
	c.stage = Holding
	latency := model.After(e.Cluster.Remote.Latency, e.Cluster.Nodes[c.Node].Link.Latency)
	if latency = time.Duration(e.further(int64(latency), c.Node, e.layout.NodeOf[c.device])); latency > 0 {
		e.at(s, latency)
		return
	}
	e.sendInput(s)
}

func (e *engine) remote(c *call) bool { return e.layout.NodeOf[c.device] != c.Node }

// at schedules the end of a call's stage. Events of one instant are ordered by the number of the
// call, not by its slot, so that the reuse of slots does not change the order.
func (e *engine) at(s int32, after time.Duration) {
	e.agenda.set(int32(len(e.procs))+s, model.After(e.now, after), int64(len(e.procs))+e.calls[s].number)
}

// advance ends the current stage of a call.
func (e *engine) advance(s int32) {
	c := &e.calls[s]
	switch c.stage {
	case Holding: // the latency is over
		e.sendInput(s)
	case Sending:
		e.endTransfer(s)
		e.arrive(s)
	case Running:
		e.endKernel(s)
	case Returning:
		e.endTransfer(s)
		e.finish(s)
	}
}

func (e *engine) sendInput(s int32) {
	c := &e.calls[s]
	c.stage = Sending
	bytes := c.In - c.ResidentOn(c.device)
	if !e.transfer(s, bytes, c.Node, e.layout.NodeOf[c.device]) {
		e.arrive(s)
	}
}

// arrive continues a call whose input has arrived: it runs if it holds the device; if the input was
// sent ahead, it queues for the device.
func (e *engine) arrive(s int32) {
	c := &e.calls[s]
	if e.devices[c.device].holder == s {
		e.runKernel(s)
		return
	}
	c.arrived = true
	e.joinDevice(s)
}

// joinDevice makes a call take its device if it is free, or queue for it.
func (e *engine) joinDevice(s int32) {
	d := &e.devices[e.calls[s].device]
	if d.holder == none {
		e.begin(s)
	} else {
		e.wait(&d.queue, s)
	}
}

// runKernel starts the kernel of a call that holds its device and whose input is there.
func (e *engine) runKernel(s int32) {
	c := &e.calls[s]
	d := &e.devices[c.device]
	c.stage = Running
	e.tell(s, Running, 0)
	d.busyFrom = e.now
	c.ran = c.gpu
	if d.speed != 1 {
		c.ran = time.Duration(min(float64(c.gpu)/d.speed, never))
	}
	e.at(s, c.ran)
}

// endKernel ends the kernel of a call. The device is released before the output travels, unless
// HoldResults is set.
func (e *engine) endKernel(s int32) {
	c := &e.calls[s]
	r := &e.result.Devices[c.device]
	r.Busy += c.ran
	r.Kernels++
	held := e.HoldResults && e.remote(c)
	c.stage = Returning
	if !held {
		e.release(s)
	}
	if !e.remote(c) || !e.transfer(s, c.Out, e.layout.NodeOf[c.device], c.Node) {
		e.finish(s)
	}
}

// release frees the device of a call. The device takes the next call of its own queue, or if that
// is empty the next of the shared queue.
func (e *engine) release(s int32) {
	c := &e.calls[s]
	d := &e.devices[c.device]
	e.result.Devices[c.device].Held += e.now - d.heldFrom
	d.holder = none
	e.idle.append(c.device)
	e.truth.Finish(&c.Call, c.device, c.expected, c.ran)
	e.report(s, finished)
	e.tell(s, Released, 0)
	if next := d.queue.head; next != none {
		d.queue.head = e.calls[next].next
		e.begin(next)
	} else if next := e.shared.head; next != none {
		e.shared.head = e.calls[next].next
		e.give(next, c.device)
		e.begin(next)
	}
}

// finish ends a call, and lets its process continue.
func (e *engine) finish(s int32) {
	c := &e.calls[s]
	if e.devices[c.device].holder == s {
		e.release(s)
	}
	a := &e.result.Apps[c.App]
	a.Done++
	if e.remote(c) {
		a.Remote++
	}
	a.Queue = model.After(a.Queue, c.held-c.launched)
	a.Run = model.After(a.Run, c.ran)
	a.Transfer = model.After(a.Transfer, e.now-c.held-c.ran)
	e.tell(s, Done, 0)
	p, app := c.Process, c.App
	c.stage = Done
	e.forget(s)
	e.procs[p].open--
	if e.Workload.Apps[app].Async {
		e.endIfDone(p)
	} else {
		e.endStep(p)
	}
}

// tell reports a stage of a call to the observer, if there is one.
func (e *engine) tell(s int32, stage Stage, bytes int64) {
	if e.Observe == nil {
		return
	}
	c := &e.calls[s]
	e.Observe.Event(Event{At: e.now, Stage: stage, Call: c.number, Process: c.Process, Device: c.device, Bytes: bytes})
}

func (e *engine) newCall() int32 {
	if l := len(e.vacant); l > 0 {
		s := e.vacant[l-1]
		e.vacant = e.vacant[:l-1]
		return s
	}
	e.calls = append(e.calls, call{})
	e.agenda.grow(len(e.procs) + len(e.calls))
	return int32(len(e.calls) - 1)
}

// forget frees the slot of a call that is done, once all reports about it have been delivered.
func (e *engine) forget(s int32) {
	if c := &e.calls[s]; c.stage == Done && c.toTell == 0 {
		e.vacant = append(e.vacant, s)
	}
}
