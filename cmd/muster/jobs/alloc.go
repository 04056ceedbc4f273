package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/internal/passthrough"
	"muster/internal/screen"
	"muster/model/slurmopt"
	"muster/report"
	"muster/wire/agent"
	"muster/wire/api"
)

const allocHelp = `Wait until the cluster gives what is asked for, and run a command here meanwhile that
has it, as salloc does: a shell, if none is named. The job ends when the command does, and
is cancelled when this command has gone for good. While it waits, Ctrl-C gives up.

The command runs on this machine. In its environment are the job's variables
(MUSTER_JOB_ID, MUSTER_JOB_NODELIST, ..., and the same with SLURM_), and muster exec
starts programs on the job's nodes, with its cores, memory and GPUs.

The options are those of muster submit that say what the job asks for, when it may start,
and how it is called.`

func NewAlloc() *cobra.Command {
	return &cobra.Command{
		Use:   "alloc [OPTION...] [COMMAND [ARGUMENT...]]",
		Short: "Wait for an allocation, and run a shell or a command that has it",
		Long:  allocHelp + cli.AskHelp,
		Example: `  muster alloc -N 2 --gpus-per-node=1 -t 60
  muster alloc -n 4 sh -c 'muster exec $MUSTER_JOB_ID -- nvidia-smi'`,
		DisableFlagParsing: true, // as those of muster submit
		Args:               cobra.ArbitraryArgs,
		RunE:               func(c *cobra.Command, args []string) error { return alloc(c, args) },
	}
}

func alloc(c *cobra.Command, args []string) error {
	argv := append([]string{slurmopt.Submit}, args...)
	o, words, err := slurmopt.ParseCommand(argv)
	if err != nil {
		return cli.UsageErrorf("%v", err)
	}
	if o.Client.Help {
		return c.Help()
	}
	if err := onlyAllocates(o); err != nil {
		return err
	}
	command := o.Command
	if len(command) == 0 {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		command = []string{shell}
	}
	s, err := newSession(c, argv, o, words)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.await(); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "muster alloc: Granted job allocation %s on %s\n", s.id, s.job.NodeList)
	status := s.local(command)
	s.finish(status)
	if status != 0 {
		return cli.ExitStatus(status)
	}
	return nil
}

// onlyAllocates refuses options that say nothing about an allocation.
func onlyAllocates(o *slurmopt.Options) error {
	switch {
	case o.Client.Wrap:
		return cli.UsageErrorf("--wrap makes a script: put the command itself behind the options")
	case o.Client.Parsable, o.Client.Wait, o.Client.JSON, o.Client.TestOnly:
		return cli.UsageErrorf("--parsable, --wait, --json and --test-only are for jobs that are only submitted")
	}
	return nil
}

// onTerminal runs a command on a node, and on the user's terminal.
func onTerminal(c *cobra.Command, argv []string, o *slurmopt.Options, words []string) error {
	if err := onlyAllocates(o); err != nil {
		return err
	}
	if len(o.Command) == 0 {
		return cli.UsageErrorf("--pty runs a command: name it, as muster submit --pty bash")
	}
	terminal, err := terminalOf(c)
	if err != nil {
		return err
	}
	s, err := newSession(c, argv, o, words)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.await(); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(s.ctx, syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	defer cancel()
	outcome, err := execOnTerminal(ctx, c, s.h, s.id, &api.Exec{Arguments: o.Command}, terminal)
	switch {
	case err != nil && s.ended() != nil:
		return s.ended()
	case err != nil:
		s.revoke()
		return err
	}
	status := exitOf(outcome)
	if ended := s.finish(status); ended != nil {
		return ended
	}
	if outcome.Reason != "" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), outcome.Reason)
	}
	if status != 0 {
		return cli.ExitStatus(status)
	}
	return nil
}

// terminalOf is the terminal on which the user types.
func terminalOf(c *cobra.Command) (*os.File, error) {
	terminal, ok := c.InOrStdin().(*os.File)
	if ok {
		_, _, err := screen.Size(terminal)
		ok = err == nil
	}
	if !ok {
		return nil, cli.UsageErrorf("--pty needs a terminal as standard input: leave it out where there is none")
	}
	return terminal, nil
}

// exitOf is the status that a shell has for how a command ended.
func exitOf(o agent.Outcome) int {
	switch {
	case o.Signal > 0:
		return 128 + o.Signal
	case o.Exit == 0 && o.Reason != "":
		return 126
	}
	return o.Exit
}

