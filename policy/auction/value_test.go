package auction

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/policy/winner"
)

// Eq. 11: bids of class A are worth more than those of class B, and these more
// than those of class C. With the constants of Table 3 the ends of the ranges
// are reached: jobs that name their nodes have 1 for A and 1/2 for B.
func TestPreferencesKeepTheirRanges(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "nodes of the cluster")
		s := rapid.IntRange(1, 3*n).Draw(t, "nodesets")
		p := preferencesOf(n, s)
		spread := rapid.Bool().Draw(t, "spread")
		nodes := rapid.IntRange(1, n).Draw(t, "nodes")
		sets := rapid.IntRange(1, s).Draw(t, "sets")
		for _, c := range []struct {
			class       Class
			sets        int
			least, most float64
		}{{Aligned, 1, 0.75, 1}, {Inside, 1, 0.5, 0.75}, {Joined, sets, 0, 0.5}, {Slurm, sets, 1, 1}} {
			f := p.of(c.class, spread, nodes, c.sets)
			if v := float64(f) / float64(p.whole); v < c.least || v > c.most || f <= 0 {
				t.Errorf("class %v: preference %v (%d), not within %v to %v", c.class, v, f, c.least, c.most)
			}
		}
	})
}

// Eq. 12 by hand, for one bid of each kind.
func TestPreferencesOfTable3(t *testing.T) {
	p := preferencesOf(9, 3)
	for _, c := range []struct {
		class       Class
		spread      bool
		nodes, sets int
		want        float64
	}{
		{Aligned, true, 4, 1, 1 - 0.25*4/10},
		{Inside, true, 4, 1, 1 - 0.25 - 0.25*4/10},
		{Joined, true, 4, 2, 1 - 0.5 - 0.25*4/10 - 0.25*2/4},
		{Aligned, false, 4, 1, 1},
		{Inside, false, 4, 1, 0.5},
		{Joined, false, 4, 2, 1 - 0.5 - 0.5*2/4},
		{Slurm, false, 4, 2, 1},
	} {
		if got := float64(p.of(c.class, c.spread, c.nodes, c.sets)) / float64(p.whole); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v, spread %v: %v, want %v", c.class, c.spread, got, c.want)
		}
	}
}

// No preferences, however many, make up for a difference of priorities, and the
// solver takes the values. This is what eqs. 9 and 10 are for.
func TestPrioritiesDominate(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "jobs")
		largest := rapid.SampledFrom([]int64{1, 10, 8192, 1 << 20}).Draw(t, "largest")
		priorities := make([]int64, n)
		for i := range priorities {
			priorities[i] = rapid.Int64Range(-largest, largest).Draw(t, "priority")
		}
		sortDown(priorities)
		whole := preferencesOf(rapid.SampledFrom([]int{4, 128, 1024}).Draw(t, "nodes"), rapid.IntRange(1, 300).Draw(t, "sets")).whole
		s := scaleFor(priorities, whole)
		if s.shift > 0 {
			t.Fatalf("priorities up to %d lost bits", largest)
		}
		// Two choices of jobs: the first with the least preferences, the second with
		// the largest.
		a := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "b")
		var weightA, weightB uint64
		var valueA, valueB, all int64
		for i, p := range priorities {
			if a[i] {
				weightA += s.weight(p)
				valueA += s.value(p, 1)
			}
			if b[i] {
				weightB += s.weight(p)
				valueB += s.value(p, whole)
			}
			all += s.value(p, whole)
		}
		if weightA > weightB && valueA <= valueB {
			t.Errorf("priorities %d against %d, but values %d against %d", weightA, weightB, valueA, valueB)
		}
		if all > winner.MaxTotal {
			t.Errorf("all values add up to %d, more than the solver takes", all)
		}
	})
}

// Priorities are taken as they are while they are above 0; else they are moved so
// that the least is 1.
func TestPriorityWeights(t *testing.T) {
	for _, c := range []struct {
		priorities []int64
		want       []uint64
	}{
		{[]int64{1002, 1001, 1000}, []uint64{1002, 1001, 1000}},
		{[]int64{5, 0, -3}, []uint64{9, 4, 1}},
		{[]int64{0, -1}, []uint64{2, 1}},
	} {
		s := scaleFor(c.priorities, 100)
		for i, p := range c.priorities {
			if got := s.weight(p); got != c.want[i] {
				t.Errorf("%v: priority %d counts %d, want %d", c.priorities, p, got, c.want[i])
			}
		}
	}
}

// Even the largest numbers keep their order, and fit.
func TestHugePriorities(t *testing.T) {
	for _, priorities := range [][]int64{
		{math.MaxInt64, math.MaxInt64 / 2, 1},
		{math.MaxInt64, 0, math.MinInt64},
		{math.MaxInt64, math.MaxInt64 - 1},
	} {
		whole := preferencesOf(100_000, 300_000).whole
		s := scaleFor(priorities, whole)
		sum, last := int64(0), int64(math.MaxInt64)
		for _, p := range priorities {
			v := s.value(p, whole)
			if v <= 0 || v > last {
				t.Errorf("%v: value %d after %d", priorities, v, last)
			}
			last = v
			if sum += v; sum > winner.MaxTotal {
				t.Errorf("%v: the values add up to %d", priorities, sum)
			}
		}
	}
}

// However many jobs bid, and however close their values come to what the solver
// takes: there is a scale, and the values fit.
func TestManyJobs(t *testing.T) {
	for _, c := range []struct {
		jobs            int
		priority, whole int64
		kept            bool // as they are
	}{
		{1 << 20, 1, 4000, false},
		{3_000_000, 1, 1000, false},
		{3_000_000, 1000, 1 << 40, false},
		{1 << 15, 1 << 30, 1000, false},
		{1 << 10, 1 << 10, 1 << 20, false},
		{1 << 10, 1<<10 - 1, 1<<20 - 1, true},
		{1, 1<<25 - 2, 1<<25 - 1, true},
		{1, 1<<25 - 1, 1<<25 - 1, false},
		// Without the preferences these would fit.
		{1, 1, 1<<50 - 2, false},
		{1 << 10, 1, 1<<30 - 1, false},
	} {
		priorities := make([]int64, c.jobs)
		for i := range priorities {
			priorities[i] = c.priority
		}
		s := scaleFor(priorities, c.whole)
		if kept := s.whole == c.whole && s.shift == 0; kept != c.kept {
			t.Errorf("%+v: kept as they are: %v", c, kept)
		}
		one, least := s.value(c.priority, c.whole), s.value(c.priority, 1)
		if least < 1 || one < least || one > winner.MaxTotal/int64(c.jobs) {
			t.Errorf("%+v: values from %d to %d with %+v", c, least, one, s)
		}
		if s.whole > 0 && s.factor <= int64(c.jobs)*s.whole {
			t.Errorf("%+v: preferences outweigh a priority with %+v", c, s)
		}
	}
}

func sortDown(values []int64) {
	for i := range values {
		for k := i; k > 0 && values[k] > values[k-1]; k-- {
			values[k], values[k-1] = values[k-1], values[k]
		}
	}
}
