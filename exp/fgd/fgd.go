// Package fgd reproduces the evaluation of the paper on fragmentation gradient descent (USENIX ATC
// 2023). Pods of Alibaba's openb trace arrive at its GPU nodes until they have asked for 130 % of
// the GPUs, and the share that gets placed is measured. Three policies with GPUs decoupled from the
// nodes are compared with the paper's six.
//
// Nothing here decides: package policy/packing does, on the engine of package policy. The trace is
// embedded in the package; openb/README.md says where it is from.
package fgd

import (
	"context"
	"fmt"
	"slices"

	"muster/exp"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy/packing"
)

// Experiment is the whole experiment.
var Experiment = exp.Experiment{
	Name:  name,
	Title: title,
	Summary: "how full six policies, and three with decoupled GPUs, fill a cloud's cluster of 6,212 GPUs: " +
		"500 runs in about a minute on two cores",
	Runs:    seedsTried,
	Figures: workloads,
	Run:     run,
}

const (
	name  = "fgd"
	title = "FGD: filling a cluster of 6,212 GPUs, with GPUs in their nodes and decoupled from them"
	// seedsTried is the authors' number of seeds.
	seedsTried = 10
	// seedsFrom makes --seed 1 the authors' first seed, 42. Equal seeds do not give equal samples,
	// because the authors' random generator is another one.
	seedsFrom = 41
)

// workloads of the paper that are embedded in the package.
var workloads = []string{"default", "cpu050", "gpushare40", "gpuspec10", "multigpu20"}

// contender is a policy with its settings.
type contender struct {
	name, policy string
	decoupled    bool
	randomTies   bool
}

// contenders in the order of the tables: the paper's policies, fgd with the usual tie-breaking, the
// paper's best two on decoupled GPUs, and a policy that is not from the paper.
var contenders = []contender{
	{name: "random-fit", policy: "random-fit"},
	{name: "dot-product", policy: "dot-product"},
	{name: "gpu-clustering", policy: "gpu-clustering"},
	{name: "gpu-packing", policy: "gpu-packing"},
	{name: "best-fit", policy: "best-fit"},
	{name: fgdCoupled, policy: "fgd"},
	{name: fgdRandomTies, policy: "fgd", randomTies: true},
	{name: bestFitDecoupled, policy: "best-fit", decoupled: true},
	{name: fgdDecoupled, policy: "fgd", decoupled: true},
	{name: pricedFit, policy: "priced-fit", decoupled: true},
}

const (
	fgdCoupled       = "fgd"
	fgdRandomTies    = "fgd-random-ties"
	bestFitDecoupled = "best-fit-decoupled"
	fgdDecoupled     = "fgd-decoupled"
	pricedFit        = "priced-fit"
)

// scene is a loaded workload.
type scene struct {
	name    string
	cluster *model.Cluster
	pods    []model.Job
	target  *packing.Target
	// densest is an upper bound, in per cent, for the allocation that a policy can reach without
	// refusing a pod.
	densest float64
	// courses by contender and seed.
	courses [][]*course
}

func newScene(c *model.Cluster, workloadName string) (*scene, error) {
	pods, err := loadPods(workloadName)
	if err != nil {
		return nil, err
	}
	s := &scene{name: workloadName, cluster: c, pods: pods}
	var census packing.Census
	for i := range pods {
		census.Add(&pods[i])
	}
	s.target = census.Target(c)
	s.densest = 100 * census.Densest(clusterfile.OpenbGPUMemory)
	return s, nil
}

// run simulates one contender on one sample of the pods.
func (s *scene) run(ctx context.Context, k contender, seed uint64) (*course, error) {
	p, err := packing.New(k.policy, packing.Config{Seed: seed, Decoupled: k.decoupled, RandomTies: k.randomTies, Target: s.target})
	if err != nil {
		return nil, err
	}
	capacity := 1000 * int64(s.cluster.TotalGPUs())
	return fill(ctx, s.cluster, p, sample(s.pods, capacity, seed), newGauge(s.cluster, s.target, k.decoupled))
}

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	cluster, err := loadCluster()
	if err != nil {
		return nil, err
	}
	return runOn(ctx, o, cluster)
}

// trial is a contender on a workload.
type trial struct {
	workload  string
	contender int // its index
}

func (t trial) String() string { return contenders[t.contender].name + " on " + t.workload }

// runOn makes all runs on a cluster.
func runOn(ctx context.Context, o exp.Options, cluster *model.Cluster) (*exp.Result, error) {
	seeds := o.Seeds(seedsTried)
	for i := range seeds {
		seeds[i] += seedsFrom
	}
	var scenes []*scene
	var trials exp.Trials[trial, *course]
	for _, w := range o.ChosenFigures(workloads) {
		s, err := newScene(cluster, w)
		if err != nil {
			return nil, err
		}
		scenes = append(scenes, s)
		for i := range contenders {
			trials.Want(trial{w, i})
		}
	}
	missing, err := trials.Run(ctx, o, seeds, func(trial) int64 { return 1 }, func(ctx context.Context, t trial, seed uint64) (*course, error) {
		at := slices.IndexFunc(scenes, func(s *scene) bool { return s.name == t.workload })
		return scenes[at].run(ctx, contenders[t.contender], seed)
	})
	if err != nil {
		return nil, err
	}
	// Leave out workloads that are incomplete, and those behind them.
	whole := slices.IndexFunc(scenes, func(s *scene) bool {
		return slices.ContainsFunc(missing, func(t trial) bool { return t.workload == s.name })
	})
	r := &exp.Result{Name: name}
	switch {
	case whole == 0:
		return nil, ctx.Err()
	case whole > 0:
		r.Partial = fmt.Sprintf("only the workloads up to %s are through", scenes[whole-1].name)
		scenes = scenes[:whole]
	}
	for _, s := range scenes {
		for i := range contenders {
			s.courses = append(s.courses, trials.Found[trial{s.name, i}])
		}
		r.Rows = append(r.Rows, s.rows()...)
	}
	r.Notes = notes(scenes, seeds)
	r.Page = page(r, scenes)
	return r, nil
}
