package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/daemon"
	"muster/head/store"
	"muster/internal/service"
	"muster/internal/units"
	"muster/node/gateway"
	"muster/policy/catalog"
	"muster/policy/preempt"
	"muster/wire/client"
	"muster/wire/trust"
)

const headHelp = `Be the head of a cluster: take jobs from users, and have them started on the nodes
that were told of this head (muster node --head). Run it in the foreground or as a
service, on one machine.

Without a configuration it serves this machine alone, at a socket. With --tls-dir,
the folder that muster cert --head made, it also serves others, at a port. The file
is YAML; all of this may be said, and nothing else (the values are the defaults
where there are some):

  cluster: muster                 # its name
  policy: easy                    # what decides; muster policy list lists all. Or the file of a script, as /etc/muster/mine.star:
                                  # it is read again when it changes (muster policy --help)
  priority: FILE                  # orders the queue as Slurm does, and lets classes preempt (default: the policy alone)
  windows:                        # reservations and maintenance; without users nobody's, without nodes all
    - {name: upkeep, from: 2031-05-06T08:00, until: 2031-05-06T18:00, nodes: "n[1-4]", users: [alice], accounts: [physics]}
  nodes:                          # how nodes serve programs, in place of what their own configuration says: later
    - {vgpus: 4, sharing: shared, policy: fcfs, profiling: 5s}     # ones go before earlier ones, and a policy before all
    - {nodes: "n[1-4]", sharing: exclusive, above: 2, keep: 1}     # above and keep: as offload of the node
    - {nodes: "n[5-8]", weight: 10, features: [a100, ib]}          # taken after nodes with smaller weights (1); for --constraint
  partitions:                     # of nodes, with Slurm's keys (default: jobs of every partition have all nodes)
    gpu: {Nodes: "g[1-8]", Default: YES, MaxTime: 2-00:00:00, PriorityTier: 2}
    cpu: {Nodes: "c[1-64]", Lenders: "g[1-8]", State: UP, MaxNodes: 16, PreemptMode: requeue, AllowAccounts: [physics]}
  admins: [alice, bob]            # beside root: may touch everybody's jobs, and nodes
  limits:                         # of each user, and of single ones; 0 is none
    default: {max_submit_jobs: 1000000, running: 0, gpus: 0, cores: 0, memory: 0}   # the first: not ended, each task of an array
    users: {carol: {gpus: 8, weight: 4, class: any}}      # the most --gpu-weight (1), and whether --gpu-class=latency may be asked for (batch: no)
    accounts: {physics: {gpus: 32}}                       # of all jobs of an account together, likewise
    qos: {long: {running: 40, per_user: {running: 4}, deny_on_limit: false}}      # and of a class, and of each user there; true: refused, not waiting
  licenses: {matlab: 4}           # how many of each jobs may have together (--licenses; default: none)
  grants:                         # how jobs have GPUs whose users say nothing (--gpu-reach, --gpu-beyond)
    whole: {reach: device}
    shares: {reach: node, beyond: 0}
    remote: {reach: node}         # whole GPUs of any nodes (rgpu)
  max_job_count: 20000            # jobs that have not ended, an array counting as one; a user may have half
  max_array_size: 100000          # tasks of an array
  node_timeout: 5m                # so long away, a node is down and its jobs are lost
  silence: 30s                    # so long silent, a connection of a node is closed
  grace: 30s                      # between SIGTERM and SIGKILL
  time_limit: 24h                 # of jobs that ask for none (default: none)
  inactive_limit: 1m              # so long silent, the command of an allocation has gone (muster alloc, muster submit --pty)
  keep: 5m                        # how long ended jobs are listed among the others
  keep_output: 720h               # how long muster logs and the page read what an ended job wrote, on its node
  listen: ":9422"                 # needs tls_dir
  socket: "@muster-head"          # or a path
  state: /var/lib/muster/head     # what must not be forgotten
  http: 127.0.0.1:9423            # metrics and health (default: nowhere)
  page: 127.0.0.1:9424            # the page (muster page); other machines need tls_dir; none for nowhere
  tls_dir: /etc/muster/head-HOST
  join: HOST                      # another head, which this one joins (default: this one is alone)
  address: HOST:9422              # where other heads reach this one (default: the name in its certificate)
  record: {file: decisions.jsonl, limit: 1GiB}   # see below (default: none)
  whatif:                         # the history simulated under other policies, see muster whatif
    at: "03:00"                   # every night then; never is only when it is asked for
    policies: []                  # beside those that there are, as easy:depth=500
    time: 1m                      # of the processor, for each policy
    memory: 2GiB                  # of the process that simulates
  connections:
    unknown: 2048                 # of which it is not known whose they are
    users: 4096                   # of users
    user: 256                     # of these, of one user
    nodes: 40000                  # of nodes
    node: 64                      # of these, of one node
    greet: 10s                    # to say who it is, and to ask
    idle: 2m                      # between two requests
    request: 1m                   # to send a request, and to take each part of the answer

muster head reload, or SIGHUP, has it read the file again: policy, priority, admins, limits, licenses,
grants, max_job_count, max_array_size, windows, nodes, partitions, node_timeout, grace, time_limit,
inactive_limit, keep and keep_output take effect at once, and no job leaves the queue. cluster, silence, listen, socket,
state, http, page, tls_dir, record, whatif and connections take effect at the next start;
the log names those that have changed. SIGTERM and SIGINT end it; jobs go on, and the next head goes on with them. A head that was killed
loses nothing that anybody was told.

Of several heads one leads, and the others have what it has on disk. When it dies, one
of them leads within seconds, as long as a majority of them lives: so have three. One
command adds a head to another that runs, which is told nothing: muster head --join.
Nodes and commands are told of all of them: --head a,b,c. See docs/head.md.

With --record everything that the policy is told and decides is written to a file,
which muster sim replay plays again, with the same policy or another one. There are
names of users and jobs in it, and no scripts. At its limit the log says so, and the
head goes on without recording. An earlier recording of that name is replaced; no other
file is. muster head snapshot writes what the policy knows at this moment.

When its disk is full or fails, the head ends with an error, and answers nobody what
is not on disk. Have a service manager start it again.`

