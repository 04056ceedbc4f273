package worker

import (
	"errors"
	"sync"

	"muster/node/clientcore"
	"muster/wire"
)

// printed is what kernels have printed and the program has not fetched: what they have
// printed with printf, and what they have said of assertions that do not hold.
type printed struct {
	mu      sync.Mutex
	pieces  []saying // in the order in which they were printed; the kinds of neighbours differ
	size    int      // bytes of all
	dropped bool
	skip    uint64 // bytes that were printed before, in a worker that has died
}

// saying is text for one of the program's standard files.
type saying struct {
	Text     []byte
	Complain bool // for standard error
}

// maxPrinted is what is kept; more is dropped, and said so.
const maxPrinted = 1 << 20

const droppedNote = "muster: more was printed than is kept between two synchronising calls\n"

// add takes text, as far as there is room; false if it was dropped without a word.
func (p *printed) add(text []byte, complain bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := min(p.skip, uint64(len(text))) // the program has read that
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

// take moves the beginning of what was printed into out: text of one kind. The caller
// must hold the lock.
func (p *printed) take(out []byte) (n int, complain bool) {
	if len(p.pieces) == 0 {
		return 0, false
	}
	first := &p.pieces[0]
	n, complain = copy(out, first.Text), first.Complain
	p.cut(n)
	return n, complain
}

// cut drops the first n bytes. The caller must hold the lock.
func (p *printed) cut(n int) {
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

// all returns a copy of what was printed, one kind after the other as it came, and how
// long each piece is: those with even numbers are for standard output.
func (p *printed) all() (text []byte, turns []int, dropped bool) {
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

// resume begins with what all returned elsewhere.
func (p *printed) resume(text []byte, turns []int, dropped bool) error {
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

// print takes what a kernel prints. It never waits.
func (w *worker) print(text []byte) {
	if w.printed.add(text, false) {
		w.shared.SetPrint(true)
	}
}

// complain takes what a kernel says whose assertion does not hold. It never waits.
func (w *worker) complain(text []byte) {
	if w.printed.add(text, true) {
		w.shared.SetPrint(true)
	}
}

// printFetch hands out what was printed, as much as fits.
func (w *worker) printFetch(o *clientcore.Op) error {
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	p := &w.printed
	p.mu.Lock()
	defer p.mu.Unlock()
	n, complain := p.take(out)
	if w.journal != nil {
		w.journal.Give(w.entry, uint32(n))
	}
	w.mayDie()
	reply := wire.PrintFetchReply{Size: uint32(n)}
	if complain {
		reply.Complaint = 1
	}
	if p.size > 0 {
		reply.More = 1
	} else {
		w.shared.SetPrint(false)
	}
	w.shared.Reply(o.Slot, success, reply.Append(nil))
	return nil
}