// execOnTerminal runs a command in a job, and on the user's terminal.
func execOnTerminal(ctx context.Context, c *cobra.Command, h *headclient.Head, id string, e *api.Exec, terminal *os.File) (agent.Outcome, error) {
	size := func() agent.Terminal {
		columns, rows, _ := screen.Size(terminal)
		return agent.Terminal{Rows: uint16(rows), Columns: uint16(columns)}
	}
	now := size()
	e.Terminal = fmt.Sprintf("%dx%d", now.Rows, now.Columns)
	if term := os.Getenv("TERM"); term != "" {
		e.Environment = append(e.Environment, "TERM="+term)
	}
	restore, err := screen.Raw(terminal)
	if err != nil {
		return agent.Outcome{}, fmt.Errorf("the terminal: %w", err)
	}
	defer restore()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	sizes := make(chan agent.Terminal)
	done := make(chan struct{})
	defer close(done)
	defer signal.Stop(changed)
	go func() {
		defer close(sizes)
		for {
			select {
			case <-changed:
			case <-done:
				return
			}
			select {
			case sizes <- size():
			case <-done:
				return
			}
		}
	}()
	return h.Exec(ctx, id, e, headclient.Streams{Input: terminal, Output: c.OutOrStdout(), Error: c.ErrOrStderr(), Sizes: sizes})
}

// session is an allocation that this command has, and keeps: it tells the head again and again that it is
// there.
type session struct {
	c    *cobra.Command
	h    *headclient.Head
	id   string
	said *slurmopt.Options
	job  api.Job // when it was granted
	ctx  context.Context
	stop context.CancelFunc
	over chan struct{} // closed when the head knows of no such allocation any more
}

func newSession(c *cobra.Command, argv []string, o *slurmopt.Options, words []string) (*session, error) {
	from := headclient.Submitter{Environment: os.Environ(), Now: time.Now()}
	submission, err := from.Allocation(argv, o, words)
	if err != nil {
		return nil, err
	}
	if !o.Client.Quiet {
		printNotes(c, o.Notes)
	}
	flags := cli.AskFlags{Head: o.Client.Head, TlsDir: o.Client.TLSDir}
	h, err := flags.Open()
	if err != nil {
		return nil, err
	}
	answer, err := h.Submit(c.Context(), submission)
	if err != nil {
		return nil, err
	}
	s := &session{c: c, h: h, id: strconv.FormatUint(answer.Job, 10), said: o, over: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(c.Context())
	go s.keep()
	return s, nil
}

// tryTime is how long a command waits before it asks again a head that does not answer.
const tryTime = time.Second

// keep tells the head that this command is there, until the allocation has ended.
func (s *session) keep() {
	for {
		pause := tryTime
		lapses, err := headclient.Keep(s.ctx, s.h, s.id)
		var refused *headclient.Refused
		switch {
		case errors.As(err, &refused) && refused.Status < 500:
			close(s.over)
			return
		case err == nil:
			pause = max(lapses/4, tryTime/4)
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return
		}
	}
}

// await waits until the allocation is granted, and says why it waits.
func (s *session) await() error {
	ctx, cancel := signal.NotifyContext(s.ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	err := s.granted(ctx)
	if ctx.Err() != nil {
		s.revoke()
		fmt.Fprintf(s.c.ErrOrStderr(), "muster: Job allocation %s has been revoked\n", s.id)
		return cli.ExitStatus(cli.ExitInterrupted)
	}
	return err
}

func (s *session) granted(ctx context.Context) error {
	said := ""
	_, err := s.h.Await(ctx, s.id, func(j *api.Job) bool {
		s.job = *j
		if j.State == api.Pending && j.Reason+j.Why != "" && j.Reason != said && !s.said.Client.Quiet {
			if said == "" {
				fmt.Fprintf(s.c.ErrOrStderr(), "muster: Pending job allocation %s\n", s.id)
			}
			said = j.Reason
			fmt.Fprintf(s.c.ErrOrStderr(), "muster: job %s queued and waiting for resources (%s)%s\n", s.id, j.Reason, report.Around(": ", j.Why, ""))
		}
		return j.State.Over() || j.State != api.Pending && begun(j)
	})
	switch {
	case err != nil:
		return err
	case s.job.State.Over():
		return s.howEnded(&s.job)
	}
	return nil
}

// begun says whether all parts of a job have.
func begun(j *api.Job) bool {
	for _, p := range j.Parts {
		if p.State == "starting" {
			return false
		}
	}
	return len(j.Parts) > 0
}

// ended is how an allocation has ended before its command did; nil if it has not.
func (s *session) ended() error {
	select {
	case <-s.over:
	default:
		return nil
	}
	jobs, err := s.h.Job(s.c.Context(), s.id)
	if err != nil || len(jobs) != 1 {
		return err
	}
	return s.howEnded(&jobs[0])
}

func (s *session) howEnded(j *api.Job) error {
	fmt.Fprintf(s.c.ErrOrStderr(), "muster: job %s: %s%s\n", s.id, j.State, report.Around(": ", j.Why, ""))
	return cli.ExitStatus(max(1, j.ExitStatus()))
}

// finish gives the allocation back, with the exit status of its command. It returns how the allocation
// ended if that was before.
func (s *session) finish(status int) error {
	_, err := s.h.Change(s.c.Context(), s.id, "finish", api.Finished{ExitCode: status})
	var refused *headclient.Refused
	if errors.As(err, &refused) && refused.Status < 500 {
		jobs, err := s.h.Job(s.c.Context(), s.id)
		if err == nil && len(jobs) == 1 && jobs[0].State != api.Completed {
			return s.howEnded(&jobs[0])
		}
		return nil
	}
	if err != nil {
		fmt.Fprintf(s.c.ErrOrStderr(), "muster: job %s is not told that its command has ended: %v; the head cancels it soon\n", s.id, err)
	}
	return nil
}

// revokeTime is how long the head may take to hear that an allocation is not wanted any more.
const revokeTime = 10 * time.Second

// revoke cancels the allocation.
func (s *session) revoke() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.c.Context()), revokeTime)
	defer cancel()
	_, _ = s.h.Cancel(ctx, s.id, "") // otherwise the head does it soon
}

