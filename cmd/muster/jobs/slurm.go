package jobs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/wholefile"
	"muster/slurm/emulate"
	"muster/slurm/fetch"
	"muster/slurm/release"
)

func NewSlurm() *cobra.Command {
	c := &cobra.Command{
		Use:   "slurm",
		Short: "Slurm with Muster's policies and GPUs; a private cluster to try that on",
		Long: `Slurm with Muster. drive lets a policy of Muster place the jobs of a real Slurm and lends them
GPUs of other nodes; status shows what it does, and job why a job waits. setup makes a Slurm
use it (sbatch --rgpu=2), and doctor finds out what is wrong with it. emulate starts a private
cluster of any number of nodes on this machine, to try jobs, plug-ins and schedulers on, and
fetch brings a release of Slurm here without installing it. docs/slurm.md,
docs/slurm-gpus.md and docs/slurm-emulate.md explain it all.`,
		Example: "  muster slurm setup --conf /etc/slurm --dry-run\n  muster slurm drive --policy mosaic --rest http://127.0.0.1:6820\n  muster slurm status\n  muster slurm job 17\n  muster slurm emulate -- sinfo",
	}
	c.Args, c.RunE = cli.NoArguments, func(c *cobra.Command, _ []string) error { return overSlurm(c) }
	c.AddCommand(newSlurmDrive(), newSlurmStatus(), newSlurmJob(), newSlurmSetup(), newSlurmDoctor(), newSlurmEmulate(), newSlurmFetch(), newSlurmServe(), newSlurmCheckOr())
	return c
}

// releaseFlags choose a release and where it comes from.
type releaseFlags struct{ version, mirror string }

func (f *releaseFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.version, "version", release.Newest().Name, "the `release` of Slurm: "+strings.Join(release.Names(), ", "))
	c.Flags().StringVar(&f.mirror, "mirror", "", "fetch it from this archive of Debian, an `address` (default: the one that apt uses here)")
}

func (f *releaseFlags) read(c *cobra.Command) (*release.Release, fetch.Options, error) {
	r, err := release.Of(f.version)
	if err != nil {
		return nil, fetch.Options{}, cli.UsageErrorf("--version: %v", err)
	}
	return r, fetch.Options{Mirror: f.mirror, Log: c.ErrOrStderr()}, nil
}

func newSlurmFetch() *cobra.Command {
	var f releaseFlags
	c := &cobra.Command{
		Use:   "fetch [--version RELEASE] [--mirror ADDRESS]",
		Short: "Bring a release of Slurm onto this machine, without installing it",
		Long: `Fetch the Debian packages of a release of Slurm, let apt check their signatures, and
unpack them into a folder below ~/.cache/muster/slurm (or $XDG_CACHE_HOME), which is printed.
No rights are needed, and nothing else on the machine changes. A release that is there is
compared with what was unpacked, byte by byte, and fetched again if it differs.`,
		Example: "  muster slurm fetch\n  muster slurm fetch --version 22.05",
		RunE: func(c *cobra.Command, _ []string) error {
			r, o, err := f.read(c)
			if err != nil {
				return err
			}
			o.Thoroughly = true
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			tree, err := fetch.Get(ctx, r, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "Slurm %s is there and whole\n", tree.Version)
			fmt.Fprintln(c.OutOrStdout(), tree.Folder)
			return nil
		},
	}
	f.add(c)
	return c
}

type emulateFlags struct {
	releaseFlags
	options                     emulate.Options
	extra, plugStack, jobSubmit string
}

