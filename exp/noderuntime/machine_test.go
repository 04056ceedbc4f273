package noderuntime

import (
	"testing"
	"time"
)

// A measurement during which the machine was busy is made again, and it is not the
// time that decides which counts.
func TestBusyMachine(t *testing.T) {
	busy := func(late float64) disturbance { return disturbance{late * tooLate} }
	list := []outcome{{Seconds: 1, disturbance: busy(3)}, {Seconds: 3, disturbance: busy(2)}, {Seconds: 2, disturbance: busy(4)}, {Seconds: 9}}
	tries := 0
	measure := func(patience time.Duration, enough int) outcome {
		tries = 0
		l := &lab{ctx: t.Context(), patience: patience}
		out, err := quietly(l, func() (outcome, disturbance, error) {
			if tries++; tries >= enough {
				l.patience = 0
			}
			return list[tries-1], list[tries-1].disturbance, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// Patience ends with the third try, or is not needed after the fourth.
	if got := measure(time.Hour, 3); got != list[1] || tries != 3 {
		t.Errorf("%+v after %d tries", got, tries)
	}
	if got := measure(time.Hour, 5); got != list[3] || tries != 4 {
		t.Errorf("%+v after %d tries", got, tries)
	}
	if got := measure(0, 5); got != list[0] || tries != 1 {
		t.Errorf("%+v after %d tries without patience", got, tries)
	}
}
