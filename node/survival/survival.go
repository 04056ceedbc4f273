package survival

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"muster/device"
	"muster/model"
	"muster/node/fate"
	"muster/node/grants"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/statefolder"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/status"
)

// The files of the state folder.
const (
	nodeStateName  = "node.json"
	clientPrefix   = "client-"
	standingPrefix = "standing-" // where a client stands (statefolder.Slots)
)

// StateVersion changes whenever the meaning of the files changes.
const StateVersion = 1

// ClientFile says who a client is.
// It has a field for each thing that the next daemon must know.
type ClientFile struct {
	Version int           `json:"version"`
	Boot    string        `json:"boot"` // of the machine, see bootID
	Client  vgpu.ClientID `json:"client"`

	UID       uint32      `json:"uid"`
	User      string      `json:"user"`
	Pid       int32       `json:"pid"`
	Address   string      `json:"address,omitempty"` // of a program on another machine
	Program   string      `json:"program"`
	Grant     string      `json:"grant,omitempty"`
	Share     int         `json:"share,omitempty"` // which of the grant's devices it uses
	Ordinal   int         `json:"ordinal"`
	Guest     *int        `json:"guest,omitempty"` // the number of the device that another node has here
	Weight    int         `json:"weight,omitempty"`
	Latency   bool        `json:"latency,omitempty"` // its class
	Mapping   string      `json:"mapping,omitempty"` // its mapper
	Fate      fate.State  `json:"fate,omitempty"`    // what it shares under MPS
	Portion   int         `json:"portion,omitempty"` // of multiprocessors, in percent
	Memory    uint64      `json:"memory"`
	MemoryBy  string      `json:"memory_by"`
	Shown     map[int]int `json:"shown"`
	ArenaBase uint64      `json:"arena_base"`
	ArenaSize uint64      `json:"arena_size"`
	Since     time.Time   `json:"since"`
	Ring      string      `json:"ring"` // the names of the files that it shares with its program
	Data      string      `json:"data"`

	Worker   WorkerFile             `json:"worker"`
	Files    map[string]proc.FileID `json:"files"` // that the worker holds, by their names
	Attached []byte                 `json:"attached"`
}

// ClientState says where a client stands.
type ClientState struct {
	Place     PlaceFile     `json:"place"`
	Pinned    vgpu.DeviceID `json:"pinned"`
	Committed uint64        `json:"committed"`
	WantedAt  time.Time     `json:"wanted_at"` // while it waits for a device

	Kernels     uint64          `json:"kernels"`
	Busy        time.Duration   `json:"busy"`
	Told        tally.UsageFile `json:"told"` // the part of these that its present worker reported
	Waits       time.Duration   `json:"waits"`
	Preemptions int             `json:"preemptions"`
	Moves       vgpu.Moves      `json:"moves"`
	Rebuilds    uint64          `json:"rebuilds"`
	Counters    tally.Counters  `json:"counters"`
	Peak        uint64          `json:"peak"`
	Stats       control.Stats   `json:"stats"`
}

// WorkerFile names a process.
type WorkerFile struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
	UID   uint32 `json:"uid"` // the number that it was lent; 0 if none was
}

// PlaceFile is what the dispatcher has given a client. It is written before the worker is told, so
// that no worker has a lease that the next daemon does not know.
type PlaceFile struct {
	Lease  int           `json:"lease"` // the number of its last lease
	Held   bool          `json:"held"`
	Device vgpu.DeviceID `json:"device"` // where it has its lease, or keeps memory; AnyDevice if nowhere
	Memory uint64        `json:"memory"` // of the lease, or kept
}

// NodeStateFile is what the next daemon must know of the node: by which numbers the
// workers know its devices, and what was counted.
type NodeStateFile struct {
	Version int              `json:"version"`
	Boot    string           `json:"boot"`
	Last    vgpu.ClientID    `json:"last"` // the number of the last client
	Devices []DeviceFile     `json:"devices"`
	Grants  []grants.Granted `json:"grants,omitempty"`

	Precedence proc.FileID `json:"precedence,omitzero"` // the memory in which workers claim devices

	Past      tally.Counters         `json:"past"`
	Usage     tally.UsageFile        `json:"usage"` // of clients that have gone
	Moves     vgpu.Moves             `json:"moves"`
	Waits     status.Waits           `json:"waits"`
	Preempted map[vgpu.Reason]uint64 `json:"preempted"`
	Refused   uint64                 `json:"refused"`
	// Granted is what clients that have gone did under the grants that there are.
	Granted map[string]model.Measured `json:"granted,omitempty"`
	Ended   endedClients              `json:"ended"`
}

// endedClients are for people alone, under the names that muster ps has for them. Names that an
// earlier daemon had are skipped: they must not be why programs end at an upgrade.
type endedClients []status.Client

// UnmarshalJSON takes what it knows.
func (e *endedClients) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*[]status.Client)(e))
}

// DeviceFile is a device, by its number.
type DeviceFile struct {
	Config  control.DeviceConfig `json:"config"`
	Reserve uint64               `json:"reserve"`
	Here    bool                 `json:"here"`
	Is      vgpu.Device          `json:"is"`
	Usage   tally.UsageFile      `json:"usage"`
}

