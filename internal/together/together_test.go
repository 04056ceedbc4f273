package together

import (
	"bytes"
	"testing"
)

func TestCopy(t *testing.T) {
	for _, size := range []int{0, 1, 100, 1 << 18, 1<<18 + 1, 1<<20 - 1, 1 << 20, 3<<20 + 5} {
		src := make([]byte, size)
		for i := range src {
			src[i] = byte(i * 7 >> 3)
		}
		dst := make([]byte, size+1)
		Copy(dst[:size], src)
		if !bytes.Equal(dst[:size], src) || dst[size] != 0 {
			t.Errorf("%d bytes differ", size)
		}
	}
}

func TestDo(t *testing.T) {
	for _, n := range []int{0, 1, 2, 100} {
		done := make([]int32, n)
		Do(n, func(i int) { done[i]++ })
		for i, times := range done {
			if times != 1 {
				t.Errorf("%d of %d was done %d times", i, n, times)
			}
		}
	}
}

// Whichever call panics, Do panics in its caller.
func TestDoPanics(t *testing.T) {
	for _, which := range []int{0, 7, 99} {
		func() {
			defer func() {
				if r := recover(); r != "wrong" {
					t.Errorf("panicked with %v", r)
				}
			}()
			Do(100, func(i int) {
				if i == which {
					panic("wrong")
				}
			})
		}()
	}
}
