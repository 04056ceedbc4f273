package ranges

import (
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

const testGranule = 2 << 20

// Random calls of map and unmap, compared with a plain set of granules.
func TestPiecesAgainstModel(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		const granules = 80
		base := uint64(0x6400_0000_0000) + testGranule*rapid.Uint64Range(0, 20).Draw(t, "base")
		var mapped Pieces
		var model [granules]bool
		all := func(from, to uint64, want bool) bool {
			for _, m := range model[from:to] {
				if m != want {
					return false
				}
			}
			return true
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			from := rapid.Uint64Range(0, granules-1).Draw(t, "from")
			to := rapid.Uint64Range(from+1, granules).Draw(t, "to")
			s := Span{base + from*testGranule, base + to*testGranule}
			free, covered := all(from, to, false), all(from, to, true)
			if mapped.Free(s) != free || mapped.Covers(s) != covered {
				t.Fatalf("%v: free %v, covered %v; want %v, %v", s, mapped.Free(s), mapped.Covers(s), free, covered)
			}
			switch {
			case free:
				parts := Cut(s, testGranule)
				checkParts(t, parts, s)
				mapped = mapped.With(parts)
			case covered:
				rest, r := mapped.Without(s)
				checkRemoval(t, mapped, rest, r, s)
				mapped = rest
				for _, k := range r.Kept {
					mapped = mapped.With(Cut(k, testGranule))
				}
			default:
				continue
			}
			for i := from; i < to; i++ {
				model[i] = free
			}
			checkSorted(t, mapped)
		}
	})
}

// checkParts fails unless the parts fill a range and each can be mapped on its own.
func checkParts(t *rapid.T, parts []Span, s Span) {
	at := s.From
	for _, p := range parts {
		aligned := p.Size() == testGranule || p.Size() == Large && p.From%Large == 0
		if p.From != at || !aligned {
			t.Fatalf("%v was cut into %v", s, parts)
		}
		at = p.To
	}
	if at != s.To {
		t.Fatalf("%v was cut into %v", s, parts)
	}
}

// checkRemoval fails unless the taken pieces are whole and, without the kept ranges, make
// up the range.
func checkRemoval(t *rapid.T, before, rest Pieces, r Removal, s Span) {
	if len(rest)+len(r.Taken) != len(before) {
		t.Fatalf("of %d pieces %d stay and %d go", len(before), len(rest), len(r.Taken))
	}
	size := uint64(0)
	for i, p := range r.Taken {
		size += p.Size()
		if i > 0 && r.Taken[i-1].To != p.From {
			t.Fatalf("there is a gap in %v", r.Taken)
		}
	}
	for _, k := range r.Kept {
		size -= k.Size()
		if k.Size() >= Large || k.From < s.To && s.From < k.To {
			t.Fatalf("%v is kept of %v", k, s)
		}
	}
	if size != s.Size() {
		t.Fatalf("%v: %d bytes go", s, size)
	}
}

func checkSorted(t *rapid.T, p Pieces) {
	for i := range p {
		if p[i].From >= p[i].To || i > 0 && p[i-1].To > p[i].From {
			t.Fatalf("not sorted: %v", p)
		}
	}
}

// Granules of any size are cut alike; those larger than a large piece stay
// whole.
func TestCutOtherGranules(t *testing.T) {
	for _, c := range []struct {
		granule, size uint64
		pieces        int
	}{
		{64 << 10, 32<<20 + 128<<10, 3},
		{2 << 20, 64 << 20, 2},
		{64 << 20, 256 << 20, 4},
	} {
		if got := Cut(Span{1 << 40, 1<<40 + c.size}, c.granule); len(got) != c.pieces {
			t.Errorf("%d bytes in granules of %d: %d pieces, want %d", c.size, c.granule, len(got), c.pieces)
		}
	}
}
