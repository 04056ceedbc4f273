package noderuntime

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"muster/report"
	"muster/wire/control"
)

// vgpuCounts are those of Figs. 3-7 and 3-8.
var vgpuCounts = []int{1, 2, 4, 8}

// draw chooses short programs, the same ones for the same dice.
func (l *lab) draw(dice *rand.Rand, jobs int) ([]*script, error) {
	all := make([]*script, jobs)
	for i := range all {
		var err error
		if all[i], err = l.short.write(l.ctx, shortPrograms[dice.IntN(len(shortPrograms))]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// drawn measures some short programs on GPUs, bare (0 vGPUs) or shared.
func drawn(key string, jobs, vgpus int, cards ...card) measurement {
	return measurement{key, func(l *lab, dice *rand.Rand) (outcome, error) {
		scripts, err := l.draw(dice, jobs)
		if err != nil {
			return outcome{}, err
		}
		if vgpus > 0 {
			return onNode(l.ctx, setting{devices: short.devices(cards...), vgpus: vgpus}, scripts)
		}
		var devices []control.DeviceConfig
		for _, d := range short.devices(cards...) {
			devices = append(devices, d.DeviceConfig)
		}
		return onBare(devices, scripts)
	}}
}

// maxBare is how many programs the paper's CUDA could serve at a time.
const maxBare = 8

// drawnFigure is Fig. 3-7 or 3-8: numbers of short programs, bare and shared.
type drawnFigure struct {
	key, part string
	cards     []card
	counts    []int // all of the paper's
	some      []int
}

func (f *drawnFigure) name(jobs, vgpus int) string {
	if vgpus == 0 {
		return fmt.Sprintf("%s_%djobs_bare", f.key, jobs)
	}
	return fmt.Sprintf("%s_%djobs_%dvgpus", f.key, jobs, vgpus)
}

func (f *drawnFigure) plan(all bool) []measurement {
	counts := f.some
	if all {
		counts = f.counts
	}
	var list []measurement
	for _, jobs := range counts {
		for _, v := range append([]int{0}, vgpuCounts...) {
			if v > 0 || jobs <= maxBare {
				list = append(list, drawn(f.name(jobs, v), jobs, v, f.cards...))
			}
		}
	}
	return list
}

// bars shows the times of all measured numbers of programs.
func (f *drawnFigure) bars(m measured, note string) *report.Bars {
	b := &report.Bars{Title: f.part, YLabel: "seconds until all are done", Note: note}
	var counts []int
	for _, jobs := range f.counts {
		if m.has(f.name(jobs, 1)) {
			counts = append(counts, jobs)
			b.Groups = append(b.Groups, plural(jobs, "program"))
		}
	}
	for _, v := range append([]int{0}, vgpuCounts...) {
		label := "bare"
		if v > 0 {
			label = plural(v, "vGPU")
		}
		s := report.BarSeries{Name: label}
		for _, jobs := range counts {
			low, mid, high := nothing, nothing, nothing
			if values := m.seconds(f.name(jobs, v)); len(values) > 0 {
				one := series("", [][]float64{values})
				low, mid, high = one.Lo[0], one.Values[0], one.Hi[0]
			}
			s.Lo, s.Values, s.Hi = append(s.Lo, low), append(s.Values, mid), append(s.Hi, high)
		}
		b.Series = append(b.Series, s)
	}
	return b
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

var overhead = drawnFigure{
	key: "fig3_7", part: "Fig. 3-7: overhead, one GPU", cards: []card{c2050},
	counts: []int{1, 2, 3, 4, 5, 6, 7, 8}, some: []int{1, 2, 4, 8},
}

var overheadFigure = figure{name: "3-7", part: overhead.part, plan: overhead.plan, show: func(m measured) shown {
	var s shown
	worst := map[int][][]float64{}
	for _, jobs := range overhead.counts {
		for _, v := range vgpuCounts {
			key := overhead.name(jobs, v)
			if !m.has(key) {
				continue
			}
			over := m.ratios(key, overhead.name(jobs, 0))
			s.rows = append(s.rows, row(overhead.part, key+"_over_bare", "x bare", over))
			for i := range over {
				over[i] = 100 * (over[i] - 1)
			}
			worst[v] = append(worst[v], over)
		}
	}
	var all [][]float64
	for _, v := range vgpuCounts {
		all = append(all, worst[v]...)
		s.rows = append(s.rows, row(overhead.part, fmt.Sprintf("fig3_7_all_%dvgpus_over_bare", v), "x bare", overhead.sums(m, v)).
			Noting("the times of all numbers of programs together, which vary less"))
	}
	s.rows = append(s.rows, row(overhead.part, "fig3_7_worst_overhead_pct", "%", mostOf(all)).Against(10).
		Noting("the paper: in the worst case about 10 %% of the execution time"))
	s.rows = append(s.rows, row(overhead.part, "fig3_7_worst_overhead_4vgpus_pct", "%", mostOf(worst[4])))
	s.pictures = append(s.pictures, overhead.bars(m, "Short programs, drawn at random; the same ones for all bars of a group. The paper's values are not in its text."))
	return s
}}

// sums are, run by run, the times of all numbers of programs over those of bare
// ones.
func (f *drawnFigure) sums(m measured, vgpus int) []float64 {
	var over, bare []float64
	for _, jobs := range f.counts {
		for i, seconds := range m.seconds(f.name(jobs, vgpus)) {
			if i == len(over) {
				over, bare = append(over, 0), append(bare, 0)
			}
			over[i] += seconds
			bare[i] += m.seconds(f.name(jobs, 0))[i]
		}
	}
	for i := range over {
		over[i] /= bare[i]
	}
	return over
}

var sharing = drawnFigure{
	key: "fig3_8", part: "Fig. 3-8: sharing, three GPUs", cards: []card{c2050, c2050, c1060},
	counts: []int{8, 16, 24, 32, 40, 48}, some: []int{8, 24, 48},
}

var sharingFigure = figure{name: "3-8", part: sharing.part, plan: sharing.plan, show: func(m measured) shown {
	var s shown
	for _, jobs := range sharing.counts {
		for _, v := range vgpuCounts {
			key := sharing.name(jobs, v)
			if !m.has(key) {
				continue
			}
			if bare := sharing.name(jobs, 0); m.has(bare) {
				r := row(sharing.part, key+"_over_bare", "x bare", m.ratios(key, bare))
				if v == 4 {
					r = r.Noting("the paper: some gain over bare CUDA with four vGPUs, since programs are spread by load")
				}
				s.rows = append(s.rows, r)
			}
			if v > 1 {
				r := row(sharing.part, key+"_over_1vgpu", "x 1 vGPU", m.ratios(key, sharing.name(jobs, 1)))
				if v == 8 {
					r = r.Noting("the paper: no significant gain beyond four vGPUs")
				}
				s.rows = append(s.rows, r)
			}
		}
	}
	s.pictures = append(s.pictures, sharing.bars(m, "Bare CUDA could not serve more than eight programs; here bare is shown up to eight too."))
	return s
}}

// manyLong is how many long programs run in Figs. 3-9 and 3-10.
const manyLong = 36

// longOnes measures long programs on the node with three GPUs.
func longOnes(key string, vgpus, others int, cpu float64) measurement {
	return measurement{key, func(l *lab, dice *rand.Rand) (outcome, error) {
		large := matmulLarge
		large.cpu = cpu
		scripts := make([]*script, manyLong)
		for i := range scripts {
			p := large
			if i < others {
				p = optionsLarge
			}
			var err error
			if scripts[i], err = l.long.write(l.ctx, p); err != nil {
				return outcome{}, err
			}
		}
		dice.Shuffle(len(scripts), func(i, k int) { scripts[i], scripts[k] = scripts[k], scripts[i] })
		return onNode(l.ctx, setting{devices: long.devices(c2050, c2050, c1060), vgpus: vgpus}, scripts)
	}}
}

// longFigure is Fig. 3-9 or 3-10: long programs, alone on a GPU and sharing it.
type longFigure struct {
	key, part, metric string
	points, some      []int // hundredths
	label             func(point int) string
	make              func(key string, vgpus, point int) measurement
}

func (f *longFigure) name(point, vgpus int) string {
	return fmt.Sprintf("%s_%s%d_%dvgpus", f.key, f.metric, point, vgpus)
}

// serial and shared are the vGPUs that are compared.
const serial, shared = 1, 4

func (f *longFigure) plan(all bool) []measurement {
	points := f.some
	if all {
		points = f.points
	}
	var list []measurement
	for _, p := range points {
		for _, v := range []int{serial, shared} {
			list = append(list, f.make(f.name(p, v), v, p))
		}
	}
	return list
}

func (f *longFigure) show(m measured, note func(point int) string) shown {
	var s shown
	b := &report.Bars{Title: f.part, YLabel: "seconds until all are done", Note: "The paper's values are not in its text, only their direction."}
	swaps := &report.Bars{Title: f.part + ": swap operations", YLabel: "swaps"}
	var alone, together, moved [][]float64
	for _, p := range f.points {
		one, four := f.name(p, serial), f.name(p, shared)
		if !m.has(one) {
			continue
		}
		b.Groups, swaps.Groups = append(b.Groups, f.label(p)), append(swaps.Groups, f.label(p))
		alone, together, moved = append(alone, m.seconds(one)), append(together, m.seconds(four)), append(moved, m.swaps(four))
		s.rows = append(s.rows,
			row(f.part, one+"_s", "s", m.seconds(one)),
			row(f.part, four+"_s", "s", m.seconds(four)),
			row(f.part, four+"_over_serial", "x 1 vGPU", m.ratios(four, one)).Noting("%s", note(p)),
			row(f.part, one+"_swaps", "swaps", m.swaps(one)),
			row(f.part, four+"_swaps", "swaps", m.swaps(four)))
	}
	b.Series = []report.BarSeries{series("1 vGPU, one after the other", alone), series("4 vGPUs, sharing", together)}
	swaps.Series = []report.BarSeries{series("4 vGPUs", moved)}
	s.pictures = []report.Section{b, swaps}
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

var swappingFigure = figure{name: "3-9", part: swapping.part, plan: swapping.plan, show: func(m measured) shown {
	s := swapping.show(m, func(int) string { return "below 1: sharing is faster" })
	for _, f := range []struct {
		vgpus int
		what  string
	}{{serial, "serial"}, {shared, "sharing"}} {
		growth := row(swapping.part, "fig3_9_growth_"+f.what, "x CPU 0", m.ratios(swapping.name(200, f.vgpus), swapping.name(0, f.vgpus)))
		if f.vgpus == shared {
			growth = growth.Against(1).Noting("time with a CPU fraction of 2 over that with 0; the paper: kept constant")
		} else {
			growth = growth.Noting("time with a CPU fraction of 2 over that with 0; the paper: grows linearly")
		}
		s.rows = append(s.rows, growth)
	}
	return s
}}

var mix = longFigure{
	key: "fig3_10", part: "Fig. 3-10: 36 programs, BS-L and MM-L", metric: "bsl",
	points: []int{100, 75, 50, 25, 0}, some: []int{100, 75, 50, 25, 0},
	label: func(p int) string { return fmt.Sprintf("%d/%d", p, 100-p) },
	make: func(key string, vgpus, point int) measurement {
		return longOnes(key, vgpus, manyLong*point/100, 1)
	},
}

var mixFigure = figure{name: "3-10", part: mix.part, plan: mix.plan, show: func(m measured) shown {
	return mix.show(m, func(point int) string {
		if point == 75 {
			return "the paper: above 1, sharing is slower here"
		}
		return "the paper: the gain grows with the share of MM-L"
	})
}}
