package auction

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// Fig. 1 of the paper: a system of 12 nodes with eight nodesets, of which
// (6, 9, 9, 1) and (12, 12, 4, 1) can be read. What is free here is
// chosen so that these come out.
func TestFigure1(t *testing.T) {
	cores := []int32{4, 2, 0, 3, 0, 2, 3, 1, 3, 1, 0, 4}
	gpus := []int32{0, 0, 1, 1, 0, 1, 2, 2, 1, 0, 2, 1}
	want := []Nodeset{
		{1, 2, 6, 0}, {4, 4, 3, 0}, {6, 10, 10, 0}, {12, 12, 4, 0},
		{4, 4, 3, 1}, {6, 9, 9, 1}, {12, 12, 4, 1},
		{7, 8, 4, 2},
	}
	got := Nodesets(cores, gpus)
	for i := range got {
		got[i].First++ // the paper counts from 1
		got[i].Last++
	}
	if !slices.Equal(got, want) {
		t.Errorf("nodesets\n got %v\nwant %v", got, want)
	}
}

// Whatever is free, the nodesets are just what section 4 says they are.
func TestNodesetsByDefinition(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "nodes")
		cores := rapid.SliceOfN(rapid.Int32Range(0, 3), n, n).Draw(t, "cores")
		gpus := rapid.SliceOfN(rapid.Int32Range(0, 3), n, n).Draw(t, "gpus")
		got := Nodesets(cores, gpus)
		var want []Nodeset
		for g := int32(0); g <= 3; g++ {
			suits := func(i int) bool { return i >= 0 && i < n && cores[i] > 0 && gpus[i] >= g }
			for first := range n {
				for last := first; last < n; last++ {
					whole, sum := true, int64(0)
					for i := first; i <= last; i++ {
						whole = whole && suits(i)
						sum += int64(cores[i])
					}
					if whole && !suits(first-1) && !suits(last+1) {
						want = append(want, Nodeset{int32(first), int32(last), sum, g})
					}
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("nodesets\n got %v\nwant %v", got, want)
		}
	})
}
