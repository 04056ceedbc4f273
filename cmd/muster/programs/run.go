package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/internal/passthrough"
	"muster/node/ask"
	"muster/node/launch"
	"muster/node/nodefile"
	"muster/node/nodetable"
	"muster/node/settings"

	"github.com/spf13/cobra"
)

const runHelp = `Run a program whose CUDA calls are served by Muster. The program is not changed:
it finds Muster's libcuda.so.1 where it looks for the driver's.

If a node answers at the socket, the program is served by that. If none does, and
neither --socket nor $MUSTER_SOCKET names one, one is started for this program alone,
with what the machine has: its GPUs, or a software GPU. It ends with the program. If
the node is shutting down, that is said and nothing is run; --wait waits until a node
serves programs there.

The exit status and the signals are the program's: 127 if there is no such program,
126 if it cannot be run.

--node runs the program on a node of another machine: HOST or HOST:PORT, with the
folder that muster cert made for you. A token that the node wants is taken from
$MUSTER_TOKEN. --round-trips says at the end how often the program waited for the
node, by the call that it waited for: with a distant node that is what costs time.
--plain, instead of --tls-dir, leaves out TLS: nothing is encrypted, and program and node
show each other that they know the token, which does not travel. Both must say so.

--grant runs the program on the devices of a grant (muster grant), of this machine's
node and of others, which the program sees as devices 0, 1 and so on. $RCUDA_DEVICE_COUNT
and $RCUDA_DEVICE_0 and so on tell it where they are.

--mapping NAME has a mapper decide for each kernel which of the node's devices runs it, so
that a program which sees one device uses several, those that its peers lend too
(docs/mapping.md); --explain N says of the first N launches why. --gpus N shows the program so
many devices: those that the node has not are borrowed of its peers while nobody uses them
there (docs/offload.md), and where nobody lends, some of the N are the same GPU.

--class latency is for programs that answer requests: while one of them has work on a GPU,
those of class batch launch no kernels there. Your administrator says who may be of that
class (docs/sharing.md). --weight is the program's part of the time where programs that do
not fit together take turns. --share 25% lets its kernels use a quarter of a GPU's
multiprocessors at most, where programs run at the same time (mps).

--nodes lets the program's elements (ivm.h, package ivm; docs/ivm.md) be on other nodes, too: as
HOST or HOST:PORT with commas between them. Node 0 is this machine's, which may be named as well,
and the others are 1, 2 and so on, as they are named. They must let it (ivm: true). Inside a job of
the head, or a Slurm allocation, --nodes job stands for its nodes.

--check race,init,memory runs the program on a software GPU of its own that looks at every
access to memory, and says on the program's standard error which are wrong: threads that use
the same bytes with nothing that orders them, reads of what nobody has written, addresses
outside every allocation (docs/debugging.md). --error-exitcode N makes the exit status N then.

--mpi tells the node when the program waits in MPI's collective operations, so that
others can have the GPU meanwhile. The library is looked for in lib/ beside this
program, in ../lib/muster, and first in $MUSTER_LIB if that is set.

In the program's environment MUSTER_TRACE=1 names each function that the program calls
and Muster does not support, with the reason, MUSTER_TRACE=2 every call; MUSTER_QUIET=1
leaves out why calls fail; MUSTER_COPY_THREADS=0 has no threads help with large copies.
docs/node.md has the rest.`

// runFlags are the flags of muster run.
type runFlags struct {
	socket, grant string
	elsewhere     launch.Elsewhere
	wishes        launch.Wishes
	private       bool
	trips         bool
	wait          time.Duration
	check         string
	errorStatus   int
}

func NewRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: `run [--socket ADDRESS | --node HOST:PORT {--tls-dir DIR | --plain} [--round-trips] | --grant FILE
           | --private | --check DEFECTS [--error-exitcode N]] [--wait TIME]
           [--nodes HOST,...] [--memory SIZE] [--class latency|batch] [--weight N] [--share PERCENT]
           [--mapping MAPPER] [--gpus N] [--explain N] [--mpi] [--] PROGRAM [ARGUMENT...]`,
		Short: "Run a program on Muster's GPUs",
		Long:  runHelp,
		Example: `  muster run -- ./vectoradd 1000000
  muster run --memory 2GiB -- python3 train.py
  muster run --nodes gpu1,gpu2 -- ./nbody
  muster run --node gpu1.example.org --tls-dir ~/certs/user-alice -- ./vectoradd`,
		Args: namesProgram,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.add(c)
	return c
}

