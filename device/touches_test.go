package device

import (
	"reflect"
	"testing"
)

// TouchesOf returns what Words encoded, and refuses words that no kernel can have.
func TestTouchesThereAndBack(t *testing.T) {
	for _, want := range []*Touches{{}, {Accesses: []Access{{Words: []int{0}}, {Words: []int{1, 59}, Writes: true}}}} {
		words, ok := want.Words()
		if got := TouchesOf(words, 480); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v came as %+v", want, got)
		}
	}
	if _, ok := (&Touches{Accesses: []Access{{Words: []int{60}}}}).Words(); ok {
		t.Error("a word that has no bit was written down")
	}
	if _, ok := (*Touches)(nil).Words(); ok {
		t.Error("what is not known was written down")
	}
	for _, words := range [][]uint64{{1 << 2}, {1 << 60}, {1 << 62}} {
		if got := TouchesOf(words, 16); got != nil {
			t.Errorf("%x of a kernel with 16 bytes of parameters is %+v", words, got)
		}
	}
}
