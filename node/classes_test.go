package node

import (
	"errors"
	"strings"
	"testing"

	"muster/wire"
)

// Who may be of class latency: who was told so, and without a word root and the node's user.
func TestClasses(t *testing.T) {
	d := &daemon{own: account{uid: 50, name: "owner"}}
	for _, c := range []struct {
		uid   uint32
		may   Class
		asked string
		want  bool
		wrong string
	}{
		{uid: 0}, {uid: 0, asked: "latency", want: true}, {uid: 50, asked: "latency", want: true}, {uid: 50, asked: "batch"},
		{uid: 60}, {uid: 60, asked: "batch"}, {uid: 60, asked: "latency", wrong: "may not be of class latency"},
		{uid: 60, may: ClassAny}, {uid: 60, may: ClassAny, asked: "latency", want: true},
		{uid: 60, may: ClassLatency, want: true}, {uid: 60, may: ClassLatency, asked: "batch"},
		{uid: 0, may: ClassBatch, asked: "latency", wrong: "may not be of class latency"},
		{uid: nobody, asked: "latency", wrong: "may not"}, // of another machine
		{uid: 0, asked: "fast\x1b", wrong: `there is no class "fast?"`},
	} {
		latency, err := d.classOf(c.asked, peer{user: account{uid: c.uid, name: "u"}}, UserLimits{Class: c.may})
		var refused *wire.Refused
		if latency != c.want || (c.wrong == "") != (err == nil) || err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%+v: %v, %v", c, latency, err)
		}
	}
}

// A program has no more weight than its user.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		asked uint32
		has   int
		want  int
	}{{0, 0, 1}, {0, 5, 5}, {3, 5, 3}, {7, 5, 5}, {7, 0, 1}, {1 << 31, 5, 5}} {
		if got := weightOf(c.asked, UserLimits{Weight: c.has}); got != c.want {
			t.Errorf("asked for %d of %d: %d, want %d", c.asked, c.has, got, c.want)
		}
	}
}

// Of equal priorities, programs of class latency go first.
func TestPrioritiesOfClasses(t *testing.T) {
	of := func(priority int, latency bool) int {
		return (&client{limits: UserLimits{Priority: priority}, latency: latency}).priority()
	}
	if !(of(0, false) < of(0, true) && of(0, true) < of(1, false) && of(1, false) < of(1, true)) {
		t.Error("priorities are out of order")
	}
}
