package noderuntime

import (
	"errors"
	"time"
)

// Other load on the machine distorts the measured times. It does not change those of kernels, which
// follow from their rate, but those of everything between them. So the machine is watched during a
// measurement, and a disturbed measurement is repeated while patience is left.

// tooLate is about twice the mean wake-up delay of an idle machine, in seconds.
const tooLate = 0.0004

// defaultPatience limits the total time spent waiting for a quiet machine.
const defaultPatience = 2 * time.Minute

var errTooBusy = errors.New("this machine is too busy to measure anything")
