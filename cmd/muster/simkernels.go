package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/internal/wholefile"
	"muster/mapping"
	"muster/model"
	"muster/model/clusterfile"
	"muster/report"
	"muster/report/kernelpage"
	"muster/report/screen"
	"muster/sim/kernels"
	"muster/workload/phased"
)

const simKernelsHelp = `Ask which mapper suits your applications: processes alternate between a CPU phase
and a kernel, and a mapper chooses for each kernel a GPU of the process's own node
or one across the network. Everything runs in virtual time. The first mapper is
what the others are compared with.

A workload is one that is built in, with settings where they are to be others, as
W4:ratio=100, or a YAML file that describes your applications. --list-workloads
lists the names and settings, docs/kernel-workloads.md has the format. A file of
that name wins over a name.

Mappers are names with commas between, each with settings where it has some, as
ag:choices=2; --list-policies lists them.

--span is how long is simulated; with 0 all processes run to their end, which
every application must then have. --seeds repeats everything with other random
numbers: 1..5. The tables then have means and 95 % confidence intervals.

What nodes know of the GPUs of others may be old or wrong: --delay is how long
they take to learn of a change, --false-positive how often an idle GPU seems
busy, --false-negative how often a busy one seems idle (0 to 1). --window is how
many kernels of a GPU its average counts.

--bandwidth and --latency stand in for the cluster's: of every node's port, and
of every call to another node. A bandwidth of 0 is no limit. --hold results
keeps a GPU until the results of a remote call have arrived; else it is free when
the kernel ends. --send ahead sends the input of a remote call as soon as its GPU is
chosen, and the call joins the queue there when it has arrived, so that no GPU waits for
it; else it is sent when the call has its turn, and the GPU waits. A mapper that leaves
calls to any GPU, as gr does, sends nothing ahead.

--explain tells of single calls, under each mapper, why they went to their GPU: which
others it looked at, and what it expected of them. A call is named by its number,
from 1 in the order of launch, or by a time such as 12.5s: the first one then or later.

--html writes a page with pictures that needs nothing else. --trace-csv writes a line for
each stage of each call. This and --explain are of the runs with the first seed and size.`

// simKernelsFlags are the flags of muster sim kernels.
type simKernelsFlags struct {
	cluster, workload, policies  string
	nodes, seeds                 string
	span, delay                  string
	bandwidth, latency           string
	hold, send                   string
	falsePositive, falseNegative float64
	window, workers              int
	html, trace, explain         string
	asJSON                       bool
	listPolicies, listWorkloads  bool
}

const (
	holdKernel  = "kernel"
	holdResults = "results"

	sendTurn  = "turn"
	sendAhead = "ahead"
)

