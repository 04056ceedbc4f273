package noderuntime

import (
	"fmt"
	"math/rand/v2"

	"muster/exp"
	"muster/exp/bench"
	"muster/internal/units"
	"muster/report"
)

// vgpuCounts are the numbers of virtual GPUs in Figs. 3-7 and 3-8.
var vgpuCounts = []int{1, 2, 4, 8}

// draw selects short programs at random. Equal dice give equal programs.
func draw(dice *rand.Rand, jobs int) []program {
	all := make([]program, jobs)
	for i := range all {
		all[i] = shortPrograms[dice.IntN(len(shortPrograms))]
	}
	return all
}

// drawnFigure is Fig. 3-7 or 3-8: varying numbers of short programs that share GPUs, beside the
// time that the GPUs alone need for them.
type drawnFigure struct {
	key, part string
	cards     []card
	counts    []int // all of the paper's
	some      []int
}

func (f *drawnFigure) name(jobs, vgpus int) string {
	return fmt.Sprintf("%s_%djobs_%dvgpus", f.key, jobs, vgpus)
}

// own is the key of the GPUs' own time for a number of programs.
func (f *drawnFigure) own(jobs int) string { return fmt.Sprintf("%s_%djobs_gpu", f.key, jobs) }

func (f *drawnFigure) plan(m *measured) []measurement {
	var list []measurement
	for _, jobs := range m.chosen(f.some, f.counts) {
		list = append(list, measurement{f.own(jobs), func(l *lab, dice *rand.Rand) (outcome, error) {
			known, err := l.alone(short, shortPrograms...)
			return outcome{Timing: bench.Timing{Seconds: f.dealt(known, draw(dice, jobs))}}, err
		}})
		for _, v := range vgpuCounts {
			list = append(list, measurement{f.name(jobs, v), func(l *lab, dice *rand.Rand) (outcome, error) {
				var run []job
				for _, p := range draw(dice, jobs) {
					run = append(run, p.of())
				}
				return l.run(setting{devices: short.devices(f.cards...), vgpus: v}, run, openAtOnce)
			}})
		}
	}
	return list
}

// dealt is the time for programs that are assigned to the GPUs round-robin, as programs do that
// choose a device themselves, if only kernels and copies took time. A GPU runs its kernels one
// after the other, and copies concurrently with them.
func (f *drawnFigure) dealt(known map[string]alone, programs []program) float64 {
	most, kernels, copies := 0.0, make([]float64, len(f.cards)), make([]float64, len(f.cards))
	for i, p := range programs {
		c := i % len(f.cards)
		kernels[c] += known[p.name].Kernel / power(f.cards[c])
		copies[c] += known[p.name].Copy
		most = max(most, kernels[c], copies[c])
	}
	return most
}

// bars shows the times of all measured numbers of programs.
func (f *drawnFigure) bars(m *measured, note string) *report.Bars {
	b := &report.Bars{Title: f.part, YLabel: "seconds until all are done", Note: note}
	var own [][]float64
	shared := make([][][]float64, len(vgpuCounts))
	for _, jobs := range f.counts {
		if !m.Has(f.own(jobs)) {
			continue
		}
		b.Groups = append(b.Groups, units.Plural(jobs, "program"))
		own = append(own, m.Seconds(f.own(jobs)))
		for i, v := range vgpuCounts {
			shared[i] = append(shared[i], m.Seconds(f.name(jobs, v)))
		}
	}
	b.Series = []report.BarSeries{exp.MedianBars("the GPUs' own time, computed", own)}
	b.Series[0].Reference = true
	for i, v := range vgpuCounts {
		b.Series = append(b.Series, exp.MedianBars(units.Plural(v, "vGPU"), shared[i]))
	}
	return b
}

// over sums the times over all numbers of programs, and divides by the same sum for another column,
// run by run. The sums vary less than single times.
func (f *drawnFigure) over(m *measured, a, b func(jobs int) string) []float64 {
	var above, below []float64
	for _, jobs := range f.counts {
		for i, seconds := range m.Seconds(a(jobs)) {
			if i == len(above) {
				above, below = append(above, 0), append(below, 0)
			}
			above[i] += seconds
			below[i] += m.Seconds(b(jobs))[i]
		}
	}
	for i := range above {
		above[i] /= below[i]
	}
	return above
}

