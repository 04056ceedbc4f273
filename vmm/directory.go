package vmm

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// directory says where each chunk of a client is. It knows chunks that allocations touch, and none of
// these allocations.
type directory struct {
	// version changes with every change of the state, and serves as the time
	// of a need.
	version uint64
	chunks  int     // number of chunks that allocations touch
	tallies []tally // by slot

	config Config
	shift  int // log2 of the chunk's size
	table  []*page
	dirty  int                    // chunks that were written, and have no valid copy on the host
	filled int                    // chunks known as a fill
	direct [maxDevices + 1]places // by slot: whence it gets copies without the host
	fresh  few                    // chunks that came into use since the last PrepareAll
}

// chunk is one entry of the directory.
type chunk struct {
	needed uint64 // when Prepare last needed it as part of less than an allocation
	held   places // that have memory for it
	valid  places // a subset of held: those whose contents are valid
	fill   fill   // contents that are valid without any place
	users  uint32 // allocations that touch it
}

// fill is the word that a chunk consists of throughout, plus 1; 0 if it is not known to.
type fill uint64

func fillOf(word uint32) fill { return fill(word) + 1 }

func (f fill) word() uint32 { return uint32(f - 1) }

// written says whether the chunk has contents.
func (c *chunk) written() bool { return c.valid != 0 || c.fill != 0 }

// ready says whether a kernel on the device may use the chunk.
func (c *chunk) ready(p slot) bool {
	return c.held&p.bit() != 0 && (!c.written() || c.valid&p.bit() != 0)
}

// only says whether the contents would be lost with the place.
func (c *chunk) only(p slot) bool { return c.valid == p.bit() && c.fill == 0 }

// page is a part of the directory, allocated when it is first used.
type page [1 << pageShift]chunk

const pageShift = 10

// tally counts the chunks of one place.
type tally struct {
	held  int
	valid int
	only  int // valid there and nowhere else, nor known as a fill
	ready int
}

// few lists chunks by number, as long as they are few. It is a hint: chunks may be missing, and
// listed ones may no longer be in use.
type few []int

const fewMost = 1024

func (f *few) add(i int) {
	if len(*f) < fewMost {
		*f = append(*f, i)
	}
}

// span is a row of chunks, by their number in the arena.
type span struct{ first, count int }

// use counts one more allocation in each chunk of a span.
func (d *directory) use(p span) {
	for n := p.first >> pageShift; n <= (p.first+p.count-1)>>pageShift; n++ {
		if d.table[n] == nil {
			d.table[n] = new(page)
		}
	}
	for i, c := range d.in(p) {
		if c.users == 0 {
			d.chunks++
			d.fresh.add(i)
		}
		c.users++
	}
	d.version++
}

// leave counts one allocation less in each chunk of a span.
func (d *directory) leave(p span) Plan {
	d.version++
	var moves mover
	for n, c := range d.in(p) {
		c.users--
		if c.users > 0 {
			continue
		}
		for rest := c.held; rest != 0; rest &= rest - 1 {
			if p := rest.first(); p == hostSlot {
				moves.add(Discard, hostSlot, n)
			} else {
				moves.add(Unmap, p, n)
			}
		}
		d.set(c, 0, 0, 0)
		c.needed = 0
		d.chunks--
	}
	return moves.plan(d)
}

func (d *directory) span(r Range) span {
	first := (r.Addr - d.config.Arena.Addr) >> d.shift
	last := (r.end() - 1 - d.config.Arena.Addr) >> d.shift
	return span{int(first), int(last-first) + 1}
}

func (d *directory) rangeOf(p span) Range {
	return Range{d.config.Arena.Addr + uint64(p.first)<<d.shift, d.bytes(p.count)}
}

func (d *directory) bytes(chunks int) uint64 { return uint64(chunks) << d.shift }

// in iterates over the entries of a span; those of pages that were never used are left out.
func (d *directory) in(p span) iter.Seq2[int, *chunk] {
	return func(yield func(int, *chunk) bool) {
		for i := p.first; i < p.first+p.count; i++ {
			page := d.table[i>>pageShift]
			if page == nil {
				i |= 1<<pageShift - 1
				continue
			}
			if !yield(i, &page[i&(1<<pageShift-1)]) {
				return
			}
		}
	}
}

// all iterates over the entries that allocations touch.
func (d *directory) all() iter.Seq2[int, *chunk] {
	return func(yield func(int, *chunk) bool) {
		for n, page := range d.table {
			if page == nil {
				continue
			}
			for i := range page {
				if c := &page[i]; c.users > 0 && !yield(n<<pageShift+i, c) {
					return
				}
			}
		}
	}
}

// these iterates over the listed entries that allocations still touch.
func (d *directory) these(chunks few) iter.Seq2[int, *chunk] {
	return func(yield func(int, *chunk) bool) {
		for _, i := range chunks {
			c := &d.table[i>>pageShift][i&(1<<pageShift-1)] // it was in use once
			if c.users > 0 && !yield(i, c) {
				return
			}
		}
	}
}

