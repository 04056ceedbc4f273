package balance

import "slices"

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

// Share is the items that one of several parts has when items are divided evenly.
func Share(items, part, parts int) (from, to int) {
	return items * part / parts, items * (part + 1) / parts
}

// Guide hands out a number of items in pieces to workers whose speeds it learns.
type Guide struct {
	items, given int
	workers      []guided
}

// guided is what is known of a worker.
type guided struct {
	items   int     // that it has done
	seconds float64 // that it took for them
	has     int     // items that it does now
	dead    bool
}

// Sizes of pieces. The first pieces are small, since no speed is known. Then each worker gets half
// of its share of the rest, where shares are chosen so that all workers end together: the other
// half corrects errors of the estimate. The least piece is a small part of all that a worker does,
// since handing out a piece has a cost.
const (
	firstPart = 256 // a worker's first piece is this part of an even share
	restPart  = 2
	leastPart = 64
)

// NewGuide makes a guide for a number of items and workers.
func NewGuide(items, workers int) *Guide {
	return &Guide{items: items, workers: make([]guided, workers)}
}

// Next notes that a worker has done its piece in that many seconds, and returns its next piece; ok
// is false if nothing is left. For a worker's first piece seconds is ignored.
func (g *Guide) Next(worker int, seconds float64) (from, to int, ok bool) {
	w := &g.workers[worker]
	if w.has > 0 {
		w.items += w.has
		w.seconds += seconds
		w.has = 0
	}
	left := g.items - g.given
	if left == 0 {
		return g.items, g.items, false
	}
	n := min(left, max(1, g.size(worker, left)))
	from, to = g.given, g.given+n
	g.given, w.has = to, n
	return from, to, true
}

// size is how many items a worker's next piece has.
func (g *Guide) size(worker, left int) int {
	even := g.items / len(g.workers)
	w := g.workers[worker]
	if w.items == 0 || w.seconds <= 0 {
		return even / firstPart
	}
	own := float64(w.items) / w.seconds
	all := 0.0
	for _, x := range g.workers {
		switch {
		case x.dead:
		case x.items > 0 && x.seconds > 0:
			all += float64(x.items) / x.seconds
		default:
			all += own // unknown: as fast as the one that asks
		}
	}
	share := own / all
	return max(int(float64(left)*share/restPart), int(float64(g.items)*share/leastPart))
}

// Lose forgets a worker that has died. The caller gives its piece to another worker.
func (g *Guide) Lose(worker int) { g.workers[worker] = guided{dead: true} }
