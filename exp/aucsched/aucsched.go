// Package aucsched reproduces the paper on AUCSCHED, which lets jobs bid for
// resources: its auction beside Slurm-like backfill in Tables 5 to 8. Then it
// goes beyond both: a policy of our own, GPUs that are not bound to nodes, jobs
// with alternatives, and a proven bound on what any schedule can do.
//
// The authors ran a real Slurm for a month; here the same policies decide in
// virtual time. Nothing here decides or simulates: that is done by the
// packages policy and sim.
package aucsched

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/exp"
	"muster/report"
)

// Experiment is the whole of it.
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
	// instances of each workload, as in the paper; all parts at once are made with
	// fewer, to be through in minutes.
	instances, instancesOfAll = 7, 3
	// Workloads shorter than that have hardly a job, longer ones take for ever.
	leastHours, mostHours = 0.01, 100.0
)

// machine is one of the paper's.
type machine struct{ name, preset, table string }

var machines = []machine{{"S", "aucsched-s", "5"}, {"M", "aucsched-m", "6"}, {"L", "aucsched-l", "7"}}

func machineNames() []string {
	return exp.Names(machines, func(m *machine) string { return m.name })
}

// version is a workload of Table 4 with a share of jobs that want neighbouring nodes.
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

// hard are the versions of workload V, whose jobs ask for two GPUs a node too.
var hard = []string{"V.1", "V.2", "V.3"}

func versionOf(name string) version {
	for _, v := range versions {
		if v.name == name {
			return v
		}
	}
	panic("aucsched: there is no version " + name)
}

// part is something that can be had alone.
type part struct {
	name string
	// wants lists what must be run for it.
	wants func(*plan) []scenario
	// show makes rows and pictures of what was found.
	show func(*plan) shown
}

// shown is what becomes of the runs of a part.
type shown struct {
	title    string
	rows     []exp.Row
	tables   []*report.Table // for people, in place of the rows
	pictures []report.Section
}

var parts = []part{claimsPart, tablesPart, beyondPart, boundPart, tradeoffPart, remotePart, alternativesPart, ipschedPart, guessesPart, estimatesPart}

func partName(p *part) string { return p.name }

// plan is what was asked for, and where the runs are made.
type plan struct {
	*lab
	machines []machine
	tables   []string
}

func (p *plan) onMachine(name string) bool {
	return slices.ContainsFunc(p.machines, func(m machine) bool { return m.name == name })
}

func newPlan(o exp.Options) (*plan, []part, error) {
	if hours, given := o.Flags["hours"]; given {
		if h, err := strconv.ParseFloat(hours, 64); err != nil || !(h >= leastHours && h <= mostHours) {
			return nil, nil, exp.UsageError(fmt.Sprintf("--hours %s: give a number from %v to %v", hours, leastHours, mostHours))
		}
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
		o.Figures = []string{claimsPart.name, tablesPart.name}
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

// make runs what the parts need, and shows it.
func (p *plan) make(ctx context.Context, wanted []part) (*exp.Result, error) {
	if err := p.wantAll(wanted); err != nil {
		return nil, err
	}
	missing, err := p.run(ctx)
	if err != nil {
		return nil, err
	}
	partial := describeMissing(missing)
	var gantts []report.Section
	if partial == "" && slices.ContainsFunc(wanted, func(one part) bool { return one.name == beyondPart.name }) {
		if gantts, err = p.gantts(ctx); err != nil {
			if ctx.Err() == nil {
				return nil, err
			}
			partial = "the pictures of nodes over time" // and nothing else
		}
	}
	return p.result(wanted, gantts, partial).Found(ctx)
}

// wantAll asks for what the parts need.
func (p *plan) wantAll(wanted []part) error {
	for _, one := range wanted {
		p.Want(one.wants(p)...)
	}
	if len(p.Wanted) == 0 {
		return exp.UsageError("nothing to do: tables 5, 6 and 7 are of the machines S, M and L, and table 8 is of L; choose a table and a machine that belong together")
	}
	return nil
}

// result makes rows, notes and the page of what was found.
func (p *plan) result(wanted []part, gantts []report.Section, partial string) *exp.Report {
	r := exp.NewReport(name, title, lead, p.notes(), partial)
	for _, one := range wanted {
		s := one.show(p)
		if r.Begin(s.title, s.rows) {
			r.AddTables(s.tables...)
			r.Add(s.pictures...)
		}
	}
	if gantts != nil {
		r.Add(report.Heading("Nodes over time"))
		r.Add(gantts...)
	}
	return r
}

// describeMissing names what was not run, in groups.
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
