package noderuntime

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"muster/node"
	"muster/wire/status"
)

// tools are the files that the experiment runs.
type tools struct {
	muster   string // this program
	lib      string // the folder of libcuda.so.1
	programs string // the folder of the examples
	mpiexec  string // empty where there is no MPI
}

// findTools finds what belongs to this program: all of it stands beside it, unless
// another folder of programs is named.
func findTools(programs string) (tools, error) {
	self, err := os.Executable()
	if err != nil {
		return tools{}, fmt.Errorf("finding this program, to start nodes: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	here := filepath.Dir(self)
	if programs == "" {
		programs = filepath.Join(here, "examples")
	}
	return toolsIn(self, []string{os.Getenv("MUSTER_LIB"), filepath.Join(here, "lib"), filepath.Join(here, "..", "lib", "muster")}, programs)
}

// toolsIn looks whether all is there. Without MPI some figures are left out.
func toolsIn(muster string, libs []string, programs string) (tools, error) {
	t := tools{muster: muster}
	at := slices.IndexFunc(libs, func(lib string) bool {
		_, err := os.Stat(filepath.Join(lib, "libcuda.so.1"))
		return lib != "" && err == nil
	})
	if at < 0 {
		return t, errors.New("libcuda.so.1 is not beside this program: build it with make build, or set MUSTER_LIB to its folder")
	}
	var err error
	if t.lib, err = filepath.Abs(libs[at]); err != nil {
		return t, err
	}
	if t.programs, err = filepath.Abs(programs); err != nil {
		return t, err
	}
	if _, err := os.Stat(filepath.Join(t.programs, "mm")); err != nil {
		return t, fmt.Errorf("the programs to run are not in %s: make examples builds them, and --programs names another folder", t.programs)
	}
	mpiexec, err := exec.LookPath("mpiexec")
	if _, built := os.Stat(filepath.Join(t.programs, "phases")); err == nil && built == nil {
		t.mpiexec = mpiexec
	}
	return t, nil
}

const noMPI = "there is no mpiexec, or no program phases: install an MPI (Debian: apt-get install mpich libmpich-dev) and run make examples"

// setting is a node as an experiment wants it.
type setting struct {
	devices string
	vgpus   int
	maxIdle time.Duration
	migrate bool
}

func (s setting) arguments(socket string) []string {
	migrate := "off"
	if s.migrate {
		migrate = "auto"
	}
	return []string{
		"node", "--child", "--allow", "own", "--socket", socket, "--devices", s.devices, "--vgpus", fmt.Sprint(s.vgpus), "--max-idle", s.maxIdle.String(), "--migrate", migrate,
		"--recover", "off", // what it costs, in copies that are kept, is not scaled
		// No spare workers: to start them takes time off those that are measured.
		"--warm", "0", "--grace", "5s", "--swap", "64GiB", // a promise: only what is written takes memory
		"--worker-timeout", "0s", // on a busy machine a worker may be late; to kill it would end the experiment
		"--log-level", "warn", "--text-log",
	}
}

// theNode is a node in a process of its own.
type theNode struct {
	tools  tools
	socket string
	cmd    *exec.Cmd
	life   interface{ Close() error }
	log    bytes.Buffer // to be read when it has ended
}

var nodes atomic.Int64

// startNode starts a node that ends when its standard input does, so also when this
// process is killed.
func startNode(t tools, s setting) (*theNode, error) {
	n := &theNode{tools: t, socket: fmt.Sprintf("@muster-%s-%d-%d", name, os.Getpid(), nodes.Add(1))}
	n.cmd = exec.Command(t.muster, s.arguments(n.socket)...)
	n.cmd.Env, n.cmd.Stderr = withoutSettings(os.Environ()), &n.log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for this process
	life, err := n.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	n.life = life
	ready, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a node: %w", err)
	}
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != "ready\n" {
		_ = n.stop()
		return nil, fmt.Errorf("the node did not come up: muster %s\n%s", strings.Join(n.cmd.Args[1:], " "), n.log.String())
	}
	return n, nil
}

// withoutSettings leaves out what the user says of nodes and programs of his own.
func withoutSettings(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(s string) bool { return strings.HasPrefix(s, "MUSTER_") })
}

// stop ends the node, and gives what it complained about as an error.
func (n *theNode) stop() error {
	_ = n.life.Close()
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node ended with %w\n%s", err, n.log.String())
	}
	return nil
}

// withNode runs f with a node of its own, which has gone when it returns.
func withNode(t tools, s setting, f func(*theNode) error) error {
	n, err := startNode(t, s)
	if err != nil {
		return err
	}
	if err := f(n); err != nil {
		// What went wrong is that, and not what the node says of its end.
		if ended := n.stop(); n.log.Len() > 0 && ended == nil {
			err = fmt.Errorf("%w\nthe node's log:\n%s", err, n.log.String())
		}
		return err
	}
	return n.stop()
}

// environment is what lets a program find Muster's libcuda.so.1 and the node.
func (n *theNode) environment() []string {
	lib := n.tools.lib
	if before := os.Getenv("LD_LIBRARY_PATH"); before != "" {
		lib += ":" + before
	}
	return append(withoutSettings(os.Environ()), "LD_LIBRARY_PATH="+lib, "MUSTER_SOCKET="+n.socket)
}

// waitFor asks the node until something is so.
func (n *theNode) waitFor(ctx context.Context, is func(*status.Node) bool) (*status.Node, error) {
	for {
		s, err := node.Ask(n.socket)
		if err != nil || is(s) {
			return s, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}
