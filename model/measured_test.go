package model

import (
	"math"
	"testing"
)

// What Check lets pass adds up to what it lets pass, and it refuses what no node can have measured.
func TestMeasured(t *testing.T) {
	most := Measured{CPU: mostMeasured, GPU: mostMeasured, Waited: mostMeasured, Moving: mostMeasured, Kernels: mostMeasured, CopiedIn: mostMeasured, CopiedOut: mostMeasured, SwapIn: mostMeasured, SwapOut: mostMeasured}
	if sum := most.Plus(most); sum != most || sum.Check() != nil {
		t.Errorf("%+v, %v", sum, sum.Check())
	}
	a := Measured{CPU: 1, GPU: 2, Waited: 3, Moving: 4, Kernels: 5, CopiedIn: 6, CopiedOut: 7, SwapIn: 8, SwapOut: 9}
	if sum := a.Plus(a); sum != (Measured{CPU: 2, GPU: 4, Waited: 6, Moving: 8, Kernels: 10, CopiedIn: 12, CopiedOut: 14, SwapIn: 16, SwapOut: 18}) {
		t.Errorf("%+v", sum)
	}
	if r := (Measured{GPU: 1.23456789}).Rounded(); r.GPU != 1.234568 {
		t.Error(r.GPU)
	}
	for _, wrong := range []Measured{{CPU: -1}, {GPU: math.NaN()}, {Waited: math.Inf(1)}, {Moving: 2 * mostMeasured}, {Kernels: mostMeasured + 1}, {SwapOut: math.MaxUint64}} {
		if wrong.Check() == nil {
			t.Errorf("%+v was taken", wrong)
		}
	}
}