// namesProgram refuses a command line without a program.
func namesProgram(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.UsageErrorf("name the program to run")
	}
	return nil
}

func (f *runFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SetInterspersed(false) // the program's flags are its own
	flags.StringVar(&f.socket, "socket", "", "the node's socket (default: "+settings.DefaultSocket+", or $MUSTER_SOCKET)")
	flags.StringVar(&f.elsewhere.Node, "node", "", "use the node at this `HOST:PORT` of another machine (default port: "+nodefile.GatewayPort+")")
	flags.StringVar(&f.elsewhere.TLSDir, "tls-dir", "", "`folder` with the certificates for --node")
	flags.BoolVar(&f.elsewhere.Plain, "plain", false, "use --node without TLS, over a trusted network, where the node allows it too (plain: true)")
	flags.BoolVar(&f.trips, "round-trips", false, "say at the end how often the program waited for the node of --node, and for what")
	flags.StringVar(&f.grant, "grant", "", "use the devices of the grant in this `file`")
	flags.StringVar(&f.wishes.Memory, "memory", "", "how much device memory the program sees (default: as much as the largest device has)")
	flags.StringVar(&f.wishes.Class, "class", "", "latency: kernels of others make way for the program's; batch: its make way for theirs (default: as the node says, mostly batch; or $MUSTER_CLASS)")
	flags.IntVar(&f.wishes.Weight, "weight", 0, "the program's weight where programs take turns, up to its user's (default: its user's; or $MUSTER_WEIGHT)")
	flags.StringVar(&f.wishes.Share, "share", "", "the most of a GPU's multiprocessors that the program may use, as 25%, on a node that has MPS (or $MUSTER_SHARE, as 25)")
	flags.StringVar(&f.wishes.Mapping, "mapping", "", "the `mapper` that decides for each launch which of the node's devices runs it, as ag or probe (docs/mapping.md); off: none does (default: as the node says; or $MUSTER_MAPPING)")
	cli.CompleteFlag(c, "mapping", cli.CompleteOne(cli.Mappers))
	flags.IntVar(&f.wishes.GPUs, "gpus", 0, "how many devices the program sees, whether the node has more or fewer (default: as the node says; or $MUSTER_GPUS)")
	flags.IntVar(&f.wishes.Explain, "explain", 0, "say of the first `N` launches which device the mapper chose, and why (or $MUSTER_EXPLAIN)")
	flags.StringVar(&f.wishes.Nodes, "nodes", "", "`nodes` on which the program may have elements besides this machine's, as HOST[:PORT],... (default port: "+nodefile.GatewayPort+"), or job: those of the job or Slurm allocation that this is in")
	flags.BoolVar(&f.wishes.MPI, "mpi", false, "announce MPI's collective operations to the node")
	flags.BoolVar(&f.private, "private", false, "start a node for this program alone, even if one is there")
	flags.StringVar(&f.check, "check", "", "look for these `defects` of kernels, on a software GPU of the program's own: race, init and memory with commas between, or all (docs/debugging.md)")
	flags.IntVar(&f.errorStatus, "error-exitcode", 0, "exit with this `status` if --check finds a defect; 0: as the program does")
	flags.DurationVar(&f.wait, "wait", 0, "wait so long for a node that serves programs at the socket, and start none")
}

func (f *runFlags) run(c *cobra.Command, args []string) error {
	if f.wait < 0 {
		return cli.UsageErrorf("--wait %v: give a time above 0, as 30s or 1m", f.wait)
	}
	if c.Flags().Changed("weight") && f.wishes.Weight == 0 { // without the flag 0 is the user's own
		return cli.UsageErrorf("--weight 0: give a number from 1 to 1000")
	}
	environment, err := f.environment(context.Background())
	if err != nil {
		return err
	}
	path, err := launch.Find(args[0])
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), cli.Plainly(err))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return cli.ExitStatus(127)
		}
		return cli.ExitStatus(126)
	}
	if f.wishes.Nodes != "" && (f.elsewhere.Node != "" || f.private) {
		return cli.UsageErrorf("--nodes is for programs of this machine's node: leave out --node and --private")
	}
	if (f.elsewhere.Plain || f.trips) && f.elsewhere.Node == "" {
		return cli.UsageErrorf("--plain and --round-trips are for --node")
	}
	if f.check == "" && f.errorStatus != 0 {
		return cli.UsageErrorf("--error-exitcode needs --check")
	}
	if f.check != "" {
		return f.runChecked(c, path, args, environment)
	}
	if f.grant != "" {
		return f.runGranted(c, path, args, environment)
	}
	if f.elsewhere.Node != "" {
		return f.runRemotely(c, path, args, environment)
	}
	if f.private {
		return runPrivately(c, path, args, environment)
	}
	if f.wishes.Nodes != "" && f.socket == "" {
		if granted := jobSocket(); granted != "" {
			return cli.Execute(c, path, args, environment, granted) // it speaks for the job's grant
		}
		f.socket = os.Getenv("MUSTER_NODE_SOCKET")
	}
	socket := socketOf(f.socket)
	err = f.findNode(c, socket)
	switch {
	case err == nil:
		f.tellSharing(c, socket)
		return cli.Execute(c, path, args, environment, socket)
	case isNamed(f.socket) || f.wait > 0 || !errors.Is(err, ask.ErrNoNode):
		return err
	}
	return runPrivately(c, path, args, environment)
}

