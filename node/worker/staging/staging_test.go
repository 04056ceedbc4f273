package staging

import (
	"slices"
	"testing"
)

// Memory goes back in the order in which it was taken, whoever is done first.
func TestOrder(t *testing.T) {
	var back []uint64
	s := New(func(position uint64) { back = append(back, position) })
	if s.Take(0) != nil || (*Stage)(nil).IsOpen() || (*Stage)(nil).Taken() != nil {
		t.Error("a message without staging memory has some")
	}
	a, b, c, d := s.Take(10), s.Take(20), s.Take(30), s.Take(40)
	reader := new(int)
	s.Lend(c, reader)
	if !a.IsOpen() || a.Taken() != a || a.IsOpen() || a.Taken() != nil {
		t.Error("it is handed on more than once")
	}
	s.Free(b)
	s.Free(nil)
	if len(back) > 0 {
		t.Errorf("%v is back before what was taken earlier", back)
	}
	s.Free(a)
	s.Free(d)
	s.Returned(reader) // who had c
	if !slices.Equal(back, []uint64{20, 40}) {
		t.Errorf("what is back: up to %v", back)
	}
}
