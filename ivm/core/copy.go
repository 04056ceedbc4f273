package core

import "bytes"

// Page is the unit of versions, in bytes.
const Page = 4096

// Pages is how many pages n bytes need.
func Pages(n uint64) int { return int((n + Page - 1) / Page) }

// Range is a stretch of an object, in bytes.
type Range struct{ Offset, Length uint64 }

// End is where a range ends.
func (r Range) End() uint64 { return r.Offset + r.Length }

// Clip cuts a range off at the end of an object of that size, and refuses a range that begins beyond
// it. Programs rely on clipping: Listing 5-1 of the paper names more bytes than its vector has left.
func (r Range) Clip(size uint64) (Range, bool) {
	if r.Offset >= size {
		return Range{}, false
	}
	r.Length = min(r.Length, size-r.Offset)
	return r, r.Length > 0
}

// Pages is the first page of a range, and how many pages it touches.
func (r Range) Pages() (first, count int) {
	if r.Length == 0 {
		return int(r.Offset / Page), 0
	}
	first = int(r.Offset / Page)
	return first, Pages(r.End()) - first
}

// within is the part of a page that a range covers, as offsets into the page.
func (r Range) within(page int) (from, to int) {
	start := uint64(page) * Page
	return int(max(r.Offset, start) - start), int(min(r.End(), start+Page) - start)
}

// Master is the master copy of an object.
type Master struct {
	mem, shadow []byte
	versions    []uint32 // of each page of the shadow; 0: the page was never compared
}

// NewMaster makes the master copy of memory that elements write to. Both slices have the same
// whole number of pages, and the shadow contains zeros.
func NewMaster(mem, shadow []byte) *Master {
	return &Master{mem: mem, shadow: shadow, versions: make([]uint32, len(mem)/Page)}
}

func pageOf(b []byte, page int) []byte { return b[page*Page : (page+1)*Page : (page+1)*Page] }

// look compares a page with its shadow. If elements have changed it since the last time, it copies
// the page to the shadow and gives it the next version.
func (m *Master) look(page int) uint32 {
	mem, shadow := pageOf(m.mem, page), pageOf(m.shadow, page)
	switch same := bytes.Equal(mem, shadow); {
	case m.versions[page] == 0 && same:
		m.versions[page] = 1
	case !same:
		copy(shadow, mem)
		m.versions[page] = next(m.versions[page])
	}
	return m.versions[page]
}

// next is the version after v. It skips 0, which means that there is none.
func next(v uint32) uint32 {
	if v++; v == 0 {
		v = 1
	}
	return v
}

// Since calls send for each page whose version at the master differs from the mirror's; have has the
// mirror's versions, beginning with page first. Data is nil for a page of zeros that the mirror never
// had. It aliases the shadow, so elements cannot change it, and is valid until the next call for the
// page.
func (m *Master) Since(first int, have []uint32, send func(page int, version uint32, data []byte) error) error {
	for i, has := range have {
		page := first + i
		version := m.look(page)
		if version == has {
			continue
		}
		data := pageOf(m.shadow, page)
		if has == 0 && isZero(data) {
			data = nil
		}
		if err := send(page, version, data); err != nil {
			return err
		}
	}
	return nil
}

var zeros [Page]byte

func isZero(page []byte) bool { return bytes.Equal(page, zeros[:]) }

// Apply writes the bytes of a patch and no others. It returns the page's new version if the mirror
// then has the same contents: that is, if it had the last version, or the patch is the whole page.
// It returns 0 if other nodes or elements have changed bytes that the mirror has not seen; the
// mirror keeps its old version then, and the next get fetches the page. look comes first, so that
// changes of local elements get a version of their own.
func (m *Master) Apply(p *Patch) uint32 {
	if p.whole != nil { // overwrites all other changes: the mirror has the whole page
		p.write(pageOf(m.mem, p.Page))
		p.write(pageOf(m.shadow, p.Page))
		m.versions[p.Page] = next(m.versions[p.Page])
		return m.versions[p.Page]
	}
	version := m.look(p.Page)
	p.write(pageOf(m.mem, p.Page))
	p.write(pageOf(m.shadow, p.Page))
	m.versions[p.Page] = next(version)
	if p.Had != version {
		return 0
	}
	return m.versions[p.Page]
}

// Mirror is the copy of an object on a node that does not have the master.
type Mirror struct {
	mem, twin []byte
	versions  []uint32 // of each page of the twin; 0: the page was never fetched
}

// NewMirror makes a mirror of memory and twin, which contain zeros and have the same whole number
// of pages. Nothing of it is valid.
func NewMirror(mem, twin []byte) *Mirror {
	return &Mirror{mem: mem, twin: twin, versions: make([]uint32, len(mem)/Page)}
}

