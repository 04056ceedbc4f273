package programs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"muster/cmd/muster/cli"
	"muster/internal/service"
	"muster/internal/units"
	"muster/node/assembly"
	"muster/node/nodefile"
	"muster/node/settings"
	"muster/node/vgpu"

	"github.com/spf13/cobra"
)

const NodeHelp = `Serve this machine's GPUs to programs: run it in the foreground or as a service.
Programs reach it with muster run.

Without a configuration it serves all GPUs that the driver has, or a software GPU
on a machine without any. The file is YAML; all of this may be said, and nothing
else (the values are the defaults where there are some):

  name: node7                     # default: the host's name
  socket: "@muster"               # or {path: /run/muster.sock, mode: 0660, group: gpu}
  allow: any                      # users of this machine, as [alice, bob]; own: its user and root
                                  # (default: any if it runs as root, else own)
  devices:
    - cuda: all                   # or the driver's numbers: [0, 1]
      reserve: 1GiB               # memory that Muster leaves alone
      faults: /tmp/rules          # for tests only: the device fails by these rules (docs/chaos.md)
    - soft: {memory: 1GiB, speed: 0.5, name: Slow, copy_bandwidth: 2GB/s, workers: 4, engine: auto}
                                  # and rate: 2e8, operations a second whatever the machine does;
                                  # own_process: true, contexts need a process each, as NVIDIA's do
    - soft: {memory: 2GiB}        # no two devices may be given the same name
      count: 2                    # so many like this, without a name
    - remote: {address: "gpu1:9421", device: 0, tls: /etc/muster/user-me}   # a GPU that another node lends (docs/lent-devices.md)
  vgpus: 4                        # programs that a device serves at a time
  visible: 2                      # devices that a program sees (default: all)
  policy: fcfs                    # or sjf, credit
  max_idle: 10ms                  # so long idle, a program makes room for those that wait
  quantum: 2s                     # so long, on average, a busy program keeps what others wait for; off: while it is busy
  kernel_time: none               # how long one kernel may run, as 30s; {batch: 1h, latency: 10s}. Default: none, or 1h on a
                                  # node of a cluster, and for programs that were granted a device (docs/sharing.md)
  latency: {share: 0.8, window: 200us}   # while programs of class latency are about: the most of the time that they hold
                                  # others back, and how much work these have in flight (docs/sharing.md)
  mps: auto                       # kernels of several programs run on a GPU at once, by NVIDIA's MPS, where it can be had; on: or the node
                                  # does not start; off: they take turns on it, as the driver has it (docs/mps.md)
  confine: auto                   # workers reach only what they need of the machine, as far as the kernel can; on: in whole, or the node
                                  # does not start; off: they reach what their user does (docs/node.md, Security)
  migrate: auto                   # programs move to idle devices that are faster; off: they do not
  mapping: off                    # or a mapper, as ag or probe: which device runs a program's next kernel (docs/mapping.md)
  swap: {size: 32GiB, dir: /var/tmp/muster}   # default: half of the memory, in memory
  defer: false                    # keep copies on the host until a kernel needs them
  recover: on                     # programs outlive their workers and lost devices; off: they end with them
  limits:
    clients: 1024                 # on the node
    default: {clients: 512, memory: 32GiB, vgpus: 4, weight: 1}  # each user; only clients by default
    users:
      alice: {memory: 64GiB, weight: 2, priority: 1, class: any, share: 50%,
        kernel_time: 10m}         # instead of the node's; class: batch, latency (unless a
                                  # program says batch), or any; share: the most of a GPU's multiprocessors for each program, under MPS
  grants: optional                # required: only programs of jobs that were granted devices are served
  warm: 2                         # worker processes that wait for programs
  spare: auto                     # workers that wait with a context open, on each device: auto, off or a number
  worker_timeout: 10s             # a worker that answers nothing for so long is killed; 0: none is
  worker_uids: 1879048192-2147483647   # of a node that is root: user numbers for its workers, which nobody has
  grace: 30s                      # how long a shutdown waits for programs
  orphan_grace: 2m                # how long programs go on without the daemon, until it is started again; 0: they end with it
  handover: false                 # SIGTERM leaves the programs to the next daemon, see below
  state: /run/muster/@muster      # folder for what the next daemon must know; the default depends on socket and user
  http: 127.0.0.1:9420            # /metrics, /healthz and /healthz.json (default: none)
  listen: ":9421"                 # for programs on other machines (default: none)
  tls: {cert: node.pem, key: node-key.pem, ca: ca.pem}
  token: SECRET
  plain: false                    # true: whoever knows the token may come without TLS, for trusted networks
  ivm: false                      # true: elements of programs that began on other nodes of the same authority are started here, as
                                  # their users (docs/ivm.md)
  ivm_root: false                 # true: also those of root: whoever is root on such a node is root here then
  head: head.example.org:9422     # the cluster's head, see below (default: none), or
                                  # {address: unix:@muster-head, spool: DIR, gateway: HOST:PORT, cores: 8, memory: 32GiB,
                                  #  checkpoint_dir: DIR, criu: FILE}
  peers: [n2, n3:9421]            # nodes whose virtual GPUs are borrowed for programs that wait (default: none); head: those of
                                  # which the cluster's head tells; see docs/offload.md
  offload: auto                   # borrow of peers, and lend to other nodes; borrow or lend: only that; off: neither; or
                                  # {mode: auto, above: 1, keep: 0}: how many programs must wait, and free virtual GPUs that are not lent
  record: {file: decisions.jsonl, limit: 1GiB}   # see --record (default: none)
  connections:                    # of those who use no device (yet), and times
    local: 256                    # of one user of this machine, before they use a device
    unknown: 64                   # of other machines, before they have shown who they are
    remote: 512                   # of other machines, afterwards
    user: 128                     # of these, of one user
    greet: 10s                    # to say who it is and what it wants
    idle: 2m                      # for other machines, until a device is used
    silence: 20s                  # for other machines: one that sends nothing for so long is gone
    resume: 1m                    # a program whose connection breaks goes on if it is back within this time; 0: it ends

The socket is what --socket says (or MUSTER_NODE_SOCKET), else what the file says, else
what MUSTER_SOCKET says, which all other commands heed too, else @muster.

SIGTERM ends it when the programs have ended, at the latest after the grace time;
a second SIGTERM, or SIGINT, ends it at once. With --handover SIGTERM ends it at once
and leaves the programs: they go on, and the next daemon at the same socket adopts them.
So does SIGUSR2, and muster node stop --handover. A daemon that was killed is replaced
in the same way. If none comes within orphan_grace, the programs end, and are told why.

SIGHUP has it read the file again. If anything in it is wrong, the log says what, and
everything stays as it was. Devices that the file no longer has are drained and then
removed, new ones are added; allow, vgpus (of devices that come), visible, policy,
max_idle, quantum, kernel_time and latency (for new programs), migrate, swap.size, defer, limits, grants, warm, spare, worker_timeout and grace take
effect at once. The log names what else has changed, and takes effect at the next start.

With --head it is also a node of a cluster: an agent runs what the cluster's head
(muster head) wants run here, as the users who submitted it if it runs as root, else
as its own. The node shows its certificate (--tls-dir), which must have the node's name
(--name); at the head's socket on the same machine it needs none. Of several heads give
all, as a,b,c: the agent finds the one that leads. What the agent must
not forget is in its spool. Jobs go on while agent or head are away. With --checkpoint-dir,
a folder of root's that the nodes share, a suspended job can go on on another node: that
needs root and CRIU (criu, or MUSTER_CRIU).

With --record everything that the dispatcher is told and decides is written to a
file, a line of JSON each, and muster node replay plays it again. The file is
written each second and at the end, and has users' names but nothing of their
data. At its limit the log says so, and the node goes on without recording. An
earlier recording of that name is replaced; no other file is.`

