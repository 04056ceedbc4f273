package bound

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"muster/policy/prices"
)

// maxStarts limits the number of submission times for which the linear program is solved.
const maxStarts = 16

// configurations: give each kind of work a price such that no set of work that fits on a node at
// the same time exceeds the node's price. Then the worth of all work x its time is at most the
// worth of all nodes x the makespan.
func (m *machine) configurations(list []work, first time.Duration) Argument {
	a := Argument{Name: "configurations", Why: "there is nothing to do"}
	var starts []int
	for i := range list {
		if i == 0 || list[i-1].submit != list[i].submit {
			starts = append(starts, i)
		}
	}
	step := (len(starts) + maxStarts - 1) / maxStarts
	for k := 0; k < len(starts); k += step {
		from := starts[k]
		table := m.solve(list[from:])
		total := m.total(table)
		if total.Sign() == 0 {
			continue
		}
		sum := new(big.Int)
		for i := from; i < len(list); i++ {
			sum.Add(sum, new(big.Int).Mul(worth(table, &list[i]), big.NewInt(int64(list[i].hold))))
		}
		since := list[from].submit - first
		if t := later(since, above(sum, total)); t > a.Makespan {
			a.Makespan = t
			a.Why = fmt.Sprintf("%d jobs from %v on are worth all nodes for %v, at these prices of a node's part: %s",
				len(list)-from, since, t-since, m.priceList(table))
		}
	}
	return a
}

// solve finds prices that are good for the work of the given jobs.
func (m *machine) solve(list []work) *prices.Table {
	kinds := slices.Clone(m.kinds)
	for i := range list {
		for _, u := range list[i].units {
			// Demands only steer the choice of prices and prove nothing, so milliseconds are
			// precise enough.
			kinds[u.kind].Demand += u.count * max(1, int64(list[i].hold/time.Millisecond))
		}
	}
	return prices.Solve(kinds, m.nodes)
}

// total is the total worth of all nodes.
func (m *machine) total(t *prices.Table) *big.Int {
	sum := new(big.Int)
	for i, n := range m.nodes {
		sum.Add(sum, product(t.Node[i], n.Count))
	}
	return sum
}

// worth is the price of all that a job holds.
func worth(t *prices.Table, w *work) *big.Int {
	sum := new(big.Int)
	for _, u := range w.units {
		sum.Add(sum, product(t.Kind[u.kind], u.count))
	}
	return sum
}

func (m *machine) priceList(t *prices.Table) string {
	node := int64(0)
	for _, v := range t.Node {
		node = max(node, v)
	}
	var list []string
	for i, k := range m.kinds {
		list = append(list, fmt.Sprintf("%d cores and %d GPUs %.3f", k.Cores, k.GPUs, float64(t.Kind[i])/float64(max(1, node))))
	}
	return strings.Join(list, ", ")
}