func newSimKernels() *cobra.Command {
	var f simKernelsFlags
	c := &cobra.Command{
		Use: `kernels [--cluster FILE|NAME] [--workload FILE|NAME[:key=value...]] [--policy NAME[:key=value...][,...]]
                     [--nodes 24,48] [--seeds 1..5] [--span 1000s] [--html FILE] [--trace-csv FILE]
                     [--explain CALL[,CALL]] [--json]`,
		Short: "Ask which mapper suits your applications: kernels on the GPUs of all nodes",
		Long:  simKernelsHelp,
		Example: `  muster sim kernels
  muster sim kernels --workload W4 --policy st,ag,ar,probe --seeds 1..5 --html report.html
  muster sim kernels --cluster mine.yaml --workload apps.yaml --policy st,gr,probe
  muster sim kernels --policy st,ag,ar --delay 1s --false-negative 0.1
  muster sim kernels --policy ag,ar,probe --span 100s --explain 5000,12.5s
  muster sim kernels --nodes 24,48,96 --policy st,ag,probe --span 1000s --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.listPolicies && f.asJSON:
				return printChoosableJSON(c, "policies", mappers())
			case f.listPolicies:
				return printChoosable(c, "Mapper", mappers())
			case f.listWorkloads:
				return listPhased(c, f.asJSON)
			}
			return f.run(c)
		},
	}
	c.Flags().StringVar(&f.cluster, "cluster", "gremm", "the cluster: a `file`, or a name that muster cluster list lists")
	c.Flags().StringVar(&f.workload, "workload", "W4", "the applications: a `file`, or a name that --list-workloads lists")
	c.Flags().StringVar(&f.policies, "policy", "st,gr,ag,ar,probe", "the `mappers` to compare, with commas between")
	c.Flags().StringVar(&f.nodes, "nodes", "", "numbers of nodes to try: a list or `range` (default: the cluster as it is)")
	c.Flags().StringVar(&f.seeds, "seeds", "1", "seeds to try: a list or `range`")
	c.Flags().StringVar(&f.span, "span", "10000s", "how `long` to simulate; 0: until all processes have ended")
	c.Flags().IntVar(&f.window, "window", 10, "how many of its last kernels the average of a GPU counts (k)")
	c.Flags().StringVar(&f.delay, "delay", "0s", "how `long` nodes take to learn what happens on others")
	c.Flags().Float64Var(&f.falsePositive, "false-positive", 0, "how often an idle GPU of another node seems busy, 0 to 1")
	c.Flags().Float64Var(&f.falseNegative, "false-negative", 0, "how often a busy GPU of another node seems idle, 0 to 1")
	c.Flags().StringVar(&f.hold, "hold", holdKernel, "a remote call holds its GPU until the end of its kernel, or until its results have arrived: `kernel|results`")
	c.Flags().StringVar(&f.send, "send", sendTurn, "the input of a remote call is sent when it has its turn, or ahead, before it joins the queue of its GPU: `turn|ahead`")
	c.Flags().StringVar(&f.bandwidth, "bandwidth", "", "`bandwidth` of every node's port, as 100MB/s; 0 is no limit (default: the cluster's)")
	c.Flags().StringVar(&f.latency, "latency", "", "`latency` of a call to another node, as 1ms (default: the cluster's)")
	c.Flags().IntVar(&f.workers, "workers", runtime.NumCPU(), "runs at the same time; the results do not depend on it")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().StringVar(&f.html, "html", "", "write a page with pictures to this `file`")
	c.Flags().StringVar(&f.trace, "trace-csv", "", "write a line for each stage of each call to this `file`, gzipped where it ends in .gz")
	c.Flags().StringVar(&f.explain, "explain", "", "tell why these `calls` went to their GPU: numbers, from 1, or times such as 12.5s")
	c.Flags().BoolVar(&f.listPolicies, "list-policies", false, "list the mappers and their settings")
	c.Flags().BoolVar(&f.listWorkloads, "list-workloads", false, "list the workloads that have names")
	completeFlag(c, "cluster", completePresets)
	completeFlag(c, "workload", completePhased)
	completeFlag(c, "policy", completeMappers)
	completeFlag(c, "hold", cobra.FixedCompletions([]string{holdKernel, holdResults}, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(c, "send", cobra.FixedCompletions([]string{sendTurn, sendAhead}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// completeMappers completes the last of several names with commas between, or its settings.
func completeMappers(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	cut := strings.LastIndexByte(word, ',') + 1
	before, last := word[:cut], word[cut:]
	name, _, hasSettings := strings.Cut(last, ":")
	var names []string
	for _, e := range mapping.Entries {
		switch {
		case hasSettings && e.Name == name:
			return completeSettings(before, last, e.Options), directive
		case !hasSettings && !slices.Contains(strings.Split(before, ","), e.Name): // one is named once
			names = append(names, before+e.Name+"\t"+e.Summary)
		}
	}
	return names, directive
}

// completeSettings completes the last setting of NAME:key=value:key=value with those that it has not
// yet, each with the value that it has when nothing is said.
func completeSettings(before, word string, options []model.Option) []string {
	given := word[:strings.LastIndexByte(word, ':')+1]
	var list []string
	for _, o := range options {
		if !strings.Contains(given, ":"+o.Name+"=") {
			list = append(list, before+given+o.Name+"="+"\t"+o.Summary+" ("+o.Default+")")
		}
	}
	return list
}

// run does the whole of muster sim kernels.
func (f *simKernelsFlags) run(c *cobra.Command) error {
	sweep, err := f.sweep()
	if err != nil {
		return err
	}
	for _, file := range []string{f.html, f.trace} {
		if err := checkFolder(file); err != nil {
			return err
		}
	}
	if f.html != "" && f.trace != "" && filepath.Clean(f.html) == filepath.Clean(f.trace) {
		return usageErrorf("--html and --trace-csv both name %s: give each a file of its own", f.html)
	}
	var recorders []*kernelpage.Recorder
	if f.html != "" {
		recorders = kernelpage.Record(sweep)
	}
	var runs []kernels.RunOf
	simulate := func(trace io.Writer) error {
		sweep.Trace = trace
		runs, err = withProgress(c, "simulating", func(ctx context.Context, progress func(done, all int64)) ([]kernels.RunOf, error) {
			sweep.Progress = progress
			return sweep.Run(ctx)
		})
		if err != nil {
			return err
		}
		if i, why := kernels.Unexplained(runs[:len(sweep.Mappers)], sweep.Common.Explain); i >= 0 {
			return notExplained(f.explain, i, why)
		}
		return nil
	}
	if f.trace == "" {
		err = simulate(nil)
	} else {
		err = wholefile.Write(f.trace, simulate)
	}
	if err != nil {
		return err
	}
	study := kernelpage.NewStudy(sweep, runs, recorders)
	study.Asked = kernelpage.Asked(sweep, kernelpage.Words{Cluster: f.cluster, Workload: f.workload, Span: f.span, Nodes: f.nodes, Seeds: f.seeds})
	study.Command = commandLine(c)
	return f.write(c, sweep, study)
}

// sweep reads the flags that say what to run.
func (f *simKernelsFlags) sweep() (*kernels.Sweep, error) {
	s := &kernels.Sweep{Workers: f.workers}
	if err := f.settings(&s.Common); err != nil {
		return nil, err
	}
	var err error
	if s.Mappers, err = parseMappers(f.policies); err != nil {
		return nil, err
	}
	seeds, err := model.ParseRange(f.seeds)
	if err != nil {
		return nil, usageErrorf("--seeds: %v", err)
	}
	for _, n := range seeds {
		s.Seeds = append(s.Seeds, uint64(n))
	}
	if f.workers < 1 {
		return nil, usageErrorf("--workers must be 1 or more, not %d", f.workers)
	}
	moments, err := parseMoments(f.explain, "call", "12.5s")
	if err != nil {
		return nil, err
	}
	for _, m := range moments {
		s.Common.Explain = append(s.Common.Explain, kernels.Moment{Call: int64(m.Step), At: m.At})
	}
	cluster, err := f.loadCluster()
	if err != nil {
		return nil, err
	}
	nodes := []int{len(cluster.Nodes)}
	if f.nodes != "" {
		if nodes, err = model.ParseRange(f.nodes); err != nil {
			return nil, usageErrorf("--nodes: %v", err)
		}
	}
	if runs := len(seeds) * len(nodes) * len(s.Mappers); runs > maxRuns {
		return nil, usageErrorf("that would be %d runs: ask for at most %d at once", runs, maxRuns)
	}
	for _, n := range nodes {
		resized, err := cluster.Resize(n)
		if err != nil {
			return nil, usageErrorf("--nodes: %v", err)
		}
		wl, err := f.loadWorkload(n)
		if err != nil {
			return nil, err
		}
		for i := range wl.Apps {
			if s.Common.Span == 0 && wl.Apps[i].Iterations == 0 {
				return nil, usageErrorf("--span 0: application %s of %s has no end: give a span, or say how many iterations it makes", wl.Apps[i].Name, f.workload)
			}
		}
		s.Sizes = append(s.Sizes, kernels.Size{Cluster: resized, Workload: wl})
	}
	return s, nil
}

// settings reads what all runs have in common.
func (f *simKernelsFlags) settings(c *kernels.Config) error {
	for _, t := range []struct {
		name, value string
		to          *time.Duration
	}{{"span", f.span, &c.Span}, {"delay", f.delay, &c.Status.Delay}} {
		var err error
		if *t.to, err = model.ParseDuration(t.value); err != nil {
			return usageErrorf("--%s: %v", t.name, err)
		}
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"false-positive", f.falsePositive}, {"false-negative", f.falseNegative}} {
		if !(p.value >= 0 && p.value <= 1) {
			return usageErrorf("--%s is a share, from 0 to 1, not %v: write 5 %% as 0.05", p.name, p.value)
		}
	}
	c.Status.FalsePositive, c.Status.FalseNegative = f.falsePositive, f.falseNegative
	if f.window < 1 || f.window > maxWindow {
		return usageErrorf("--window is 1 to %d kernels, not %d", maxWindow, f.window)
	}
	c.Window = f.window
	switch f.hold {
	case holdKernel:
	case holdResults:
		c.HoldResults = true
	default:
		return usageErrorf("--hold %s: use %s or %s", f.hold, holdKernel, holdResults)
	}
	switch f.send {
	case sendTurn:
	case sendAhead:
		c.SendAhead = true
	default:
		return usageErrorf("--send %s: use %s or %s", f.send, sendTurn, sendAhead)
	}
	return nil
}

// maxWindow bounds what is kept of each GPU, so that a slip costs an error.
const maxWindow = 100_000

// parseMappers reads "NAME:key=value,NAME".
func parseMappers(list string) ([]string, error) {
	var specs []string
	for spec := range strings.SplitSeq(list, ",") {
		spec = strings.TrimSpace(spec)
		if err := mapping.Check(spec); err != nil {
			return nil, usageErrorf("--policy: %v (--list-policies lists them)", err)
		}
		if slices.Contains(specs, spec) {
			return nil, usageErrorf("--policy: %s is named twice", spec)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// loadCluster reads the cluster and puts the network of the flags in place of its own.
func (f *simKernelsFlags) loadCluster() (*model.Cluster, error) {
	c, err := clusterfile.Load(f.cluster)
	if err != nil {
		return nil, err
	}
	if c.TotalGPUs() == 0 {
		return nil, usageErrorf("--cluster: %s has no GPUs to run kernels on", f.cluster)
	}
	if f.bandwidth == "" && f.latency == "" {
		return c, nil
	}
	own := *c
	own.Nodes = slices.Clone(c.Nodes)
	if f.bandwidth != "" {
		bandwidth, err := model.ParseBandwidth(f.bandwidth)
		switch _, plain := strconv.ParseFloat(f.bandwidth, 64); {
		case f.bandwidth == "0":
			bandwidth, err = 0, nil
		case plain == nil: // bytes a second are seldom meant
			err = fmt.Errorf("%s has no unit: write it as %sMB/s, or %sB/s for bytes", f.bandwidth, f.bandwidth, f.bandwidth)
		}
		if err != nil {
			return nil, usageErrorf("--bandwidth: %v", err)
		}
		for i := range own.Nodes {
			own.Nodes[i].Link.Bandwidth = bandwidth
		}
	}
	if f.latency != "" {
		if own.Remote.Latency, err = model.ParseDuration(f.latency); err != nil {
			return nil, usageErrorf("--latency: %v", err)
		}
		for i := range own.Nodes {
			own.Nodes[i].Link.Latency = 0
		}
	}
	return &own, nil
}

// loadWorkload finds the applications for a cluster of this many nodes.
func (f *simKernelsFlags) loadWorkload(nodes int) (*phased.Workload, error) {
	wl, err := phased.Load(f.workload, nodes)
	if err == nil {
		return wl, nil
	}
	// What looks like a path was meant as one: that it is not there, or bad, is no wrong usage.
	name, _, _ := strings.Cut(f.workload, ":")
	_, missing := os.Stat(f.workload)
	if errors.Is(missing, fs.ErrNotExist) && filepath.Ext(name) == "" && !strings.ContainsRune(name, filepath.Separator) {
		return nil, usageErrorf("--workload: %v", err)
	}
	return nil, err
}

// write gives out what was found. The files come before the tables, so that
// they are there although a reader of the tables, such as head, stops early;
// they are named after them, where people look.
func (f *simKernelsFlags) write(c *cobra.Command, sweep *kernels.Sweep, s *kernelpage.Study) error {
	named := ""
	if f.trace != "" {
		named += f.trace + ": every stage of every call\n"
	}
	if f.html != "" {
		if err := wholefile.Write(f.html, s.Page().WriteHTML); err != nil {
			return err
		}
		named += f.html + ": the report with pictures\n"
	}
	var err error
	if f.asJSON {
		input := kernelpage.InputOf(sweep)
		input.Cluster, input.Workload, input.Hold, input.Send = f.cluster, f.workload, f.hold, f.send
		err = printJSON(c, s.Document(input))
	} else {
		err = report.WriteTables(c.OutOrStdout(), s.Tables(), screen.Columns(c.OutOrStdout()))
		if err == nil {
			err = s.WriteExplained(c.OutOrStdout())
		}
	}
	fmt.Fprint(c.ErrOrStderr(), named)
	return err
}
