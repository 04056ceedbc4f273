package noderuntime

import (
	"fmt"
	"math/rand/v2"

	"muster/exp"
	"muster/exp/bench"
	"muster/internal/units"
	"muster/report"
)

// Fig. 3-11: small matrix products on two fast GPUs and a slow one, with and without migration. The
// text says that the CPU fraction was varied and that few jobs gain more than many. It gives
// neither numbers of jobs nor fractions; these are ours.
var (
	migrationCards = []card{c2050, c2050, quadro2000}
	migrationJobs  = []int{6, 12, 24, 36}
	migrationCPU   = []int{0, 100, 200} // per cent of the kernels' time
)

const partMigration = "Fig. 3-11: migration to faster GPUs"

// migrationPoint is a point on the x axis of Fig. 3-11.
type migrationPoint struct{ jobs, cpu int }

func (p migrationPoint) name(moves bool) string {
	how := "stay"
	if moves {
		how = "migrate"
	}
	return fmt.Sprintf("fig3_11_%djobs_cpu%d_%s", p.jobs, p.cpu, how)
}

func (p migrationPoint) label() string {
	return fmt.Sprintf("%s, CPU %.0f", units.Plural(p.jobs, "job"), float64(p.cpu)/100)
}

// some says whether the point is also part of the reduced plan: all fractions with as many jobs as
// there are virtual GPUs, and all but the largest number of jobs with one fraction.
func (p migrationPoint) some() bool { return p.jobs == 12 || p.cpu == 100 && p.jobs != 36 }

func migrationPoints(all bool) []migrationPoint {
	var list []migrationPoint
	for _, jobs := range migrationJobs {
		for _, cpu := range migrationCPU {
			if p := (migrationPoint{jobs, cpu}); all || p.some() {
				list = append(list, p)
			}
		}
	}
	return list
}

func planMigration(m *measured) []measurement {
	var list []measurement
	for _, p := range migrationPoints(m.All) {
		for _, moves := range []bool{false, true} {
			list = append(list, measurement{p.name(moves), func(l *lab, _ *rand.Rand) (outcome, error) {
				known, err := l.alone(moved, matmulSmall)
				if err != nil {
					return outcome{}, err
				}
				jobs := make([]job, p.jobs)
				for i := range jobs {
					jobs[i] = matmulSmall.withCPU(known[matmulSmall.name], float64(p.cpu)/100)
				}
				return l.run(setting{devices: moved.devices(migrationCards...), vgpus: shared, migrate: moves}, jobs, openAtOnce)
			}})
		}
	}
	return list
}

func showMigration(m *measured) bench.Shown {
	var s bench.Shown
	b := &report.Bars{Title: partMigration, YLabel: "seconds until all are done", Note: "On each bar the number of migrations. The paper's values are not in its text, only their direction."}
	var stay, migrate, none, moves [][]float64
	for _, p := range migrationPoints(true) {
		without, with := p.name(false), p.name(true)
		if !m.Has(with) {
			continue
		}
		b.Groups = append(b.Groups, p.label())
		stay, migrate = append(stay, m.Seconds(without)), append(migrate, m.Seconds(with))
		none, moves = append(none, m.moves(without)), append(moves, m.moves(with))
		s.Rows = append(s.Rows,
			exp.OverMedian(partMigration, without+"_s", "s", m.Seconds(without)),
			exp.OverMedian(partMigration, with+"_s", "s", m.Seconds(with)),
			exp.OverMedian(partMigration, with+"_over_stay", "x staying", m.Ratios(with, without)).Noting("below 1: migration is faster"),
			exp.OverMedian(partMigration, with+"_moves", "migrations", m.moves(with)))
	}
	b.Series = []report.BarSeries{marked(exp.MedianBars("programs stay", stay), none), marked(exp.MedianBars("programs migrate", migrate), moves)}
	s.Pictures = []report.Section{b}
	return s
}

var migrationFigure = describe("3-11", partMigration, migrationScaled, planMigration, showMigration)
