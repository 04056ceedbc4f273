package mapping

import (
	"math"
	"time"
)

// A search over thousands of busy devices reads little: the table sums up its devices in blocks, and
// a search passes over each block in which no device can beat the best one found so far. What a block
// says is a lower bound, so that a search finds the very device that it would find by looking at all
// of them.

// blockSize is how many devices a block has: few enough that looking at one costs little, so many that
// the blocks of 10,000 devices are read in less than a microsecond.
const blockSize = 64

// block sums up neighbouring devices.
type block struct {
	inbound int32         // the fewest inbound calls that a node of them has
	queued  int32         // the fewest queued on one that has run nothing yet; noSuchDevice if all have run something
	busy    time.Duration // the least of queued times mean, of those that have run something
	stale   bool          // a device has changed since this was found out
}

const noSuchDevice = math.MaxInt32

func newBlocks(devices int) []block {
	all := make([]block, (devices+blockSize-1)/blockSize)
	for i := range all {
		all[i].stale = true
	}
	return all
}

// touch must be called whenever the load of a device changes.
func (t *Table) touch(d int32) { t.blocks[d/blockSize].stale = true }

// sumUp returns what a block says now.
func (t *Table) sumUp(number int32) *block {
	b := &t.blocks[number]
	if !b.stale {
		return b
	}
	*b = block{inbound: math.MaxInt32, queued: noSuchDevice, busy: math.MaxInt64}
	for _, l := range t.loads[number*blockSize : min(int(number+1)*blockSize, len(t.loads))] {
		b.inbound = min(b.inbound, l.inbound)
		if l.mean == unknown {
			b.queued = min(b.queued, l.queued)
		} else {
			b.busy = min(b.busy, time.Duration(l.queued)*l.mean)
		}
	}
	return b
}

// bound is a time that a call waits on every device of a block, if not longer.
func (b *block) bound(w *wire, ofAll time.Duration) time.Duration {
	busy := b.busy
	if b.queued != noSuchDevice {
		busy = min(busy, multiple(b.queued, ofAll))
	}
	return time.Duration(max(w.outbound, b.inbound))*w.each + w.always + busy
}

// scanBlocks is look for a span of many devices: it passes over the blocks that cannot have less
// waiting than was found.
func (s *search) scanBlocks(p span, t *Table, w *wire, ofAll time.Duration) {
	first, last := (p.from+blockSize-1)/blockSize, p.to/blockSize
	if last-first < 4 {
		s.look(p, t, w, ofAll)
		return
	}
	s.look(span{p.from, first * blockSize}, t, w, ofAll)
	// The block that promises most is looked at first, and tells what there is to be beaten. The
	// answer is still the first device in order of those that are equally good.
	promising, least := first, time.Duration(math.MaxInt64)
	for n := first; n < last; n++ {
		if bound := t.sumUp(n).bound(w, ofAll); bound < least {
			promising, least = n, bound
		}
	}
	if least < s.least {
		probe := *s
		probe.look(span{promising * blockSize, (promising + 1) * blockSize}, t, w, ofAll)
		s.least = min(s.least, probe.least+1)
		for n := first; n < last; n++ {
			if t.blocks[n].bound(w, ofAll) < s.least {
				s.look(span{n * blockSize, (n + 1) * blockSize}, t, w, ofAll)
			}
		}
	}
	s.look(span{last * blockSize, p.to}, t, w, ofAll)
}

// look looks for a device of a span with less waiting than was found, by what its last kernels took.
func (s *search) look(p span, t *Table, w *wire, ofAll time.Duration) {
	loads := t.loads[p.from:p.to]
	for i := range loads {
		l := &loads[i]
		waiting := time.Duration(max(w.outbound, l.inbound))*w.each + w.always
		if l.mean != unknown {
			waiting += time.Duration(l.queued) * l.mean
		} else {
			waiting += multiple(l.queued, ofAll)
		}
		if waiting < s.least {
			s.least, s.device = waiting, p.from+int32(i)
		}
	}
}
