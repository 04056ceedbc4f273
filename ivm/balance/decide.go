package balance

import (
	"math"
	"slices"
)

// Grow says which elements' devices get one more: those whose time is below threshold times the
// least. (The text of the paper has it the other way round; its listing is followed.)
func Grow(times []float64, threshold float64) []int {
	if len(times) == 0 {
		return nil
	}
	least := slices.Min(times)
	var grow []int
	for i, t := range times {
		if t < threshold*least || t == least {
			grow = append(grow, i)
		}
	}
	return grow
}

// Share is the items that one of several parts has when items are divided evenly; none if there are no
// parts.
func Share(items, part, parts int) (from, to int) {
	if parts < 1 {
		return 0, 0
	}
	each, rest := items/parts, items%parts // items times part may be too large a number
	return each*part + rest*part/parts, each*(part+1) + rest*(part+1)/parts
}

// Guide hands out a number of items in pieces to workers whose speeds it learns.
type Guide struct {
	items, given int
	workers      []guided
}

// guided is what is known of a worker.
type guided struct {
	// items that it has done, and the seconds that it took for them. Earlier pieces count less and
	// less: the first ones contain what a device does once, such as loading its kernels.
	items, seconds float64
	most           int // items of its largest piece
	has            int // items that it does now
	dead           bool
}

// speed is in items a second; 0 if it is not known.
func (w *guided) speed() float64 {
	if w.items == 0 || w.seconds <= 0 || w.items/w.seconds > fastest {
		return 0
	}
	return w.items / w.seconds
}

// took is a time that a worker says, or 0 if that is none: a clock that was not read, or a division by
// zero, would otherwise become part of every worker's share for good.
func took(seconds float64) float64 {
	if seconds >= 0 && seconds <= math.MaxFloat64 {
		return seconds
	}
	return 0
}

// Sizes of pieces. The first pieces are small, since no speed is known: a core may take a thousand
// times as long as a GPU. Then each worker gets half of its share of the rest, where shares are
// chosen so that all workers end together: the other half corrects errors of the estimate. Pieces
// grow step by step, since a small piece says little about the speed of a GPU. The least piece is a
// small part of all that a worker does, since handing out a piece has a cost.
const (
	firstPart = 4096 // a worker's first piece is this part of an even share
	growth    = 8    // a piece is at most this many times as large as the worker's largest before
	restPart  = 2
	leastPart = 64
	keeps     = 0.5 // how much of what was known before a piece counts after it

	fastest = 1e100 // items a second; a greater speed is an error of the clock
)

// NewGuide makes a guide for a number of items and workers.
func NewGuide(items, workers int) *Guide {
	return &Guide{items: max(0, items), workers: make([]guided, workers)}
}

// Next notes that a worker has done its piece in that many seconds, and returns its next piece; ok
// is false if there is none for it. For a worker's first piece seconds is ignored.
func (g *Guide) Next(worker int, seconds float64) (from, to int, ok bool) {
	w := &g.workers[worker]
	if w.has > 0 {
		w.items = keeps*w.items + float64(w.has)
		w.seconds = min(keeps*w.seconds+took(seconds), math.MaxFloat64)
		w.has = 0
	}
	left := g.items - g.given
	if left == 0 {
		return g.items, g.items, false
	}
	n := g.size(worker, left)
	if n == 0 {
		return g.items, g.items, false
	}
	from, to = g.given, g.given+n
	g.given, w.has, w.most = to, n, max(w.most, n)
	return from, to, true
}

// size is how many items a worker's next piece has; 0 if the others end sooner without it.
func (g *Guide) size(worker, left int) int {
	w := &g.workers[worker]
	own := w.speed()
	if own == 0 {
		return min(left, max(1, g.items/len(g.workers)/firstPart))
	}
	all, busy := 0.0, false
	for i := range g.workers {
		x := &g.workers[i]
		if x.dead {
			continue
		}
		speed := x.speed()
		if speed == 0 {
			speed = own // unknown: as fast as the one that asks
		}
		all += speed
		busy = busy || x.has > 0
	}
	if busy && 1/own > float64(left)/all { // one item takes it longer than the rest takes all
		return 0
	}
	share := own / all
	n := max(int(float64(left)*share/restPart), int(float64(g.items)*share/leastPart))
	if w.most <= left/growth { // else it may get all that is left, and growth times that is too large a number
		n = min(n, growth*w.most)
	}
	return min(left, max(1, n))
}

// Again makes the guide hand out the same number of items once more. It still knows the speeds.
func (g *Guide) Again() { g.given = 0 }

// Lose forgets a worker that has died. The caller gives its piece to another worker.
func (g *Guide) Lose(worker int) { g.workers[worker] = guided{dead: true} }
