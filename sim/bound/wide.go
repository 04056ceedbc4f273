package bound

import (
	"fmt"
	"math/big"
	"slices"

	"muster/policy/prices"
)

// Limits on the widths and functions that are tried. Larger ones take more time and may prove
// stronger bounds.
const (
	maxWidths   = 48
	maxSlivers  = 24
	maxMultiple = 8
)

// part is a job with its share of the machine's worth. The share is relative to the total worth of
// all nodes.
type part struct {
	hold  int64
	share *big.Int
	nodes int64
	each  int64 // price of what it takes of each of its nodes
}

// wide: jobs that cannot run at the same time run one after the other.
//
// At any instant the shares of the machine's worth that jobs hold add up to at most 1. A function f
// is called dual feasible if the sum of f over any such shares is at most 1, too. Each such
// function gives another bound: the sum of run time x f(share). The functions used here round large
// shares up to 1 and small ones down to 0, or round to multiples.
//
// Wide jobs need more than half of the nodes, so any two have a node in common. If there is no room
// on that node for both, they exclude each other. If they also exclude some narrower jobs for the
// same reason, their total run time adds to any bound that is proven for those.
func (m *machine) wide(list []work) Argument {
	a := Argument{Name: "wide jobs", Why: "no job is wide"}
	all := int64(len(m.c.Nodes))
	for _, table := range m.weights(list) {
		total := m.total(table)
		if total.Sign() == 0 {
			continue
		}
		node := slices.Max(table.Node)
		parts := make([]part, len(list))
		for i := range list {
			w := &list[i]
			parts[i] = part{hold: int64(w.hold), share: worth(table, w), nodes: w.nodes}
			if w.nodes > 0 {
				parts[i].each = table.Kind[w.units[0].kind]
			}
		}
		for _, width := range widths(parts, all) {
			// Two wide jobs have a common node, and each takes more than half of its worth.
			wide := func(p *part) bool { return p.nodes >= width && 2*p.each > node }
			alone, count, least := new(big.Int), 0, node
			for i := range parts {
				if p := &parts[i]; wide(p) {
					alone.Add(alone, big.NewInt(p.hold))
					least = min(least, p.each)
					count++
				}
			}
			var rest []part
			for i := range parts {
				p := &parts[i]
				if !wide(p) && (count == 0 || p.nodes+width > all && p.each+least > node) {
					rest = append(rest, *p)
				}
			}
			more, how := beside(rest, total)
			if t := whole(alone.Add(alone, more)); t > a.Makespan {
				a.Makespan, a.Why = t, how
				if count > 0 {
					a.Why = fmt.Sprintf("%d jobs of %d nodes or more exclude each other and %d others, which take %v (%s)",
						count, width, len(rest), whole(more), how)
				}
			}
		}
	}
	return a
}

// weights are the prices that are tried: those of the linear program, and the plain counts of cores
// and of GPUs.
func (m *machine) weights(list []work) []*prices.Table {
	tables := []*prices.Table{m.solve(list)}
	byCores, byGPUs := make([]int64, len(m.kinds)), make([]int64, len(m.kinds))
	for i, k := range m.kinds {
		byCores[i], byGPUs[i] = int64(k.Cores), int64(k.GPUs)
	}
	return append(tables, prices.With(m.kinds, m.nodes, byCores), prices.With(m.kinds, m.nodes, byGPUs))
}

// widths are the numbers of nodes from which on jobs count as wide: more than half of all nodes, so
// that any two have a common node. The list includes a number that no job reaches, for a proof
// without wide jobs.
func widths(parts []part, all int64) []int64 {
	list := []int64{all + 1}
	for i := range parts {
		if n := parts[i].nodes; 2*n > all {
			list = append(list, n)
		}
	}
	return some(list, maxWidths)
}

// some selects at most n distinct values of a list, including the smallest and the largest.
func some(list []int64, n int) []int64 {
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) <= n {
		return list
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = list[i*(len(list)-1)/(n-1)]
	}
	return out
}

// beside is the best bound that dual feasible functions prove for parts of a machine of worth
// total.
func beside(parts []part, total *big.Int) (best *big.Int, how string) {
	best = new(big.Int)
	take := func(t *big.Int, say string) {
		if t.Cmp(best) > 0 {
			best, how = t, say
		}
	}
	sum, x := new(big.Int), new(big.Int)
	for i := range parts {
		sum.Add(sum, x.Mul(parts[i].share, big.NewInt(parts[i].hold)))
	}
	take(above(sum, total), "their worth")
	for i := range parts {
		take(big.NewInt(parts[i].hold), "the longest of them")
	}

	// Slivers: shares above 1 - e count as 1, and those below e as 0. At most one share above 1 - e
	// fits at a time, and beside it only shares below e.
	half := new(big.Int).Rsh(total, 1)
	var cuts []*big.Int
	for i := range parts {
		if parts[i].share.Sign() > 0 && parts[i].share.Cmp(half) <= 0 {
			cuts = append(cuts, parts[i].share)
		}
	}
	slices.SortFunc(cuts, func(a, b *big.Int) int { return a.Cmp(b) })
	cuts = slices.CompactFunc(cuts, func(a, b *big.Int) bool { return a.Cmp(b) == 0 })
	stride := max(1, len(cuts)/maxSlivers)
	for k := len(cuts) - 1; k >= 0; k -= stride {
		e := cuts[k]
		most := new(big.Int).Sub(total, e)
		sum.SetInt64(0)
		for i := range parts {
			switch s := parts[i].share; {
			case s.Cmp(most) > 0:
				sum.Add(sum, x.Mul(total, big.NewInt(parts[i].hold)))
			case s.Cmp(e) >= 0:
				sum.Add(sum, x.Mul(s, big.NewInt(parts[i].hold)))
			}
		}
		take(above(sum, total), "large ones count as all of the machine, slivers as nothing")
	}
	// Multiples: f(x) = floor((k+1) x) / k, and f(x) = x where (k+1) x is an integer. It counts a
	// share just above 1/(k+1) as 1/k, because at most k of those fit at a time.
	for k := int64(1); k <= maxMultiple; k++ {
		sum.SetInt64(0)
		q, r := new(big.Int), new(big.Int)
		for i := range parts {
			q.QuoRem(x.Mul(parts[i].share, big.NewInt(k+1)), total, r)
			if r.Sign() == 0 { // f(x) = x; all sums are in units of 1 / (k x total)
				q.Mul(parts[i].share, big.NewInt(k))
			} else {
				q.Mul(q, total)
			}
			sum.Add(sum, q.Mul(q, big.NewInt(parts[i].hold)))
		}
		take(above(sum, x.Mul(total, big.NewInt(k))), fmt.Sprintf("no more than %d of those that need more than 1/%d of the machine run at a time", k, k+1))
	}
	return best, how
}