// nodeFlags are the flags of muster node.
// It has a field for each flag.
type nodeFlags struct {
	config                              string
	name, socket, devices, policy       string
	swap, swapDir, http, listen, tlsDir string
	record, recordLimit, head, spool    string
	checkpointDir                       string
	allow, migrate, recover, grants     string
	vgpus, visible, warm                int
	maxIdle, grace, workerTimeout       time.Duration
	orphanGrace                         time.Duration
	state, quantum, mps, mapping, spare string
	confine                             string
	kernelTime                          string
	handover                            bool
	deferCopies, child                  bool
	plain, ivm, ivmRoot                 bool
	peers, offload                      string
	log                                 service.Log
}

func NewNode() *cobra.Command {
	var f nodeFlags
	c := &cobra.Command{
		Use: `node [--config FILE] [--socket ADDRESS] [--devices LIST] [--vgpus N] [--policy NAME] [--max-idle TIME]
            [--swap SIZE] [--http HOST:PORT] [--record FILE] [--log-level LEVEL]`,
		Short: "Serve this machine's GPUs to programs",
		Long:  NodeHelp,
		Example: `  muster node
  muster node --devices 'soft:memory=256M,speed=0.5;soft:memory=512M' --policy sjf
  muster node --config /etc/muster/node.yaml --http 127.0.0.1:9420
  muster node --record decisions.jsonl`,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, note, err := f.load(c)
			if err != nil {
				return err
			}
			return f.serve(c, cfg, note)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.config, "config", "", "read the configuration from this `file`; flags win")
	flags.StringVar(&f.name, "name", "", "the node's `name` (default: the host's)")
	flags.StringVar(&f.socket, "socket", settings.DefaultSocket, "where programs connect: a `path`, or @NAME without a file (or else as the file says, or $MUSTER_SOCKET)")
	flags.StringVar(&f.allow, "allow", "", "`users` of this machine who may use the node: any, own, or as alice,bob (default: any if it runs as root, else own)")
	flags.StringVar(&f.devices, "devices", "", "the devices, as 'soft:memory=256M,speed=0.5;soft:memory=1G,count=2' or cuda:all or remote:HOST:PORT,tls=FOLDER, or none in a cluster or with --peers")
	flags.IntVar(&f.vgpus, "vgpus", vgpu.DefaultSlots, "programs that a device serves at a time")
	flags.IntVar(&f.visible, "visible", 0, "devices that a program sees (default: as many as there are)")
	flags.StringVar(&f.policy, "policy", "fcfs", "who is next: fcfs, sjf or credit")
	flags.DurationVar(&f.maxIdle, "max-idle", vgpu.DefaultMaxIdle, "so long idle, a program makes room for those that wait; 0: never")
	flags.StringVar(&f.quantum, "quantum", vgpu.DefaultQuantum.String(), "so long, on average, a busy program keeps what others wait for; off: while it is busy")
	flags.StringVar(&f.kernelTime, "kernel-time", "", "how long one kernel may run, as 30s, or none (default: none; 1h on a node of a cluster)")
	flags.StringVar(&f.mps, "mps", string(settings.MPSAuto), "auto: programs run on a GPU at the same time, by NVIDIA's MPS, where it can be had; on: or the node does not start; off: they do not")
	flags.StringVar(&f.confine, "confine", string(settings.ConfineAuto), "auto: workers reach only what they need of the machine, as far as the kernel can; on: in whole, or the node does not start; off: they reach what their user does")
	flags.StringVar(&f.migrate, "migrate", "auto", "auto: programs move to idle devices that are faster; off: they do not")
	cli.CompleteFlag(c, "policy", cli.CompleteOne(cli.NodePolicies))
	flags.StringVar(&f.mapping, "mapping", settings.MappingOff, "`mapper` that decides for each launch which device runs it, as ag or probe (docs/mapping.md); off: a program's kernels run on one device")
	cli.CompleteFlag(c, "mapping", cli.CompleteOne(cli.Mappers))
	flags.StringVar(&f.swap, "swap", "", "`size` of the swap area for programs' memory (default: half of the machine's)")
	flags.StringVar(&f.swapDir, "swap-dir", "", "`folder` for the swap area (default: memory)")
	flags.StringVar(&f.recover, "recover", "on", "on: programs outlive their workers, and devices that are lost; off: they do not")
	flags.BoolVar(&f.deferCopies, "defer", false, "keep copies on the host until a kernel needs them")
	flags.StringVar(&f.grants, "grants", "optional", "required: serve only programs of jobs that were granted devices (muster grant); optional: others too")
	flags.IntVar(&f.warm, "warm", 2, "worker processes that wait for programs")
	flags.StringVar(&f.spare, "spare", settings.SparesAuto.String(), "worker processes that wait with a context open, on each device: a number, off, or auto for one on each NVIDIA GPU with much memory")
	flags.DurationVar(&f.workerTimeout, "worker-timeout", 10*time.Second, "so long without an answer, a worker is killed; 0: never")
	flags.DurationVar(&f.grace, "grace", 30*time.Second, "how long a shutdown waits for programs")
	flags.DurationVar(&f.orphanGrace, "orphan-grace", 2*time.Minute, "how long programs go on without the daemon, until it is started again; 0: they end with it")
	flags.BoolVar(&f.handover, "handover", false, "leave the programs to the next daemon at SIGTERM")
	flags.StringVar(&f.state, "state", "", "`folder` for what the next daemon must know (default: one for the socket, in /run/muster or the user's)")
	flags.StringVar(&f.http, "http", "", "serve /metrics and /healthz at this `HOST:PORT`")
	flags.StringVar(&f.listen, "listen", "", "serve programs on other machines at this `HOST:PORT`")
	flags.StringVar(&f.tlsDir, "tls-dir", "", "`folder` with the certificates for --listen, as muster cert makes them")
	flags.BoolVar(&f.plain, "plain", false, "whoever knows the token may come without TLS: for trusted networks, and for measuring")
	flags.StringVar(&f.peers, "peers", "", "borrow virtual GPUs of these `nodes` for programs that wait, as n2,n3:9421; head: those of which the cluster's head tells")
	flags.StringVar(&f.offload, "offload", settings.OffloadBoth.String(), "auto: borrow of peers, and lend to other nodes; borrow or lend: only that; off: neither")
	flags.BoolVar(&f.ivm, "ivm", false, "start elements of programs that began on other nodes of the same authority")
	flags.BoolVar(&f.ivmRoot, "ivm-root", false, "with --ivm: also those of root, who is root here then")
	flags.StringVar(&f.head, "head", "", "run what the head of a cluster wants, at this `HOST[:PORT]` or unix:ADDRESS")
	flags.StringVar(&f.spool, "spool", "", "`folder` for what the next agent must know (default: /var/spool/muster, or the user's)")
	flags.StringVar(&f.checkpointDir, "checkpoint-dir", "", "`folder` that several nodes share, where suspended jobs are saved so that they can go on on another node (default: none)")
	flags.StringVar(&f.record, "record", "", "write all that the dispatcher is told and decides to this `file`")
	flags.StringVar(&f.recordLimit, "record-limit", "1GiB", "stop recording at this `size`")
	cli.DaemonLogFlags(c, &f.log)
	flags.BoolVar(&f.child, "child", false, "say ready on standard output, and end when standard input does")
	_ = flags.MarkHidden("child")
	c.AddCommand(newNodeReplay(), newNodeStop())
	return c
}

