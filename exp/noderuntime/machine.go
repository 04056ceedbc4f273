package noderuntime

import (
	"errors"
	"time"

	"muster/exp/bench"
)

// Other load on the machine distorts the measured times. It does not change those of kernels, which
// follow from their rate, but those of everything between them. So the machine is watched during a
// measurement, and a disturbed measurement is repeated while patience is left.

// disturbance is the load of other work on the machine during a measurement.
type disturbance struct {
	Late float64 `json:"late"` // mean wake-up delay, in seconds
}

// tooLate is about twice the mean wake-up delay of an idle machine, in seconds.
const tooLate = 0.0004

func (d disturbance) quiet() bool { return d.Late <= tooLate }

// watchMachine measures the load of the machine until the function that it returns is called.
func watchMachine() func() disturbance {
	watch := bench.Watch()
	return func() disturbance { return disturbance{watch()} }
}

// defaultPatience limits the total time spent waiting for a quiet machine.
const defaultPatience = 2 * time.Minute

// quietly calls try, and repeats it if it was disturbed, while patience is left.
func quietly[T any](l *lab, try func() (T, disturbance, error)) (T, error) {
	best, _, err := bench.Quietly(&l.patience, tooLate, func() (T, float64, error) {
		out, d, err := try()
		return out, d.Late, err
	})
	return best, err
}

// awaitQuiet waits until the machine is quiet or patience is used up.
func (l *lab) awaitQuiet() (err error) {
	l.patience, err = bench.AwaitQuiet(l.ctx, l.patience, tooLate)
	return err
}

var errTooBusy = errors.New("this machine is too busy to measure anything")
