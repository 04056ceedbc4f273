//go:build cbc

package cbc

import (
	"flag"
	"testing"
	"time"

	"muster/policy/winner"
	"muster/policy/winner/winnertest"
)

var seconds = flag.Float64("seconds", 0, "compare on windows of the sizes of the benchmarks, with so many seconds for CBC")

// corpus is a few dozen auctions of all kinds of bids that CBC mostly solves in
// a moment, and some that it does not.
func corpus() map[string]*winner.Problem {
	all := map[string]*winner.Problem{}
	for seed := range uint64(10) {
		for _, s := range []winnertest.Shape{
			{Nodes: 32, Jobs: 20, MaxBids: 50, Busy: 60, Overlap: true, Seed: seed},
			{Nodes: 32, Jobs: 20, MaxBids: 40, Busy: 60, Seed: seed},
			{Nodes: 256, Jobs: 30, MaxBids: 60, Busy: 90, Overlap: true, Seed: seed},
		} {
			all[s.String()] = winnertest.Make(s)
		}
		s := winnertest.Shape{Nodes: 16, Jobs: 8, MaxBids: 16, Busy: 60, Overlap: true, Seed: seed}
		all["slack "+s.String()] = loosen(winnertest.Make(s))
	}
	for _, s := range []winnertest.Shape{
		{Nodes: 128, Jobs: 100, MaxBids: 250, Busy: 90, Overlap: true, Seed: 2},
		{Nodes: 128, Jobs: 200, Busy: 90, Overlap: true, Seed: 2},
	} {
		all[s.String()] = winnertest.Make(s)
	}
	return all
}

// loosen lets bids do with fewer nodes than they name.
func loosen(p *winner.Problem) *winner.Problem {
	for i := range p.Bids {
		if b := &p.Bids[i]; i%2 == 0 && b.Count > 1 {
			b.Count -= b.Count / 4
		}
	}
	return p
}

// Our own solver and CBC must agree: no answer above the other's bound, and the
// same value where both have proven theirs.
func TestOwnSolverAgainstCBC(t *testing.T) {
	var search winner.Search
	both, all := 0, 0
	for name, p := range corpus() {
		limits := winner.DefaultLimits()
		limits.Iterations, limits.TreeWork = 60_000, 60_000_000
		ours, err := search.Solve(p, limits)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := Solver{Seconds: 1}.Solve(p, limits)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []*winner.Answer{ours, theirs} {
			if err := winner.Check(p, a); err != nil {
				t.Errorf("%s, %s: %v", name, a.Method, err)
			}
		}
		if ours.Value > theirs.Bound || theirs.Value > ours.Bound {
			t.Errorf("%s: ours %d of %d, CBC %d of %d", name, ours.Value, ours.Bound, theirs.Value, theirs.Bound)
		}
		all++
		if ours.Proven && theirs.Proven {
			both++
			if ours.Value != theirs.Value {
				t.Errorf("%s: ours is %d, CBC's %d, and both are proven", name, ours.Value, theirs.Value)
			}
		}
	}
	t.Logf("both proved %d of %d", both, all)
	if both < all/2 {
		t.Errorf("both proved only %d of %d: the comparison says too little", both, all)
	}
}

// The figures of the benchmarks: go test -tags cbc -run Compare -seconds 20 -v
// Where all bids are made, our own answer is at least as good as CBC's in that time.
func TestCompareOnLargeWindows(t *testing.T) {
	if *seconds == 0 {
		t.Skip("takes minutes; asked for with -seconds")
	}
	var search winner.Search
	for _, nodes := range []int{128, 256, 1024} {
		for _, s := range []winnertest.Shape{
			{Nodes: nodes, Jobs: 100, MaxBids: 250, Busy: 90, Seed: 1},
			{Nodes: nodes, Jobs: 100, MaxBids: 250, Busy: 90, Overlap: true, Seed: 1},
			{Nodes: nodes, Jobs: 200, Busy: 90, Overlap: true, Seed: 1},
			{Nodes: nodes, Jobs: 200, Busy: 35, Overlap: true, Seed: 1},
		} {
			p := winnertest.Make(s)
			start := time.Now()
			ours, err := search.Solve(p, winner.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			start = time.Now()
			theirs, err := Solver{Seconds: *seconds}.Solve(p, winner.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d bids: ours %d of %d (%.2f%%) in %v; CBC %d of %d (%.2f%%) in %v", s, len(p.Bids),
				ours.Value, ours.Bound, 100*ours.Gap(), took.Round(time.Millisecond),
				theirs.Value, theirs.Bound, 100*theirs.Gap(), time.Since(start).Round(time.Millisecond))
			if ours.Value > theirs.Bound || theirs.Value > ours.Bound {
				t.Errorf("%s: somebody is wrong", s)
			}
			if s.MaxBids == 0 && ours.Value < theirs.Value {
				t.Errorf("%s: CBC found %d, which is more than our %d", s, theirs.Value, ours.Value)
			}
		}
	}
}

func TestNothingToSolve(t *testing.T) {
	a, err := Solver{}.Solve(&winner.Problem{}, winner.Limits{})
	if err != nil || !a.Proven || a.Value != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}