// load makes the configuration of file, flags and machine.
func (f *nodeFlags) load(c *cobra.Command) (settings.Config, string, error) {
	cfg := settings.Default()
	cfg.Socket.Address = socketOf("") // the file and the flag win

	if f.child { // nobody will take its place
		cfg.OrphanGrace = 0
	}
	if f.config != "" {
		if err := nodefile.ReadFile(f.config, &cfg); err != nil {
			return cfg, "", err
		}
	}
	if err := f.override(c, &cfg); err != nil {
		return cfg, "", err
	}
	note, err := assembly.Complete(&cfg)
	return cfg, note, err
}

// override takes over the flags that were given.
func (f *nodeFlags) override(c *cobra.Command, cfg *settings.Config) error {
	given := c.Flags().Changed
	for _, t := range []struct {
		flag string
		set  func() error
	}{
		{"name", func() error { cfg.Name = f.name; return nil }},
		{"socket", func() error { cfg.Socket = settings.Socket{Address: f.socket}; return nil }},
		{"allow", func() (err error) { cfg.Allow, err = nodefile.Allow(f.allow); return err }},
		{"devices", func() (err error) { cfg.Devices, err = nodefile.Devices(f.devices); return err }},
		{"vgpus", func() error { cfg.VGPUs = f.vgpus; return nil }},
		{"visible", func() error { cfg.Visible = f.visible; return nil }},
		{"policy", func() (err error) { cfg.Policy, err = vgpu.ParsePolicy(f.policy); return err }},
		{"max-idle", func() error { cfg.MaxIdle = f.maxIdle; return nil }},
		{"quantum", func() (err error) { cfg.Quantum, err = nodefile.Quantum(f.quantum); return err }},
		{"kernel-time", func() (err error) {
			cfg.KernelTime.Batch, err = settings.ParseKernelTime(f.kernelTime)
			cfg.KernelTime.Latency = cfg.KernelTime.Batch
			return err
		}},
		{"mps", func() (err error) { cfg.MPS, err = settings.ParseMPS(f.mps); return err }},
		{"confine", func() (err error) { cfg.Confine, err = settings.ParseConfine(f.confine); return err }},
		{"migrate", func() (err error) { cfg.Migrate, err = nodefile.Migrate(f.migrate); return err }},
		{"mapping", func() (err error) { cfg.Mapping, err = nodefile.Mapping(f.mapping); return err }},
		{"swap", func() error {
			size, err := units.ParseSize(f.swap)
			cfg.Swap.Size = uint64(size)
			return err
		}},
		{"swap-dir", func() error { cfg.Swap.Dir = f.swapDir; return nil }},
		{"defer", func() error { cfg.Defer = f.deferCopies; return nil }},
		{"recover", func() (err error) { cfg.Recover, err = nodefile.OnOff(f.recover); return err }},
		{"grants", func() (err error) { cfg.Grants, err = settings.ParseGrantMode(f.grants); return err }},
		{"warm", func() error { cfg.Warm = f.warm; return nil }},
		{"spare", func() (err error) { cfg.Spare, err = settings.ParseSpares(f.spare); return err }},
		{"worker-timeout", func() error { cfg.WorkerTimeout = f.workerTimeout; return nil }},
		{"grace", func() error { cfg.Grace = f.grace; return nil }},
		{"orphan-grace", func() error { cfg.OrphanGrace = f.orphanGrace; return nil }},
		{"handover", func() error { cfg.Handover = f.handover; return nil }},
		{"state", func() error { cfg.State = f.state; return nil }},
		{"http", func() error { cfg.HTTP = f.http; return nil }},
		{"listen", func() error { cfg.Remote.Listen = f.listen; return nil }},
		{"plain", func() error { cfg.Remote.Plain = f.plain; return nil }},
		{"peers", func() (err error) { cfg.Offload.Peers, cfg.Offload.Head, err = nodefile.Peers(f.peers); return err }},
		{"offload", func() (err error) { cfg.Offload.Mode, err = settings.ParseOffload(f.offload); return err }},
		{"ivm", func() error { cfg.Remote.IVM = f.ivm; return nil }},
		{"ivm-root", func() error { cfg.Remote.IVMRoot = f.ivmRoot; return nil }},
		{"head", func() error { cfg.Head.Address = f.head; return nil }},
		{"spool", func() error { cfg.Head.Spool = f.spool; return nil }},
		{"checkpoint-dir", func() error { cfg.Head.CheckpointDir = f.checkpointDir; return nil }},
		{"record", func() error { cfg.Record.File = f.record; return nil }},
		{"record-limit", func() error {
			size, err := units.ParseSize(f.recordLimit)
			cfg.Record.Limit = uint64(size)
			return err
		}},
		{"tls-dir", func() error { cfg.Remote = assembly.RemoteIn(f.tlsDir, cfg.Remote); return nil }},
	} {
		if given(t.flag) {
			if err := t.set(); err != nil {
				return cli.UsageErrorf("--%s: %v", t.flag, err)
			}
		}
	}
	return nil
}

