package noderuntime

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"muster/exp"
)

// claim is a statement of the paper, or one of ours about its figures.
type claim = exp.Claim[*measured]

// say makes a claim that holds or does not, whatever the amount.
func say(id, figure, says string, needs []string, holds func(m *measured) (bool, string)) claim {
	return claim{ID: id, Where: figure, Says: says, Needs: needs, Judge: func(m *measured) (exp.Verdict, string) {
		yes, because := holds(m)
		return exp.Holds(yes), because
	}}
}

// largest is a claim about the largest of several medians. If there is none, nothing is known.
func largest(id, figure, says string, of func(m *measured) [][]float64, holds func(float64) bool, because func(float64) string) claim {
	return claim{ID: id, Where: figure, Says: says, Judge: func(m *measured) (exp.Verdict, string) {
		all := of(m)
		if len(all) == 0 {
			return exp.Unknown, ""
		}
		return exp.Holds(holds(most(all))), because(most(all))
	}}
}

// least is a claim that all of several medians are above a limit.
func least(id, figure, says string, limit float64, of func(m *measured) (values []float64, words []string)) claim {
	return claim{ID: id, Where: figure, Says: says, Judge: func(m *measured) (exp.Verdict, string) {
		values, words := of(m)
		if len(values) == 0 {
			return exp.Unknown, ""
		}
		return exp.Holds(slices.Min(values) > limit), strings.Join(words, ", ")
	}}
}

// times writes a speed-up.
func times(format string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf(format, v) }
}

const partClaims = "Statements: 1 holds, 0 is refuted"

// nearly is the relative difference up to which medians count as equal. Single times differ by as
// much from run to run.
const nearly = 0.05

// claims in the order of the figures.
func claims() []claim {
	return slices.Concat(singleClaims(), migrationClaims(), splitClaims(), preliminaryClaims(), intraClaims(), interClaims(), parallelClaims(), boundClaims())
}

// claimRows are the verdicts: 1 for confirmed, 0 for refuted.
func claimRows(m *measured) []exp.Row {
	var rows []exp.Row
	for _, c := range claims() {
		verdict, because := c.Verdict(m)
		if verdict == exp.Unknown {
			continue
		}
		r := verdict.Row(c.ID)
		r.Part, r.Unit = partClaims, "holds"
		rows = append(rows, r.Noting("Fig. %s, %s: %s (%s)", c.Where, word(verdict), c.Says, because))
	}
	return rows
}

// word is a verdict as this experiment says it: its statements have no amounts.
func word(v exp.Verdict) string {
	if v == exp.Confirmed {
		return "holds"
	}
	return v.String()
}

// compare is a claim on the ratio of two measurements.
func compare(id, figure, says, a, b string, holds func(ratio float64) bool) claim {
	return say(id, figure, says, []string{a, b}, func(m *measured) (bool, string) {
		return holds(m.Ratio(a, b)), fmt.Sprintf("%.2f of the time", m.Ratio(a, b))
	})
}

func above(limit float64) func(float64) bool { return func(v float64) bool { return v > limit } }
func below(limit float64) func(float64) bool { return func(v float64) bool { return v < limit } }

