package clientcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"muster/internal/strictjson"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// savedVersion must change with every change of what Save writes.
const savedVersion = 9

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
		return nil, fmt.Errorf("a client cannot be saved while %v is performed", c.asked)
	}
	space, err := c.space.MarshalBinary()
	if err != nil {
		return nil, err
	}
	state := c.State
	state.Backlog.Messages = slices.Clone(state.Backlog.Messages)
	for i := range state.Backlog.Messages {
		state.Backlog.Messages[i] = state.Backlog.Messages[i].unpinned()
	}
	state.Head, state.Parked = c.Head.saved(), c.Parked.saved()
	return json.Marshal(saved{savedVersion, c.config, state, space, c.stats})
}

// saved is the message as it is written. A replacement in progress is dropped: whoever wanted it
// asks again.
func (h *Head) saved() *Head {
	if h == nil || h.replacement != nil {
		return nil
	}
	return &Head{Message: h.Message.unpinned(), Made: h.Made, Finished: h.Finished, Step: h.Step}
}

// unpinned is the message without the program's memory, whose contents count when the message is
// handled.
func (m Message) unpinned() Message {
	if m.Pinned {
		m.Data = nil
	}
	return m
}

// Pinned finds the program's memory that a message names.
type Pinned func(wire.Header) ([]byte, error)

// pin gives waiting messages the program's memory that they name.
func (c *Core) pin(find Pinned) error {
	waiting := make([]*Message, 0, len(c.Backlog.Messages)+2)
	for i := range c.Backlog.Messages {
		waiting = append(waiting, &c.Backlog.Messages[i])
	}
	for _, h := range []*Head{c.Head, c.Parked} {
		if h != nil {
			waiting = append(waiting, &h.Message)
		}
	}
	for _, m := range waiting {
		if !m.Pinned {
			continue
		}
		var err error
		if m.Data, err = find(m.Header); err != nil {
			return err
		}
	}
	return nil
}

// Detached says whether the client has nothing on any device: then what Save writes, with the host
// copies, is all of it.
func (c *Core) Detached() bool { return len(c.Contexts) == 0 }

// Restore makes a client of what Save wrote. It refuses what is inconsistent, so that damaged or
// hostile bytes cannot make an executor do what no client could. Find is asked for the program's
// memory that waiting messages name.
func Restore(data []byte, find Pinned) (*Core, error) {
	var s saved
	if err := s.decode(data); err != nil {
		return nil, err
	}
	return s.restore(find)
}

// decode decodes a saved client.
func (s *saved) decode(data []byte) error {
	if err := strictjson.Decode(data, s); err != nil {
		return fmt.Errorf("%w: %w", ErrSaved, err)
	}
	if s.Version != savedVersion {
		return fmt.Errorf("%w: it has version %d, and version %d is understood", ErrSaved, s.Version, savedVersion)
	}
	return nil
}

// restore makes a client of it.
func (s *saved) restore(find Pinned) (*Core, error) {
	c, err := New(s.Config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSaved, err)
	}
	var space vmm.Space
	if err := space.UnmarshalBinary(s.Space); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSaved, err)
	}
	if !reflect.DeepEqual(space.Config(), c.space.Config()) {
		return nil, fmt.Errorf("%w: its memory is another client's", ErrSaved)
	}
	c.State, c.space, c.stats = s.State, &space, s.Stats
	c.linkPeers()
	err = c.pin(find)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSaved, err)
	}
	return c, nil
}

