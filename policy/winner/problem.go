package winner

import (
	"errors"
	"fmt"
)

// MaxTotal is the largest allowed sum of the best values of all jobs. Up to it,
// values are exact as float64 and sums of fixed-point prices fit into int64.
const MaxTotal = int64(1) << 50

// Problem is one auction: what is free, and the bids for it.
type Problem struct {
	// Cores and GPUs are free, by node.
	Cores, GPUs []int32
	// Jobs is the number of jobs; they are numbered from 0.
	Jobs int
	Bids []Bid
}

// Bid is one way in which a job would run.
type Bid struct {
	Job int32
	// Value is what it is worth that this bid wins; above 0.
	Value int64
	// Nodes is the class of nodes it bids for, ascending.
	Nodes []int32
	// Count of the nodes are wanted. In the auction that is all of them; it is
	// fewer where any Count nodes of a class will do.
	Count int32
	// PerNode cores are wanted on each chosen node. Where it is 0, Total cores are
	// spread over the chosen nodes, at least one on each.
	PerNode int32
	Total   int32
	// GPUs are wanted on each chosen node.
	GPUs int32
}

// Validate says what is wrong with the problem, so that a caller can correct
// it.
func (p *Problem) Validate() error {
	if len(p.Cores) != len(p.GPUs) {
		return fmt.Errorf("cores of %d nodes but GPUs of %d: give both for each node", len(p.Cores), len(p.GPUs))
	}
	for n := range p.Cores {
		if p.Cores[n] < 0 || p.GPUs[n] < 0 {
			return fmt.Errorf("node %d has %d cores and %d GPUs free: neither may be below 0", n, p.Cores[n], p.GPUs[n])
		}
	}
	if p.Jobs < 0 {
		return fmt.Errorf("%d jobs: the number of jobs may not be below 0", p.Jobs)
	}
	best := make([]int64, p.Jobs)
	for i := range p.Bids {
		b := &p.Bids[i]
		if err := b.validate(p); err != nil {
			return fmt.Errorf("bid %d: %w", i, err)
		}
		best[b.Job] = max(best[b.Job], b.Value)
	}
	var total int64
	for _, v := range best {
		total += v
		if total > MaxTotal {
			return fmt.Errorf("the best values of the jobs add up to more than %d: scale the values down", MaxTotal)
		}
	}
	return nil
}

func (b *Bid) validate(p *Problem) error {
	switch {
	case b.Job < 0 || int(b.Job) >= p.Jobs:
		return fmt.Errorf("job %d is not one of the %d jobs", b.Job, p.Jobs)
	case b.Value <= 0:
		return fmt.Errorf("value %d: a bid must be worth more than 0", b.Value)
	case b.Value > MaxTotal:
		return fmt.Errorf("value %d is above %d: scale the values down", b.Value, MaxTotal)
	case b.Count < 1:
		return fmt.Errorf("it wants %d nodes: ask for at least 1", b.Count)
	case int(b.Count) > len(b.Nodes):
		return fmt.Errorf("it wants %d nodes of a class of %d: name more nodes or ask for fewer", b.Count, len(b.Nodes))
	case b.GPUs < 0:
		return fmt.Errorf("%d GPUs on each node: ask for 0 or more", b.GPUs)
	case b.PerNode < 0:
		return fmt.Errorf("%d cores on each node: ask for at least 1, or for 0 and a total", b.PerNode)
	case b.PerNode == 0 && b.Total < b.Count:
		return fmt.Errorf("%d cores for %d nodes: each node must give at least 1", b.Total, b.Count)
	case b.PerNode > 0 && b.Total != 0 && int64(b.Total) != int64(b.PerNode)*int64(b.Count):
		return fmt.Errorf("%d cores in all, but %d on each of %d nodes: leave the total at 0", b.Total, b.PerNode, b.Count)
	}
	last := int32(-1)
	for _, n := range b.Nodes {
		if n < 0 || int(n) >= len(p.Cores) {
			return fmt.Errorf("node %d is not one of the %d nodes", n, len(p.Cores))
		}
		if n <= last {
			return errors.New("its nodes are not in ascending order: sort them and name each once")
		}
		last = n
	}
	return nil
}

// Answer is the winners, and how good they are known to be.
type Answer struct {
	// Won is ascending by bid.
	Won []Win
	// Value is the sum of the values of the bids that won.
	Value int64
	// Bound is proven: no answer is worth more.
	Bound int64
	// Proven says that the value is the bound.
	Proven bool
	// Steps is the number of search steps that the answer took; it is the same
	// on any machine.
	Steps int64
	// Method names what made the answer.
	Method string
}

// Win is a bid that won, with its nodes and beside each the cores it gets there.
type Win struct {
	Bid   int32
	Nodes []int32
	Cores []int32
}

// Gap is the share of the bound that the answer may lack; 0 where it is proven.
func (a *Answer) Gap() float64 {
	if a.Bound == 0 {
		return 0
	}
	return float64(a.Bound-a.Value) / float64(a.Bound)
}

// Limits bound the search. All are numbers of steps, never times.
type Limits struct {
	// Iterations of the ejection search, over all parts of the problem.
	Iterations int64
	// BoundIterations are rounds of prices for each part.
	BoundIterations int
	// TreeNodes of the tree search for each part; 0: no tree search.
	TreeNodes int64
	// TreeBids is the largest number of bids of a part for which the tree search
	// is tried at all.
	TreeBids int
	// TreeWork is the number of cells of tableaux that the tree search may
	// change, over all parts: it ends a tree whose nodes are costly.
	TreeWork int64
	// Seed of the ejection search.
	Seed uint64
}

// DefaultLimits keep one auction of some hundred bids well below a second.
func DefaultLimits() Limits {
	return Limits{
		Iterations:      1_000_000,
		BoundIterations: 400,
		TreeNodes:       20_000,
		TreeBids:        600,
		TreeWork:        400_000_000,
		Seed:            1,
	}
}

// Solver finds winners. An answer that breaks a constraint is a bug: see Check.
//
// A solver must end by itself, with the best answer it has, by keeping to the
// limits or to its own. The caller does not stop it: a deadline would make the
// answer depend on the speed of the machine.
type Solver interface {
	Solve(p *Problem, l Limits) (*Answer, error)
}
