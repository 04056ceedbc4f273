package told

import (
	"strings"
	"testing"
)

// What was printed is fetched in the order in which it was printed, in pieces of one
// kind, also after it was saved and taken up again.
func TestPrintedInOrder(t *testing.T) {
	said := []struct {
		text     string
		complain bool
	}{{"one ", false}, {"two ", false}, {"three ", true}, {"four ", true}, {"five ", false}}
	for _, room := range []int{1, 3, 100} {
		for saved := range 2 {
			p := &Printed{}
			for _, s := range said {
				p.add([]byte(s.text), s.complain)
			}
			if saved == 1 {
				text, turns, dropped := p.All()
				p = &Printed{}
				if err := p.Resume(text, turns, dropped); err != nil {
					t.Fatal(err)
				}
			}
			var out, complaints, pieces strings.Builder
			buffer := make([]byte, room)
			for p.size > 0 {
				n, complain := p.take(buffer)
				if complain {
					complaints.Write(buffer[:n])
				} else {
					out.Write(buffer[:n])
				}
				pieces.Write(buffer[:n])
			}
			if out.String() != "one two five " || complaints.String() != "three four " || pieces.String() != "one two three four five " {
				t.Errorf("room for %d: %q, %q and %q", room, out.String(), complaints.String(), pieces.String())
			}
		}
	}
}

// What a worker that died has handed out is not handed out again, of both kinds.
func TestPrintedBefore(t *testing.T) {
	p := &Printed{skip: 7}
	p.add([]byte("12345"), false)
	p.add([]byte("678"), true)
	buffer := make([]byte, 10)
	if n, complain := p.take(buffer); string(buffer[:n]) != "8" || !complain {
		t.Errorf("%q, %v", buffer[:n], complain)
	}
	if n, _ := p.take(buffer); n != 0 {
		t.Errorf("%q more", buffer[:n])
	}
}

// What is too much is dropped, and said once until all was fetched.
func TestPrintedTooMuch(t *testing.T) {
	p := &Printed{}
	for range 3 {
		p.add(make([]byte, maxPrinted-1), false)
	}
	if p.size != maxPrinted-1+len(droppedNote) {
		t.Errorf("%d bytes", p.size)
	}
	buffer := make([]byte, 2*maxPrinted)
	if n, _ := p.take(buffer); !strings.HasSuffix(string(buffer[:n]), droppedNote) {
		t.Errorf("%d bytes without the note", n)
	}
	if p.add([]byte("again"), false); p.size != 5 || p.dropped {
		t.Errorf("%d bytes, dropped %v", p.size, p.dropped)
	}
}

func TestPrintedIsChecked(t *testing.T) {
	for _, turns := range [][]int{nil, {3}, {5}, {-1, 5}, {2, 1}} {
		if err := new(Printed).Resume([]byte("four"), turns, false); err == nil {
			t.Errorf("%v was taken", turns)
		}
	}
}