// check returns what is inconsistent in a client.
func (c *Core) check() error {
	for _, check := range []func() error{c.checkLease, c.checkHeap, c.checkModules, c.checkTextures, c.checkStreams, c.checkQueues, c.checkSharing, c.checkGraphs} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Alone returns why a client cannot be saved that shares memory: it would not exist where the
// client goes on.
func (c *Core) Alone() error {
	if len(c.Shared) > 0 {
		return errSharesMemory
	}
	return nil
}

// checkSharing checks the memory that the client shares with others.
func (c *Core) checkSharing() error {
	all := c.Shared
	c.Shared = nil
	defer func() { c.Shared = all }()
	for i, s := range all {
		c.Shared = all[:i]
		r, err := c.checkShared(s.Addr, s.Size)
		if err != nil {
			return err
		}
		in, err := c.allocationsIn(r)
		if err != nil {
			return err
		}
		outside := func(a vmm.Range) bool {
			return a.Size == 0 || a.Addr < s.Addr || a.Size > s.Size || a.Addr-s.Addr > s.Size-a.Size
		}
		if len(in) > 0 || s.Imported == (len(s.Live) > 0) || slices.ContainsFunc(s.Live, outside) {
			return fmt.Errorf("shared memory at %#x has what it cannot have", s.Addr)
		}
	}
	return nil
}

var errSharesMemory = errors.New("it shares memory with other programs, which nobody but they can keep: have it free or close that memory first")

func (c *Core) checkLease() error {
	known := map[vmm.Place]bool{}
	for _, d := range c.config.Devices {
		known[d.Place] = true
	}
	if c.Lease.Held && (c.Lease.Device < 0 || c.Lease.Device >= len(c.config.Devices)) {
		return fmt.Errorf("a lease of device %d of %d", c.Lease.Device, len(c.config.Devices))
	}
	for i, x := range c.Contexts {
		if x == nil || !known[x.Place] || i > 0 && !c.mayBeFurther(x) || x.Number == 0 || x.Number > c.Made {
			return fmt.Errorf("context %d of %d is none that the client can have", i, len(c.Contexts))
		}
	}
	for i, f := range c.Further {
		if f.Device < 0 || f.Device >= len(c.config.Devices) || slices.ContainsFunc(c.Further[:i], func(o Further) bool { return o.Device == f.Device }) {
			return fmt.Errorf("a loan of device %d of %d, or two of them", f.Device, len(c.config.Devices))
		}
	}
	if len(c.Contexts) == 0 {
		for p := range known {
			if c.space.Mapped(p) > 0 {
				return fmt.Errorf("memory on %v, where there is no context", p)
			}
		}
	}
	return nil
}

// mayBeFurther says whether a context that is not the first is on a device that was lent.
func (c *Core) mayBeFurther(x *Context) bool {
	f := c.further(x.Place.Index())
	return f != nil && f.Number > 0 && x.Has != nil && c.context(x.Place) == x
}

func (c *Core) checkModules() error {
	m := &c.Modules
	if m.All == nil || m.ByID == nil || m.Images == nil || m.Functions == nil || m.Refused == nil {
		return errors.New("a table of modules is missing")
	}
	if m.Pinned < -1 || m.Pinned >= len(c.config.Devices) || m.Home < 0 || m.Home >= max(len(c.config.Devices), 1) {
		return fmt.Errorf("modules pinned to device %d, first on %d", m.Pinned, m.Home)
	}
	kept, contents := 0, 0
	for serial, mod := range m.All {
		if mod == nil || serial == 0 || serial > m.Last || mod.Loaded && len(c.Contexts) == 0 {
			return fmt.Errorf("module %d is none that the client can have", serial)
		}
		if mod.Saved != nil && len(mod.Saved) != len(mod.Info.Globals) {
			return fmt.Errorf("module %d has %d variables and %d contents", serial, len(mod.Info.Globals), len(mod.Saved))
		}
		for i, contents := range mod.Saved {
			if g := mod.Info.Globals[i]; uint64(len(contents)) != g.Size {
				return fmt.Errorf("variable %q of module %d has %d bytes of contents, and %d bytes", g.Name, serial, len(contents), g.Size)
			}
		}
		kept += len(mod.Image)
		contents += size(mod.Saved)
	}
	for _, image := range m.Images {
		kept += len(image)
	}
	for _, why := range m.Refused {
		if why == nil {
			return errors.New("an image was refused for no reason")
		}
	}
	if len(m.Refusals) > maxRefusals || slices.ContainsFunc(m.Refusals, func(r Refusal) bool { return len(r.Log) > maxLog }) {
		return fmt.Errorf("%d logs of loads that failed: there are at most %d, of %d bytes", len(m.Refusals), maxRefusals, maxLog)
	}
	if kept != m.Kept || contents != m.Contents {
		return fmt.Errorf("%d bytes of images and %d of contents, where %d and %d are counted", kept, contents, m.Kept, m.Contents)
	}
	has := func(serials ...uint64) error {
		for _, serial := range serials {
			if m.All[serial] == nil {
				return fmt.Errorf("module %d is not there", serial)
			}
		}
		return nil
	}
	err := has(m.Unplaced...)
	for _, serial := range m.ByID {
		err = errors.Join(err, has(serial))
	}
	for _, f := range m.Functions {
		err = errors.Join(err, has(f.Module))
	}
	loaded := map[uint64]bool{}
	for _, e := range m.Journal {
		if loaded[e.Module] != e.Unload {
			err = errors.Join(err, fmt.Errorf("the journal loads or unloads module %d twice", e.Module))
		}
		loaded[e.Module] = !e.Unload
		err = errors.Join(err, has(e.Module))
	}
	if err == nil {
		variables := m.Variables
		if m.count(c.config.Chunk); m.Variables != variables {
			err = fmt.Errorf("variables of %d bytes, where %d are counted", m.Variables, variables)
		}
	}
	return err
}

func (c *Core) checkStreams() error {
	t := &c.Streams
	if len(t.All) != len(t.ByID) || len(t.All) == 0 || t.All[0] != legacyID {
		return fmt.Errorf("%d streams of which %d are listed", len(t.ByID), len(t.All))
	}
	seen := map[uint32]bool{}
	for _, id := range t.All {
		if st := t.ByID[id]; st == nil || seen[id] || st.Live && len(c.Contexts) == 0 {
			return fmt.Errorf("stream %d is none that the client can have", id)
		}
		seen[id] = true
	}
	if c.Events == nil {
		return errors.New("the table of events is missing")
	}
	for id, e := range c.Events {
		if e == nil || (e.Live || e.Pending) && len(c.Contexts) == 0 {
			return fmt.Errorf("event %d is none that the client can have", id)
		}
	}
	return nil
}

func (c *Core) checkQueues() error {
	bytes := 0
	for _, m := range c.Backlog.Messages {
		bytes += m.size()
	}
	if bytes != c.Backlog.Bytes || len(c.Backlog.Messages) > maxBacklog {
		return fmt.Errorf("%d messages of %d bytes wait, where %d are counted", len(c.Backlog.Messages), bytes, c.Backlog.Bytes)
	}
	if len(c.Told) > maxTold {
		return fmt.Errorf("%d reasons were told, where %d are remembered", len(c.Told), maxTold)
	}
	for i, slot := range c.Hosts.Slots {
		if slot < 0 || slot >= wire.Slots {
			return fmt.Errorf("the program waits in slot %d", slot)
		}
		if slices.Contains(c.Hosts.Slots[:i], slot) {
			return fmt.Errorf("the program waits twice in slot %d", slot)
		}
	}
	if len(c.Hosts.Running) > 0 && len(c.Contexts) == 0 {
		return errors.New("functions are under way where there is no context")
	}
	return nil
}
