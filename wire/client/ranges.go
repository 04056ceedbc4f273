package client

import "sync"

// piece is a part of the data arena.
type piece struct{ offset, length uint64 }

// promised are the parts of the arena that the node will fill for messages that were sent. What the
// program has there now is out of date for later messages, so it must not be sent.
type promised struct {
	mu     sync.Mutex
	pieces map[uint32]piece // by the message's sequence number
	fewer  *sync.Cond       // signalled when a promise is kept, and by end; nil while no goroutine waits
	ended  bool
}

// maxPromised is how many promises may be outstanding. A node accepts 256 such messages before it
// has kept one; the limit is for a node that keeps none.
const maxPromised = 1024

// add notes a promise. It returns false if too many are outstanding.
func (p *promised) add(seq uint32, at piece) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pieces) >= maxPromised {
		return false
	}
	p.put(seq, at)
	return true
}

// wait notes a promise once few enough are outstanding. It returns false after end.
func (p *promised) wait(seq uint32, at piece) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fewer == nil {
		p.fewer = sync.NewCond(&p.mu)
	}
	for len(p.pieces) >= maxPromised && !p.ended {
		p.fewer.Wait()
	}
	p.put(seq, at)
	return !p.ended
}

func (p *promised) put(seq uint32, at piece) {
	if p.pieces == nil {
		p.pieces = map[uint32]piece{}
	}
	p.pieces[seq] = at
}

func (p *promised) kept(seq uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pieces, seq)
	p.wake()
}

// end wakes all waiting goroutines, and no goroutine waits any more.
func (p *promised) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.wake()
}

func (p *promised) wake() {
	if p.fewer != nil {
		p.fewer.Broadcast()
	}
}

// behind are the parts of the arena that copies read which were sent before functions of the
// program (cuLaunchHostFunc) had returned. Such a copy must read what is there when its turn comes,
// and the function may be what writes it. So these parts are sent again before the node is told
// that a function has returned.
type behind struct {
	functions int // how many functions have not returned
	pieces    []piece
}

// maxBehind is how many separate parts are kept; beyond that they are merged.
const maxBehind = 256

// note notes that a copy reads a part.
func (b *behind) note(at piece) {
	if b.functions == 0 {
		return
	}
	for i, other := range b.pieces {
		end := max(at.offset+at.length, other.offset+other.length)
		start := min(at.offset, other.offset)
		if end-start <= at.length+other.length || i == maxBehind-1 { // they touch or overlap, or there are too many
			b.pieces[i] = piece{start, end - start}
			return
		}
	}
	b.pieces = append(b.pieces, at)
}

// returned notes that a function has returned.
func (b *behind) returned() {
	if b.functions--; b.functions <= 0 {
		*b = behind{}
	}
}

// without returns what is left of a piece without the promised parts, in order.
func (p *promised) without(all piece) []piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := []piece{all}
	for _, hole := range p.pieces {
		var next []piece
		for _, part := range left {
			next = append(next, part.minus(hole)...)
		}
		left = next
	}
	return left
}

// minus cuts a hole into a piece.
func (p piece) minus(hole piece) []piece {
	end, holeEnd := p.offset+p.length, hole.offset+hole.length
	if holeEnd <= p.offset || hole.offset >= end {
		return []piece{p}
	}
	var left []piece
	if p.offset < hole.offset {
		left = append(left, piece{p.offset, hole.offset - p.offset})
	}
	if holeEnd < end {
		left = append(left, piece{holeEnd, end - holeEnd})
	}
	return left
}
