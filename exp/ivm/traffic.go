package ivm

import (
	"fmt"

	"muster/exp"
)

const partTraffic = "Section 5.5.2: what DMM moves between nodes"

// trafficCounts are the numbers of tiles: 4 x 4 to 8 x 8.
var trafficCounts = []int{16, 36, 64}

func wholeKey(n int) string { return fmt.Sprintf("dmm_whole_%d", n) }

var trafficFigure = figure{name: "traffic", part: partTraffic,
	plan: func() []measurement {
		var plan []measurement
		a := appOf("dmm")
		for _, n := range trafficCounts {
			plan = append(plan, a.runSpawn(a.spawn(n), a.size, n), a.runSpawn(wholeKey(n), a.size, n, "--whole"))
		}
		return plan
	},
	show: func(m *measured) shown {
		var s shown
		for _, n := range trafficCounts {
			key := appOf("dmm").spawn(n)
			s.rows = append(s.rows,
				row(partTraffic, fmt.Sprintf("dmm_traffic_subset_%d", n), "MB", megabytes(m.traffics(key))).Noting("%d elements map the rows and columns that they need, and a node keeps them", n),
				row(partTraffic, fmt.Sprintf("dmm_traffic_whole_%d", n), "MB", megabytes(m.traffics(wholeKey(n)))).Noting("%d elements map both matrices whole, and a node keeps them", n),
				row(partTraffic, fmt.Sprintf("dmm_traffic_apart_%d", n), "MB", megabytes(apart(m, n))).Noting("computed: what %d elements, where they were, would move if nodes kept nothing", n),
				row(partTraffic, fmt.Sprintf("dmm_traffic_saved_%d", n), "%", saved(m, n)).Noting("subset against apart: keeping what others of the node have mapped"))
		}
		s.rows[3] = s.rows[3].Against(paperSavedLeast)
		s.rows[len(s.rows)-1] = s.rows[len(s.rows)-1].Against(paperSavedMost)
		return s
	},
}

// What the paper saves with 4 x 4 and with 8 x 8 tiles, in per cent.
const (
	paperSavedLeast = 33
	paperSavedMost  = 65
)

func (m *measured) traffics(key string) []float64 {
	return m.values(key, func(o *outcome) float64 { return float64(o.Traffic) })
}

func megabytes(bytes []float64) []float64 {
	all := make([]float64, len(bytes))
	for i, b := range bytes {
		all[i] = b / 1e6
	}
	return all
}

// apart is what elements on other nodes than the first, where the matrices are, would move if each fetched its rows and
// columns for itself. Results move once in any case.
func apart(m *measured, tiles int) []float64 {
	a := appOf("dmm")
	n, side := float64(a.size), 1.0
	for side*side < float64(tiles) {
		side++
	}
	return m.values(a.spawn(tiles), func(o *outcome) float64 {
		remote := 0.0
		for _, done := range o.Work[1:] {
			remote += float64(done)
		}
		return remote * 4 * (2*n*n/side + n*n/float64(tiles))
	})
}

// saved is by how many per cent what moves is less than apart.
func saved(m *measured, tiles int) []float64 {
	moved, all := m.traffics(appOf("dmm").spawn(tiles)), apart(m, tiles)
	list := make([]float64, len(moved))
	for i := range moved {
		list[i] = 100 * (1 - moved[i]/all[i])
	}
	return list
}

const partModel = "The cost model: what a schedule in virtual time says of the same runs"

// predicted is how long DS-LB takes by the model: whichever GPU is free first takes the next portion, and each portion costs
// its part of the work and a creation. Both come from the run with one element a GPU, in which the slowest GPU decides.
func predicted(m *measured, a *app, n int) float64 {
	first, created := median(m.seconds(a.spawn(smallest))), m.created(a.spawn(smallest))
	all := speeds()
	work := (first - created) * float64(len(all)) // on a C2050, alone
	free := make([]float64, len(all))
	last := 0.0
	for range n {
		next := 0
		for i := range free {
			if free[i] < free[next] {
				next = i
			}
		}
		free[next] += created + work/float64(n)/all[next]
		last = max(last, free[next])
	}
	return last
}

func (m *measured) created(key string) float64 {
	return median(m.values(key, func(o *outcome) float64 { return o.Created }))
}

func modelRows(m *measured) []exp.Row {
	var rows []exp.Row
	for _, a := range apps {
		if !m.has(a.spawn(smallest)) {
			continue
		}
		for _, n := range counts[1:] {
			p, is := predicted(m, a, n), median(m.seconds(a.spawn(n)))
			rows = append(rows, exp.Over(partModel, fmt.Sprintf("%s_model_error_%d", a.key, n), "%", []float64{100 * (p/is - 1)}).Noting("predicted %.2f s, measured %.2f s; an element took %.3f s to create", p, is, m.created(a.spawn(n))))
		}
	}
	return rows
}
