package client

import "sync"

// piece is a part of the data arena.
type piece struct{ offset, length uint64 }

// promised are the parts of the arena that messages on their way will fill at
// the far side. What the program has there now is not what a later message
// means: so it must not be sent.
type promised struct {
	mu     sync.Mutex
	pieces map[uint32]piece // by the message's number
}

func (p *promised) add(seq uint32, at piece) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pieces == nil {
		p.pieces = map[uint32]piece{}
	}
	p.pieces[seq] = at
}

func (p *promised) kept(seq uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pieces, seq)
}

// without returns what is left of a piece, in order.
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

// minus cuts a hole.
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
