package journal

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"muster/internal/seeds"
)

// A process that is killed at any store leaves a journal that reads as it did before
// what the process was doing, or as it does after that.
//
// The words that count change one after the other, and the memory is looked at before
// and after each. What lies between two of these looks are plain stores, of which the
// system may have seen any: some bytes of the second look in the first must read like
// the first.
func TestKilledAtAnyStore(t *testing.T) {
	seed, _ := seeds.First(t)
	steps := 4000
	if testing.Short() {
		steps = 400
	}
	w := &writer{t: t, Journal: testJournal(t, 1024, 512), r: rand.New(rand.NewPCG(seed, 0))}
	for range steps {
		w.step()
		if t.Failed() {
			return
		}
	}
}

// writer is a process that uses a journal, and is looked at.
type writer struct {
	t testing.TB
	*Journal
	r       *rand.Rand
	entries []Entry
	fills   []func([]byte)
	looks   [][]byte
}

// step does something, and finds out what would be left of it.
func (w *writer) step() {
	before := view(again(w.t, w.Journal))
	w.looks = w.looks[:0]
	w.storing = func() { w.looks = append(w.looks, bytes.Clone(w.mem)) }
	w.storing()
	what := w.do()
	w.storing()
	w.storing = nil
	after := view(again(w.t, w.Journal))
	if now := view(w.Journal); now != after {
		w.t.Fatalf("%s: the writer reads\n%s\nand another process\n%s", what, now, after)
	}
	was := before
	for i, look := range w.looks {
		now := w.read(what, look, before, after)
		if was != before && now != after {
			w.t.Fatalf("%s: after look %d it reads as it did before", what, i)
		}
		if i+1 < len(w.looks) {
			w.torn(what, look, w.looks[i+1], before, after)
		}
		was = now
	}
}

// read is what a process finds in memory.
func (w *writer) read(what string, memory []byte, before, after string) string {
	w.t.Helper()
	j, err := open(bytes.Clone(memory), w.limit)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	got := view(j)
	if got != before && got != after {
		w.t.Fatalf("%s: killed in the middle, it reads\n%s\nbefore\n%s\nafter\n%s", what, got, before, after)
	}
	return got
}

// torn puts some bytes of the next look into this one.
func (w *writer) torn(what string, now, next []byte, before, after string) {
	w.t.Helper()
	var changed []int
	for i := range now {
		if now[i] != next[i] {
			changed = append(changed, i)
		}
	}
	if counts(changed) {
		return // one store: there is nothing in the middle
	}
	for range 3 {
		some := bytes.Clone(now)
		for _, i := range changed {
			if w.r.IntN(2) == 0 {
				some[i] = next[i]
			}
		}
		w.read(what+", in part", some, before, after)
	}
}

// counts says whether bytes are of one word.
func counts(changed []int) bool {
	return len(changed) == 0 || changed[0]/8 == changed[len(changed)-1]/8
}

func (w *writer) do() string {
	text := func(n int) []byte { return bytes.Repeat([]byte{'a' + byte(w.r.IntN(26))}, w.r.IntN(n)) }
	entry := func() Entry {
		if len(w.entries) == 0 {
			return Entry{}
		}
		return w.entries[w.r.IntN(len(w.entries))] // perhaps one that does not count any more
	}
	switch n := w.r.IntN(100); {
	case n < 30:
		w.entries = append(w.entries, w.Append(w.r.Uint64(), text(60)))
		return "append"
	case n < 40:
		if fill := w.Reserve(entry(), uint64(w.r.IntN(100))); fill != nil {
			w.fills = append(w.fills, fill.Fill)
		}
		return "reserve"
	case n < 55:
		if i := len(w.fills) - 1; i >= 0 {
			k := w.r.IntN(i + 1)
			w.fills[i], w.fills[k] = w.fills[k], w.fills[i]
			w.fills[i](text(100))
			w.fills = w.fills[:i]
		}
		return "fill"
	case n < 65:
		w.Mark(entry(), Done)
		return "mark"
	case n < 72:
		w.Refuse(entry(), int32(w.r.Uint32()))
		return "refuse"
	case n < 76:
		w.Tell(entry(), text(60))
		return "tell"
	case n < 80:
		w.Note(Note{w.r.Uint64(), w.r.IntN(64), w.r.Uint32()})
		return "note"
	case n < 86:
		w.Give(entry(), w.r.Uint32N(1000))
		return "give"
	case n < 87:
		w.Attach(entry(), text(100))
		return "attach"
	case n < 88:
		w.Invalidate()
		return "invalidate"
	case n < 90:
		_ = w.Commit(make([]byte, w.r.IntN(2000))) // which may be too large
		return "commit much"
	}
	_ = w.Commit(text(100), text(100), text(100))
	return "commit"
}
