package vmm

import (
	"cmp"
	"fmt"
	"slices"
)

// Prepare is called before a launch on dev. After the plan all chunks of need are mapped there with
// valid contents, and the client's mapped chunks there are at most capacity bytes; chunks that are
// not needed give way. ErrCapacity says that need by itself is larger. Each range of need must lie
// within one allocation.
func (s *Space) Prepare(dev Place, need []Range, capacity uint64) (Plan, error) {
	at, ok := s.device(dev)
	if !ok {
		return nil, fmt.Errorf("%w: %v is not one of %d devices", ErrInvalid, dev, len(s.config.Devices))
	}
	here, room := &s.tallies[at], s.chunksIn(capacity)
	if here.held <= room && s.prepared[at].same(s.version, need) {
		return nil, nil
	}
	for _, r := range need {
		if err := s.Check(r); err != nil {
			return nil, err
		}
	}
	var moves mover
	// If every chunk is ready and fits, there is nothing to move, whatever need is.
	if here.ready < s.chunks || here.held > room {
		spans := s.spans(need)
		missing, total := s.missing(at, spans)
		if total > room {
			return nil, fmt.Errorf("%w: %d bytes are needed at once on %v and %d may be used", ErrCapacity, s.bytes(total), dev, capacity)
		}
		s.evict(&moves, at, here.held+missing-room, spans)
		s.bring(&moves, at, spans)
	}
	s.version++
	for _, r := range need {
		s.need(r)
	}
	s.prepared[at].keep(s.version, need)
	return moves.plan(&s.directory), nil
}

// GivesWay says whether Prepare would take other chunks away from dev. It changes nothing.
func (s *Space) GivesWay(dev Place, need []Range, capacity uint64) bool {
	at, ok := s.device(dev)
	if !ok || slices.ContainsFunc(need, func(r Range) bool { return s.Check(r) != nil }) {
		return false // Prepare says what is wrong
	}
	held, room := s.tallies[at].held, s.chunksIn(capacity)
	missing, total := s.missing(at, s.spans(need))
	return total <= room && held+missing > room
}

// PrepareAll is Prepare for a kernel that may need everything allocated. It costs what changed
// since the last time, or, if much did, one pass over all chunks; the number of allocations does
// not matter.
func (s *Space) PrepareAll(dev Place, capacity uint64) (Plan, error) {
	at, ok := s.device(dev)
	if !ok {
		return nil, fmt.Errorf("%w: %v is not one of %d devices", ErrInvalid, dev, len(s.config.Devices))
	}
	if s.chunks > s.chunksIn(capacity) {
		return nil, fmt.Errorf("%w: %d bytes are needed at once on %v and %d may be used", ErrCapacity, s.Chunked(), dev, capacity)
	}
	var moves mover
	here := &s.tallies[at]
	if here.ready < s.chunks {
		s.bring(&moves, at, s.unready(at, s.these(s.fresh)))
	}
	if here.ready < s.chunks {
		s.bring(&moves, at, s.unready(at, s.all()))
	}
	s.version++
	s.everything = s.version
	s.fresh, s.brought = s.brought[:0], s.fresh
	return moves.plan(&s.directory), nil
}

// Bring makes chunks of need ready on dev, or of everything allocated if need is nil, in the order of
// their addresses, as long as the client's mapped chunks there are at most capacity bytes. Nothing
// gives way for them. It is for a client whose kernels may not run yet, because it has not got all
// the room that it is to get: Prepare or PrepareAll follows.
func (s *Space) Bring(dev Place, need []Range, capacity uint64) Plan {
	at, ok := s.device(dev)
	if !ok || slices.ContainsFunc(need, func(r Range) bool { return s.Check(r) != nil }) {
		return nil
	}
	chunks := s.all()
	if need != nil {
		chunks = s.among(s.spans(need))
	}
	var moves mover
	room := s.chunksIn(capacity) - s.tallies[at].held
	for i, c := range chunks {
		if c.ready(at) {
			continue
		}
		if c.held&at.bit() == 0 {
			if room <= 0 {
				continue
			}
			room--
		}
		s.bringChunk(&moves, at, i, c)
	}
	return moves.plan(&s.directory)
}