func newSlurmEmulate() *cobra.Command {
	var f emulateFlags
	c := &cobra.Command{
		Use:   "emulate [--nodes N] [--gpus G] [--version RELEASE] [--folder DIR] [flags] [-- COMMAND...]",
		Short: "Start a private Slurm cluster on this machine",
		Long: `Start a real Slurm cluster of any number of nodes on this machine, in a temporary folder:
slurmctld, a slurmd for each node, slurmrestd and munged. It needs no root, no container and
no installed Slurm; the release is fetched the first time. GPUs are pretended: Slurm counts
and numbers them. Jobs see the files of this machine under their own names, but the
release's own /usr and /etc. All nodes have the same host name; SLURMD_NODENAME tells them apart.

With a COMMAND, it runs with Slurm's commands in PATH, SLURM_CONF set, and slurmrestd's address
where muster slurm drive finds it; the cluster ends with it, and the exit status is the command's.
Without a COMMAND, what to type in another terminal is printed, as lines for a shell, and the
cluster ends with Ctrl-C. Either way nothing is left, also when this program is killed.`,
		Example: "  muster slurm emulate -- bash\n  muster slurm emulate --nodes 128 --gpus 2 -- sh -c 'srun -N 128 printenv SLURMD_NODENAME | sort'\n  muster slurm emulate --version 22.05",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return cli.UsageErrorf("%q: put -- before the command, as in muster slurm emulate -- %s", args[0], strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	flags.IntVar(&f.options.Nodes, "nodes", 8, "`number` of nodes")
	flags.IntVar(&f.options.CPUs, "cpus", 8, "processors of a node, a `number`")
	flags.IntVar(&f.options.GPUs, "gpus", 0, "GPUs of a node, a `number`; jobs ask for them with --gres=gpu:N, and for any of the cluster with --gres=rgpu:N")
	flags.IntVar(&f.options.GPUNodes, "gpu-nodes", 0, "only the first nodes have GPUs, this `number` (default: all)")
	f.add(c)
	flags.StringVar(&f.options.Folder, "folder", "", "make this `folder` for the cluster, and remove it at the end (default: a temporary one)")
	flags.StringVar(&f.extra, "extra", "", "a `file` with lines for slurm.conf, which replace those for the same words")
	flags.StringVar(&f.plugStack, "plugstack", "", "a `file` to be plugstack.conf")
	flags.StringVar(&f.jobSubmit, "job-submit", "", "a `file` to be job_submit.lua")
	return c
}

// slurmFiles bounds the files of a cluster's configuration.
var slurmFiles = wholefile.Limit{Bytes: 1 << 20, Remedy: "shorten it"}

// read turns the flags into options.
func (f *emulateFlags) read(c *cobra.Command) (emulate.Options, error) {
	o := f.options
	var err error
	if o.Release, o.Fetch, err = f.releaseFlags.read(c); err != nil {
		return o, err
	}
	o.Log = c.ErrOrStderr()
	if o.Nodes < 1 {
		return o, cli.UsageErrorf("--nodes %d: give 1 or more", o.Nodes)
	}
	if o.CPUs < 1 {
		return o, cli.UsageErrorf("--cpus %d: give 1 or more", o.CPUs)
	}
	for _, file := range []struct {
		path string
		text *string
	}{{f.extra, &o.Extra}, {f.plugStack, &o.PlugStack}, {f.jobSubmit, &o.JobSubmit}} {
		if file.path == "" {
			continue
		}
		text, err := slurmFiles.ReadFile(file.path)
		if err != nil {
			return o, err
		}
		*file.text = string(text)
	}
	return o, nil
}

func (f *emulateFlags) run(c *cobra.Command, args []string) error {
	o, err := f.read(c)
	if err != nil {
		return err
	}
	if len(args) > 0 && !emulate.IsCommand(args[0]) {
		if _, err := exec.LookPath(args[0]); err != nil {
			return fmt.Errorf("the command after --: %w", err)
		}
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	cluster, err := emulate.StartUnless(c.Context(), o, signals)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if len(args) == 0 {
		if err := cluster.WriteUse(c.OutOrStdout(), o, driveEnvironment(cluster)); err != nil {
			return err
		}
		fmt.Fprintln(c.ErrOrStderr(), "the cluster is up; Ctrl-C ends it")
		select {
		case <-signals:
			return cluster.Close()
		case <-cluster.Done():
			return errors.New("the cluster ended by itself: was its first process killed?")
		}
	}
	status, err := cluster.RunBeside(args, emulate.Surroundings{
		Environment: driveEnvironment(cluster), Signals: signals, Stdin: c.InOrStdin(), Stdout: c.OutOrStdout(), Stderr: c.ErrOrStderr(),
	})
	if err := errors.Join(err, cluster.Close()); err != nil {
		return err
	}
	if status != 0 {
		return cli.ExitStatus(status)
	}
	return nil
}

// driveEnvironment has muster slurm drive find the cluster's slurmrestd, whose port is another
// each time, and know whose its jobs are, without flags.
func driveEnvironment(cluster *emulate.Cluster) []string {
	address, _ := cluster.REST()
	return []string{"MUSTER_SLURM_DRIVE_REST=" + address, "MUSTER_SLURM_DRIVE_REST_USER=" + cluster.User, fmt.Sprintf("MUSTER_SLURM_DRIVE_ONE_USER=%t", cluster.OneUser)}
}
