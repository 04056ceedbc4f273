package lab

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/internal/wholefile"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/policy/preempt"
	"muster/sim"
	"muster/sim/question"
	"muster/sim/simpage"
	"muster/sim/source"
	"muster/workload"
	"muster/workload/workloadpage"
)

const simHelp = `Ask "what if" of a log of jobs: run it through a cluster under several policies,
in virtual time, and set the results side by side. The first policy is what the
others are compared with.

` + workloadArgHelp + `

Policies are names with commas between, each with settings where it has some, as
easy:depth=50:bf_window=1d; --list-policies lists them. A name that ends in .star is the
file of a script: ./mine.star:most=5 (muster policy --help). With preempt=suspend, requeue
or cancel and qos=low<normal<high, jobs of higher classes stop running ones of lower
classes, under any policy: easy:preempt=requeue:qos=low<high.

--nodes asks the same of clusters with more or fewer nodes: 480, 4,6,8 or
450..480:10. Fewer are the first ones of the cluster; more are like its last.

--seeds repeats everything with other random numbers: 1..7. A generated workload
is another one for each seed. A log is the same for all seeds, but for what
--traffic estimates.

Jobs that borrow GPUs slow down by what they move over the network. Logs do not
say what that is. --traffic estimate, the default, takes the TSUBAME paper's
estimate (its Table 1) for jobs of which the log says nothing: as many bytes as
the job's memory on a node, in 100 to 100,000 transfers drawn from the seed. Jobs
without a memory request move nothing. With --traffic as-logged nothing is added.

A job that reaches its wall time is killed, unless --no-kill is given. A job that
could not start even on the idle cluster is impossible: it is named on standard
error and counts nowhere else.

--html writes a page with pictures that needs nothing else. --jobs-csv writes a
line for each job of each run. --why tells of single jobs what they waited for.

--outages lets nodes fail or drain for a while: a table of nodes, times and what
happens, as docs/whatif.md describes it. Jobs on nodes that fail start anew.

--late-binding moves the programs of shares of GPUs (--gpu-reach=node, their default) to
idle devices of the node where they run faster, as nodes do; see docs/whatif.md.

--record writes what the policy was told and what it decided, for muster sim replay.
It is for one policy, one size and one seed.

--explain tells of single steps of each policy how they came about: which jobs were
started and why the others wait, or what else the policy keeps an account of, as
bids and winners. A step is named by its number, from 1, or by a time such as 1h30m
or 1-00:00:00, which means the first step then or later. Of several seeds and sizes
the first ones are explained.

--priority orders the queue of every policy by Slurm's multifactor priority: age,
size, class, partition and the fair share of users and accounts (the groups of the
log), as the file says in slurm.conf's words. --json then tells what each account
and user was due, used and waited.`

// simFlags are the flags of muster sim.
type simFlags struct {
	ask                    question.Jobs
	html, jobsCSV, history string
	asJSON, list           bool
	log                    source.Reading
}

// newSimFlags are the values of flags that a command may not have.
func newSimFlags() simFlags {
	return simFlags{ask: question.Jobs{
		Seeds: "1", Traffic: question.TrafficEstimate, Workers: runtime.NumCPU(),
		Scripts: question.Scripts{File: cli.ReadPolicyFile}, ReadPriority: cli.ReadPriorities,
	}}
}

