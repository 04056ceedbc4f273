package ivm

import (
	"fmt"
	"slices"

	"muster/exp"
)

const partModel = "The cost model: what a schedule in virtual time says of the same runs"

// predicted is how long DS-LB takes by the model: whichever GPU is free first takes the next portion, and each portion costs
// its part of the work and a creation. Both come from the run with one element a GPU, in which the slowest GPU decides.
func predicted(m *measured, a *app, n int) float64 {
	first, created := exp.Median(m.seconds(a.spawn(smallest))), m.created(a.spawn(smallest))
	return schedule(n, (first-created)*smallest, created)
}

// schedule is how long a number of portions of work take, which a C2050 alone would do in the given
// number of seconds.
func schedule(portions int, work, created float64) float64 {
	all := speeds()
	free := make([]float64, len(all)) // when each GPU is
	last := 0.0
	for range portions {
		next := slices.Index(free, slices.Min(free))
		free[next] += created + work/float64(portions)/all[next]
		last = max(last, free[next])
	}
	return last
}

// ideal is the speed-up over an even division with this number of portions, if creating an element
// costs nothing.
func ideal(portions int) float64 { return schedule(smallest, 1, 0) / schedule(portions, 1, 0) }

func (m *measured) created(key string) float64 {
	return exp.Median(m.Values(key, func(o *outcome) float64 { return o.Created }))
}

func modelRows(m *measured) []exp.Row {
	var rows []exp.Row
	for _, n := range counts[1:] {
		rows = append(rows, exp.Over(partModel, fmt.Sprintf("model_speedup_%d", n), "x", []float64{ideal(n)}).Noting("DS-LB with %d portions if creating elements cost nothing", n))
	}
	for _, a := range apps {
		if !m.Has(a.spawn(smallest)) {
			continue
		}
		for _, n := range counts[1:] {
			p, is := predicted(m, a, n), exp.Median(m.seconds(a.spawn(n)))
			rows = append(rows, exp.Over(partModel, fmt.Sprintf("%s_model_error_%d", a.key, n), "%", []float64{100 * (p/is - 1)}).Noting("predicted %.2f s, measured %.2f s; an element took %.3f s to create", p, is, m.created(a.spawn(n))))
		}
	}
	return rows
}
