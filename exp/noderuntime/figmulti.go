package noderuntime

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// point is a point on the x axis of a figure.
type point struct {
	key, label string
	programs   []parallel
	some       bool // part of the reduced plan, too
}

// inPhases is an upper bound for the speed-up over batch scheduling that a workload can reach by
// using GPUs while the phases of its programs leave them idle. Batch scheduling runs one program
// after the other, each as long as its slowest process. No schedule can be shorter than the total
// work divided by the GPUs, or than the longest program alone.
func (p *point) inPhases() float64 {
	batch, work, longest := 0.0, 0.0, 0.0
	for i := range p.programs {
		one := &p.programs[i]
		took := one.longest() * float64(one.iterations)
		batch += took
		work += one.work() * float64(one.iterations)
		longest = max(longest, took)
	}
	return batch / max(work/gpusOfNode1, longest)
}

// work is the time that all GPUs together need for the kernels of the workload as it was run. It is
// a lower bound for the makespan.
func (p *point) work(m *measured) float64 {
	kernels := 0
	for i := range p.programs {
		one := &p.programs[i]
		for rank := range one.processes {
			each := m.kernels(one.phase)
			if rank >= one.processes-one.others {
				each = int(float64(each)*(1+float64(one.imbalance)/100) + 0.5) // rounded as by the generator
			}
			kernels += each * m.iterationsOf(one.iterations)
		}
	}
	return float64(kernels) * m.Addition / gpusOfNode1
}

// parallelFigure compares schemes at several points.
type parallelFigure struct {
	key, part, title string
	schemes          []scheme
	points           []point
}

func (f *parallelFigure) name(p *point, how scheme) string {
	return fmt.Sprintf("%s_%s_%s", f.key, p.key, how.key)
}

// number is the figure's number, as "3-14a".
func (f *parallelFigure) number() string {
	return strings.ReplaceAll(strings.TrimPrefix(f.key, "fig"), "_", "-")
}

func (f *parallelFigure) plan(m *measured) []measurement {
	var list []measurement
	for i := range f.points {
		p := &f.points[i]
		if !m.All && !p.some {
			continue
		}
		for _, how := range f.schemes {
			list = append(list, measurement{f.name(p, how), func(l *lab, _ *rand.Rand) (outcome, error) { return l.runParallel(how, p.programs) }})
		}
	}
	return list
}

// speedups are the speed-ups of a scheme over batch scheduling, run by run.
func (f *parallelFigure) speedups(m *measured, p *point, how scheme) []float64 {
	return m.Ratios(f.name(p, batchScheme), f.name(p, how))
}

// speedup is the median of speedups.
func (f *parallelFigure) speedup(m *measured, p *point, how scheme) float64 {
	return exp.Median(f.speedups(m, p, how))
}

// inIdle is an upper bound for the speed-up over batch scheduling as measured: its time divided by
// the GPUs' own time, run by run.
func (f *parallelFigure) inIdle(m *measured, p *point) []float64 {
	all := m.Seconds(f.name(p, batchScheme))
	for i := range all {
		all[i] /= p.work(m)
	}
	return all
}

func (f *parallelFigure) measured(m *measured) []*point {
	var list []*point
	for i := range f.points {
		if m.Has(f.name(&f.points[i], batchScheme)) {
			list = append(list, &f.points[i])
		}
	}
	return list
}

func (f *parallelFigure) show(m *measured) bench.Shown {
	var s bench.Shown
	list := f.measured(m)
	if len(list) == 0 {
		return s
	}
	b := &report.Bars{Title: f.title, YLabel: "speed-up over batch scheduling", Note: "The outlines are the most that can be gained by using what batch scheduling left idle, as it was measured. The paper's values are not in its text."}
	bound := report.BarSeries{Name: "at most", Reference: true}
	for _, p := range list {
		b.Groups = append(b.Groups, p.label)
		idle := exp.Median(f.inIdle(m, p))
		bound.Values = append(bound.Values, idle)
		for _, how := range f.schemes[1:] {
			s.Rows = append(s.Rows, exp.OverMedian(f.part, f.name(p, how)+"_speedup", "x batch", f.speedups(m, p, how)).
				Noting("at most %.2f, by all that batch scheduling left idle; its phases alone leave %.2f", idle, p.inPhases()))
		}
	}
	b.Series = []report.BarSeries{bound}
	for _, how := range f.schemes[1:] {
		var values [][]float64
		for _, p := range list {
			values = append(values, f.speedups(m, p, how))
		}
		b.Series = append(b.Series, exp.MedianBars(how.name, values))
	}
	s.Pictures = append(s.Pictures, b)
	return s
}

