package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"muster/node/vgpu"
	"muster/wire/control"
)

// Config says what the node has and how programs share it.
// It has a field for each setting.
type Config struct {
	Name   string // in the status document
	Socket Socket
	// Allow lists the users of this machine, by name or number, who may use the node
	// beside root and the user whose node it is; AllowAny is everybody. nil means
	// everybody if the node runs as root, since root serves each user with workers that
	// become that user, and otherwise nobody.
	Allow []string

	// Devices are the node's; a node of a cluster may have none.
	Devices []Device
	VGPUs   int // virtual GPUs on each device
	Visible int // devices that a program sees; 0 for as many as there are
	Policy  vgpu.Policy
	MaxIdle time.Duration // how long a client may be idle on a device that others wait for; 0: for ever
	Quantum time.Duration // how long, on average, a busy program keeps a device that others wait for; 0: as long as it is busy
	// KernelTime is how long one kernel may hold a device, by the class of its program.
	KernelTime KernelTimes
	Migrate    bool   // programs move to idle devices where they run faster
	Mapping    string // the mapper that decides for each launch which device runs it; "" and "off" for none
	Swap       Swap
	Latency    Latency
	MPS        MPSMode
	Confine    ConfineMode // what workers may reach of the machine
	Defer      bool        // keep copies on the host until a kernel needs them, always
	Recover    bool        // clients outlive their workers, and devices that are lost
	Limits     Limits
	Grants     GrantMode // whether programs need a grant

	Warm          int           // workers that wait for clients
	Spare         Spares        // workers that wait with a context, on each device
	WorkerTimeout time.Duration // a worker that has not answered for this long is killed; 0: never
	WorkerUIDs    UIDRange      // for workers of users; the zero value stands for a default
	Grace         time.Duration // how long a shutdown waits for clients

	// OrphanGrace is how long programs and workers live on without a daemon, so that
	// the next one can adopt them; 0: they end with the daemon. State is the folder in
	// which the next daemon finds what it must know; "" for the usual one. Handover has
	// a daemon that is told to end leave its programs to the next.
	OrphanGrace time.Duration
	State       string
	Handover    bool

	HTTP   string // address for metrics and health; "" for none
	Remote Remote
	Head   Head
	Record Record

	Offload Offload

	Connections Connections
}

// AllowAny stands for all users of the machine.
const AllowAny = "any"

// Connections bound what connections without a client may take, and how long the other
// side may be silent.
type Connections struct {
	Local   int // of one user of this machine, without a client yet
	Unknown int // of other machines, not yet authenticated
	Remote  int // of other machines, authenticated
	User    int // of these, at most for one user

	Greet   time.Duration // for a connection to say who it is and what it wants
	Idle    time.Duration // for other machines, until a device is used
	Silence time.Duration // for other machines, to send something
	Resume  time.Duration // for programs of other machines whose connection broke, to connect again; 0: none
}

// Socket is where programs connect.
type Socket struct {
	Address string // a path, or a name that begins with @ and leaves no file
	Mode    uint32 // of a file; 0 for 0666, or for 0600 if only the owner may use the node
	Group   string // of a file; "" for the daemon's own
}

// Device is one GPU of the node.
type Device struct {
	control.DeviceConfig
	Reserve uint64 // bytes of its memory that Muster leaves alone
}

// KindRemote is the kind of a device that another node lends.
const KindRemote = "remote"

// UnnamedDevice is the name of software GPUs that were given none.
const UnnamedDevice = "Muster software GPU"

// IsNamed says whether the configuration or a person gave the device a name, which must
// then be unique. Names of real GPUs are the driver's, and all GPUs of one model have
// the same.
func (d Device) IsNamed() bool {
	return (d.Kind == "soft" || d.Kind == KindRemote) && d.Name != "" && d.Name != UnnamedDevice
}

