package client

import (
	"testing"

	"muster/wire"
)

// A trip begins with a call while no answer is outstanding; other calls share it.
func TestTrips(t *testing.T) {
	a := awaited{trips: &Trips{}}
	ask := func(op wire.Op, slot int) { a.ask(wire.Header{Op: op, Slot: slot}) }
	if got := a.trips.String(); got != "0" {
		t.Error(got)
	}
	ask(wire.OpLaunch, -1)
	ask(wire.OpHostNext, 0) // waits for work, not for an answer
	ask(wire.OpSynchronise, 1)
	ask(wire.OpCopyOut, 2)
	a.answered(2)
	ask(wire.OpCopyOut, 2)
	a.answered(1)
	a.answered(2)
	a.answered(0)
	a.answered(-1)
	ask(wire.OpCopyOut, 1)
	a.answered(1)
	ask(wire.OpCopyOut, 1)
	a.answered(1)
	if got, want := a.trips.String(), "3 (copy_out 2, synchronise 1)"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if a.count.Load() != 0 {
		t.Errorf("%d answers are due", a.count.Load())
	}
	(*Trips)(nil).begin(wire.OpCopyOut)
}