// overheads are the times at all measured points divided by the GPUs' own time.
func (f *drawnFigure) overheads(m *measured) [][]float64 {
	var all [][]float64
	for _, v := range vgpuCounts {
		for _, jobs := range f.counts {
			if key := f.name(jobs, v); m.Has(key) && (jobs > 1 || v == 1) { // a single program uses at most one vGPU
				all = append(all, m.Ratios(key, f.own(jobs)))
			}
		}
	}
	return all
}

// with is the column for a number of vGPUs.
func (f *drawnFigure) with(vgpus int) func(jobs int) string {
	return func(jobs int) string { return f.name(jobs, vgpus) }
}

var overhead = drawnFigure{
	key: "fig3_7", part: "Fig. 3-7: overhead, one GPU", cards: []card{c2050},
	counts: []int{1, 2, 3, 4, 5, 6, 7, 8}, some: []int{1, 4, 8},
}

var overheadFigure = describe("3-7", overhead.part, shortScaled, overhead.plan, func(m *measured) bench.Shown {
	var s bench.Shown
	for _, v := range vgpuCounts {
		for _, jobs := range overhead.counts {
			if key := overhead.name(jobs, v); m.Has(key) {
				s.Rows = append(s.Rows, exp.OverMedian(overhead.part, key+"_over_gpu", "x GPU time", m.Ratios(key, overhead.own(jobs))))
			}
		}
	}
	for _, v := range vgpuCounts {
		s.Rows = append(s.Rows, exp.OverMedian(overhead.part, fmt.Sprintf("fig3_7_all_%dvgpus_over_gpu", v), "x GPU time", overhead.over(m, overhead.with(v), overhead.own)).
			Noting("the times of all numbers of programs together, which vary less"))
	}
	s.Rows = append(s.Rows, exp.OverMedian(overhead.part, "fig3_7_worst_overhead_pct", "%", []float64{100 * (most(overhead.overheads(m)) - 1)}).Against(10).
		Noting("the paper: about 10 %% of the execution time, over bare CUDA; ours is over kernels and copies alone, with which no driver can do"))
	s.Pictures = append(s.Pictures, overhead.bars(m, "Short programs, drawn at random; the same ones for all bars of a group. The paper's values are not in its text."))
	return s
})

var sharing = drawnFigure{
	key: "fig3_8", part: "Fig. 3-8: sharing, three GPUs", cards: []card{c2050, c2050, c1060},
	counts: []int{8, 16, 24, 32, 40, 48}, some: []int{8, 48},
}

var sharingFigure = describe("3-8", sharing.part, shortScaled, sharing.plan, func(m *measured) bench.Shown {
	var s bench.Shown
	for _, jobs := range sharing.counts {
		for _, v := range vgpuCounts {
			key := sharing.name(jobs, v)
			if !m.Has(key) {
				continue
			}
			s.Rows = append(s.Rows, exp.OverMedian(sharing.part, key+"_over_dealt", "x dealt", m.Ratios(key, sharing.own(jobs))).
				Noting("over programs that are dealt to the GPUs in turn and cost kernels and copies alone; the paper: with 4 vGPUs some gain over bare CUDA"))
			if v > 1 {
				s.Rows = append(s.Rows, exp.OverMedian(sharing.part, key+"_over_1vgpu", "x 1 vGPU", m.Ratios(key, sharing.name(jobs, 1))))
			}
		}
	}
	s.Pictures = append(s.Pictures, sharing.bars(m, "The GPUs' own time is of programs that are dealt to them in turn. Bare CUDA could not serve more than eight."))
	return s
})

// manyLong is the number of long programs in Figs. 3-9 and 3-10.
const manyLong = 36

// longOnes measures long programs on the node with three GPUs.
func longOnes(key string, vgpus, others int, cpu float64) measurement {
	return measurement{key, func(l *lab, dice *rand.Rand) (outcome, error) {
		known, err := l.alone(long, matmulLarge, optionsLarge)
		if err != nil {
			return outcome{}, err
		}
		jobs := longMix(dice, known, manyLong, others, cpu)
		return l.run(setting{devices: long.devices(c2050, c2050, c1060), vgpus: vgpus}, jobs, openAtOnce)
	}}
}

// longMix has count jobs in random order: others of them are BS-L, the rest MM-L with CPU phases.
func longMix(dice *rand.Rand, known map[string]alone, count, others int, cpu float64) []job {
	jobs := make([]job, count)
	for i := range jobs {
		jobs[i] = matmulLarge.withCPU(known[matmulLarge.name], cpu)
		if i < others {
			jobs[i] = optionsLarge.of()
		}
	}
	dice.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	return jobs
}

