package jobs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/internal/screen"
	"muster/report"
	"muster/wire/api"
)

// queueFlags are the flags of muster queue.
type queueFlags struct {
	cli.AskFlags
	users, jobs, states, nodes, names, accounts, partitions []string
	me, json, noHeader, array, long, watch, why             bool
	format, fields                                          string
	interval                                                time.Duration
	times                                                   int
}

const queueHelp = `List the jobs that wait or run, as squeue does. ST is PD while a job waits, R while it
runs, S while it is suspended, CG while it ends. The last column has its nodes or, in
brackets, why it has none. --why, muster job and --json say that in a sentence; a
list has it of its first 100 jobs that wait. Waiting tasks of an array are one line, unless
--array is given.

-o has squeue's letters: %i %P %j %u %t %M %D %R and so on, %.9P for a width of 9 on the
right. -O has names, with widths if you like: jobid,name:20,why. The names are jobid,
jobnumber, arrayjobid, arraytaskid, partition, name, username, account, qos,
statecompact, state, timeused, timelimit, timeleft, numnodes, numcpus, minmemory, gpus,
nodelist, reasonlist, reason, why, priority, submittime, eligibletime, starttime,
endtime, dependency, comment, command, workdir, options, restartcnt.`

func NewQueue() *cobra.Command {
	var f queueFlags
	c := &cobra.Command{
		Use:   "queue [-u USER] [-j JOB] [-t STATE] [-w NODE] [-n NAME] [-o FORMAT | -O NAMES | --json] [--watch]",
		Short: "List the jobs that wait or run",
		Long:  queueHelp + cli.AskHelp,
		Example: `  muster queue
  muster queue --me -t PENDING -O jobid,name:20,why
  muster queue -h -o '%i %T' -j 17,18_[1-4]
  muster queue --json | jq '.jobs[] | select(.gpus > 0) | .job'`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.Add(c)
	flags.StringSliceVarP(&f.users, "user", "u", nil, "jobs of these `users`")
	flags.BoolVar(&f.me, "me", false, "my jobs")
	flags.StringArrayVarP(&f.jobs, "jobs", "j", nil, "these `jobs`")
	flags.StringSliceVarP(&f.states, "states", "t", nil, "jobs in these `states`, also ended ones of the last minutes; all for all")
	flags.StringArrayVarP(&f.nodes, "nodelist", "w", nil, "jobs on these `nodes`")
	flags.StringSliceVarP(&f.names, "name", "n", nil, "jobs of these `names`")
	flags.StringSliceVarP(&f.accounts, "account", "A", nil, "jobs of these `accounts`")
	flags.StringSliceVarP(&f.partitions, "partition", "p", nil, "jobs of these `partitions`")
	flags.StringVarP(&f.format, "format", "o", "", "what to show, in squeue's `letters`")
	flags.StringVarP(&f.fields, "Format", "O", "", "what to show, as `names`")
	flags.BoolVarP(&f.long, "long", "l", false, "show states in full, and time limits")
	flags.BoolVarP(&f.noHeader, "noheader", "h", false, "no line with the names of the columns")
	flags.BoolVarP(&f.array, "array", "r", false, "a line for each task of an array")
	flags.BoolVar(&f.why, "why", false, "say in a sentence why jobs wait, in place of nodes and reasons")
	flags.BoolVar(&f.json, "json", false, "print one JSON document")
	flags.BoolVar(&f.watch, "watch", false, "show it again and again, until q or Ctrl-C")
	flags.DurationVar(&f.interval, "interval", 2*time.Second, "time between two refreshes of --watch")
	flags.IntVar(&f.times, "times", 0, "with --watch: print it this often and end")
	flags.Bool("help", false, "help for queue") // -h is Slurm's
	_ = c.RegisterFlagCompletionFunc("jobs", cli.CompleteJobs(&f.AskFlags))
	_ = c.RegisterFlagCompletionFunc("nodelist", cli.CompleteNodes(&f.AskFlags))
	return c
}

func (f *queueFlags) run(c *cobra.Command) error {
	if f.format != "" && f.fields != "" || f.json && (f.format != "" || f.fields != "") {
		return cli.UsageErrorf("give one of --format, --Format and --json")
	}
	if f.why && (f.format != "" || f.fields != "" || f.long || f.json) {
		return cli.UsageErrorf("--why has columns of its own, and --json says why by itself: leave out --why, or --format, --Format, --long and --json")
	}
	if _, err := f.columns(); err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	if f.watch && f.json {
		return cli.UsageErrorf("--watch and --json exclude each other")
	}
	if !f.watch {
		return f.print(c, h, c.OutOrStdout())
	}
	if f.interval < 100*time.Millisecond || f.times < 0 {
		return cli.UsageErrorf("--interval must be 100ms or more, and --times not below 0")
	}
	return watch(c, f.interval, f.times, func(w io.Writer) error { return f.print(c, h, w) })
}

// watch shows something again and again: in place on a terminal, else one below the
// other.
func watch(c *cobra.Command, every time.Duration, times int, show func(io.Writer) error) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	if out, isFile := c.OutOrStdout().(*os.File); isFile && screen.IsTerminal(out) && times == 0 {
		shown := screen.Live{Every: every, Press: func(string) bool { return true }, Write: func(w io.Writer) error {
			fmt.Fprintln(w, time.Now().Format("15:04:05"))
			return show(w)
		}}
		return shown.Run(out, stop)
	}
	return screen.Repeat(every, times, stop, func(int) error {
		var b bytes.Buffer
		if err := show(&b); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), strings.TrimRight(b.String(), "\n"))
		return err
	})
}

