package kernels

import (
	"time"

	"muster/mapping"
	"muster/model"
)

// reports is what nodes have not yet learned of each other: the delayed table
// that mappers see, and the reports on their way to it.
type reports struct {
	table *mapping.Table
	// sent is a ring buffer: count reports, from index first on, are on their
	// way. All have the same delay, so they arrive in the order in which they
	// were sent.
	sent  []reportOf
	first int
	count int
}

type reportKind uint8

const (
	assigned reportKind = iota
	begun
	finished
)

// reportOf says that something happened to a call.
type reportOf struct {
	due, at time.Duration
	call    int32
	kind    reportKind
}

// report sends a report of what just happened to a call.
func (e *engine) report(s int32, kind reportKind) {
	r := &e.reports
	if r.table == nil {
		return
	}
	e.calls[s].toTell++
	if r.count == len(r.sent) {
		r.grow()
	}
	r.sent[(r.first+r.count)%len(r.sent)] = reportOf{model.After(e.now, e.Status.Delay), e.now, s, kind}
	r.count++
}

func (r *reports) grow() {
	ring := make([]reportOf, max(64, 2*len(r.sent)))
	for i := range r.count {
		ring[i] = r.sent[(r.first+i)%len(r.sent)]
	}
	r.sent, r.first = ring, 0
}

// deliver applies the reports that have arrived by now to the delayed table.
func (r *reports) deliver(e *engine) {
	for r.count > 0 && r.sent[r.first].due <= e.now {
		rep := r.sent[r.first]
		r.first = (r.first + 1) % len(r.sent)
		r.count--
		c := &e.calls[rep.call]
		switch rep.kind {
		case assigned:
			c.expectedFar = r.table.Assign(&c.Call, c.device)
		case begun:
			r.table.Begin(c.device, c.expectedFar, rep.at)
		case finished:
			r.table.Finish(&c.Call, c.device, c.expectedFar, c.ran)
		}
		c.toTell--
		e.forget(rep.call)
	}
}
