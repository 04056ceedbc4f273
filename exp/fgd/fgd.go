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

func newScene(c *model.Cluster, workloadName string, seeds int) (*scene, error) {
	pods, err := loadPods(workloadName)
	if err != nil {
		return nil, err
	}
	s := &scene{name: workloadName, cluster: c, pods: pods, courses: make([][]*course, len(contenders))}
	var census packing.Census
	for i := range pods {
		census.Add(&pods[i])
	}
	s.target = census.Target(c)
	s.densest = 100 * census.Densest(clusterfile.OpenbGPUMemory)
	for i := range s.courses {
		s.courses[i] = make([]*course, seeds)
	}
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

// runOn makes all runs on a cluster.
func runOn(ctx context.Context, o exp.Options, cluster *model.Cluster) (*exp.Result, error) {
	seeds := o.Seeds(seedsTried)
	for i := range seeds {
		seeds[i] += seedsFrom
	}
	var scenes []*scene
	var tasks []exp.Task
	for _, w := range workloads {
		if !o.Wants(w) {
			continue
		}
		s, err := newScene(cluster, w, len(seeds))
		if err != nil {
			return nil, err
		}
		scenes = append(scenes, s)
		for i, k := range contenders {
			for j, seed := range seeds {
				tasks = append(tasks, exp.Task{Weight: 1, Do: func(ctx context.Context) (err error) {
					s.courses[i][j], err = s.run(ctx, k, seed)
					return err
				}})
			}
		}
	}
	done, err := o.Each(ctx, tasks)
	if err != nil {
		return nil, err
	}
	// Leave out workloads that are incomplete.
	whole, each := 0, len(contenders)*len(seeds)
	for whole < len(scenes) && all(done[whole*each:(whole+1)*each]) {
		whole++
	}
	if whole == 0 {
		return nil, ctx.Err()
	}
	r := &exp.Result{Name: name}
	if whole < len(scenes) {
		r.Partial = fmt.Sprintf("only the workloads up to %s are through", scenes[whole-1].name)
	}
	scenes = scenes[:whole]
	for _, s := range scenes {
		r.Rows = append(r.Rows, s.rows()...)
	}
	r.Notes = notes(scenes, seeds)
	r.Page = page(r, scenes)
	return r, nil
}

func all(done []bool) bool {
	for _, d := range done {
		if !d {
			return false
		}
	}
	return true
}