// serve runs the daemon until a signal.
func (f *nodeFlags) serve(c *cobra.Command, cfg settings.Config, note string) error {
	log, err := f.logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	if note != "" {
		log.Info(note)
	}
	for _, name := range cli.UnknownVariables(c, os.Environ()) {
		log.Warn("an environment variable stands for no flag of muster node", "variable", name)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, which workers are too: %w", err)
	}
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	told := service.Listen(stop, c.ErrOrStderr())
	opts := assembly.Options{
		Log: log, WorkerCommand: []string{self, "worker"}, ConfigFile: f.config, Version: cli.ReadVersion().String(),
		Kill: told.Kill, Handover: told.Handover, Reload: told.Reload,
		Load: func() (settings.Config, error) {
			again, _, err := f.load(c)
			return again, err
		},
	}
	if f.child {
		opts.Ready = func() { fmt.Fprintln(c.OutOrStdout(), "ready") }
		go func() {
			_, _ = io.Copy(io.Discard, c.InOrStdin())
			syscall.Kill(os.Getpid(), syscall.SIGINT)
		}()
	}
	return assembly.Run(ctx, cfg, opts)
}

func (f *nodeFlags) logger(w io.Writer) (*slog.Logger, error) {
	log, err := f.log.Logger(w)
	if err != nil {
		return nil, err
	}
	level := slog.LevelWarn // workers have less to say
	if ctx := context.Background(); log.Enabled(ctx, slog.LevelDebug) {
		level = slog.LevelDebug
	} else if !log.Enabled(ctx, slog.LevelWarn) {
		level = slog.LevelError
	}
	os.Setenv(workerLevelVariable, level.String())
	return log, nil
}
