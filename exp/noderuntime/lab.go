package noderuntime

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"muster/exp/bench"
	"muster/node"
	"muster/node/gateway"
	"muster/wire/status"
)

// tools are the files that the experiment runs.
type tools struct {
	bench.Tools
	mpiexec string // empty where there is no MPI
}

func findTools(programs string) (tools, error) { return withMPIOf(bench.FindTools(programs, "mm")) }

func toolsIn(muster string, libs []string, programs string) (tools, error) {
	return withMPIOf(bench.ToolsIn(muster, libs, programs, "mm"))
}

// withMPIOf looks for MPI. Without it some figures are left out.
func withMPIOf(found bench.Tools, err error) (tools, error) {
	t := tools{Tools: found}
	if err != nil {
		return t, err
	}
	mpiexec, err := exec.LookPath("mpiexec")
	if _, built := os.Stat(filepath.Join(t.Programs, "phases")); err == nil && built == nil {
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
	// offload lets the node borrow virtual GPUs of the other nodes of its cluster, and lend them its own.
	offload bool
	network // of a node that offloads
}

// network is where a node is among others.
type network struct {
	name, listen, certificates string
	peers                      []string
}

func (s setting) arguments(socket string) []string {
	migrate := "off"
	if s.migrate {
		migrate = "auto"
	}
	words := []string{
		"node", "--child", "--allow", "own", "--socket", socket, "--devices", s.devices, "--vgpus", fmt.Sprint(s.vgpus), "--max-idle", s.maxIdle.String(), "--migrate", migrate,
		"--recover", "off", // what it costs, in copies that are kept, is not scaled
		// No spare workers: to start them takes time off those that are measured.
		"--warm", "0", "--grace", "5s", "--swap", "64GiB", // a promise: only what is written takes memory
		"--worker-timeout", "0s", // on a busy machine a worker may be late; to kill it would end the experiment
		"--log-level", "warn", "--text-log",
	}
	if s.offload {
		words = append(words, "--name", s.network.name, "--listen", s.listen, "--tls-dir", s.certificates, "--peers", strings.Join(s.peers, ","))
	}
	return words
}

// connect gives nodes that offload their addresses and certificates, in a folder of their own.
func connect(settings []setting, folder string) error {
	authority, _, err := gateway.OpenAuthority(folder, time.Now())
	if err != nil {
		return err
	}
	end := bench.Loopback().Near
	for i := range settings {
		s := &settings[i].network
		s.name = fmt.Sprintf("n%d", i+1)
		// Nodes know each other by name, and reach each other by address.
		if s.certificates, err = authority.Node([]string{s.name, end.Address}, 1); err != nil {
			return err
		}
		if s.listen, err = end.FreePort(); err != nil {
			return err
		}
	}
	for i := range settings {
		for k := range settings {
			if k != i {
				settings[i].peers = append(settings[i].peers, settings[k].listen)
			}
		}
	}
	return nil
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
	n.cmd = exec.Command(t.Muster, s.arguments(n.socket)...)
	n.cmd.Env, n.cmd.Stderr = bench.WithoutSettings(os.Environ()), &n.log
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

// stop ends the node, and gives what it complained about as an error.
func (n *theNode) stop() error {
	_ = n.life.Close()
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node ended with %w\n%s", err, n.log.String())
	}
	return nil
}

// cluster is some nodes. Most experiments have one.
type cluster []*theNode

// withNode runs f with a node of its own, which has gone when it returns.
func withNode(t tools, s setting, f func(*theNode) error) error {
	return withCluster(t, []setting{s}, func(c cluster) error { return f(c[0]) })
}

// withCluster runs f with nodes of its own, which have gone when it returns.
func withCluster(t tools, settings []setting, f func(cluster) error) error {
	var c cluster
	if settings[0].offload {
		folder, err := os.MkdirTemp("", "muster-"+name+"-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		if err := connect(settings, folder); err != nil {
			return err
		}
	}
	for _, s := range settings {
		n, err := startNode(t, s)
		if err != nil {
			_ = c.stop()
			return err
		}
		c = append(c, n)
	}
	if err := f(c); err != nil {
		// What went wrong is that, and not what the nodes say of their end.
		ended := c.stop()
		for _, n := range c {
			if n.log.Len() > 0 && ended == nil {
				err = fmt.Errorf("%w\nthe node's log:\n%s", err, n.log.String())
			}
		}
		return err
	}
	return c.stop()
}

// stop ends the nodes.
func (c cluster) stop() error {
	return together(len(c), func(i int) error { return c[i].stop() })
}

// environment is what lets a program find Muster's libcuda.so.1 and the node.
func (n *theNode) environment() []string {
	lib := n.tools.Lib
	if before := os.Getenv("LD_LIBRARY_PATH"); before != "" {
		lib += ":" + before
	}
	return append(bench.WithoutSettings(os.Environ()), "LD_LIBRARY_PATH="+lib, "MUSTER_SOCKET="+n.socket)
}

// waitFor asks the node until something is so.
func (n *theNode) waitFor(ctx context.Context, is func(*status.Node) bool) (*status.Node, error) {
	for {
		s, err := node.Ask(n.socket)
		if err != nil || is(s) {
			return s, err
		}
		if err := bench.Pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}
