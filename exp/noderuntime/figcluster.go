package noderuntime

import (
	"fmt"
	"math/rand/v2"

	"muster/exp"
	"muster/exp/bench"
	"muster/internal/units"
	"muster/report"
)

// Figs. 3-12, 3-13 and 3-21: a cluster of two unequal nodes.

// clusterCards are the GPUs of the nodes of Figs. 3-12 and 3-13.
var clusterCards = [][]card{{c2050, c2050, c1060}, {c1060}}

// way is how the nodes of a cluster share GPUs.
type way struct {
	key, name string
	vgpus     int
	offload   bool // an overloaded node passes programs on to the other
}

var (
	alone1  = way{key: "1vgpu", name: "1 vGPU, one after the other", vgpus: serial}
	shared4 = way{key: "4vgpus", name: "4 vGPUs, sharing", vgpus: shared}
	offload = way{key: "offload", name: "4 vGPUs, and offload", vgpus: shared, offload: true}
	ways    = []way{alone1, shared4, offload}
)

// splitFigure is Fig. 3-12 or 3-13: a batch queue that ignores GPUs gives both nodes the same
// number of programs.
type splitFigure struct {
	key, part, note string
	scale           scale
	counts, some    []int
	// jobs makes the jobs of a run, in the order of submission.
	jobs func(l *lab, dice *rand.Rand, count int) ([]job, error)
}

func (f *splitFigure) name(jobs int, how way) string {
	return fmt.Sprintf("%s_%djobs_%s", f.key, jobs, how.key)
}

func (f *splitFigure) plan(m *measured) []measurement {
	var list []measurement
	for _, count := range m.chosen(f.some, f.counts) {
		for _, how := range ways {
			list = append(list, measurement{f.name(count, how), func(l *lab, dice *rand.Rand) (outcome, error) {
				jobs, err := f.jobs(l, dice, count)
				if err != nil {
					return outcome{}, err
				}
				for i := range jobs {
					jobs[i].on = []int{1 - i%2, i % 2}
				}
				return l.runCluster(f.settings(how), jobs, openAtOnce)
			}})
		}
	}
	return list
}

// settings are the two nodes, sharing GPUs in the given way.
func (f *splitFigure) settings(how way) []setting {
	var list []setting
	for _, cards := range clusterCards {
		list = append(list, setting{devices: f.scale.devices(cards...), vgpus: how.vgpus, offload: how.offload})
	}
	return list
}

// speedups are the speed-ups of one way over another, run by run.
func (f *splitFigure) speedups(m *measured, jobs int, how, over way) []float64 {
	return m.Ratios(f.name(jobs, over), f.name(jobs, how))
}

// measured lists the numbers of jobs that were run.
func (f *splitFigure) measured(m *measured) []int {
	var list []int
	for _, count := range f.counts {
		if m.Has(f.name(count, shared4)) {
			list = append(list, count)
		}
	}
	return list
}

// gains are the speed-ups of one way over another for all measured numbers of jobs.
func (f *splitFigure) gains(m *measured, how, over way) [][]float64 {
	var all [][]float64
	for _, count := range f.measured(m) {
		all = append(all, f.speedups(m, count, how, over))
	}
	return all
}

func (f *splitFigure) show(m *measured) bench.Shown {
	var s bench.Shown
	b := &report.Bars{Title: f.part, YLabel: "seconds until all are done", Note: f.note + " The paper's values are not in its text, only the largest gains."}
	points := make([][][]float64, len(ways))
	var guests [][]float64
	for _, count := range f.measured(m) {
		b.Groups = append(b.Groups, units.Plural(count, "program"))
		for i, how := range ways {
			key := f.name(count, how)
			points[i] = append(points[i], m.Seconds(key))
			s.Rows = append(s.Rows, exp.OverMedian(f.part, key+"_s", "s", m.Seconds(key)))
			if how.offload {
				guests = append(guests, m.guests(key))
				s.Rows = append(s.Rows, exp.OverMedian(f.part, key+"_guests", "programs", m.guests(key)).Noting("served by the other node, for a while or for good"))
			}
			if i > 0 {
				s.Rows = append(s.Rows, exp.OverMedian(f.part, key+"_speedup", "x "+ways[i-1].key, f.speedups(m, count, how, ways[i-1])).Noting("over %s", ways[i-1].name))
			}
		}
	}
	for i, how := range ways {
		one := exp.MedianBars(how.name, points[i])
		if how.offload {
			one = marked(one, guests)
			b.Note += " On the last bars, how often a node served a program of the other."
		}
		b.Series = append(b.Series, one)
	}
	s.Pictures = []report.Section{b}
	return s
}

// clusterShort is Fig. 3-12. The text does not say how many programs there were; the numbers are
// ours.
var clusterShort = splitFigure{
	key: "fig3_12", part: "Fig. 3-12: two unequal nodes, short programs", scale: short, counts: []int{16, 32}, some: []int{16},
	note: "A node with two C2050 and a C1060, and one with a C1060, get as many programs each.",
	jobs: func(_ *lab, dice *rand.Rand, count int) ([]job, error) {
		var list []job
		for _, p := range draw(dice, count) {
			list = append(list, p.of())
		}
		return list, nil
	},
}