// check refuses a file that no daemon of this version wrote, or that is from an earlier run of the
// machine.
func (f *ClientFile) check(name string) error {
	switch {
	case f.Version != StateVersion:
		return fmt.Errorf("its version is %d, and %d is understood", f.Version, StateVersion)
	case name != clientName(f.Client) || f.Client == 0:
		return fmt.Errorf("it is of client %d", f.Client)
	case f.Worker.Pid <= 1 || f.User == "" || f.Ordinal < 0 || f.Share < 0:
		return errWrongValues
	case f.Boot != proc.Boot():
		return errors.New("the machine was started again since")
	}
	return nil
}

var errWrongValues = errors.New("it has values that no daemon writes")

func (s *ClientState) check() error {
	if s.Place.Lease < 0 || s.Busy < 0 || s.Told.Busy < 0 || s.Told.Busy > s.Busy || s.Told.Kernels > s.Kernels {
		return errWrongValues
	}
	return nil
}

func clientName(id vgpu.ClientID) string { return fmt.Sprintf("%s%d.json", clientPrefix, id) }

func standingName(id vgpu.ClientID) string { return fmt.Sprintf("%s%d", standingPrefix, id) }

// saveEvery is how often statistics are written. What a worker is granted is written
// at once.
const saveEvery = time.Second

// MostSaved is how many clients' statistics are written at a time, so that the loop is not kept
// from other work.
const MostSaved = 32

// PlaceOf is what the dispatcher has given a client.
func PlaceOf(v vgpu.ClientView) PlaceFile {
	return PlaceFile{Lease: v.Grants, Held: v.State == vgpu.Assigned, Device: v.Device, Memory: v.Memory}
}

// WithoutLinks leaves out the bytes that went between places: there may be more of these than a
// slot can hold, and the worker reports all of them to the next daemon.
func (s ClientState) WithoutLinks() ClientState {
	s.Counters.Links, s.Stats.Links = nil, nil
	return s
}

func (f *ClientFile) Arena() device.Arena { return device.Arena{Base: f.ArenaBase, Size: f.ArenaSize} }

// Left is what an earlier daemon left.
type Left struct {
	Node  NodeStateFile
	Heirs []Heir // the clients whose workers live, by their numbers

	Retired []vgpu.DeviceID // devices that heirs are on and the configuration no longer has
	Lost    []vgpu.DeviceID // devices that the configuration has and that cannot be opened
}

// IsAny says whether there is anything that refers to devices by number, so that they
// must keep their numbers.
func (l *Left) IsAny() bool { return len(l.Heirs) > 0 || len(l.Node.Grants) > 0 }

// Heir is a client of an earlier daemon.
type Heir struct {
	ClientFile
	ClientState
	Standing *statefolder.Slots
	Process  *workers.Process
}

func (k *Keeper) readNode(into *NodeStateFile) error {
	err := k.Read(nodeStateName, into)
	switch {
	case err != nil:
		return err
	case into.Version != StateVersion:
		return fmt.Errorf("its version is %d, and %d is understood", into.Version, StateVersion)
	case into.Boot != proc.Boot(): // the machine was restarted: nothing of that daemon is left
		*into = NodeStateFile{}
		return fs.ErrNotExist
	case len(into.Devices) > settings.MaxDevices:
		return fmt.Errorf("it has %d devices", len(into.Devices))
	}
	return nil
}

// readClients finds the clients whose workers live. Of the others only their counters
// are kept.
func (k *Keeper) readClients(left *Left) {
	standings := map[string]bool{}
	for _, name := range k.Names(clientPrefix) {
		h, err := k.readClient(name)
		if err != nil {
			k.log.Warn("the state of a client is of no use", "file", name, "error", err)
			_ = k.Drop(name) // else it is looked at again at the next start
			continue
		}
		left.Node.Last = max(left.Node.Last, h.Client)
		h.Process = workers.Find(h.Worker.Pid, h.Worker.Start, h.Worker.UID, k.log)
		if h.Process == nil {
			left.Node.bury(&h.ClientState)
			h.Standing.Close()
			_ = k.Drop(name)
			continue
		}
		left.Heirs = append(left.Heirs, h)
		standings[standingName(h.Client)] = true
	}
	for _, name := range k.Names(standingPrefix) {
		if !standings[name] {
			_ = k.Drop(name)
		}
	}
	slices.SortFunc(left.Heirs, func(a, b Heir) int { return int(int64(a.Client) - int64(b.Client)) })
}

// readClient reads who a client is, and where it stands.
func (k *Keeper) readClient(name string) (h Heir, err error) {
	if err := k.Read(name, &h.ClientFile); err != nil {
		return h, err
	}
	if err := h.ClientFile.check(name); err != nil {
		return h, err
	}
	if h.Standing, err = k.Slots(standingName(h.Client)); err != nil {
		return h, err
	}
	err = h.Standing.Read(&h.ClientState)
	if err == nil {
		err = h.ClientState.check()
	}
	if err != nil {
		h.Standing.Close()
		return h, fmt.Errorf("where it stands: %w", err)
	}
	return h, nil
}