// lastNeed is when an allocation was last needed, by itself or by PrepareAll.
func (s *Space) lastNeed(a *allocation) uint64 {
	if a.born < s.everything {
		return max(a.needed, s.everything)
	}
	return a.needed
}

// need notes that the range is needed now. For a whole allocation, the usual case, that is one
// store however large it is; otherwise each chunk is marked.
func (s *Space) need(r Range) {
	if a := s.around(r.Addr); a.Range == r {
		a.needed = s.version
		return
	}
	for _, c := range s.in(s.span(r)) {
		c.needed = s.version
	}
}

// Evict unmaps at least atLeast bytes on dev, or everything if atLeast is 0. Contents that are
// valid only there are copied to the host first.
func (s *Space) Evict(dev Place, atLeast uint64) Plan {
	at, ok := s.device(dev)
	if !ok {
		return nil
	}
	count := s.tallies[at].held
	if atLeast > 0 && atLeast < s.bytes(count) {
		count = int((atLeast-1)>>s.shift) + 1
	}
	var moves mover
	s.evict(&moves, at, count, nil)
	return moves.plan(&s.directory)
}

// evict unmaps count chunks on dev that are not among keep, which is sorted by address.
func (s *Space) evict(moves *mover, dev slot, count int, keep []span) {
	if count <= 0 {
		return
	}
	for _, v := range s.victims(dev, keep) {
		v.count = min(v.count, count)
		for i, c := range s.in(v.span) {
			if v.dirty {
				s.fetch(moves, i, c)
			}
			moves.add(Unmap, dev, i)
			s.set(c, c.held&^dev.bit(), c.valid&^dev.bit(), c.fill)
		}
		if count -= v.count; count == 0 {
			return
		}
	}
}

// victim is a run of neighbouring chunks that are equally good to evict.
type victim struct {
	span
	needed uint64
	dirty  bool
}

// victims returns the chunks mapped on dev that are not among keep, the best
// to evict first.
func (s *Space) victims(dev slot, keep []span) []victim {
	var list []victim
	next := s.allocations.first() // the first allocation that may touch the chunk
	for i, c := range s.all() {
		for len(keep) > 0 && keep[0].first+keep[0].count <= i {
			keep = keep[1:]
		}
		if c.held&dev.bit() == 0 || len(keep) > 0 && keep[0].first <= i {
			continue
		}
		needed := c.needed
		r := s.rangeOf(span{i, 1})
		for next.get().end() <= r.Addr {
			next = next.next()
		}
		for at := next; at.get() != nil && at.get().Addr < r.end(); at = at.next() {
			needed = max(needed, s.lastNeed(at.get()))
		}
		dirty := c.only(dev)
		if n := len(list) - 1; n >= 0 && list[n].first+list[n].count == i && list[n].needed == needed && list[n].dirty == dirty {
			list[n].count++
			continue
		}
		list = append(list, victim{span{i, 1}, needed, dirty})
	}
	slices.SortFunc(list, func(a, b victim) int {
		dirtyLast := 0
		if a.dirty != b.dirty {
			dirtyLast = 1
			if b.dirty {
				dirtyLast = -1
			}
		}
		return cmp.Or(cmp.Compare(a.needed, b.needed), dirtyLast, cmp.Compare(a.first, b.first))
	})
	return list
}

// Launched notes that a kernel was submitted on dev that may change all of used: dev's copy becomes
// the only valid one. If used is nil, it may change everything mapped there. Chunks that were not
// prepared, because they are not mapped on dev or its copy is out of date, stay as they are.
func (s *Space) Launched(dev Place, used []Range) {
	at, ok := s.device(dev)
	if !ok {
		return
	}
	here := &s.tallies[at]
	// If ready equals only, every chunk that a kernel here can write is valid here alone already.
	if here.ready == here.only || used != nil && s.launched[at].same(s.version, used) {
		return
	}
	if used == nil {
		for _, c := range s.these(s.brought) {
			s.written(at, c)
		}
		s.brought = s.brought[:0]
		if here.ready == here.only {
			return
		}
		for _, c := range s.all() {
			s.written(at, c)
		}
		return
	}
	for _, r := range used {
		s.Written(dev, r)
	}
	s.launched[at].keep(s.version, used)
}

