package ivm

import (
	"fmt"
	"math"

	"muster/exp"
)

const partTraffic = "Section 5.5.2: what DMM moves between nodes"

// trafficCounts are the numbers of tiles: 4 x 4 to 8 x 8.
var trafficCounts = []int{16, 36, 64}

// The matrices of these runs are twice as large each way as those of Fig. 5-5, so that data are most of what moves, and
// the GPUs as many times faster as that is more work.
const (
	trafficSize = 432
	trafficFast = 8
)

// trafficKey is a run of DMM: subset, whole, or control, with matrices of hardly anything.
func trafficKey(what string, tiles int) string { return fmt.Sprintf("dmm_traffic_%s_%d", what, tiles) }

var trafficFigure = figure{name: "traffic", part: partTraffic,
	plan: func() []measurement {
		var plan []measurement
		add := func(what string, size, n int, more ...string) {
			one := appOf("dmm").runSpawn(trafficKey(what, n), size, n, more...)
			one.on.faster = trafficFast
			plan = append(plan, one)
		}
		for _, n := range trafficCounts {
			add("subset", trafficSize, n)
			add("whole", trafficSize, n, "--whole")
			add("control", appOf("dmm").small, n)
		}
		return plan
	},
	show: func(m *measured) shown {
		var s shown
		for _, n := range trafficCounts {
			s.rows = append(s.rows,
				exp.OverMedian(partTraffic, trafficKey("subset_mb", n), "MB", megabytes(m.moved("subset", n))).Noting("%d elements map the rows and columns that they need, and a node keeps them", n),
				exp.OverMedian(partTraffic, trafficKey("whole_mb", n), "MB", megabytes(m.moved("whole", n))).Noting("%d elements map both matrices whole, and a node keeps them", n),
				exp.OverMedian(partTraffic, trafficKey("apart_mb", n), "MB", megabytes(apart(m, n))).Noting("computed: what %d elements, where they were, would move if nodes kept nothing", n),
				exp.OverMedian(partTraffic, trafficKey("saved", n), "%", saved(m, n)).Noting("subset against apart: keeping what others of the node have mapped"))
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

// moved is what a run moved, less what as many elements on the same hosts move for hardly any data: their creation, and
// what they say.
func (m *measured) moved(what string, tiles int) []float64 {
	var all []float64
	for i, o := range m.Outcomes[trafficKey(what, tiles)] {
		control := m.Outcomes[trafficKey("control", tiles)][i]
		each := float64(control.Traffic) / max(1, remote(&control))
		all = append(all, max(0, float64(o.Traffic)-each*remote(&o)))
	}
	return all
}

// remote is how many elements, each with its tile, were on other hosts than the first, where the matrices are.
func remote(o *outcome) float64 {
	sum := int64(0)
	for _, n := range o.Work[1:] {
		sum += n
	}
	return float64(sum)
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
	n, side := float64(trafficSize), math.Sqrt(float64(tiles))
	return m.Values(trafficKey("subset", tiles), func(o *outcome) float64 {
		return remote(o) * 4 * (2*n*n/side + n*n/float64(tiles))
	})
}

// saved is by how many per cent what moves is less than apart.
func saved(m *measured, tiles int) []float64 {
	moved, all := m.moved("subset", tiles), apart(m, tiles)
	list := make([]float64, len(moved))
	for i := range moved {
		list[i] = 100 * (1 - moved[i]/all[i])
	}
	return list
}
