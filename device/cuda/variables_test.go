package cuda

import (
	"math/rand/v2"
	"testing"

	"muster/device"
)

// hold finds the same among many variables as a linear search.
func TestVariables(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var v variables
	var all [][]device.Global
	for step := range 2000 {
		if r.IntN(3) == 0 && len(all) > 0 {
			i := r.IntN(len(all))
			v.remove(all[i])
			all = append(all[:i], all[i+1:]...)
		} else {
			base := uint64(step+1) << 12
			module := []device.Global{{Name: "a", Address: base, Size: uint64(r.IntN(64))}, {Name: "b", Address: base + 64, Size: 0}, {Name: "c", Address: base + 64, Size: 256}}
			v.add(module)
			all = append(all, module)
		}
		from := uint64(r.IntN(step+2))<<12 + uint64(r.IntN(400))
		s := span{from, from + uint64(r.IntN(64))}
		want := false
		for _, module := range all {
			for _, g := range module {
				want = want || s.from >= g.Address && s.to <= g.Address+g.Size && s.from <= g.Address+g.Size
			}
		}
		if got := v.hold(s); got != want {
			t.Fatalf("step %d: %v is held: %v, want %v", step, s, got, want)
		}
	}
}
