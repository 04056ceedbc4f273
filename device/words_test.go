package device

import "testing"

func TestCompareHolds(t *testing.T) {
	for _, tt := range []struct {
		c           Compare
		word, value uint64
		width       int
		want        bool
	}{
		{AtLeast, 5, 5, 4, true}, {AtLeast, 4, 5, 4, false}, {AtLeast, 2, 0xfffffffe, 4, true}, // the counter has wrapped around
		{AtLeast, 2, 0xfffffffe, 8, false}, {AtLeast, 1, 1<<64 - 1, 8, true},
		{Equal, 1<<32 + 7, 7, 4, true}, {Equal, 1<<32 + 7, 7, 8, false},
		{SomeBits, 6, 3, 4, true}, {SomeBits, 4, 3, 4, false}, {SomeBits, 1 << 40, 1 << 40, 8, true}, {SomeBits, 1 << 40, 1 << 40, 4, false},
		{NotAll, 0xfffffff0, 0xf, 4, false}, {NotAll, 0xfffffff0, 0xe, 4, true}, {NotAll, 0xfffffff0, 0xf, 8, true},
	} {
		if got := tt.c.Holds(tt.word, tt.value, tt.width); got != tt.want {
			t.Errorf("compare %d of %#x with %#x, %d bytes: %v", tt.c, tt.word, tt.value, tt.width, got)
		}
	}
}
