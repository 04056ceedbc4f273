package auction

import (
	"context"
	"fmt"
	"testing"

	needs "muster/internal/need"
	"muster/policy/winner"
	"muster/sim"
	"muster/workload"
)

// prover counts the auctions that are solved to a proof.
type prover struct {
	winner.Search
	solved, proven int
	first          bool // whether the first was
}

func (p *prover) Solve(q *winner.Problem, l winner.Limits) (*winner.Answer, error) {
	a, err := p.Search.Solve(q, l)
	if p.solved++; err == nil && a.Proven {
		p.proven++
		p.first = p.first || p.solved == 1
	}
	return a, err
}

// The auctions of the paper's workloads, with the settings that hold unless others
// are given, are solved to a proof. The solver's limits are counts of steps: what
// is proven here is proven on any machine.
func TestAuctionsOfThePaperAreProven(t *testing.T) {
	seeds, hours := uint64(needs.Rounds(2, 6)), fmt.Sprintf("0.%d", needs.Rounds(10, 25))
	solved, proven := 0, 0
	for _, name := range []string{"I", "II", "III", "IV", "V"} {
		for seed := range seeds {
			w, err := workload.Generate("aucsched", map[string]string{"workload": name, "nodes": "128", "hours": hours}, seed)
			if err != nil {
				t.Fatal(err)
			}
			p, count := make1(t, ""), &prover{}
			p.solver = count
			if _, err := sim.Run(context.Background(), sim.Config{Cluster: row(128, 8, 2), Jobs: w.Jobs, Policy: p}); err != nil {
				t.Fatal(err)
			}
			if !count.first {
				t.Errorf("workload %s, seed %d: the first auction is not proven", name, seed)
			}
			t.Logf("workload %s, seed %d: %d of %d auctions are proven", name, seed, count.proven, count.solved)
			solved += count.solved
			proven += count.proven
		}
	}
	if 100*proven < 99*solved {
		t.Errorf("%d of %d auctions are proven", proven, solved)
	}
}
