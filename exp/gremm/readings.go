package gremm

import (
	"fmt"
	"time"

	"muster/exp"
)

// Where the paper is ambiguous, both readings are run.

var (
	latencies = []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	windows   = []int{1, 10, 100}
	// someRatios range from one at which data matter a little, as in the paper, to one at which
	// they dominate.
	someRatios = []float64{1, 10, 100, 1000}
)

var readingsPart = part{
	name: "readings", title: "What the paper leaves open, read in both ways", ours: true,
	sweeps: func(l *lab) []sweep {
		var list []sweep
		for _, r := range []struct {
			key, title string
			list       []policy
		}{
			{"eq6", "Equation 6", []policy{{"AG, literal", greedy.mapper}, {"AG, plus one", "ag:reading=plus"}}},
			{"bounds", "Bounds of alpha and beta", []policy{{"AR, alpha at most 1, beta at least 1", randomised.mapper}, {"AR, as equations 10 and 11 give them", "ar:bounds=none"}}},
			{"local", "GR's queue", []policy{{"GR, blind", reserving.mapper}, {"GR, idle local GPUs first", "gr:local=first"}}},
		} {
			list = append(list,
				sweep{
					key: "readings_" + r.key, title: r.title, axis: "workload", labels: mixes, shows: []measured{utilisation},
					lines: over(r.list, func(mapper string, i int) scenario { return l.plain(mixes[i], mapper) }),
				},
				sweep{
					key: "readings_" + r.key + "_ratio", title: r.title + ", W4", axis: ratioAxis, labels: ratioLabels(), xs: ratios, logX: true, shows: []measured{utilisation},
					lines: over(r.list, func(mapper string, i int) scenario { return l.moving(ratios[i], mapper, networks[0]) }),
				})
		}
		return append(list, l.holding(), l.sending("W3"), l.sending("W4"), l.calling(), l.remembering(), l.freely())
	},
	tell: tellReadings,
}

// holding: does a device stay occupied until the results of its kernel have arrived?
func (l *lab) holding() sweep {
	sw := sweep{key: "readings_hold", title: "How long a device is held, W4", axis: ratioAxis, shows: []measured{utilisation}}
	sw.labels = labels(someRatios)
	for _, p := range dynamic {
		for _, hold := range []bool{false, true} {
			until := ", until the kernel ends"
			if hold {
				until = ", until results have arrived"
			}
			sw.lines = append(sw.lines, line{p.name + until, func(i int) scenario {
				s := l.moving(someRatios[i], p.mapper, networks[0])
				s.hold = hold
				return s
			}})
		}
	}
	return sw
}

// sending: are the input data sent when the call's turn on the device comes, or before the call
// joins the device's queue? The splits are the paper's, on W4.
func (l *lab) sending(workload string) sweep {
	list := ofPaper
	if workload == "W4" {
		list = append(ofPaper[:len(ofPaper):len(ofPaper)], splits...)
	}
	return sweep{
		key: metric("readings_send", workload), title: "When data are sent, " + workload, axis: "data are sent", labels: []string{"in turn", "ahead"},
		shows: []measured{utilisation, waiting, waitingOfProcess},
		note:  "Ahead: before a call joins the queue of its device, which is never held for data. GR leaves calls to any device, and can send nothing ahead.",
		lines: over(list, func(mapper string, i int) scenario { return l.sent(workload, mapper, i == 1) }),
	}
}

func (l *lab) sent(workload, mapper string, ahead bool) scenario {
	s := l.plain(workload, mapper)
	s.ahead = ahead
	return s
}

// calling: the latency of a remote call, which the paper models without giving its value.
func (l *lab) calling() sweep {
	sw := sweep{key: "readings_latency", title: "Latency of a remote call, W4", axis: "latency", shows: []measured{utilisation}}
	sw.labels = labels(latencies)
	sw.lines = over(dynamic, func(mapper string, i int) scenario {
		s := l.plain("W4", mapper)
		s.latency = latencies[i]
		return s
	})
	return sw
}

// remembering: the number of kernels in a device's running mean, k; the paper uses 10.
func (l *lab) remembering() sweep {
	sw := sweep{key: "readings_window", title: "Kernels that a device's mean is of (k), W4", axis: "k", shows: []measured{utilisation}}
	sw.labels = labels(windows)
	sw.lines = over(adaptive, func(mapper string, i int) scenario {
		s := l.plain("W4", mapper)
		if s.window = windows[i]; s.window == 10 {
			s.window = 0 // so that the scenario equals the one that other parts run
		}
		return s
	})
	return sw
}

