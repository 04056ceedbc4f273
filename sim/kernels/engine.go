package kernels

import (
	"context"
	"fmt"
	"math"
	"time"

	"muster/mapping"
	"muster/sim/fairshare"
)

// none is the end of a list, and the device of a call that has no device yet.
const none = int32(-1)

// never is longer than any simulation; several of them can be added without overflow.
const never = math.MaxInt64 / 8

// maxAtOnce limits the events of one instant, so that programs whose phases take no time cause an
// error instead of an endless run.
const maxAtOnce = 50_000_000

// engine is one simulation: events in virtual time, in one goroutine. The actors on the agenda are
// processes (a CPU phase ends) and calls (a stage ends); the actor number of call slot s is
// len(procs)+s. A call is the launch of one kernel. Its life is launch, give (a device), begin (it
// holds the device), goOut and sendInput (if the device is on another node), runKernel, endKernel,
// release, finish.
//
// Slots of calls are reused, so functions must not keep a pointer to a call across newCall, which
// may move the slice.
type engine struct {
	Config
	layout *mapping.Layout
	mapper mapping.Mapper
	truth  *mapping.Table
	reports
	view mapping.View

	now     time.Duration
	agenda  agenda
	procs   []process
	live    int // the number of processes that have not ended
	calls   []call
	vacant  []int32 // free slots of calls
	number  int64   // of the next call
	devices []device
	nodes   []node
	apps    []application
	shared  queue // calls that any device may take
	// idle lists the devices that no call holds, the one that has been idle longest first.
	idle list
	fair *fairshare.Network
	// overhead is the factor by which transfers grow, far the factor for nodes on different
	// switches; both in thousandths.
	overhead, far uint64
	callOfFlow    []int32  // by flow: its call
	unexplained   []Moment // the moments to explain that are yet to come
	result        *Result
}

// queue is a linked list of processes or calls, by their field next.
type queue struct{ head, tail int32 }

// run processes events until none is left or the span is over. All events of an instant come first;
// only then does settle divide the bandwidth again, once for all transfers that began or ended at
// that instant. If that changed rates, new events may be due at the same instant, so the loop looks
// again before it moves the clock.
func (e *engine) run(ctx context.Context) (*Result, error) {
	for p := range e.procs {
		e.beginStep(int32(p))
	}
	atOnce := 0
	for {
		next, ok := e.agenda.first()
		if !ok || next.at != e.now {
			if e.settle() {
				continue
			}
			if !ok || e.Span > 0 && next.at > e.Span {
				break
			}
			e.now, atOnce = next.at, 0
		}
		if atOnce++; atOnce > maxAtOnce {
			return nil, fmt.Errorf("the programs take no time at all after %v: give their phases a length", e.now)
		}
		e.result.Events++
		if e.result.Events%8192 == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if e.Progress != nil {
				e.Progress(e.now)
			}
		}
		e.agenda.removeFirst()
		if int(next.actor) >= len(e.procs) {
			e.advance(next.actor - int32(len(e.procs)))
		} else if err := e.endCPU(next.actor); err != nil {
			return nil, err
		}
	}
	for i := range e.result.Apps {
		if a := &e.result.Apps[i]; max(a.Queue, a.Run, a.Transfer) == math.MaxInt64 {
			return nil, fmt.Errorf("the calls of application %s take more than 292 years together, which cannot be added up: simulate a shorter time", a.Name)
		}
	}
	e.close()
	return e.result, nil
}

// close counts what is in progress at the end: devices that are held, and the bytes of transfers
// that have arrived, rounded down.
func (e *engine) close() {
	r := e.result
	r.End = e.Span
	if e.Span == 0 {
		r.End = e.now
	}
	for d := range e.devices {
		s := e.devices[d].holder
		if s == none {
			continue
		}
		r.Devices[d].Held += r.End - e.devices[d].heldFrom
		if e.calls[s].stage == Running {
			r.Devices[d].Busy += r.End - e.devices[d].busyFrom
		}
	}
	for i := range e.calls {
		if c := &e.calls[i]; c.rate > 0 {
			c.progress(r.End)
			from, to, bytes := e.ends(c)
			e.moved(from, to, bytes-int64((c.left+1<<fraction-1)>>fraction))
		}
	}
}