// headFlags are the flags of muster head.
type headFlags struct {
	config, listen, socket, state, policy, tlsDir, http, page string
	join, address                                             string
	priority, record, recordLimit                             string
	log                                                       service.Log
}

func NewHead() *cobra.Command {
	var f headFlags
	c := &cobra.Command{
		Use:   "head [--config FILE] [--listen HOST:PORT] [--socket ADDRESS] [--state DIR] [--policy SPEC] [--tls-dir DIR]",
		Short: "Be the head of a cluster: take jobs, and have them started",
		Long:  headHelp,
		Example: `  muster head
  muster head --tls-dir head-head.example.org --policy easy
  muster head --config /etc/muster/head.yaml --http 127.0.0.1:9423
  muster head --tls-dir head-second.example.org --join head.example.org`,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := f.load(c)
			if err != nil {
				return err
			}
			return f.serve(c, cfg)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.config, "config", "", "read the configuration from this `file`; flags win")
	flags.StringVar(&f.listen, "listen", daemon.DefaultListen, "serve other machines at this `HOST:PORT`; needs --tls-dir")
	flags.StringVar(&f.socket, "socket", daemon.DefaultSocket, "serve this machine at a `path`, or @NAME without a file")
	flags.StringVar(&f.state, "state", "", "`folder` for what must not be forgotten (default: /var/lib/muster/head, or the user's)")
	flags.StringVar(&f.policy, "policy", "easy", "what decides, as muster sim takes it: a name, or the file of a script")
	flags.StringVar(&f.priority, "priority", "", "order the queue by this `file`, as muster sim does")
	flags.StringVar(&f.tlsDir, "tls-dir", "", "`folder` with the head's certificate, as muster cert --head makes it")
	flags.StringVar(&f.join, "join", "", "be one of several heads: join the one at this `HOST[:PORT]`, and those that it has")
	flags.StringVar(&f.address, "address", "", "where other heads reach this one, `HOST:PORT` (default: the name in its certificate)")
	flags.StringVar(&f.http, "http", "", "serve /metrics and /healthz at this `HOST:PORT`")
	flags.StringVar(&f.page, "page", daemon.DefaultPage, "serve the page at this `HOST:PORT` (port 0: any that is free), or none; beyond this machine it needs --tls-dir")
	flags.StringVar(&f.record, "record", "", "write all that the policy is told and decides to this `file`, for muster sim replay")
	flags.StringVar(&f.recordLimit, "record-limit", "1GiB", "stop recording at this `size`")
	cli.DaemonLogFlags(c, &f.log)
	cli.CompleteFlag(c, "policy", cli.CompleteOne(cli.Policies))
	c.AddCommand(newHeadCheck(), newHeadReload(), newHeadBackup(), newHeadRestore(), newHeadSnapshot(), newHeadStatus(), newHeadRemove(), newHeadAlone())
	return c
}

func newHeadCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file of a head",
		Long: `Check a configuration file of a head, with the files that it names: the policy, the
priorities and the certificates. What is wrong is said with file, line and column. No head
is asked, and nothing is changed.`,
		Example: "  muster head check /etc/muster/head.yaml && systemctl reload muster-head",
		Args:    cli.OneArgument("the file, as /etc/muster/head.yaml"),
		RunE: func(c *cobra.Command, args []string) error {
			f := headFlags{config: args[0]}
			cfg, err := f.load(c)
			if err != nil {
				return err
			}
			if err := checkHead(&cfg); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: a head can be started with it: cluster %s, policy %s\n", args[0], cfg.Core.Cluster, cfg.Policy)
			return nil
		},
	}
	return c
}