// Limits bound what clients may take.
type Limits struct {
	Clients int // on the node at a time
	Default UserLimits
	Users   map[string]UserLimits // by name or number; instead of Default
}

// UserLimits bound what one user's clients may take. 0 is no limit.
type UserLimits struct {
	Clients int
	Memory  uint64 // bytes of device memory, all clients together; no program sees more
	VGPUs   int
	Weight  int // in fair shares, and the most that one of its programs may have; 0 counts as 1

	Share    int   // percent of a device's multiprocessors that one of its programs may use under MPS; 0: all
	Priority int   // of its programs: more is served first
	Class    Class // of its programs

	KernelTime KernelTime // instead of Config.KernelTime, if it says anything
}

// KernelTime is how long one kernel may hold a device: a time, or NoKernelTime; 0 says nothing.
type KernelTime time.Duration

// NoKernelTime lets a kernel run for ever, MinKernelTime is the shortest limit, and GrantedKernelTime is
// the limit where nothing is said and others are granted the devices.
const (
	NoKernelTime      KernelTime = -1
	MinKernelTime                = KernelTime(10 * time.Millisecond)
	GrantedKernelTime            = KernelTime(time.Hour)
)

// KernelTimes has a limit for programs of each class.
type KernelTimes struct{ Batch, Latency KernelTime }

// ParseKernelTime reads a time, or none.
func ParseKernelTime(s string) (KernelTime, error) {
	if s == "none" {
		return NoKernelTime, nil
	}
	t, err := time.ParseDuration(s)
	if err != nil || KernelTime(t) < MinKernelTime {
		return 0, fmt.Errorf("must be a time of %v or more, as 30s or 1h, or none, not %q", time.Duration(MinKernelTime), s)
	}
	return KernelTime(t), nil
}

// Class says which class the programs of a user may have.
type Class string

const (
	ClassAny     Class = "any"     // the class that a program asks for; batch if it asks for none
	ClassBatch   Class = "batch"   // batch only
	ClassLatency Class = "latency" // latency, unless the program asks for batch
)

// Latency bounds what programs of class latency may do to those of class batch.
type Latency struct {
	Share  float64       // the largest fraction of the time for which they may keep a batch program from launching kernels
	Window time.Duration // how much work a batch program may have in flight while they run
}

// Remote is how programs on other machines reach the node.
type Remote struct {
	Listen        string // HOST:PORT; "" for not at all
	Cert, Key, CA string // files
	Token         string
	Plain         bool // programs may come without TLS
	IVM           bool // elements of programs that began on other nodes are started here
	IVMRoot       bool // also those of root
}

// Head is the cluster that the node belongs to. The daemon does not use it; the agent
// beside it does.
type Head struct {
	Address string // HOST[:PORT], or unix:ADDRESS; "" for none
	Spool   string // folder for what the next agent must know; "" for the default
	// CheckpointDir is the folder where suspended tasks are saved, "" for none; CRIU saves them, "" for the
	// one on the path.
	CheckpointDir, CRIU string
	Gateway             string // where other nodes reach this one, HOST:PORT; "" for what Remote says
	Cores               int    // for jobs; 0 for all
	Memory              int64  // likewise
}

// Record says where all events and decisions of the dispatcher are written.
type Record struct {
	File  string // "" for nowhere
	Limit uint64 // bytes, at which the recording ends
}

// DefaultSocket is an abstract name, which leaves no file behind however the daemon
// ends.
const DefaultSocket = "@muster"