func (f *queueFlags) print(c *cobra.Command, h *headclient.Head, w io.Writer) error {
	jobs, err := f.list(c, h)
	if err != nil {
		return err
	}
	if f.json {
		if jobs == nil {
			jobs = []api.Job{}
		}
		waiting := make([]*api.Job, len(jobs))
		for i := range jobs {
			waiting[i] = &jobs[i]
		}
		askWhy(c, h, waiting)
		return cli.PrintJSON(c, api.Jobs{Jobs: jobs})
	}
	format, err := f.columns()
	if err != nil {
		return err
	}
	lines := jobtable.Lines(jobs, f.array)
	if format.Shows("why") {
		waiting := make([]*api.Job, len(lines))
		for i := range lines {
			waiting[i] = lines[i].Job
		}
		askWhy(c, h, waiting)
	}
	return format.Write(w, lines, !f.noHeader, screen.Columns(w))
}

// maxAsked is for how many jobs of a list the head is asked why they wait: each answer may look at the whole queue.
const maxAsked = 100

// askWhy adds why jobs wait, which the head says only of single ones. Of those that have gone meanwhile it is left out.
func askWhy(c *cobra.Command, h *headclient.Head, jobs []*api.Job) {
	asked := 0
	for _, j := range jobs {
		if j.State != api.Pending || j.Why != "" {
			continue
		}
		if asked++; asked > maxAsked {
			return
		}
		if one, err := h.Job(c.Context(), jobtable.Single(j)); err == nil {
			j.Why = one[0].Why
		}
	}
}

// list asks for the jobs; what the head cannot choose by is chosen here.
func (f *queueFlags) list(c *cobra.Command, h *headclient.Head) ([]api.Job, error) {
	states, err := readStates(strings.Join(f.states, ","))
	if err != nil {
		return nil, err
	}
	nodes, err := headclient.NodeNames(f.nodes)
	if err != nil {
		return nil, err
	}
	ids, err := headclient.JobIDs(f.jobs)
	if err != nil {
		return nil, err
	}
	users := f.users
	if f.me {
		if users, err = cli.WithMe(c, h, users); err != nil {
			return nil, err
		}
	}
	q := headclient.Query{User: only(users), Node: only(nodes), Name: only(f.names), Account: only(f.accounts), States: states}
	jobs, err := h.Jobs(c.Context(), q)
	if err != nil {
		return nil, err
	}
	chosen := jobtable.Selection{Users: users, Names: f.names, Accounts: f.accounts, Partitions: f.partitions, Nodes: nodes, IDs: ids, States: states, Live: true}
	jobs = chosen.Of(jobs)
	slices.SortStableFunc(jobs, jobtable.Compare)
	return jobs, nil
}

// only is what to ask the head for: of several the head knows nothing.
func only(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return ""
}

// columns are what is shown of each job.
func (f *queueFlags) columns() (format *jobtable.Format, err error) {
	switch {
	case f.format != "":
		format, err = jobtable.ParseFormat(f.format)
	case f.fields != "":
		format, err = jobtable.ParseFields(f.fields)
	case f.why:
		format, err = jobtable.ParseFields("jobid,name,username,statecompact,timeused,why")
	case f.long:
		format, err = jobtable.ParseFields("jobid,partition,name,username,state,timeused,timelimit,numnodes,reasonlist")
	default:
		format, err = jobtable.ParseFields("jobid,partition,name,username,statecompact,timeused,numnodes,reasonlist")
	}
	if err != nil {
		return nil, cli.UsageErrorf("%v", err)
	}
	return format, nil
}

// readStates reads the states that a flag names.
func readStates(text string) ([]api.State, error) {
	states, err := jobtable.ParseStates(text)
	if err != nil {
		return nil, cli.UsageErrorf("%v", err)
	}
	return states, nil
}

// writeColumns writes a table as Slurm's tools do. On a terminal that is too narrow the column to
// shrink loses its ends.
func writeColumns(w io.Writer, names []string, rows [][]string, shrink int) error {
	return report.WriteColumns(w, names, rows, shrink, screen.Columns(w))
}
