package mosaic

import (
	"cmp"
	"math"
	"slices"

	"muster/policy/prices"
)

// need is what a kind of jobs asks of each node.
type need struct {
	cores, gpus int32
	memory      int64
	// spread: cores are collected from any number of nodes, in multiples of
	// cores. memory is then per core, and nodeMemory is added for each node.
	spread     bool
	nodeMemory int64
	// remote: the job also needs devices, on any nodes.
	remote bool
	// exclusive: the job has its nodes to itself.
	exclusive bool
}

// seg is a range of neighbouring nodes with the same free capacity. It begins
// where the segment before it ends.
type seg struct {
	to          int32
	cores, gpus int32
	memory      int64
}

func (s *seg) like(o *seg) bool {
	return s.cores == o.cores && s.gpus == o.gpus && s.memory == o.memory
}

// piece is a range of nodes that each give the same to one job. A piece without
// cores is remote devices.
type piece struct {
	from, to    int32
	cores, gpus int32
	memory      int64
}

// board is what is free on all nodes at one instant. As jobs are in blocks, it
// has few segments, however many nodes there are.
type board struct {
	segs []seg
	tmp  []seg
}

// add appends a segment, or extends the last one if it is alike.
func add(segs []seg, s seg) []seg {
	if n := len(segs); n > 0 && segs[n-1].like(&s) {
		segs[n-1].to = s.to
		return segs
	}
	return append(segs, s)
}

// begin is the first node of segment i.
func begin(segs []seg, i int) int32 {
	if i == 0 {
		return 0
	}
	return segs[i-1].to
}

