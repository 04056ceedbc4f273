package winner

import (
	"fmt"
	"slices"
)

// Check says which of the constraints (2) to (8) of the program the answer
// breaks, if any, and whether its value and bound are what it claims. It shares
// no code with the solvers, so that an error in one cannot hide in the other:
// it reads the problem and the answer, and adds up.
func Check(p *Problem, a *Answer) error {
	cores := make([]int64, len(p.Cores))
	gpus := make([]int64, len(p.Cores))
	jobWon := make([]bool, p.Jobs)
	var value int64
	last := int32(-1)
	for _, w := range a.Won {
		if w.Bid < 0 || int(w.Bid) >= len(p.Bids) {
			return fmt.Errorf("bid %d won, but there are %d bids", w.Bid, len(p.Bids))
		}
		if w.Bid <= last {
			return fmt.Errorf("bid %d after bid %d: winners must be in ascending order, each once", w.Bid, last)
		}
		last = w.Bid
		b := &p.Bids[w.Bid]
		if jobWon[b.Job] {
			return fmt.Errorf("(2) job %d wins with more than one bid, the last is %d", b.Job, w.Bid)
		}
		jobWon[b.Job] = true
		value += b.Value
		if len(w.Nodes) != len(w.Cores) {
			return fmt.Errorf("bid %d has %d nodes but cores for %d", w.Bid, len(w.Nodes), len(w.Cores))
		}
		if len(w.Nodes) != int(b.Count) {
			return fmt.Errorf("(3) bid %d got %d nodes and wants %d", w.Bid, len(w.Nodes), b.Count)
		}
		var total int64
		previous := int32(-1)
		for i, n := range w.Nodes {
			if n <= previous {
				return fmt.Errorf("(3) bid %d: node %d after node %d: nodes must be ascending, each once", w.Bid, n, previous)
			}
			previous = n
			if !slices.Contains(b.Nodes, n) {
				return fmt.Errorf("(3) bid %d got node %d, which is not of its class", w.Bid, n)
			}
			c := w.Cores[i]
			if c < 1 {
				return fmt.Errorf("(7) bid %d got node %d with %d cores", w.Bid, n, c)
			}
			if b.PerNode > 0 && c != b.PerNode {
				return fmt.Errorf("(8) bid %d got %d cores on node %d and wants %d on each", w.Bid, c, n, b.PerNode)
			}
			total += int64(c)
			cores[n] += int64(c)
			gpus[n] += int64(b.GPUs)
		}
		wanted := int64(b.Total)
		if b.PerNode > 0 {
			wanted = int64(b.PerNode) * int64(b.Count)
		}
		if total != wanted {
			return fmt.Errorf("(4) bid %d got %d cores and wants %d", w.Bid, total, wanted)
		}
	}
	for n := range cores {
		if cores[n] > int64(p.Cores[n]) {
			return fmt.Errorf("(5) node %d gives %d cores and has %d", n, cores[n], p.Cores[n])
		}
		if gpus[n] > int64(p.GPUs[n]) {
			return fmt.Errorf("(6) node %d gives %d GPUs and has %d", n, gpus[n], p.GPUs[n])
		}
	}
	if value != a.Value {
		return fmt.Errorf("(1) the winners are worth %d, the answer says %d", value, a.Value)
	}
	if a.Bound < a.Value {
		return fmt.Errorf("the bound %d is below the value %d", a.Bound, a.Value)
	}
	if a.Proven != (a.Bound == a.Value) {
		return fmt.Errorf("value %d and bound %d, but proven is %v", a.Value, a.Bound, a.Proven)
	}
	return nil
}
