package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"muster/head"
)

// Sources take turns, one event each, and classes before them: a source with many events delays
// only itself.
func TestQueueIsFair(t *testing.T) {
	q := newQueue()
	push := func(c class, name string, events int) {
		t.Helper()
		if err := q.push(c, &call{source: name, events: make([]head.Event, events)}); err != nil {
			t.Fatal(err)
		}
	}
	push(ofUsers, "greedy", 1000)
	push(ofUsers, "greedy", 5)
	push(ofUsers, "alice", 2)
	for i := range 4 {
		push(ofAgents, fmt.Sprint("n", i), 1)
	}
	push(ofUsers, "bob", 1)
	var order []string
	for range 12 {
		u, _ := q.take()
		order = append(order, fmt.Sprintf("%s.%d", u.call.source, u.event))
	}
	if got, want := strings.Join(order, " "), "n0.0 greedy.0 n1.0 alice.0 n2.0 bob.0 n3.0 greedy.1 alice.1 greedy.2 greedy.3 greedy.4"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	rest := 0
	for _, ok := q.take(); ok; _, ok = q.take() {
		rest++
	}
	if rest != 1000+5+2+4+1-12 || q.waiting() != 0 || len(q.sources[ofUsers]) != 0 {
		t.Errorf("%d are left, and then %d", rest, q.waiting())
	}
}

// A user has a bounded number of calls waiting; others are not kept out by them.
func TestQueueIsBounded(t *testing.T) {
	q := newQueue()
	for range maxWaiting {
		if err := q.push(ofUsers, &call{source: "greedy"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.push(ofUsers, &call{source: "greedy"}); !errors.Is(err, errBusy) {
		t.Error(err)
	}
	if err := q.push(ofUsers, &call{source: "alice"}); err != nil {
		t.Error(err)
	}
	q.close()
	if err := q.push(ofUsers, &call{source: "bob"}); !errors.Is(err, errEnding) {
		t.Error(err)
	}
}

// Nobody looks at the core for a caller who has gone: many who ask and go would keep others waiting.
func TestNobodyLooksForOneWhoHasGone(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	(&loop{}).one(unit{call: &call{look: func(*head.Core) { t.Error("it was looked at") }, gone: gone}})
}
