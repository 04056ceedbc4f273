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
	"muster/node/ask"
	"muster/node/gateway"
	"muster/wire/status"
)

// tools are the executables that the experiment runs.
type tools struct {
	bench.Tools
	mpiexec string // "" if there is no MPI
}

func findTools(programs string) (tools, error) { return withMPIOf(bench.FindTools(programs, "mm")) }

func toolsIn(muster string, libs []string, programs string) (tools, error) {
	return withMPIOf(bench.ToolsIn(muster, libs, programs, "mm"))
}

// withMPIOf adds mpiexec to the tools if the machine has it. Without it some figures are left out.
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

// setting is the node that an experiment needs.
type setting struct {
	devices string
	vgpus   int
	maxIdle time.Duration
	migrate bool
	// offload lets the node borrow virtual GPUs from the other nodes of its cluster, and lend them
	// its own.
	offload bool
	network // set if the node offloads
}

// network is a node's identity in a cluster.
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
		"--recover", "off", // the cost of recovery copies is not scaled
		// No spare workers: starting them would take time from the measured ones.
		"--warm", "0", "--grace", "5s", "--swap", "64GiB", // a limit: only what is written uses memory
		"--worker-timeout", "0s", // a busy machine may delay a worker; killing it would end the experiment
		"--log-level", "warn", "--text-log",
	}
	if s.offload {
		words = append(words, "--name", s.network.name, "--listen", s.listen, "--tls-dir", s.certificates, "--peers", strings.Join(s.peers, ","))
	}
	return words
}

// connect gives nodes that offload their addresses and certificates, in a folder.
func connect(settings []setting, folder string) error {
	authority, _, err := gateway.OpenAuthority(folder, time.Now())
	if err != nil {
		return err
	}
	end := bench.Loopback().Near
	for i := range settings {
		s := &settings[i].network
		s.name = fmt.Sprintf("n%d", i+1)
		// Nodes identify each other by name and connect by address, so the certificate has both.
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

// theNode is a node that runs as a process.
type theNode struct {
	tools  tools
	socket string
	cmd    *exec.Cmd
	life   interface{ Close() error }
	log    bytes.Buffer // to be read when it has ended
}

var nodes atomic.Int64

// startNode starts a node. It ends when its standard input is closed, and so also when this process
// is killed.
func startNode(t tools, s setting) (*theNode, error) {
	n := &theNode{tools: t, socket: fmt.Sprintf("@muster-%s-%d-%d", name, os.Getpid(), nodes.Add(1))}
	n.cmd = exec.Command(t.Muster, s.arguments(n.socket)...)
	n.cmd.Env, n.cmd.Stderr = bench.WithoutSettings(os.Environ()), &n.log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal must reach only this process
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

// stop ends the node, and returns what it logged as an error.
func (n *theNode) stop() error {
	_ = n.life.Close()
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node ended with %w\n%s", err, n.log.String())
	}
	return nil
}

// cluster is a list of nodes. Most experiments have one.
type cluster []*theNode

// withNode calls f with a new node, and stops the node afterwards.
func withNode(t tools, s setting, f func(*theNode) error) error {
	return withCluster(t, []setting{s}, func(c cluster) error { return f(c[0]) })
}

// withCluster calls f with new nodes, and stops them afterwards.
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
		// Return f's error, with the nodes' logs, and not the errors of stopping them.
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

// environment makes a program load Muster's libcuda.so.1 and connect to the node.
func (n *theNode) environment() []string {
	lib := n.tools.Lib
	if before := os.Getenv("LD_LIBRARY_PATH"); before != "" {
		lib += ":" + before
	}
	return append(bench.WithoutSettings(os.Environ()), "LD_LIBRARY_PATH="+lib, "MUSTER_SOCKET="+n.socket)
}

// waitFor polls the node's status until the condition holds.
func (n *theNode) waitFor(ctx context.Context, is func(*status.Node) bool) (*status.Node, error) {
	for {
		s, err := ask.Status(n.socket)
		if err != nil || is(s) {
			return s, err
		}
		if err := bench.Pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}
