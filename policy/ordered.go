package policy

import (
	"math"
	"slices"

	"muster/model"
)

// chunkSize bounds the elements moved by one insertion or removal.
const chunkSize = 128

type orderedEntry struct {
	key int64
	id  JobID
	// class and nodes of the job's shape, at hand for a quick look.
	class, nodes int32
}

func (a orderedEntry) compare(b orderedEntry) int {
	switch {
	case a.key != b.key:
		if a.key < b.key {
			return -1
		}
		return 1
	case a.id != b.id:
		if a.id < b.id {
			return -1
		}
		return 1
	}
	return 0
}

// ordered is a set of jobs in order of (key, id). It is a list of short sorted
// chunks: cheap at both ends, and never more than one chunk moves.
type ordered struct {
	chunks [][]orderedEntry
	n      int
}

// chunkOf returns the first chunk whose last element is not before e.
func (o *ordered) chunkOf(e orderedEntry) int {
	lo, hi := 0, len(o.chunks)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		c := o.chunks[mid]
		if c[len(c)-1].compare(e) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (o *ordered) insert(e orderedEntry) {
	o.n++
	i := o.chunkOf(e)
	if i == len(o.chunks) {
		if i > 0 && len(o.chunks[i-1]) < chunkSize {
			o.chunks[i-1] = append(o.chunks[i-1], e)
			return
		}
		o.chunks = append(o.chunks, append(make([]orderedEntry, 0, chunkSize), e))
		return
	}
	c := o.chunks[i]
	at, _ := slices.BinarySearchFunc(c, e, orderedEntry.compare)
	if len(c) < chunkSize {
		o.chunks[i] = slices.Insert(c, at, e)
		return
	}
	tail := append(make([]orderedEntry, 0, chunkSize), c[chunkSize/2:]...)
	head := c[:chunkSize/2]
	o.chunks = slices.Insert(o.chunks, i+1, tail)
	if at <= len(head) {
		o.chunks[i] = slices.Insert(head, at, e)
	} else {
		o.chunks[i] = head
		o.chunks[i+1] = slices.Insert(tail, at-len(head), e)
	}
}

func (o *ordered) remove(key int64, id JobID) bool {
	if o.n > 0 {
		if c := o.chunks[0]; c[0].id == id && c[0].key == key && len(c) > 1 {
			o.chunks[0] = c[1:] // mostly it is the first
			o.n--
			return true
		}
	}
	e := orderedEntry{key: key, id: id}
	i := o.chunkOf(e)
	if i == len(o.chunks) {
		return false
	}
	c := o.chunks[i]
	at, found := slices.BinarySearchFunc(c, e, orderedEntry.compare)
	if !found {
		return false
	}
	o.n--
	switch {
	case len(c) == 1:
		o.chunks = slices.Delete(o.chunks, i, i+1)
	case at == 0:
		o.chunks[i] = c[1:]
	default:
		o.chunks[i] = slices.Delete(c, at, at+1)
	}
	return true
}

// Cursor walks an ordered set of jobs. The set must not change meanwhile.
type Cursor struct {
	o           *ordered
	chunk, next int
	last        Place
}

// Place is a place in a queue: that of the job that was looked at last.
type Place struct {
	key int64
	id  JobID
}

// Place is where the cursor stands.
func (c *Cursor) Place() Place { return c.last }

// Before says whether a job with this key would stand before the place.
func (p Place) Before(key int64) bool { return key < p.key }

// Seek moves the cursor behind a place, whether its job is still there or not.
func (c *Cursor) Seek(p Place) {
	c.last = p
	c.chunk, c.next = c.o.chunkOf(orderedEntry{key: p.key, id: p.id + 1}), 0
	if c.chunk < len(c.o.chunks) {
		chunk := c.o.chunks[c.chunk]
		c.next, _ = slices.BinarySearchFunc(chunk, orderedEntry{key: p.key, id: p.id + 1}, orderedEntry.compare)
	}
}

// Next returns the next job and its key; ok is false at the end.
func (c *Cursor) Next() (id JobID, key int64, ok bool) {
	if c.chunk >= len(c.o.chunks) {
		return 0, 0, false
	}
	chunk := c.o.chunks[c.chunk]
	e := chunk[c.next]
	c.last = Place{e.key, e.id}
	c.next++
	if c.next == len(chunk) {
		c.chunk++
		c.next = 0
	}
	return e.id, e.key, true
}

// NextThatMayFit skips jobs for which there is no room, as far as is known without
// placing them. It looks at *depth jobs at most, and takes those it has
// looked at from it.
func (c *Cursor) NextThatMayFit(v *View, mode Mode, depth *int) (id JobID, ok bool) {
	for *depth > 0 && c.chunk < len(c.o.chunks) {
		chunk := c.o.chunks[c.chunk]
		e := &chunk[c.next]
		*depth--
		c.next++
		if c.next == len(chunk) {
			c.chunk++
			c.next = 0
		}
		c.last = Place{e.key, e.id}
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