// among iterates over the chunks of spans.
func (d *directory) among(spans []span) iter.Seq2[int, *chunk] {
	return func(yield func(int, *chunk) bool) {
		for _, p := range spans {
			for i, c := range d.in(p) {
				if !yield(i, c) {
					return
				}
			}
		}
	}
}

// set is the only writer of held, valid and fill of a chunk, so that the tallies stay right.
func (d *directory) set(c *chunk, held, valid places, fill fill) {
	if c.held == held && c.valid == valid && c.fill == fill {
		return
	}
	d.version++
	d.count(c, -1)
	c.held, c.valid, c.fill = held, valid, fill
	d.count(c, +1)
}

func (d *directory) count(c *chunk, by int) {
	if c.fill != 0 {
		d.filled += by
	} else if c.valid != 0 && c.valid&hostSlot.bit() == 0 {
		d.dirty += by
	}
	for rest := c.held; rest != 0; rest &= rest - 1 {
		p := rest.first()
		t := &d.tallies[p]
		t.held += by
		if c.valid&p.bit() != 0 {
			t.valid += by
		}
		if c.only(p) {
			t.only += by
		}
		if c.ready(p) {
			t.ready += by
		}
	}
}

// device returns the slot of a device; false if the space does not know it.
func (d *directory) device(p Place) (slot, bool) {
	for i, known := range d.config.Devices {
		if known == p {
			return slot(i + 1), true
		}
	}
	return 0, false
}

// place is the place of a slot.
func (d *directory) place(p slot) Place {
	if p == hostSlot {
		return Host
	}
	return d.config.Devices[p-1]
}

// chunksIn is how many chunks fit into that many bytes.
func (d *directory) chunksIn(bytes uint64) int { return int(min(bytes>>d.shift, math.MaxInt32)) }