// Default is the configuration where nothing was said. Devices, swap size and name
// depend on the machine: the caller fills them in.
func Default() Config {
	return Config{
		Socket:  Socket{Address: DefaultSocket},
		VGPUs:   vgpu.DefaultSlots,
		Recover: true,
		MaxIdle: vgpu.DefaultMaxIdle,
		Quantum: vgpu.DefaultQuantum,
		Latency: Latency{Share: 0.8, Window: 200 * time.Microsecond},
		MPS:     MPSAuto,
		Confine: ConfineAuto,
		Migrate: true,
		Limits:  Limits{Clients: 1024, Default: UserLimits{Clients: 512}},
		Warm:    2,
		Spare:   SparesAuto,
		Grace:   30 * time.Second,
		Record:  Record{Limit: DefaultRecordLimit},
		Connections: Connections{
			Local: 256, Unknown: 64, Remote: 512, User: 128,
			Greet: 10 * time.Second, Idle: 2 * time.Minute, Silence: 20 * time.Second, Resume: time.Minute,
		},

		WorkerTimeout: 10 * time.Second,
		OrphanGrace:   2 * time.Minute,
	}
}

// MaxDevices is bounded by the number of descriptors that one message to a worker can
// carry, and by the arenas that fit beside each other in a program's address space.
const MaxDevices = 16

// maxLatencyShare leaves programs of class batch some time even while programs of class
// latency run all the time.
const maxLatencyShare = 0.99

// MinWorkerTimeout is the shortest timeout that proves anything: on a busy machine a
// healthy worker may wait for a processor.
const MinWorkerTimeout = time.Second

func (c *Config) Check() error {
	switch {
	case len(c.Devices) == 0 && c.Head.Address == "" && !c.Offload.Borrows():
		return errors.New("the node has no devices, serves no cluster and borrows of no peers: add some to its configuration")
	case c.Offload.Head && c.Head.Address == "":
		return errors.New("the node's peers are those of which the head tells (peers: head), and it has no head: give its address (head), or a list of nodes")
	case len(c.Offload.Peers) > MaxPeers:
		return fmt.Errorf("the node has %d peers: it asks at most %d", len(c.Offload.Peers), MaxPeers)
	case c.Offload.Above < 0 || c.Offload.Keep < 0:
		return errors.New("offload.above and offload.keep must not be negative")
	case len(c.Devices) > MaxDevices || c.Visible > MaxDevices:
		return fmt.Errorf("a node has at most %d devices", MaxDevices)
	case c.VGPUs < 1:
		return fmt.Errorf("%d virtual GPUs on a device: give 1 or more", c.VGPUs)
	case c.Visible < 0 || c.Warm < 0 || c.Limits.Clients < 1 || c.MaxIdle < 0 || c.Grace < 0 || c.WorkerTimeout < 0 || c.OrphanGrace < 0:
		return errors.New("visible, warm, max_idle, grace, orphan_grace and worker_timeout must not be negative, and at least one client must be allowed")
	case c.Spare < SparesAuto || c.Spare > maxSpares:
		return fmt.Errorf("%d workers that wait with a context on each device: give 0 to %d, or auto", c.Spare, maxSpares)
	case c.Handover && c.OrphanGrace == 0:
		return errors.New("a node that hands over to the next (handover) must let its programs live on for a while: give it an orphan_grace above 0")
	case c.WorkerTimeout > 0 && c.WorkerTimeout < MinWorkerTimeout:
		return fmt.Errorf("a worker_timeout of %v would kill workers that are only busy: give %v or more, or 0 for none", c.WorkerTimeout, MinWorkerTimeout)
	case c.Swap.Size == 0:
		return errors.New("the swap area has no size: give programs' memory a place when they are not on a device")
	case c.Socket.Address == "":
		return errors.New("the node has no socket")
	}
	if err := vgpu.CheckQuantum(c.Quantum); err != nil {
		return err
	}
	if l := c.Latency; !(l.Share >= 0 && l.Share <= maxLatencyShare) || l.Window < 0 || l.Window > time.Second {
		return fmt.Errorf("latency: a share of %g and a window of %v: give a share of 0 to %g, and a window of at most a second", l.Share, l.Window, maxLatencyShare)
	}
	if err := c.WorkerUIDs.check(); err != nil {
		return err
	}
	return c.Connections.check()
}

// leastSilence leaves heartbeats some time to arrive.
const leastSilence = 10 * time.Millisecond

