package gremm

import (
	"fmt"
	"time"

	"muster/exp"
)

// What the authors left for future work, and its gain.

var probing = policy{"probe", "probe"}

// Data that stay on a device.

var reuses = []float64{0, 0.5, 0.9, 0.99}

var localityPart = part{
	name: "locality", title: "Beyond the paper: data that a device still holds", ours: true,
	sweeps: func(l *lab) []sweep {
		list := []policy{static, greedy, {"AG, aware", "ag:locality=yes"}, randomised, {"AR, aware", "ar:locality=yes"}, probing}
		var sweeps []sweep
		for _, ratio := range []float64{paperRatio, 10 * paperRatio} {
			sw := sweep{
				key: metric("locality", fmt.Sprint(ratio)), title: fmt.Sprintf("Data that stay, W4, %v KB/ms", ratio), axis: "part of a kernel's input that stays on its device",
				note:  "A mapper that is aware counts that such data need not travel again.",
				shows: []measured{utilisation, moved, remoteShare},
				lines: over(list, func(mapper string, i int) scenario { return l.reusing(reuses[i], ratio, mapper) }),
			}
			sw.labels = labels(reuses)
			sweeps = append(sweeps, sw)
		}
		return sweeps
	},
	tell: func(l *lab, s *shown) {
		for _, ratio := range []float64{paperRatio, 10 * paperRatio} {
			for _, p := range adaptive {
				for _, r := range reuses[1:] {
					gains := l.gains(l.reusing(r, ratio, p.mapper+":locality=yes"), l.reusing(r, ratio, p.mapper), utilisation)
					s.gain(metric("locality_gain", fmt.Sprint(ratio), fmt.Sprint(r), p.name, "points"), "points", gains, "what it gains to know where data are")
				}
			}
		}
	},
}

func (l *lab) reusing(reuse, ratio float64, mapper string) scenario {
	s := l.moving(ratio, mapper, networks[0])
	s.reuse = reuse
	return s
}

// gain adds a row for the gain of a variant.
func (s *shown) gain(metric, unit string, values []float64, note string) {
	if values != nil {
		s.told = append(s.told, exp.Over(s.Title, metric, unit, values).Noting("%s", note))
	}
}

// Groups of nodes.

var (
	// manyNodes are clusters larger than the paper's. Mappers that look at every device become
	// expensive there.
	manyNodes = []int{96, 384, 1536}
	// hugeNodes are for mappers whose cost per decision does not grow with the number of nodes.
	hugeNodes = []int{96, 1536, 6144}
)

var grouped = []policy{
	{"AG, groups of 24, mixed", "ag:group=24"}, {"AG, groups of 24 neighbours", "ag:group=24:groups=block"}, {"AR, groups of 24, mixed", "ar:group=24"},
}

var groupsPart = part{
	name: "groups", title: "Beyond the paper: groups of nodes", ours: true,
	sweeps: func(l *lab) []sweep {
		words, xs := counts(manyNodes)
		sweepOf := func(age time.Duration, list []policy) sweep {
			return sweep{
				key: metric("groups_status", age.String()), title: "Groups of nodes, W4, " + known(age), axis: "nodes", labels: words, xs: xs, logX: true,
				note:  "Kernels stay within their group. Mixed: nodes of a group lie far apart, so that applications mix; neighbours are mostly of one application.",
				lines: over(list, func(mapper string, i int) scenario { return old(age, l.large("W4", mapper, manyNodes[i])) }), shows: []measured{utilisation},
			}
		}
		return []sweep{
			sweepOf(0, append([]policy{static, greedy, randomised}, grouped...)),
			sweepOf(time.Second, append([]policy{greedy}, grouped...)),
		}
	},
	tell: func(l *lab, s *shown) {
		for _, n := range manyNodes {
			for i, whole := range []policy{greedy, greedy, randomised} {
				s.gain(metric("groups_gain", fmt.Sprint(n), grouped[i].name, "points"), "points",
					l.gains(l.large("W4", grouped[i].mapper, n), l.large("W4", whole.mapper, n), utilisation), "against the same mapper over all nodes")
			}
		}
	},
}

// A critical application keeps its GPUs.

var protectPart = part{
	name: "protect", title: "Beyond the paper: a critical application keeps its GPUs", ours: true,
	sweeps: func(l *lab) []sweep {
		var list []sweep
		for _, critical := range []string{light, heavy} {
			sw := sweep{
				key: "protect_" + critical, title: "Client " + critical + " is critical", axis: "workload", labels: withBoth,
				note:  "Protected: GPUs of the critical client's nodes are for itself alone; it may use others.",
				shows: []measured{utilisation, finished(heavy, paperSpan.Seconds()), finished(light, paperSpan.Seconds())},
				lines: over([]policy{static, greedy, randomised}, func(mapper string, i int) scenario { return l.plain(withBoth[i], mapper) }),
			}
			for _, p := range adaptive {
				sw.lines = append(sw.lines, line{p.name + ", protected", func(i int) scenario { return l.protecting(withBoth[i], p.mapper, critical) }})
			}
			list = append(list, sw)
		}
		return list
	},
	tell: func(l *lab, s *shown) {
		for _, critical := range []string{light, heavy} {
			for _, w := range withBoth {
				for _, p := range adaptive {
					protected, st := l.protecting(w, p.mapper, critical), l.plain(w, static.mapper)
					for _, client := range []string{heavy, light} {
						s.gain(metric("protect", critical, w, p.name, client, "kernels_change_to_st_pct"), "%", l.relative(protected, st, finished(client, 1)),
							fmt.Sprintf("kernels of client %s while %s is critical, compared with ST", client, critical))
					}
				}
			}
		}
	},
}

