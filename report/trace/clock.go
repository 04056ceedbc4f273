package trace

import (
	"cmp"
	"slices"
	"time"

	"muster/wire/timeline"
)

// sample is what one question to a node tells of its clock.
type sample struct {
	at         int64 // of the node's clock
	difference int64 // to be added to it, for the program's
	error      int64 // at most
}

// clock turns times of a node into the program's. The zero value is the program's own.
type clock struct {
	samples []sample // by time; none: it is the same clock
	error   int64    // of the worst
}

// sampleEvery is how long a stretch of time is of which the best sample counts: clocks of
// two machines differ by some parts in a million, which is nothing in that time.
const sampleEvery = int64(10 * time.Second)

// sameClock is how far, in nanoseconds, two processes of one machine may be apart that read
// the same clock by different ways.
const sameClock = 1000

// clockOf makes a clock of what the library noted.
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

// program is a time of the node on the program's clock.
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
