package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	headclient "muster/head/client"
	"muster/report"
	"muster/report/jobtable"
)

// logsFlags are the flags of muster logs.
type logsFlags struct {
	askFlags
	follow, errors bool
	part           int
	offset         int64
}

func newLogs() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "logs JOB [-f] [--error] [--part N] [--offset BYTES]",
		Short: "Print what a job has written",
		Long: `Print what a job has written to its standard output, from the file on its first node,
wherever you are. With -f it waits for a job that has not started, and goes on until the
job has ended. --error prints standard error, where that has a file of its own, --part
what the processes on another of its nodes wrote, counted from 0. A node forgets jobs that have ended; their file is then
read here, where it can be seen from here.` + askHelp,
		Example:           "  muster logs 17\n  muster logs -f 17_3\n  muster logs --error 17 | tail",
		Args:              oneJob,
		ValidArgsFunction: completeJobs(&f.askFlags),
		RunE:              func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	f.add(c)
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on until the job has ended")
	flags.BoolVar(&f.errors, "error", false, "standard error instead of standard output")
	flags.IntVar(&f.part, "part", 0, "of which of its nodes")
	flags.Int64Var(&f.offset, "offset", 0, "leave out so many `bytes` at the beginning")
	return c
}

func (f *logsFlags) run(c *cobra.Command, args []string) error {
	if f.part < 0 || f.offset < 0 {
		return usageErrorf("--part and --offset are not below 0")
	}
	id, err := jobID(args[0])
	if err != nil {
		return err
	}
	h, err := f.open()
	if err != nil {
		return err
	}
	return copyOutput(c.Context(), c, h, id, f.output())
}

func (f *logsFlags) output() headclient.Output {
	return headclient.Output{Error: f.errors, Part: f.part, Offset: f.offset, Follow: f.follow}
}

func jobID(arg string) (string, error) {
	ids, err := jobIDs([]string{arg})
	if err == nil && len(ids) != 1 {
		err = usageErrorf("%q is more than one job: name one", arg)
	}
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// copyOutput prints what a job has written. A node forgets a job some time after its
// end: then its file is read here, if it is to be seen from here.
func copyOutput(ctx context.Context, c *cobra.Command, h *headclient.Head, id string, o headclient.Output) error {
	output, err := awaitOutput(ctx, h, id, o)
	var refused *headclient.Refused
	if errors.As(err, &refused) && o.Part == 0 {
		if file := openOutput(ctx, h, id, o); file != nil {
			output, err = file, nil
		}
	}
	if err != nil {
		return err
	}
	defer output.Close()
	n, err := io.Copy(c.OutOrStdout(), output)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &brokenOff{n, err}
	}
	return nil
}

// awaitOutput asks for a job's output. A job that is to be followed may still wait, or its node may
// not have been told of it, since nodes that lend it GPUs are told first: its output is asked for
// again until it runs.
func awaitOutput(ctx context.Context, h *headclient.Head, id string, o headclient.Output) (io.ReadCloser, error) {
	begun := false // when it was last refused
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		output, err := h.Output(ctx, id, o)
		var refused *headclient.Refused
		if !o.Follow || begun || !errors.As(err, &refused) {
			return output, err
		}
		if begun = !isStarting(ctx, h, id, o.Part); begun {
			continue // it may have begun after the refusal: the next answer counts
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isStarting says whether a part of a job has yet to begin.
func isStarting(ctx context.Context, h *headclient.Head, id string, part int) bool {
	jobs, err := h.Job(ctx, id)
	if err != nil || len(jobs) != 1 || jobs[0].State.Over() {
		return false
	}
	j := &jobs[0]
	return j.State == api.Pending || part < len(j.Parts) && j.Parts[part].State == "starting"
}

// brokenOff says that a job's output ended before the job's end was seen: the head or
// the job's node is away.
type brokenOff struct {
	copied int64 // bytes that were printed before
	cause  error
}

func (b *brokenOff) Error() string {
	return fmt.Sprintf("the output breaks off, as the head or the job's node is away; the job is not affected, ask again: %v", b.cause)
}

func (b *brokenOff) Unwrap() error { return b.cause }

// followOutput prints what a job writes until it ends. Where the output breaks off it
// waits for the head, and for the job's node, and goes on behind what was printed.
func followOutput(ctx context.Context, c *cobra.Command, h *headclient.Head, id string, o headclient.Output) error {
	broke, away := false, time.Duration(0)
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		err := copyOutput(ctx, c, h, id, o)
		var broken *brokenOff
		var refused *headclient.Refused
		switch {
		case errors.As(err, &broken):
			if !broke {
				fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: the output breaks off, as the head or the job's node is away: waiting\n", id)
			}
			broke = true
			if broken.copied > 0 {
				pause, away = firstLook, 0
			}
			o.Offset += broken.copied
		case broke && away < headRestart && (headGone(err) || errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable):
		default:
			return err
		}
		away += pause
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openOutput opens the file of a job that has ended; nil if it cannot be read here.
func openOutput(ctx context.Context, h *headclient.Head, id string, o headclient.Output) io.ReadCloser {
	jobs, err := h.Job(ctx, id)
	if err != nil || len(jobs) != 1 || !jobs[0].State.Over() {
		return nil
	}
	j := &jobs[0]
	name := j.Output
	if o.Error && j.Error != "" {
		name = j.Error
	}
	if name == "" {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(j.Directory, name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		_, err = file.Seek(o.Offset, io.SeekStart)
	}
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil
	}
	return file
}

func newAttach() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "attach JOB [--error] [--part N]",
		Short: "Follow a job's output until it ends, and exit as it did",
		Long: `Follow a job's output from its beginning, as muster logs -f does, and exit as the job
did. A job that waits is waited for. On Ctrl-C it asks whether the job should be
cancelled, be sent the interrupt, or be left alone.` + askHelp,
		Example:           "  muster attach 17\n  muster attach $(muster submit --parsable train.sh)",
		Args:              oneJob,
		ValidArgsFunction: completeJobs(&f.askFlags),
		RunE:              func(c *cobra.Command, args []string) error { return f.attach(c, args) },
	}
	f.add(c)
	c.Flags().BoolVar(&f.errors, "error", false, "standard error instead of standard output")
	c.Flags().IntVar(&f.part, "part", 0, "of which of its nodes")
	return c
}

// errLeft says that the user wants no more of a job.
var errLeft = errors.New("left")

func (f *logsFlags) attach(c *cobra.Command, args []string) error {
	id, err := jobID(args[0])
	if err != nil {
		return err
	}
	h, err := f.open()
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
	jobs, err := awaitState(ctx, h, id, func(s api.State) bool { return s != api.Pending })
	if err != nil {
		return err
	}
	if len(jobs) > 1 {
		return fmt.Errorf("job %s is an array: name one of its tasks, as %s", id, jobtable.Name(&jobs[0]))
	}
	if jobs[0].Start > 0 {
		err := followOutput(ctx, c, h, id, o)
		var refused *headclient.Refused
		switch {
		case errors.As(err, &refused): // how the job ended is known all the same
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: no output: %v\n", id, err)
		case err != nil:
			return err
		}
	}
	if jobs, err = awaitJob(ctx, h, id); err != nil {
		return err
	}
	j := &jobs[0]
	if status := statusOf(j); status != 0 {
		fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: %s%s\n", id, j.State, report.Around(": ", j.Why, ""))
		return exitStatus(status)
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
		fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: %v\n", id, err)
	}
	return nil
}
