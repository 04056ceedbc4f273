package agent

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"

	"muster/internal/machine"
	"muster/model"
	wire "muster/wire/agent"
	"muster/wire/grant"
	"muster/wire/status"
)

// Config is what an agent needs to know.
type Config struct {
	// Node is this node's name in the cluster.
	Node string
	// Spool is the agent's folder; "" is DefaultSpool.
	Spool string
	// Cores is how many the node has for jobs; 0 is all on which the agent may run. If the machine
	// has fewer, tasks are not pinned to theirs.
	Cores int
	// Memory is how much the node has for jobs; 0 is all.
	Memory int64
	// Socket is the daemon's, where the programs of tasks find the node's own devices.
	Socket string
	// Gateway is where programs of other nodes reach the devices, HOST:PORT.
	Gateway string
	// Cgroup is a control group (version 2) below which tasks have theirs; "" is the
	// agent's own, and "none" goes without.
	Cgroup string

	// Dial connects to the head. DialStream opens the connection that the head knows by
	// this name.
	Dial       func(context.Context) (net.Conn, error)
	DialStream func(ctx context.Context, stream string) (net.Conn, error)
	// Status is what the node's daemon says of itself: which devices it has, how busy it is, and what users
	// of the cluster are told who ask. nil is a node without a daemon.
	Status func(context.Context) (*status.Node, error)
	// Grants is where grants of the node's devices are served. nil is nowhere.
	Grants Grants
	// Configure has the node's daemon serve programs as the head says, and returns how it does then. With ErrAway
	// it is tried again. nil is a node without a daemon.
	Configure func(model.NodeSettings) (is model.NodeSettings, err error)
	// Peers is called with the gateways of other nodes from which this one may borrow virtual GPUs,
	// whenever the head names them. If it is nil, the head is not asked.
	Peers func(gateways []string)
	// Checkpoints is where suspended tasks can be saved.
	Checkpoints Checkpoints
	// Supervisor is the command to which "supervise" and a task's folder are added; nil
	// is this program's hidden command task.
	Supervisor []string
	// Random spreads the attempts of many agents to reach a head. nil is one with a random seed.
	Random *rand.Rand
	Log    *slog.Logger
}

// ErrAway says that the node's daemon does not answer, as when the next one is about to take over.
var ErrAway = errors.New("the node's daemon is away")

// Grants is a node's book of grants: which devices its daemon serves under which grant.
type Grants interface {
	// Admit has a grant served from now on; one that is known is changed. With ErrAway it is tried again.
	Admit(loan grant.Loan) error
	// Revoke ends all that uses a grant, and forgets it. One that is not known is no error.
	Revoke(id string) error
	// Limit changes how many of a grant's devices may be used at a time; -1 is all.
	Limit(id string, limit int) error
}

// DefaultSpool is where an agent's folder is by default.
func DefaultSpool() string {
	if os.Geteuid() == 0 {
		return "/var/spool/muster"
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		state = filepath.Join(os.Getenv("HOME"), ".local", "state")
	}
	return filepath.Join(state, "muster", "agent")
}

func (c *Config) complete() error {
	if c.Node == "" || c.Dial == nil || c.DialStream == nil {
		return errors.New("an agent needs a name and a way to the head")
	}
	if c.Spool == "" {
		c.Spool = DefaultSpool()
	}
	spool, err := filepath.Abs(c.Spool)
	if err != nil {
		return err
	}
	c.Spool = spool
	if c.Memory == 0 {
		if c.Memory, err = memoryHere(); err != nil {
			return err
		}
	}
	if c.Supervisor == nil {
		c.Supervisor = []string{"/proc/self/exe", "task"}
	}
	if c.Random == nil {
		c.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// chooseCores says which cores are handed out to tasks, and whether these are real, so that tasks
// can be pinned to them.
func chooseCores(want int) (cores []int, pin bool, err error) {
	own, err := ownCores()
	if err != nil {
		return nil, false, err
	}
	cores, pin = coresOf(own, want, machine.CPUs())
	return cores, pin, nil
}

// coresOf is chooseCores for a process that may run on its own cores, but for no more time than
// some of them have (quota). Where that is less than all of them, nobody says which ones: other
// nodes of the machine would pin their tasks to the same cores.
func coresOf(own []int, want, quota int) (cores []int, pin bool) {
	if want == 0 {
		want = min(len(own), quota)
		pin = want == len(own)
	} else {
		pin = want <= len(own)
	}
	if pin {
		return own[:want], true
	}
	for n := range want {
		cores = append(cores, n)
	}
	return cores, false
}

func memoryHere() (int64, error) {
	memory, err := machine.Memory()
	return int64(min(memory, math.MaxInt64)), err
}

// DevicesOf is what the head is told of a node's devices, by their numbers. Devices that the node
// has borrowed are not the cluster's to give to jobs: they are left out at the end of the list, and
// elsewhere, where a device of the node's own has a later number, they are shown as down.
func DevicesOf(n *status.Node) []wire.Device {
	devices := n.Devices
	for len(devices) > 0 && devices[len(devices)-1].Borrowed {
		devices = devices[:len(devices)-1]
	}
	list := make([]wire.Device, 0, len(devices))
	for _, d := range devices {
		list = append(list, wire.Device{Name: d.Name, Memory: max(1, int64(d.Memory)), Speed: max(1e-9, d.Speed), Up: d.State == "up" && !n.Draining && !d.Borrowed, Lender: d.Lender})
	}
	return list
}

// programName is what the agent's processes are called in lists of processes, and what
// tells a binary with several programs which one is meant.
const programName = "muster"