// spans returns the chunks of the ranges, in order and each once.
func (d *directory) spans(ranges []Range) []span {
	spans := make([]span, len(ranges))
	for i, r := range ranges {
		spans[i] = d.span(r)
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	merged := spans[:0]
	for _, p := range spans {
		if n := len(merged) - 1; n >= 0 && p.first <= merged[n].first+merged[n].count {
			merged[n].count = max(merged[n].count, p.first+p.count-merged[n].first)
			continue
		}
		merged = append(merged, p)
	}
	return merged
}

// missing counts the chunks of the spans, and those that dev does not map.
func (d *directory) missing(dev slot, spans []span) (missing, total int) {
	for _, p := range spans {
		total += p.count
		for _, c := range d.in(p) {
			if c.held&dev.bit() == 0 {
				missing++
			}
		}
	}
	return missing, total
}

// unready returns those of the chunks that a kernel on dev cannot use yet, as spans.
func (d *directory) unready(dev slot, chunks iter.Seq2[int, *chunk]) []span {
	var spans []span
	for i, c := range chunks {
		if c.ready(dev) {
			continue
		}
		if n := len(spans) - 1; n >= 0 && spans[n].first+spans[n].count == i {
			spans[n].count++
			continue
		}
		spans = append(spans, span{i, 1})
	}
	return spans
}

// bring makes the chunks ready on dev.
func (d *directory) bring(moves *mover, dev slot, spans []span) {
	for _, p := range spans {
		for i, c := range d.in(p) {
			d.bringChunk(moves, dev, i, c)
		}
	}
}

func (d *directory) bringChunk(moves *mover, dev slot, i int, c *chunk) {
	if c.ready(dev) {
		return
	}
	if c.held&dev.bit() == 0 {
		moves.add(Map, dev, i)
	}
	if c.fill != 0 {
		moves.addFill(dev, i, c.fill)
		d.set(c, c.held|dev.bit(), c.valid|dev.bit(), c.fill)
		return
	}
	if c.valid == 0 {
		d.set(c, c.held|dev.bit(), 0, 0)
		return
	}
	if near := c.valid & d.direct[dev]; near != 0 && c.valid&hostSlot.bit() == 0 {
		moves.addFrom(CopyAcross, near.first(), dev, i)
		d.set(c, c.held|dev.bit(), c.valid|dev.bit(), 0)
		return
	}
	d.fetch(moves, i, c)
	moves.add(CopyIn, dev, i)
	d.set(c, c.held|dev.bit(), c.valid|dev.bit(), 0)
}

// Direct says which devices copy to each other without the host: those with the same word, which is
// not empty. What only such a device has then goes straight to another of them, and the host gets no
// copy. It is no part of the state, and may be said anew at any time.
func (d *directory) Direct(word func(Place) string) {
	for i, p := range d.config.Devices {
		d.direct[i+1] = 0
		for j, q := range d.config.Devices {
			if i != j && word(p) != "" && word(p) == word(q) {
				d.direct[i+1] |= slot(j + 1).bit()
			}
		}
	}
}

// fetch makes a chunk that was written valid on the host.
func (d *directory) fetch(moves *mover, i int, c *chunk) {
	if !c.written() || c.valid&hostSlot.bit() != 0 {
		return
	}
	if c.fill != 0 {
		moves.addFill(hostSlot, i, c.fill)
	} else {
		moves.add(CopyOut, c.valid.first(), i)
	}
	d.set(c, c.held|hostSlot.bit(), c.valid|hostSlot.bit(), c.fill)
}

func (d *directory) written(dev slot, c *chunk) {
	if c.ready(dev) {
		d.set(c, c.held, dev.bit(), 0)
	}
}

// HostReady says whether HostRead would have nothing to copy from a device.
func (d *directory) HostReady(r Range) bool {
	for _, c := range d.in(d.span(r)) {
		if c.written() && c.fill == 0 && c.valid&hostSlot.bit() == 0 {
			return false
		}
	}
	return true
}

// AllResident says whether a kernel on dev may use all allocated memory as it is.
func (d *directory) AllResident(dev Place) bool {
	at, ok := d.device(dev)
	return ok && d.tallies[at].ready == d.chunks
}

// Dirty is how many bytes have no valid copy on the host and are not known as a fill.
func (d *directory) Dirty() (bytes uint64) { return d.bytes(d.dirty) }

// Chunked returns the bytes of the chunks that allocations touch: what a device
// must have room for if everything is to be resident.
func (d *directory) Chunked() uint64 { return d.bytes(d.chunks) }

// Mapped returns the bytes that are mapped on a device.
func (d *directory) Mapped(dev Place) uint64 {
	at, ok := d.device(dev)
	if !ok {
		return 0
	}
	return d.bytes(d.tallies[at].held)
}

// Share is how many bytes of given ranges a device has.
type Share struct {
	Device Place
	Bytes  uint64
}

// Shares appends to list, for each device that holds any, how many bytes it holds with valid
// contents of those chunks of ranges that were written, unless they are known as a fill. It also
// returns how many bytes were written so at all: the difference is what a launch on that device would have to copy. The ranges must be in
// the order of their addresses; a chunk that two of them share counts once.
func (d *directory) Shares(ranges []Range, list []Share) (shares []Share, written uint64) {
	var counts [maxDevices + 1]int
	next, total := 0, 0
	for _, r := range ranges {
		p := d.span(r)
		if p.first < next {
			p.count -= next - p.first
			p.first = next
		}
		next = max(next, p.first+p.count)
		for _, c := range d.in(p) {
			if c.valid == 0 || c.fill != 0 {
				continue
			}
			total++
			for rest := c.valid &^ hostSlot.bit(); rest != 0; rest &= rest - 1 {
				counts[rest.first()]++
			}
		}
	}
	for i := range d.config.Devices {
		if n := counts[i+1]; n > 0 {
			list = append(list, Share{d.config.Devices[i], d.bytes(n)})
		}
	}
	return list, d.bytes(total)
}

// Backup makes everything valid on the host, except for what is known as a fill and needs no copy.
// Devices keep their copies.
func (d *directory) Backup() Plan {
	var moves mover
	for i, c := range d.all() {
		if c.fill == 0 {
			d.fetch(&moves, i, c)
		}
	}
	return moves.plan(d)
}

// Held returns the chunks that have a valid copy on the host.
func (d *directory) Held() []Range {
	var held []Range
	for i, c := range d.all() {
		if c.valid&hostSlot.bit() == 0 {
			continue
		}
		r := d.rangeOf(span{i, 1})
		if n := len(held) - 1; n >= 0 && held[n].end() == r.Addr {
			held[n].Size += r.Size
		} else {
			held = append(held, r)
		}
	}
	return held
}

// Trim discards the host's pages whose contents are out of date.
func (d *directory) Trim() Plan {
	if d.tallies[hostSlot].held == d.tallies[hostSlot].valid {
		return nil
	}
	var moves mover
	for i, c := range d.all() {
		if c.held&^c.valid&hostSlot.bit() != 0 {
			moves.add(Discard, hostSlot, i)
			d.set(c, c.held&^hostSlot.bit(), c.valid, c.fill)
		}
	}
	return moves.plan(d)
}

// Lost notes that a device is gone with everything mapped there. It returns the chunks whose only
// valid copy was lost; they count as never written.
func (d *directory) Lost(dev Place) []Range {
	at, ok := d.device(dev)
	if !ok {
		return nil
	}
	var lost []Range
	for i, c := range d.all() {
		if c.only(at) {
			r := d.rangeOf(span{i, 1})
			if n := len(lost) - 1; n >= 0 && lost[n].end() == r.Addr {
				lost[n].Size += r.Size
			} else {
				lost = append(lost, r)
			}
		}
		d.set(c, c.held&^at.bit(), c.valid&^at.bit(), c.fill)
	}
	return lost
}

// SharedOn returns the devices that map a chunk of r in which other allocations lie too: these
// chunks stay mapped when the allocation of r is freed.
func (d *directory) SharedOn(r Range) (devices []Place) {
	if r.Size == 0 {
		return nil
	}
	var held places
	for _, c := range d.in(d.span(r)) {
		if c.users > 1 {
			held |= c.held &^ hostSlot.bit()
		}
	}
	for ; held != 0; held &= held - 1 {
		devices = append(devices, d.config.Devices[held.first()-1])
	}
	return devices
}
