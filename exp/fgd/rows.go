package fgd

import (
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/internal/units"
)

// part is the heading of a workload.
func (s *scene) part() string {
	return fmt.Sprintf("Workload %s (%d pods in the trace)", s.name, len(s.pods))
}

// of extracts a number from each run of a contender.
func (s *scene) of(name string, value func(*course) float64) []float64 {
	i := slices.IndexFunc(contenders, func(k contender) bool { return k.name == name })
	return exp.Values(s.courses[i], func(c **course) float64 { return value(*c) })
}

// mean is a number's mean over the seeds.
func (s *scene) mean(contender string, value func(*course) float64) float64 {
	return exp.Mean(s.of(contender, value))
}

func allocated(c *course) float64  { return final(&c.allocated) }
func fragmented(c *course) float64 { return final(&c.fragmented) }

func borrowing(c *course) float64 { return 100 * float64(c.borrowing) / float64(c.pods-c.failed) }

func (s *scene) rows() []exp.Row {
	var rows []exp.Row
	row := func(contender, metric, unit string, value func(*course) float64) exp.Row {
		name := strings.ReplaceAll(s.name+"_"+contender+"_"+metric, "-", "_")
		return exp.Over(s.part(), name, unit, s.of(contender, value))
	}
	for _, k := range contenders {
		paper := published[s.name][k.name]
		add := func(r exp.Row, number float64) {
			if number > 0 {
				r = r.Against(number)
			}
			rows = append(rows, r)
		}
		add(row(k.name, "allocated_pct", "% of GPUs", allocated), paper.allocated)
		r := row(k.name, "fragmented_pct", "% of GPUs", fragmented)
		if k.decoupled {
			r = r.Noting("of decoupled GPUs: the cluster is one node")
		}
		add(r, paper.fragmented)
		if s.name == "default" {
			add(row(k.name, "frag_ratio_80_pct", "% of idle GPUs", func(c *course) float64 { return c.ratio(80) }), paper.ratio80)
			add(row(k.name, "frag_ratio_90_pct", "% of idle GPUs", func(c *course) float64 { return c.ratio(90) }), paper.ratio90)
		}
		if k.decoupled {
			rows = append(rows, row(k.name, "borrowing_pct", "% of placed pods", borrowing).Noting("pods that use a GPU of another node"))
		}
	}
	base := s.of(fgdCoupled, allocated)
	for _, name := range []string{bestFitDecoupled, pricedFit} {
		gain := s.of(name, allocated)
		for i := range gain {
			gain[i] = (gain[i] - base[i]) / 100 * float64(s.cluster.TotalGPUs())
		}
		metric := strings.ReplaceAll(s.name+"_"+name+"_more_gpus", "-", "_")
		rows = append(rows, exp.Over(s.part(), metric, "GPUs", gain).Noting("more in use at the end than with fgd, GPUs in their nodes"))
	}
	return append(rows, exp.Single(s.part(), s.name+"_densest_pct", "% of GPUs", s.densest).
		Noting("no policy gets fuller while it refuses no pod: all pods of the trace, packed as densely as the linear program allows; "+
			"when whole GPUs are refused, small pods can still fill gaps"))
}

func notes(scenes []*scene, seeds []uint64) []string {
	first := scenes[0]
	list := []string{
		fmt.Sprintf("The cluster is the trace's %d nodes with GPUs, %d of them. Each run: all pods of a workload in random order, then pods drawn from them with "+
			"replacement until 130 %% of the GPUs are asked for. A pod is placed when it comes, or dropped; none ends. %s, from %d on. The random numbers are not "+
			"the authors', so that runs compare by their means.", len(first.cluster.Nodes), first.cluster.TotalGPUs(), units.Plural(len(seeds), "seed"), seeds[0]),
		"Allocated is what placed pods asked for, of all GPUs. A fragment of a node, for a task that is expected, is all of the node's idle GPUs if the task cannot run there (too few " +
			"GPUs with enough left, too few cores, another type, or it needs no GPU), and else those of its GPUs that have too little left for it. The tasks expected are those of the workload, the most popular " +
			"95 of 100 pods, each with its weight. For decoupled GPUs the cluster is one such node, and cores are lacking only if no node has them.",
		"Two things must be read as the authors' program has them, or the numbers differ. Ties go to the first node in one fixed random order of a run: their nodes get random " +
			"prefixes, and their scheduler was changed to take the smallest name. With a random choice among ties, as Kubernetes has it, fgd ends points lower on some workloads (rows *_fgd_random_ties_*). And scores are " +
			"whole numbers from 0 to 100, so that ties are frequent.",
		"The paper's numbers are those that the authors publish as expected results of their program: means of ten seeds. All of them for the default workload; of the others the final allocation of fgd, and of some policies.",
	}
	for _, s := range scenes {
		list = append(list, fmt.Sprintf("%s: with GPUs in their nodes fgd fills %.2f %% of them. Decoupled from nodes, plain best fit fills %.2f %%, and packing shares by price %.2f %%: %.0f GPUs more than fgd. "+
			"To do so %.1f %% of the pods use a GPU of another node. While no pod is refused nobody can get beyond %.2f %%; small pods that come later can fill a little more.",
			s.name, s.mean(fgdCoupled, allocated), s.mean(bestFitDecoupled, allocated), s.mean(pricedFit, allocated),
			(s.mean(pricedFit, allocated)-s.mean(fgdCoupled, allocated))/100*float64(s.cluster.TotalGPUs()), s.mean(pricedFit, borrowing), s.densest))
	}
	return append(list, "What remote GPUs cost a pod in time is not in these numbers: the trace says nothing of what pods move. It says what they are worth in GPUs.")
}
