package trace

import (
	"cmp"
	"slices"
	"time"

	"muster/wire/timeline"
)

// sample is the estimate of the clock difference from one round trip.
type sample struct {
	at         int64 // the node's time
	difference int64 // to be added to it to get the program's time
	error      int64 // upper bound of the error
}

// clock converts a node's times to the program's. The zero value changes nothing: both are the same
// clock.
type clock struct {
	samples []sample // in time order; none if it is the same clock
	error   int64    // the largest of the samples' errors
}

// sampleEvery is the period of which only the best sample counts. Clocks of two machines drift by
// some parts per million, which is negligible in that time.
const sampleEvery = int64(10 * time.Second)

// sameClock is the difference, in nanoseconds, that two processes of one machine may see because
// they read the same clock in different ways.
const sameClock = 1000

// clockOf makes a clock from the round trips that the library recorded.
func clockOf(records []timeline.Record) clock {
	var all []sample
	same := true
	for _, r := range records {
		s := sample{int64(r.Bytes), (r.Begin+r.End)/2 - int64(r.Bytes), (r.End - r.Begin + 1) / 2}
		all = append(all, s)
		same = same && max(s.difference, -s.difference) <= s.error+sameClock
	}
	if same {
		return clock{}
	}
	slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
	var c clock
	for _, s := range all {
		n := len(c.samples)
		switch {
		case n == 0 || s.at/sampleEvery != c.samples[n-1].at/sampleEvery:
			c.samples = append(c.samples, s)
		case s.error < c.samples[n-1].error:
			c.samples[n-1] = s
		}
	}
	for _, s := range c.samples {
		c.error = max(c.error, s.error)
	}
	return c
}

// program converts a time of the node to the program's clock. Between samples it interpolates.
func (c *clock) program(at int64) int64 {
	n := len(c.samples)
	if n == 0 {
		return at
	}
	i, _ := slices.BinarySearchFunc(c.samples, at, func(s sample, at int64) int { return cmp.Compare(s.at, at) })
	if i == 0 || i == n {
		return at + c.samples[min(i, n-1)].difference
	}
	from, to := c.samples[i-1], c.samples[i]
	part := float64(at-from.at) / float64(to.at-from.at)
	return at + from.difference + int64(part*float64(to.difference-from.difference))
}
