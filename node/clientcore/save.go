package clientcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"muster/internal/strictjson"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// A client is saved in one form: the states of its parts, with the directory of its memory. What differs is whom
// it is for. Save writes all of it. SavePoint leaves out the messages that wait, since the client that goes on
// answers them. A base (Fold) is the client as if it had left its devices; what of it may be large is written
// apart.

// State is what is written of a client: the states of its parts.
type State struct {
	stepState
	verdictState
	queueState
	standingState
	streamState
	Hosts Hosts
	memoryState
	Shared []Shared // memory shared with other clients
	roomState
	Modules  Modules
	Textures Textures
	Further  []Further `json:",omitempty"` // devices lent besides that of the lease, or asked for
	Activity Activity
	Release  *Release          // the lease is being returned
	Together bool              `json:",omitempty"` // launches are no longer mapped
	Graphs   map[uint32]*Graph `json:",omitempty"`
}

// saver is a part with state.
type saver interface {
	save(to *State)
	load(from *State)
	check() error // what of it is inconsistent
}

type savers []saver

// state gathers the states of the parts.
func (all savers) state() (s State) {
	for _, k := range all {
		k.save(&s)
	}
	return s
}

// load gives the parts their states.
func (all savers) load(s *State) {
	for _, k := range all {
		k.load(s)
	}
}

func (all savers) check() error {
	for _, k := range all {
		if err := k.check(); err != nil {
			return err
		}
	}
	return nil
}

// savedVersion must change with every change of what Save writes.
const savedVersion = 10

// saved is a client as it is written. Everything in it is a plain value.
type saved struct {
	Version int
	Config  Config
	State   State
	Space   []byte // of vmm
	Stats   control.Stats
}

// ErrSaved is wrapped by the errors of Restore.
var ErrSaved = errors.New("not a saved client")

// Save writes the whole client, for an executor to continue with: the same one, with its open
// contexts, or another one if none is open (Detached). It must not be called while the core waits
// for an outcome. Equal clients give equal bytes.
func (c *Core) Save() ([]byte, error) {
	if c.asking {
		return nil, errors.New("a client cannot be saved while an outcome is awaited")
	}
	return c.savers.state().write(c.config.Config)
}

// write writes a client with this state.
func (s State) write(config Config) ([]byte, error) {
	space, err := s.space.MarshalBinary()
	if err != nil {
		return nil, err
	}
	s.queueState = s.queueState.saved()
	return json.Marshal(saved{savedVersion, config, s, space, s.stats})
}

// SavePoint writes the client as of the last message that was done, without those that wait: the
// running client goes on and answers them. The client must have left its device.
func (c *Core) SavePoint() ([]byte, error) {
	if !c.Detached() || c.asking {
		return nil, errors.New("a client cannot be saved while it is on a device")
	}
	s := c.savers.state()
	if h := c.queue.Head; h != nil && h.Made { // part of it was done, and must be undone in a copy
		data, err := c.Save()
		if err != nil {
			return nil, err
		}
		copied, err := Restore(data, func(wire.Header) ([]byte, error) { return nil, nil })
		if err != nil {
			return nil, err
		}
		copied.modules.undo(copied.queue.Head)
		s = copied.savers.state()
	}
	s.queueState, s.Hosts = queueState{}, Hosts{}
	s.rest()
	return s.write(c.config.Config)
}

// rest forgets what the daemon has granted and was asked: the next daemon may be another one.
func (s *State) rest() {
	s.Lease, s.Further, s.Release, s.roomState = Lease{}, nil, nil, roomState{}
	s.Activity = Activity{Estimate: s.Activity.Estimate}
}

// elsewhere returns why a client with this state could not go on in another executor.
func (s State) elsewhere() error {
	if len(s.Contexts) > 0 || len(s.Hosts.Running) > 0 {
		return errors.New("it is on a device")
	}
	if len(s.Shared) > 0 {
		return errSharesMemory
	}
	return nil
}

// begin makes it the state of an empty world. What the daemon has granted stays, and the room on the host.
func (s *State) begin(space *vmm.Space) {
	s.space, s.Heap, s.Mapped, s.Limits = space, 0, nil, nil
	s.Modules, s.Streams, s.Events = newModules(space.Config().Chunk), Streams{ByID: map[uint32]*Stream{legacyID: {}}, All: []uint32{legacyID}}, map[uint32]*Event{}
	s.Contexts, s.Textures, s.Graphs, s.Together = nil, nil, nil, false
	s.verdictState = verdictState{World: s.World}
}

// Pinned finds the program's memory that a message names.
type Pinned func(wire.Header) ([]byte, error)

