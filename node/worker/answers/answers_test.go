package answers

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/told"
	"muster/wire"
)

// newAnswers returns answers whose goroutines the test runs, one after the other.
func newAnswers(t *testing.T) (a *Answers, run func()) {
	ring, arena, err := wire.Create(wire.Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 4 << 20, Pinned: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		shared.Unmap()
		ring.Close()
		arena.Close()
	})
	var waiting []func()
	now := func() clientcore.Time { return time.Second }
	a = &Answers{Means: Means{
		Context: t.Context(), Go: func(f func()) { waiting = append(waiting, f) }, Block: func(f func() error) error { return f() }, Now: now, Wake: func() {},
		Shared: shared, Told: told.New(shared, now, slog.New(slog.DiscardHandler)), Working: func() bool { return true },
		Gone: func(error) error { return nil }, Report: func(uint64, error) {},
	}}
	return a, func() {
		for _, f := range waiting {
			f()
		}
		waiting = nil
	}
}

func (a *Answers) asked(slot int) wire.Header {
	h := wire.Header{Slot: slot, Seq: 7}
	a.Shared.Asked(h)
	return h
}

// A call is answered when what it waits for has ended, and when that was is known.
func TestLater(t *testing.T) {
	a, run := newAnswers(t)
	h, waited := a.asked(3), false
	if err := a.Later(&clientcore.Op{Slot: h.Slot}, func() error { waited = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if waited || a.Shared.Answered(h) || a.LastEnd() != 0 {
		t.Error("it is answered before anything is waited for")
	}
	run()
	if !waited || !a.Shared.Answered(h) || a.LastEnd() != time.Second {
		t.Errorf("waited %v, answered %v, ended at %v", waited, a.Shared.Answered(h), a.LastEnd())
	}
	a.Settle()
	a.Sent()
}

// A program that asks in more slots than it has is refused.
func TestTooManyWait(t *testing.T) {
	a, _ := newAnswers(t)
	for i := range wire.Slots + 1 {
		err := a.Later(&clientcore.Op{}, func() error { return nil })
		if errors.Is(err, clientcore.ErrProtocol) != (i == wire.Slots) {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

// Nothing is answered any more once the client is to be rebuilt, by a call that waited nor at once.
func TestDoomed(t *testing.T) {
	a, run := newAnswers(t)
	waits, now := a.asked(1), a.asked(2)
	if err := a.Later(&clientcore.Op{Slot: waits.Slot}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	a.Doom()
	run()
	a.Tell(now.Slot, success)
	if a.Shared.Answered(waits) || a.Shared.Answered(now) {
		t.Error("a call is answered that the next worker answers")
	}
}

// A fault of one device makes calls fail whose own device has none, if streams waited for each other.
func TestCrossed(t *testing.T) {
	a, run := newAnswers(t)
	fault := &device.Fault{Kind: device.IllegalAddress}
	if r := a.Outcome(a.Told.Sticky.Current(), fault); r == success || a.verdict(success) != success {
		t.Fatalf("the fault is %d", r)
	}
	a.Crossed()
	if a.verdict(success) != clientcore.ResultOf(fault) {
		t.Error("a call succeeds that the fault may have spoilt")
	}
	h := a.asked(4)
	if err := a.Later(&clientcore.Op{Slot: h.Slot}, func() error { return context.Canceled }); err != nil {
		t.Fatal(err)
	}
	run()
	if !a.Shared.Answered(h) {
		t.Error("a call whose context is gone is not answered")
	}
}
