package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"muster/device"
	"muster/node/fate"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// stateVersion changes whenever the meaning of the files changes.
const stateVersion = 1

// The next daemon learns of a client from two files: one says who the client is, and is written
// when it is attached or gets another worker; the other says where it stands, and is written often.
// Of what a worker claims about its user, limits and leases, only what these files confirm counts.

// clientFile says who a client is.
type clientFile struct {
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

	Worker   workerFile        `json:"worker"`
	Files    map[string]fileID `json:"files"` // that the worker holds, by their names
	Attached []byte            `json:"attached"`
}

// clientState says where a client stands.
type clientState struct {
	Place     placeFile     `json:"place"`
	Pinned    vgpu.DeviceID `json:"pinned"`
	Committed uint64        `json:"committed"`
	WantedAt  time.Time     `json:"wanted_at"` // while it waits for a device

	Kernels     uint64        `json:"kernels"`
	Busy        time.Duration `json:"busy"`
	Told        usageFile     `json:"told"` // the part of these that its present worker reported
	Waits       time.Duration `json:"waits"`
	Preemptions int           `json:"preemptions"`
	Moves       vgpu.Moves    `json:"moves"`
	Rebuilds    uint64        `json:"rebuilds"`
	Counters    countersFile  `json:"counters"`
	Peak        uint64        `json:"peak"`
	Stats       control.Stats `json:"stats"`
}

// workerFile names a process.
type workerFile struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
	UID   uint32 `json:"uid"` // the number that it was lent; 0 if none was
}

// placeFile is what the dispatcher has given a client. It is written before the worker is told, so
// that no worker has a lease that the next daemon does not know.
type placeFile struct {
	Lease  int           `json:"lease"` // the number of its last lease
	Held   bool          `json:"held"`
	Device vgpu.DeviceID `json:"device"` // where it has its lease, or keeps memory; AnyDevice if nowhere
	Memory uint64        `json:"memory"` // of the lease, or kept
}

type usageFile struct {
	Kernels uint64        `json:"kernels"`
	Busy    time.Duration `json:"busy"`
}

func (u usageFile) usage() vgpu.Usage { return vgpu.Usage{Kernels: u.Kernels, GPUTime: u.Busy} }

func usageOf(u vgpu.Usage) usageFile { return usageFile{u.Kernels, u.GPUTime} }

type countersFile struct {
	Grants      uint64        `json:"grants"`
	Preemptions uint64        `json:"preemptions"`
	Swaps       uint64        `json:"swaps"`
	CopiedIn    uint64        `json:"copied_in"`
	CopiedOut   uint64        `json:"copied_out"`
	SwapIn      uint64        `json:"swap_in"`
	SwapOut     uint64        `json:"swap_out"`
	Waited      time.Duration `json:"waited"`
	Denials     uint64        `json:"denials"`
	Failures    uint64        `json:"failures"`
	Clients     uint64        `json:"clients"`
	Turns       uint64        `json:"turns,omitempty"`
	Moving      time.Duration `json:"moving,omitempty"`
	Held        time.Duration `json:"held,omitempty"`
	Links       links         `json:"links,omitempty"`
}

func (c *counters) file() countersFile {
	return countersFile{c.grants, c.preemptions, c.swaps, c.copiedIn, c.copiedOut, c.swapIn, c.swapOut, c.waited, c.denials, c.failures, c.clients, c.turns, c.moving, c.held, c.links}
}

func (f *countersFile) counters() counters {
	return counters{
		grants: f.Grants, preemptions: f.Preemptions, swaps: f.Swaps, copiedIn: f.CopiedIn, copiedOut: f.CopiedOut, swapIn: f.SwapIn, swapOut: f.SwapOut,
		waited: f.Waited, denials: f.Denials, failures: f.Failures, clients: f.Clients,
		turns: f.Turns, moving: f.Moving, held: f.Held, links: f.Links,
	}
}

// nodeStateFile is what the next daemon must know of the node: by which numbers the
// workers know its devices, and what was counted.
type nodeStateFile struct {
	Version int           `json:"version"`
	Boot    string        `json:"boot"`
	Last    vgpu.ClientID `json:"last"` // the number of the last client
	Devices []deviceFile  `json:"devices"`
	Grants  []granted     `json:"grants,omitempty"`

	Precedence fileID `json:"precedence,omitzero"` // the memory in which workers claim devices

	Past      countersFile           `json:"past"`
	Usage     usageFile              `json:"usage"` // of clients that have gone
	Moves     vgpu.Moves             `json:"moves"`
	Waits     status.Waits           `json:"waits"`
	Preempted map[vgpu.Reason]uint64 `json:"preempted"`
	Refused   uint64                 `json:"refused"`
	Ended     endedClients           `json:"ended"`
}

// endedClients are for people alone, under the names that muster ps has for them. Names that an
// earlier daemon had are skipped: they must not be why programs end at an upgrade.
type endedClients []status.Client

// UnmarshalJSON takes what it knows.
func (e *endedClients) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*[]status.Client)(e))
}

