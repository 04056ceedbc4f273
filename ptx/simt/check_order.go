package simt

// The order of accesses. Each warp of a block has a clock, which it advances
// whenever it synchronises, and knows how far it is ordered behind the other
// warps of its block: behind all that warp v did while its clock was below
// seen[v]. A barrier makes the warps that wait there know what those that came
// there knew.
//
// Between warps without a barrier, those of other blocks included, order comes
// from fences and atomics: what a warp did before a fence is published by the
// next atomic or volatile write that it makes, and whoever makes an atomic or
// volatile read after that is ordered behind it. Which address they use is not
// looked at, so that a kernel which synchronises by any such means is never
// blamed; races between threads that synchronise with others are missed.

// know is how far something is ordered behind each warp of a block, and behind its
// copy engines.
type know [maxWarps + engines]uint16

const maxWarps = MaxThreads / WarpSize

func (k *know) join(o *know, warps int) {
	for i, v := range o[:warps] {
		k[i] = max(k[i], v)
	}
	for i, v := range o[maxWarps:] {
		k[maxWarps+i] = max(k[maxWarps+i], v)
	}
}

// publication is what a block let others know, and when.
type publication struct {
	behind know
	time   uint32
}

// blockID is a number that records name a block by. A block whose clocks run
// over gets another.
type blockID struct {
	number    uint64 // in the grid
	published []publication
}

// maxPublications is how many a block keeps; a later one that says as much takes
// the place of those that are dropped.
const maxPublications = 256

// blockCheck is what a checker knows of a block that runs.
type blockCheck struct {
	launch   *launchCheck
	id       uint32
	first    uint32 // the first of its ids
	warps    int
	clock    know
	settled  record // what this block did is ordered for all of its warps if its record is below
	seen     [maxWarps + engines]know
	fenced   [maxWarps + engines]know
	observed [maxWarps + engines]uint32
	bars     [barriers + 1]barCheck // the last is the cluster's
	mbars    map[uint64]*mbarCheck  // by address
	shared   []*page
}

// barCheck is what the warps at a barrier know together.
type barCheck struct {
	used     bool
	waiting  uint32 // warps, a bit each
	behind   know
	fenced   know
	observed uint32
}

// begin makes it the state of a new block.
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

// advance moves the clock of a warp on.
func (b *blockCheck) advance(w int) {
	if b.clock[w] == maxClock-1 {
		b.renew()
	}
	b.clock[w]++
}

// renew begins the clocks anew, under another id. All that the block did before
// counts as ordered.
func (b *blockCheck) renew() {
	first := b.first
	number, observed, shared := b.launch.id(b.id).number, b.observed, b.shared
	b.shared = nil
	b.begin(number)
	b.first, b.observed, b.shared = first, observed, shared
}

// ordered says whether a warp is ordered behind what a record tells.
func (b *blockCheck) ordered(r record, w int) bool {
	id, rw, clock := r.block(), r.warp(), r.clock()
	switch {
	case id == b.id && rw == w:
		return clock < b.clock[w]
	case id == b.id && clock < b.seen[w][rw]:
		return true
	case id < b.id && id >= b.first:
		return true
	case b.launch.id(id) == nil: // of another launch
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

// arrive notes that a warp comes to a barrier, and whether it waits there.
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

// pass lets the warps go on that wait at a barrier.
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

// settle finds out what is ordered for all warps.
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

// fence notes a fence of a warp.
func (b *blockCheck) fence(w int) {
	b.advance(w)
	b.fenced[w].join(&b.seen[w], b.warps)
	b.fenced[w][w] = b.clock[w]
}

// observe notes that a warp reads what others may have published.
func (b *blockCheck) observe(w int) { b.observed[w] = b.launch.now }

// publish notes that a warp lets others know of what it did before its last
// fence, and of what it knows itself.
func (b *blockCheck) publish(w int) {
	if b.fenced[w] == (know{}) {
		return
	}
	id := b.launch.id(b.id)
	if n := len(id.published); n > 0 && id.published[n-1].behind == b.fenced[w] {
		return // it has told that before
	}
	b.launch.now++
	if len(id.published) == maxPublications {
		id.published = append(id.published[:0], id.published[maxPublications/2:]...)
	}
	id.published = append(id.published, publication{b.fenced[w], b.launch.now})
}
