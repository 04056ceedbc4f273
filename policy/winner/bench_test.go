package winner_test

import (
	"testing"

	"muster/policy/winner"
	"muster/policy/winner/winnertest"
)

// One auction within the limits of the original: 250 bids. Value and gap are
// metrics, so that a change that is faster but worse shows.
func BenchmarkFaithfulWindow(b *testing.B) {
	for _, nodes := range []int{128, 256, 1024} {
		for _, overlap := range []bool{false, true} {
			benchmark(b, winnertest.Shape{Nodes: nodes, Jobs: 100, MaxBids: 250, Busy: 90, Overlap: overlap, Seed: 1})
			benchmark(b, winnertest.Shape{Nodes: nodes, Jobs: 100, MaxBids: 250, Busy: 35, Overlap: overlap, Seed: 1})
		}
	}
}

// A window of 200 jobs with all their bids, on a machine that is busy (steady)
// and on one that is not (cold).
func BenchmarkWideWindow(b *testing.B) {
	for _, nodes := range []int{128, 256, 1024} {
		benchmark(b, winnertest.Shape{Nodes: nodes, Jobs: 200, Busy: 90, Overlap: true, Seed: 1})
		benchmark(b, winnertest.Shape{Nodes: nodes, Jobs: 200, Busy: 35, Overlap: true, Seed: 1})
	}
}

// What the size of a window costs, one size at a time; the rest is that of one
// point in the middle, which is measured once: 256 nodes, 200 jobs, 500 bids.
// Jobs are counted with all their bids, for a limit on bids would hide them.
// go test -bench Scaling -benchtime 3x
func BenchmarkScaling(b *testing.B) {
	for _, overlap := range []bool{false, true} {
		middle := winnertest.Shape{Nodes: 256, Jobs: 200, MaxBids: 500, Busy: 90, Overlap: overlap, Seed: 1}
		for _, bids := range []int{250, 500, 1000, 0} {
			s := middle
			s.MaxBids = bids
			benchmark(b, s)
		}
		for _, nodes := range []int{128, 1024} {
			s := middle
			s.Nodes = nodes
			benchmark(b, s)
		}
		for _, jobs := range []int{50, 100, 400} {
			s := middle
			s.Jobs, s.MaxBids = jobs, 0
			benchmark(b, s)
		}
	}
}

func benchmark(b *testing.B, s winnertest.Shape) {
	b.Run(s.String(), func(b *testing.B) {
		p := winnertest.Make(s)
		var search winner.Search
		var a *winner.Answer
		for b.Loop() {
			var err error
			if a, err = search.Solve(p, winner.DefaultLimits()); err != nil {
				b.Fatal(err)
			}
		}
		if err := winner.Check(p, a); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(p.Bids)), "bids")
		b.ReportMetric(float64(a.Value), "value")
		b.ReportMetric(float64(a.Value)/float64(a.Bound), "value/bound")
		b.ReportMetric(100*a.Gap(), "gap_pct")
		b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/solve")
		b.ReportMetric(0, "ns/op")
	})
}
