package noderuntime

import (
	"fmt"
	"slices"
	"strings"

	"muster/exp"
)

// scaling is a quantity with its value in the paper and here.
type scaling struct {
	metric, unit string
	paper        float64
	paperHigh    float64 // above 0 if the paper gives a range
	ours         func(m *measured) float64
	note         string
}

const partScale = "What was scaled"

// defaultScale is the divisor of the paper's numbers of iterations.
const defaultScale = 20

// scaledRows list what is smaller than in the paper in the figures that were measured.
func scaledRows(m *measured) []exp.Row {
	var rows []exp.Row
	seen := map[string]bool{}
	for _, f := range figures() {
		for _, s := range f.scaled {
			ours := s.ours(m)
			if !slices.Contains(m.Figures, f.Name) || seen[s.metric] || ours == 0 { // 0: not measured
				continue
			}
			seen[s.metric] = true
			r := exp.Single(partScale, s.metric, s.unit, ours).Against(s.paper)
			if s.paperHigh > 0 {
				r = r.AgainstRange(s.paper, s.paperHigh)
			}
			r.Note = s.note
			rows = append(rows, r)
		}
	}
	return rows
}

var (
	shortScaled       = append(programsScaled("scale_short", short, []card{c2050, c1060}), eachScaled(shortPrograms...)...)
	longScaled        = append(programsScaled("scale_long", long, []card{c2050, c1060}), eachScaled(matmulLarge, optionsLarge)...)
	migrationScaled   = append(programsScaled("scale_migration", moved, []card{c2050, quadro2000}), eachScaled(matmulSmall)...)
	preliminaryScaled = append(processesScaled(), phaseScaled("0.5s", preliminaryPhase, preliminaryIteration)...)
	parallelScaled    = append(processesScaled()[:3], append(phaseScaled("0.3s", 0.3, 200), scaling{metric: "scale_multi_mpi_bytes_each", unit: "bytes", paper: 100e3, ours: fixed(sentByProcess), note: "sent by MPI in an iteration, for each process of the program"})...)
	laterScaled       = append(append(processesScaled(), phaseScaled("0.3s", 0.3, 200)...), onlyOfAll(phaseScaled("3s", 3, 20))...)
)

func fixed(v float64) func(*measured) float64 { return func(*measured) float64 { return v } }

// programsScaled has the memory and the link of the GPUs, for single-process programs.
func programsScaled(prefix string, s scale, cards []card) []scaling {
	var list []scaling
	for _, c := range cards {
		key := prefix + "_" + strings.ToLower(strings.ReplaceAll(c.Name, " ", ""))
		list = append(list,
			scaling{metric: key + "_memory_mib", unit: "MiB", paper: 1024 * c.Memory, ours: fixed(float64(s.bytes(c) >> 20))},
			scaling{metric: key + "_speed", unit: "of a C2050", paper: power(c), ours: fixed(power(c)),
				note: fmt.Sprintf("cores x clock; here %.0f million operations a second", s.rateOf(c)/1e6)})
	}
	return append(list, scaling{metric: prefix + "_copies_gbs", unit: "GB/s", paper: pcie / 1e9, ours: fixed(s.copies / 1e9), note: "PCI Express 2.0, as the paper's GPUs have it; in proportion to memory and time"})
}

// eachScaled has the kernel calls and the times of programs.
func eachScaled(list ...program) []scaling {
	var all []scaling
	for _, p := range list {
		key := "scale_" + strings.ToLower(strings.ReplaceAll(p.name, "-", "_"))
		size := fmt.Sprintf("the paper: %s; here: %s (%s)", p.size, p.our, strings.Join(p.words, " "))
		low, high := p.seconds, 0.0
		if p.seconds < 5 {
			low, high = 3, 5
		}
		all = append(all,
			scaling{metric: key + "_calls", unit: "kernel calls", paper: float64(p.calls), ours: func(m *measured) float64 { return float64(m.Alone[p.name].Kernels) }, note: size},
			scaling{metric: key + "_alone_s", unit: "s", paper: low, paperHigh: high, ours: func(m *measured) float64 { return m.Alone[p.name].Seconds },
				note: "alone on a C2050, without CPU phases"})
	}
	return all
}

// processesScaled has what all multi-process programs have in common.
func processesScaled() []scaling {
	return []scaling{
		{metric: "scale_multi_gtx480_memory_mib", unit: "MiB", paper: 1024, ours: fixed(float64(multi.bytes(gtx480) >> 20)), note: "it is never short"},
		{metric: "scale_multi_max_idle_ms", unit: "ms", paper: 1e3 * paperMaxIdle, ours: fixed(1e3 * multi.duration(paperMaxIdle).Seconds()), note: "the maximum idle time of preemptive schemes"},
		{metric: "scale_multi_gpu_bytes", unit: "bytes", paper: 100e3, ours: fixed(gpuBytes), note: "copied to the GPU and back in an iteration"},
		{metric: "scale_multi_mpi_bytes", unit: "bytes", paper: 400e3, ours: fixed(mpiBytes), note: "sent by MPI in an iteration"},
	}
}

// phaseScaled has the phases of multi-process programs.
func phaseScaled(key string, seconds float64, iterations int) []scaling {
	return []scaling{
		{metric: "scale_multi_" + key + "_phase_s", unit: "s", paper: seconds, ours: fixed(multi.duration(seconds).Seconds()), note: "a GPU phase; CPU phases are in proportion"},
		{metric: "scale_multi_" + key + "_iterations", unit: "iterations", paper: float64(iterations), ours: func(m *measured) float64 { return float64(m.iterationsOf(iterations)) },
			note: "--scale 1 makes all of the paper's"},
	}
}

// onlyOfAll marks scalings that apply only if all points of a figure are measured.
func onlyOfAll(list []scaling) []scaling {
	for i := range list {
		ours := list[i].ours
		list[i].ours = func(m *measured) float64 {
			if !m.All {
				return 0
			}
			return ours(m)
		}
	}
	return list
}
