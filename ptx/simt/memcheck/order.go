package memcheck

import "muster/ptx/simt/shape"

// The order of accesses, by vector clocks. Each warp of a block has a clock, which it
// advances whenever it synchronises, and a vector, seen: all that warp v did while its
// clock was below seen[v] happened before what this warp does now. At a barrier the
// vectors of all warps that arrive are joined (element by element, the maximum), and
// each warp that waits there takes over the result.
//
// Between warps without a barrier, also of different blocks, order comes
// from fences and atomics. A warp publishes what it did before its last fence with the
// next atomic or volatile write. A warp that makes an atomic or volatile read afterwards
// is ordered after that. The checker does not compare the addresses of the two. So it
// never blames a kernel that synchronises in such a way, but it misses races between
// threads that have synchronised with other threads.

// know is a vector of clocks, one for each warp of a block and each of its copy engines. An
// entry says: everything that this warp did while its clock was below the entry is known to
// have happened before.
type know [maxWarps + engines]uint16

const maxWarps = shape.MaxThreads / shape.WarpSize

func (k *know) join(o *know, warps int) {
	for i, v := range o[:warps] {
		k[i] = max(k[i], v)
	}
	for i, v := range o[maxWarps:] {
		k[maxWarps+i] = max(k[maxWarps+i], v)
	}
}

// publication is what a warp of a block has published, and when.
type publication struct {
	behind know
	time   uint32 // Launch.now
}

// blockID is the block that a number in records stands for. A block whose clocks overflow
// gets another number.
type blockID struct {
	Number    uint64 // of the block in the grid
	published []publication
}

// maxPublications is how many publications a block keeps. When there are more, they are merged in
// pairs.
const maxPublications = 256

// Block is what a checker knows of a running block. Indexes of the arrays are warps, and from
// maxWarps on copy engines.
type Block struct {
	Launch   *Launch
	ID       uint32 // the number in its records
	first    uint32 // the first of its numbers; see renew
	Warps    int
	Clock    know                           // the current clocks of its warps
	Settled  Record                         // all warps are ordered after accesses of this block with records below this
	Seen     [maxWarps + engines]know       // what each warp is ordered after
	fenced   [maxWarps + engines]know       // what each warp was ordered after, and had done, at its last fence
	observed [maxWarps + engines]uint32     // when each warp last observed publications; 0: never
	bars     [shape.MaxBarriers + 1]Barrier // the last is the cluster's
	Mbars    map[uint64]*Mbarrier           // by address; nil until mbarriers or bulk copies are used
	Shared   []*Page
}

// Barrier is the join of what the warps know that have arrived at a barrier.
type Barrier struct {
	used     bool
	waiting  uint32 // a bit for each warp that waits there
	Behind   know
	fenced   know
	observed uint32
}

// Begin resets the state for a new block.
func (b *Block) Begin(number uint64) {
	b.Clock = know{}
	for w := range b.Warps {
		b.Seen[w], b.fenced[w], b.observed[w] = know{}, know{}, 0
	}
	if b.Mbars != nil {
		b.Mbars = nil
		for w := maxWarps; w < maxWarps+engines; w++ {
			b.Seen[w], b.fenced[w], b.observed[w] = know{}, know{}, 0
		}
	}
	b.bars = [shape.MaxBarriers + 1]Barrier{}
	for _, p := range b.Shared {
		if p != nil {
			p.forget()
		}
	}
	b.ID = b.Launch.newID(number)
	b.first = b.ID
	b.Settled = Record(b.ID) << BlockShift
}

// Advance advances the clock of a warp.
func (b *Block) Advance(w int) {
	if b.Clock[w] == maxClock-1 {
		b.renew()
	}
	b.Clock[w]++
}

// renew starts the block's clocks again, under another number, when one would overflow. All
// that the block did before then counts as ordered (see ordered).
func (b *Block) renew() {
	first := b.first
	number, observed, shared := b.Launch.ID(b.ID).Number, b.observed, b.Shared
	b.Shared = nil
	b.Begin(number)
	b.first, b.observed, b.Shared = first, observed, shared
}