// bury adds up the counters of a client that ended while there was no daemon.
func (n *NodeStateFile) bury(f *ClientState) {
	past := n.Past
	past.Add(f.Counters)
	past.Clients++
	n.Past = past
	n.Usage = tally.UsageOf(tally.Plus(n.Usage.Usage(), vgpu.Usage{Kernels: f.Kernels, GPUTime: f.Busy}))
	n.Moves = tally.PlusMoves(n.Moves, f.Moves)
}

// Used are the numbers of devices that heirs are on.
func (l *Left) Used() map[int]bool {
	numbers := map[int]bool{}
	for i := range l.Heirs {
		numbers[int(l.Heirs[i].Place.Device)] = true
	}
	return numbers
}

// Granted are the numbers of devices that grants of an earlier daemon name. Another device must not get
// one of them: the jobs would be given a device that nobody granted them.
func (l *Left) Granted() map[int]bool {
	numbers := map[int]bool{}
	for _, g := range l.Node.Grants {
		for _, share := range g.Devices {
			numbers[share.Device] = true
		}
	}
	return numbers
}

// Keeper keeps the state folder. Only the loop uses it once it runs. A nil one keeps nothing: clients end with
// the daemon.
type Keeper struct {
	*statefolder.Folder
	log     *slog.Logger
	dirty   bool          // some statistics have changed
	due     time.Duration // when they are written
	trouble error         // why the last file could not be written
}

// Open opens the state folder.
func Open(dir, socket string, log *slog.Logger) (*Keeper, error) {
	folder, err := statefolder.Open(dir, socket)
	if err != nil {
		return nil, err
	}
	return &Keeper{Folder: folder, log: log}, nil
}

// Inherit reads what an earlier daemon left, and removes what is of no use any more.
func (k *Keeper) Inherit() (left Left, err error) {
	if err := k.Clear(statefolder.PartPrefix); err != nil {
		return left, err
	}
	switch err := k.readNode(&left.Node); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		k.log.Error("the state of an earlier daemon is of no use: its programs end", "error", err)
		left.Node = NodeStateFile{}
	default:
		k.readClients(&left)
	}
	if len(left.Heirs) == 0 {
		err = errors.Join(k.Clear(clientPrefix), k.Clear(standingPrefix), k.Clear(statefolder.LockPrefix))
	}
	return left, err
}

// DeviceLock opens the lock of a device. Without a folder no worker outlives its daemon, so a new lock will do.
func (k *Keeper) DeviceLock(number int) (*os.File, error) {
	if k == nil {
		return wire.CreateLock()
	}
	return k.Folder.DeviceLock(number)
}

// Touch notes that statistics have changed.
func (k *Keeper) Touch(now time.Duration) {
	if k != nil && !k.dirty {
		k.dirty, k.due = true, now+saveEvery
	}
}

// Next is when statistics are written, if some have changed.
func (k *Keeper) Next() (at time.Duration, ok bool) {
	if k == nil {
		return 0, false
	}
	return k.due, k.dirty
}

// TakeDue says whether statistics are to be written now.
func (k *Keeper) TakeDue(now time.Duration) bool {
	if k == nil || !k.dirty || now < k.due {
		return false
	}
	k.dirty = false
	return true
}

// Again has the rest of the statistics written soon.
func (k *Keeper) Again(now time.Duration) { k.dirty, k.due = true, now+saveEvery/100 }

// WriteNode writes what is known of the node.
func (k *Keeper) WriteNode(f *NodeStateFile) {
	_ = k.Wrote("the node's state", k.Write(nodeStateName, f))
}

// Standing opens the slots that say where a client stands.
func (k *Keeper) Standing(id vgpu.ClientID) (*statefolder.Slots, error) {
	return k.Slots(standingName(id))
}

// WriteClient writes who a client is.
func (k *Keeper) WriteClient(f *ClientFile) error { return k.Write(clientName(f.Client), f) }

// WriteStanding writes where a client stands.
func (k *Keeper) WriteStanding(to *statefolder.Slots, s *ClientState) {
	_ = k.Wrote("a client's state", to.Write(s))
}

// Forget removes the files of a client that has ended.
func (k *Keeper) Forget(id vgpu.ClientID) {
	_ = k.Wrote("a client's state", errors.Join(k.Drop(clientName(id)), k.Drop(standingName(id))))
}

// Wrote notes whether a file could be written, and returns its error. If not, the node goes on and reports
// it: without its files it cannot be restarted under its programs.
func (k *Keeper) Wrote(what string, err error) error {
	if (err == nil) != (k.trouble == nil) {
		if err != nil {
			k.log.Error(what+" cannot be written: programs may not survive the daemon", "error", err)
		} else {
			k.log.Info("the state of clients can be written again")
		}
		k.trouble = err
	}
	return err
}

// Unwritten is why the last file could not be written; nil if it could.
func (k *Keeper) Unwritten() error {
	if k == nil {
		return nil
	}
	return k.trouble
}
