package simt

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
	time   uint32 // launchCheck.now
}

// blockID is the block that a number in records stands for. A block whose clocks overflow
// gets another number.
type blockID struct {
	number    uint64 // of the block in the grid
	published []publication
}

// maxPublications is how many publications a block keeps. When there are more, they are merged in
// pairs.
const maxPublications = 256

// blockCheck is what a checker knows of a running block. Indexes of the arrays are warps, and from
// maxWarps on copy engines.
type blockCheck struct {
	launch   *launchCheck
	id       uint32 // the number in its records
	first    uint32 // the first of its numbers; see renew
	warps    int
	clock    know                       // the current clocks of its warps
	settled  record                     // all warps are ordered after accesses of this block with records below this
	seen     [maxWarps + engines]know   // what each warp is ordered after
	fenced   [maxWarps + engines]know   // what each warp was ordered after, and had done, at its last fence
	observed [maxWarps + engines]uint32 // when each warp last observed publications; 0: never
	bars     [barriers + 1]barCheck     // the last is the cluster's
	mbars    map[uint64]*mbarCheck      // by address; nil until mbarriers or bulk copies are used
	shared   []*page
}

// barCheck is the join of what the warps know that have arrived at a barrier.
type barCheck struct {
	used     bool
	waiting  uint32 // a bit for each warp that waits there
	behind   know
	fenced   know
	observed uint32
}

// begin resets the state for a new block.
func (b *blockCheck) begin(number uint64) {
	b.clock = know{}
	for w := range b.warps {
		b.seen[w], b.fenced[w], b.observed[w] = know{}, know{}, 0
	}
	if b.mbars != nil {
		b.mbars = nil
		for w := maxWarps; w < maxWarps+engines; w++ {
			b.seen[w], b.fenced[w], b.observed[w] = know{}, know{}, 0
		}
	}
	b.bars = [barriers + 1]barCheck{}
	for _, p := range b.shared {
		if p != nil {
			p.forget()
		}
	}
	b.id = b.launch.newID(number)
	b.first = b.id
	b.settled = record(b.id) << blockShift
}

// advance advances the clock of a warp.
func (b *blockCheck) advance(w int) {
	if b.clock[w] == maxClock-1 {
		b.renew()
	}
	b.clock[w]++
}

// renew starts the block's clocks again, under another number, when one would overflow. All
// that the block did before then counts as ordered (see ordered).
func (b *blockCheck) renew() {
	first := b.first
	number, observed, shared := b.launch.id(b.id).number, b.observed, b.shared
	b.shared = nil
	b.begin(number)
	b.first, b.observed, b.shared = first, observed, shared
}

// ordered says whether the access in a record happened before what warp w does now: by the order within
// the warp or the block, or because w has observed a publication that covers the record.
func (b *blockCheck) ordered(r record, w int) bool {
	id, rw, clock := r.block(), r.warp(), r.clock()
	switch {
	case id == b.id && rw == w:
		return clock < b.clock[w]
	case id == b.id && clock < b.seen[w][rw]:
		return true
	case id < b.id && id >= b.first:
		return true
	case b.launch.id(id) == nil: // it is from an earlier launch
		return true
	}
	seen := b.observed[w]
	if seen == 0 {
		return false
	}
	published := b.launch.id(id).published
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

// arrive records that a warp arrives at a barrier, and whether it waits there.
func (b *blockCheck) arrive(w int, number uint32, waits bool) {
	b.advance(w)
	bar := &b.bars[number]
	bar.used = true
	bar.behind.join(&b.seen[w], b.warps)
	bar.behind[w] = b.clock[w]
	bar.fenced.join(&b.fenced[w], b.warps)
	bar.observed = max(bar.observed, b.observed[w])
	if waits {
		bar.waiting |= 1 << w
	}
}

// pass records that the warps that wait at a barrier continue: each takes over what all that arrived
// know.
func (b *blockCheck) pass(number int) {
	bar := &b.bars[number]
	if !bar.used {
		return
	}
	for w := range b.warps {
		if bar.waiting>>w&1 != 0 {
			b.seen[w].join(&bar.behind, b.warps)
			b.fenced[w].join(&bar.fenced, b.warps)
			b.observed[w] = max(b.observed[w], bar.observed)
		}
	}
	*bar = barCheck{}
	b.settle()
}

// settle computes settled: the lowest clock that some warp is not ordered after.
func (b *blockCheck) settle() {
	least := b.clock[0]
	for w := range b.warps {
		least = min(least, b.clock[w])
		for other := range b.warps {
			if other != w {
				least = min(least, b.seen[w][other])
			}
		}
	}
	if b.mbars != nil {
		least = min(least, b.unfinished())
	}
	b.settled = record(b.id)<<blockShift | record(least)<<clockShift
}

// fence records a fence of a warp.
func (b *blockCheck) fence(w int) {
	b.advance(w)
	b.fenced[w].join(&b.seen[w], b.warps)
	b.fenced[w][w] = b.clock[w]
}

// observe records that a warp makes a read that orders it behind all publications so far.
func (b *blockCheck) observe(w int) { b.observed[w] = b.launch.now }

// publish records that a warp publishes what it did before its last fence, and what it
// was ordered after then.
func (b *blockCheck) publish(w int) {
	if b.fenced[w] == (know{}) {
		return
	}
	id := b.launch.id(b.id)
	if n := len(id.published); n > 0 && id.published[n-1].behind == b.fenced[w] {
		return // it has published the same before
	}
	b.launch.now++
	if len(id.published) == maxPublications {
		id.published = merge(id.published, b.warps)
	}
	id.published = append(id.published, publication{b.fenced[w], b.launch.now})
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
