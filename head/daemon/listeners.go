package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"muster/head"
	"muster/wire/api"
)

// How many subscribers there may be, in all and of one user, and how many changes may wait for one.
const (
	maxListeners     = 2048
	maxListenersEach = 32
	maxChanges       = 1024
)

// heartbeat is how often a subscriber is sent at least an empty comment.
const heartbeat = 15 * time.Second

// listeners are the subscribers: requests that follow changes (GET /v1/events).
type listeners struct {
	mu    sync.Mutex
	all   map[*listener]struct{}
	users map[string]int
}

// listener is one subscriber. If its buffer of changes is full, it is cut off: it must ask for the
// present state and subscribe again. So a slow subscriber neither delays others nor takes memory.
type listener struct {
	user    string
	changes chan *change
	cut     chan struct{}
}

// change is a change and its JSON, which is made once, when the first subscriber sends it.
type change struct {
	api.Change
	once         sync.Once
	full, public []byte
}

func newListeners() *listeners {
	return &listeners{all: map[*listener]struct{}{}, users: map[string]int{}}
}

func (l *listeners) add(user string) (*listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= maxListeners || l.users[user] >= maxListenersEach {
		return nil, refuse(http.StatusTooManyRequests, "as many listen as may, %d of one user and %d in all: end some", maxListenersEach, maxListeners)
	}
	one := &listener{user: user, changes: make(chan *change, maxChanges), cut: make(chan struct{})}
	l.all[one] = struct{}{}
	l.users[user]++
	return one, nil
}

func (l *listeners) remove(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(one)
}

func (l *listeners) drop(one *listener) {
	if _, there := l.all[one]; !there {
		return
	}
	delete(l.all, one)
	if l.users[one.user]--; l.users[one.user] == 0 {
		delete(l.users, one.user)
	}
}

// publish passes changes to all subscribers, and waits for none.
func (l *listeners) publish(changes []api.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return
	}
	for i := range changes {
		c := &change{Change: changes[i]}
		for one := range l.all {
			select {
			case one.changes <- c:
			default:
				close(one.cut)
				l.drop(one)
			}
		}
	}
}

func (l *listeners) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// text is the JSON of the change, as a user may see it.
func (c *change) text(user string, admin bool) []byte {
	c.once.Do(func() {
		c.full, _ = json.Marshal(c.Change)
		c.public = c.full
		if c.Job != nil {
			shown := c.Job.ForOthers()
			c.public, _ = json.Marshal(api.Change{At: c.At, Job: &shown, Node: c.Node})
		}
	})
	if admin || c.Job == nil || c.Job.User == user {
		return c.full
	}
	return c.public
}

// serveEvents sends changes as they happen. The subscription begins before the answer does, so a
// client that reads the state after the answer has begun misses nothing.
func serveEvents(q *request) (any, error) {
	one, err := q.listeners.add(q.who.user)
	if err != nil {
		return nil, err
	}
	defer q.listeners.remove(one)
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.Header().Set("Cache-Control", "no-store")
	q.tell(one, admin)
	return nil, errAnswered
}

// tell sends changes until the subscriber disconnects or is cut off, or the head ends.
func (q *request) tell(one *listener, admin bool) {
	control := http.NewResponseController(q.w)
	w := &patientWriter{q.w, q.cfg.Connections.Request}
	send := func(format string, args ...any) bool {
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil
	}
	flush := func() bool { return control.Flush() == nil }
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	ok := send(": from now on\n\n") && flush()
	for ok {
		select {
		case c := <-one.changes:
			ok = send("data: %s\n\n", c.text(q.who.user, admin))
			if ok && len(one.changes) == 0 {
				ok = flush()
			}
		case <-beat.C:
			ok = send(":\n\n") && flush()
		case <-one.cut:
			send("event: cut\ndata: {\"error\":\"changes came faster than they were read: ask anew how things are, then listen again\"}\n\n")
			return
		case <-q.ending:
			send("event: cut\ndata: {\"error\":\"the head is shutting down: listen again soon\"}\n\n")
			return
		case <-q.r.Context().Done():
			return
		}
	}
}
