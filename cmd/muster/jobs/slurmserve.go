package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"muster/cmd/muster/cli"
	"muster/mapping"
	"muster/node/launch"
	"muster/node/settings"
	"muster/slurm"
	"muster/slurm/step"

	"github.com/spf13/cobra"
)

// serveFlags are those of muster slurm serve.
type serveFlags struct{ step step.Step }

// newSlurmServe is what the plug-in of Slurm starts for each step of a job on each of its nodes.
func newSlurmServe() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve --grant PATH [--node NAME] [--socket ADDRESS]",
		Short: "Serve the GPUs of a job's step (started by Muster's plug-in of Slurm)",
		Long: `Serve the GPUs of a grant to the programs of a step. Muster's plug-in of Slurm starts it; it
is of no use to people. What belongs into the programs' environment is printed as lines that
the plug-in reads, then "ready". It ends when its standard input does.`,
		Example: "  sbatch --rgpu=1 job.sh",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.step.Grant == "" {
				return cli.UsageErrorf("--grant is missing")
			}
			if err := f.serve(c); err != nil {
				fmt.Fprintf(c.OutOrStdout(), "error %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
				return cli.ExitStatus(1)
			}
			return nil
		},
	}
	c.Flags().StringVar(&f.step.Grant, "grant", "", "the `file` with the job's grant, or a folder with one for each node")
	c.Flags().StringVar(&f.step.Node, "node", "", "the `name` of this node in Slurm")
	c.Flags().StringVar(&f.step.Socket, "socket", settings.DefaultSocket, "the `address` of this node's daemon; %n is the node's name")
	c.Flags().DurationVar(&f.step.Wait, "wait", 10*time.Second, "how long to wait for a grant that is not there yet, and for its nodes, a `time`")
	return c
}

func (f *serveFlags) serve(c *cobra.Command) error {
	// Slurm's signals are for the programs: this process ends after them, with slurmstepd.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, c.InOrStdin())
		cancel(errors.New("the step has ended"))
	}()
	libraries, err := launch.Libraries()
	if err != nil {
		return err
	}
	f.step.Socket, f.step.Libraries = strings.ReplaceAll(f.step.Socket, "%n", f.step.Node), libraries
	return f.step.Serve(ctx, c.OutOrStdout())
}

// newSlurmCheckOr is what the plug-in asks where a job is submitted.
func newSlurmCheckOr() *cobra.Command {
	var mapper string
	c := &cobra.Command{
		Use:     "check-or -- OPTIONS...",
		Short:   "Say whether alternatives and a mapper make sense (started by Muster's plug-in of Slurm)",
		Long:    "Say what is wrong with the values of --muster-or and --mapping. Muster's plug-in of Slurm starts it; it is of no use to people.",
		Example: "  sbatch --rgpu=4 --muster-or='-n 64 -t 2:00:00' job.sh",
		Hidden:  true,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if mapper != "" {
				if err = mapping.CheckSetting(mapper); err != nil {
					err = fmt.Errorf("--mapping: %w", err)
				}
			}
			for _, options := range args {
				if err == nil {
					_, err = slurm.ParseAlternative(options)
				}
			}
			if err != nil {
				fmt.Fprintln(c.OutOrStdout(), err)
				return cli.ExitStatus(1)
			}
			return nil
		},
	}
	c.Flags().StringVar(&mapper, "mapping", "", "the `mapper` of the job's programs")
	return c
}
