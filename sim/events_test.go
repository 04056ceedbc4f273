package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/policy"
)

// TestEventsComeInOrder pushes and pops at random, with many equal times.
func TestEventsComeInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var q events
	var want []event
	for i := range 5000 {
		if len(want) > 0 && rng.IntN(3) == 0 {
			if got := q.pop(); got != want[0] {
				t.Fatalf("popped %+v, want %+v", got, want[0])
			}
			want = want[1:]
			continue
		}
		e := event{at: time.Duration(rng.IntN(50)), job: policy.JobID(i)}
		q.push(e)
		at, _ := slices.BinarySearchFunc(want, e, func(a, b event) int {
			if a.before(&b) {
				return -1
			}
			return 1
		})
		want = slices.Insert(want, at, e)
	}
}

// BenchmarkEvents is the loop of a simulation without a cluster: a million
// jobs come and end, a thousand at a time. It says what the machine can do,
// beside which the other figures can be read.
func BenchmarkEvents(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	runs := make([]time.Duration, 1_000_000)
	for i := range runs {
		runs[i] = time.Duration(rng.ExpFloat64() * 1e12)
	}
	for b.Loop() {
		var q events
		now := time.Duration(0)
		for i, run := range runs {
			now += 1e9
			for at, some := q.first(); some && at <= now; at, some = q.first() {
				q.pop()
			}
			q.push(event{at: now + run, job: policy.JobID(i)})
		}
	}
	b.ReportMetric(float64(len(runs))*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
