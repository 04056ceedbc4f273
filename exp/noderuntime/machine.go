package noderuntime

import (
	"errors"
	"time"

	"muster/exp/bench"
)

// A machine that is busy with other things distorts all times: not those of kernels,
// which have their rate, but of all that happens between them. So it is watched during a
// measurement, and one that was disturbed is made again, as long as there is patience.

// disturbance says how much else the machine did during a measurement.
type disturbance struct {
	Late float64 `json:"late"` // how late it woke sleepers, in seconds on average
}

// tooLate is about twice what is usual for a machine that has nothing else to do.
const tooLate = 0.0004

func (d disturbance) quiet() bool { return d.Late <= tooLate }

// watchMachine looks how busy the machine is until it is called back.
func watchMachine() func() disturbance {
	watch := bench.Watch()
	return func() disturbance { return disturbance{watch()} }
}

// defaultPatience is what is spent at most, in all, on waiting for a quiet machine.
const defaultPatience = 2 * time.Minute

// quietly does something, and does it again if it was disturbed, until the patience
// is at its end.
func quietly[T any](l *lab, try func() (T, disturbance, error)) (T, error) {
	best, _, err := bench.Quietly(&l.patience, tooLate, func() (T, float64, error) {
		out, d, err := try()
		return out, d.Late, err
	})
	return best, err
}

// awaitQuiet waits until the machine is quiet, as long as there is patience.
func (l *lab) awaitQuiet() (err error) {
	l.patience, err = bench.AwaitQuiet(l.ctx, l.patience, tooLate)
	return err
}

var errTooBusy = errors.New("this machine is too busy to measure anything")