// findNode makes sure that a node serves programs at a socket, and says what to do if none does.
func (f *runFlags) findNode(c *cobra.Command, socket string) error {
	err := ask.AwaitServing(c.Context(), c.ErrOrStderr(), socket, f.wait)
	switch {
	case !errors.Is(err, ask.ErrDraining):
		return err
	case f.wait > 0:
		return fmt.Errorf("%w: wait longer, or use --private", err)
	}
	return fmt.Errorf("%w: try again when it is back, wait for it with --wait, or use --private", err)
}

// tellSharing tells the user if the node has fewer devices than the program is to see and no peer
// to borrow from: then several of the program's devices are the same one.
func (f *runFlags) tellSharing(c *cobra.Command, socket string) {
	if f.wishes.GPUs < 1 {
		return
	}
	if socket == jobSocket() {
		fmt.Fprintf(c.ErrOrStderr(), "muster: the number of devices that --gpus or MUSTER_GPUS asks for is ignored: the program sees its job's (%s)\n", os.Getenv("RCUDA_DEVICE_COUNT"))
		return
	}
	s, err := ask.Status(socket)
	if err != nil {
		return // the program will hear of it
	}
	if why := nodetable.Sharing(s, f.wishes.GPUs); why != "" {
		fmt.Fprintf(c.ErrOrStderr(), "muster: %s\n", why)
	}
}

// jobSocket is the socket of the grant of the job that this process is in; "" if there is none.
func jobSocket() string {
	if slices.Contains([]string{"", "0"}, os.Getenv("RCUDA_DEVICE_COUNT")) {
		return ""
	}
	return os.Getenv("MUSTER_SOCKET")
}

// socketOf is where the node is: as the flag says, or the environment, or the
// default.
func socketOf(flag string) string {
	if flag != "" {
		return flag
	}
	if socket := os.Getenv("MUSTER_SOCKET"); socket != "" {
		return socket
	}
	return settings.DefaultSocket
}

// isNamed says whether the user named a node, by the flag or in the environment: then
// no other will do.
func isNamed(flag string) bool { return flag != "" || os.Getenv("MUSTER_SOCKET") != "" }

// environment is the program's, but for the socket.
func (f *runFlags) environment(ctx context.Context) ([]string, error) {
	libraries, err := launch.Libraries()
	if err != nil {
		return nil, err
	}
	wishes := f.wishes
	if wishes.Nodes != "" {
		if wishes.Nodes, err = headclient.ProgramNodes(ctx, wishes.Nodes, os.Getenv, new(cli.AskFlags).Open); err != nil {
			return nil, err
		}
	}
	return wishes.Environment(os.Environ(), libraries)
}

// runPrivately runs the program with a node of its own, which gets more arguments.
func runPrivately(c *cobra.Command, path string, args, environment []string, more ...string) error {
	socket, stop, err := launch.PrivateNode(c.ErrOrStderr(), more...)
	if err != nil {
		return err
	}
	return runAt(c, socket, stop, path, args, environment)
}

// runServed runs the program with what serves it at a socket of its own.
func runServed(c *cobra.Command, path string, args, environment []string, kind string, serve func(context.Context, *net.UnixListener) error) error {
	socket, stop, err := launch.Serve(kind, serve)
	if err != nil {
		return err
	}
	return runAt(c, socket, stop, path, args, environment)
}

// runAt runs the program, which is served at a socket until it ends.
func runAt(c *cobra.Command, socket string, stop func(), path string, args, environment []string) error {
	state, err := passthrough.Run(path, args, passthrough.Set(environment, "MUSTER_SOCKET", socket))
	stop()
	return cli.ExitAs(c, state, err)
}