func singleClaims() []claim {
	a, b, c := swapping.name(0, serial), swapping.name(100, serial), swapping.name(200, serial)
	d, e, f := swapping.name(0, shared), swapping.name(100, shared), swapping.name(200, shared)
	little, much := mix.name(75, shared), mix.name(25, shared)
	return []claim{
		largest("3_7_worst_overhead", "3-7", "in the worst case the overhead is about 10 %", overhead.overheads, below(1.1+nearly),
			func(v float64) string { return fmt.Sprintf("%.0f %% over the GPU's own time", 100*(v-1)) }),
		say("3_7_more_vgpus_cost_less", "3-7", "the time approaches that of bare CUDA as virtual GPUs increase", []string{overhead.own(8)}, func(m *measured) (bool, string) {
			one, eight := exp.Median(overhead.over(m, overhead.with(1), overhead.own)), exp.Median(overhead.over(m, overhead.with(8), overhead.own))
			return eight < one, fmt.Sprintf("%.2f times the GPU's own time with 1, %.2f with 8", one, eight)
		}),
		compare("3_8_sharing_gains", "3-8", "with many programs, four virtual GPUs are faster than one", sharing.name(48, 4), sharing.name(48, 1), below(1)),
		compare("3_8_no_gain_beyond_four", "3-8", "eight virtual GPUs bring no significant gain over four", sharing.name(48, 8), sharing.name(48, 4), above(1-nearly)),
		say("3_8_balanced", "3-8", "with four virtual GPUs eight programs are faster than bare CUDA's, since they are spread by load", []string{sharing.name(8, 4), sharing.own(8)}, func(m *measured) (bool, string) {
			ratio := m.Ratio(sharing.name(8, 4), sharing.own(8))
			return ratio < 1, fmt.Sprintf("%.2f of the GPUs' own time, which bare CUDA cannot have less than", ratio)
		}),
		say("3_9_serial_grows_linearly", "3-9", "without sharing the time grows linearly with the CPU fraction", []string{a, b, c}, func(m *measured) (bool, string) {
			middle, between := m.Median(b), (m.Median(a)+m.Median(c))/2
			return math.Abs(middle/between-1) < 2*nearly && m.Median(c) > 1.5*m.Median(a),
				fmt.Sprintf("%.2f, %.2f, %.2f s for fractions of 0, 1, 2", m.Median(a), middle, m.Median(c))
		}),
		say("3_9_sharing_constant", "3-9", "with sharing the time is constant", []string{d, e, f}, func(m *measured) (bool, string) {
			return m.Median(f) < (1+2*nearly)*m.Median(d), fmt.Sprintf("%.2f, %.2f, %.2f s for fractions of 0, 1, 2", m.Median(d), m.Median(e), m.Median(f))
		}),
		compare("3_9_sharing_gains", "3-9", "with much CPU work sharing is faster, in spite of swapping", f, c, below(1)),
		say("3_9_swaps", "3-9", "sharing swaps, and one program after the other does not", []string{c, f}, func(m *measured) (bool, string) {
			one, four := exp.Median(m.swaps(c)), exp.Median(m.swaps(f))
			return one == 0 && four > 0, fmt.Sprintf("%v and %v swaps", four, one)
		}),
		say("3_10_gain_grows", "3-10", "the gain of sharing grows with the share of MM-L", []string{little, much}, func(m *measured) (bool, string) {
			few, many := m.Ratio(little, mix.name(75, serial)), m.Ratio(much, mix.name(25, serial))
			return many < few, fmt.Sprintf("%.2f of the time with a quarter of MM-L, %.2f with three", few, many)
		}),
		compare("3_10_slower_at_75", "3-10", "with a quarter of MM-L sharing is slower", little, mix.name(75, serial), above(1)),
	}
}

func migrationClaims() []claim {
	// less is a claim that jobs gain more at one point than at another.
	less := func(id, says string, a, b migrationPoint) claim {
		return say(id, "3-11", says, []string{a.name(true), b.name(true)}, func(m *measured) (bool, string) {
			one, other := m.Ratio(a.name(true), a.name(false)), m.Ratio(b.name(true), b.name(false))
			return one < other, fmt.Sprintf("%.2f of the time with %s, %.2f with %s", one, a.label(), other, b.label())
		})
	}
	few, many := migrationPoint{6, 100}, migrationPoint{24, 100}
	busy, alternating := migrationPoint{12, 0}, migrationPoint{12, 100}
	return []claim{
		compare("3_11_migration_gains", "3-11", "migration makes an unbalanced node faster", alternating.name(true), alternating.name(false), below(1)),
		less("3_11_few_gain_more", "few jobs gain more than many", few, many),
		less("3_11_alternating_gain_more", "jobs with CPU phases gain more than those without", alternating, busy),
		say("3_11_many_move_less", "3-11", "of many jobs fewer migrate than of few, since those that wait go to the fast GPUs", []string{few.name(true), many.name(true)}, func(m *measured) (bool, string) {
			a, b := exp.Median(m.moves(few.name(true)))/float64(few.jobs), exp.Median(m.moves(many.name(true)))/float64(many.jobs)
			return b < a, fmt.Sprintf("%.2f migrations a job with %d jobs, %.2f with %d", a, few.jobs, b, many.jobs)
		}),
	}
}