// longFigure is Fig. 3-9 or 3-10: long programs, alone on a GPU and sharing it.
type longFigure struct {
	key, part, metric string
	points, some      []int // per cent
	label             func(point int) string
	make              func(key string, vgpus, point int) measurement
}

func (f *longFigure) name(point, vgpus int) string {
	return fmt.Sprintf("%s_%s%d_%dvgpus", f.key, f.metric, point, vgpus)
}

// serial and shared are the numbers of vGPUs that are compared.
const serial, shared = 1, 4

func (f *longFigure) plan(m *measured) []measurement {
	var list []measurement
	for _, p := range m.chosen(f.some, f.points) {
		for _, v := range []int{serial, shared} {
			list = append(list, f.make(f.name(p, v), v, p))
		}
	}
	return list
}

func (f *longFigure) show(m *measured, note func(point int) string) bench.Shown {
	var s bench.Shown
	b := &report.Bars{Title: f.part, YLabel: "seconds until all are done", Note: "On each bar its swap operations. The paper's values are not in its text, only their direction."}
	var alone, together, still, moved [][]float64
	for _, p := range f.points {
		one, four := f.name(p, serial), f.name(p, shared)
		if !m.Has(one) {
			continue
		}
		b.Groups = append(b.Groups, f.label(p))
		alone, together = append(alone, m.Seconds(one)), append(together, m.Seconds(four))
		still, moved = append(still, m.swaps(one)), append(moved, m.swaps(four))
		s.Rows = append(s.Rows,
			exp.OverMedian(f.part, one+"_s", "s", m.Seconds(one)),
			exp.OverMedian(f.part, four+"_s", "s", m.Seconds(four)),
			exp.OverMedian(f.part, four+"_over_serial", "x 1 vGPU", m.Ratios(four, one)).Noting("%s", note(p)),
			exp.OverMedian(f.part, one+"_swaps", "swaps", m.swaps(one)),
			exp.OverMedian(f.part, four+"_swaps", "swaps", m.swaps(four)))
	}
	b.Series = []report.BarSeries{marked(exp.MedianBars("1 vGPU, one after the other", alone), still), marked(exp.MedianBars("4 vGPUs, sharing", together), moved)}
	s.Pictures = []report.Section{b}
	return s
}

var swapping = longFigure{
	key: "fig3_9", part: "Fig. 3-9: 36 large matrix products that do not fit", metric: "cpu",
	points: []int{0, 50, 100, 150, 200}, some: []int{0, 100, 200},
	label: func(p int) string { return fmt.Sprintf("CPU %.1f", float64(p)/100) },
	make: func(key string, vgpus, point int) measurement {
		return longOnes(key, vgpus, 0, float64(point)/100)
	},
}

var swappingFigure = describe("3-9", swapping.part, longScaled, swapping.plan, func(m *measured) bench.Shown {
	s := swapping.show(m, func(int) string { return "below 1: sharing is faster" })
	for _, f := range []struct {
		vgpus int
		what  string
	}{{serial, "serial"}, {shared, "sharing"}} {
		growth := exp.OverMedian(swapping.part, "fig3_9_growth_"+f.what, "x CPU 0", m.Ratios(swapping.name(200, f.vgpus), swapping.name(0, f.vgpus)))
		if f.vgpus == shared {
			growth = growth.Against(1).Noting("time with a CPU fraction of 2 over that with 0; the paper: kept constant")
		} else {
			growth = growth.Noting("time with a CPU fraction of 2 over that with 0; the paper: grows linearly")
		}
		s.Rows = append(s.Rows, growth)
	}
	return s
})

var mix = longFigure{
	key: "fig3_10", part: "Fig. 3-10: 36 programs, BS-L and MM-L", metric: "bsl",
	points: []int{100, 75, 50, 25, 0}, some: []int{75, 25},
	label: func(p int) string { return fmt.Sprintf("%d/%d", p, 100-p) },
	make: func(key string, vgpus, point int) measurement {
		return longOnes(key, vgpus, manyLong*point/100, 1)
	},
}

var mixFigure = describe("3-10", mix.part, longScaled, mix.plan, func(m *measured) bench.Shown {
	return mix.show(m, func(point int) string {
		if point == 75 {
			return "the paper: above 1, sharing is slower here"
		}
		return "the paper: the gain grows with the share of MM-L"
	})
})
