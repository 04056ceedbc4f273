package jobs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/head/daemon"
	"muster/internal/service"
	"muster/internal/units"
	"muster/node/gateway"
	"muster/policy"
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
  admins: [alice, bob]            # beside root: may touch everybody's jobs, and nodes
  limits:                         # of each user, and of single ones; 0 is none
    default: {max_submit_jobs: 1000000, running: 0, gpus: 0, cores: 0, memory: 0}   # the first: not ended, each task of an array
    users: {carol: {gpus: 8, weight: 4, class: any}}      # the most --gpu-weight (1), and whether --gpu-class=latency may be asked for (batch: no)
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
  listen: ":9422"                 # needs tls_dir
  socket: "@muster-head"          # or a path
  state: /var/lib/muster/head     # what must not be forgotten
  http: 127.0.0.1:9423            # metrics and health (default: nowhere)
  page: 127.0.0.1:9424            # the page (muster page); other machines need tls_dir; none for nowhere
  tls_dir: /etc/muster/head-HOST
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

SIGHUP has it read the file again: admins, limits, grants, max_job_count, max_array_size,
windows, nodes, node_timeout, grace, time_limit, inactive_limit and keep take effect at once. The log
names other settings that have changed; they take effect at the next start. SIGTERM and
SIGINT end it; jobs go on, and the next head goes on with them. A head that was killed
loses nothing that anybody was told.

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
  muster head --config /etc/muster/head.yaml --http 127.0.0.1:9423`,
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
	flags.StringVar(&f.http, "http", "", "serve /metrics and /healthz at this `HOST:PORT`")
	flags.StringVar(&f.page, "page", daemon.DefaultPage, "serve the page at this `HOST:PORT`, or none; beyond this machine it needs --tls-dir")
	flags.StringVar(&f.record, "record", "", "write all that the policy is told and decides to this `file`, for muster sim replay")
	flags.StringVar(&f.recordLimit, "record-limit", "1GiB", "stop recording at this `size`")
	cli.DaemonLogFlags(c, &f.log)
	cli.CompleteFlag(c, "policy", cli.CompleteOne(cli.Policies))
	c.AddCommand(newHeadSnapshot())
	return c
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
			lines, err := h.Snapshot(c.Context())
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
		{"record", &f.record, &cfg.Record},
	} {
		if c.Flags().Changed(t.flag) {
			*t.takes = *t.from
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
			return cfg, err
		}
	}
	if cfg.TLSDir == "" {
		return cfg, nil
	}
	var err error
	cfg.Core.Authority, err = trust.ReadAuthority(filepath.Join(cfg.TLSDir, client.FileCA))
	return cfg, err
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
		return err
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
		TLS: certificate, Policy: headPolicy(cfg), ReadScript: cli.ScriptLimit.ReadFile, Spec: headSpec(cfg), Version: cli.ReadVersion().String(), Now: time.Now, Log: log, Reload: told.Reload,
		Simulate: HeadSimulator,
		Load:     func() (daemon.Config, error) { return f.load(c) },
	})
}

// headPolicy makes the policy of a head, with the classes of its priorities.
func headPolicy(cfg daemon.Config) func(spec string) (policy.Policy, error) {
	full := headSpec(cfg)
	return func(spec string) (policy.Policy, error) { return cli.NewPolicy(full(spec)) }
}

// headSpec is the policy of a head with the classes of its priorities.
func headSpec(cfg daemon.Config) func(spec string) string {
	return func(spec string) string {
		if cfg.Core.Priority == nil {
			return spec
		}
		return catalog.WithClasses(spec, preempt.FromQOS(cfg.Core.Priority.QOS))
	}
}
