package ranges

import (
	"math/rand/v2"
	"testing"

	"muster/device"
)

// Hold finds the same among many variables as a linear search.
func TestVariables(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var v Variables
	var all [][]device.Global
	for step := range 2000 {
		if r.IntN(3) == 0 && len(all) > 0 {
			i := r.IntN(len(all))
			v.Remove(all[i])
			all = append(all[:i], all[i+1:]...)
		} else {
			base := uint64(step+1) << 12
			module := []device.Global{{Name: "a", Address: base, Size: uint64(r.IntN(64))}, {Name: "b", Address: base + 64, Size: 0}, {Name: "c", Address: base + 64, Size: 256}}
			v.Add(module)
			all = append(all, module)
		}
		from := uint64(r.IntN(step+2))<<12 + uint64(r.IntN(400))
		s := Span{from, from + uint64(r.IntN(64))}
		want := false
		for _, module := range all {
			for _, g := range module {
				want = want || s.From >= g.Address && s.To <= g.Address+g.Size && s.From <= g.Address+g.Size
			}
		}
		if got := v.Hold(s); got != want {
			t.Fatalf("step %d: %v is held: %v, want %v", step, s, got, want)
		}
	}
}
