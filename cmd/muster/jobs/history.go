package jobs

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/model/slurmopt"
	"muster/wire/api"
)

const (
	// historyFormat is sacct's own choice, historyLog what a simulation needs.
	historyFormat = "JobID,JobName,Partition,Account,NCPUS,State,ExitCode"
	historyLog    = "JobID,User,Group,Account,Partition,JobName,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,NCPUS,ReqMem,ReqTRES,AllocTRES,State,Priority,TotalCPU"
)

const historyHelp = `List jobs that have ended, as sacct does: those that ended today or, with -S and -E, in
that time. -P writes values with | between them, and unless --format says otherwise all
that a simulation needs: the output is a log that muster sim, muster workload and other
tools read.

Times are 16:30, 2026-11-30, 2026-11-30T16:30, now-7days and what else sacct takes. The
fields are JobID, JobIDRaw, JobName, User, Group, Account, Partition, QOS, State,
ExitCode, Submit, Eligible, Start, End, Elapsed, ElapsedRaw, Timelimit, TimelimitRaw,
NNodes, NCPUS, ReqMem, ReqTRES, AllocTRES, NodeList, Priority, TotalCPU, MaxRSS,
Restarts, Comment, WorkDir, SubmitLine; NAME%20 has a width of 20.

Remote GPUs are counted apart in AllocTRES: gres/rgpu is how many there are, gres/rgpumem
how much memory a job has of each, if they are shared; gres/gpumem is that of the others.`

// historyFlags are the flags of muster history.
type historyFlags struct {
	cli.AskFlags
	since, until, format               string
	users, jobs, states                []string
	me, all, parsable, noHeader, asRaw bool
}

func NewHistory() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use:   "history [-S TIME] [-E TIME] [-u USER] [-j JOB] [-s STATE] [-P] [--format FIELDS] [--json]",
		Short: "List the jobs that have ended",
		Long:  historyHelp + cli.AskHelp,
		Example: `  muster history -S now-7days -u alice
  muster history --format JobID,JobName%20,Elapsed,State,ExitCode
  muster history -S 2026-11-01 -P > november.txt
  muster history -P | muster sim --workload - --cluster small --policy easy,rgpu
  muster sim --workload november.txt --cluster ours.yaml --policy g-queue,r-queue`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.Add(c)
	flags.StringVarP(&f.since, "starttime", "S", "", "jobs that ended since this `time` (default: midnight)")
	flags.StringVarP(&f.until, "endtime", "E", "", "jobs that ended before this `time` (default: now)")
	flags.StringSliceVarP(&f.users, "user", "u", nil, "jobs of these `users` (default: all)")
	flags.BoolVar(&f.me, "me", false, "my jobs")
	flags.BoolVarP(&f.all, "allusers", "a", false, "jobs of all users, as without -u")
	flags.StringArrayVarP(&f.jobs, "jobs", "j", nil, "these `jobs`, whenever they ended")
	flags.StringSliceVarP(&f.states, "state", "s", nil, "jobs that ended in these `states`")
	flags.StringVarP(&f.format, "format", "o", "", "the `fields` to show")
	flags.BoolVarP(&f.parsable, "parsable2", "P", false, "write values with | between them")
	flags.BoolVarP(&f.noHeader, "noheader", "n", false, "no line with the names of the fields")
	flags.BoolVar(&f.asRaw, "json", false, "print one JSON document")
	flags.BoolP("allocations", "X", false, "accepted: there are no steps here")
	return c
}

func (f *historyFlags) run(c *cobra.Command) error {
	columns, err := f.columns()
	if err != nil {
		return err
	}
	period, err := f.period(time.Now())
	if err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	jobs, err := f.list(c, h, period)
	if err != nil {
		return err
	}
	switch {
	case f.asRaw:
		return cli.PrintJSON(c, api.Jobs{Jobs: jobs})
	case f.parsable:
		return columns.WriteParsable(c.OutOrStdout(), jobs, !f.noHeader)
	}
	t := columns.Table(jobs)
	if f.noHeader {
		return writeColumns(c.OutOrStdout(), nil, t.Rows, -1)
	}
	return cli.WriteTable(c.OutOrStdout(), t)
}

// columns are the fields that are wanted.
func (f *historyFlags) columns() (*jobtable.Sacct, error) {
	list := f.format
	switch {
	case list == "" && f.parsable:
		list = historyLog
	case list == "":
		list = historyFormat
	}
	columns, err := jobtable.ParseSacct(list)
	if err != nil {
		return nil, cli.UsageErrorf("%v", err)
	}
	return columns, nil
}

// period is when jobs must have ended. Named jobs are looked for at all times.
func (f *historyFlags) period(now time.Time) (headclient.Period, error) {
	p := headclient.Period{User: only(f.users)}
	year, month, day := now.Date()
	if len(f.jobs) == 0 {
		p.Since = time.Date(year, month, day, 0, 0, 0, 0, now.Location())
	}
	var err error
	if f.since != "" {
		if p.Since, err = slurmopt.ParsePast(f.since, now); err != nil {
			return p, cli.UsageErrorf("--starttime: %v", err)
		}
	}
	if f.until != "" {
		if p.Until, err = slurmopt.ParsePast(f.until, now); err != nil {
			return p, cli.UsageErrorf("--endtime: %v", err)
		}
		if !p.Until.After(p.Since) {
			return p, cli.UsageErrorf("--endtime %s is not after --starttime", f.until)
		}
	}
	return p, nil
}

func (f *historyFlags) list(c *cobra.Command, h *headclient.Head, p headclient.Period) ([]api.Job, error) {
	users := f.users
	if f.me {
		var err error
		if users, err = cli.WithMe(c, h, users); err != nil {
			return nil, err
		}
		p.User = only(users)
	}
	states, err := readStates(strings.Join(f.states, ","))
	if err != nil {
		return nil, err
	}
	ids, err := headclient.JobIDs(f.jobs)
	if err != nil {
		return nil, err
	}
	jobs, err := h.History(c.Context(), p)
	if err != nil {
		return nil, err
	}
	if jobs == nil {
		jobs = []api.Job{}
	}
	chosen := jobtable.Selection{Users: users, States: states, IDs: ids}
	return chosen.Of(jobs), nil
}
