package daemon

import (
	"errors"
	"sync"

	"muster/head"
)

// call is what a caller wants of the core: that it handles events, or a look at it.
type call struct {
	source string // who wants it: a user, or an agent's session
	// events are handled in order, but not necessarily at once. That of number i has the
	// request first+i, if it has one.
	events []head.Event
	first  head.Request
	next   int // of events; the queue's
	// look, if it is not nil, is called by the loop instead.
	look func(*head.Core)
	// taken, if it is not nil, is called when the last event was taken.
	taken func()

	answers []head.Answer
	left    int           // answers that are still to come; the committer's
	done    chan struct{} // closed when all are there, or the look was had
}

// class is a group of sources. Classes take turns, so that ten thousand agents do
// not keep a user waiting, nor users agents.
type class int

const (
	ofAgents class = iota
	ofUsers
	classes
)

// maxWaiting is how many calls of one user may wait. An agent's session bounds
// itself.
const maxWaiting = 256

var (
	errBusy   = errors.New("too many requests of this user are waiting: send the next ones when some are answered")
	errEnding = errors.New("the head is shutting down: try again soon")
)

// queue is where calls wait for the loop. Each source has its turn, an event at a time:
// so a source that sends much delays only itself.
type queue struct {
	ready chan struct{} // signalled when something may be waiting

	mu      sync.Mutex
	sources [classes]map[string]*source
	turns   [classes][]*source // those that have something, the next one first
	turn    class              // whose turn it is
	length  int                // events and looks
	closed  bool
}

type source struct {
	name  string
	calls []*call
}

func newQueue() *queue {
	q := &queue{ready: make(chan struct{}, 1)}
	for c := range q.sources {
		q.sources[c] = map[string]*source{}
	}
	return q
}

// push appends a call to its source's queue.
func (q *queue) push(c class, call *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errEnding
	}
	s := q.sources[c][call.source]
	if s == nil {
		s = &source{name: call.source}
		q.sources[c][call.source] = s
		q.turns[c] = append(q.turns[c], s)
	} else if c == ofUsers && len(s.calls) >= maxWaiting {
		return errBusy
	}
	s.calls = append(s.calls, call)
	q.length += max(1, len(call.events))
	q.wake()
	return nil
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// unit is one event of a call, or its look.
type unit struct {
	call  *call
	event int
}

// take takes the next event or look: classes take turns, and within a class the sources
// do; false if nothing waits.
func (q *queue) take() (unit, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length == 0 {
		return unit{}, false
	}
	q.length--
	c := q.turn
	q.turn = (q.turn + 1) % classes
	if len(q.turns[c]) == 0 {
		c = q.turn
	}
	return q.one(c), true
}

// one takes the first event or look of the next source of a class, and puts the source
// at the end if it has more.
func (q *queue) one(c class) unit {
	s := q.turns[c][0]
	q.turns[c] = q.turns[c][1:]
	call := s.calls[0]
	u := unit{call, call.next}
	if call.next++; call.next >= len(call.events) {
		s.calls = s.calls[1:]
		if call.taken != nil {
			call.taken()
		}
	}
	if len(s.calls) > 0 {
		q.turns[c] = append(q.turns[c], s)
	} else {
		delete(q.sources[c], s.name)
	}
	return u
}

// close has push refuse calls from now on.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// waiting is how many events and looks wait.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length
}
