package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/internal/wholefile"
	"muster/mapping"
	"muster/model"
	"muster/report"
	"muster/sim/kernelpage"
	"muster/sim/kernels"
	"muster/sim/question"
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
	ask                         question.Kernels
	html, trace                 string
	asJSON                      bool
	listPolicies, listWorkloads bool
}

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
				return cli.PrintChoosableJSON(c, "policies", cli.Mappers())
			case f.listPolicies:
				return cli.PrintChoosable(c, "Mapper", cli.Mappers())
			case f.listWorkloads:
				return listPhased(c, f.asJSON)
			}
			return f.run(c)
		},
	}
	c.Flags().StringVar(&f.ask.Cluster, "cluster", "gremm", "the cluster: a `file`, or a name that muster cluster list lists")
	c.Flags().StringVar(&f.ask.Workload, "workload", "W4", "the applications: a `file`, or a name that --list-workloads lists")
	c.Flags().StringVar(&f.ask.Policies, "policy", "st,gr,ag,ar,probe", "the `mappers` to compare, with commas between")
	c.Flags().StringVar(&f.ask.Nodes, "nodes", "", "numbers of nodes to try: a list or `range` (default: the cluster as it is)")
	c.Flags().StringVar(&f.ask.Seeds, "seeds", "1", "seeds to try: a list or `range`")
	c.Flags().StringVar(&f.ask.Span, "span", "10000s", "how `long` to simulate; 0: until all processes have ended")
	c.Flags().IntVar(&f.ask.Window, "window", 10, "how many of its last kernels the average of a GPU counts (k)")
	c.Flags().StringVar(&f.ask.Delay, "delay", "0s", "how `long` nodes take to learn what happens on others")
	c.Flags().Float64Var(&f.ask.FalsePositive, "false-positive", 0, "how often an idle GPU of another node seems busy, 0 to 1")
	c.Flags().Float64Var(&f.ask.FalseNegative, "false-negative", 0, "how often a busy GPU of another node seems idle, 0 to 1")
	c.Flags().StringVar(&f.ask.Hold, "hold", question.HoldKernel, "a remote call holds its GPU until the end of its kernel, or until its results have arrived: `kernel|results`")
	c.Flags().StringVar(&f.ask.Send, "send", question.SendTurn, "the input of a remote call is sent when it has its turn, or ahead, before it joins the queue of its GPU: `turn|ahead`")
	c.Flags().StringVar(&f.ask.Bandwidth, "bandwidth", "", "`bandwidth` of every node's port, as 100MB/s; 0 is no limit (default: the cluster's)")
	c.Flags().StringVar(&f.ask.Latency, "latency", "", "`latency` of a call to another node, as 1ms (default: the cluster's)")
	c.Flags().IntVar(&f.ask.Workers, "workers", runtime.NumCPU(), "runs at the same time; the results do not depend on it")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().StringVar(&f.html, "html", "", "write a page with pictures to this `file`")
	c.Flags().StringVar(&f.trace, "trace-csv", "", "write a line for each stage of each call to this `file`, gzipped where it ends in .gz")
	c.Flags().StringVar(&f.ask.Explain, "explain", "", "tell why these `calls` went to their GPU: numbers, from 1, or times such as 12.5s")
	c.Flags().BoolVar(&f.listPolicies, "list-policies", false, "list the mappers and their settings")
	c.Flags().BoolVar(&f.listWorkloads, "list-workloads", false, "list the workloads that have names")
	cli.CompleteFlag(c, "cluster", cli.CompletePresets)
	cli.CompleteFlag(c, "workload", completePhased)
	cli.CompleteFlag(c, "policy", completeMappers)
	cli.CompleteFlag(c, "hold", cobra.FixedCompletions([]string{question.HoldKernel, question.HoldResults}, cobra.ShellCompDirectiveNoFileComp))
	cli.CompleteFlag(c, "send", cobra.FixedCompletions([]string{question.SendTurn, question.SendAhead}, cobra.ShellCompDirectiveNoFileComp))
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
	sweep, err := f.ask.Sweep()
	if err != nil {
		return err
	}
	for _, file := range []string{f.html, f.trace} {
		if err := checkFolder(file); err != nil {
			return err
		}
	}
	if f.html != "" && f.trace != "" && filepath.Clean(f.html) == filepath.Clean(f.trace) {
		return cli.UsageErrorf("--html and --trace-csv both name %s: give each a file of its own", f.html)
	}
	var recorders []*kernelpage.Recorder
	if f.html != "" {
		recorders = kernelpage.Record(sweep)
	}
	var runs []kernels.RunOf
	simulate := func(trace io.Writer) error {
		sweep.Trace = trace
		runs, err = cli.WithProgress(c, "simulating", func(ctx context.Context, progress func(done, all int64)) ([]kernels.RunOf, error) {
			sweep.Progress = progress
			return sweep.Run(ctx)
		})
		if err != nil {
			return err
		}
		return f.ask.Unexplained(sweep, runs)
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
	study.Asked = kernelpage.Asked(sweep, kernelpage.Words{Cluster: f.ask.Cluster, Workload: f.ask.Workload, Span: f.ask.Span, Nodes: f.ask.Nodes, Seeds: f.ask.Seeds})
	study.Command = commandLine(c)
	return f.write(c, sweep, study)
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
		input.Cluster, input.Workload, input.Hold, input.Send = f.ask.Cluster, f.ask.Workload, f.ask.Hold, f.ask.Send
		err = cli.PrintJSON(c, s.Document(input))
	} else {
		err = report.WriteTables(c.OutOrStdout(), s.Tables(), screen.Columns(c.OutOrStdout()))
		if err == nil {
			err = s.WriteExplained(c.OutOrStdout())
		}
	}
	fmt.Fprint(c.ErrOrStderr(), named)
	return err
}