// preliminaryClaims are the claims about Fig. 3-14.
func preliminaryClaims() []claim {
	a, b := &preliminaryIntra, &preliminaryInter
	mild, strong := &a.points[0], &a.points[len(a.points)-1]
	balanced, uneven := &b.points[0], &b.points[len(b.points)-1]
	return []claim{
		constant("3_14a_batch_constant", a, mild, strong),
		speedup("3_14a_sharing_gains", "n-way sharing is faster than batch scheduling where one process is slower", a, strong, fourWay, above(1)),
		grows("3_14a_sharing_gain_grows", "and its gain grows with the imbalance", a, mild, strong, fourWay),
		outperforms("3_14a_preemption_outperforms", a, strong),
		best("3_14a_preemptive_2way_best", a, strong),
		grows("3_14a_gain_grows", "its gain grows with the imbalance", a, mild, strong, preemptiveTwoWay),
		constant("3_14b_batch_constant", b, balanced, uneven),
		speedup("3_14b_4way_gains", "4-way sharing is faster than batch scheduling if the workload is uneven enough", b, uneven, fourWay, above(1)),
		speedup("3_14b_2way_does_not_gain", "and 2-way sharing is not", b, uneven, twoWay, below(1+nearly)),
		outperforms("3_14b_preemption_outperforms", b, uneven),
		best("3_14b_preemptive_2way_best", b, uneven),
		grows("3_14b_gain_grows", "its gain grows with the imbalance", b, balanced, uneven, preemptiveTwoWay),
	}
}

// intraClaims are the claims about Figs. 3-15 to 3-17.
func intraClaims() []claim {
	var list []claim
	var all, worst []*parallelFigure
	for i, p := range later {
		number, parts := intraNumber(i), intraParts(intraNumber(i), p)
		all = append(all, parts...)
		list = append(list, upTo("3_"+number[2:]+"_speedup", number, "", paperIntra[p], parts, batchScheme))
	}
	for _, f := range all {
		if strings.Contains(f.key, "_worst_") {
			worst = append(worst, f)
		}
	}
	const together = "3-15 to 3-17"
	return append(list,
		claim{ID: "3_15_broadcast_gains_less", Where: together, Says: "programs that broadcast gain less than others", Judge: func(m *measured) (exp.Verdict, string) {
			var values []float64
			for i, p := range later {
				gained := gains(m, intraParts(intraNumber(i), p), preemptiveTwoWay, batchScheme)
				if len(gained) == 0 {
					return exp.Unknown, ""
				}
				values = append(values, most(gained))
			}
			return exp.Holds(values[0] < min(values[1], values[2])), fmt.Sprintf("%.2f, %.2f, %.2f with broadcast, scatter-gather, barrier", values[0], values[1], values[2])
		}},
		claim{ID: "3_15_17_better_almost_everywhere", Where: together, Says: "preemptive 2-way sharing is faster than 4-way sharing in almost every case", Judge: func(m *measured) (exp.Verdict, string) {
			faster, points := 0, gains(m, all, preemptiveTwoWay, fourWay)
			for _, ratios := range points {
				if exp.Median(ratios) > 1 {
					faster++
				}
			}
			if len(points) == 0 {
				return exp.Unknown, ""
			}
			return exp.Holds(10*faster >= 9*len(points)), fmt.Sprintf("at %d of %d points", faster, len(points))
		}},
		largest("3_15_17_4way_fails_worst", together, "4-way sharing hardly gains where one process is faster than the other three",
			func(m *measured) [][]float64 { return gains(m, worst, fourWay, batchScheme) }, below(1+2*nearly), times("%.2f at most")),
		largest("3_15_4way_suffices", intraNumber(0), "with broadcasts 4-way sharing hides the communication well enough",
			func(m *measured) [][]float64 {
				return gains(m, intraParts(intraNumber(0), broadcast), preemptiveTwoWay, fourWay)
			},
			below(1+2*nearly), times("preemptive 2-way sharing is %.2f times as fast at most")),
	)
}

