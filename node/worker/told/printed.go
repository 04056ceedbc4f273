package told

import (
	"errors"
	"sync"

	"muster/wire"
)

// Printed is the output of kernels that the program has not fetched: from printf, and from failed
// assertions. Devices add to it, the loop takes from it.
type Printed struct {
	announce func(some bool) // tells the program whether there is text

	mu      sync.Mutex
	pieces  []saying // in the order of printing; neighbours are of different kinds
	size    int      // total length of pieces
	dropped bool
	skip    uint64 // bytes still to be ignored: a replay prints again what the program has read
}

// saying is text for one of the program's standard files.
type saying struct {
	Text     []byte
	Complain bool // for standard error, else for standard output
}

// maxPrinted bounds the text that is kept. If there is more it is dropped, with a note.
const maxPrinted = 1 << 20

const droppedNote = "muster: more was printed than is kept between two synchronising calls\n"

// add adds text if there is room. It returns false if nothing was added.
func (p *Printed) add(text []byte, complain bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := min(p.skip, uint64(len(text))) // the program has read that already
	p.skip -= seen
	if text = text[seen:]; len(text) == 0 {
		return false
	}
	if p.size+len(text) > maxPrinted {
		if p.dropped {
			return false
		}
		p.dropped = true
		text, complain = []byte(droppedNote), false
	}
	p.size += len(text)
	if n := len(p.pieces); n > 0 && p.pieces[n-1].Complain == complain {
		p.pieces[n-1].Text = append(p.pieces[n-1].Text, text...)
		return true
	}
	p.pieces = append(p.pieces, saying{append([]byte(nil), text...), complain})
	return true
}

// take moves text of one kind from the beginning into out. The caller must hold the lock.
func (p *Printed) take(out []byte) (n int, complain bool) {
	if len(p.pieces) == 0 {
		return 0, false
	}
	first := &p.pieces[0]
	n, complain = copy(out, first.Text), first.Complain
	p.cut(n)
	return n, complain
}

// cut drops the first n bytes. The caller must hold the lock.
func (p *Printed) cut(n int) {
	p.size -= n
	for n > 0 {
		first := &p.pieces[0]
		if n < len(first.Text) {
			first.Text = first.Text[n:]
			return
		}
		n -= len(first.Text)
		p.pieces = p.pieces[1:]
	}
	if p.size == 0 {
		p.pieces, p.dropped = nil, false
	}
}

// All returns a copy of the text, and the length of each turn: turns alternate between standard
// output (even index) and standard error, so some may be 0.
func (p *Printed) All() (text []byte, turns []int, dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, piece := range p.pieces {
		if piece.Complain != (len(turns)%2 == 1) {
			turns = append(turns, 0)
		}
		turns = append(turns, len(piece.Text))
		text = append(text, piece.Text...)
	}
	return text, turns, p.dropped
}

// Resume starts with what All returned in another worker.
func (p *Printed) Resume(text []byte, turns []int, dropped bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces, p.size, p.dropped = nil, len(text), dropped
	for i, n := range turns {
		if n < 0 || n > len(text) {
			return errors.New("what kernels have printed is shorter than was noted")
		}
		if n > 0 {
			p.pieces = append(p.pieces, saying{append([]byte(nil), text[:n]...), i%2 == 1})
		}
		text = text[n:]
	}
	if len(text) > 0 {
		return errors.New("what kernels have printed is longer than was noted")
	}
	return nil
}

// WasRead drops text that the program has read from another worker, and what will be printed again of it.
func (p *Printed) WasRead(bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	here := min(bytes, uint64(p.size))
	p.cut(int(here))
	p.skip = bytes - here
}

// Print takes the output of a kernel's printf. It never blocks: the device calls it.
func (p *Printed) Print(text []byte) {
	if p.add(text, false) {
		p.announce(true)
	}
}

// Complain takes the message of a failed assertion. It never blocks.
func (p *Printed) Complain(text []byte) {
	if p.add(text, true) {
		p.announce(true)
	}
}

// Fetch moves as much text of one kind as fits to out. Before is called with how much that is, before
// anybody can know.
func (p *Printed) Fetch(out []byte, before func(n int)) (reply wire.PrintFetchReply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, complain := p.take(out)
	before(n)
	reply.Size = uint32(n)
	if complain {
		reply.Complaint = 1
	}
	if p.size > 0 {
		reply.More = 1
	} else {
		p.announce(false)
	}
	return reply
}