func newHeadReload() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "reload",
		Short: "Have a running head read its configuration again",
		Long: `Have a running head read its configuration again, as SIGHUP does, and list the settings that
have changed. The policy and the priorities change at once, too; jobs keep their places in
the queue as far as the new ones leave them. If anything is wrong, nothing changes. muster
help head lists what takes effect only when the head starts again. This is for
administrators.` + cli.AskHelp,
		Example: "  muster head check /etc/muster/head.yaml && muster head reload",
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			done, err := h.Reload(c.Context())
			if err != nil {
				return err
			}
			if len(done.Changed) > 0 {
				fmt.Fprintf(c.OutOrStdout(), "changed: %s\n", strings.Join(done.Changed, ", "))
			}
			if len(done.Restart) > 0 {
				fmt.Fprintf(c.OutOrStdout(), "takes effect when the head starts again: %s\n", strings.Join(done.Restart, ", "))
			}
			if len(done.Changed)+len(done.Restart) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing has changed")
			}
			return nil
		},
	}
	f.Add(c)
	return c
}

func newHeadBackup() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy what a running head has on disk",
		Long: `Copy what a running head has on disk at this moment, while it works: jobs that wait and
run, nodes, history. The copy is read from end to end, each record with its checksum,
before it gets its name; an earlier file of that name is replaced. It has the credentials
of running jobs, so only you may read it. muster head restore puts it back. This is for
administrators.` + cli.AskHelp,
		Example: "  muster head backup /backup/head-$(date +%F).db",
		Args:    cli.OneArgument("the file to write, as head-backup.db"),
		RunE: func(c *cobra.Command, args []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			facts, err := backUp(c.Context(), h, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", args[0], inFile(&facts))
			return nil
		},
	}
	f.Add(c)
	return c
}

// backUp writes and checks a backup.
func backUp(ctx context.Context, h *headclient.Head, path string) (facts store.Facts, err error) {
	partial := path + ".partial"
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return facts, err
	}
	copied, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return facts, err
	}
	defer os.Remove(partial) // in the end it has its name
	from, err := h.Download(ctx, "backup")
	if err == nil {
		defer from.Close()
		if _, err = io.Copy(copied, from); err != nil {
			err = fmt.Errorf("the backup is not whole: %w", err)
		}
	}
	if err := errors.Join(err, copied.Sync(), copied.Close()); err != nil {
		return facts, err
	}
	if facts, err = store.Check(ctx, partial); err != nil {
		return facts, fmt.Errorf("the backup cannot be used: %w", err)
	}
	return facts, os.Rename(partial, path)
}

// inFile says what is in a file of a head.
func inFile(f *store.Facts) string {
	return fmt.Sprintf("%d jobs that wait or run, %d ended ones, %d nodes; the next job is %d", f.Jobs, f.Ended, f.Nodes, f.Next)
}

func newHeadRestore() *cobra.Command {
	var state string
	var force bool
	c := &cobra.Command{
		Use:   "restore FILE [--state DIR] [--force]",
		Short: "Put a backup into the place of what a head has on disk",
		Long: `Put a backup into the place of what a head has on disk. Stop the head before, and start it
afterwards; run this as the head's user. The backup is read from end to end first, each
record with its checksum. A file that is newer than the backup, that is another cluster's
or that is damaged is replaced with --force only, and kept as head.db.old; one that a
running head has open is never replaced. Jobs that were submitted after the backup are not
known any more, and nodes are told to stop them.`,
		Example: "  systemctl stop muster-head\n  muster head restore /backup/head-2031-05-06.db --force\n  systemctl start muster-head",
		Args:    cli.OneArgument("the backup, as head-backup.db"),
		RunE: func(c *cobra.Command, args []string) error {
			facts, err := store.Restore(c.Context(), args[0], cmp.Or(state, daemon.DefaultState()), force)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "restored: %s\n", inFile(&facts))
			return nil
		},
	}
	c.Flags().StringVar(&state, "state", "", "the head's `folder` (default: /var/lib/muster/head, or the user's)")
	c.Flags().BoolVar(&force, "force", false, "also in the place of a newer file, of another cluster's, or of a damaged one")
	return c
}