var clusterShortFigure = describe("3-12", clusterShort.part, shortScaled, clusterShort.plan, clusterShort.show)

// clusterLong is Fig. 3-13: 25 % BS-L and 75 % MM-L, with CPU phases as long as the GPU phases, as
// in Fig. 3-10.
var clusterLong = splitFigure{
	key: "fig3_13", part: "Fig. 3-13: two unequal nodes, long programs that do not fit", scale: long, counts: []int{16, 32, 48}, some: []int{16},
	note: "BS-L and MM-L 25/75; both nodes get as many programs.",
	jobs: func(l *lab, dice *rand.Rand, count int) ([]job, error) {
		known, err := l.alone(long, matmulLarge, optionsLarge)
		if err != nil {
			return nil, err
		}
		return longMix(dice, known, count, count/4, 1), nil
	},
}

var clusterLongFigure = describe("3-13", clusterLong.part, longScaled, clusterLong.plan, clusterLong.show)

// parallelCards are the GPUs of Fig. 3-21, whose programs have processes on both nodes. Node 1 has
// four GTX 480. Node 2 has a C2070, a C2075 and a C2050, which have equal cores and clocks.
var parallelCards = [][]card{{gtx480, gtx480, gtx480, gtx480}, {c2050, c2050, c2050}}

var (
	clusterProcesses = []int{4, 6, 8}
	clusterSchemes   = []scheme{batchScheme, fourWay, preemptiveTwoWay}
)

const (
	partParallel = "Fig. 3-21: programs of 4, 6 and 8 processes over both nodes"
	parallelJobs = 8
	// sentByProcess is the number of bytes that a process sends to each process of its program in
	// an iteration, by MPI.
	sentByProcess = 100_000
)

func parallelName(processes int, how scheme) string {
	return fmt.Sprintf("fig3_21_%dprocesses_%s", processes, how.key)
}

// dealtOut divides a program's processes between the nodes in proportion to their GPUs, rounded to
// the nearest.
func dealtOut(processes int) []int {
	gpus := [2]int{len(parallelCards[0]), len(parallelCards[1])}
	first := (2*processes*gpus[0] + gpus[0] + gpus[1]) / (2 * (gpus[0] + gpus[1]))
	return []int{first, processes - first}
}

// possible says whether a scheme can run programs of this many processes: batch scheduling needs
// one GPU for each.
func possible(processes int, how scheme) bool {
	on := dealtOut(processes)
	return !how.batch || on[0] <= len(parallelCards[0]) && on[1] <= len(parallelCards[1])
}

func planParallel(*measured) []measurement {
	var list []measurement
	for _, processes := range clusterProcesses {
		for _, how := range clusterSchemes {
			if !possible(processes, how) {
				continue
			}
			list = append(list, measurement{parallelName(processes, how), func(l *lab, _ *rand.Rand) (outcome, error) { return l.runOverNodes(how, processes) }})
		}
	}
	return list
}

// runOverNodes runs the programs of Fig. 3-21 under a scheme.
func (l *lab) runOverNodes(how scheme, processes int) (outcome, error) {
	if err := l.profileAdditions(); err != nil {
		return outcome{}, err
	}
	p := parallel{processes: processes, phase: 0.3, pattern: scatterGather, iterations: 200, mpi: sentByProcess * processes}
	one := p.of(l.m)
	one.on = dealtOut(processes)
	var jobs []job
	for range parallelJobs {
		jobs = append(jobs, one)
	}
	var settings []setting
	var gpus []int
	for _, cards := range parallelCards {
		settings, gpus = append(settings, how.setting(cards)), append(gpus, len(cards))
	}
	if how.batch {
		return l.runCluster(settings, jobs, openWithin(gpus))
	}
	return l.runCluster(settings, jobs, openInOrder)
}

func showParallel(m *measured) bench.Shown {
	var s bench.Shown
	b := &report.Bars{Title: partParallel, YLabel: "seconds until all are done", Note: "Eight programs, scatter-gather. Batch scheduling cannot run eight processes on seven GPUs. The paper's values are not in its text, only the gains."}
	for _, processes := range clusterProcesses {
		b.Groups = append(b.Groups, units.Plural(processes, "process"))
	}
	for _, how := range clusterSchemes {
		var points [][]float64
		for _, processes := range clusterProcesses {
			key := parallelName(processes, how)
			points = append(points, m.Seconds(key))
			if !m.Has(key) {
				continue
			}
			s.Rows = append(s.Rows, exp.OverMedian(partParallel, key+"_s", "s", m.Seconds(key)))
			if batch := parallelName(processes, batchScheme); !how.batch && m.Has(batch) {
				low, high := 1.25, 1.30
				if how.preempts {
					low, high = 1.40, 1.45
				}
				s.Rows = append(s.Rows, exp.OverMedian(partParallel, key+"_speedup", "x batch", m.Ratios(batch, key)).AgainstRange(low, high))
			}
		}
		b.Series = append(b.Series, exp.MedianBars(how.name, points))
	}
	s.Pictures = []report.Section{b}
	return s
}

var parallelClusterFigure = figure{Figure: describe("3-21", partParallel, nil, planParallel, showParallel).Figure, mpi: true, scaled: parallelScaled}
