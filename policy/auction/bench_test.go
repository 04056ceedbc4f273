package auction

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/winner"
	"muster/sim"
	"muster/workload"
)

// watch is a solver that looks at the clock.
type watch struct {
	winner.Search
	spent, longest     time.Duration
	solved, proven     int
	bids, mostBids     int
	gap                float64
	longestBids, nodes int
}

func (w *watch) Solve(p *winner.Problem, l winner.Limits) (*winner.Answer, error) {
	start := time.Now()
	a, err := w.Search.Solve(p, l)
	took := time.Since(start)
	w.spent += took
	if took > w.longest {
		w.longest, w.longestBids = took, len(p.Bids)
	}
	w.solved++
	w.bids += len(p.Bids)
	w.mostBids = max(w.mostBids, len(p.Bids))
	if err == nil {
		w.gap = max(w.gap, a.Gap())
		if a.Proven {
			w.proven++
		}
	}
	return a, err
}

// midst is the time of making bids in the midst of workload V, and that of
// choosing among them: means and the longest, over all auctions of an hour's work.
func BenchmarkAuctions(b *testing.B) {
	for _, nodes := range []int{128, 256, 1024} {
		for _, spec := range []string{"", "bids_per_job=5", "slurm_bids=off", "bids=0", "bids=0:window=200"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, spec), func(b *testing.B) {
				w, err := workload.Generate("aucsched", map[string]string{"nodes": strconv.Itoa(nodes), "hours": "0.5"}, 1)
				if err != nil {
					b.Fatal(err)
				}
				var one watch
				steps := 0
				for range b.N {
					steps += play(b, row(nodes, 8, 2), w.Jobs, spec, &one)
				}
				rest := b.Elapsed() - one.spent
				b.ReportMetric(float64(one.bids)/float64(one.solved), "bids")
				b.ReportMetric(float64(one.mostBids), "most-bids")
				b.ReportMetric(float64(rest.Microseconds())/1000/float64(steps), "ms-else/auction")
				b.ReportMetric(float64(one.spent.Microseconds())/1000/float64(one.solved), "ms-solver/auction")
				b.ReportMetric(float64(one.longest.Microseconds())/1000, "ms-solver-longest")
				b.ReportMetric(100*float64(one.proven)/float64(one.solved), "%proven")
				b.ReportMetric(100*one.gap, "%gap-largest")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func play(b *testing.B, c *model.Cluster, jobs []model.Job, spec string, solver winner.Solver) (steps int) {
	p := make1(b, spec)
	p.solver = solver
	res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: policy.Policy(p)})
	if err != nil {
		b.Fatal(err)
	}
	return res.Steps
}
