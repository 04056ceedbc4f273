package ivm

import (
	"fmt"
	"slices"

	"muster/exp"
)

const partModel = "The cost model: what a schedule in virtual time says of the same runs"

// predicted is the run time of DS-LB by the model: the first idle GPU takes the next portion, and
// each portion costs its part of the work and the creation of an element. Both costs are taken from
// the run with one element per GPU, whose time is that of the slowest GPU.
func predicted(m *measured, a *app, n int) float64 {
	first, created := exp.Median(m.Seconds(a.spawn(smallest))), m.created(a.spawn(smallest))
	return schedule(n, (first-created)*smallest, created)
}

// schedule is the time for a number of portions of work that would take a single C2050 the given
// number of seconds, by list scheduling.
func schedule(portions int, work, created float64) float64 {
	all := speeds()
	free := make([]float64, len(all)) // when each GPU is idle again
	last := 0.0
	for range portions {
		next := slices.Index(free, slices.Min(free))
		free[next] += created + work/float64(portions)/all[next]
		last = max(last, free[next])
	}
	return last
}

// ideal is the speed-up over an even division with this number of portions if creating an element
// were free.
func ideal(portions int) float64 { return schedule(smallest, 1, 0) / schedule(portions, 1, 0) }

func (m *measured) created(key string) float64 {
	return exp.Median(m.Values(key, func(o *outcome) float64 { return o.Created }))
}

func modelRows(m *measured) []exp.Row {
	var rows []exp.Row
	for _, n := range counts[1:] {
		rows = append(rows, exp.Single(partModel, fmt.Sprintf("model_speedup_%d", n), "x", ideal(n)).Noting("DS-LB with %d portions if creating elements cost nothing", n))
	}
	for _, a := range apps {
		if !m.Has(a.spawn(smallest)) {
			continue
		}
		for _, n := range counts[1:] {
			p, is := predicted(m, a, n), exp.Median(m.Seconds(a.spawn(n)))
			rows = append(rows, exp.Single(partModel, fmt.Sprintf("%s_model_error_%d", a.key, n), "%", 100*(p/is-1)).Noting("predicted %.2f s, measured %.2f s; an element took %.3f s to create", p, is, m.created(a.spawn(n))))
		}
	}
	return rows
}