// killTime is how long the command has to end by itself when this one is to.
const killTime = 5 * time.Second

// local runs a command here, with the job's variables. The terminal's signals go to it directly; this
// command goes on, to give the allocation back.
func (s *session) local(command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.c.InOrStdin(), s.c.OutOrStdout(), s.c.ErrOrStderr()
	cmd.Env = s.environment(os.Environ())
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(s.c.ErrOrStderr(), "muster alloc: %v\n", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return 127
		}
		return 126
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	over := s.over
	for {
		select {
		case <-ended:
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				return 128 + int(status.Signal())
			}
			return status.ExitStatus()
		case <-over:
			over = nil
			_ = s.ended() // it is said; what runs here may have something to save
			fmt.Fprintf(s.c.ErrOrStderr(), "muster alloc: the allocation has ended: %s has nothing on the cluster any more\n", command[0])
		case sig := <-signals:
			switch {
			case sig != syscall.SIGTERM && sig != syscall.SIGHUP && !screen.IsTerminal(cmd.Stdin): // no terminal has sent it to both
				_ = cmd.Process.Signal(sig)
			case sig == syscall.SIGTERM || sig == syscall.SIGHUP: // an interactive shell minds the second alone
				_ = cmd.Process.Signal(sig)
				_ = cmd.Process.Signal(syscall.SIGHUP)
				time.AfterFunc(killTime, func() { _ = cmd.Process.Kill() })
			}
		}
	}
}

// environment adds the job's variables, as its processes have them on its nodes.
func (s *session) environment(env []string) []string {
	r := &s.said.Request
	tasks := r.Processes
	if tasks == 0 {
		tasks = len(s.job.Nodes)
	}
	for _, v := range [][2]string{
		{"JOB_ID", s.id}, {"JOBID", s.id}, {"JOB_NAME", s.job.Name}, {"JOB_USER", s.job.User}, {"JOB_ACCOUNT", s.job.Account}, {"JOB_PARTITION", s.job.Partition},
		{"JOB_NODELIST", s.job.NodeList}, {"NODELIST", s.job.NodeList}, {"JOB_NUM_NODES", strconv.Itoa(len(s.job.Nodes))}, {"NNODES", strconv.Itoa(len(s.job.Nodes))},
		{"NTASKS", strconv.Itoa(tasks)}, {"NPROCS", strconv.Itoa(tasks)}, {"CPUS_PER_TASK", strconv.Itoa(max(1, r.Threads()))}, {"SUBMIT_DIR", s.job.Directory},
	} {
		if v[1] == "" {
			continue
		}
		env = passthrough.Set(env, "MUSTER_"+v[0], v[1])
		env = passthrough.Set(env, "SLURM_"+v[0], v[1])
	}
	// Commands there ask the same head.
	if head := s.said.Client.Head; head != "" {
		env = passthrough.Set(env, "MUSTER_HEAD", head)
	}
	if dir, err := filepath.Abs(s.said.Client.TLSDir); s.said.Client.TLSDir != "" && err == nil {
		env = passthrough.Set(env, "MUSTER_TLS_DIR", dir)
	}
	return env
}
