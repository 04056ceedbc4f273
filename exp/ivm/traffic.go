package ivm

import (
	"fmt"
	"math"

	"muster/exp"
	"muster/exp/bench"
)

const partTraffic = "Section 5.5.2: what DMM moves between nodes"

// trafficCounts are the numbers of tiles: 4 x 4 to 8 x 8.
var trafficCounts = []int{16, 36, 64}

// The matrices of these runs have twice as many rows and columns as those of Fig. 5-5, so that data
// dominate the traffic. The GPUs are faster by as much as the work is more.
const (
	trafficSize = 432
	trafficFast = 8
)

// trafficKey is the key of a run of DMM. what is subset, whole, or control, whose matrices are
// tiny.
func trafficKey(what string, tiles int) string { return fmt.Sprintf("dmm_traffic_%s_%d", what, tiles) }

var trafficFigure = figure{Name: "traffic", Part: partTraffic,
	Plan: func(*measured) []measurement {
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
	Show: func(m *measured) bench.Shown {
		var s bench.Shown
		for _, n := range trafficCounts {
			s.Rows = append(s.Rows,
				exp.OverMedian(partTraffic, trafficKey("subset_mb", n), "MB", megabytes(m.moved("subset", n))).Noting("%d elements map the rows and columns that they need, and a node keeps them", n),
				exp.OverMedian(partTraffic, trafficKey("whole_mb", n), "MB", megabytes(m.moved("whole", n))).Noting("%d elements map both matrices whole, and a node keeps them", n),
				exp.OverMedian(partTraffic, trafficKey("apart_mb", n), "MB", megabytes(apart(m, n))).Noting("computed: what %d elements, where they were, would move if nodes kept nothing", n),
				exp.OverMedian(partTraffic, trafficKey("saved", n), "%", saved(m, n)).Noting("subset against apart: keeping what others of the node have mapped"))
		}
		s.Rows[3] = s.Rows[3].Against(paperSavedLeast)
		s.Rows[len(s.Rows)-1] = s.Rows[len(s.Rows)-1].Against(paperSavedMost)
		return s
	},
}

// The paper's savings with 4 x 4 and with 8 x 8 tiles, in per cent.
const (
	paperSavedLeast = 33
	paperSavedMost  = 65
)

// moved is the traffic of a run minus that of the control run, in which as many elements on the
// same hosts exchange hardly any data. The difference excludes the creation of elements and their
// messages.
func (m *measured) moved(what string, tiles int) []float64 {
	var all []float64
	for i, o := range m.Outcomes[trafficKey(what, tiles)] {
		control := m.Outcomes[trafficKey("control", tiles)][i]
		each := float64(control.Traffic) / max(1, remote(&control))
		all = append(all, max(0, float64(o.Traffic)-each*remote(&o)))
	}
	return all
}

// remote is the number of elements, each with one tile, on other hosts than the first, which holds
// the matrices.
func remote(o *outcome) float64 {
	sum := int64(0)
	for _, n := range o.Work[1:] {
		sum += n
	}
	return float64(sum)
}

func megabytes(bytes []float64) []float64 {
	return exp.Values(bytes, func(b *float64) float64 { return *b / 1e6 })
}

// apart is the traffic if each remote element fetched its rows and columns by itself. Results move
// once in any case.
func apart(m *measured, tiles int) []float64 {
	n, side := float64(trafficSize), math.Sqrt(float64(tiles))
	return m.Values(trafficKey("subset", tiles), func(o *outcome) float64 {
		return remote(o) * 4 * (2*n*n/side + n*n/float64(tiles))
	})
}

// saved is the percentage by which the traffic is below apart.
func saved(m *measured, tiles int) []float64 {
	moved, all := m.moved("subset", tiles), apart(m, tiles)
	list := make([]float64, len(moved))
	for i := range moved {
		list[i] = 100 * (1 - moved[i]/all[i])
	}
	return list
}
