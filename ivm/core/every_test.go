package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// scripted is a program of which elements do their requests one after the other, whatever comes of
// them, and exit. Everything that the root cannot know the order of happens in every order:
// requests of different elements, processes that start or do not, one crash, the loss of one node.
type scripted struct {
	t       *testing.T
	scripts map[ElementID][]func(Caller) Event
	seen    map[string]bool
	states  int
	ends    int // states in which nothing can happen any more
}

// world is a root and what is known of it outside, after some events.
type world struct {
	root     *Root
	starting map[ElementID]NodeID
	living   map[ElementID]NodeID
	at       map[ElementID]int // requests that an element has made
	open     map[ElementID]bool
	crashes  int
	losses   int
}

// move is one thing that can happen.
type move struct {
	event Event
	by    ElementID // who asks, or ends
	kind  byte      // r(equest), e(xit), c(rash), l(oss), s(tart), f(ailed start)
}

// replay plays moves from the beginning. A root cannot be copied, and need not be.
func (s *scripted) replay(moves []move) *world {
	w := &world{root: threeNodes(), starting: map[ElementID]NodeID{}, living: map[ElementID]NodeID{0: 0}, at: map[ElementID]int{}, open: map[ElementID]bool{}}
	for _, m := range moves {
		s.play(w, m)
	}
	return w
}

func (w *world) gone(id ElementID) {
	delete(w.living, id)
	delete(w.starting, id)
	delete(w.open, id)
}

func (s *scripted) play(w *world, m move) {
	switch m.kind {
	case 'r':
		w.at[m.by]++
		w.open[m.by] = true
	case 's':
		w.living[m.by] = w.starting[m.by]
		delete(w.starting, m.by)
	case 'f':
		w.gone(m.by)
		w.crashes++
	case 'e':
		s.step(w, Exit{m.by})
		w.gone(m.by)
	case 'c':
		w.gone(m.by)
		w.crashes++
	case 'l':
		w.losses++
		for id := range ElementID(len(w.root.elements)) {
			if w.root.elements[id].device.Node == m.event.(NodeLost).Node {
				w.gone(id)
			}
		}
	}
	s.step(w, m.event)
}

func (s *scripted) step(w *world, e Event) {
	for _, effect := range w.root.Step(e) {
		switch x := effect.(type) {
		case Answer:
			if !w.open[x.To.Element] {
				s.t.Fatalf("element %d is answered and did not ask, or is no more: %+v", x.To.Element, x)
			}
			delete(w.open, x.To.Element)
		case Start:
			w.starting[x.Element] = x.Node
		case Stop:
			w.gone(x.Element)
		}
	}
}

// possible is all that can happen in a state.
func (s *scripted) possible(w *world) (moves []move) {
	for id := range ElementID(len(w.root.elements)) {
		if _, ok := w.starting[id]; ok {
			moves = append(moves, move{Started{id}, id, 's'})
			if w.crashes == 0 {
				moves = append(moves, move{StartFailed{id, "no"}, id, 'f'})
			}
		}
		if _, ok := w.living[id]; !ok {
			continue
		}
		if id != 0 && w.crashes == 0 {
			moves = append(moves, move{Ended{id, "crash"}, id, 'c'})
		}
		switch script := s.scripts[id]; {
		case w.open[id]:
		case w.at[id] < len(script):
			moves = append(moves, move{script[w.at[id]](Caller{id, uint64(w.at[id])}), id, 'r'})
		default:
			moves = append(moves, move{Ended{id, ""}, id, 'e'})
		}
	}
	if w.losses == 0 && !w.root.over {
		for n := NodeID(1); n < 3; n++ {
			moves = append(moves, move{NodeLost{n, "lost"}, 0, 'l'})
		}
	}
	return moves
}

func (s *scripted) explore(moves []move) {
	w := s.replay(moves)
	if key := w.key(); s.seen[key] {
		return
	} else {
		s.seen[key] = true
	}
	s.states++
	next := s.possible(w)
	if stuck := slices.IndexFunc(next, func(m move) bool { return m.kind != 'c' && m.kind != 'l' && m.kind != 'f' }); stuck < 0 {
		// Nothing goes on by itself: nobody may be waiting.
		s.ends++
		for id := range w.open {
			var story []string
			for _, m := range moves {
				story = append(story, fmt.Sprintf("%c %T%+v", m.kind, m.event, m.event))
			}
			s.t.Fatalf("element %d waits for ever after\n%s", id, strings.Join(story, "\n"))
		}
	}
	for _, m := range next {
		s.explore(append(slices.Clone(moves), m))
	}
}

// key tells states apart.
func (w *world) key() string {
	var b strings.Builder
	r := w.root
	fmt.Fprint(&b, r.nodes, r.max, r.groups, r.objects, r.deaths, r.over)
	for _, x := range r.elements {
		fmt.Fprintf(&b, "|%+v", *x)
	}
	for _, c := range r.creating {
		fmt.Fprintf(&b, "|%+v", *c)
	}
	fmt.Fprint(&b, w.starting, w.living, w.at, w.open, w.crashes, w.losses)
	return b.String()
}

// Three elements on three nodes that signal, wait, meet at a barrier and share a name, one crash,
// one lost node, in every order: each request of an element that lives is answered once, and nobody
// waits for ever.
func TestEveryOrderOfDeathsAndRequests(t *testing.T) {
	create := func(n NodeID, count int) func(Caller) Event {
		return func(c Caller) Event { return Create{c, Device{n, CPU, 0}, count} }
	}
	wait := func(id ElementID) func(Caller) Event { return func(c Caller) Event { return Wait{c, id} } }
	signal := func(c Caller) Event { return Signal{c} }
	barrier := func(c Caller) Event { return Barrier{c} }
	waitAny := func(c Caller) Event { return WaitAny{c} }
	for _, test := range []struct {
		name    string
		scripts map[ElementID][]func(Caller) Event
	}{
		{"signals both ways", map[ElementID][]func(Caller) Event{
			0: {create(1, 1), create(2, 1), wait(1), wait(2), signal, wait(1)},
			1: {signal, wait(0)},
			2: {signal, wait(0)},
		}},
		{"a group at its barrier", map[ElementID][]func(Caller) Event{
			0: {create(1, 2), wait(1), wait(2)},
			1: {barrier, barrier},
			2: {barrier, barrier},
		}},
		{"whoever comes", map[ElementID][]func(Caller) Event{
			0: {create(1, 1), create(2, 1), waitAny, waitAny, waitAny},
			1: {signal},
			2: {wait(1)},
		}},
		{"killed, and a name", map[ElementID][]func(Caller) Event{
			0: {create(1, 1), func(c Caller) Event { return Kill{c, []ElementID{1}} }, wait(1),
				func(c Caller) Event { return Lookup{c, "A"} }, func(c Caller) Event { return Malloc{c, "A", 8, 2} }, func(c Caller) Event { return Free{c, "A"} }},
			1: {func(c Caller) Event { return Malloc{c, "A", 8, 1} }, create(2, 1), wait(2), wait(0)},
			2: {wait(1), func(c Caller) Event { return Free{c, "A"} }, waitAny},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &scripted{t: t, scripts: test.scripts, seen: map[string]bool{}}
			s.explore(nil)
			t.Logf("%d states, %d ends", s.states, s.ends)
		})
	}
}
