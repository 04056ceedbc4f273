package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrderedIsASortedSet compares with a plain sorted slice through many
// insertions and removals, at the ends and in the middle.
func TestOrderedIsASortedSet(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var o ordered
		var want []orderedEntry
		keys := int64(1 + rng.IntN(1000))
		for id := range JobID(2000) {
			if len(want) > 0 && rng.IntN(100) < 45 {
				at := rng.IntN(len(want))
				if rng.IntN(2) == 0 {
					at = 0
				}
				if !o.remove(want[at]) {
					t.Fatalf("seed %d: %v is not there", seed, want[at])
				}
				want = slices.Delete(want, at, at+1)
			}
			e := orderedEntry{rank: rng.Int64N(3), key: rng.Int64N(keys), id: id}
			o.insert(e)
			at := 0
			for at < len(want) && want[at].before(&e) {
				at++
			}
			want = slices.Insert(want, at, e)
		}
		if o.n != len(want) {
			t.Fatalf("seed %d: %d elements, not %d", seed, o.n, len(want))
		}
		c := Cursor{o: &o}
		for i, w := range want {
			id, key, ok := c.Next()
			if !ok || id != w.id || key != w.key {
				t.Fatalf("seed %d: element %d is (%d, %d), not (%d, %d)", seed, i, key, id, w.key, w.id)
			}
		}
		if _, _, ok := c.Next(); ok {
			t.Fatalf("seed %d: there is more than there should be", seed)
		}
		if o.remove(orderedEntry{key: keys + 1}) || o.remove(orderedEntry{key: -1}) || o.remove(orderedEntry{rank: 4}) {
			t.Fatalf("seed %d: removed what was not there", seed)
		}
	}
}
