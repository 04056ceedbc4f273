package clusterscheduler

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"muster/exp"
	"muster/exp/bench"
	"muster/internal/units"
	"muster/model"
	"muster/report"
)

// scheme is a way to schedule, in the paper's words.
type scheme struct {
	key, name string
	paper     map[string]float64 // throughput over batch, by cluster
	setting   func(c *cluster) setting
}

// colocation is the co-location policy with weights of nodes.
func colocation(weights []int) string { return "mccs-colocation:weights=" + weightsText(weights) }

// bounded is colocation with every program limited to the given number of nodes, over which its
// processes are divided evenly.
func bounded(nodes int, weights []int) string {
	return fmt.Sprintf("mccs-colocation:nodes=%d:deal=even:apart=none:weights=%s", nodes, weightsText(weights))
}

func weightsText(weights []int) string {
	return strings.Join(exp.Names(weights, func(w *int) string { return strconv.Itoa(*w) }), "/")
}

var (
	batch = scheme{"batch", "batch", nil, func(c *cluster) setting { return setting{"fcfs", c.slots(), false} }}
	turns = scheme{"roundrobin", "round robin", nil, func(c *cluster) setting { return setting{"mccs-roundrobin", c.whole(), false} }}
	near  = scheme{"colocation", "co-location", map[string]float64{"highend": 1.5, "commodity": 2.5}, func(c *cluster) setting {
		return setting{colocation(c.weights[c.best]), c.whole(), false}
	}}
	quick = scheme{"latency", "latency reduction", map[string]float64{"highend": 1.2, "commodity": 2.45}, func(c *cluster) setting {
		return setting{"mccs-latency:weights=" + weightsText(c.weights[c.best]), c.whole(), false}
	}}
	schemes = []*scheme{&batch, &turns, &near, &quick}
)

// published is the paper's throughput relative to batch; NaN if its text gives none.
func (s *scheme) published(c *cluster) float64 {
	if paper, known := s.paper[c.key]; known {
		return paper
	}
	if s == &batch {
		return 1
	}
	return math.NaN()
}

// sharing are the options of a job that shares GPUs with others. On each of its nodes it gets one
// GPU per process, up to the number of GPUs there. Its processes may go to any GPU within reach.
func sharing(reach model.Reach) []string {
	return []string{fmt.Sprintf("--gres=gpu:1+:%dM", shareMemory>>20), fmt.Sprintf("--gpu-reach=%v", reach)}
}

// jobs are copies of the jobs with the options that the scheme submits them with.
func (s *scheme) jobs(reach model.Reach, list ...job) []job {
	options := sharing(reach)
	if s == &batch {
		options = []string{"--gres=gpu:1"}
	}
	out := slices.Clone(list)
	for i := range out {
		out[i].options = options
	}
	return out
}

// Fig. 4-2.

const partMapping = "Fig. 4-2: 8 processes on 1 to 3 nodes of the high-end cluster"

// mappings are the numbers of processes on nodes 1 to 3. The paper's text does not give those of
// its figure; these are ours.
var mappings = [][]int{{8, 0, 0}, {0, 8, 0}, {0, 0, 8}, {4, 4, 0}, {5, 0, 3}, {0, 5, 3}, {4, 3, 1}, {3, 3, 2}}

func mappingKey(a *app, counts []int) string {
	return fmt.Sprintf("fig4_2_%s_%d_%d_%d", strings.ToLower(a.name), counts[0], counts[1], counts[2])
}

func mappingLabel(counts []int) string {
	var words []string
	for i, n := range counts {
		if n > 0 {
			words = append(words, fmt.Sprintf("Node%d[%d]", i+1, n))
		}
	}
	return strings.Join(words, " ")
}

var mappingApps = []*app{&mm, &nw, &adfaMiddle}

func nodesIn(counts []int) int {
	n := 0
	for _, c := range counts {
		if c > 0 {
			n++
		}
	}
	return n
}

// planMappings controls the mapping by the nodes' cores: each node has as many cores as it is to
// have processes, so a job with all cores is spread over the nodes as intended. The job shares all
// GPUs of these nodes.
func planMappings(*measured) []workload {
	var list []workload
	for _, counts := range mappings {
		gpus := 0
		for i, n := range counts {
			if n > 0 {
				gpus += len(highEnd.machines[i].cards)
			}
		}
		for _, a := range mappingApps {
			list = append(list, workload{mappingKey(a, counts), setting{"fcfs", highEnd.mapped(counts), false},
				[]job{{a, 8, []string{fmt.Sprintf("--gres=rgpu:%d:%dM", gpus, shareMemory>>20), "--gpu-reach=device"}}}})
		}
	}
	return list
}

