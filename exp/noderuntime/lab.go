package noderuntime

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// options are those of the node. A limit to swap is only that: what is written uses memory.
func (s setting) options() []string {
	migrate := "off"
	if s.migrate {
		migrate = "auto"
	}
	words := []string{"--allow", "own", "--devices", s.devices, "--vgpus", fmt.Sprint(s.vgpus), "--max-idle", s.maxIdle.String(), "--migrate", migrate, "--grace", "5s", "--swap", "64GiB"}
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
}

var nodes atomic.Int64

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
	started := bench.Daemons{Tools: t.Tools}
	err := func() error {
		for i, s := range settings {
			n := &theNode{t, fmt.Sprintf("@muster-%s-%d-%d", name, os.Getpid(), nodes.Add(1))}
			c = append(c, n)
			if err := started.LaunchNode(fmt.Sprintf("node %d", i+1), n.socket, s.options()...); err != nil {
				return err
			}
		}
		for _, n := range c {
			if err := started.AwaitNodes(context.Background(), n.socket); err != nil {
				return err
			}
		}
		return f(c)
	}()
	ended := started.Stop()
	if err == nil {
		err = ended
	}
	if logs := started.Logs(); err != nil && logs != "" {
		err = fmt.Errorf("%w\nthe node's log:\n%s", err, logs)
	}
	return err
}

// environment makes a program load Muster's libcuda.so.1 and connect to the node.
func (n *theNode) environment() []string {
	lib := n.tools.Lib
	if before := os.Getenv("LD_LIBRARY_PATH"); before != "" {
		lib += ":" + before
	}
	return n.tools.Environment("LD_LIBRARY_PATH="+lib, "MUSTER_SOCKET="+n.socket)
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