func (l *lab) protecting(workload, mapper, critical string) scenario {
	s := l.plain(workload, mapper+":protect=yes")
	s.critical = critical
	return s
}

// Estimates from kernels' own history.

var estimatesPart = part{
	name: "estimates", title: "Beyond the paper: estimates from a kernel's own history", ours: true,
	sweeps: func(l *lab) []sweep {
		labels := []string{"W3", "W4", twoKernels}
		list := []policy{static, {"AG, mean of the device's last kernels", greedy.mapper}, {"AG, mean of the kernel", "ag:estimate=kernel"}, {"AG, the kernel by its data", "ag:estimate=bytes"}, randomised, probing}
		return []sweep{{
			key: "estimates", title: "Estimates", axis: "workload", labels: labels,
			note:  twoKernels + " is W4 with another H, of a short kernel (250 ms) and a long one (4.25 s) in turn. In all of these workloads data are proportional to a kernel's time, which estimates by data find out.",
			lines: over(list, func(mapper string, i int) scenario { return l.plain(labels[i], mapper) }),
			shows: []measured{utilisation, waiting},
		}}
	},
	tell: func(l *lab, s *shown) {
		for _, w := range []string{"W3", "W4", twoKernels} {
			for _, estimate := range []string{"kernel", "bytes"} {
				a, b := l.plain(w, "ag:estimate="+estimate), l.plain(w, greedy.mapper)
				s.gain(metric("estimates_gain", w, estimate, "points"), "points", l.gains(a, b, utilisation), "against the mean of the device's last kernels")
				s.gain(metric("estimates_gain", w, estimate, "wait_pct"), "%", l.relative(a, b, waiting), "against the mean of the device's last kernels")
			}
		}
	},
}

// A few devices drawn at random.

var few = []policy{{"AG, 2 choices", "ag:choices=2"}, {"AG, 2 choices, idle first", "ag:choices=2:idle=first"}, probing}

var choicesPart = part{
	name: "choices", title: "Beyond the paper: a few devices instead of all", ours: true,
	sweeps: func(l *lab) []sweep {
		list := append([]policy{greedy, randomised}, few...)
		small := sweep{
			key: "choices_24", title: "A few devices, W4 on 24 nodes", axis: "age of the status", shows: []measured{utilisation, waiting},
			note:  "AG looks at all devices; the others at those of the own node and a few more. Probe: two others, idle ones first, and estimates by kernel.",
			lines: over(list, func(mapper string, i int) scenario { return old(ages[i], l.plain("W4", mapper)) }),
		}
		small.labels = labels(ages)
		all := []sweep{small}
		words, xs := counts(manyNodes)
		for _, age := range []time.Duration{0, time.Second} {
			all = append(all, sweep{
				key: metric("choices_status", age.String()), title: "A few devices, W4, " + known(age), axis: "nodes", labels: words, xs: xs, logX: true, shows: []measured{utilisation},
				lines: over(append([]policy{greedy}, few...), func(mapper string, i int) scenario { return old(age, l.large("W4", mapper, manyNodes[i])) }),
			})
		}
		return all
	},
	tell: func(l *lab, s *shown) {
		for _, age := range ages {
			for _, p := range few {
				s.gain(metric("choices_gain", age.String(), p.name, "points"), "points",
					l.gains(old(age, l.plain("W4", p.mapper)), old(age, l.plain("W4", greedy.mapper)), utilisation), "against AG over all devices, on 24 nodes")
			}
		}
	},
}

// Processes that wait for each other.

func waitingForEachOther(s scenario) scenario {
	s.barrier = true
	return s
}

var barriersPart = part{
	name: "barriers", title: "Beyond the paper: processes that wait for each other (MPI barriers)", ours: true,
	sweeps: func(l *lab) []sweep {
		list := append(ofPaper[:len(ofPaper):len(ofPaper)], probing)
		with := sweep{
			key: "barriers", title: "Barriers after each kernel", axis: "workload", labels: mixes, shows: []measured{utilisation, waiting},
			note:  "All processes of an application wait for each other after each kernel: the slowest decides.",
			lines: over(list, func(mapper string, i int) scenario { return waitingForEachOther(l.plain(mixes[i], mapper)) }),
		}
		change := with
		change.key, change.shows = "barriers_change", []measured{utilisation}
		change.overOwn = func(ln line) line {
			return line{"the same without barriers", func(i int) scenario {
				s := ln.at(i)
				s.barrier = false
				return s
			}}
		}
		return []sweep{with, change}
	},
	tell: func(l *lab, s *shown) {
		for _, w := range mixes {
			for _, p := range append(dynamic[:len(dynamic):len(dynamic)], probing) {
				s.gain(metric("barriers_gain", w, p.name, "over_st_points"), "points",
					l.gains(waitingForEachOther(l.plain(w, p.mapper)), waitingForEachOther(l.plain(w, static.mapper)), utilisation), "against ST, both with barriers")
			}
		}
	},
}

// Thousands of nodes.

var scalePart = part{
	name: "scale", title: "Beyond the paper: thousands of nodes", ours: true,
	sweeps: func(l *lab) []sweep {
		words, xs := counts(hugeNodes)
		var list []sweep
		for _, age := range []time.Duration{0, 100 * time.Millisecond} {
			list = append(list, sweep{
				key: metric("scale_status", age.String()), title: "Thousands of nodes, W4, " + known(age), axis: "nodes", labels: words, xs: xs, logX: true,
				note:  "Mappers whose decisions cost the same on any number of nodes. The more nodes, the shorter the time that is simulated.",
				lines: over([]policy{static, few[0], probing, grouped[0], grouped[2]}, func(mapper string, i int) scenario { return old(age, l.large("W4", mapper, hugeNodes[i])) }),
				shows: []measured{utilisation, waiting},
			})
		}
		return list
	},
}