// jobsOfWorkload is the number of programs in each workload.
const jobsOfWorkload = 4

// alike is a workload of identical programs.
func alike(p parallel) []parallel {
	var all []parallel
	for range jobsOfWorkload {
		all = append(all, p)
	}
	return all
}

// composition is a workload in which some programs have three processes and the
// others four.
func composition(three int, p parallel) []parallel {
	all := alike(p)
	for i := range all {
		all[i].processes = 4
		if i >= jobsOfWorkload-three {
			all[i].processes = 3
		}
	}
	return all
}

func compositionName(three int) (key, label string) {
	switch three {
	case 0:
		return "4x4", "4x[4]"
	case jobsOfWorkload:
		return "4x3", "4x[3]"
	}
	four := jobsOfWorkload - three
	return fmt.Sprintf("%dx4_%dx3", four, three), fmt.Sprintf("%dx[4]+%dx[3]", four, three)
}

// Fig. 3-14.
const (
	partPreliminary      = "Fig. 3-14: five schemes, all-to-all"
	preliminaryPhase     = 0.5
	preliminaryIteration = 200
)

var allSchemes = []scheme{batchScheme, twoWay, fourWay, preemptive, preemptiveTwoWay}

var preliminaryIntra = parallelFigure{
	key: "fig3_14a", part: partPreliminary, title: "Fig. 3-14 (a): one process of four is slower", schemes: allSchemes,
	points: func() []point {
		var all []point
		for _, percent := range []int{10, 20, 30, 40, 50} {
			all = append(all, point{
				key: fmt.Sprint(percent), label: fmt.Sprintf("%d %%", percent), some: percent == 10 || percent == 50,
				programs: alike(parallel{processes: 4, phase: preliminaryPhase / (1 + float64(percent)/100), others: 1, imbalance: percent,
					pattern: allToAll, iterations: preliminaryIteration}),
			})
		}
		return all
	}(),
}

var preliminaryInter = parallelFigure{
	key: "fig3_14b", part: partPreliminary, title: "Fig. 3-14 (b): programs of three processes among those of four", schemes: allSchemes,
	points: func() []point {
		var all []point
		for three := 1; three <= jobsOfWorkload; three++ {
			key, label := compositionName(three)
			all = append(all, point{key: key, label: label, some: three == 1 || three == jobsOfWorkload,
				programs: composition(three, parallel{phase: preliminaryPhase, pattern: allToAll, iterations: preliminaryIteration})})
		}
		return all
	}(),
}

var preliminaryFigure = joined("3-14", partPreliminary, preliminaryScaled, []*parallelFigure{&preliminaryIntra, &preliminaryInter})

// laterSchemes are those of Figs. 3-15 to 3-20.
var laterSchemes = []scheme{batchScheme, fourWay, preemptiveTwoWay}

// phase is a length of the GPU phases.
type phase struct {
	key        string
	seconds    float64
	iterations int
	some       bool
}

var phases = []phase{{"0.3s", 0.3, 200, true}, {"3s", 3, 20, false}}

// paperIntra is the largest speed-up over batch scheduling in Figs. 3-15 to 3-17.
var paperIntra = map[pattern]float64{broadcast: 1.7, scatterGather: 2.9, barrier: 2.9}

// later are the patterns of Figs. 3-15 to 3-17, and again of 3-18 to 3-20.
var later = []pattern{broadcast, scatterGather, barrier}

// intraParts are the pictures of Fig. 3-15, 3-16 or 3-17: one or three processes of
// four are faster, with either length of GPU phases.
func intraParts(number string, p pattern) []*parallelFigure {
	var parts []*parallelFigure
	for _, length := range phases {
		for _, c := range []struct {
			name   string
			faster int
		}{{"worst", 1}, {"best", 3}} {
			f := &parallelFigure{
				key: fmt.Sprintf("fig%s_%s_%s", strings.ReplaceAll(number, "-", "_"), c.name, length.key), part: intraPart(number, p), schemes: laterSchemes,
				title: fmt.Sprintf("Fig. %s: %v, %s case, GPU phases of %s", number, p, c.name, length.key),
			}
			for _, percent := range []int{10, 20, 30, 40, 50} {
				f.points = append(f.points, point{
					key: fmt.Sprint(percent), label: fmt.Sprintf("%d %%", percent), some: length.some && (percent == 50 || percent == 10 && c.faster == 3),
					programs: alike(parallel{processes: 4, phase: length.seconds, others: c.faster, imbalance: -percent, pattern: p, iterations: length.iterations}),
				})
			}
			parts = append(parts, f)
		}
	}
	return parts
}

func intraPart(number string, p pattern) string {
	return fmt.Sprintf("Fig. %s: imbalance inside programs, %v", number, p)
}

