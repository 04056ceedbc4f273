package jobs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/internal/service"
	"muster/internal/units"
	"muster/internal/wholefile"
	"muster/node/gateway"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/engine"
	"muster/slurm/lenders"
	"muster/slurm/view"
	"muster/wire/client"
	"muster/wire/trust"
)

type driveFlags struct {
	log                                                                       service.Log
	policy, rest, user, tokenFile, fallback, record, alive, socket, gpuMemory string
	agents, tlsDir, authority, grants                                         string
	poll, fallbackAfter                                                       time.Duration
	parallel                                                                  int
	guard, oneUser                                                            bool
}

func newSlurmDrive() *cobra.Command {
	var f driveFlags
	c := &cobra.Command{
		Use:   "drive [--policy POLICY] [--rest ADDRESS] [flags]",
		Short: "Let a policy of Muster place the jobs of a real Slurm",
		Long: `Let a policy of Muster place the jobs of a real Slurm. A job_submit script marks the jobs
that are Muster's and holds them; the driver reads Slurm, lets the policy decide, gives each
job exactly its nodes and releases it. All other jobs stay with Slurm's own scheduler, and
what they use counts as used. squeue -O JobID,admin_comment:80 shows why a job waits.

It runs where scontrol works, as a user who may change jobs: root or SlurmUser. Placements go
through slurmrestd (--rest) or, more slowly, scontrol. Nothing is kept on disk: a driver that
was killed finds its state in the comments of the jobs. Releases of Slurm that Muster does not
know are refused. Ctrl-C ends it; jobs that run go on.`,
		Example: "  muster slurm drive --rest http://127.0.0.1:6820\n  muster slurm drive --policy mosaic --record history.jsonl\n  muster slurm drive --policy ./mine.star --fallback slurm",
		Args:    cli.NoArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringVar(&f.policy, "policy", "easy", "the `policy`, as muster policy list has it, or the file of a script")
	cli.CompleteFlag(c, "policy", cli.CompleteOne(cli.Policies))
	flags.StringVar(&f.rest, "rest", "", "slurmrestd's `address`, as http://127.0.0.1:6820 (default: everything goes through scontrol)")
	flags.StringVar(&f.user, "rest-user", "root", "whose token it is, a `user`")
	flags.StringVar(&f.tokenFile, "token-file", "", "a `file` with slurmrestd's token (default: scontrol makes one)")
	flags.DurationVar(&f.poll, "poll", 500*time.Millisecond, "ask Slurm this often, a `time`")
	flags.IntVar(&f.parallel, "parallel", 4, "requests at a time, a `number`")
	flags.StringVar(&f.fallback, "fallback", "wait", "what becomes of waiting jobs when the driver ends: `wait`, or slurm: Slurm's scheduler gets them")
	flags.DurationVar(&f.fallbackAfter, "fallback-after", 30*time.Second, "with --fallback slurm, how long waiting jobs wait for another driver when this one is killed, a `time`")
	flags.BoolVar(&f.guard, "guard", false, "wait for the end of standard input, then hand waiting jobs to Slurm unless a driver answers")
	_ = flags.MarkHidden("guard")
	flags.StringVar(&f.record, "record", "", "write what the policy is told and decides to this `file`, for muster sim replay")
	flags.StringVar(&f.alive, "alive", "", "write the time to this `file` every second, for the job_submit script")
	flags.StringVar(&f.socket, "socket", driver.DefaultSocket(), "where muster slurm status asks, a `path`")
	flags.StringVar(&f.gpuMemory, "gpu-memory", "16GiB", "the memory of a GPU, a `size`: Slurm does not know it")
	flags.StringVar(&f.agents, "agents", "", "where nodes that lend GPUs connect (muster node --head), HOST:PORT or unix:PATH, an `address`")
	flags.StringVar(&f.tlsDir, "tls-dir", "", "`folder` with a head's certificate, as muster cert --head makes it, for --agents")
	flags.StringVar(&f.authority, "authority", "", "a `file` with the certificate that vouches for nodes that lend (default: ca.pem in --tls-dir)")
	flags.BoolVar(&f.oneUser, "one-user", false, "all jobs are yours, under whatever name Slurm has for you: in a cluster of muster slurm emulate that has a user namespace")
	flags.StringVar(&f.grants, "grants", "", "a `folder` in which jobs find what they were lent; all nodes of Slurm must see it")
	cli.DaemonLogFlags(c, &f.log)
	return c
}

var tokenLimit = wholefile.Limit{Bytes: 64 << 10, Remedy: "is it the file with slurmrestd's token?"}

// token reads the token, or has scontrol make one.
func (f *driveFlags) token(ctx context.Context) (string, error) {
	if f.tokenFile != "" {
		text, err := tokenLimit.ReadFile(f.tokenFile)
		return strings.TrimSpace(strings.TrimPrefix(string(text), "SLURM_JWT=")), err
	}
	return engine.MakeToken(ctx, nil, f.user)
}

func (f *driveFlags) run(c *cobra.Command) error {
	memory, err := units.ParseSize(f.gpuMemory)
	if err != nil {
		return cli.UsageErrorf("--gpu-memory: %v", err)
	}
	if f.parallel < 1 || f.parallel > 64 {
		return cli.UsageErrorf("--parallel %d: give 1 to 64", f.parallel)
	}
	if f.poll < 10*time.Millisecond {
		return cli.UsageErrorf("--poll %s: give 10ms or more", f.poll)
	}
	if (f.agents == "") != (f.grants == "") {
		return cli.UsageErrorf("--agents and --grants go together: nodes lend, and jobs find there what they were lent")
	}
	if _, err := cli.NewPolicy(f.policy); err != nil {
		return cli.UsageErrorf("--policy: %v", err)
	}
	if fb := driver.Fallback(f.fallback); fb != driver.FallbackWait && fb != driver.FallbackSlurm {
		return cli.UsageErrorf("--fallback %q: give wait or slurm", f.fallback)
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log, err := f.log.Logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	if !f.guard && wholefile.Public(f.tokenFile) {
		log.Warn(fmt.Sprintf("the mode of %s lets every user read its token, and be %s to Slurm: chmod 600 %s", f.tokenFile, f.user, f.tokenFile))
	}
	e, err := engine.New(ctx, engine.Options{Address: f.rest, User: f.user, Token: f.token})
	if err != nil {
		return err
	}
	cfg := driver.Config{
		Core: slurm.Config{Cluster: "slurm", GPUMemory: memory},
		Spec: f.policy, Policy: cli.NewPolicy, Poll: f.poll, Parallel: f.parallel, Fallback: driver.Fallback(f.fallback),
		Version: cli.ReadVersion().String(), Alive: f.alive, Socket: f.socket, Log: log,
	}
	cfg.Core.Follow(e.Site(), e.Release())
	if ignored := e.Site().Ignored; len(ignored) > 0 {
		log.Warn("jobs are ranked by Slurm's priorities, but for settings of slurm.conf that Muster does not know", "settings", strings.Join(ignored, ", "))
	}
	if f.guard {
		return f.stand(c, e, cfg)
	}
	if f.record != "" {
		file, err := os.OpenFile(f.record, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		cfg.Record = file
	}
	if f.socket != "" {
		os.MkdirAll(filepath.Dir(f.socket), 0o755)
	}
	if f.agents != "" {
		if cfg.Lending, err = f.lending(log); err != nil {
			return err
		}
		defer cfg.Lending.Nodes.Close()
	}
	d, err := driver.New(e, cfg)
	if err != nil {
		return err
	}
	log.Info("driving Slurm", "version", e.Version(), "policy", f.policy, "rest", f.rest)
	if cfg.Fallback == driver.FallbackSlurm {
		dismiss, err := driver.StartGuard(append(slices.Clone(os.Args[1:]), "--guard"))
		if err != nil {
			return err
		}
		defer dismiss()
	}
	return d.Run(ctx)
}

// stand waits until the driver has been killed, and then for another one.
func (f *driveFlags) stand(c *cobra.Command, e *engine.Engine, cfg driver.Config) error {
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, c.InOrStdin())
	return driver.Guard(c.Context(), e, cfg, f.fallbackAfter)
}

// lending lets nodes that lend connect.
func (f *driveFlags) lending(log *slog.Logger) (*driver.Lending, error) {
	certificate, err := gateway.LoadHead(f.tlsDir)
	if err != nil {
		return nil, err
	}
	authority := f.authority
	if authority == "" && f.tlsDir != "" {
		authority = filepath.Join(f.tlsDir, client.FileCA)
	}
	if authority == "" {
		return nil, cli.UsageErrorf("jobs must know who vouches for the nodes that lend: give --tls-dir, or --authority with the ca.pem that muster cert made")
	}
	vouches, err := trust.ReadAuthority(authority)
	if err != nil {
		return nil, err
	}
	folder, err := filepath.Abs(f.grants)
	if err != nil {
		return nil, err
	}
	nodes, err := lenders.Listen(lenders.Config{Address: f.agents, TLS: certificate, Cluster: "slurm", Log: log})
	if err != nil {
		return nil, err
	}
	log.Info("nodes that lend connect here", "address", nodes.Address())
	return &driver.Lending{Nodes: nodes, Folder: folder, Authority: vouches, OneUser: f.oneUser}, nil
}

func newSlurmStatus() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:     "status [--socket PATH] [--json]",
		Short:   "Show what the driver of a Slurm does",
		Long:    "Show what muster slurm drive does: the jobs that are Muster's, where they were placed, and why the others wait.",
		Example: "  muster slurm status\n  muster slurm status --json",
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := driver.AskStatus(c.Context(), socket)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, s)
			}
			return view.WriteStatus(c.OutOrStdout(), s, screen.Columns(c.OutOrStdout()))
		},
	}
	c.Flags().StringVar(&socket, "socket", driver.DefaultSocket(), "where the driver listens, a `path`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}