// Written notes that a copy or fill wrote r on dev, where it was resident: dev's copy becomes the
// only valid one.
func (s *Space) Written(dev Place, r Range) {
	at, ok := s.device(dev)
	if !ok || !s.config.Arena.contains(r) {
		return
	}
	for _, c := range s.in(s.span(r)) {
		s.written(at, c)
	}
}

// Fill notes that the client has filled all of r with a word, 4 bytes at addresses that are multiples
// of 4. Chunks in which nothing else is allocated are then known by that word: no place has their
// contents, none needs them, and they are written where they are needed. The caller must write the
// rest, which Edges returns, by HostWrite before.
func (s *Space) Fill(r Range, word uint32) error {
	if err := s.Check(r); err != nil {
		return err
	}
	for i, c := range s.in(s.span(r)) {
		if s.covers(r, i, c) {
			s.set(c, c.held, 0, fillOf(word))
		}
	}
	return nil
}

// Edges returns the parts of r, which is allocated, in chunks that hold more of the client's memory
// than r.
func (s *Space) Edges(r Range) []Range {
	var edges []Range
	for i, c := range s.in(s.span(r)) {
		if s.covers(r, i, c) {
			continue
		}
		part := s.rangeOf(span{i, 1})
		from, to := max(r.Addr, part.Addr), min(r.end(), part.end())
		if n := len(edges) - 1; n >= 0 && edges[n].end() == from {
			edges[n].Size += to - from
			continue
		}
		edges = append(edges, Range{from, to - from})
	}
	return edges
}

// Filled is Written after a fill of all of r, which was resident on dev, with a word: of chunks in which
// nothing else is allocated, the word is remembered too. No work that began before the fill may
// write them after it.
func (s *Space) Filled(dev Place, r Range, word uint32) {
	at, ok := s.device(dev)
	if !ok || s.Check(r) != nil {
		return
	}
	for i, c := range s.in(s.span(r)) {
		if s.written(at, c); c.valid == at.bit() && s.covers(r, i, c) {
			s.set(c, c.held, c.valid, fillOf(word))
		}
	}
}

// Resident says whether a kernel on dev may use r as it is: all its chunks are mapped there and, if
// they were ever written, valid.
func (s *Space) Resident(dev Place, r Range) bool {
	at, ok := s.device(dev)
	if !ok || s.Check(r) != nil {
		return false
	}
	if s.tallies[at].ready == s.chunks {
		return true
	}
	for _, c := range s.in(s.span(r)) {
		if !c.ready(at) {
			return false
		}
	}
	return true
}

// HostRead makes the chunks of r valid on the host. Devices keep their copies.
func (s *Space) HostRead(r Range) (Plan, error) {
	if err := s.Check(r); err != nil {
		return nil, err
	}
	var moves mover
	for i, c := range s.in(s.span(r)) {
		s.fetch(&moves, i, c)
	}
	return moves.plan(&s.directory), nil
}

// HostWrite makes the host the only valid place of r's chunks, because the caller is about to write
// all of r there. Chunks that hold more of the client's memory than r are made valid on the host
// first.
func (s *Space) HostWrite(r Range) (Plan, error) {
	if err := s.Check(r); err != nil {
		return nil, err
	}
	var moves mover
	for i, c := range s.in(s.span(r)) {
		if !s.covers(r, i, c) {
			s.fetch(&moves, i, c)
		}
		s.set(c, c.held|hostSlot.bit(), hostSlot.bit(), 0)
	}
	return moves.plan(&s.directory), nil
}

// covers says whether r, which is allocated, is everything allocated in the chunk.
func (s *Space) covers(r Range, i int, c *chunk) bool {
	whole := s.rangeOf(span{i, 1})
	a := s.around(max(r.Addr, whole.Addr))
	return c.users == 1 && r.Addr <= max(a.Addr, whole.Addr) && r.end() >= min(a.end(), whole.end())
}
