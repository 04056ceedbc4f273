package noderuntime

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"muster/exp"
	"muster/report"
)

// point is a place on the x axis of a figure.
type point struct {
	key, label string
	programs   []parallel
	some       bool // measured also when all figures are
}

// parallelFigure compares schemes at points.
type parallelFigure struct {
	key, part, title string
	schemes          []scheme
	points           []point
}

func (f *parallelFigure) name(p point, how scheme) string {
	return fmt.Sprintf("%s_%s_%s", f.key, p.key, how.key)
}

func (f *parallelFigure) plan(all bool) []measurement {
	var list []measurement
	for _, p := range f.points {
		if !all && !p.some {
			continue
		}
		for _, how := range f.schemes {
			list = append(list, measurement{f.name(p, how), func(l *lab, _ *rand.Rand) (outcome, error) {
				v, err := l.vectors()
				if err != nil {
					return outcome{}, err
				}
				return parallelOnNode(l.ctx, how, v, p.programs)
			}})
		}
	}
	return list
}

// vectors measures how long vector additions take, once.
func (l *lab) vectors() (vectors, error) {
	if l.additions == nil {
		v, err := l.processes.vectors(l.ctx)
		if err != nil {
			return v, err
		}
		l.additions = &v
	}
	return *l.additions, nil
}

// speedups are those of a scheme over batch scheduling at all measured points.
func (f *parallelFigure) speedups(m measured, how scheme) (labels []string, values [][]float64) {
	for _, p := range f.points {
		if key := f.name(p, how); m.has(key) {
			labels = append(labels, p.label)
			values = append(values, m.ratios(f.name(p, batchScheme), key))
		}
	}
	return labels, values
}

func (f *parallelFigure) show(m measured) shown {
	var s shown
	for _, p := range f.points {
		for _, how := range f.schemes[1:] {
			if key := f.name(p, how); m.has(key) {
				s.rows = append(s.rows, row(f.part, key+"_speedup", "x batch", m.ratios(f.name(p, batchScheme), key)))
			}
		}
	}
	if len(s.rows) == 0 {
		return s
	}
	b := &report.Bars{Title: f.title, YLabel: "speed-up over batch scheduling", Note: "The paper's values are not in its text."}
	for _, how := range f.schemes[1:] {
		labels, values := f.speedups(m, how)
		b.Groups = labels
		b.Series = append(b.Series, series(how.name, values))
	}
	s.pictures = append(s.pictures, b)
	return s
}

// jobsOfWorkload is how many programs each workload has.
const jobsOfWorkload = 4

// alike is a workload of programs with the same processes.
func alike(p parallel) []parallel {
	var all []parallel
	for range jobsOfWorkload {
		all = append(all, p)
	}
	return all
}