// deviceFile is a device, by its number.
type deviceFile struct {
	Config  control.DeviceConfig `json:"config"`
	Reserve uint64               `json:"reserve"`
	Here    bool                 `json:"here"`
	Is      vgpu.Device          `json:"is"`
	Usage   usageFile            `json:"usage"`
}

// fileID identifies a file or a connection for as long as some process has it open.
type fileID struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"number"`
}

func identify(f *os.File) (fileID, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return fileID{}, err
	}
	var stat syscall.Stat_t
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Fstat(int(fd), &stat) }); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(stat.Dev), stat.Ino}, failed
}

// identifyAll notes which files a worker holds.
func identifyAll(held []control.Held) (map[string]fileID, error) {
	ids := map[string]fileID{}
	for _, h := range held {
		id, err := identify(h.File)
		if err != nil {
			return nil, fmt.Errorf("the descriptor of the %s: %w", h.Name, err)
		}
		ids[h.Name] = id
	}
	return ids, nil
}

// check refuses a file that no daemon of this version wrote, or that is from an earlier run of the
// machine.
func (f *clientFile) check(name string) error {
	switch {
	case f.Version != stateVersion:
		return fmt.Errorf("its version is %d, and %d is understood", f.Version, stateVersion)
	case name != clientName(f.Client) || f.Client == 0:
		return fmt.Errorf("it is of client %d", f.Client)
	case f.Worker.Pid <= 1 || f.User == "" || f.Ordinal < 0 || f.Share < 0:
		return errWrongValues
	case f.Boot != bootID():
		return errors.New("the machine was started again since")
	}
	return nil
}

var errWrongValues = errors.New("it has values that no daemon writes")

func (s *clientState) check() error {
	if s.Place.Lease < 0 || s.Busy < 0 || s.Told.Busy < 0 || s.Told.Busy > s.Busy || s.Told.Kernels > s.Kernels {
		return errWrongValues
	}
	return nil
}

func clientName(id vgpu.ClientID) string { return fmt.Sprintf("%s%d.json", clientPrefix, id) }

func standingName(id vgpu.ClientID) string { return fmt.Sprintf("%s%d", standingPrefix, id) }

// --- writing -------------------------------------------------------------------

// saveEvery is how often statistics are written. What a worker is granted is written
// at once.
const saveEvery = time.Second

// mostSaved is how many clients' statistics are written at a time, so that the loop is not kept
// from other work.
const mostSaved = 32

// bookkeeping is what of the state has not been written yet. Only the loop uses it.
type bookkeeping struct {
	dirty   bool          // some statistics have changed
	due     time.Duration // when they are written
	trouble error         // why the last file could not be written
}

// touch notes that statistics have changed.
func (d *daemon) touch() {
	if b := &d.books; d.folder != nil && !b.dirty {
		b.dirty, b.due = true, d.now()+saveEvery
	}
}

// saveDue writes statistics if it is time.
func (d *daemon) saveDue() {
	b := &d.books
	if d.folder == nil || !b.dirty || d.now() < b.due {
		return
	}
	b.dirty = false
	d.saveNode()
	count := 0
	for _, c := range d.clients {
		if !c.unsaved || !c.isKept() {
			continue
		}
		if count++; count > mostSaved {
			b.dirty, b.due = true, d.now()+saveEvery/100
			return
		}
		d.save(c)
	}
}

// isKept says whether a client has a file.
func (c *client) isKept() bool { return c.worker != nil && c.held != nil && !c.ending }

// writeDown writes down who a client is, that a worker has it, and where it stands.
func (d *daemon) writeDown(c *client, w *workerProcess) (err error) {
	if d.folder == nil || c.held == nil || c.ending {
		return nil
	}
	if c.standing == nil {
		c.standing, err = d.folder.openSlots(standingName(c.id))
	}
	if err == nil {
		d.save(c)
		f := d.fileOf(c, w)
		err = d.folder.write(clientName(c.id), &f)
	}
	d.wrote("a client's state", err)
	return err
}

// save writes down where a client stands.
func (d *daemon) save(c *client) {
	if c.standing == nil {
		return
	}
	c.unsaved = false
	s := d.stateOf(c)
	c.place = s.Place
	d.wrote("a client's state", c.standing.write(&s))
}

// forgetFile removes the files of a client that has ended.
func (d *daemon) forgetFile(c *client) {
	if c.standing != nil {
		c.standing.close()
		c.standing = nil
		d.wrote("a client's state", errors.Join(d.folder.drop(clientName(c.id)), d.folder.drop(standingName(c.id))))
		d.touch()
	}
}

// saveNode writes what is known of the node.
func (d *daemon) saveNode() {
	if d.folder != nil {
		f := d.nodeFile()
		d.wrote("the node's state", d.folder.write(nodeStateName, &f))
	}
}

// wrote notes whether a file could be written. If not, the node goes on and reports it: without its
// files it cannot be restarted under its programs.
func (d *daemon) wrote(what string, err error) {
	if b := &d.books; (err == nil) != (b.trouble == nil) {
		if err != nil {
			d.log.Error(what+" cannot be written: programs may not survive the daemon", "error", err)
		} else {
			d.log.Info("the state of clients can be written again")
		}
		b.trouble = err
	}
}

// placeOf is what the dispatcher has given a client.
func placeOf(v vgpu.ClientView) placeFile {
	return placeFile{Lease: v.Grants, Held: v.State == vgpu.Assigned, Device: v.Device, Memory: v.Memory}
}

// saveChanged writes down the clients whose leases an event has changed, before their workers are
// told.
func (d *daemon) saveChanged(e vgpu.Event, effects []vgpu.Effect) {
	if d.folder == nil {
		return
	}
	look := func(id vgpu.ClientID) {
		c := d.clients[id]
		if v, ok := d.core.Client(id); ok && c != nil && placeOf(v) != c.place {
			d.save(c)
		}
	}
	switch e := e.(type) {
	case vgpu.Released:
		look(e.Client)
	case vgpu.Faulted:
		look(e.Client)
	case vgpu.Freed: // before the client that gets this memory
		look(e.Client)
	case vgpu.Tick:
	default:
		d.touch()
	}
	for _, effect := range effects {
		if effect.Kind == vgpu.Grant || effect.Kind == vgpu.Gone {
			look(effect.Client)
		}
	}
}

func (d *daemon) fileOf(c *client, w *workerProcess) clientFile {
	return clientFile{
		Version: stateVersion, Boot: bootID(), Client: c.id,
		UID: c.peer.user.uid, User: c.peer.user.name, Pid: c.peer.pid, Address: c.peer.address, Program: c.program, Grant: c.under.id(), Share: c.under.share, Ordinal: c.ordinal, Guest: c.guest.file(),
		Weight: c.weight, Latency: c.latency, Mapping: c.mapping, Fate: d.fates.State(fate.Client(c.id)), Portion: c.share, Memory: c.memory, MemoryBy: c.memoryBy, Shown: c.shown, ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Since: d.start.Add(c.since), Ring: c.ring, Data: c.data,
		Worker: workerFile{w.pid(), w.start, w.uid}, Files: c.held, Attached: c.attached,
	}
}

func (d *daemon) stateOf(c *client) clientState {
	v, _ := d.core.Client(c.id)
	s := clientState{
		Place: placeOf(v), Pinned: c.pinned, Committed: c.committed,
		Kernels: v.Kernels, Busy: v.GPUTime, Told: usageOf(c.told), Waits: v.Waits, Preemptions: v.Preemptions, Moves: v.Moves,
		Rebuilds: c.rebuilds, Counters: c.counters.file(), Peak: c.peak, Stats: c.memoryNow,
	}
	if c.wanting {
		s.WantedAt = d.start.Add(c.wantedAt)
	}
	return s.withoutLinks()
}

// withoutLinks leaves out the bytes that went between places: there may be more of these than a
// slot can hold, and the worker reports all of them to the next daemon.
func (s clientState) withoutLinks() clientState {
	s.Counters.Links, s.Stats.Links = nil, nil
	return s
}

func (d *daemon) nodeFile() nodeStateFile {
	view := d.core.View()
	f := nodeStateFile{
		Version: stateVersion, Boot: bootID(), Last: d.lastID, Past: d.past.file(), Usage: usageOf(plus(d.before.past, view.Past)), Moves: plusMoves(d.before.moves, view.PastMoves),
		Waits: d.waits, Preempted: d.preempted, Refused: d.refused, Ended: d.gone,
	}
	if d.precedence != nil {
		f.Precedence, _ = identify(d.precedence) // without it the next daemon makes another
	}
	for i, e := range d.stock.Load().entries {
		is := deviceFile{Config: e.DeviceConfig, Reserve: e.Reserve, Here: e.here, Is: dispatched(e.info, d.live().VGPUs), Usage: usageOf(d.before.of(i))}
		if i < len(view.Devices) { // else the device is new, and the dispatcher is told of it next
			is.Usage = usageOf(plus(d.before.of(i), view.Devices[i].Usage))
		}
		f.Devices = append(f.Devices, is)
	}
	for _, id := range slices.Sorted(maps.Keys(d.grants)) {
		f.Grants = append(f.Grants, *d.grants[id])
	}
	return f
}

// before is what earlier daemons of the node counted of past clients and of devices. What the
// present clients have used is in the dispatcher.
type before struct {
	past    vgpu.Usage
	moves   vgpu.Moves
	devices []vgpu.Usage // by number
}

func (b *before) of(number int) vgpu.Usage {
	if number < len(b.devices) {
		return b.devices[number]
	}
	return vgpu.Usage{}
}

// plus adds two usages, and stays at the largest number that is kept.
func plus(a, b vgpu.Usage) vgpu.Usage {
	return vgpu.Usage{Kernels: sum(a.Kernels, b.Kernels), GPUTime: time.Duration(sum(uint64(a.GPUTime), uint64(b.GPUTime)))}
}

func plusMoves(a, b vgpu.Moves) vgpu.Moves {
	return vgpu.Moves{Auto: a.Auto + b.Auto, ByHand: a.ByHand + b.ByHand, Drain: a.Drain + b.Drain}
}

func (f *clientFile) arena() device.Arena { return device.Arena{Base: f.ArenaBase, Size: f.ArenaSize} }