// intraFigure is Fig. 3-15, 3-16 or 3-17.
func intraFigure(number string, p pattern) figure {
	parts := intraParts(number, p)
	f := joined(number, intraPart(number, p), laterScaled, parts)
	show := f.Show
	f.Show = func(m *measured) bench.Shown {
		s := show(m)
		s.Rows = append(s.Rows, exp.OverMedian(f.Part, parts[0].key[:len("fig3_15")]+"_most_speedup", "x batch", []float64{most(gains(m, parts, preemptiveTwoWay, batchScheme))}).
			Against(paperIntra[p]).Noting("preemptive 2-way sharing over batch scheduling, the best of all points"))
		return s
	}
	return f
}

// joined is a figure that consists of several pictures.
func joined(number, part string, scaled []scaling, parts []*parallelFigure) figure {
	f := describe(number, part, scaled, func(m *measured) []measurement {
		var list []measurement
		for _, f := range parts {
			list = append(list, f.plan(m)...)
		}
		return list
	}, func(m *measured) bench.Shown {
		var s bench.Shown
		for _, f := range parts {
			one := f.show(m)
			s.Rows, s.Pictures = append(s.Rows, one.Rows...), append(s.Pictures, one.Pictures...)
		}
		return s
	})
	f.mpi, f.parts = true, parts
	return f
}

// gains are the speed-ups of one scheme over another at all measured points.
func gains(m *measured, parts []*parallelFigure, how, over scheme) [][]float64 {
	var all [][]float64
	for _, f := range parts {
		for _, p := range f.measured(m) {
			all = append(all, m.Ratios(f.name(p, over), f.name(p, how)))
		}
	}
	return all
}

// interParts are the pictures of Fig. 3-18, 3-19 or 3-20: one for each CPU phase
// and length of GPU phases.
func interParts(number string, p pattern) []*parallelFigure {
	var parts []*parallelFigure
	for _, length := range phases {
		for _, cpu := range []int{0, 50, 100} {
			f := &parallelFigure{
				key: fmt.Sprintf("fig%s_cpu%d_%s", strings.ReplaceAll(number, "-", "_"), cpu, length.key), part: interPart(number, p), schemes: laterSchemes,
				title: fmt.Sprintf("Fig. %s: %v, CPU phases of %d %%, GPU phases of %s", number, p, cpu, length.key),
			}
			for three := 0; three <= jobsOfWorkload; three++ {
				key, label := compositionName(three)
				f.points = append(f.points, point{key: key, label: label, some: length.some && (three == jobsOfWorkload && cpu != 50 || three == 0 && cpu == 0),
					programs: composition(three, parallel{phase: length.seconds, cpu: float64(cpu) / 100, pattern: p, iterations: length.iterations})})
			}
			parts = append(parts, f)
		}
	}
	return parts
}

func interPart(number string, p pattern) string {
	return fmt.Sprintf("Fig. %s: imbalance between programs, %v", number, p)
}

func interFigure(number string, p pattern) figure {
	return joined(number, interPart(number, p), laterScaled, interParts(number, p))
}

const partInterAll = "Figs. 3-18 to 3-20 together"

// intraNumber and interNumber are the figures of a pattern: with imbalance within programs, and
// between them.
func intraNumber(i int) string { return fmt.Sprintf("3-%d", 15+i) }

func interNumber(i int) string { return fmt.Sprintf("3-%d", 18+i) }

// allInter are the pictures of three figures.
func allInter() []*parallelFigure {
	var parts []*parallelFigure
	for i, p := range later {
		parts = append(parts, interParts(interNumber(i), p)...)
	}
	return parts
}

// interAll are the numbers that the paper gives for three figures together, computed from those
// that were measured.
func interAll(m *measured) []exp.Row {
	parts := allInter()
	over := gains(m, parts, preemptiveTwoWay, batchScheme)
	if len(over) == 0 {
		return nil
	}
	best := func(lists [][]float64) []float64 { return []float64{most(lists)} }
	return []exp.Row{
		exp.OverMedian(partInterAll, "fig3_18_20_most_over_batch", "x batch", best(over)).Against(3.5).Noting("preemptive 2-way sharing, the best of all points"),
		exp.OverMedian(partInterAll, "fig3_18_20_most_over_4way", "x 4-way", best(gains(m, parts, preemptiveTwoWay, fourWay))).Against(2.1).
			Noting("preemptive 2-way sharing, the best of all points"),
		exp.OverMedian(partInterAll, "fig3_18_20_most_4way_over_batch", "x batch", best(gains(m, parts, fourWay, batchScheme))),
	}
}
