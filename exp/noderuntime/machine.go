package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"muster/exp"
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

// watchMachine looks how late the machine wakes sleepers up until it is called back.
func watchMachine() func() disturbance {
	const nap = 2 * time.Millisecond
	stop, answer := make(chan struct{}), make(chan disturbance)
	go func() {
		var over time.Duration
		for naps := 1; ; naps++ {
			start := time.Now()
			time.Sleep(nap)
			over += time.Since(start) - nap
			select {
			case <-stop:
				answer <- disturbance{over.Seconds() / float64(naps)}
				return
			default:
			}
		}
	}()
	return func() disturbance {
		close(stop)
		return <-answer
	}
}

// defaultPatience is what is spent at most, in all, on waiting for a quiet machine.
const defaultPatience = 2 * time.Minute

func patience(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, exp.UsageError(fmt.Sprintf("--patience %s: give a time from 0s to 24h, as 10m", text))
	}
	return d, nil
}

// quietly does something, and does it again if it was disturbed, until the patience
// is at its end. It gives the try that was disturbed least: which one counts is not
// chosen by its time.
func quietly[T any](l *lab, try func() (T, disturbance, error)) (T, error) {
	var best T
	least := math.Inf(1)
	for {
		start := time.Now()
		out, d, err := try()
		if err != nil {
			return out, err
		}
		if d.Late < least {
			best, least = out, d.Late
		}
		if d.quiet() || l.patience <= 0 {
			return best, nil
		}
		l.patience -= time.Since(start)
	}
}

// awaitQuiet waits until the machine is quiet, as long as there is patience.
func (l *lab) awaitQuiet() error {
	const look = 200 * time.Millisecond
	for l.patience > 0 {
		machine := watchMachine()
		if err := pause(l.ctx, look); err != nil {
			return err
		}
		if machine().quiet() {
			return nil
		}
		l.patience -= look
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

var errTooBusy = errors.New("this machine is too busy to measure anything")