func (c Connections) check() error {
	if min(c.Local, c.Unknown, c.Remote, c.User) < 1 || min(c.Greet, c.Idle, c.Silence) <= 0 {
		return errors.New("the numbers of connections and their times must be above 0")
	}
	if c.Silence < leastSilence {
		return fmt.Errorf("connections: a silence of %v: give at least %v", c.Silence, leastSilence)
	}
	if c.Silence > time.Hour || c.Resume < 0 || c.Resume > 24*time.Hour {
		return fmt.Errorf("connections: a silence of %v and %v to resume: give at most 1h and 24h", c.Silence, c.Resume)
	}
	return nil
}

// Allows says whether a user of the machine may use a node that this process runs.
func (c *Config) Allows(uid uint32, name string) bool {
	return c.MayUse(Account{UID: uid, Name: name}, uint32(os.Geteuid()))
}

// MayUse says whether a user of the machine may use the node of user own.
func (c *Config) MayUse(a Account, own uint32) bool {
	switch {
	case a.UID == 0 || a.UID == own:
		return true
	case c.Allow == nil:
		return own == 0
	}
	return slices.ContainsFunc(c.Allow, func(who string) bool {
		return who == AllowAny || who == a.Name || who == fmt.Sprint(a.UID)
	})
}

// Strangers returns the users under allow and under limits that this machine does not
// have. Numbers stand for themselves.
func (c *Config) Strangers(exists func(name string) bool) (allowed, limited []string) {
	unknown := func(name string) bool {
		_, err := strconv.ParseUint(name, 10, 32)
		return err != nil && name != AllowAny && !exists(name)
	}
	for _, name := range c.Allow {
		if unknown(name) {
			allowed = append(allowed, name)
		}
	}
	for name := range c.Limits.Users {
		if unknown(name) {
			limited = append(limited, name)
		}
	}
	slices.Sort(limited)
	return allowed, limited
}

// Reserve is how many clients root may have beyond the node's limit.
func (l *Limits) Reserve() int { return l.Clients / 16 }

// Of returns a user's limits.
func (l *Limits) Of(u Account) UserLimits {
	for _, key := range []string{u.Name, fmt.Sprint(u.UID)} {
		if limits, ok := l.Users[key]; ok {
			return limits
		}
	}
	return l.Default
}

// moveStep is the least that a program which makes way for another frees at a time: below that,
// workers do not pin memory for copies.
const moveStep = 16 << 20

// Dispatcher returns the dispatcher's part of the configuration. The dispatcher knows
// users by name only; nameOf gives the name that belongs to a number. A user with
// limits of his own has them instead of the default ones, even where they say nothing
// of virtual GPUs.
func (c *Config) Dispatcher(devices []vgpu.Device, nameOf func(uid uint32) string) vgpu.Config {
	limits := map[string]int{}
	for key, u := range c.Limits.Users {
		if uid, err := strconv.ParseUint(key, 10, 32); err == nil {
			name := nameOf(uint32(uid))
			if _, named := c.Limits.Users[name]; name == key || !named { // the name goes before the number
				limits[name] = u.VGPUs
			}
			continue
		}
		limits[key] = u.VGPUs
	}
	return vgpu.Config{Devices: devices, Policy: c.Policy, MaxIdle: c.MaxIdle, Quantum: c.Quantum, Migrate: c.Migrate, MoveStep: moveStep, SlotLimit: c.Limits.Default.VGPUs, SlotLimits: limits}
}

// The device addresses of a program's virtual devices: one range each, in a part of the
// address space that real drivers let one choose and that sanitisers do not use.
const (
	ArenaBase = 0x6400_0000_0000
	MaxArena  = 1 << 40
	MinArena  = 16 << 30
)

// Live is the configuration as it is now. Settings that can change at run time must be read here. Nobody may
// change what Load returns.
type Live struct{ atomic.Pointer[Config] }
