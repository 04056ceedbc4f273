package matrix

import (
	"testing"

	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// A warp holds each element of a matrix of mma exactly once.
func TestFragmentsHoldEachElementOnce(t *testing.T) {
	for _, p := range []tensor.Product{
		{M: 16, N: 8, K: 16, A: tensor.F16, B: tensor.F16, C: tensor.F32, D: tensor.F16},
		{M: 16, N: 8, K: 8, A: tensor.TF32, B: tensor.TF32, C: tensor.F32, D: tensor.F32},
		{M: 8, N: 8, K: 16, A: tensor.S8, B: tensor.U8, C: tensor.S32, D: tensor.S32},
	} {
		product := Dense(p)
		for name, f := range map[string]*Fragment{"A": product.Left, "B": product.Right, "C": product.Sum, "D": product.Result} {
			held := make([]int, f.Rows*f.Cols)
			for r := range f.Registers {
				for lane := range shape.WarpSize {
					for _, n := range f.Register(r, lane) {
						held[n]++
					}
				}
			}
			for n, times := range held {
				if times != 1 {
					t.Fatalf("%+v: element %d of %s is held %d times", p, n, name, times)
				}
			}
		}
		if Dense(p) != product {
			t.Error("the same product was made twice")
		}
	}
}