func showMappings(m *measured) bench.Shown {
	var s bench.Shown
	b := &report.Bars{Title: partMapping, YLabel: "seconds", Note: "The paper's values are not in its text, only their direction."}
	for _, counts := range mappings {
		b.Groups = append(b.Groups, mappingLabel(counts))
	}
	for _, a := range mappingApps {
		var values [][]float64
		for _, counts := range mappings {
			key := mappingKey(a, counts)
			values = append(values, m.Seconds(key))
			s.Rows = append(s.Rows, m.timeRow(partMapping, key))
		}
		b.Series = append(b.Series, exp.MeanBars(a.name, values))
	}
	s.Pictures = []report.Section{b}
	return s
}

var mappingFigure = figure{Name: "4-2", Part: partMapping, Plan: planMappings, Show: showMappings}

// Figs. 4-3 and 4-4 run six jobs of each program with 4 to 8 processes.

var (
	sixApps      = []*app{&mm, &nw, &adfaSmall}
	sixProcesses = []int{4, 8, 6, 4, 8, 6}
)

func six(a *app) []job {
	var list []job
	for _, n := range sixProcesses {
		list = append(list, job{a, n, sharing(model.ReachDevice)})
	}
	return list
}

// variation is a figure of six jobs of each program under several variants of co-location, on both clusters. The first
// variant is that with which the others are compared.
type variation struct {
	name, part, label string
	variants          func(c *cluster) []variant
	key               func(c *cluster, a *app, i int) string
	// over is the name of the comparison in metrics, and unit and note are those of its rows. inverse compares
	// throughputs, not times.
	over, unit string
	note       func(c *cluster, i int) string
	inverse    bool
}

// variant is a policy, with its name in pictures.
type variant struct{ name, policy string }

func (v *variation) plan(*measured) []workload {
	var list []workload
	for _, c := range clusters {
		for i, one := range v.variants(c) {
			for _, a := range sixApps {
				list = append(list, workload{v.key(c, a, i), setting{one.policy, c.whole(), false}, six(a)})
			}
		}
	}
	return list
}

func (v *variation) show(m *measured) bench.Shown {
	var s bench.Shown
	for _, c := range clusters {
		b := &report.Bars{Title: v.part + ", " + c.name, YLabel: v.label, Note: "The paper's values are not in its text, only their direction.", Groups: exp.Names(sixApps, func(a **app) string { return (*a).name })}
		for i, one := range v.variants(c) {
			var values [][]float64
			for _, a := range sixApps {
				key, base := v.key(c, a, i), v.key(c, a, 0)
				ratios := m.Ratios(key, base)
				if v.inverse {
					ratios = m.Ratios(base, key)
				}
				values = append(values, ratios)
				s.Rows = append(s.Rows, m.timeRow(v.part, key))
				if i > 0 {
					s.Rows = append(s.Rows, exp.Over(v.part, key+"_over_"+v.over, v.unit, ratios).Noting("%s", v.note(c, i)))
				}
			}
			b.Series = append(b.Series, exp.MeanBars(one.name, values))
		}
		s.Pictures = append(s.Pictures, b)
	}
	return s
}

func (v *variation) figure() figure {
	return figure{Name: v.name, Part: v.part, Plan: v.plan, Show: v.show}
}

var bounds = []int{1, 2, 3}

func boundKey(c *cluster, a *app, bound int) string {
	return fmt.Sprintf("fig4_3_%s_%s_%dnodes", c.key, strings.ToLower(a.name), bound)
}

var boundFigure = (&variation{
	name: "4-3", part: "Fig. 4-3: co-location with 1, 2 and 3 nodes a job", label: "time over that with 1 node",
	variants: func(c *cluster) (list []variant) {
		for _, bound := range bounds {
			list = append(list, variant{units.Plural(bound, "node"), bounded(bound, c.weights[0])})
		}
		return list
	},
	key:  func(c *cluster, a *app, i int) string { return boundKey(c, a, bounds[i]) },
	over: "1node", unit: "x 1 node", note: func(*cluster, int) string { return "above 1: one node is faster" },
}).figure()

func weightKey(c *cluster, a *app, set int) string {
	return fmt.Sprintf("fig4_4_%s_%s_wg%d", c.key, strings.ToLower(a.name), set+1)
}

var weightFigure = (&variation{
	name: "4-4", part: "Fig. 4-4: weights of nodes", label: "throughput over that of WG1", inverse: true,
	variants: func(c *cluster) (list []variant) {
		for set, weights := range c.weights {
			list = append(list, variant{fmt.Sprintf("WG%d (%s)", set+1, weightsText(weights)), colocation(weights)})
		}
		return list
	},
	key:  weightKey,
	over: "wg1", unit: "x WG1", note: func(c *cluster, i int) string { return "throughput; weights " + weightsText(c.weights[i]) },
}).figure()

// timeRow is the measured time of a workload, with the simulator's prediction in the note.
func (m *measured) timeRow(part, key string) exp.Row {
	return exp.Over(part, key+"_s", "s", m.Seconds(key)).Noting("the simulator says %.2f s", m.predicted[key].Seconds)
}
