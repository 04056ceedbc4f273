package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// cancelFlags are the flags of muster cancel.
type cancelFlags struct {
	cli.AskFlags
	users, names, accounts, partitions, nodes []string
	states                                    []string
	me, quiet, verbose                        bool
	signal                                    string
}

func NewCancel() *cobra.Command {
	var f cancelFlags
	c := &cobra.Command{
		Use:   "cancel JOB... | -u USER | -n NAME | --me [-t STATE] [-s SIGNAL]",
		Short: "End jobs, or send them a signal",
		Long: `End jobs as scancel does, without a question: those that are named, or all that the
flags choose; with both, those that are named and chosen. A job's processes get SIGTERM
and, some time later, SIGKILL. You may end your own jobs, administrators all. The exit
status is 1 if a job could not be ended, because there is none, it has ended, or it is
another's. It is no failure that the flags choose none.

-s sends a signal instead, to running jobs.` + cli.AskHelp,
		Example: `  muster cancel 17
  muster cancel 17_[1-4] 20
  muster cancel --me -t PENDING
  muster cancel -n train -s USR1`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.CompleteJobs(&f.AskFlags),
		RunE:              func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	f.Add(c)
	flags.StringSliceVarP(&f.users, "user", "u", nil, "jobs of these `users`")
	flags.BoolVar(&f.me, "me", false, "my jobs")
	flags.StringSliceVarP(&f.names, "name", "n", nil, "jobs of these `names`")
	flags.StringSliceVarP(&f.accounts, "account", "A", nil, "jobs of these `accounts`")
	flags.StringSliceVarP(&f.partitions, "partition", "p", nil, "jobs of these `partitions`")
	flags.StringArrayVarP(&f.nodes, "nodelist", "w", nil, "jobs on these `nodes`")
	flags.StringSliceVarP(&f.states, "state", "t", nil, "jobs in these `states`")
	flags.StringVarP(&f.signal, "signal", "s", "", "send this `signal`, and do no more")
	flags.BoolVarP(&f.quiet, "quiet", "Q", false, "say nothing of jobs that cannot be ended because they are over")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say which jobs were ended")
	_ = c.RegisterFlagCompletionFunc("nodelist", cli.CompleteNodes(&f.AskFlags))
	return c
}

func (f *cancelFlags) run(c *cobra.Command, args []string) error {
	chosen := f.me || slices.ContainsFunc([][]string{f.users, f.names, f.accounts, f.partitions, f.nodes, f.states}, func(l []string) bool { return len(l) > 0 })
	if len(args) == 0 && !chosen {
		return cli.UsageErrorf("name the jobs, as 17 or 17_3, or choose them with -u, -n, --me and their like")
	}
	if f.me && len(f.users) > 0 {
		return cli.UsageErrorf("--me and --user exclude each other")
	}
	if f.signal != "" {
		if _, err := slurmopt.SignalNumber(f.signal); err != nil {
			return cli.UsageErrorf("--signal: %v", err)
		}
	}
	read := headclient.JobRefs
	if chosen { // among them
		read = headclient.JobIDs
	}
	ids, err := read(args)
	if err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	if chosen {
		if ids, err = f.choose(c, h, ids); err != nil {
			return err
		}
	}
	return f.cancel(c, h, ids)
}

// choose finds the jobs that the flags mean, among those that were named if any were.
func (f *cancelFlags) choose(c *cobra.Command, h *headclient.Head, named []string) ([]string, error) {
	q := queueFlags{AskFlags: f.AskFlags, users: f.users, me: f.me, names: f.names, accounts: f.accounts, partitions: f.partitions, nodes: f.nodes,
		states: f.states, jobs: named}
	jobs, err := q.list(c, h)
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range jobs {
		if j := &jobs[i]; !j.State.Over() && (f.signal == "" || j.State == api.Running || j.State == api.Suspended) {
			ids = append(ids, jobtable.Name(j))
		}
	}
	return ids, nil
}

func (f *cancelFlags) cancel(c *cobra.Command, h *headclient.Head, ids []string) error {
	failed := false
	results := headclient.Each(ids, func(id string) error {
		_, err := h.Cancel(c.Context(), id, f.signal)
		return err
	})
	for i, id := range ids {
		err := results[i]
		switch {
		case err == nil && f.verbose:
			fmt.Fprintf(c.ErrOrStderr(), "%s: job %s: %s\n", c.CommandPath(), id, done(f.signal))
		case err == nil:
		case cli.HeadGone(err):
			return err
		case f.quiet && isOver(err):
		default:
			failed = true
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), cli.About("job", id, err))
		}
	}
	if failed {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}

// isOver says whether a head refuses because a job has ended or is not known any more.
func isOver(err error) bool {
	var refused *headclient.Refused
	return errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Status == http.StatusConflict || refused.Status == http.StatusGone)
}

func done(signal string) string {
	if signal == "" {
		return "told to end"
	}
	return "sent " + strings.ToUpper(signal)
}
