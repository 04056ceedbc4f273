package indexset

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSet compares sets with lists of all their numbers.
func TestSet(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var s Set
		has := make([]bool, 64)
		for range 60 {
			i := random.IntN(len(has))
			switch random.IntN(4) {
			case 0:
				to := i + random.IntN(len(has)-i+1)
				s.AddRange(i, to)
				for k := i; k < to; k++ {
					has[k] = true
				}
			case 1:
				s.Add(i)
				has[i] = true
			default:
				s.Remove(i)
				has[i] = false
			}
			n, ascending := 0, s.Ascending()
			for k := random.IntN(3); k < len(has); k += 1 + random.IntN(3) {
				if ascending(k) != has[k] {
					t.Fatalf("%v: %d, in ascending order", s, k)
				}
			}
			for k := range has {
				if has[k] {
					n++
				}
				if s.Has(k) != has[k] {
					t.Fatalf("%v: %d", s, k)
				}
			}
			if s.Len() != n || s.First() != slices.Index(has, true) || len(slices.Collect(s.All)) != n {
				t.Fatalf("%v has %d of %d", s, s.Len(), n)
			}
			half := Of(16, 40)
			half.Remove(20)
			in, out := s.Split(&half)
			for k := range has {
				if in.Has(k) != (has[k] && half.Has(k)) || out.Has(k) != (has[k] && !half.Has(k)) {
					t.Fatalf("%v: %v and %v", s, in, out)
				}
			}
			if in.Len()+out.Len() != n {
				t.Fatalf("%v: %v and %v", s, in, out)
			}
			both := s
			both.AddAll(&half)
			for k := range has {
				if both.Has(k) != (has[k] || half.Has(k)) {
					t.Fatalf("%v: %v", s, both)
				}
			}
			if both.n != out.n+half.n {
				t.Fatalf("%v: %v", s, both)
			}
			var again Set
			text, _ := s.MarshalText()
			if err := again.UnmarshalText(text); err != nil || !slices.Equal(again.spans, s.spans) {
				t.Fatalf("%v becomes %v as %s: %v", s, again, text, err)
			}
		}
	}
}

// TestManyRuns: a set with many runs has a text of bounded length, and is read again.
func TestManyRuns(t *testing.T) {
	var s, again Set
	for i := 0; i < 100_000; i += 2 {
		s.Add(i)
	}
	text, _ := s.MarshalText()
	if err := again.UnmarshalText(text); err != nil || len(text) > 20_000 || !slices.Equal(again.spans, s.spans) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{"", "0-4,7", "bits:BQ==", "3,1", "0-99999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s Set
		if s.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, _ := s.MarshalText()
		var again Set
		if err := again.UnmarshalText(written); err != nil || !slices.Equal(again.spans, s.spans) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