// freely: the cost of the network. The paper's 92.5 % for the split in halves matches a network
// that is nearly free.
func (l *lab) freely() sweep {
	all := append(networks[:len(networks):len(networks)], network{"boundless", "boundless", boundless})
	sw := sweep{
		key: "readings_network", title: "What the network costs, W4", axis: "network", shows: []measured{utilisation},
		note: "Boundless: data take no time, nor do remote calls.",
		lines: over(append(ofPaper[:len(ofPaper):len(ofPaper)], splits...), func(mapper string, i int) scenario {
			s := on(all[i], l.plain("W4", mapper))
			if s.bandwidth == boundless {
				s.latency = 0
			}
			return s
		}),
	}
	sw.labels = exp.Names(all, func(n *network) string { return n.name })
	return sw
}

// tellReadings adds what the other reading makes of the paper's strongest claims.
func tellReadings(l *lab, s *shown) {
	const half = 1 // index into splits
	for _, n := range []network{networks[1], {"boundless", "boundless", boundless}} {
		split := on(n, l.plain("W4", splits[half].mapper))
		if n.bandwidth == boundless {
			split.latency = 0
		}
		if found := l.Found[split]; found != nil {
			s.told = append(s.told, exp.Over(s.Title, metric("readings_split_half", n.name, "utilisation_pct"), "%", exp.Values(found, utilisation.of)).
				Against(paperSplit).Noting("the paper has GbE; so it seems that with a static split its devices hardly wait for data"))
		}
	}
	if found := l.Found[l.sent("W4", splits[half].mapper, true)]; found != nil {
		s.told = append(s.told, exp.Over(s.Title, "readings_split_half_sent_ahead_utilisation_pct", "%", exp.Values(found, utilisation.of)).
			Against(paperSplit).Noting("on GbE, as in the paper, with data sent before a call joins the queue"))
	}
	l.claimSentAhead(s, splits[half])
	last := ratios[len(ratios)-1]
	for _, p := range []policy{{"AG, plus one", "ag:reading=plus"}, {"AR as the equations give it", "ar:bounds=none"}} {
		if gains := l.gains(l.moving(last, p.mapper, networks[0]), l.moving(last, static.mapper, networks[0]), utilisation); gains != nil {
			s.told = append(s.told, exp.Over(s.Title, metric("readings", p.name, "over_st_at_10000_points"), "points", gains).Noting("the paper: AG and AR can be as good as ST at extreme ratios"))
		}
	}
}

// claimSentAhead judges the claims of Figs. 2 and 4 again, with data sent ahead. That reading
// reproduces one number of the paper; this shows whether it also reproduces the others.
func (l *lab) claimSentAhead(s *shown, half policy) {
	const also = ", data sent ahead"
	gains := func(a, b policy) []float64 {
		return l.gains(l.sent("W4", a.mapper, true), l.sent("W4", b.mapper, true), utilisation)
	}
	for _, w := range unequal {
		for _, p := range adaptive {
			a, b := l.sent(w, p.mapper, true), l.sent(w, static.mapper, true)
			s.claim("2", fmt.Sprintf("%s improves the mean waiting time too (here %s%s)", p.name, w, also),
				metric("claim_sent_ahead", w, p.name, "wait_change_pct"), "%", l.relative(a, b, waiting), exp.Below(0))
			s.claim("2", fmt.Sprintf("the same, if each process counts as much as any other (here %s on %s%s)", p.name, w, also),
				metric("claim_sent_ahead", w, p.name, "wait_of_process_change_pct"), "%", l.relative(a, b, waitingOfProcess), exp.Below(0))
		}
	}
	for _, other := range []policy{splits[0], splits[2]} {
		s.claim("4", other.name+" is less efficient than 1/2"+also, metric("claim_sent_ahead_half_over", other.name, "points"), "points", gains(half, other), exp.Above(0))
	}
	for _, p := range adaptive {
		s.claim("4", fmt.Sprintf("the split 1/2 is worse than the dynamic mapping policies (here %s%s)", p.name, also),
			metric("claim_sent_ahead", p.name, "over_half_points"), "points", gains(p, half), exp.Above(0))
	}
}
