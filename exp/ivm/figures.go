package ivm

import (
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// app is a program that the balancer DS-LB divides.
type app struct {
	key, name string
	items     string // the unit of its size
	size      int    // of the input, and a small one
	small     int
	args      []string // beside those that select the way to run it
	// What the paper reports: sizes, the best speed-up and the number of elements at which it
	// occurs, and the speed-up on the small input.
	paperSize, paperSmall int
	paperBest             float64
	paperBestAt           int
	paperSmallSpeed       float64
	paperHost             int // the host with the largest share of the load
}

var apps = []*app{
	{key: "nbody", name: "NBODY", items: "bodies", size: 1536, small: 384, args: []string{"--repeat", "1"}, paperSize: 1_200_000, paperSmall: 300_000, paperBest: 1.50, paperBestAt: 49, paperSmallSpeed: 0.78, paperHost: 0},
	{key: "dmm", name: "DMM", items: "rows", size: 216, small: 27, paperSize: 18_200, paperSmall: 2275, paperBest: 1.74, paperBestAt: 49, paperSmallSpeed: 0.34, paperHost: 1},
	{key: "nw", name: "NW", items: "pairs", size: 1080, small: 270, paperSize: 4800, paperSmall: 1200, paperBest: 1.50, paperBestAt: 36, paperSmallSpeed: 0.55, paperHost: 1},
}

func appOf(key string) *app {
	return apps[slices.IndexFunc(apps, func(a *app) bool { return a.key == key })]
}

func (a *app) sized(size int) []string {
	return append([]string{"--size", fmt.Sprint(size)}, a.args...)
}

// counts are the numbers of elements, or processes, of Fig. 5-5.
var counts = []int{9, 16, 25, 36, 49, 64}

const smallest = 9 // one per GPU

func programs() []string {
	list := []string{"ivm-himeno", "mpi-himeno"}
	for _, a := range apps {
		list = append(list, "ivm-"+a.key, "mpi-"+a.key)
	}
	return list
}

func (a *app) mpi(n int) string   { return fmt.Sprintf("%s_mpi_%d", a.key, n) }
func (a *app) spawn(n int) string { return fmt.Sprintf("%s_spawn_%d", a.key, n) }
func (a *app) guided() string     { return a.key + "_guided" }

func (a *app) base() string { return a.mpi(smallest) }

func (a *app) runMPI(key string, size, n int) measurement {
	return measurement{key, command{on: eachApart, mpi: n, program: "mpi-" + a.key, args: a.sized(size)}}
}

func (a *app) runSpawn(key string, size, n int, more ...string) measurement {
	args := append(a.sized(size), "--way", "spawn", "--portions", fmt.Sprint(n))
	return measurement{key, command{on: together, program: "ivm-" + a.key, args: append(args, more...)}}
}

func (a *app) runGuided(key string, size int) measurement {
	return measurement{key, command{on: together, program: "ivm-" + a.key, args: append(a.sized(size), "--way", "guided")}}
}

const partSpawning = "Fig. 5-5: NBODY, DMM and NW with DS-LB, and with our own balancer, beside MPI"

var spawningFigure = figure{Name: "5-5", Part: partSpawning,
	Plan: func(*measured) []measurement {
		var plan []measurement
		for _, a := range apps {
			for _, n := range counts {
				plan = append(plan, a.runMPI(a.mpi(n), a.size, n), a.runSpawn(a.spawn(n), a.size, n))
			}
			plan = append(plan, a.runGuided(a.guided(), a.size))
		}
		return plan
	},
	Show: func(m *measured) bench.Shown {
		var s bench.Shown
		for _, a := range apps {
			s.Rows = append(s.Rows, a.speedRows(m)...)
			s.Pictures = append(s.Pictures, a.speedPicture(m), a.loadPicture(m))
		}
		return s
	},
}

func (a *app) speedRows(m *measured) []exp.Row {
	rows := []exp.Row{exp.OverMedian(partSpawning, a.key+"_baseline_s", "s", m.Seconds(a.base())).Noting("%s with %d processes of MPI: the baseline", a.name, smallest)}
	for _, n := range counts[1:] {
		rows = append(rows, exp.OverMedian(partSpawning, a.key+"_mpi_speedup_"+fmt.Sprint(n), "x", m.speedups(a.mpi(n), a.base())).Noting("%d processes", n))
	}
	for _, n := range counts {
		r := exp.OverMedian(partSpawning, a.key+"_dslb_speedup_"+fmt.Sprint(n), "x", m.speedups(a.spawn(n), a.base())).Noting("%d elements; load: %s", n, a.load(m, a.spawn(n)))
		if n == a.paperBestAt {
			r = r.Against(a.paperBest)
		}
		rows = append(rows, r)
	}
	return append(rows, exp.OverMedian(partSpawning, a.key+"_guided_speedup", "x", m.speedups(a.guided(), a.base())).Noting("ours, one element a GPU; load: %s; at most %.2f is possible", a.load(m, a.guided()), bound()))
}

// shares are the fractions of the work that each host did, over all runs.
func (a *app) shares(m *measured, key string) []float64 {
	all, sum := make([]float64, len(hosts)), 0.0
	for _, o := range m.Outcomes[key] {
		for h, n := range o.Work {
			all[h] += float64(n)
			sum += float64(n)
		}
	}
	for h := range all {
		all[h] /= max(1, sum)
	}
	return all
}

func (a *app) load(m *measured, key string) string {
	var words []string
	for h, s := range a.shares(m, key) {
		words = append(words, fmt.Sprintf("%s %.0f %%", hostNames[h], 100*s))
	}
	return strings.Join(words, ", ")
}

func (a *app) speedPicture(m *measured) report.Section {
	b := &report.Bars{Title: "Fig. 5-5 (a): " + a.name, YLabel: "times as fast as MPI with 9 processes",
		Note: fmt.Sprintf("Ours has nine elements at any number of portions. No division can be more than %.2f times as fast as an even one. The paper's best is %.2f, at %d.", bound(), a.paperBest, a.paperBestAt)}
	var mpi, spawn, guided [][]float64
	for _, n := range counts {
		b.Groups = append(b.Groups, fmt.Sprint(n))
		mpi, spawn = append(mpi, m.speedups(a.mpi(n), a.base())), append(spawn, m.speedups(a.spawn(n), a.base()))
		guided = append(guided, m.speedups(a.guided(), a.base()))
	}
	b.Series = []report.BarSeries{exp.MedianBars("MPI", mpi), exp.MedianBars("DS-LB", spawn), exp.MedianBars("ours", guided)}
	return b
}

func (a *app) loadPicture(m *measured) report.Section {
	b := &report.Bars{Title: "Fig. 5-5 (b): " + a.name + ", load of the hosts", YLabel: "part of the work", YIsPercent: true, Note: "The last group is our own balancer."}
	b.Series = make([]report.BarSeries, len(hosts))
	add := func(group, key string) {
		b.Groups = append(b.Groups, group)
		for h, s := range a.shares(m, key) {
			b.Series[h].Name = hostNames[h]
			b.Series[h].Values = append(b.Series[h].Values, s)
		}
	}
	for _, n := range counts {
		add(fmt.Sprint(n), a.spawn(n))
	}
	add("ours", a.guided())
	return b
}

const partSmall = "Section 5.5.4: small inputs, where creating elements costs more than it gains"

// smallKey is the key of a run with a small input; way is mpi, spawn or guided.
func (a *app) smallKey(way string) string { return "small_" + a.key + "_" + way }

var smallFigure = figure{Name: "small", Part: partSmall,
	Plan: func(*measured) []measurement {
		var plan []measurement
		for _, a := range apps {
			plan = append(plan, a.runMPI(a.smallKey("mpi"), a.small, smallest), a.runSpawn(a.smallKey("spawn"), a.small, a.paperBestAt), a.runGuided(a.smallKey("guided"), a.small))
		}
		return plan
	},
	Show: func(m *measured) bench.Shown {
		var s bench.Shown
		for _, a := range apps {
			base := a.smallKey("mpi")
			s.Rows = append(s.Rows,
				exp.OverMedian(partSmall, base+"_s", "s", m.Seconds(base)).Noting("%s with %d processes of MPI", a.name, smallest),
				exp.OverMedian(partSmall, "small_"+a.key+"_dslb_speedup", "x", m.speedups(a.smallKey("spawn"), base)).Against(a.paperSmallSpeed).Noting("%d elements", a.paperBestAt),
				exp.OverMedian(partSmall, "small_"+a.key+"_guided_speedup", "x", m.speedups(a.smallKey("guided"), base)).Noting("ours, one element a GPU"))
		}
		return s
	},
}