// Have returns the mirror's versions of the pages of a range, in a slice that the caller may change.
func (m *Mirror) Have(r Range) []uint32 {
	first, count := r.Pages()
	return append([]uint32(nil), m.versions[first:first+count]...)
}

// Missing is the smallest range that contains all pages of r that were never fetched: no element on
// the node has mapped those.
func (m *Mirror) Missing(r Range) (Range, bool) {
	first, count := r.Pages()
	end := first + count
	for first < end && m.versions[first] != 0 {
		first++
	}
	for end > first && m.versions[end-1] != 0 {
		end--
	}
	if first == end {
		return Range{}, false
	}
	return Range{Offset: uint64(first) * Page, Length: uint64(end-first) * Page}, true
}

// Mapped is the parts of r on pages that were fetched.
func (m *Mirror) Mapped(r Range) (parts []Range) {
	first, count := r.Pages()
	for page := first; page < first+count; page++ {
		if m.versions[page] == 0 {
			continue
		}
		from, to := r.within(page)
		part := Range{uint64(page*Page + from), uint64(to - from)}
		if n := len(parts); n > 0 && parts[n-1].End() == part.Offset {
			parts[n-1].Length += part.Length
		} else {
			parts = append(parts, part)
		}
	}
	return parts
}

// Fill stores a page that was never fetched. It leaves a page alone that was fetched before:
// elements may have written to it.
func (m *Mirror) Fill(page int, version uint32, data []byte) {
	if m.versions[page] != 0 {
		return
	}
	if data != nil {
		copy(pageOf(m.mem, page), data)
		copy(pageOf(m.twin, page), data)
	}
	m.versions[page] = version
}

// Update stores a page of the answer to a get of r. It leaves bytes outside r alone, since elements
// may be writing to them. If r covers only a part of the page, the page keeps its old version, so
// that a later get fetches the rest.
func (m *Mirror) Update(r Range, page int, version uint32, data []byte) {
	if data == nil {
		data = zeros[:]
	}
	from, to := r.within(page)
	copy(pageOf(m.mem, page)[from:to], data[from:to])
	copy(pageOf(m.twin, page)[from:to], data[from:to])
	if to-from == Page {
		m.versions[page] = version
	}
}

// Revert undoes what elements wrote to bytes of r on a page of which the mirror has the master's
// version: a get that finds nothing new must still show the master's contents.
func (m *Mirror) Revert(r Range, page int) {
	from, to := r.within(page)
	mem, twin := pageOf(m.mem, page)[from:to], pageOf(m.twin, page)[from:to]
	if !bytes.Equal(mem, twin) {
		copy(mem, twin)
	}
}

// Changes makes a patch of the bytes of r on a page that have changed since the last put or get, and
// counts them as put. The patch is valid until p is used again.
func (m *Mirror) Changes(r Range, page int, p *Patch) (changed bool) {
	from, to := r.within(page)
	mem, twin := pageOf(m.mem, page), pageOf(m.twin, page)
	if m.versions[page] == 0 || bytes.Equal(mem[from:to], twin[from:to]) {
		return false
	}
	m.snapshot(page, from, to, p)
	p.compare(twin, from, to)
	m.sent(page, from, to, p)
	return true
}

// All makes a patch of all bytes of r on a page, also of those that have not changed, so that they
// overwrite whatever the master has. The patch is valid until p is used again.
func (m *Mirror) All(r Range, page int, p *Patch) (mapped bool) {
	if m.versions[page] == 0 {
		return false
	}
	from, to := r.within(page)
	m.snapshot(page, from, to, p)
	for i := from; i < to; i++ {
		p.mask[i/64] |= 1 << (i % 64)
	}
	m.sent(page, from, to, p)
	return true
}

// snapshot begins a patch with a copy of the bytes. Elements may write at any time, so the bytes
// that are compared, sent and stored in the twin all come from this copy.
func (m *Mirror) snapshot(page, from, to int, p *Patch) {
	p.begin(page, m.versions[page])
	copy(p.data[from:to], pageOf(m.mem, page)[from:to])
}

// sent copies the bytes of a patch to the twin: the master will have them.
func (m *Mirror) sent(page, from, to int, p *Patch) {
	copy(pageOf(m.twin, page)[from:to], p.data[from:to])
	if p.isWhole() {
		p.whole = p.data[:]
	}
}

// Confirm stores the version of a page at the master after a put. 0 means that the mirror lacks
// changes of other nodes, so it keeps its version, and the next get fetches the page.
func (m *Mirror) Confirm(page int, version uint32) {
	if version != 0 {
		m.versions[page] = version
	}
}
