package kernels

import (
	"muster/model"
	"muster/workload/phased"
)

// The steps of processes: a phase on a CPU core, then calls, then the barrier of the application.

type process struct {
	app, rank, node, home int32
	source                *phased.Source
	draw                  phased.Draw
	steps                 int64
	last                  int32 // the device of its latest call
	next                  int32 // the next process that waits for a core
	open                  int32 // the number of its calls that are not done
	onCore, stopped       bool  // stopped: it has made its last step
}

type node struct {
	free  int32 // free cores
	cores queue // processes that wait for one
}

type application struct {
	processes int32
	first     int32 // its first process
	arrived   int32 // the number of processes that wait at the barrier
}

// beginStep starts the next CPU phase of a process, or stops the process after its last step. A
// phase of length 0 needs no core, but goes through the agenda, so that recursion stays shallow.
func (e *engine) beginStep(p int32) {
	pr := &e.procs[p]
	if most := e.Workload.Apps[pr.app].Iterations; most > 0 && pr.steps == most {
		pr.stopped = true
		e.endIfDone(p)
		return
	}
	pr.steps++
	pr.draw = pr.source.Next()
	n := &e.nodes[pr.node]
	switch {
	case pr.draw.CPU == 0:
		e.agenda.set(p, e.now, int64(p))
	case n.free > 0:
		e.takeCore(p)
	default:
		e.join(&n.cores, p)
	}
}

// endIfDone ends a process that has made its last step and whose calls are done.
func (e *engine) endIfDone(p int32) {
	if pr := &e.procs[p]; pr.stopped && pr.open == 0 {
		e.live--
		app := &e.result.Apps[pr.app]
		app.Ended++
		app.LastEnd = e.now
	}
}

func (e *engine) takeCore(p int32) {
	pr := &e.procs[p]
	e.nodes[pr.node].free--
	pr.onCore = true
	e.agenda.set(p, model.After(e.now, pr.draw.CPU), int64(p))
}

// endCPU ends the CPU phase of a process: it gives the core to the next waiting process and
// launches the kernel.
func (e *engine) endCPU(p int32) error {
	pr := &e.procs[p]
	if pr.onCore {
		pr.onCore = false
		n := &e.nodes[pr.node]
		n.free++
		if next := n.cores.head; next != none {
			n.cores.head = e.procs[next].next
			e.takeCore(next)
		}
	}
	if err := e.launch(p); err != nil {
		return err
	}
	if e.Workload.Apps[pr.app].Async {
		e.beginStep(p)
	}
	return nil
}

// endStep lets a process begin its next step. If its application has a barrier, the process waits
// there until all have arrived.
func (e *engine) endStep(p int32) {
	pr := &e.procs[p]
	if !e.Workload.Apps[pr.app].Barrier {
		e.beginStep(p)
		return
	}
	a := &e.apps[pr.app]
	if a.arrived++; a.arrived == a.processes {
		a.arrived = 0
		for p := a.first; p < a.first+a.processes; p++ {
			e.beginStep(p)
		}
	}
}

// join puts a process at the end of a queue for cores.
func (e *engine) join(q *queue, p int32) {
	e.procs[p].next = none
	if q.head == none {
		q.head = p
	} else {
		e.procs[q.tail].next = p
	}
	q.tail = p
}
