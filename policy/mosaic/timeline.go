package mosaic

import (
	"slices"
	"time"

	"muster/policy/prices"
)

// timeline is what will be free, from now on.
type timeline struct {
	// points[i] holds from at[i] until at[i+1]; the last one for ever.
	at     []time.Duration
	points [][]seg
	spare  [][]seg

	low board
	b   board
	tmp []seg
}

// reset begins with one board.
func (l *timeline) reset(now time.Duration, segs []seg) {
	l.spare = append(l.spare, l.points...)
	l.at = append(l.at[:0], now)
	l.points = append(l.points[:0], l.copyOf(segs))
}

// copyFrom makes l the same as o.
func (l *timeline) copyFrom(o *timeline) {
	l.spare = append(l.spare, l.points...)
	l.at = append(l.at[:0], o.at...)
	l.points = l.points[:0]
	for _, p := range o.points {
		l.points = append(l.points, l.copyOf(p))
	}
}

func (l *timeline) copyOf(segs []seg) []seg {
	var s []seg
	if n := len(l.spare); n > 0 {
		s = l.spare[n-1][:0]
		l.spare = l.spare[:n-1]
	}
	return append(s, segs...)
}

// release adds the next instant at which something is given back.
func (l *timeline) release(t time.Duration, pieces []piece) {
	i := l.split(t)
	l.b.segs = l.points[i]
	for k := range pieces {
		l.b.give(&pieces[k])
	}
	l.points[i] = l.b.segs
}

// split makes t a point of its own, and returns its index.
func (l *timeline) split(t time.Duration) int {
	i, found := slices.BinarySearch(l.at, t)
	if !found {
		l.at = slices.Insert(l.at, i, t)
		l.points = slices.Insert(l.points, i, l.copyOf(l.points[i-1]))
	}
	return i
}

// insert finds the earliest time at which a task fits for as long as it runs,
// takes that, and returns it with the pieces; a negative time if it never fits.
func (l *timeline) insert(n *need, t *task, worth *prices.Table, pieces []piece) (time.Duration, []piece) {
search:
	for i := range l.at {
		if !n.has(l.points[i], t) {
			continue
		}
		start := l.at[i]
		l.low.segs = append(l.low.segs[:0], l.points[i]...)
		for j := i + 1; j < len(l.at) && l.at[j]-start < t.run; j++ {
			l.tmp = narrow(l.tmp, l.low.segs, l.points[j])
			l.tmp, l.low.segs = l.low.segs, l.tmp
			if !n.has(l.low.segs, t) {
				continue search
			}
		}
		if pieces = l.low.find(n, t, worth, pieces[:0]); len(pieces) == 0 {
			continue // the devices are there, but not the same ones all the time
		}
		l.hold(pieces, start, start+t.run)
		return start, pieces
	}
	return -1, pieces[:0]
}

// hold takes pieces during [from, to).
func (l *timeline) hold(pieces []piece, from, to time.Duration) {
	i, j := l.split(from), l.split(to)
	for ; i < j; i++ {
		l.b.segs = l.points[i]
		for k := range pieces {
			l.b.take(&pieces[k])
		}
		l.points[i] = l.b.segs
	}
}