// composition is a workload in which some programs have three processes and the
// others four.
func composition(three int, p parallel, phase float64) []parallel {
	var all []parallel
	for i := range jobsOfWorkload {
		p.phases = uniform(4, phase)
		if i >= jobsOfWorkload-three {
			p.phases = uniform(3, phase)
		}
		all = append(all, p)
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
	preliminaryIteration = 6 // of the paper's 200
)

var allSchemes = []scheme{batchScheme, twoWay, fourWay, preemptive, preemptiveTwoWay}

var preliminaryIntra = parallelFigure{
	key: "fig3_14a", part: partPreliminary, title: "Fig. 3-14 (a): one process of four is slower", schemes: allSchemes,
	points: func() []point {
		var all []point
		for _, percent := range []int{10, 20, 30, 40, 50} {
			phases := uniform(4, preliminaryPhase/(1+float64(percent)/100))
			phases[0] = preliminaryPhase
			all = append(all, point{
				key: fmt.Sprint(percent), label: fmt.Sprintf("%d %%", percent), some: percent%20 == 10,
				programs: alike(parallel{phases: phases, pattern: allToAll, iterations: preliminaryIteration}),
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
			all = append(all, point{key: key, label: label, some: three != 3,
				programs: composition(three, parallel{pattern: allToAll, iterations: preliminaryIteration}, preliminaryPhase)})
		}
		return all
	}(),
}

var preliminaryFigure = figure{
	name: "3-14", part: partPreliminary,
	plan: func(all bool) []measurement { return append(preliminaryIntra.plan(all), preliminaryInter.plan(all)...) },
	show: func(m measured) shown {
		a, b := preliminaryIntra.show(m), preliminaryInter.show(m)
		return shown{append(a.rows, b.rows...), append(a.pictures, b.pictures...)}
	},
}

// laterSchemes are those of Figs. 3-15 to 3-20.
var laterSchemes = []scheme{batchScheme, fourWay, preemptiveTwoWay}

// phase is a length of GPU phases.
type phase struct {
	key        string
	seconds    float64
	iterations int
	some       bool
}

// phases: the paper has 200 iterations of the short one and 20 of the long one.
var phases = []phase{{"0.3s", 0.3, 10, true}, {"3s", 3, 3, false}}

// paperIntra is the largest speed-up over batch scheduling in Figs. 3-15 to 3-17.
var paperIntra = map[pattern]float64{broadcast: 1.7, scatterGather: 2.9, barrier: 2.9}

// intra is the processes of a program of which so many are faster.
func intra(faster int, seconds float64, percent int) []float64 {
	all := uniform(4, seconds)
	for i := range faster {
		all[len(all)-1-i] *= 1 - float64(percent)/100
	}
	return all
}

// idleBound is the most that a workload can gain over batch scheduling by using
// idle time, where all processes wait for the slowest.
func idleBound(faster, percent int) float64 {
	return 4 / (4 - float64(faster)*float64(percent)/100)
}

// intraFigure is Fig. 3-15, 3-16 or 3-17.
func intraFigure(number string, p pattern) figure {
	part := fmt.Sprintf("Fig. %s: imbalance inside programs, %v", number, p)
	var parts []*parallelFigure
	for _, length := range phases {
		for _, c := range []struct {
			name   string
			faster int
		}{{"worst", 1}, {"best", 3}} {
			f := &parallelFigure{
				key: fmt.Sprintf("fig%s_%s_%s", strings.ReplaceAll(number, "-", "_"), c.name, length.key), part: part, schemes: laterSchemes,
				title: fmt.Sprintf("Fig. %s: %v, %s case, GPU phases of %s", number, p, c.name, length.key),
			}
			for _, percent := range []int{10, 20, 30, 40, 50} {
				f.points = append(f.points, point{
					key: fmt.Sprint(percent), label: fmt.Sprintf("%d %%", percent), some: length.some && (percent == 10 || percent == 50),
					programs: alike(parallel{phases: intra(c.faster, length.seconds, percent), pattern: p, iterations: length.iterations}),
				})
			}
			parts = append(parts, f)
		}
	}
	f := joined(number, part, parts)
	show := f.show
	f.show = func(m measured) shown {
		s := show(m)
		s.rows = append(s.rows, row(part, parts[0].key[:len("fig3_15")]+"_most_speedup", "x batch", mostOf(gains(m, parts, preemptiveTwoWay, batchScheme))).
			Against(paperIntra[p]).Noting("preemptive 2-way over batch; using all idle time gives at most %.2f", idleBound(3, 50)))
		return s
	}
	return f
}

// joined is a figure of several pictures.
func joined(number, part string, parts []*parallelFigure) figure {
	return figure{
		name: number, part: part,
		plan: func(all bool) []measurement {
			var list []measurement
			for _, f := range parts {
				list = append(list, f.plan(all)...)
			}
			return list
		},
		show: func(m measured) shown {
			var s shown
			for _, f := range parts {
				one := f.show(m)
				s.rows, s.pictures = append(s.rows, one.rows...), append(s.pictures, one.pictures...)
			}
			return s
		},
	}
}

// gains are the speed-ups of one scheme over another at all measured points.
func gains(m measured, parts []*parallelFigure, how, over scheme) [][]float64 {
	var all [][]float64
	for _, f := range parts {
		for _, p := range f.points {
			if m.has(f.name(p, how)) {
				all = append(all, m.ratios(f.name(p, over), f.name(p, how)))
			}
		}
	}
	return all
}

// interParts are the pictures of Fig. 3-18, 3-19 or 3-20: one for each CPU phase
// and length of GPU phases.
func interParts(number, part string, p pattern) []*parallelFigure {
	var parts []*parallelFigure
	for _, length := range phases {
		for _, cpu := range []int{0, 50, 100} {
			f := &parallelFigure{
				key: fmt.Sprintf("fig%s_cpu%d_%s", strings.ReplaceAll(number, "-", "_"), cpu, length.key), part: part, schemes: laterSchemes,
				title: fmt.Sprintf("Fig. %s: %v, CPU phases of %d %%, GPU phases of %s", number, p, cpu, length.key),
			}
			for three := 0; three <= jobsOfWorkload; three++ {
				key, label := compositionName(three)
				f.points = append(f.points, point{key: key, label: label, some: length.some && cpu != 50 && three%jobsOfWorkload == 0,
					programs: composition(three, parallel{cpu: float64(cpu) / 100, pattern: p, iterations: length.iterations}, length.seconds)})
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
	part := interPart(number, p)
	return joined(number, part, interParts(number, part, p))
}

const partInterAll = "Figs. 3-18 to 3-20 together"

// interAll are the numbers that the paper gives for three figures together, from
// those that were measured.
func interAll(m measured) []exp.Row {
	var parts []*parallelFigure
	for i, p := range []pattern{broadcast, scatterGather, barrier} {
		number := fmt.Sprintf("3-%d", 18+i)
		parts = append(parts, interParts(number, interPart(number, p), p)...)
	}
	over := gains(m, parts, preemptiveTwoWay, batchScheme)
	if len(over) == 0 {
		return nil
	}
	return []exp.Row{
		row(partInterAll, "fig3_18_20_most_over_batch", "x batch", mostOf(over)).Against(3.5).Noting("preemptive 2-way sharing, the best of all points"),
		row(partInterAll, "fig3_18_20_most_over_4way", "x 4-way", mostOf(gains(m, parts, preemptiveTwoWay, fourWay))).Against(2.1).
			Noting("preemptive 2-way sharing, the best of all points"),
		row(partInterAll, "fig3_18_20_most_4way_over_batch", "x batch", mostOf(gains(m, parts, fourWay, batchScheme))),
	}
}
