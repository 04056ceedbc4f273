package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/internal/wholefile"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/policy/preempt"
	"muster/policy/priority"
	"muster/policy/priorityfile"
	"muster/policy/scriptfile"
	"muster/report/screen"
	"muster/report/simpage"
	"muster/sim"
	"muster/workload"
	"muster/workload/source"
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
	cluster, workload, policies string
	nodes, seeds                string
	html, jobsCSV, why, traffic string
	explain, priority           string
	outages, history            string
	noKill, asJSON, list        bool
	bundled                     bool // the workload comes with Muster: no file is looked for
	workers                     int
	log                         logFlags
	scripts                     scriptRuns
}

func newSim() *cobra.Command {
	var f simFlags
	c := &cobra.Command{
		Use: `sim --cluster FILE|NAME --workload FILE|NAME[:key=value...] --policy NAME[:key=value...][,...]
             [--nodes 450..480:10] [--seeds 1..7] [--html FILE] [--jobs-csv FILE] [--why JOB[,JOB]]
             [--explain STEP[,STEP]] [--priority FILE] [--outages FILE] [--record FILE] [--json]`,
		Short: "Ask what if: a log of jobs on a cluster, under several policies",
		Long:  simHelp,
		Example: `  muster sim --cluster small --workload small --policy g-queue,r-queue --html report.html
  muster sim --cluster mine.yaml --workload sacct.txt.gz --policy easy,conservative --why 123456
  muster sim --cluster tsubame --workload tsubame:days=30 --policy g-queue,r-queue --nodes 450..480:10 --seeds 1..7 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.list && f.asJSON {
				return printChoosableJSON(c, "policies", policies())
			}
			if f.list {
				return printChoosable(c, "Policy", policies())
			}
			return f.run(c)
		},
	}
	c.Flags().StringVar(&f.cluster, "cluster", "", "the cluster: a `file`, or a name that muster cluster list lists")
	c.Flags().StringVar(&f.workload, "workload", "", "the jobs: a `log`, the name of a bundled one, or a generator with its parameters")
	c.Flags().StringVar(&f.policies, "policy", "", "the `policies` to compare, with commas between")
	c.Flags().StringVar(&f.nodes, "nodes", "", "numbers of nodes to try: a list or `range` (default: the cluster as it is)")
	c.Flags().StringVar(&f.seeds, "seeds", "1", "seeds to try: a list or `range`")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().StringVar(&f.html, "html", "", "write a page with pictures to this `file`")
	c.Flags().StringVar(&f.jobsCSV, "jobs-csv", "", "write a line for each job of each run to this `file`, gzipped where it ends in .gz")
	c.Flags().StringVar(&f.why, "why", "", "tell of these `jobs` what they waited for")
	c.Flags().StringVar(&f.explain, "explain", "", "tell how these `steps` came about: numbers, from 1, or times such as 1h30m")
	c.Flags().StringVar(&f.outages, "outages", "", "let nodes fail or drain as this `file` says")
	c.Flags().StringVar(&f.history, "record", "", "write what the policy was told and decided to this `file`, gzipped where it ends in .gz")
	c.Flags().StringVar(&f.priority, "priority", "", "order every queue by multifactor priority, as this `file` says")
	c.Flags().BoolVar(&f.noKill, "no-kill", false, "let jobs run past their wall time")
	c.Flags().StringVar(&f.traffic, "traffic", trafficEstimate, "what jobs move over the network: estimate or as-logged")
	c.Flags().IntVar(&f.workers, "workers", runtime.NumCPU(), "runs at the same time; the results do not depend on it")
	f.log.add(c)
	c.Flags().BoolVar(&f.list, "list-policies", false, "list the policies and their settings")
	completeFlag(c, "cluster", completePresets)
	completeFlag(c, "workload", completeWorkloads)
	completeFlag(c, "policy", completePolicies)
	completeFlag(c, "traffic", cobra.FixedCompletions([]string{trafficEstimate, trafficAsLogged}, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(newSimKernels(), newSimReplay())
	return c
}

// completeFlag lets the shell complete a flag's value.
func completeFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return complete(c, nil, word)
	})
	if err != nil {
		panic(err) // the flag is not there: a slip in newSim
	}
}

// completePolicies completes the last of several names with commas between.
func completePolicies(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	before := word[:strings.LastIndexByte(word, ',')+1]
	var names []string
	for _, e := range catalog.Entries {
		names = append(names, before+e.Name+"\t"+e.Summary)
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

const (
	trafficEstimate = "estimate"
	trafficAsLogged = "as-logged"
)

// maxRuns bounds a sweep, so that a slip costs an error.
const maxRuns = 100_000

// run does the whole of muster sim.
func (f *simFlags) run(c *cobra.Command) error {
	sweep, err := f.sweep()
	if err != nil {
		return err
	}
	tellDoubts(c.ErrOrStderr(), f.cluster, sweep.Cluster)
	jobs, err := f.source(c.InOrStdin())
	if err != nil {
		return err
	}
	for _, file := range []string{f.html, f.jobsCSV, f.history} {
		if err := checkFolder(file); err != nil {
			return err
		}
	}
	first, read, err := jobs(sweep.Seeds[0])
	if err != nil {
		return err
	}
	if read != nil {
		tellReading(c.ErrOrStderr(), f.workload, read)
	}
	if sweep.Watch, err = findJobs(f.why, first.Jobs); err != nil {
		return err
	}
	sweep.Workload = func(seed uint64) ([]model.Job, error) {
		wl, _, err := jobs(seed)
		if err != nil {
			return nil, err
		}
		if f.traffic == trafficEstimate {
			return workload.EstimateTraffic(wl.Jobs, seed), nil
		}
		return wl.Jobs, nil
	}
	recorders := simpage.Record(sweep, f.html != "", f.jobsCSV != "" || f.why != "")
	runs, err := f.runRecorded(c, sweep)
	if err != nil {
		return err
	}
	if i, why := sim.Unexplained(runs[:len(sweep.Policies)], sweep.Explain); i >= 0 {
		return notExplained(f.explain, i, why)
	}
	study := simpage.NewStudy(sweep.Cluster, runs, recorders)
	study.Asked = f.asked(first, sweep)
	study.Start = first.Start
	study.Command = commandLine(c)
	study.WriteImpossible(c.ErrOrStderr())
	if err := f.write(c, study); err != nil {
		return err
	}
	return f.scripts.tell(c.ErrOrStderr())
}

// runRecorded runs the sweep, and writes its history where that is wanted.
func (f *simFlags) runRecorded(c *cobra.Command, s *sim.Sweep) (runs []sim.RunOf, err error) {
	run := func(ctx context.Context, progress func(done, all int64)) ([]sim.RunOf, error) {
		s.Progress = progress
		return s.Run(ctx)
	}
	if f.history == "" {
		return withProgress(c, "simulating", run)
	}
	if n := len(s.Seeds) * max(1, len(s.Nodes)) * len(s.Policies); n > 1 {
		return nil, usageErrorf("--record is for one policy, one size and one seed; this would be %d runs", n)
	}
	s.RecordAs = history.Header{Muster: "muster " + readVersion().Version, Note: commandLine(c)}
	if s.Priority != nil { // the classes are part of what decides
		s.RecordAs.Policy = catalog.WithClasses(s.Policies[0].Name, preempt.FromQOS(s.Priority.QOS))
	}
	err = wholefile.Write(f.history, func(w io.Writer) error {
		s.Record = w
		runs, err = withProgress(c, "simulating", run)
		return err
	})
	return runs, err
}

// outagesLimit is for a table of outages.
var outagesLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a table of outages?"}

// readOutages reads the table of outages.
func (f *simFlags) readOutages(c *model.Cluster) ([]sim.Outage, error) {
	if f.outages == "" {
		return nil, nil
	}
	text, err := outagesLimit.ReadFile(f.outages)
	if err != nil {
		return nil, err
	}
	list, err := sim.ReadOutages(bytes.NewReader(text), c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.outages, err)
	}
	return list, nil
}

// sweep reads the flags that say what to run.
func (f *simFlags) sweep() (*sim.Sweep, error) {
	cluster, err := f.loadCluster()
	if err != nil {
		return nil, err
	}
	policies, err := f.scripts.parse(f.policies)
	if err != nil {
		return nil, err
	}
	s := &sim.Sweep{Cluster: cluster, Policies: policies, NoKill: f.noKill, Workers: f.workers}
	if f.priority != "" {
		if s.Priority, err = readPriorities(f.priority); err != nil {
			return nil, err
		}
		s.Policies = f.scripts.withClasses(policies, s.Priority)
	}
	if f.nodes != "" {
		if s.Nodes, err = model.ParseRange(f.nodes); err != nil {
			return nil, usageErrorf("--nodes: %v", err)
		}
		if slices.Contains(s.Nodes, 0) {
			return nil, usageErrorf("--nodes: a cluster needs at least one node")
		}
	}
	seeds, err := model.ParseRange(f.seeds)
	if err != nil {
		return nil, usageErrorf("--seeds: %v", err)
	}
	for _, n := range seeds {
		s.Seeds = append(s.Seeds, uint64(n))
	}
	if runs := len(seeds) * max(1, len(s.Nodes)) * len(policies); runs > maxRuns {
		return nil, usageErrorf("that would be %d runs: ask for at most %d at once", runs, maxRuns)
	}
	if s.Outages, err = f.readOutages(cluster); err != nil {
		return nil, err
	}
	if s.Explain, err = parseMoments(f.explain, "step", "1h30m"); err != nil {
		return nil, err
	}
	if f.workers < 1 {
		return nil, usageErrorf("--workers must be 1 or more, not %d", f.workers)
	}
	if f.traffic != trafficEstimate && f.traffic != trafficAsLogged {
		return nil, usageErrorf("--traffic %s: use %s or %s", f.traffic, trafficEstimate, trafficAsLogged)
	}
	return s, nil
}

var priorityLimit = wholefile.Limit{Bytes: priorityfile.MaxBytes, Remedy: "is it a priority configuration?"}

func readPriorities(file string) (*priority.Config, error) {
	text, err := priorityLimit.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--priority: %w", err)
	}
	return priorityfile.Read(text, file)
}

// withClasses lets the classes of a priority configuration preempt each other under
// every policy that has no preemption of its own.
func (r *scriptRuns) withClasses(policies []sim.NamedPolicy, c *priority.Config) []sim.NamedPolicy {
	rules := preempt.FromQOS(c.QOS)
	if rules == nil {
		return policies
	}
	out := slices.Clone(policies)
	for i, n := range policies {
		out[i].New = func() (policy.Policy, error) { return r.make(catalog.WithClasses(n.Name, rules)) }
	}
	return out
}

func (f *simFlags) loadCluster() (*model.Cluster, error) {
	if f.cluster == "" && source.IsRecord(f.workload) {
		h, err := source.Record(f.workload)
		if err != nil {
			return nil, err
		}
		return h.Cluster, nil
	}
	if f.cluster == "" {
		return nil, usageErrorf("say which cluster: --cluster FILE, or a name that muster cluster list lists")
	}
	return clusterfile.Load(f.cluster)
}

// source gives the workload of each seed.
func (f *simFlags) source(stdin io.Reader) (source.Source, error) {
	if f.workload == "" {
		return nil, usageErrorf("say which jobs: --workload FILE, or one of %s", strings.Join(source.Names(), ", "))
	}
	opt, err := f.log.options()
	if err != nil {
		return nil, err
	}
	opt.SkipLogged = !readsNames(f.policies)
	if f.workload == "-" {
		return source.Once(func() (*workload.Workload, *workload.ReadReport, error) { return workload.Read(stdin, "stdin", opt) }), nil
	}
	if f.bundled {
		return source.Named(f.workload, opt)
	}
	return source.Open(f.workload, opt)
}

// readsNames says whether a policy is a script, which may know jobs by the names of their
// programs.
func readsNames(policies string) bool {
	return strings.Contains(policies, "mccs-") || strings.Contains(policies, ".star")
}

// parse reads "NAME:key=value,NAME".
func (r *scriptRuns) parse(list string) ([]sim.NamedPolicy, error) {
	if list == "" {
		return nil, usageErrorf("say which policies to compare: --policy g-queue,r-queue; --list-policies lists them")
	}
	var named []sim.NamedPolicy
	for spec := range strings.SplitSeq(list, ",") {
		spec = strings.TrimSpace(spec)
		if _, err := newPolicy(spec); err != nil {
			if _, ok := scriptfile.Place(err); ok {
				return nil, err // something in a file
			}
			return nil, usageErrorf("--policy: %v", err)
		}
		if slices.ContainsFunc(named, func(n sim.NamedPolicy) bool { return n.Name == spec }) {
			return nil, usageErrorf("--policy: %s is named twice", spec)
		}
		named = append(named, sim.NamedPolicy{Name: spec, New: func() (policy.Policy, error) { return r.make(spec) }})
	}
	return named, nil
}

// checkFolder finds out before a long run that a file cannot be written after it.
func checkFolder(file string) error {
	switch file {
	case "":
		return nil
	case "-":
		return usageErrorf("standard output is for the tables: name a file to write to, or ./- for one of that name")
	}
	return wholefile.CheckFolder(file)
}

// findJobs gives the indexes of the jobs with these IDs.
func findJobs(list string, jobs []model.Job) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var found []int
	for id := range strings.SplitSeq(list, ",") {
		id = strings.TrimSpace(id)
		i := slices.IndexFunc(jobs, func(j model.Job) bool { return j.ID == id })
		switch {
		case i < 0 && len(jobs) == 0:
			return nil, usageErrorf("--why: there is no job %q: the workload is empty", id)
		case i < 0:
			return nil, usageErrorf("--why: there is no job %q: the first of the workload is %q, the last %q", id, jobs[0].ID, jobs[len(jobs)-1].ID)
		case slices.Contains(found, i):
			return nil, usageErrorf("--why: %s is named twice", id)
		}
		found = append(found, i)
	}
	return found, nil
}

// parseMoments reads "STEP,STEP", or what else is numbered; like is a time as one might write it.
func parseMoments(list, step, like string) ([]sim.Moment, error) {
	if list == "" {
		return nil, nil
	}
	var moments []sim.Moment
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		var m sim.Moment
		var err error
		if m.Step, err = strconv.Atoi(word); err == nil {
			if m.Step < 1 {
				return nil, usageErrorf("--explain %s: %ss are numbered from 1", word, step)
			}
		} else if m.At, err = model.ParseDuration(word); err != nil {
			return nil, usageErrorf("--explain: %q is no number of a %[2]s and no time: write 12, or %[3]s for the first %[2]s then or later", word, step, like)
		}
		if slices.Contains(moments, m) {
			return nil, usageErrorf("--explain: %s is named twice", word)
		}
		moments = append(moments, m)
	}
	return moments, nil
}

// notExplained says why a moment of the list that --explain has was not reached.
func notExplained(list string, moment int, why string) error {
	return usageErrorf("--explain %s: %s", strings.TrimSpace(strings.Split(list, ",")[moment]), why)
}

// asked tells in words what was asked.
func (f *simFlags) asked(first *workload.Workload, s *sim.Sweep) [][2]string {
	rows := [][2]string{
		{"Cluster", fmt.Sprintf("%s: %s", cmp.Or(f.cluster, s.Cluster.Name), s.Cluster.Summary())},
		{"Workload", fmt.Sprintf("%s: %s", f.workload, model.Plural(len(first.Jobs), "job"))},
		{"Policies", strings.ReplaceAll(f.policies, ",", ", ")},
	}
	if f.nodes != "" {
		rows = append(rows, [2]string{"Nodes", f.nodes})
	}
	if len(s.Seeds) > 1 {
		rows = append(rows, [2]string{"Seeds", f.seeds})
	}
	traffic := "as the log says"
	if f.traffic == trafficEstimate {
		traffic = "estimated as in the TSUBAME paper where the log does not say"
	}
	rows = append(rows, [2]string{"Network traffic", traffic})
	if f.outages != "" {
		rows = append(rows, [2]string{"Outages", fmt.Sprintf("%s: %s", f.outages, model.Plural(len(s.Outages), "outage"))})
	}
	if f.priority != "" {
		rows = append(rows, [2]string{"Priorities", f.priority})
	}
	if f.noKill {
		rows = append(rows, [2]string{"Wall times", "do not kill"})
	}
	return rows
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
		err = printJSON(c, s.Document())
	} else {
		err = s.WriteText(c.OutOrStdout(), screen.Columns(c.OutOrStdout()))
	}
	fmt.Fprint(c.ErrOrStderr(), named)
	return err
}

// tellReading says what a log had beside its jobs, if anything.
func tellReading(w io.Writer, name string, r *workload.ReadReport) {
	if r.Bad > 0 || len(r.Notes) > 0 {
		writeReadReport(w, name, r)
	}
}
