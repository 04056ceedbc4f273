package balance

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrUndone says that a balancer did not get all of its work done exactly once. No Root returns nil
// then.
var ErrUndone = errors.New("the work was not done exactly once")

// span is the items from one to before another.
type span struct{ from, to int }

// ledger keeps which items were acknowledged. It knows nothing of how they were divided, so that it
// finds any error of a balancer that does.
type ledger struct{ done []span } // in order, apart from each other

// add notes items that were acknowledged. None of them may be there.
func (l *ledger) add(s span) error {
	if s.from >= s.to {
		return nil
	}
	i, _ := slices.BinarySearchFunc(l.done, s.from, func(d span, from int) int { return d.from - from })
	if i > 0 && l.done[i-1].to > s.from || i < len(l.done) && l.done[i].from < s.to {
		return fmt.Errorf("%w: items %d to %d were acknowledged twice, at least some of them", ErrUndone, s.from, s.to-1)
	}
	if i < len(l.done) && l.done[i].from == s.to {
		s.to = l.done[i].to
		l.done = slices.Delete(l.done, i, i+1)
	}
	if i > 0 && l.done[i-1].to == s.from {
		l.done[i-1].to = s.to
		return nil
	}
	l.done = slices.Insert(l.done, i, s)
	return nil
}

// complete says which items are missing, if any.
func (l *ledger) complete(items int) error {
	missing := span{0, items}
	for _, d := range l.done {
		if d.from > missing.from {
			missing.to = d.from
			break
		}
		missing.from = d.to
	}
	if missing.from >= items {
		return nil
	}
	return fmt.Errorf("%w: of %d items those from %d to %d were acknowledged by no element", ErrUndone, items, missing.from, missing.to-1)
}

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

// Guide hands out a number of items in pieces to workers whose speeds it learns. Each worker asks once
// at the beginning of a round, and whenever it is done with a piece, until it gets none. So a worker that
// gets none leaves the rest to those that still have a piece or have not asked; the last of them gets
// all that is left.
type Guide struct {
	items   int
	todo    []span // not handed out, or handed out to a worker that was lost
	done    ledger
	wrong   error // that some items were done twice
	workers []guided

	rounds int        // how often all items were handed out
	fewer  bool       // in this round slow workers get nothing
	longs  [2]float64 // how long the last round took with all workers, and with fewer; 0: unknown
}

// guided is what is known of a worker. A piece takes a time of its own, such as for transfers and for
// starting a kernel, and a time for each item. Small kernels take as long as large ones until the
// GPU is full, so the first part may be most of it.
type guided struct {
	// Sums over its pieces: how many, their items and seconds, and products. Earlier pieces count
	// less and less: the first ones contain what a device does once, such as loading its kernels.
	pieces, items, seconds, squares, products float64
	fixed                                     float64 // seconds of a piece, whatever its size
	least                                     float64 // seconds of its shortest piece: no piece takes less, so noise cannot make fixed larger
	most                                      int     // items of its largest piece
	has                                       span    // items that it does now
	since                                     float64 // seconds of its pieces in this round before that
	dead                                      bool
	idle                                      bool // it was given nothing in this round, and does not ask again
}

// each is the seconds that an item takes; 0 if that is not known: after one piece nobody knows how
// much of its time was for the items.
func (w *guided) each() float64 {
	if w.pieces <= 1 || w.seconds <= 0 || w.items/w.seconds > fastest {
		return 0
	}
	all := w.seconds / w.items
	return max(all-w.fixed*w.pieces/w.items, all/dearest)
}

