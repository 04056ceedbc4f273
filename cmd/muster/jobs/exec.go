package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/wire/agent"
	"muster/wire/api"
)

const execHelp = `Run a command among a job's processes: on one of its nodes, with its environment, within
its limits and with its GPUs. Input, output, errors and the exit status go through; when
this command is interrupted, the other is killed. Only the job's user and administrators
may.

--rsh takes what ssh takes, [OPTION...] HOST COMMAND..., inside a job, whose number is
in $MUSTER_JOB_ID: MPI's launchers use it to start processes on the job's other nodes.
COMMAND is handed to a shell there, as ssh does. A link to this program that is called
muster-rsh does the same, for launchers that take no arguments. In jobs of several nodes
variables tell MPICH and Open MPI of it, so that a plain mpiexec starts processes on all.
By hand:

  mpirun --mca plm_rsh_agent 'muster exec --rsh' ./program           (Open MPI)
  mpiexec -genvnone -launcher ssh -launcher-exec $(which muster-rsh) \
          -f <(muster nodes --hostnames) ./program                   (MPICH, Hydra)

-genvnone leaves each node its own variables, with which programs find their GPUs.`

// execFlags are the flags of muster exec.
type execFlags struct {
	cli.AskFlags
	node, directory string
	environment     []string
	noInput, rsh    bool
	pty             bool
}

func NewExec() *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use:   "exec JOB [-w NODE] [--pty] [--chdir DIR] [--env NAME=VALUE] [--] COMMAND [ARGUMENT...] | --rsh HOST COMMAND...",
		Short: "Run a command among a job's processes",
		Long:  execHelp + cli.AskHelp,
		Example: `  muster exec 17 -- env
  muster exec 17 -w n2 -- ps aux
  echo data | muster exec 17_3 -- sh -c 'cat > input'
  muster exec 17 --pty gdb -p 4242`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 && !f.rsh {
				return cli.UsageErrorf("name a job and a command, as muster exec 17 -- hostname")
			}
			return nil
		},
		ValidArgsFunction: completeExec(&f.AskFlags),
		RunE:              func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	// The command's flags are its own. Ours may stand on both sides of the job.
	flags.SetInterspersed(false)
	f.Add(c)
	flags.StringVarP(&f.node, "nodelist", "w", "", "on this of the job's `nodes` (default: its first)")
	flags.StringVarP(&f.directory, "chdir", "D", "", "in this `folder` (default: the job's)")
	flags.StringArrayVar(&f.environment, "env", nil, "with this variable, `NAME=VALUE`; may be repeated")
	flags.BoolVarP(&f.noInput, "no-input", "n", false, "with nothing as standard input")
	flags.BoolVar(&f.pty, "pty", false, "on this terminal")
	flags.BoolVar(&f.rsh, "rsh", false, "take HOST COMMAND... as ssh does, inside a job")
	_ = c.RegisterFlagCompletionFunc("nodelist", cli.CompleteNodes(&f.AskFlags))
	return c
}

// completeExec offers jobs, and then files.
func completeExec(f *cli.AskFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return cli.CompleteJobs(f)(c, args, begun)
	}
}

func (f *execFlags) run(c *cobra.Command, args []string) error {
	e := &api.Exec{Node: f.node, Directory: f.directory, Environment: f.environment}
	var job string
	var err error
	if f.rsh {
		job, err = f.remoteShell(e, args)
	} else {
		job, err = f.command(c, e, args)
	}
	if err != nil {
		return err
	}
	for _, v := range e.Environment {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return cli.UsageErrorf("--env %q: write NAME=VALUE", v)
		}
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	return f.exec(c, h, job, e)
}

// command reads JOB [FLAG...] [--] COMMAND.
func (f *execFlags) command(c *cobra.Command, e *api.Exec, args []string) (string, error) {
	job, err := headclient.JobID(args[0])
	if err != nil {
		return "", err
	}
	if err := c.Flags().Parse(args[1:]); err != nil {
		return "", cli.FlagError(c, err)
	}
	e.Node, e.Directory, e.Environment = f.node, f.directory, f.environment
	if e.Arguments = c.Flags().Args(); len(e.Arguments) == 0 {
		return "", cli.UsageErrorf("name a command, as muster exec %s -- hostname", job)
	}
	return job, nil
}

// remoteShell reads what ssh would, inside a job.
func (f *execFlags) remoteShell(e *api.Exec, args []string) (string, error) {
	r, err := headclient.ParseRemoteShell(args)
	if err != nil {
		return "", err
	}
	job := os.Getenv("MUSTER_JOB_ID")
	if job == "" {
		return "", errors.New("--rsh works inside a job, and $MUSTER_JOB_ID names none: start it with muster submit")
	}
	f.noInput = f.noInput || r.NoInput
	e.Node, e.Arguments = r.Host, r.Command
	return headclient.JobID(job)
}

func (f *execFlags) exec(c *cobra.Command, h *headclient.Head, job string, e *api.Exec) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	streams := headclient.Streams{Input: c.InOrStdin(), Output: c.OutOrStdout(), Error: c.ErrOrStderr()}
	if f.noInput {
		streams.Input = nil
	}
	outcome, err := agent.Outcome{}, error(nil)
	if f.pty {
		terminal, isTerminal := terminalOf(c)
		if isTerminal != nil {
			return isTerminal
		}
		outcome, err = execOnTerminal(ctx, c, h, job, e, terminal)
	} else {
		outcome, err = h.Exec(ctx, job, e, streams)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return cli.ExitStatus(128 + int(syscall.SIGINT))
	case err != nil:
		return err
	case outcome.Reason != "":
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), outcome.Reason)
	}
	if status := exitOf(outcome); status != 0 {
		return cli.ExitStatus(status)
	}
	return nil
}
