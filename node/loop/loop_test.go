package loop

import (
	"errors"
	"testing"
	"time"

	"muster/node/refusal"
)

// What is handed to a loop runs in order; when it drains and is idle it ends, and says so to all who come.
func TestLoop(t *testing.T) {
	l := New(time.Now)
	var ran []int
	idle := false
	l.Do(func() { ran = append(ran, 1) })
	go l.Run(func() bool { return idle }, nil, func() { ran = append(ran, 0) })
	if !l.Ask(func() { ran = append(ran, 2) }) {
		t.Error("it has ended already")
	}
	trouble := errors.New("trouble")
	if err := l.Try(func() error { return trouble }); err != trouble {
		t.Error(err)
	}
	l.Ask(l.Drain)
	if err := l.Try(func() error { return trouble }); err != refusal.ErrShuttingDown {
		t.Error(err)
	}
	l.Do(func() { idle = true })
	<-l.Ended()
	if l.Ask(func() {}) || l.Do(func() {}) && l.Waiting() == 0 {
		t.Error("it runs more")
	}
	if len(ran) < 4 || ran[0] != 1 || ran[1] != 0 || ran[2] != 2 {
		t.Error(ran)
	}
}

// All alarms ring when the first is due.
func TestAlarms(t *testing.T) {
	l := New(time.Now)
	rang, never := "", func() (time.Duration, bool) { return 0, false }
	soon := func() (time.Duration, bool) { return time.Millisecond, rang == "" }
	alarms := []Alarm{{never, func() { rang += "a" }}, {func() (time.Duration, bool) { return time.Hour, true }, func() { rang += "b" }}, {soon, func() { rang += "c"; l.Drain() }}}
	if at, ok := First(alarms); !ok || at != time.Millisecond {
		t.Error(at, ok)
	}
	if _, ok := First(alarms[:1]); ok {
		t.Error("it is never due")
	}
	l.Run(func() bool { return true }, alarms, func() {})
	if rang != "abc" {
		t.Error(rang)
	}
}