// interClaims are the claims about Figs. 3-18 to 3-20.
func interClaims() []claim {
	const together = "3-18 to 3-20"
	// over is the speed-up of preemptive 2-way sharing over 4-way sharing at a point with CPU
	// phases of the given percentage, for some patterns.
	over := func(m *measured, cpu, three int, patterns ...pattern) (values [][]float64) {
		for i, p := range later {
			if !slices.Contains(patterns, p) {
				continue
			}
			for _, f := range interParts(interNumber(i), p) {
				at := &f.points[three]
				if strings.Contains(f.key, fmt.Sprintf("_cpu%d_%s", cpu, phases[0].key)) && m.Has(f.name(at, fourWay)) {
					values = append(values, m.Ratios(f.name(at, fourWay), f.name(at, preemptiveTwoWay)))
				}
			}
		}
		return values
	}
	return []claim{
		upTo("3_18_20_over_batch", together, "between programs, ", 3.5, allInter(), batchScheme),
		upTo("3_18_20_over_4way", together, "between programs, ", 2.1, allInter(), fourWay),
		largest("3_18_balanced_not_worth_it", interNumber(0), "with broadcasts and a balanced workload preemption is not worth its cost",
			func(m *measured) [][]float64 { return over(m, 0, 0, broadcast) }, below(1+nearly), times("%.2f times as fast as 4-way sharing")),
		{ID: "3_18_20_cpu_lowers_gain", Where: together, Says: "with longer CPU phases preemption gains less over 4-way sharing", Judge: func(m *measured) (exp.Verdict, string) {
			none, long := over(m, 0, jobsOfWorkload, later...), over(m, 100, jobsOfWorkload, later...)
			if len(none) < len(later) || len(long) < len(later) {
				return exp.Unknown, ""
			}
			a, b := exp.Median(medians(none)), exp.Median(medians(long))
			return exp.Holds(b < a), fmt.Sprintf("%.2f with CPU phases of 0 %%, %.2f with 100 %%, medians of the patterns", a, b)
		}},
	}
}

// upTo is a claim about the largest speed-up of preemptive 2-way sharing over a scheme.
func upTo(id, figure, where string, want float64, parts []*parallelFigure, over scheme) claim {
	return largest(id, figure, fmt.Sprintf("%spreemptive 2-way sharing is up to %.1f times as fast as %s", where, want, over.name),
		func(m *measured) [][]float64 { return gains(m, parts, preemptiveTwoWay, over) }, above(want*(1-nearly)), times("%.2f times"))
}

// constant claims that the imbalance does not change the time of batch scheduling.
func constant(id string, f *parallelFigure, little, much *point) claim {
	a, b := f.name(little, batchScheme), f.name(much, batchScheme)
	return say(id, f.number(), "batch scheduling takes as long whatever the imbalance", []string{a, b}, func(m *measured) (bool, string) {
		ratio := m.Median(b) / m.Median(a)
		return math.Abs(ratio-1) < nearly, fmt.Sprintf("%.2f times as long at %s as at %s", ratio, much.label, little.label)
	})
}

// outperforms claims that preemptive sharing is faster than n-way sharing.
func outperforms(id string, f *parallelFigure, p *point) claim {
	return say(id, f.number(), "preemptive sharing is faster than n-way sharing", []string{f.name(p, preemptive)}, func(m *measured) (bool, string) {
		two, four, v := f.speedup(m, p, twoWay), f.speedup(m, p, fourWay), f.speedup(m, p, preemptive)
		return v > max(two, four), fmt.Sprintf("%.2f times as fast as batch scheduling; 2-way %.2f, 4-way %.2f", v, two, four)
	})
}