// Restore makes a client of what Save wrote. It refuses what is inconsistent, so that damaged or
// hostile bytes cannot make an executor do what no client could. Find is asked for the program's
// memory that waiting messages name.
func Restore(data []byte, find Pinned) (*Core, error) {
	return refusing(restore(data, find, func(*State) error { return nil }))
}

// RestoreBase makes a client of a base. It checks as strictly as Restore.
func RestoreBase(b Base, find Pinned) (*Core, error) {
	c, err := restore(b.Client, find, b.putBack)
	if err == nil {
		err = c.savers.state().elsewhere()
	}
	return refusing(c, err)
}

// refusing is the client, or why it was refused.
func refusing(c *Core, err error) (*Core, error) {
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSaved, err)
	}
	return c, nil
}

// restore makes a client of its saved form, after complete has completed its state.
func restore(data []byte, find Pinned, complete func(s *State) error) (*Core, error) {
	var s saved
	if err := strictjson.Decode(data, &s); err != nil {
		return nil, err
	}
	if s.Version != savedVersion {
		return nil, fmt.Errorf("it has version %d, and version %d is understood: use the Muster that wrote it", s.Version, savedVersion)
	}
	if err := complete(&s.State); err != nil {
		return nil, err
	}
	c, err := New(s.Config)
	if err != nil {
		return nil, err
	}
	s.State.space, s.State.stats = &vmm.Space{}, s.Stats
	if err := s.State.space.UnmarshalBinary(s.Space); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(s.State.space.Config(), c.memory.space.Config()) {
		return nil, errors.New("its memory is another client's")
	}
	c.savers.load(&s.State)
	if err := c.queue.pin(find); err != nil {
		return nil, err
	}
	return c, c.savers.check()
}

// Rehomed makes a client of what Save or SavePoint wrote of a detached client, for an executor with
// other devices. It refuses what does not fit.
func Rehomed(data []byte, find Pinned, to Config) (*Core, error) {
	c, err := Restore(data, find)
	if err != nil {
		return nil, err
	}
	s := c.savers.state()
	if err := s.elsewhere(); err != nil {
		return refusing(nil, err)
	}
	fresh, err := New(to)
	if err != nil {
		return nil, err
	}
	if c.config.Arena.Addr != to.Arena.Addr {
		return nil, fmt.Errorf("its memory lies at %#x, and that of this client at %#x: restore it into a client of the same virtual device", c.config.Arena.Addr, to.Arena.Addr)
	}
	if was := c.memory.heap(); c.memory.Heap > 0 && was != heapIn(to.Arena, c.memory.Heap) {
		return nil, fmt.Errorf("its kernels have allocated memory themselves, at %#x, where this client cannot have a heap: restore it into a client with as much device memory", was.Addr)
	}
	if s.space, err = c.memory.space.Rehomed(fresh.memory.space.Config()); err != nil {
		return nil, fmt.Errorf("its memory does not fit into that of this client (%s in all): %w", sizeOf(to.Limit), err)
	}
	if !sameDevices(c.config.Devices, to.Devices) {
		s.Modules.Home, s.Modules.Pinned = 0, -1 // to be found out again
	}
	s.rest()
	fresh.savers.load(&s)
	return refusing(fresh, fresh.savers.check())
}

func sameDevices(a, b []Device) bool {
	for i := range a {
		if i >= len(b) || a[i].Name != b[i].Name || a[i].Place != b[i].Place {
			return false
		}
	}
	return len(a) == len(b)
}

// Base is a client without its devices. With the host copies of the moment it is made, and the
// messages that come after it, the client can be rebuilt.
type Base struct {
	Client []byte   // as Save writes it, without the blobs
	Blobs  [][]byte // images, contents of variables, and graphs
}

// CanFold says whether the client is between two messages and no host function is running: then a
// base can hold all of its state. A client whose kernels access the program's memory, or memory
// shared with other clients, cannot have a base: nobody could undo what they wrote there.
func (c *Core) CanFold() bool {
	return len(c.memory.Mapped) == 0 && len(c.shared.Shared) == 0 && !c.asking && c.ended == nil && c.queue.Head == nil && c.queue.Parked == nil && c.departure.Release == nil && !c.standing.Lease.Wanted && !c.queue.Queued() && c.hosts.Outstanding() == 0
}

// Fold makes a base of the client. What is only on a device is copied to the host first; then
// Commit hands over the base. Fold does nothing if the client cannot be folded now.
func (c *Core) Fold(now Time) ([]Op, error) {
	c.start(now)
	if !c.CanFold() {
		return nil, nil
	}
	x := c.standing.anyContext()
	if x == nil {
		_, err := c.base(nil, Outcome{})
		return c.ops, err
	}
	plan := c.memory.space.Backup()
	c.memory.count(plan)
	o := Op{Kind: Backup, Place: x.Place, Plan: plan, Modules: c.modules.live()}
	o.Events, o.At = c.streams.pendingEvents(nil)
	c.departure.leaving = &o
	c.ask(o)
	return c.ops, nil
}

