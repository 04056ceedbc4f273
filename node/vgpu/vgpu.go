package vgpu

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Time is the time since the daemon's start. It is handed in with every event;
// a time before the last one counts as the last one.
type Time = time.Duration

// ClientID names a client: one program's virtual device.
type ClientID uint64

// DeviceID is a device's number: its place in Config.Devices.
type DeviceID int

// AnyDevice, as Want's Pinned, says that the client may go to any device.
const AnyDevice DeviceID = -1

// Policy orders the ready queue.
type Policy uint8

const (
	FCFS   Policy = iota // first come, first served
	SJF                  // the shortest GPU phase first
	Credit               // users below their fair share first
)

var policyNames = [...]string{"fcfs", "sjf", "credit"}

func (p Policy) String() string { return nameOf(policyNames[:], int(p)) }

// MarshalText writes the policy's name.
func (p Policy) MarshalText() ([]byte, error) {
	if int(p) >= len(policyNames) {
		return nil, fmt.Errorf("there is no policy with %v", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (p *Policy) UnmarshalText(name []byte) (err error) {
	*p, err = ParsePolicy(string(name))
	return err
}

// ParsePolicy reads the name that String gives.
func ParsePolicy(name string) (Policy, error) {
	for i, n := range policyNames {
		if n == name {
			return Policy(i), nil
		}
	}
	return 0, fmt.Errorf("unknown policy %q: use fcfs, sjf or credit", name)
}

// Device is one GPU.
type Device struct {
	Name        string  `json:"name"`
	Slots       int     `json:"slots"`               // virtual GPUs; 0 stands for DefaultSlots
	Speed       float64 `json:"speed"`               // relative to other devices; 0 stands for 1
	Memory      uint64  `json:"memory"`              // bytes that all clients there may take together
	ContextCost uint64  `json:"context_cost"`        // bytes that each client bound there takes beside what it asks for
	Elsewhere   bool    `json:"elsewhere,omitempty"` // it is another node's
	Granted     bool    `json:"granted,omitempty"`   // it is there for the clients of the grants that name it, and for no others
}

// Defaults for zero fields of Config and Device.
const (
	DefaultSlots        = 4
	DefaultMinResidence = 5 * time.Millisecond
	DefaultGrowWait     = 10 * time.Millisecond
	DefaultPeriod       = 50 * time.Millisecond
	DefaultMaxPasses    = 64
	DefaultMaxWait      = 10 * time.Second

	DefaultMoveBandwidth = 2 << 30                // bytes per second, between a device and the host
	DefaultMoveCost      = 100 * time.Millisecond // a context on a real GPU takes about as long to open
)

// DefaultQuantum is a node's quantum if its configuration names none. A zero Quantum does
// not stand for it, but means that there are no turns. MinQuantum and MaxQuantum bound it.
const (
	DefaultQuantum = 2 * time.Second
	MinQuantum     = time.Millisecond
	MaxQuantum     = time.Hour
)

// DefaultMaxIdle is the paper's maximum idle time. A zero MaxIdle does not stand for it,
// but means that idleness alone costs no client its slot.
const DefaultMaxIdle = 10 * time.Millisecond

// Bounds on a configuration, which may come from a damaged file: the core looks at every
// slot after every event.
const (
	maxDevices = 256
	maxSlots   = 1024                                         // of one device
	maxPeriod  = time.Duration(math.MaxInt64) / creditPeriods // credit is kept within creditPeriods of these
)

// Config says what there is and how to share it. Fields left zero, but for
// MaxIdle, take the defaults above.
type Config struct {
	Devices []Device `json:"devices"`
	Policy  Policy   `json:"policy"`

	// Quantum is how long a client may stay on its device, on average, while others wait
	// that could not be served otherwise; 0: no client has to leave for that.
	Quantum time.Duration `json:"quantum_ns,omitempty"`

	MaxIdle      time.Duration `json:"max_idle_ns"`      // a client that has been idle for this long may lose its slot; 0: never for idleness
	MinResidence time.Duration `json:"min_residence_ns"` // for this long after its grant a client loses nothing for memory or credit
	GrowWait     time.Duration `json:"grow_wait_ns"`     // the longest that a growing client waits for victims
	Period       time.Duration `json:"period_ns"`        // between two refills of credit

	MaxPasses int           `json:"max_passes"`  // how many later clients may be served before a ready one goes to the front
	MaxWait   time.Duration `json:"max_wait_ns"` // how long a client may wait before it goes to the front

	SlotLimit  int            `json:"slot_limit"`            // slots that one user's clients may have at a time; 0: no limit
	SlotLimits map[string]int `json:"slot_limits,omitempty"` // the same for single users, instead of SlotLimit

	// Migrate lets the dispatcher move a client to an idle device where it runs
	// faster. The other two say what that costs; they are not used without it.
	Migrate       bool          `json:"migrate,omitempty"`
	MoveBandwidth uint64        `json:"move_bandwidth,omitempty"` // bytes per second at which memory is copied out, and then in
	MoveCost      time.Duration `json:"move_cost_ns,omitempty"`   // what a move costs besides, as for a new context

	// MoveStep is the least number of bytes that a client which makes way for another frees at a
	// time, so that the other can begin to come; 0: all at once. See Moves that overlap.
	MoveStep uint64 `json:"move_step,omitempty"`
}

// DeviceState says what a device can be used for.
type DeviceState uint8

const (
	DeviceUp       DeviceState = iota // takes clients
	DeviceDraining                    // takes no clients; some are still there
	DeviceDrained                     // takes no clients, and none is there
	DeviceLost                        // is gone, and may come back
	DeviceRemoved                     // was taken out; no client waits for it
)

var deviceStateNames = [...]string{"up", "draining", "drained", "lost", "removed"}

func (s DeviceState) String() string { return nameOf(deviceStateNames[:], int(s)) }

// Moves counts how often a client that had memory on a device was granted
// another one, by why it left the first.
type Moves struct {
	Auto   int `json:"auto"`    // the dispatcher moved it to an idle device where it runs faster
	ByHand int `json:"by_hand"` // Move
	Drain  int `json:"drain"`   // Drain
}

// State is the queue that a client is in.
type State uint8

const (
	Unqueued State = iota // attached, never wanted a GPU (or was denied one)
	Ready                 // wants a GPU and waits
	Assigned              // bound to a virtual GPU
	Waiting               // unbound, has not asked again
	Failed                // reported a fault or lost its device; wants again when recovered
)

var stateNames = [...]string{"unqueued", "ready", "assigned", "waiting", "failed"}

func (s State) String() string { return nameOf(stateNames[:], int(s)) }

// Kind says what an effect asks the daemon to do.
type Kind uint8

const (
	// Grant binds Client to Slot of Device with Memory bytes; for a client
	// that is bound already it is the answer to Grow, or part of what it was said to get (Coming).
	Grant Kind = iota
	// Revoke takes everything back but Keep bytes: the worker lets its kernels end,
	// copies out, unmaps, and the daemon answers with Released (or Detach, Faulted).
	// A client that is unbound but keeps bytes on Device is told to let go of
	// them, and is answered for in the same way.
	Revoke
	// Watch asks the worker to report Idle and Busy promptly (On), beginning
	// with its present state at once, or tells it that it need not.
	Watch
	// Deny answers a Want or Grow that is not going to be granted.
	Deny
	// Gone says that Device was lost under Client, which is in the failed
	// queue now if it was bound there. A client that only kept bytes there stays
	// in its queue. No answer is expected, not even to an earlier Revoke.
	Gone
)

var kindNames = [...]string{"grant", "revoke", "watch", "deny", "gone"}

func (k Kind) String() string { return nameOf(kindNames[:], int(k)) }

// Reason says why a client gets a Revoke or Deny.
type Reason string

// Reasons of Revoke.
const (
	ForIdle   Reason = "idle"   // idle for MaxIdle, and another client needs the slot
	ForSync   Reason = "sync"   // it announced a synchronisation point, and another client needs the slot
	ForMemory Reason = "memory" // idle at this moment, and another client needs its memory
	ForCredit Reason = "credit" // its user is beyond the fair share, and one below it waits
	ForMove   Reason = "move"   // it is to be granted another device than that where it is, or keeps bytes
	ForDrain  Reason = "drain"  // its device is drained
	ForGrant  Reason = "grant"  // its device, or the memory that it has there, was granted to others
	ForLimit  Reason = "limit"  // its grant uses more devices than it may, or is suspended; or its device has fewer slots than clients

	ForQuantum Reason = "quantum"        // its turn is over, and another client waits
	ForRoom    Reason = "quantum-memory" // the same, and its context would be in the way
)

// Reasons of Deny.
const (
	TooLarge   Reason = "too large"        // more than any device it may use has
	NoDevice   Reason = "no device"        // no device that it may use is there
	NoRoom     Reason = "no room"          // for Grow: release everything and want again
	Bound      Reason = "bound already"    // for Want by a client with a slot
	Unknown    Reason = "unknown client"   // no client is attached under this number
	Duplicated Reason = "attached already" // a client is attached under this number
	NoGrant    Reason = "no such grant"    // there is no grant, or no share of it, that it was attached under
)

// Effect is one thing for the daemon to do. Fields that its kind does not
// name are zero.
type Effect struct {
	Kind   Kind
	Client ClientID
	Device DeviceID // Grant, Revoke, Gone
	Slot   int      // Grant
	Memory uint64   // Grant: all that the client may map from now on
	Lease  int      // Grant: how often the client has been bound so far, counted from 1
	Coming uint64   // Grant: all that it will be granted, without asking, when others have left; 0: Memory is all
	On     bool     // Watch
	Reason Reason   // Revoke, Deny
	Keep   uint64   // Revoke: how many bytes of the client's memory may stay on the device, with its context
	Step   uint64   // Revoke: the worker says each time that this many bytes are free (Freed); 0: it need not
}

func (e Effect) String() string {
	switch e.Kind {
	case Grant:
		text := fmt.Sprintf("grant client %d device %d slot %d memory %d", e.Client, e.Device, e.Slot, e.Memory)
		if e.Coming > 0 {
			text += fmt.Sprintf(" of %d", e.Coming)
		}
		return text
	case Revoke:
		text := fmt.Sprintf("revoke client %d device %d", e.Client, e.Device)
		if e.Keep > 0 {
			text += fmt.Sprintf(", all but %d", e.Keep)
		}
		if e.Step > 0 {
			text += fmt.Sprintf(", in steps of %d", e.Step)
		}
		return fmt.Sprintf("%s: %s", text, e.Reason)
	case Watch:
		if e.On {
			return fmt.Sprintf("watch client %d on", e.Client)
		}
		return fmt.Sprintf("watch client %d off", e.Client)
	case Deny:
		return fmt.Sprintf("deny client %d: %s", e.Client, e.Reason)
	}
	return fmt.Sprintf("%s client %d device %d", e.Kind, e.Client, e.Device)
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprint("number ", i)
}

// complete checks a configuration and puts in the defaults.
func (c Config) complete() (Config, error) {
	for _, d := range []*time.Duration{&c.MaxIdle, &c.MinResidence, &c.GrowWait, &c.Period, &c.MaxWait, &c.MoveCost, &c.Quantum} {
		if *d < 0 {
			return c, errors.New("a time in the configuration is negative")
		}
	}
	if c.Policy > Credit {
		return c, fmt.Errorf("there is no policy with %v", c.Policy)
	}
	if c.MaxPasses < 0 || c.SlotLimit < 0 {
		return c, errors.New("MaxPasses and SlotLimit must not be negative")
	}
	if err := CheckQuantum(c.Quantum); err != nil {
		return c, fmt.Errorf("%w", err)
	}
	if c.Period > maxPeriod {
		return c, fmt.Errorf("a period of %v: give at most %v", c.Period, maxPeriod)
	}
	for user, n := range c.SlotLimits {
		if n < 0 {
			return c, fmt.Errorf("user %q may have %d slots: give 0 for no limit, or more", user, n)
		}
	}
	c.MinResidence = orDefault(c.MinResidence, DefaultMinResidence)
	c.GrowWait = orDefault(c.GrowWait, DefaultGrowWait)
	c.Period = orDefault(c.Period, DefaultPeriod)
	c.MaxWait = orDefault(c.MaxWait, DefaultMaxWait)
	c.MaxPasses = orDefault(c.MaxPasses, DefaultMaxPasses)
	c = c.withMoves()
	c.Devices = slices.Clone(c.Devices)
	c.SlotLimits = maps.Clone(c.SlotLimits)
	for i, d := range c.Devices {
		d, err := d.complete()
		if err != nil {
			return c, err
		}
		c.Devices[i] = d
	}
	return c, nil
}

// CheckQuantum refuses a quantum that would make programs move all the time, or overflow.
func CheckQuantum(q time.Duration) error {
	if q != 0 && (q < MinQuantum || q > MaxQuantum) {
		return fmt.Errorf("a quantum of %v: give %v to %v, or 0 for none", q, MinQuantum, MaxQuantum)
	}
	return nil
}

// Check says what is wrong with a device, if anything is.
func (d Device) Check() error {
	_, err := d.complete()
	return err
}

func (d Device) complete() (Device, error) {
	d.Slots = orDefault(d.Slots, DefaultSlots)
	d.Speed = orDefault(d.Speed, 1)
	if d.Slots < 1 || !(d.Speed > 0) || math.IsInf(d.Speed, 0) {
		return d, fmt.Errorf("device %q: slots and speed must be positive", d.Name)
	}
	if d.Slots > maxSlots {
		return d, fmt.Errorf("device %q: %d slots: give at most %d", d.Name, d.Slots, maxSlots)
	}
	if d.Memory > 1<<60 || d.ContextCost >= d.Memory {
		return d, fmt.Errorf("device %q: %d bytes of memory leave nothing for clients whose contexts cost %d", d.Name, d.Memory, d.ContextCost)
	}
	return d, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