// speedup is a claim about the speed-up of a scheme over batch scheduling.
func speedup(id, says string, f *parallelFigure, p *point, how scheme, holds func(float64) bool) claim {
	return say(id, f.number(), says, []string{f.name(p, how), f.name(p, batchScheme)}, func(m *measured) (bool, string) {
		v := f.speedup(m, p, how)
		return holds(v), fmt.Sprintf("%.2f times as fast", v)
	})
}

// best claims that no scheme is faster than preemptive 2-way sharing, except by less than nearly.
func best(id string, f *parallelFigure, p *point) claim {
	return say(id, f.number(), "preemptive 2-way sharing is the fastest of all", []string{f.name(p, batchScheme)}, func(m *measured) (bool, string) {
		ours, others, text := f.speedup(m, p, preemptiveTwoWay), 0.0, ""
		for _, how := range f.schemes[1 : len(f.schemes)-1] {
			v := f.speedup(m, p, how)
			others = max(others, v)
			text += fmt.Sprintf("%.2f, ", v)
		}
		return ours >= others*(1-nearly), text + fmt.Sprintf("%.2f with 2-way, 4-way, preemptive, preemptive 2-way", ours)
	})
}

// grows claims that a scheme gains more with more imbalance.
func grows(id, says string, f *parallelFigure, little, much *point, how scheme) claim {
	return say(id, f.number(), says, []string{f.name(little, batchScheme), f.name(much, batchScheme)}, func(m *measured) (bool, string) {
		a, b := f.speedup(m, little, how), f.speedup(m, much, how)
		return b > a, fmt.Sprintf("%.2f at %s, %.2f at %s", a, little.label, b, much.label)
	})
}

// excess compares all our speed-ups with their bounds. It returns how many there are and how many
// exceed their bound, and the largest relative excess (negative if all are below), with its place.
func excess(m *measured, bound func(*parallelFigure, *point) float64) (all, above int, most float64, where string) {
	most = math.Inf(-1)
	for _, f := range figures() {
		for _, part := range f.parts {
			for _, p := range part.measured(m) {
				for _, how := range part.schemes[1:] {
					over := part.speedup(m, p, how)/bound(part, p) - 1
					if all++; over > 0 {
						above++
					}
					if over > most {
						most, where = over, part.name(p, how)
					}
				}
			}
		}
	}
	return all, above, most, where
}

// boundClaims hold our speed-ups to the same bounds as the paper's: the time that the phases of a
// workload leave idle, and the time that batch scheduling left idle as measured. The second is
// computed from the time of kernels, which varies by less than nearly.
func boundClaims() []claim {
	bounded := func(id, says string, limit float64, bound func(m *measured, f *parallelFigure, p *point) float64) claim {
		return claim{ID: id, Where: "3-14 to 3-20", Says: says, Judge: func(m *measured) (exp.Verdict, string) {
			all, above, most, where := excess(m, func(f *parallelFigure, p *point) float64 { return bound(m, f, p) })
			if all == 0 {
				return exp.Unknown, ""
			}
			text := fmt.Sprintf("%d of %d are above, by %.0f %% at most (%s)", above, all, 100*most, where)
			if above == 0 {
				text = fmt.Sprintf("none of %d; the nearest is %.0f %% below (%s)", all, -100*most, where)
			}
			return exp.Holds(most <= limit), text
		}}
	}
	return []claim{
		bounded("bound_phases", "no speed-up of ours is above what the phases leave idle", 0, func(_ *measured, _ *parallelFigure, p *point) float64 { return p.inPhases() }),
		bounded("bound_idle", "no speed-up of ours is above what batch scheduling left idle", nearly, func(m *measured, f *parallelFigure, p *point) float64 { return exp.Median(f.inIdle(m, p)) }),
	}
}
