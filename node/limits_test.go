package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	"muster/node/proc"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/socket"
	"muster/wire"
)

// Who may be of class latency: who was told so, and without a word root and the node's user.
func TestClasses(t *testing.T) {
	d := &terms{rights: requests.Rights{Own: settings.Account{UID: 50, Name: "owner"}}}
	for _, c := range []struct {
		uid   uint32
		may   settings.Class
		asked string
		want  bool
		wrong string
	}{
		{uid: 0}, {uid: 0, asked: "latency", want: true}, {uid: 50, asked: "latency", want: true}, {uid: 50, asked: "batch"},
		{uid: 60}, {uid: 60, asked: "batch"}, {uid: 60, asked: "latency", wrong: "may not be of class latency"},
		{uid: 60, may: settings.ClassAny}, {uid: 60, may: settings.ClassAny, asked: "latency", want: true},
		{uid: 60, may: settings.ClassLatency, want: true}, {uid: 60, may: settings.ClassLatency, asked: "batch"},
		{uid: 0, may: settings.ClassBatch, asked: "latency", wrong: "may not be of class latency"},
		{uid: settings.Nobody, asked: "latency", wrong: "may not"}, // of another machine
		{uid: 0, asked: "fast\x1b", wrong: `there is no class "fast?"`},
	} {
		latency, err := d.classOf(c.asked, socket.Peer{User: settings.Account{UID: c.uid, Name: "u"}}, settings.UserLimits{Class: c.may})
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
		if got := weightOf(c.asked, settings.UserLimits{Weight: c.has}); got != c.want {
			t.Errorf("asked for %d of %d: %d, want %d", c.asked, c.has, got, c.want)
		}
	}
}

// Of equal priorities, programs of class latency go first.
func TestPrioritiesOfClasses(t *testing.T) {
	of := func(priority int, latency bool) int {
		return (&client{allowance: allowance{limits: settings.UserLimits{Priority: priority}, latency: latency}}).priority()
	}
	if !(of(0, false) < of(0, true) && of(0, true) < of(1, false) && of(1, false) < of(1, true)) {
		t.Error("priorities are out of order")
	}
}

// The next daemon finds the memory in which workers claim devices with one of them, and
// takes no other file for it.
func TestFindFile(t *testing.T) {
	f, err := wire.CreatePrecedence()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := proc.Identify(f)
	if err != nil {
		t.Fatal(err)
	}
	found := proc.FindFile(os.Getpid(), id)
	if found == nil {
		t.Fatal("it was not found")
	}
	defer found.Close()
	if same, err := proc.Identify(found); err != nil || same != id {
		t.Errorf("another file was found: %v, %v", same, err)
	}
	for _, other := range []proc.FileID{{}, {Device: id.Device, Number: id.Number + 1<<40}} {
		if f := proc.FindFile(os.Getpid(), other); f != nil {
			t.Errorf("a file was found for %v", other)
		}
	}
}
