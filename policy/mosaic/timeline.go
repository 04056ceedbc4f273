package mosaic

import (
	"math"
	"slices"
	"time"

	"muster/policy/prices"
)

// timeline is what will be free from now on: a board for each interval in which
// nothing changes.
type timeline struct {
	// points[i] is valid from at[i] until at[i+1]; the last one for ever.
	at     []time.Duration
	points []point
	spare  []point // memory of points that are no longer used

	// tried has, by kind, the results of earlier insertions. While tasks are
	// only inserted, nothing is given back, so a task cannot start before a
	// smaller one of its kind could. free clears it.
	tried [][]attempt

	low board
	b   board
	tmp []seg
}

// point is what is free from one instant until the next.
type point struct {
	segs []seg
	// rooms has, by kind, the width of the widest block, or -1 if it is not
	// known yet.
	rooms []int64
}

// attempt is a task that could start at start, and not before.
type attempt struct {
	width, devices int32
	run, start     time.Duration
}

// reset makes a timeline with one board.
func (l *timeline) reset(now time.Duration, segs []seg) {
	l.spare = append(l.spare, l.points...)
	l.at = append(l.at[:0], now)
	l.points = append(l.points[:0], l.copyOf(&point{segs: segs}))
	l.forget()
}

// copyFrom makes l a copy of o.
func (l *timeline) copyFrom(o *timeline) {
	l.spare = append(l.spare, l.points...)
	l.at = append(l.at[:0], o.at...)
	l.points = l.points[:0]
	for i := range o.points {
		l.points = append(l.points, l.copyOf(&o.points[i]))
	}
	l.forget()
}

func (l *timeline) forget() {
	for k := range l.tried {
		l.tried[k] = l.tried[k][:0]
	}
}

func (l *timeline) copyOf(p *point) point {
	var c point
	if n := len(l.spare); n > 0 {
		c = l.spare[n-1]
		l.spare = l.spare[:n-1]
	}
	c.segs = append(c.segs[:0], p.segs...)
	c.rooms = append(c.rooms[:0], p.rooms...)
	return c
}

// room is the width of the widest block for a kind at a point.
func (l *timeline) room(i int, n *need, kind int32) int64 {
	p := &l.points[i]
	for int(kind) >= len(p.rooms) {
		p.rooms = append(p.rooms, -1)
	}
	if p.rooms[kind] < 0 {
		p.rooms[kind] = n.room(p.segs, math.MaxInt64)
	}
	return p.rooms[kind]
}

// change takes pieces from a point (sign 1), or gives them back (sign -1).
func (l *timeline) change(i int, pieces []piece, sign int32) {
	p := &l.points[i]
	l.b.segs = p.segs
	for k := range pieces {
		l.b.change(&pieces[k], sign)
	}
	p.segs, p.rooms = l.b.segs, p.rooms[:0]
}

// release gives pieces back from t on. No point may be after t, since only the
// point at t is changed.
func (l *timeline) release(t time.Duration, pieces []piece) {
	l.change(l.split(t), pieces, -1)
}

// split makes t the start of a point, and returns its index.
func (l *timeline) split(t time.Duration) int {
	i, found := slices.BinarySearch(l.at, t)
	if !found {
		l.at = slices.Insert(l.at, i, t)
		l.points = slices.Insert(l.points, i, l.copyOf(&l.points[i-1]))
	}
	return i
}

// notBefore is a time before which a task certainly does not fit.
func (l *timeline) notBefore(t *task) time.Duration {
	for int(t.kind) >= len(l.tried) {
		l.tried = append(l.tried, nil)
	}
	from := l.at[0]
	for _, a := range l.tried[t.kind] {
		if a.start > from && a.width <= t.width && a.devices <= t.devices && a.run <= t.run {
			from = a.start
		}
	}
	return from
}

