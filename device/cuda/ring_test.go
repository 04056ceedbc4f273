package cuda

import (
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// Parts that are allocated at the same time never overlap, and a ring whose parts are
// all free has room for half its size.
func TestRing(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		const size = 64
		r := &ring{memory: make([]byte, size)}
		type filled struct {
			room
			mark byte
		}
		var out []filled
		for mark := byte(1); mark < 100; mark++ {
			n := rapid.IntRange(1, size/2).Draw(t, "bytes")
			part, ok := r.take(n)
			if !ok {
				if len(out) == 0 {
					t.Fatalf("no room for %d bytes in an empty ring", n)
				}
				back := rapid.IntRange(1, len(out)).Draw(t, "back")
				out[back-1].give()
				out = out[back:]
				continue
			}
			if len(part.memory) != n {
				t.Fatalf("%d bytes, want %d", len(part.memory), n)
			}
			for i := range part.memory {
				part.memory[i] = mark
			}
			out = append(out, filled{part, mark})
			for _, o := range out {
				for _, b := range o.memory {
					if b != o.mark {
						t.Fatal("two parts overlap")
					}
				}
			}
		}
	})
}