// at is the segment that contains a node.
func at(segs []seg, node int32) int {
	lo, hi := 0, len(segs)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if segs[mid].to <= node {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (b *board) take(p *piece) { b.change(p, 1) }
func (b *board) give(p *piece) { b.change(p, -1) }

// change takes a piece from what is free (sign 1), or gives it back (sign -1).
// It rewrites only the segments that the piece touches and their neighbours,
// which may have become equal to them.
func (b *board) change(p *piece, sign int32) {
	first := at(b.segs, p.from)
	from := begin(b.segs, first)
	i, j := first, first
	out := b.tmp[:0]
	if i > 0 { // the segment before may merge with the first changed one
		i--
		out = append(out, b.segs[i])
	}
	if from < p.from {
		s := b.segs[j]
		s.to = p.from
		out = append(out, s)
	}
	for ; j < len(b.segs) && max(from, p.from) < p.to; j++ {
		whole := b.segs[j]
		s := whole
		s.to = min(s.to, p.to)
		s.cores -= sign * p.cores
		s.gpus -= sign * p.gpus
		s.memory -= int64(sign) * p.memory
		out = add(out, s)
		if s.to < whole.to {
			out = add(out, whole)
		}
		from = whole.to
	}
	if j < len(b.segs) {
		out = add(out, b.segs[j])
		j++
	}
	b.tmp = out
	b.segs = slices.Replace(b.segs, i, j, out...)
}

// outOfQuestion marks nodes that cannot serve the task at hand. On a busy
// cluster most nodes are; narrow skips them.
var outOfQuestion = seg{cores: -1, gpus: -1}

func (s *seg) isOut() bool { return s.cores < 0 && s.gpus < 0 }

// narrow writes into out what is free in both a and b: the minimum of each
// amount.
func narrow(out, a, b []seg) []seg {
	out = out[:0]
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if a[i].isOut() {
			out = add(out, a[i])
			j += at(b[j:], a[i].to)
			i++
			continue
		}
		s := seg{
			to: min(a[i].to, b[j].to), cores: min(a[i].cores, b[j].cores),
			gpus: min(a[i].gpus, b[j].gpus), memory: min(a[i].memory, b[j].memory),
		}
		out = add(out, s)
		if a[i].to == s.to {
			i++
		}
		if b[j].to == s.to {
			j++
		}
	}
	return out
}

func (n *need) suits(s *seg) bool {
	return s.cores >= n.cores && s.gpus >= n.gpus && s.memory >= n.memory
}

// gives is the number of spread cores that each node of a segment can give.
func (n *need) gives(s *seg) int32 {
	c := s.cores
	if n.memory > 0 {
		c = int32(min(int64(c), (s.memory-n.nodeMemory)/n.memory))
	} else if s.memory < n.nodeMemory {
		return 0
	}
	return max(0, c-c%n.cores)
}

// has says whether a task fits in one block.
func (n *need) has(segs []seg, t *task) bool {
	if n.remote {
		devices := int64(0)
		for i := range segs {
			devices += int64(segs[i].to-begin(segs, i)) * int64(segs[i].gpus)
		}
		if devices < int64(t.devices) {
			return false
		}
	}
	return n.room(segs, int64(t.width)) >= int64(t.width)
}

// room is the width of the widest block, or of the first that is at least
// enough.
func (n *need) room(segs []seg, enough int64) (widest int64) {
	from := int32(0)
	if n.spread {
		sum := int64(0)
		for i := range segs {
			s := &segs[i]
			if g := n.gives(s); g == 0 {
				sum = 0
			} else if sum += int64(s.to-from) * int64(g); sum > widest {
				if widest = sum; widest >= enough {
					return widest
				}
			}
			from = s.to
		}
		return widest
	}
	for i := range segs {
		s := &segs[i]
		if !n.suits(s) {
			from = s.to
		} else if w := int64(s.to - from); w > widest {
			if widest = w; widest >= enough {
				return widest
			}
		}
	}
	return widest
}

// candidates keeps the segments of blocks that are wide enough, and marks all
// others as out of the question. It changes segs in place, and says whether any
// block is left.
func (n *need) candidates(segs []seg, width int32) (kept []seg, some bool) {
	kept = segs[:0]
	for i := 0; i < len(segs); {
		from, first, room := begin(segs, i), i, int64(0)
		for ; i < len(segs); i++ {
			each := n.each(&segs[i])
			if each == 0 {
				break
			}
			room += each * int64(segs[i].to-from)
			from = segs[i].to
		}
		if room >= int64(width) {
			kept, some = append(kept, segs[first:i]...), true
		} else if i > first {
			s := outOfQuestion
			s.to = from
			kept = add(kept, s)
		}
		if i < len(segs) { // segment i gives nothing
			s := outOfQuestion
			s.to = segs[i].to
			kept = add(kept, s)
			i++
		}
	}
	return kept, some
}

// each is what one node of a segment adds to the width of a block.
func (n *need) each(s *seg) int64 {
	switch {
	case n.spread:
		return int64(n.gives(s))
	case n.suits(s):
		return 1
	}
	return 0
}

// hasSplit says whether a task fits in any number of blocks.
func (n *need) hasSplit(segs []seg, t *task) bool {
	sum, devices, from := int64(0), int64(0), int32(0)
	for i := range segs {
		s := &segs[i]
		each := n.each(s)
		sum += each * int64(s.to-from)
		devices += int64(s.gpus) * int64(s.to-from)
		from = s.to
	}
	return sum >= int64(t.width) && devices >= int64(t.devices)
}

// hole is a maximal run of neighbouring nodes that each give something.
type hole struct {
	first, last int // segments
	room        int64
}

// findSplit is find with several blocks. It takes the largest holes first, so
// that there are few blocks.
func (b *board) findSplit(n *need, t *task, out []piece) []piece {
	var holes []hole
	for i := 0; i < len(b.segs); i++ {
		h := hole{first: i, last: i - 1}
		for ; i < len(b.segs); i++ {
			s := &b.segs[i]
			each := n.each(s)
			if each == 0 {
				break
			}
			h.last = i
			h.room += each * int64(s.to-begin(b.segs, i))
		}
		if h.room > 0 {
			holes = append(holes, h)
		}
	}
	slices.SortStableFunc(holes, func(x, y hole) int { return cmp.Compare(y.room, x.room) })
	left := t.width
	for _, h := range holes {
		for i := h.first; i <= h.last && left > 0; i++ {
			s := &b.segs[i]
			from := begin(b.segs, i)
			if !n.spread {
				nodes := min(s.to-from, left)
				out = append(out, piece{from, from + nodes, n.cores, n.gpus, n.memory})
				left -= nodes
				continue
			}
			g := n.gives(s)
			if nodes := min(s.to-from, left/g); nodes > 0 {
				out = append(out, piece{from: from, to: from + nodes, cores: g, memory: int64(g)*n.memory + n.nodeMemory})
				from += nodes
				left -= nodes * g
			}
			if left > 0 && from < s.to {
				out = append(out, piece{from: from, to: from + 1, cores: left, memory: int64(left)*n.memory + n.nodeMemory})
				left = 0
			}
		}
	}
	if left > 0 {
		return out[:0]
	}
	if n.remote {
		out = b.findDevices(t.devices, out)
	}
	return out
}

// find appends the pieces of the best block for a task to out, or nothing if
// the task does not fit. The best block is where the nodes lose least of what
// they are worth to other work; among equals, where the smallest hole remains.
func (b *board) find(n *need, t *task, worth *prices.Table, out []piece) []piece {
	if n.spread {
		out = b.findSpread(n, t.width, worth, out)
	} else {
		out = b.findBlock(n, t.width, worth, out)
	}
	if n.remote && len(out) > 0 {
		out = b.findDevices(t.devices, out)
	}
	return out
}

// apart is added to the remaining hole if a block touches neither end of its
// hole, as it would leave two holes.
const apart = 1 << 24

func (b *board) findBlock(n *need, width int32, worth *prices.Table, out []piece) []piece {
	cost, hole, place := int64(math.MaxInt64), int32(0), int32(-1)
	for i := 0; i < len(b.segs); i++ {
		if !n.suits(&b.segs[i]) {
			continue
		}
		j := i
		for j < len(b.segs) && n.suits(&b.segs[j]) {
			j++
		}
		from, end := begin(b.segs, i), b.segs[j-1].to
		if end-from >= width {
			try := func(node int32, k int) {
				c, h := b.loss(n, node, width, k, worth), end-from-width
				if node != from && node+width != end {
					h += apart
				}
				if c < cost || c == cost && h < hole {
					cost, hole, place = c, h, node
				}
			}
			// Only blocks that begin or end at the edge of a segment need to be
			// tried: between two edges the loss changes linearly.
			k := i
			for e := i; e < j; e++ {
				if node := begin(b.segs, e); node+width <= end {
					try(node, e)
				}
				if node := b.segs[e].to - width; node >= from {
					for b.segs[k].to <= node {
						k++
					}
					try(node, k)
				}
			}
		}
		i = j
	}
	if place < 0 {
		return out
	}
	return append(out, piece{place, place + width, n.cores, n.gpus, n.memory})
}

// loss is what other work loses by a block that begins at node, in segment k.
func (b *board) loss(n *need, node, width int32, k int, worth *prices.Table) int64 {
	sum := int64(0)
	for end := node + width; node < end; k++ {
		s := &b.segs[k]
		to := min(s.to, end)
		sum += int64(to-node) * (worth.Worth(s.cores, s.gpus) - worth.Worth(s.cores-n.cores, s.gpus-n.gpus))
		node = to
	}
	return sum
}

func (b *board) findSpread(n *need, cores int32, worth *prices.Table, out []piece) []piece {
	best, bestAt, bestUp := int64(math.MaxInt64), -1, false
	for i := range b.segs {
		if n.gives(&b.segs[i]) == 0 {
			continue
		}
		for _, up := range [2]bool{true, false} {
			if c, ok := b.walk(n, cores, i, up, worth, nil); ok && c < best {
				best, bestAt, bestUp = c, i, up
			}
		}
	}
	if bestAt < 0 {
		return out
	}
	b.walk(n, cores, bestAt, bestUp, worth, &out)
	return out
}

// walk collects spread cores from the first node of segment i upwards, or from
// its last node downwards, and returns what other work loses by it. If out is
// not nil, it appends the pieces there.
func (b *board) walk(n *need, left int32, i int, up bool, worth *prices.Table, out *[]piece) (lost int64, ok bool) {
	for left > 0 && i >= 0 && i < len(b.segs) {
		s := &b.segs[i]
		from, to := begin(b.segs, i), s.to
		g := n.gives(s)
		if g == 0 {
			return 0, false
		}
		collect := func(nodes, each int32) {
			if nodes <= 0 {
				return
			}
			lost += int64(nodes) * (worth.Worth(s.cores, s.gpus) - worth.Worth(s.cores-each, s.gpus))
			left -= nodes * each
			p := piece{from: from, to: from + nodes, cores: each, memory: int64(each)*n.memory + n.nodeMemory}
			if up {
				from += nodes
			} else {
				p.from, p.to = to-nodes, to
				to -= nodes
			}
			if out != nil {
				*out = append(*out, p)
			}
		}
		collect(min(to-from, left/g), g)
		if left > 0 && from < to {
			collect(1, left)
		}
		if i++; !up {
			i -= 2
		}
	}
	return lost, left == 0
}

// findDevices adds count free devices to the pieces of a block: first those of
// the block's own nodes, then those of the nearest nodes on either side. If
// there are too few, it returns no pieces at all.
func (b *board) findDevices(count int32, out []piece) []piece {
	from, to := out[0].from, out[0].to
	for i := range out {
		from, to = min(from, out[i].from), max(to, out[i].to)
	}
	collect := func(start, end, each int32, up bool) {
		if each == 0 || start >= end || count == 0 {
			return
		}
		nodes := min(end-start, count/each)
		if nodes > 0 {
			p := piece{from: start, to: start + nodes, gpus: each}
			if up {
				start += nodes
			} else {
				p.from, p.to = end-nodes, end
				end -= nodes
			}
			out = append(out, p)
			count -= nodes * each
		}
		if count > 0 && start < end { // fewer than each are missing: one more node gives them
			if up {
				out = append(out, piece{from: start, to: start + 1, gpus: count})
			} else {
				out = append(out, piece{from: end - 1, to: end, gpus: count})
			}
			count = 0
		}
	}
	below, above := at(b.segs, from), at(b.segs, to-1)
	for i := below; i <= above; i++ {
		collect(max(from, begin(b.segs, i)), min(to, b.segs[i].to), b.segs[i].gpus, true)
	}
	down, up := from, to
	for count > 0 && (below >= 0 || above < len(b.segs)) {
		// Find the next segment with devices on each side; the nearer one is
		// used first.
		for below >= 0 && (b.segs[below].gpus == 0 || begin(b.segs, below) >= down) {
			down = min(down, begin(b.segs, below))
			below--
		}
		for above < len(b.segs) && (b.segs[above].gpus == 0 || b.segs[above].to <= up) {
			up = max(up, b.segs[above].to)
			above++
		}
		switch {
		case below >= 0 && (above == len(b.segs) || from-down <= up-to):
			collect(begin(b.segs, below), down, b.segs[below].gpus, false)
			down = begin(b.segs, below)
		case above < len(b.segs):
			collect(up, b.segs[above].to, b.segs[above].gpus, true)
			up = b.segs[above].to
		}
	}
	if count > 0 {
		return out[:0]
	}
	return out
}
