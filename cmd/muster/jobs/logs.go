package jobs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/report"
	"muster/wire/api"
)

// logsFlags are the flags of muster logs.
type logsFlags struct {
	cli.AskFlags
	follow, errors bool
	part           int
	offset         int64
}

func NewLogs() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "logs JOB [-f] [--error] [--part N] [--offset BYTES]",
		Short: "Print what a job has written",
		Long: `Print what a job has written to its standard output, from the file on its first node,
wherever you are. With -f it waits for a job that has not started, and goes on until the
job has ended. --error prints standard error, where that has a file of its own, --part
what the processes on another of its nodes wrote, counted from 0. Of a job that has ended the
file is read there too, for as long as the head is configured (keep_output); if its node is
away, the file is read here, where it can be seen from here.` + cli.AskHelp,
		Example:           "  muster logs 17\n  muster logs -f 17_3\n  muster logs --error 17 | tail",
		Args:              cli.OneJob,
		ValidArgsFunction: cli.CompleteJobs(&f.AskFlags),
		RunE:              func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	f.Add(c)
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on until the job has ended")
	flags.BoolVar(&f.errors, "error", false, "standard error instead of standard output")
	flags.IntVar(&f.part, "part", 0, "of which of its nodes")
	flags.Int64Var(&f.offset, "offset", 0, "leave out so many `bytes` at the beginning")
	return c
}

func (f *logsFlags) run(c *cobra.Command, args []string) error {
	if f.part < 0 || f.offset < 0 {
		return cli.UsageErrorf("--part and --offset are not below 0")
	}
	id, err := headclient.JobID(args[0])
	if err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	return h.CopyOutput(c.Context(), c.OutOrStdout(), id, f.output())
}

func (f *logsFlags) output() headclient.Output {
	return headclient.Output{Error: f.errors, Part: f.part, Offset: f.offset, Follow: f.follow}
}

func NewAttach() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "attach JOB [--error] [--part N]",
		Short: "Follow a job's output until it ends, and exit as it did",
		Long: `Follow a job's output from its beginning, as muster logs -f does, and exit as the job
did. A job that waits is waited for. On Ctrl-C it asks whether the job should be
cancelled, be sent the interrupt, or be left alone.` + cli.AskHelp,
		Example:           "  muster attach 17\n  muster attach $(muster submit --parsable train.sh)",
		Args:              cli.OneJob,
		ValidArgsFunction: cli.CompleteJobs(&f.AskFlags),
		RunE:              func(c *cobra.Command, args []string) error { return f.attach(c, args) },
	}
	f.Add(c)
	c.Flags().BoolVar(&f.errors, "error", false, "standard error instead of standard output")
	c.Flags().IntVar(&f.part, "part", 0, "of which of its nodes")
	return c
}

// errLeft says that the user wants no more of a job.
var errLeft = errors.New("left")

func (f *logsFlags) attach(c *cobra.Command, args []string) error {
	id, err := headclient.JobID(args[0])
	if err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	go func() {
		answers := bufio.NewScanner(c.InOrStdin())
		for range interrupts {
			if err := f.onInterrupt(ctx, c, h, id, answers); err != nil {
				cancel(err)
				return
			}
		}
	}()
	f.follow = true
	err = followJob(ctx, c, h, id, f.output())
	if errors.Is(context.Cause(ctx), errLeft) {
		fmt.Fprintf(c.ErrOrStderr(), "muster: job %s goes on\n", id)
		return nil
	}
	return err
}

// followJob prints a job's output when it has started, and returns how it ended.
func followJob(ctx context.Context, c *cobra.Command, h *headclient.Head, id string, o headclient.Output) error {
	var forbidden error
	asked := false
	jobs, err := h.Await(ctx, id, func(j *api.Job) bool {
		if j.State == api.Pending && !asked { // it is not waited for in vain
			asked, forbidden = true, headclient.MayFollow(ctx, h, id)
		}
		return j.State != api.Pending || forbidden != nil
	})
	if err = cmp.Or(forbidden, err); err != nil {
		return err
	}
	if len(jobs) > 1 {
		return fmt.Errorf("job %s is an array: name one of its tasks, as %s", id, jobtable.Name(&jobs[0]))
	}
	if jobs[0].Start > 0 {
		err := h.FollowOutput(ctx, c.OutOrStdout(), id, o, func() {
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: the output breaks off, as the head or the job's node is away: waiting\n", id)
		})
		var refused *headclient.Refused
		switch {
		case errors.As(err, &refused) && refused.Status != http.StatusForbidden: // how the job ended is known all the same
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: no output: %v\n", id, err)
		case err != nil:
			return err
		}
	}
	if jobs, err = h.AwaitEnd(ctx, id); err != nil {
		return err
	}
	j := &jobs[0]
	if status := j.ExitStatus(); status != 0 {
		fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: %s%s\n", id, j.State, report.Around(": ", j.Why, ""))
		return cli.ExitStatus(status)
	}
	return nil
}

// onInterrupt asks what Ctrl-C means. An error ends the attachment.
func (f *logsFlags) onInterrupt(ctx context.Context, c *cobra.Command, h *headclient.Head, id string, answers *bufio.Scanner) error {
	fmt.Fprintf(c.ErrOrStderr(), "\nmuster: job %s: c cancels it, i sends it the interrupt, d leaves it running, anything else goes on: ", id)
	answer := "d" // the default, if input has ended
	if answers.Scan() {
		answer = strings.ToLower(strings.TrimSpace(answers.Text()))
	}
	var err error
	switch answer {
	case "c":
		_, err = h.Cancel(ctx, id, "")
	case "i":
		_, err = h.Cancel(ctx, id, "INT")
	case "d":
		return errLeft
	}
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "muster: %s\n", cli.About("job", id, err))
	}
	return nil
}