// checkHead refuses a configuration that a head would refuse when it starts.
func checkHead(cfg *daemon.Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	certificate, err := gateway.LoadHead(cfg.TLSDir)
	if err != nil {
		return cfg.At("tls_dir", err)
	}
	if cfg.Listen != "" && certificate == nil {
		return cfg.At("listen", errors.New("the head's port needs a certificate: give tls_dir, the folder that muster cert --head made"))
	}
	setting := "policy"
	for _, spec := range append([]string{cfg.Policy}, cfg.WhatIf.Policies...) {
		rules, _ := preempt.RulesOf(cfg.Core.Priority, cfg.Core.Partitions) // Check has told an error
		if _, err := cli.NewPolicy(catalog.WithClasses(spec, rules)); err != nil {
			return cfg.At(setting, fmt.Errorf("the policy %q: %w", spec, err))
		}
		setting = "whatif"
	}
	return nil
}

func newHeadSnapshot() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "snapshot > FILE",
		Short: "Write what the policy of a head knows now, and decides on it",
		Long: `Write what the policy of a running head knows at this moment: nodes, jobs that wait and
jobs that run, priorities and windows. The last line is what the policy decides on it, if
it remembers nothing else. muster sim replay decides that step again, or asks another
policy about it. This is for administrators.` + cli.AskHelp,
		Example: `  muster head snapshot > now.jsonl
  muster sim replay now.jsonl --policy conservative`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			lines, err := h.Download(c.Context(), "snapshot")
			if err != nil {
				return err
			}
			defer lines.Close()
			if _, err := io.Copy(c.OutOrStdout(), lines); err != nil {
				return fmt.Errorf("the snapshot is not whole: %w", err)
			}
			return nil
		},
	}
	f.Add(c)
	return c
}

// load makes the configuration of file and flags.
func (f *headFlags) load(c *cobra.Command) (daemon.Config, error) {
	cfg := daemon.Default()
	cfg.Core.Zone, cfg.Page = time.Local, daemon.DefaultPage
	if f.config != "" {
		if err := daemon.ReadFile(f.config, &cfg); err != nil {
			return cfg, err
		}
	}
	for _, t := range []struct {
		flag        string
		from, takes *string
	}{
		{"listen", &f.listen, &cfg.Listen}, {"socket", &f.socket, &cfg.Socket}, {"state", &f.state, &cfg.State},
		{"policy", &f.policy, &cfg.Policy}, {"tls-dir", &f.tlsDir, &cfg.TLSDir}, {"http", &f.http, &cfg.HTTP}, {"page", &f.page, &cfg.Page}, {"priority", &f.priority, &cfg.Priority},
		{"record", &f.record, &cfg.Record}, {"join", &f.join, &cfg.Join}, {"address", &f.address, &cfg.Address},
	} {
		if c.Flags().Changed(t.flag) {
			*t.takes = *t.from
			delete(cfg.Said, strings.ReplaceAll(t.flag, "-", "_"))
		}
	}
	if c.Flags().Changed("record-limit") {
		size, err := units.ParseSize(f.recordLimit)
		if err != nil || size <= 0 {
			return cfg, cli.UsageErrorf("--record-limit must be a size as 1GiB, not %q", f.recordLimit)
		}
		cfg.RecordLimit = size
	}
	if cfg.TLSDir != "" && cfg.Listen == "" && !c.Flags().Changed("listen") {
		cfg.Listen = daemon.DefaultListen
	}
	if cfg.State == "" {
		cfg.State = daemon.DefaultState()
	}
	if cfg.Priority != "" {
		var err error
		if cfg.Core.Priority, err = cli.ReadPriorities(cfg.Priority); err != nil {
			return cfg, cfg.At("priority", err)
		}
	}
	if cfg.TLSDir == "" {
		return cfg, nil
	}
	var err error
	cfg.Core.Authority, err = trust.ReadAuthority(filepath.Join(cfg.TLSDir, client.FileCA))
	return cfg, cfg.At("tls_dir", err)
}

// serve runs the daemon until a signal.
func (f *headFlags) serve(c *cobra.Command, cfg daemon.Config) error {
	log, err := f.log.Logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	for _, name := range cli.UnknownVariables(c, os.Environ()) {
		log.Warn("an environment variable stands for no flag of muster head", "variable", name)
	}
	certificate, err := gateway.LoadHead(cfg.TLSDir)
	if err != nil {
		return cfg.At("tls_dir", err)
	}
	daemon.RaiseFileLimit(log)
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	told := service.Listen(stop, c.ErrOrStderr())
	go func() { // a head waits for no other process: any of these signals ends it
		select {
		case <-told.Kill:
		case <-told.Handover:
		}
		stop()
	}()
	return daemon.Run(ctx, cfg, daemon.Options{
		TLS: certificate, Policy: cli.NewPolicy, ReadScript: cli.ScriptLimit.ReadFile, Spec: catalog.WithClasses, Version: cli.ReadVersion().String(), Now: time.Now, Log: log, Reload: told.Reload,
		Simulate: HeadSimulator,
		Load:     func() (daemon.Config, error) { return f.load(c) },
	})
}
