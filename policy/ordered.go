package policy

import (
	"math"
	"slices"

	"muster/model"
)

// chunkSize bounds the elements moved by one insertion or removal.
const chunkSize = 128

type orderedEntry struct {
	rank int64 // larger ranks are first
	key  int64
	turn int64
	id   JobID
	// class and nodes are those of the job's shape, copied so that
	// NextThatMayFit need not load the job.
	class, nodes int32
}

func (a *orderedEntry) before(b *orderedEntry) bool {
	if a.rank != b.rank {
		return a.rank > b.rank
	}
	if a.key != b.key {
		return a.key < b.key
	}
	return a.turn < b.turn || a.turn == b.turn && a.id < b.id
}

// same says that both are the same job at the same place.
func (a *orderedEntry) same(b *orderedEntry) bool {
	return a.id == b.id && a.key == b.key && a.turn == b.turn && a.rank == b.rank
}

// ordered is a set of jobs in the order of (rank, key, turn, id). It is a list of
// short sorted chunks: an insertion or removal moves entries of one chunk only,
// and of that the shorter side.
type ordered struct {
	chunks []chunk
	n      int
	spare  []*[chunkSize]orderedEntry
}

// chunk is buf[lo:hi]; it is never empty.
type chunk struct {
	buf    *[chunkSize]orderedEntry
	lo, hi int
}

func (c *chunk) list() []orderedEntry { return c.buf[c.lo:c.hi] }

// search returns the first place in the chunk that is not before e.
func (c *chunk) search(e *orderedEntry) int {
	lo, hi := c.lo, c.hi
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c.buf[mid].before(e) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// insert puts e at a place; the chunk must not be full. It moves the entries of
// the shorter side, unless there is no space on that side.
func (c *chunk) insert(at int, e orderedEntry) {
	if c.hi == chunkSize || c.lo > 0 && at-c.lo < c.hi-at {
		copy(c.buf[c.lo-1:], c.buf[c.lo:at])
		c.lo--
		c.buf[at-1] = e
		return
	}
	copy(c.buf[at+1:c.hi+1], c.buf[at:c.hi])
	c.hi++
	c.buf[at] = e
}

func (c *chunk) remove(at int) {
	if at-c.lo < c.hi-at {
		copy(c.buf[c.lo+1:at+1], c.buf[c.lo:at])
		c.lo++
		return
	}
	copy(c.buf[at:], c.buf[at+1:c.hi])
	c.hi--
}

// chunkOf returns the first chunk whose last element is not before e.
func (o *ordered) chunkOf(e *orderedEntry) int {
	lo, hi := 0, len(o.chunks)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		c := &o.chunks[mid]
		if c.buf[c.hi-1].before(e) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (o *ordered) newChunk(entries ...orderedEntry) chunk {
	var c chunk
	if l := len(o.spare); l > 0 {
		c.buf = o.spare[l-1]
		o.spare = o.spare[:l-1]
	} else {
		c.buf = new([chunkSize]orderedEntry)
	}
	c.hi = copy(c.buf[:], entries)
	return c
}

func (o *ordered) insert(e orderedEntry) {
	o.n++
	i := o.chunkOf(&e)
	if i == len(o.chunks) {
		if i == 0 || o.chunks[i-1].hi == chunkSize {
			o.chunks = append(o.chunks, o.newChunk(e))
			return
		}
		i--
	}
	c := &o.chunks[i]
	at := c.search(&e)
	if c.hi-c.lo < chunkSize {
		c.insert(at, e)
		return
	}
	const half = chunkSize / 2
	tail := o.newChunk(c.buf[half:]...)
	c.hi = half
	if at <= half {
		c.insert(at, e)
	} else {
		tail.insert(at-half, e)
	}
	o.chunks = slices.Insert(o.chunks, i+1, tail)
}

func (o *ordered) remove(e orderedEntry) bool {
	i := 0
	if o.n == 0 || e.before(o.first()) {
		return false
	}
	if !o.first().same(&e) { // the usual case is the first, which needs no search
		if i = o.chunkOf(&e); i == len(o.chunks) {
			return false
		}
	}
	c := &o.chunks[i]
	at := c.search(&e)
	if at == c.hi || !c.buf[at].same(&e) {
		return false
	}
	o.n--
	c.remove(at)
	if c.lo == c.hi {
		o.spare = append(o.spare, c.buf)
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
	return true
}

func (o *ordered) first() *orderedEntry { return &o.chunks[0].buf[o.chunks[0].lo] }

// last is the last of a set that is not empty.
func (o *ordered) last() *orderedEntry {
	c := &o.chunks[len(o.chunks)-1]
	return &c.buf[c.hi-1]
}

// Cursor walks an ordered set of jobs. The set must not change meanwhile.
type Cursor struct {
	o           *ordered
	chunk, next int
	last        Place
}

// Place is a place in a queue: that of the job that a cursor returned last. It
// stays valid when the job leaves.
type Place struct {
	rank, key, turn int64
	id              JobID
}

// Place is the place of the job that the cursor returned last.
func (c *Cursor) Place() Place { return c.last }

// Seek moves the cursor behind a place, whether its job is still there or not.
func (c *Cursor) Seek(p Place) {
	c.last = p
	e := orderedEntry{rank: p.rank, key: p.key, turn: p.turn, id: p.id + 1}
	c.chunk, c.next = c.o.chunkOf(&e), 0
	if c.chunk < len(c.o.chunks) {
		chunk := &c.o.chunks[c.chunk]
		c.next = chunk.search(&e) - chunk.lo
	}
}

// Next returns the next job and its key; ok is false at the end.
func (c *Cursor) Next() (id JobID, key int64, ok bool) {
	if c.chunk >= len(c.o.chunks) {
		return 0, 0, false
	}
	chunk := c.o.chunks[c.chunk].list()
	e := &chunk[c.next]
	c.last = Place{e.rank, e.key, e.turn, e.id}
	c.next++
	if c.next == len(chunk) {
		c.chunk++
		c.next = 0
	}
	return e.id, e.key, true
}

// NextThatMayFit skips jobs for which there is no room, as far as that is known
// without placing them. It examines at most *depth jobs, and subtracts the
// number it has examined.
func (c *Cursor) NextThatMayFit(v *View, mode Mode, depth *int) (id JobID, ok bool) {
	for *depth > 0 && c.chunk < len(c.o.chunks) {
		chunk := c.o.chunks[c.chunk].list()
		e := &chunk[c.next]
		*depth--
		c.next++
		if c.next == len(chunk) {
			c.chunk++
			c.next = 0
		}
		c.last = Place{e.rank, e.key, e.turn, e.id}
		if r := v.room(e.class, mode); r != nil && r.count < e.nodes {
			continue
		}
		if v.mayFit(v.Shape(e.id), mode) {
			return e.id, true
		}
	}
	return 0, false
}

// ByPriority orders a queue: larger priorities first.
func ByPriority(j *model.Job) int64 {
	if j.Priority == math.MinInt64 {
		return math.MaxInt64
	}
	return -j.Priority
}
