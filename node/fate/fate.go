// Package fate decides what becomes of clients that share a fate.
//
// Under MPS the kernels of several processes run on a GPU at the same time. When a kernel of
// one of them faults, the contexts of all end, and all see the same error, which does not say
// which one caused it. A process with a context of its own faults alone. So each client whose
// context ended with a fault that may be another's is rebuilt apart, with a context of its
// own, and what it had in flight runs again there. The client that faults again caused the
// fault: its program is told, and it stays apart. The others get back to where they were,
// their programs notice nothing, and after a while they go back to share the GPU.
//
//	         Fault                 Proven                Due
//	Shared --------->  Suspect  ------------>  Cleared --------->  Shared
//	                      |                       |
//	                      | Guilty                | Guilty
//	                      v                       v
//	                    Apart                   Apart
//
// Suspects need not wait for each other: a context of its own is all that a trial takes, so a
// client whose kernels never end does not hold up the others.
//
// A client that goes back and is a suspect again soon stays apart for twice as long as the
// last time. So the number of rebuilds is bounded by the logarithm of the time, whatever its
// neighbours do. The package is pure: the node tells it what happened, with the time, and
// does what it says.
package fate

import (
	"cmp"
	"slices"
	"time"
)

// Client is the number of a client on its node.
type Client uint64

// State is what a client shares with others.
type State string

// The states of a client.
const (
	Apart   State = "apart"   // it has a context of its own for good: it has faulted, or MPS cannot serve it
	Shared  State = "shared"  // it shares the fate of others
	Suspect State = "suspect" // it is apart until what it had in flight has run again
	Cleared State = "cleared" // that has ended well, and the client goes back when it is due
)

const (
	// firstRest is how long a cleared client stays apart the first time, and longestRest the
	// most that this grows to.
	firstRest, longestRest = time.Second, 5 * time.Minute
	// forgets is after how long without suspicion a client counts as new.
	forgets = 30 * time.Minute
)

// Book knows the states of all clients.
type Book struct{ clients map[Client]*entry }

type entry struct {
	state State
	times int           // how often it became a suspect, since it last counted as new
	last  time.Duration // when it last became a suspect
	due   time.Duration // when it goes back, if it is cleared
	asked int           // how often it was asked to go back
}

// NewBook returns a book without clients.
func NewBook() *Book { return &Book{clients: map[Client]*entry{}} }

// Join makes a client known. A suspect of an earlier daemon counts as cleared: what it had in
// flight has ended long ago.
func (b *Book) Join(now time.Duration, c Client, s State) {
	e := &entry{state: s}
	if s == Suspect || s == Cleared {
		e.state, e.times, e.last, e.due = Cleared, 1, now, now+firstRest
	}
	b.clients[c] = e
}

// Leave forgets a client.
func (b *Book) Leave(c Client) { delete(b.clients, c) }

// State is what a client shares; Apart for one that is not known.
func (b *Book) State(c Client) State {
	if e := b.clients[c]; e != nil {
		return e.state
	}
	return Apart
}

// Fault notes that a client's context ended with a fault that may be another's. It returns
// true if the client is to be rebuilt apart.
func (b *Book) Fault(now time.Duration, c Client) bool {
	e := b.clients[c]
	if e == nil || e.state != Shared {
		return false
	}
	e.suspect(now)
	e.state, e.asked = Suspect, 0
	return true
}

// suspect counts that the client became a suspect once more.
func (e *entry) suspect(now time.Duration) {
	if e.times > 0 && now-e.last > forgets {
		e.times = 0
	}
	e.times, e.last = e.times+1, now
}

// rest is how long the client stays apart now.
func (e *entry) rest() time.Duration { return doubled(e.times) }

// doubled is the rest at the n-th time.
func doubled(n int) time.Duration {
	rest := firstRest
	for i := 1; i < n && rest < longestRest; i++ {
		rest *= 2
	}
	return min(rest, longestRest)
}

// Proven notes that what a suspect had in flight has ended. If it ended with a fault, Guilty
// is called too, before or after this.
func (b *Book) Proven(now time.Duration, c Client) {
	if e := b.clients[c]; e != nil && e.state == Suspect {
		e.state, e.due = Cleared, now+e.rest()
	}
}

// Guilty notes that a client faulted in a context of its own. It returns true if that changes
// its state.
func (b *Book) Guilty(c Client) bool {
	e := b.clients[c]
	if e == nil || e.state != Suspect && e.state != Cleared {
		return false
	}
	e.state = Apart
	return true
}

// Serve says whether a worker that is about to serve a client is to share with others. A
// cleared client that was asked to go back does so now.
func (b *Book) Serve(c Client) bool {
	e := b.clients[c]
	if e == nil {
		return false
	}
	if e.state == Cleared && e.asked > 0 {
		e.state, e.asked = Shared, 0
	}
	return e.state == Shared
}

// Refused notes that a client that was to share could not, for example because MPS serves too
// many.
func (b *Book) Refused(now time.Duration, c Client) {
	if e := b.clients[c]; e != nil && e.state == Shared {
		e.suspect(now)
		e.state, e.due = Cleared, now+e.rest()
	}
}

// Next is when the next client goes back; false if none waits for that.
func (b *Book) Next() (at time.Duration, ok bool) {
	for _, e := range b.clients {
		if e.state == Cleared && (!ok || e.due < at) {
			at, ok = e.due, true
		}
	}
	return at, ok
}

// Due returns the clients whose time to go back has come, in the order of their times. Each is
// to be given another worker, and shares with others when that is served (Serve). One that
// does not go is asked again, later each time.
func (b *Book) Due(now time.Duration) []Client {
	var due []Client
	for c, e := range b.clients {
		if e.state == Cleared && e.due <= now {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(x, y Client) int {
		return cmp.Or(cmp.Compare(b.clients[x].due, b.clients[y].due), cmp.Compare(x, y))
	})
	for _, c := range due {
		e := b.clients[c]
		e.asked++
		e.due = now + doubled(e.times+e.asked)
	}
	return due
}
