package aucsched

import (
	"context"

	"muster/report"
	"muster/sim"
	"muster/sim/simpage"
)

// A small instance, of which all blocks are visible.
const (
	ganttMachine, ganttVersion = "S", "V.1"
	ganttJobs                  = "hours=0.25"
	maxBlocks                  = 20_000
)

// drawNodes draws the nodes over time under the three policies.
func drawNodes(ctx context.Context, p *plan) ([]report.Section, error) {
	cluster := p.clusters[ganttMachine]
	var (
		runs     []sim.RunOf
		watchers []*simpage.Recorder
	)
	contenders := []contender{bySlurm, byAuction, byMosaic}
	for i, who := range contenders {
		s := who.on(ganttMachine, ganttVersion)
		s.jobs = ganttJobs
		watcher := simpage.NewRecorder(cluster, maxBlocks)
		r, err := p.simulate(ctx, s, p.seeds[0], watcher)
		if err != nil {
			return nil, err
		}
		watchers = append(watchers, watcher)
		runs = append(runs, sim.RunOf{Point: sim.Point{Index: i, Policy: who.name, Seed: p.seeds[0], Nodes: len(cluster.Nodes)}, Result: r})
	}
	var list []report.Section
	for _, section := range simpage.NewStudy(cluster, runs, watchers).Page().Sections {
		if g, ok := section.(*report.Gantt); ok {
			g.Title = "A quarter of an hour of work of workload " + ganttVersion + " on Machine-" + ganttMachine + ": " + contenders[len(list)].name
			list = append(list, g)
		}
	}
	return list, nil
}
