// Package aucsched reproduces the paper on AUCSCHED, which lets jobs bid for resources. It compares
// the auction with Slurm-like backfill in Tables 5 to 8. Then it goes beyond both: a policy of our
// own, GPUs that are not bound to nodes, jobs with alternatives, and a proven bound on what any
// schedule can reach.
//
// The authors ran a real Slurm for a month; here the same policies decide in virtual time. Nothing
// here decides or simulates: the packages policy and sim do.
package aucsched

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/internal/misuse"
)

// Experiment is the whole experiment, simulated and live.
var Experiment = exp.Experiment{
	Name:  name,
	Title: title,
	Summary: "an auction for nodes against Slurm's backfill (Tables 5 to 8), and better than both; " +
		fmt.Sprintf("%d instances of each workload, as in the paper, or %d when all parts are made at once", instances, instancesOfAll),
	Runs:    instances,
	Figures: exp.Names(parts, partName),
	Flags: append([]exp.Flag{
		{Name: "machine", Summary: "only these machines", Values: machineNames()},
		{Name: "table", Summary: "only these tables of the paper", Values: []string{"5", "6", "7", "8"}},
		{Name: "hours", Summary: "theoretical length of the workloads (default: the paper's 4, with --live 0.4)"},
	}, liveFlags...),
	Run: exp.Live(liveFlags, runLive, run),
}

const (
	name  = "aucsched"
	title = "AUCSCHED: jobs bid for nodes, cores and GPUs"
	// instances of each workload, as in the paper. If all parts are asked for, instancesOfAll keeps
	// the run time at minutes.
	instances, instancesOfAll = 7, 3
	// A shorter workload has hardly any jobs; a longer one takes too long.
	leastHours, mostHours = 0.01, 100.0
)

// machine is one of the paper's machines.
type machine struct{ name, preset, table string }

var machines = []machine{{"S", "aucsched-s", "5"}, {"M", "aucsched-m", "6"}, {"L", "aucsched-l", "7"}}

func machineNames() []string {
	return exp.Names(machines, func(m *machine) string { return m.name })
}

// version is a workload of Table 4 with a share of jobs that need contiguous nodes.
type version struct {
	name, workload string
	contiguous     int // per cent
}

// versions in the paper's order.
var versions = func() []version {
	var list []version
	for _, w := range []string{"I", "II", "III", "IV", "V"} {
		for i, contiguous := range []int{0, 50, 100} {
			list = append(list, version{fmt.Sprintf("%s.%d", w, i+1), w, contiguous})
		}
	}
	return list
}()

// hard are the versions of workload V, some of whose jobs ask for two GPUs per node.
var hard = []string{"V.1", "V.2", "V.3"}

func versionOf(name string) version {
	for _, v := range versions {
		if v.name == name {
			return v
		}
	}
	panic("aucsched: there is no version " + name)
}

// part is a part of the experiment that the user can ask for alone.
type part = exp.Part[*plan, scenario]

// simulation says what is shown beside the parts.
var simulation = exp.Simulation[*plan, scenario]{
	Name: name, Title: title, Lead: lead, Missing: describeMissing,
	Notes: func(p *plan, _ []part) []string { return p.notes() },
	Extra: exp.Extra[*plan]{Of: beyondPart.Name, Says: "the pictures of nodes over time", Heading: "Nodes over time", Draw: drawNodes},
}

var parts = []part{claimsPart, tablesPart, beyondPart, boundPart, tradeoffPart, remotePart, alternativesPart, ipschedPart, guessesPart, estimatesPart}

func partName(p *part) string { return p.Name }

// plan is what the user asked for, with the lab that runs it.
type plan struct {
	*lab
	machines []machine
	tables   []string
}

func (p *plan) onMachine(name string) bool {
	return slices.ContainsFunc(p.machines, func(m machine) bool { return m.name == name })
}

func newPlan(o exp.Options) (*plan, []part, error) {
	if err := o.Number("hours", leastHours, mostHours, new(float64)); err != nil {
		return nil, nil, err
	}
	l, err := newLab(o)
	if err != nil {
		return nil, nil, err
	}
	p := &plan{lab: l, tables: o.Chosen("table", []string{"5", "6", "7", "8"})}
	chosen := o.Chosen("machine", machineNames())
	for _, m := range machines {
		if slices.Contains(chosen, m.name) {
			p.machines = append(p.machines, m)
		}
	}
	if _, given := o.Flags["table"]; given && len(o.Figures) == 0 {
		o.Figures = []string{claimsPart.Name, tablesPart.Name}
	}
	return p, exp.Wanted(o, parts, partName), nil
}

func run(ctx context.Context, o exp.Options) (*exp.Result, error) {
	p, wanted, err := newPlan(o)
	if err != nil {
		return nil, err
	}
	return p.make(ctx, wanted)
}

// make runs what the parts need, and shows the results.
func (p *plan) make(ctx context.Context, wanted []part) (*exp.Result, error) {
	if err := p.wantAll(wanted); err != nil {
		return nil, err
	}
	return simulation.Make(ctx, p, wanted)
}

// wantAll registers the scenarios that the parts need.
func (p *plan) wantAll(wanted []part) error {
	for _, one := range wanted {
		p.Want(one.Wants(p)...)
	}
	if len(p.Wanted) == 0 {
		return misuse.Errorf("nothing to do: tables 5, 6 and 7 are of the machines S, M and L, and table 8 is of L; choose a table and a machine that belong together")
	}
	return nil
}

// describeMissing names the scenarios that were not run, in groups.
func describeMissing(missing []scenario) string {
	var groups []string
	versions := map[string][]string{}
	for _, s := range missing {
		group := strings.TrimSpace("machine " + s.machine + " " + s.policy + " " + s.jobs)
		if versions[group] == nil {
			groups = append(groups, group)
		}
		versions[group] = append(versions[group], s.version)
	}
	for i, g := range groups {
		groups[i] = g + " (" + strings.Join(versions[g], ", ") + ")"
	}
	return strings.Join(groups, "; ")
}
