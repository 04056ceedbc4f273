package daemon

import (
	"errors"
	"sync"

	"muster/head"
)

// call is a caller's request to the core: to handle events, or to let the caller look at it.
type call struct {
	source string // a user, or an agent's session
	// events are handled in order, but not necessarily without others in between. Event i has the
	// request number first+i, if it has one.
	events []head.Event
	first  head.Request
	next   int // index of the next event; the queue's lock protects it
	// look, if it is not nil, is called by the loop, unless its caller has gone; there are no events
	// then.
	look func(*head.Core)
	gone <-chan struct{} // closed when nobody waits for the answer any more
	// taken, if it is not nil, is called when the last event was taken from the queue. The queue's
	// lock is held then, so taken must not block.
	taken func()

	answers []head.Answer
	left    int           // answers still missing; only the committer uses it
	done    chan struct{} // closed when all answers are there, or after the look
}

// class is a group of sources. Classes take turns, so that ten thousand agents do not delay a user,
// nor users agents.
type class int

const (
	ofAgents class = iota
	ofUsers
	classes
)

// maxWaiting is how many calls of one user may wait. An agent's session limits itself
// (session.room).
const maxWaiting = 256

var (
	errBusy   = errors.New("too many requests of this user are waiting: send the next ones when some are answered")
	errEnding = errors.New("the head is shutting down: try again soon")
)

// queue holds the calls that wait for the loop. Sources take turns, one event each, so that a
// source with many events delays only itself.
type queue struct {
	ready chan struct{} // signalled when something may be waiting

	mu      sync.Mutex
	sources [classes]map[string]*source
	turns   [classes][]*source // sources with calls, the next one first
	turn    class              // the class whose turn is next
	length  int                // events and looks that wait
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

// take removes the next event or look: classes take turns, and within a class its sources do. It
// returns false if nothing waits.
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

// one removes the first event or look of the next source of a class, and moves the source to the
// end if it has more.
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

// close makes push refuse all further calls.
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
