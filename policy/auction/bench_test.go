package auction

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/winner"
	"muster/sim"
	"muster/workload"
)

// What making the bids costs on a machine in pieces: against nodes, the window and
// the limits on bids.
func BenchmarkBids(b *testing.B) {
	for _, nodes := range []int{128, 256, 1024} {
		for _, spec := range []string{"", "bids=0", "bids=0:window=200", "bids=0:window=200:bids_per_job=0"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, spec), func(b *testing.B) {
				w, err := workload.Generate("aucsched", map[string]string{"nodes": strconv.Itoa(nodes), "hours": "1"}, 1)
				if err != nil {
					b.Fatal(err)
				}
				s := inPieces(b, nodes, spec)
				for i := range w.Jobs {
					s.submit(&w.Jobs[i])
				}
				v := s.view()
				for b.Loop() {
					r := &round{}
					s.p.market.open(v)
					s.p.would.copy(v)
					s.p.invite(v, r)
					s.p.bidAll(v, r)
				}
				b.ReportMetric(float64(len(s.p.market.bids)), "bids")
				b.ReportMetric(float64(len(s.p.market.sets)), "nodesets")
			})
		}
	}
}

// inPieces is a machine with a job on every fourth node.
func inPieces(b *testing.B, nodes int, spec string) *setting {
	s := newSetting(b, row(nodes, 8, 2), spec)
	s.p.solver = rogue(func(p *winner.Problem) (*winner.Answer, error) { return winner.Greedy(p), nil })
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range nodes {
		if rng.IntN(4) == 0 {
			s.submit(job(fmt.Sprint("piece", i), model.Request{
				Nodes: 1, CoresPerNode: 1 + rng.IntN(8), GPUs: rng.IntN(3), NodeList: names(i+1, i+1),
			}))
		}
	}
	for i := 0; s.Waiting() > 0; i++ {
		s.Step(time.Duration(i) * 5 * time.Second)
	}
	return s
}

// watch is a solver that looks at the clock.
type watch struct {
	winner.Search
	spent, longest time.Duration
	solved, proven int
	bids, mostBids int
	gap            float64
}

func (w *watch) Solve(p *winner.Problem, l winner.Limits) (*winner.Answer, error) {
	start := time.Now()
	a, err := w.Search.Solve(p, l)
	took := time.Since(start)
	w.spent += took
	w.longest = max(w.longest, took)
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

// What auctions cost in the course of workload V: the solver, and all else.
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
