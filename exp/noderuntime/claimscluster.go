package noderuntime

import (
	"fmt"

	"muster/exp"
)

// splitClaims are the claims about Figs. 3-12 and 3-13.
func splitClaims() []claim {
	return []claim{
		clusterShort.upTo("3_12_sharing", "3-12", "on two unequal nodes sharing is up to 28 % faster than one program after the other", 1.28, shared4, alone1),
		clusterShort.upTo("3_12_offload", "3-12", "where the overloaded node hands programs to the other, they are up to 18 % faster still", 1.18, offload, shared4),
		clusterLong.upTo("3_13_sharing", "3-13", "sharing is up to 50 % faster, in spite of swapping", 1.5, shared4, alone1),
		least("3_13_offload", "3-13", "and offload makes them faster still", 1, func(m *measured) (values []float64, words []string) {
			for _, count := range clusterLong.measured(m) {
				v := exp.Median(clusterLong.speedups(m, count, offload, shared4))
				values, words = append(values, v), append(words, fmt.Sprintf("%.2f times as fast with %d programs", v, count))
			}
			return values, words
		}),
	}
}

// upTo is a claim about the largest speed-up of one way over another.
func (f *splitFigure) upTo(id, figure, says string, want float64, how, over way) claim {
	return largest(id, figure, says, func(m *measured) [][]float64 { return f.gains(m, how, over) }, above(want*(1-nearly)), times("%.2f times as fast at most"))
}

// parallelClaims are the claims about Fig. 3-21.
func parallelClaims() []claim {
	faster := func(id, says string, want float64, how scheme) claim {
		return least(id, "3-21", says, want*(1-nearly), func(m *measured) (values []float64, words []string) {
			for _, processes := range clusterProcesses {
				if batch := parallelName(processes, batchScheme); m.Has(batch, parallelName(processes, how)) {
					v := m.Ratio(batch, parallelName(processes, how))
					values, words = append(values, v), append(words, fmt.Sprintf("%.2f times as fast with %d processes", v, processes))
				}
			}
			return values, words
		})
	}
	most := clusterProcesses[len(clusterProcesses)-1]
	a, b := parallelName(most, fourWay), parallelName(most, preemptiveTwoWay)
	return []claim{
		faster("3_21_4way", "over two nodes 4-way sharing is at least 25 % faster than batch scheduling", 1.25, fourWay),
		faster("3_21_preemptive", "preemptive 2-way sharing is at least 40 % faster", 1.4, preemptiveTwoWay),
		say("3_21_more_than_gpus", "3-21", "sharing runs programs of more processes than there are GPUs", []string{a, b}, func(m *measured) (bool, string) {
			return !possible(most, batchScheme), fmt.Sprintf("8 programs of %d processes on 7 GPUs: %.2f s with 4-way sharing, %.2f s with preemptive 2-way sharing", most, m.Median(a), m.Median(b))
		}),
	}
}
