package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
	"muster/internal/passthrough"
	"muster/model"
	"muster/node"
	"muster/node/nodefile"
	"muster/report/nodetable"
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
	socket, memory string
	node, tlsDir   string
	grant          string
	mpi, private   bool
	class          string
	weight         int
	share          string
	mapping        string
	gpus, explain  int
	trips, plain   bool
	wait           time.Duration
	nodes          string
	check          string
	errorStatus    int
}

func newRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: `run [--socket ADDRESS | --node HOST:PORT {--tls-dir DIR | --plain} | --grant FILE | --private] [--wait TIME]
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
		return usageErrorf("name the program to run")
	}
	return nil
}

func (f *runFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SetInterspersed(false) // the program's flags are its own
	flags.StringVar(&f.socket, "socket", "", "the node's socket (default: "+node.DefaultSocket+", or $MUSTER_SOCKET)")
	flags.StringVar(&f.node, "node", "", "use the node at this `HOST:PORT` of another machine (default port: "+nodefile.GatewayPort+")")
	flags.StringVar(&f.tlsDir, "tls-dir", "", "`folder` with the certificates for --node")
	flags.BoolVar(&f.plain, "plain", false, "use --node without TLS, over a trusted network, where the node allows it too (plain: true)")
	flags.BoolVar(&f.trips, "round-trips", false, "say at the end how often the program waited for the node of --node, and for what")
	flags.StringVar(&f.grant, "grant", "", "use the devices of the grant in this `file`")
	flags.StringVar(&f.memory, "memory", "", "how much device memory the program sees (default: as much as the largest device has)")
	flags.StringVar(&f.class, "class", "", "latency: kernels of others make way for the program's; batch: its make way for theirs (default: as the node says, mostly batch; or $MUSTER_CLASS)")
	flags.IntVar(&f.weight, "weight", 0, "the program's weight where programs take turns, up to its user's (default: its user's; or $MUSTER_WEIGHT)")
	flags.StringVar(&f.share, "share", "", "the most of a GPU's multiprocessors that the program may use, as 25%, on a node that has MPS (or $MUSTER_SHARE, as 25)")
	flags.StringVar(&f.mapping, "mapping", "", "the `mapper` that decides for each launch which of the node's devices runs it, as ag or probe (docs/mapping.md); off: none does (default: as the node says; or $MUSTER_MAPPING)")
	completeFlag(c, "mapping", completeOne(mappers))
	flags.IntVar(&f.gpus, "gpus", 0, "how many devices the program sees, whether the node has more or fewer (default: as the node says; or $MUSTER_GPUS)")
	flags.IntVar(&f.explain, "explain", 0, "say of the first `N` launches which device the mapper chose, and why (or $MUSTER_EXPLAIN)")
	flags.StringVar(&f.nodes, "nodes", "", "`nodes` on which the program may have elements besides this machine's, as HOST[:PORT],... (default port: "+nodefile.GatewayPort+"), or job: those of the job or Slurm allocation that this is in")
	flags.BoolVar(&f.mpi, "mpi", false, "announce MPI's collective operations to the node")
	flags.BoolVar(&f.private, "private", false, "start a node for this program alone, even if one is there")
	flags.StringVar(&f.check, "check", "", "look for these `defects` of kernels, on a software GPU of the program's own: race, init and memory with commas between, or all (docs/debugging.md)")
	flags.IntVar(&f.errorStatus, "error-exitcode", 0, "exit with this `status` if --check finds a defect; 0: as the program does")
	flags.DurationVar(&f.wait, "wait", 0, "wait so long for a node that serves programs at the socket, and start none")
}

func (f *runFlags) run(c *cobra.Command, args []string) error {
	if f.wait < 0 {
		return usageErrorf("--wait %v: give a time above 0, as 30s or 1m", f.wait)
	}
	if c.Flags().Changed("weight") && f.weight == 0 { // without the flag 0 is the user's own
		return usageErrorf("--weight 0: give a number from 1 to 1000")
	}
	environment, err := f.environment()
	if err != nil {
		return err
	}
	path, err := findProgram(args[0])
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), plainly(err))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return exitStatus(127)
		}
		return exitStatus(126)
	}
	if f.nodes != "" && (f.node != "" || f.grant != "" || f.private) {
		return usageErrorf("--nodes is for programs of this machine's node: leave out --node, --grant and --private")
	}
	if (f.plain || f.trips) && f.node == "" {
		return usageErrorf("--plain and --round-trips are for --node")
	}
	if f.check != "" {
		return f.runChecked(c, path, args, environment)
	}
	if f.grant != "" {
		return f.runGranted(c, path, args, environment)
	}
	if f.node != "" {
		return f.runRemotely(c, path, args, environment)
	}
	if f.private {
		return runPrivately(c, path, args, environment)
	}
	if f.nodes != "" && f.socket == "" { // elements are the node's, also in a job that has a socket of its own for GPUs
		f.socket = os.Getenv("MUSTER_NODE_SOCKET")
	}
	socket := socketOf(f.socket)
	err = f.findNode(c, socket)
	switch {
	case err == nil:
		f.tellSharing(c, socket)
		err := syscall.Exec(path, args, passthrough.Set(environment, "MUSTER_SOCKET", socket))
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s: %v\n", c.CommandPath(), path, err)
		return exitStatus(126)
	case isNamed(f.socket) || f.wait > 0 || !errors.Is(err, node.ErrNoNode):
		return err
	}
	return runPrivately(c, path, args, environment)
}

// findNode makes sure that a node serves programs at a socket, and says what to do if none does.
func (f *runFlags) findNode(c *cobra.Command, socket string) error {
	err := node.AwaitServing(c.Context(), c.ErrOrStderr(), socket, f.wait)
	switch {
	case !errors.Is(err, node.ErrDraining):
		return err
	case f.wait > 0:
		return fmt.Errorf("%w: wait longer, or use --private", err)
	}
	return fmt.Errorf("%w: try again when it is back, wait for it with --wait, or use --private", err)
}

// tellSharing tells the user if the node has fewer devices than the program is to see and no peer
// to borrow from: then several of the program's devices are the same one.
func (f *runFlags) tellSharing(c *cobra.Command, socket string) {
	if f.gpus <= 1 {
		return
	}
	s, err := node.Ask(socket)
	if err != nil {
		return // the program will hear of it
	}
	if why := nodetable.Sharing(s, f.gpus); why != "" {
		fmt.Fprintf(c.ErrOrStderr(), "muster: %s\n", why)
	}
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
	return node.DefaultSocket
}

// isNamed says whether the user named a node, by the flag or in the environment: then
// no other will do.
func isNamed(flag string) bool { return flag != "" || os.Getenv("MUSTER_SOCKET") != "" }

func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil // the user named it
	}
	return path, err
}

// minMemory is the least device memory that a program can be given: less is most
// likely a size without its unit.
const minMemory = 1 << 20

// environment is the program's, but for the socket.
func (f *runFlags) environment() ([]string, error) {
	lib, err := libraryFolder()
	if err != nil {
		return nil, err
	}
	environment := passthrough.Prepend(os.Environ(), "LD_LIBRARY_PATH", lib)
	if f.memory != "" {
		size, err := model.ParseSize(f.memory)
		if err != nil {
			return nil, usageErrorf("--memory: %v", err)
		}
		if size < minMemory {
			return nil, usageErrorf("--memory %s is %s: give %s or more, with a unit, as 2GiB; leave it out for as much as the largest device has",
				f.memory, model.BriefSize(uint64(size)), model.BriefSize(minMemory))
		}
		environment = passthrough.Set(environment, "MUSTER_MEMORY", strconv.FormatInt(size, 10))
	}
	if f.class != "" {
		if f.class != string(node.ClassLatency) && f.class != string(node.ClassBatch) {
			return nil, usageErrorf("--class %s: use latency or batch", f.class)
		}
		environment = passthrough.Set(environment, "MUSTER_CLASS", f.class)
	}
	if f.weight != 0 {
		if f.weight < 1 || f.weight > 1000 {
			return nil, usageErrorf("--weight %d: give a number from 1 to 1000", f.weight)
		}
		environment = passthrough.Set(environment, "MUSTER_WEIGHT", strconv.Itoa(f.weight))
	}
	if f.mapping != "" {
		if err := node.CheckMapping(f.mapping); err != nil {
			return nil, usageErrorf("--mapping: %v", err)
		}
		environment = passthrough.Set(environment, "MUSTER_MAPPING", f.mapping)
	}
	for _, n := range []struct {
		flag, variable string
		value, most    int
	}{{"gpus", "MUSTER_GPUS", f.gpus, 16}, {"explain", "MUSTER_EXPLAIN", f.explain, 1000}} {
		if n.value < 0 || n.value > n.most {
			return nil, usageErrorf("--%s %d: give a number from 1 to %d", n.flag, n.value, n.most)
		}
		if n.value > 0 {
			environment = passthrough.Set(environment, n.variable, strconv.Itoa(n.value))
		}
	}
	if f.share != "" {
		percent, err := node.ParseShare(f.share)
		if err != nil {
			return nil, usageErrorf("--share %v", err)
		}
		environment = passthrough.Set(environment, "MUSTER_SHARE", strconv.Itoa(percent))
	}
	if f.nodes != "" {
		nodes, err := headclient.ProgramNodes(context.Background(), f.nodes, os.Getenv, new(askFlags).open)
		if err != nil {
			return nil, err
		}
		environment = passthrough.Set(environment, "MUSTER_IVM_NODES", nodes)
	}
	if f.mpi {
		library := filepath.Join(lib, "libmuster-mpi.so")
		if _, err := os.Stat(library); err != nil {
			return nil, fmt.Errorf("--mpi needs a library that is not there: %w", err)
		}
		environment = passthrough.Prepend(environment, "LD_PRELOAD", library)
	}
	return environment, nil
}

// libraryFolder finds the folder of Muster's libcuda.so.1.
func libraryFolder() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	here := filepath.Dir(self)
	places := []string{os.Getenv("MUSTER_LIB"), filepath.Join(here, "lib"), filepath.Join(here, "..", "lib", "muster")}
	if places[0] == "" {
		places = places[1:]
	}
	for _, place := range places {
		if _, err := os.Stat(filepath.Join(place, "libcuda.so.1")); err == nil {
			return filepath.Abs(place)
		}
	}
	return "", fmt.Errorf("libcuda.so.1 is in none of %s: build it with make build, or set MUSTER_LIB", strings.Join(places, ", "))
}

// runPrivately runs the program with a node of its own, which gets more arguments.
func runPrivately(c *cobra.Command, path string, args, environment []string, more ...string) error {
	socket := fmt.Sprintf("@muster-private-%d-%s", os.Getpid(), rand.Text()[:8])
	stop, err := startPrivateNode(c, socket, more...)
	if err != nil {
		return err
	}
	state, err := passthrough.Run(path, args, passthrough.Set(environment, "MUSTER_SOCKET", socket))
	stop()
	return exitAs(c, state, err)
}

// exitAs ends as the program did.
func exitAs(c *cobra.Command, state *os.ProcessState, err error) error {
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.CommandPath(), err)
		return exitStatus(126)
	}
	return exitBy(state.Sys().(syscall.WaitStatus))
}

// exitBy ends as a process did: by the same signal, or with the same status.
func exitBy(status syscall.WaitStatus) error {
	if status.Signaled() {
		passthrough.DieBy(status.Signal())
		return exitStatus(128 + int(status.Signal()))
	}
	return exitStatus(status.ExitStatus())
}

// startPrivateNode starts a node for one program, and says so.
func startPrivateNode(c *cobra.Command, socket string, more ...string) (stop func(), err error) {
	stop, err = startChildNode(c.ErrOrStderr(), append([]string{"--socket", socket, "--warm", "1", "--spare", "off", "--log-level", "warn", "--text-log"}, more...)...)
	if err != nil {
		return nil, err
	}
	started, err := node.Ask(socket)
	if err != nil {
		stop()
		return nil, err
	}
	fmt.Fprintf(c.ErrOrStderr(), "muster: started a node for this program alone, with %s\n", nodetable.InWords(started.Devices))
	return stop, nil
}

// startChildNode starts a node for this user that ends when its standard input
// does: when stop is called, and also when this process is killed.
func startChildNode(errors io.Writer, args ...string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(self, append([]string{"node", "--child", "--allow", "own"}, args...)...)
	cmd.Stderr = errors
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the program
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a node: %w", err)
	}
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != "ready\n" {
		life.Close()
		_ = cmd.Wait()
		return nil, fmt.Errorf("the node that was started (muster node %s) did not come up", strings.Join(args, " "))
	}
	return func() {
		life.Close()
		_ = cmd.Wait()
	}, nil
}