// backedUp notes that the host has a copy of everything.
func (c *Core) backedUp(o Outcome) {
	was := c.departure.leaving
	c.departure.leaving = nil
	if o.Err != nil {
		c.ended = fmt.Errorf("copying memory to the host failed: %w", o.Err)
		return
	}
	_, c.ended = c.base(was.Events, o)
}

// base hands over the client as if it had left its devices. The times of events and the contents of variables are
// those in the outcome.
func (c *Core) base(events []uint32, o Outcome) (*Base, error) {
	s := c.savers.state()
	if err := s.leave(events, o); err != nil {
		return nil, err
	}
	b := &Base{}
	s.blobs(func(blob []byte) []byte {
		b.Blobs = append(b.Blobs, blob)
		return nil
	})
	var err error
	if b.Client, err = s.write(c.config.Config); err == nil {
		c.emit(Op{Kind: Commit, Base: b})
	}
	return b, err
}

// leave makes it the state of the client as if it had left its devices. What it shares with the client stays as
// it is.
func (s *State) leave(events []uint32, o Outcome) error {
	was := *s
	s.Lease.end()
	s.Contexts, s.Further = nil, nil
	s.Asked = Commits{}
	s.Activity = Activity{Estimate: s.Activity.Estimate, Spent: s.Activity.Spent}
	s.Streams = s.Streams.copied()
	s.Streams.forget()
	s.Events = make(map[uint32]*Event, len(was.Events))
	for id, e := range was.Events {
		s.Events[id] = &Event{Recorded: e.Recorded, At: e.At}
	}
	for i, id := range events {
		if e := s.Events[id]; e != nil && i < len(o.Times) {
			e.At = o.Times[i]
		}
	}
	s.Modules = s.Modules.copied()
	s.Modules.forget()
	s.Modules.keep(o.Saved)
	s.Graphs = maps.Clone(s.Graphs)
	for id, g := range s.Graphs {
		s.Graphs[id] = &Graph{Steps: g.Steps, More: g.More, Launches: g.Launches}
	}
	if len(was.Contexts) == 0 {
		return nil
	}
	data, err := s.space.MarshalBinary()
	if err != nil {
		return err
	}
	s.space = &vmm.Space{}
	if err := s.space.UnmarshalBinary(data); err != nil {
		return err
	}
	for _, x := range was.Contexts {
		s.space.Lost(x.Place)
	}
	return nil
}

func (t *Streams) copied() Streams {
	all := Streams{ByID: make(map[uint32]*Stream, len(t.ByID)), All: t.All, Strayed: t.Strayed}
	for id, st := range t.ByID {
		other := *st
		all.ByID[id] = &other
	}
	return all
}

// copied returns a copy whose modules, but not their images, can be changed.
func (m *Modules) copied() Modules {
	all := *m
	all.All = make(map[uint64]*Module, len(m.All))
	for serial, mod := range m.All {
		other := *mod
		other.Saved = slices.Clone(mod.Saved)
		all.All[serial] = &other
	}
	all.Images = maps.Clone(m.Images)
	return all
}

// blobs lets f replace everything that may be large, always in the same order. What is nil is damaged, which check
// reports.
func (s *State) blobs(f func([]byte) []byte) {
	for _, serial := range slices.Sorted(maps.Keys(s.Modules.All)) {
		if mod := s.Modules.All[serial]; mod != nil {
			mod.Image = f(mod.Image)
			for i := range mod.Saved {
				mod.Saved[i] = f(mod.Saved[i])
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Modules.Images)) {
		s.Modules.Images[id] = f(s.Modules.Images[id])
	}
	for _, id := range slices.Sorted(maps.Keys(s.Graphs)) {
		if g := s.Graphs[id]; g != nil {
			g.Steps = f(g.Steps)
		}
	}
}

// putBack gives a state its blobs.
func (b *Base) putBack(s *State) error {
	missing, blobs := 0, b.Blobs
	s.blobs(func([]byte) []byte {
		if len(blobs) == 0 {
			missing++
			return nil
		}
		blob := blobs[0]
		blobs = blobs[1:]
		return slices.Clone(blob)
	})
	if missing > 0 || len(blobs) > 0 {
		return fmt.Errorf("%d blobs are missing and %d too many", missing, len(blobs))
	}
	return nil
}