// Ordered says whether the access in a record happened before what warp w does now: by the order within
// the warp or the block, or because w has observed a publication that covers the record.
func (b *Block) Ordered(r Record, w int) bool {
	id, rw, clock := r.Block(), r.Warp(), r.clock()
	switch {
	case id == b.ID && rw == w:
		return clock < b.Clock[w]
	case id == b.ID && clock < b.Seen[w][rw]:
		return true
	case id < b.ID && id >= b.first:
		return true
	case b.Launch.ID(id) == nil: // it is from an earlier launch
		return true
	}
	seen := b.observed[w]
	if seen == 0 {
		return false
	}
	published := b.Launch.ID(id).published
	for i := range published {
		p := &published[i]
		if p.time > seen {
			break
		}
		if clock < p.behind[rw] {
			return true
		}
	}
	return false
}

// Arrive records that a warp arrives at a barrier, and whether it waits there.
func (b *Block) Arrive(w int, number uint32, waits bool) {
	b.Advance(w)
	bar := &b.bars[number]
	bar.used = true
	bar.Behind.join(&b.Seen[w], b.Warps)
	bar.Behind[w] = b.Clock[w]
	bar.fenced.join(&b.fenced[w], b.Warps)
	bar.observed = max(bar.observed, b.observed[w])
	if waits {
		bar.waiting |= 1 << w
	}
}

// Pass records that the warps that wait at a barrier continue: each takes over what all that arrived
// know.
func (b *Block) Pass(number int) {
	bar := &b.bars[number]
	if !bar.used {
		return
	}
	for w := range b.Warps {
		if bar.waiting>>w&1 != 0 {
			b.Seen[w].join(&bar.Behind, b.Warps)
			b.fenced[w].join(&bar.fenced, b.Warps)
			b.observed[w] = max(b.observed[w], bar.observed)
		}
	}
	*bar = Barrier{}
	b.settle()
}

// settle computes settled: the lowest clock that some warp is not ordered after.
func (b *Block) settle() {
	least := b.Clock[0]
	for w := range b.Warps {
		least = min(least, b.Clock[w])
		for other := range b.Warps {
			if other != w {
				least = min(least, b.Seen[w][other])
			}
		}
	}
	if b.Mbars != nil {
		least = min(least, b.unfinished())
	}
	b.Settled = Record(b.ID)<<BlockShift | Record(least)<<ClockShift
}

// Fence records a fence of a warp.
func (b *Block) Fence(w int) {
	b.Advance(w)
	b.fenced[w].join(&b.Seen[w], b.Warps)
	b.fenced[w][w] = b.Clock[w]
}

// Observe records that a warp makes a read that orders it behind all publications so far.
func (b *Block) Observe(w int) { b.observed[w] = b.Launch.now }

// Publish records that a warp publishes what it did before its last fence, and what it
// was ordered after then.
func (b *Block) Publish(w int) {
	if b.fenced[w] == (know{}) {
		return
	}
	id := b.Launch.ID(b.ID)
	if n := len(id.published); n > 0 && id.published[n-1].behind == b.fenced[w] {
		return // it has published the same before
	}
	b.Launch.now++
	if len(id.published) == maxPublications {
		id.published = merge(id.published, b.Warps)
	}
	id.published = append(id.published, publication{b.fenced[w], b.Launch.now})
}

// merge merges each pair of publications into one, which counts from the time of the earlier: a
// warp that has observed only that one is taken to be ordered after the later, too. So races may be
// missed, but no warp is blamed for what it has observed.
func merge(published []publication, warps int) []publication {
	for i := 0; i < len(published)/2; i++ {
		published[i] = published[2*i]
		published[i].behind.join(&published[2*i+1].behind, warps)
	}
	return published[:len(published)/2]
}

func (b *Block) SharedPage(addr uint64) *Page {
	slot := &b.Shared[addr/PageBytes]
	if *slot == nil {
		*slot = &Page{}
	}
	return *slot
}

// Launch is what the blocks of a launch have in common: their numbers, and how many of their
// publications there were.
type Launch struct {
	Lowest    uint32 // number of the launch's first block; see blockID
	most      int    // how many numbers it may use
	exhausted func(blocks int)
	ids       []blockID // the numbers in use, from first on
	now       uint32    // number of publications so far: the time of the next observation
}

// newID assigns a number, for records, to a block.
func (n *Launch) newID(number uint64) uint32 {
	if len(n.ids) == n.most {
		n.exhausted(n.most)
		return n.Lowest + uint32(n.most) - 1
	}
	n.ids = append(n.ids, blockID{Number: number})
	return n.Lowest + uint32(len(n.ids)) - 1
}

// id returns the block that a number stands for; nil if the number is not of this
// launch.
func (n *Launch) ID(number uint32) *blockID {
	if i := number - n.Lowest; i < uint32(len(n.ids)) {
		return &n.ids[i]
	}
	return nil
}