// insert finds the earliest time at which a task fits for its whole run, holds
// its pieces there, and returns both. The time is negative if it never fits.
// Rooms of single points rule out most starts; fits then finds a block that is
// free at all points of the run.
func (l *timeline) insert(n *need, t *task, worth *prices.Table, pieces []piece) (time.Duration, []piece) {
	// Only the beginnings of points need to be tried: within a point nothing
	// changes.
	i, _ := slices.BinarySearch(l.at, l.notBefore(t))
	for seen := i; i < len(l.at); i++ {
		start := l.at[i]
		// Invariant: all points from i to seen have room.
		for seen = max(seen, i); seen < len(l.at) && l.at[seen]-start < t.run && l.room(seen, n, t.kind) >= int64(t.width); {
			seen++
		}
		if seen < len(l.at) && l.at[seen]-start < t.run {
			i = seen // every start up to here would run over the point seen, which lacks room
			continue
		}
		if pieces = l.fits(i, n, t, worth, pieces); len(pieces) > 0 {
			l.hold(pieces, start, start+t.run)
			if start > l.at[0] {
				l.tried[t.kind] = append(l.tried[t.kind], attempt{t.width, t.devices, t.run, start})
			}
			return start, pieces
		}
	}
	return -1, pieces[:0]
}

// insertSplit is insert with several blocks, for starts before a given time
// only.
func (l *timeline) insertSplit(n *need, t *task, before time.Duration, pieces []piece) (time.Duration, []piece) {
	for i := 0; i < len(l.at) && l.at[i] < before; i++ {
		start := l.at[i]
		l.low.segs = append(l.low.segs[:0], l.points[i].segs...)
		enough := n.hasSplit(l.low.segs, t)
		j := i + 1
		for ; enough && j < len(l.at) && l.at[j]-start < t.run; j++ {
			l.tmp = narrow(l.tmp, l.low.segs, l.points[j].segs)
			l.tmp, l.low.segs = l.low.segs, l.tmp
			enough = n.hasSplit(l.low.segs, t)
		}
		if !enough {
			continue
		}
		if pieces = l.low.findSplit(n, t, pieces[:0]); len(pieces) > 0 {
			l.hold(pieces, start, start+t.run)
			return start, pieces
		}
	}
	return -1, pieces[:0]
}

// fits finds a place that is free during the whole run from point i on. It
// narrows the board of point i by those of the later points.
func (l *timeline) fits(i int, n *need, t *task, worth *prices.Table, pieces []piece) []piece {
	start := l.at[i]
	l.low.segs = append(l.low.segs[:0], l.points[i].segs...)
	for j := i; j < len(l.at) && l.at[j]-start < t.run; j++ {
		if j > i {
			l.tmp = narrow(l.tmp, l.low.segs, l.points[j].segs)
			l.tmp, l.low.segs = l.low.segs, l.tmp
		}
		enough := false
		if n.remote { // candidates would remove nodes whose devices count
			enough = n.has(l.low.segs, t)
		} else {
			l.low.segs, enough = n.candidates(l.low.segs, t.width)
		}
		if !enough {
			return pieces[:0]
		}
	}
	return l.low.find(n, t, worth, pieces[:0])
}

// hold takes pieces during [from, to).
func (l *timeline) hold(pieces []piece, from, to time.Duration) {
	i, j := l.split(from), l.split(to)
	for ; i < j; i++ {
		l.change(i, pieces, 1)
	}
}

// free gives back pieces that were held during [from, to), and merges points
// that have become equal.
func (l *timeline) free(pieces []piece, from, to time.Duration) {
	i, j := l.split(from), l.split(to)
	for k := i; k < j; k++ {
		l.change(k, pieces, -1)
	}
	l.forget()
	l.join(j)
	l.join(i)
}

// join removes a point that equals the one before it.
func (l *timeline) join(i int) {
	if i > 0 && slices.Equal(l.points[i].segs, l.points[i-1].segs) {
		l.spare = append(l.spare, l.points[i])
		l.points = slices.Delete(l.points, i, i+1)
		l.at = slices.Delete(l.at, i, i+1)
	}
}