// note adds a piece that the worker has done.
func (w *guided) note(items, seconds float64) {
	w.pieces = keeps*w.pieces + 1
	w.items = keeps*w.items + items
	w.seconds = min(keeps*w.seconds+seconds, math.MaxFloat64)
	w.squares = keeps*w.squares + items*items
	w.products = min(keeps*w.products+items*seconds, math.MaxFloat64)
	// The line through the pieces, if they are of different sizes; else what was known stays.
	if spread := w.pieces*w.squares - w.items*w.items; spread > 0.1*w.pieces*w.squares {
		slope := (w.pieces*w.products - w.items*w.seconds) / spread
		w.fixed = (w.seconds - slope*w.items) / w.pieces
	}
	if !(w.fixed > 0) { // nor a number
		w.fixed = 0
	}
	if w.least == 0 || seconds < w.least {
		w.least = seconds
	}
	w.fixed = min(w.fixed, w.least)
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
// grow step by step, since a small piece says little about the speed of a GPU. A piece is not so
// small that the time which every piece takes would be a large part of it, nor than a small part of
// all that a worker does, since handing out a piece has a cost.
//
// Workers that are much slower than the fastest get nothing where all of them together would do
// less than tooLittle of the work: the errors of the estimates are larger than that. Where they
// would do more, a round with them and one without show what is better, since they may slow the
// others down; if the other way was nearly as good, it is tried again every retry rounds.
const (
	firstPart = 4096 // a worker's first piece is this part of an even share
	growth    = 8    // a piece is at most this many times as large as the worker's largest before
	restPart  = 2
	leastPart = 64
	paysFrom  = 16  // a piece takes this many times its fixed time for its items, if it can
	keeps     = 0.5 // how much of what was known before a piece counts after it
	dearest   = 64  // an item takes at least this part of its piece's time, in proportion

	slow      = 8.0      // a worker this many times slower than the fastest is slow
	tooLittle = 1.0 / 32 // of the work, by all slow workers
	retry     = 16
	nearly    = 1.1 // times as long: then the other way may be the better one by now

	fastest = 1e100 // items a second; a greater speed is an error of the clock
)

// NewGuide makes a guide for a number of items and workers.
func NewGuide(items, workers int) *Guide {
	g := &Guide{items: max(0, items), workers: make([]guided, workers)}
	g.begin()
	return g
}

// begin begins a round.
func (g *Guide) begin() {
	g.todo, g.done, g.wrong = []span{{0, g.items}}, ledger{}, nil
}

func (s span) count() int { return s.to - s.from }

// left is how many items nobody has.
func (g *Guide) left() (n int) {
	for _, s := range g.todo {
		n += s.count()
	}
	return n
}

// Next notes that a worker has done its piece in that many seconds, and returns its next piece; ok
// is false if there is none for it in this round, or if it is lost. For a worker's first piece seconds
// is ignored.
func (g *Guide) Next(worker int, seconds float64) (from, to int, ok bool) {
	w := &g.workers[worker]
	if w.has.count() > 0 {
		if err := g.done.add(w.has); err != nil && g.wrong == nil {
			g.wrong = err
		}
		w.note(float64(w.has.count()), took(seconds))
		w.since = min(w.since+took(seconds), math.MaxFloat64)
		w.has = span{}
	}
	left, n := g.left(), 0
	if left > 0 && !w.dead {
		n = g.size(worker, left)
	}
	if w.idle = n == 0; w.idle {
		return g.items, g.items, false
	}
	last := &g.todo[len(g.todo)-1] // what a lost worker had comes first
	n = min(n, last.count())
	w.has, w.most = span{last.from, last.from + n}, max(w.most, n)
	if last.from += n; last.count() == 0 && len(g.todo) > 1 {
		g.todo = g.todo[:len(g.todo)-1]
	}
	return w.has.from, w.has.to, true
}

// Done says that all items of the round were handed out and acknowledged exactly once, or what is
// wrong. A round is over when nobody has a piece; whoever plays it asks then.
func (g *Guide) Done() error {
	if g.wrong != nil {
		return g.wrong
	}
	return g.done.complete(g.items)
}

// size is how many items a worker's next piece has; 0 if the others end sooner without it.
func (g *Guide) size(worker, left int) int {
	w := &g.workers[worker]
	own := w.each()
	alone, busy := true, false
	for i := range g.workers {
		x := &g.workers[i]
		alone = alone && (i == worker || x.dead || x.idle || g.without(x))
		busy = busy || x.has.count() > 0
	}
	switch {
	case g.without(w) && !alone:
		return 0
	case alone && !busy:
		return left
	case own == 0 && (w.pieces == 0 || w.seconds <= 0):
		return min(left, max(1, g.items/len(g.workers)/firstPart))
	case own == 0:
		return g.second(w, left, busy)
	}
	// All that may still take items end together if each takes those that it can do until then.
	end, rate := g.end(w, float64(left))
	can := (end - w.fixed) / own
	if busy && !(can >= 1) { // the rest is done before this worker is done with one item
		return 0
	}
	n := max(can/restPart, min(can, paysFrom*w.fixed/own), float64(g.items)/own/rate/leastPart)
	piece := left
	if n < float64(left) {
		piece = min(left, max(1, int(n)))
	}
	if w.most <= left/growth { // else it may get all that is left, and growth times that is too large a number
		piece = min(piece, max(1, growth*w.most))
	}
	return piece
}

// second is how many items a worker's second piece has: more than the first, so that the two show
// what a piece takes and what an item. It gets none if the others are done with all before.
func (g *Guide) second(w *guided, left int, busy bool) int {
	most := growth
	if end, _ := g.end(w, float64(left)); end > 0 { // of those whose speeds are known
		if busy && w.seconds > end/4 {
			return 0
		}
		if times := end / w.seconds / restPart; times < growth {
			most = max(2, int(times))
		}
	}
	if w.most > left/most {
		return left
	}
	return most * w.most
}

// end is how long from now the workers need for the items that are left, with w, which asks.
// Workers that have a piece come to it when they are done; how far they are is known from the sum of
// the times that they and w have worked in this round. The end is 0 if no speed is known; rate is
// how many items a second they do together.
func (g *Guide) end(w *guided, left float64) (end, rate float64) {
	for again := true; again; { // leaves out those that would begin after the end, until none is left
		from, sum := 0.0, 0.0
		again = false
		for i := range g.workers {
			x := &g.workers[i]
			begin, each := g.start(x, w)
			if each == 0 || rate > 0 && begin >= end {
				continue
			}
			from += begin / each
			sum += 1 / each
		}
		if sum == 0 {
			return 0, 0
		}
		next := (left + from) / sum
		again = rate == 0 || sum < rate
		end, rate = next, sum
	}
	return end, rate
}

// start is when a worker would begin with the items of its next piece, and the seconds that each of
// them takes; 0 if it takes none. One of unknown speed counts as fast as w.
func (g *Guide) start(x, w *guided) (begin, each float64) {
	if x.dead || x != w && (x.idle || g.without(x)) {
		return 0, 0
	}
	if each = x.each(); each == 0 {
		return w.fixed, w.each()
	}
	begin = x.fixed
	if x.has.count() > 0 {
		begin += max(0, x.since+x.fixed+each*float64(x.has.count())-w.since)
	}
	return begin, each
}

// without says whether a worker gets nothing in this round, because it is slow and the others end
// sooner without it.
func (g *Guide) without(x *guided) bool {
	least, all, ofSlow := 0.0, 0.0, 0.0
	for i := range g.workers {
		if each := g.workers[i].each(); each > 0 && !g.workers[i].dead && (least == 0 || each < least) {
			least = each
		}
	}
	if x.each() <= slow*least {
		return false
	}
	for i := range g.workers {
		each := g.workers[i].each()
		if each == 0 || g.workers[i].dead {
			continue
		}
		all += 1 / each
		if each > slow*least {
			ofSlow += 1 / each
		}
	}
	return g.fewer || ofSlow < tooLittle*all
}

// Again makes the guide hand out the same number of items once more. It still knows the speeds. What is
// not done of the round before is forgotten: ask Done first.
func (g *Guide) Again() {
	long := 0.0
	for i := range g.workers {
		w := &g.workers[i]
		long = max(long, w.since)
		w.since, w.idle, w.has = 0, false, span{}
	}
	kind := 0
	if g.fewer {
		kind = 1
	}
	if g.rounds > 2 && g.Done() == nil { // what the first ones took says little
		g.longs[kind] = long
	}
	g.begin()
	g.rounds++
	with, fewer := g.longs[0], g.longs[1]
	switch {
	case with == 0:
		g.fewer = false
	case fewer == 0:
		g.fewer = true
	default:
		again := g.rounds%retry == 0 && max(with, fewer) < nearly*min(with, fewer)
		g.fewer = (fewer < with) != again
	}
}

// Lose forgets a worker that has died. Its piece is handed out again. Those that were given nothing must
// ask again.
func (g *Guide) Lose(worker int) {
	if has := g.workers[worker].has; has.count() > 0 {
		g.todo = append(g.todo, has)
	}
	g.workers[worker] = guided{dead: true}
	g.longs, g.fewer = [2]float64{}, false
	for i := range g.workers {
		g.workers[i].idle = false
	}
}