func NewSim() *cobra.Command {
	f := newSimFlags()
	c := &cobra.Command{
		Use: `sim --cluster FILE|NAME --workload FILE|NAME[:key=value...] --policy NAME[:key=value...][,...]
             [--nodes 450..480:10] [--seeds 1..7] [--html FILE] [--jobs-csv FILE] [--why JOB[,JOB]]
             [--explain STEP[,STEP]] [--priority FILE] [--outages FILE] [--late-binding COST[:BANDWIDTH]]
             [--record FILE] [--json]`,
		Short: "Ask what if: a log of jobs on a cluster, under several policies",
		Long:  simHelp,
		Example: `  muster sim --cluster small --workload small --policy g-queue,r-queue --html report.html
  muster sim --cluster mine.yaml --workload sacct.txt.gz --policy easy,conservative --why 123456
  muster sim --cluster tsubame --workload tsubame:days=30 --policy g-queue,r-queue --nodes 450..480:10 --seeds 1..7 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.list && f.asJSON {
				return cli.PrintChoosableJSON(c, "policies", cli.Policies())
			}
			if f.list {
				return cli.PrintChoosable(c, "Policy", cli.Policies())
			}
			return f.run(c)
		},
	}
	c.Flags().StringVar(&f.ask.Cluster, "cluster", "", "the cluster: a `file`, or a name that muster cluster list lists")
	c.Flags().StringVar(&f.ask.Workload, "workload", "", "the jobs: a `log`, the name of a bundled one, or a generator with its parameters")
	c.Flags().StringVar(&f.ask.Policies, "policy", "", "the `policies` to compare, with commas between")
	c.Flags().StringVar(&f.ask.Nodes, "nodes", "", "numbers of nodes to try: a list or `range` (default: the cluster as it is)")
	c.Flags().StringVar(&f.ask.Seeds, "seeds", "1", "seeds to try: a list or `range`")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().StringVar(&f.html, "html", "", "write a page with pictures to this `file`")
	c.Flags().StringVar(&f.jobsCSV, "jobs-csv", "", "write a line for each job of each run to this `file`, gzipped where it ends in .gz")
	c.Flags().StringVar(&f.ask.Why, "why", "", "tell of these `jobs` what they waited for")
	c.Flags().StringVar(&f.ask.Explain, "explain", "", "tell how these `steps` came about: numbers, from 1, or times such as 1h30m")
	c.Flags().StringVar(&f.ask.Outages, "outages", "", "let nodes fail or drain as this `file` says")
	c.Flags().StringVar(&f.history, "record", "", "write what the policy was told and decided to this `file`, gzipped where it ends in .gz")
	c.Flags().StringVar(&f.ask.Priority, "priority", "", "order every queue by multifactor priority, as this `file` says")
	c.Flags().BoolVar(&f.ask.NoKill, "no-kill", false, "let jobs run past their wall time")
	c.Flags().StringVar(&f.ask.LateBinding, "late-binding", "", "let shares of GPUs use idle devices of their node: the time of a move, and the bandwidth of its copies, as `100ms:10GB/s`")
	c.Flags().StringVar(&f.ask.Traffic, "traffic", question.TrafficEstimate, "what jobs move over the network: estimate or as-logged")
	c.Flags().IntVar(&f.ask.Workers, "workers", runtime.NumCPU(), "runs at the same time; the results do not depend on it")
	addReading(c, &f.log)
	c.Flags().BoolVar(&f.list, "list-policies", false, "list the policies and their settings")
	cli.CompleteFlag(c, "cluster", cli.CompletePresets)
	cli.CompleteFlag(c, "workload", completeWorkloads)
	cli.CompleteFlag(c, "policy", cli.CompletePolicies)
	cli.CompleteFlag(c, "traffic", cobra.FixedCompletions([]string{question.TrafficEstimate, question.TrafficAsLogged}, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(newSimKernels(), newSimReplay())
	return c
}

// run does the whole of muster sim.
func (f *simFlags) run(c *cobra.Command) error {
	sweep, err := f.ask.Sweep()
	if err != nil {
		return err
	}
	tellDoubts(c.ErrOrStderr(), f.ask.Cluster, sweep.Cluster)
	for _, file := range []string{f.html, f.jobsCSV, f.history} {
		if err := checkFolder(file); err != nil {
			return err
		}
	}
	opt, err := f.log.Options()
	if err != nil {
		return err
	}
	first, read, err := f.ask.Read(sweep, c.InOrStdin(), opt)
	if err != nil {
		return err
	}
	if read != nil {
		tellReading(c.ErrOrStderr(), f.ask.Workload, read)
	}
	recorders := simpage.Record(sweep, f.html != "", f.jobsCSV != "" || f.ask.Why != "")
	runs, err := f.runRecorded(c, sweep)
	if err != nil {
		return err
	}
	if err := f.ask.Unexplained(sweep, runs); err != nil {
		return err
	}
	study := simpage.NewStudy(sweep.Cluster, runs, recorders)
	study.Asked = f.ask.Asked(first, sweep)
	study.Start = first.Start
	study.Command = commandLine(c)
	study.WriteImpossible(c.ErrOrStderr())
	if err := f.write(c, study); err != nil {
		return err
	}
	return f.ask.Scripts.Tell(c.ErrOrStderr())
}

// runRecorded runs the sweep, and writes its history where that is wanted.
func (f *simFlags) runRecorded(c *cobra.Command, s *sim.Sweep) (runs []sim.RunOf, err error) {
	run := func(ctx context.Context, progress func(done, all int64)) ([]sim.RunOf, error) {
		s.Progress = progress
		return s.Run(ctx)
	}
	if f.history == "" {
		return cli.WithProgress(c, "simulating", run)
	}
	if n := len(s.Seeds) * max(1, len(s.Nodes)) * len(s.Policies); n > 1 {
		return nil, cli.UsageErrorf("--record is for one policy, one size and one seed; this would be %d runs", n)
	}
	s.RecordAs = history.Header{Muster: "muster " + cli.ReadVersion().Version, Note: commandLine(c)}
	rules, err := preempt.RulesOf(s.Priority, s.Cluster.Partitions) // the classes are part of what decides
	if err != nil {
		return nil, err
	}
	if rules != nil {
		s.RecordAs.Policy = catalog.WithClasses(s.Policies[0].Name, rules)
	}
	err = wholefile.Write(f.history, func(w io.Writer) error {
		s.Record = w
		runs, err = cli.WithProgress(c, "simulating", run)
		return err
	})
	return runs, err
}

// checkFolder finds out before a long run that a file cannot be written after it.
func checkFolder(file string) error {
	switch file {
	case "":
		return nil
	case "-":
		return cli.UsageErrorf("standard output is for the tables: name a file to write to, or ./- for one of that name")
	}
	return wholefile.CheckFolder(file)
}

// commandLine writes the command that was given.
func commandLine(c *cobra.Command) string {
	words := []string{c.CommandPath()}
	c.Flags().Visit(func(f *pflag.Flag) {
		words = append(words, "--"+f.Name)
		if f.Value.Type() != "bool" {
			value := f.Value.String()
			if value == "" || strings.ContainsAny(value, " \t'\"\\$&;|<>()*?[]#~`!") {
				value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
			}
			words = append(words, value)
		} else if f.Value.String() != "true" {
			words[len(words)-1] += "=" + f.Value.String()
		}
	})
	return strings.Join(words, " ")
}

// write gives out what was found. The files come before the tables, so that
// they are there although a reader of the tables, such as head, stops early;
// they are named after them, where people look.
func (f *simFlags) write(c *cobra.Command, s *simpage.Study) error {
	named := ""
	if f.jobsCSV != "" {
		if err := wholefile.Write(f.jobsCSV, s.WriteJobs); err != nil {
			return err
		}
		named += f.jobsCSV + ": every job of every run\n"
	}
	if f.html != "" {
		if err := wholefile.Write(f.html, s.Page().WriteHTML); err != nil {
			return err
		}
		named += f.html + ": the report with pictures\n"
	}
	if f.history != "" {
		named += f.history + ": what was told and decided, for muster sim replay\n"
	}
	var err error
	if f.asJSON {
		err = cli.PrintJSON(c, s.Document())
	} else {
		err = s.WriteText(c.OutOrStdout(), screen.Columns(c.OutOrStdout()))
	}
	fmt.Fprint(c.ErrOrStderr(), named)
	return err
}

// tellReading says what a log had beside its jobs, if anything.
func tellReading(w io.Writer, name string, r *workload.ReadReport) {
	if r.Bad > 0 || len(r.Notes) > 0 {
		workloadpage.WriteRead(w, name, r)
	}
}
