package jobs

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/slurm/setup"
	"muster/slurm/spank"
)

// setupFlags are those of muster slurm setup and muster slurm doctor.
type setupFlags struct {
	version        string
	options        setup.Options
	noREST         bool
	remove, dryRun bool
}

func (f *setupFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.options.Conf, "conf", "/etc/slurm", "the `folder` that has slurm.conf")
	flags.StringVar(&f.version, "version", "", "the `release` of Slurm (default: what scontrol says)")
	flags.StringVar(&f.options.Include, "include", "", "the `folder` with slurm/spank.h (default: /usr/include, or else what muster slurm fetch has brought)")
	flags.StringVar(&f.options.Muster, "muster", "", "the `path` of muster on the nodes (default: this program's)")
	flags.StringVar(&f.options.Library, "library", "", "where the plug-in goes, a `path` that is the same on all machines (default: spank_muster.so in --conf)")
	flags.StringVar(&f.options.Socket, "socket", "", "the `address` of the nodes' daemons (default: the usual one)")
	flags.BoolVar(&f.options.All, "all", false, "Muster places all jobs, and not only those that ask for its GPUs")
	flags.StringSliceVar(&f.options.Partitions, "partition", nil, "Muster places all jobs of these partitions, `names`")
	flags.StringVar(&f.options.Alive, "alive", "", "the `file` of muster slurm drive --alive: while the driver is away, jobs that need none of its GPUs go to Slurm's own scheduler")
	flags.IntVar(&f.options.GPUs, "gpus", 0, "how many GPUs nodes lend, as licences, a `number` (default: no licences)")
	flags.StringVar(&f.options.Agents, "agents", "", "where nodes that lend GPUs connect to the driver, HOST:PORT or unix:PATH, an `address`")
	flags.StringVar(&f.options.TLSDir, "tls-dir", "", "`folder` with the driver's certificate (muster cert --head), for --agents")
	flags.StringVar(&f.options.Authority, "authority", "", "a `file` with the certificate that vouches for nodes that lend, for the driver (default: ca.pem in --tls-dir)")
	flags.StringVar(&f.options.Grants, "grants", "", "the `folder` in which jobs find what they were lent, on a file system that all nodes share")
	flags.StringVar(&f.options.RESTAddress, "rest", "http://127.0.0.1:6820", "slurmrestd's `address`, for the driver")
	flags.BoolVar(&f.noREST, "no-rest", false, "the driver does without slurmrestd")
	flags.StringVar(&f.options.Units, "units", "", "write units for systemd into this `folder`, such as /etc/systemd/system")
	flags.StringVar(&f.options.Driver, "driver", "", "the `command` line of the driver's service (default: muster slurm drive)")
}

// read fills in what was left out.
func (f *setupFlags) read() (setup.Options, error) {
	o := f.options
	o.REST = !f.noREST
	err := o.Complete(f.version)
	return o, err
}

func newSlurmSetup() *cobra.Command {
	var f setupFlags
	c := &cobra.Command{
		Use:   "setup [--conf DIR] [--dry-run] [--remove] [flags]",
		Short: "Make a Slurm use Muster, or undo it",
		Long: `Make a Slurm use Muster's GPUs: compile the plug-in and add it to plugstack.conf, write the
submit script and add it to job_submit.lua, add what slurm.conf lacks, the key for REST and,
with --units, services for systemd. Each change is shown as a difference; --dry-run shows them
and changes nothing. Run it where slurmctld runs, and copy the folder to the other machines as
you do anyway; then restart slurmctld.

What people wrote is never changed: Muster's lines stand between two marks. Where a word of
slurm.conf has another value already, what to write is said, and the exit status is 1.
A second run changes nothing. --remove leaves every file as it was before.`,
		Example: "  muster slurm setup --dry-run --gpus 8\n  muster slurm setup --conf /etc/slurm --partition gpu --units /etc/systemd/system\n  muster slurm setup --remove",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.add(c)
	c.Flags().BoolVar(&f.remove, "remove", false, "take out all that setup has put in")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the changes and make none")
	return c
}

func (f *setupFlags) run(c *cobra.Command) error {
	o, err := f.read()
	if err != nil {
		return err
	}
	planned := setup.Make
	if f.remove {
		planned = setup.Unmake
	}
	plan, err := planned(o)
	if err != nil {
		return err
	}
	for _, change := range plan.Changes {
		fmt.Fprint(c.OutOrStdout(), change.Diff())
	}
	if !f.dryRun {
		if err := plan.Apply(c.Context()); err != nil {
			if errors.Is(err, spank.ErrNoHeaders) {
				return fmt.Errorf("%w; or name their folder with --include, or bring them with muster slurm fetch --version %s", err, o.Release.Name)
			}
			return err
		}
	}
	if err := plan.WriteSummary(c.ErrOrStderr(), f.dryRun, f.remove); err != nil {
		return err
	}
	if len(plan.Left) > 0 {
		return cli.ExitStatus(1)
	}
	return nil
}

func newSlurmDoctor() *cobra.Command {
	var f setupFlags
	c := &cobra.Command{
		Use:   "doctor [--conf DIR] [flags]",
		Short: "Find out what is wrong with a Slurm that uses Muster",
		Long: `Look at the files that muster slurm setup writes and at the running Slurm, and say what is
wrong and what to do. Give it the flags that setup had. The exit status is 1 if something is wrong.`,
		Example: "  muster slurm doctor --conf /etc/slurm",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := f.read()
			if err != nil {
				return err
			}
			findings := setup.Doctor(o, func(name string, args ...string) (string, error) {
				if name == "muster" {
					name = "/proc/self/exe"
				}
				out, err := exec.CommandContext(c.Context(), name, args...).CombinedOutput()
				return string(out), err
			})
			wrong, err := setup.WriteFindings(c.OutOrStdout(), findings)
			if err != nil {
				return err
			}
			if wrong > 0 {
				return cli.ExitStatus(1)
			}
			return nil
		},
	}
	f.add(c)
	return c
}
