// Package stock has the devices of the node, and what is known of them: it examines, adds, drains and removes
// them, and probes those that may be lost. It knows the dispatcher, and nothing of clients: what those have to
// do with a device it asks of Programs.
//
// A device that is drained takes no new clients, and the dispatcher tells those that are on it
// to leave. A device that is to be removed is drained first. When it is empty, all workers are
// told not to count on it; once no client waits for it either, it is removed. Its number is
// kept, for the same device or another one. Workers hear of a new device before the dispatcher
// does, so that none is granted a device that it does not know.
package stock

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync/atomic"

	"muster/device"
	"muster/node/dispatch"
	"muster/node/inventory"
	"muster/node/loop"
	"muster/node/offload"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/control"
)

// Programs are those that run on the node. Only the loop calls these.
type Programs interface {
	// Changed tells all workers how a device is now, once the next daemon can know it; why is the reason if
	// it has gone.
	Changed(number int, e *inventory.Device, why string)
	// Fits refuses a device that cannot do what the programs that run now were told.
	Fits(*inventory.Device) error
	// Refused says that another node, which lends a lost device for a grant, knows the grant no more.
	Refused(id vgpu.DeviceID, why string)
	// DependOn lists the clients that can run on no other device than this one, which takes none.
	DependOn(vgpu.DeviceID) []vgpu.ClientID
}

// Options say how devices are reached.
type Options struct {
	Open    Open
	Probe   func(control.DeviceConfig, *os.File) (control.Probed, error) // has a worker try a device
	Lock    func(number int) (*os.File, error)                           // makes the one of a device
	Slots   func() int                                                   // of a device that comes now
	Closing func() bool                                                  // the node looks for lost devices no more
	Log     *slog.Logger
}

// Open opens a device.
type Open = func(control.DeviceConfig) (device.Device, error)

// Stock is the node's devices. Only the loop uses it, except for Load, Open and Fresh.
type Stock struct {
	Options
	is         atomic.Pointer[inventory.Inventory]
	loop       *loop.Loop
	dispatcher *dispatch.Dispatcher
	programs   Programs
	leaving    map[vgpu.DeviceID]*leaving
	coming     []Coming
	tending    bool
	probing    map[int]chan struct{} // closed when the outcome is known
}

// leaving is a device that is to be removed when no client needs it any more.
type leaving struct {
	force bool // remove it even if a client waits that can use no other
	said  bool // the log has already said which clients it waits for
}

// Coming is a device that is to be added once another one at the same place has gone.
type Coming struct {
	settings.Device
	Info device.Info
}

// New makes the node's stock, which is known to the dispatcher.
func New(is *inventory.Inventory, loop *loop.Loop, dispatcher *dispatch.Dispatcher, programs Programs, o Options) *Stock {
	s := &Stock{Options: o, loop: loop, dispatcher: dispatcher, programs: programs, leaving: map[vgpu.DeviceID]*leaving{}, probing: map[int]chan struct{}{}}
	s.is.Store(is)
	return s
}

// Load returns the present devices. Any goroutine may call it.
func (s *Stock) Load() *inventory.Inventory { return s.is.Load() }

// MakeLocks makes a lock for each device.
func (s *Stock) MakeLocks() error {
	entries := s.Load().Entries
	for i := range entries {
		lock, err := s.Lock(i)
		if err != nil {
			s.CloseLocks()
			return err
		}
		entries[i].Lock = lock
	}
	return nil
}

// CloseLocks closes those that there are.
func (s *Stock) CloseLocks() {
	for _, e := range s.Load().Entries {
		if e.Lock != nil {
			e.Lock.Close()
		}
	}
}

// set replaces an entry, and tells all workers; why is the reason if the device has gone.
func (s *Stock) set(id vgpu.DeviceID, e inventory.Device, why string) {
	e.Change++
	s.is.Store(s.Load().With(int(id), e))
	s.programs.Changed(int(id), &e, why)
}

// about are a device's fields in the log.
func (s *Stock) about(id vgpu.DeviceID, more ...any) []any {
	return append([]any{"device", int(id), "name", s.Load().NameOf(id)}, more...)
}

// --- drain, resume, remove -----------------------------------------------------

// Drain has a device take no more clients.
func (s *Stock) Drain(id vgpu.DeviceID) error {
	if err := s.dispatcher.Tell(vgpu.Drain{Device: id}); err != nil {
		return err
	}
	s.Log.Info("a device is drained", s.about(id)...)
	return nil
}

// Resume has a device that was drained, or was to be removed, take clients again.
func (s *Stock) Resume(id vgpu.DeviceID) error {
	e := s.Load().Entries[id]
	if err := errors.Join(s.dispatcher.Refuses(vgpu.Resume{Device: id}), s.programs.Fits(&e)); err != nil {
		return err
	}
	delete(s.leaving, id)
	if !e.Here { // workers were told that it is gone
		e.Here = true
		s.set(id, e, "")
	}
	s.dispatcher.Step(vgpu.Resume{Device: id})
	s.Log.Info("a device takes programs again", s.about(id)...)
	return nil
}

// Remove has a device removed when it is empty and no client waits for it.
func (s *Stock) Remove(id vgpu.DeviceID, force bool) error {
	switch state := s.dispatcher.State(id); {
	case state == vgpu.DeviceRemoved:
		return fmt.Errorf("%s has been removed already", s.Load().Call(id))
	case state == vgpu.DeviceUp:
		if err := s.dispatcher.Tell(vgpu.Drain{Device: id}); err != nil {
			return err
		}
	}
	l := s.leaving[id]
	if l == nil {
		l = &leaving{}
		s.leaving[id] = l
		s.Log.Info("a device is drained, to be removed", s.about(id)...)
	}
	l.force = l.force || force
	s.Tend()
	return nil
}

// IsLeaving says whether a device is to be removed.
func (s *Stock) IsLeaving(id vgpu.DeviceID) bool { return s.leaving[id] != nil }

// Tend continues what is under way: it removes devices that no client needs any more,
// and adds those for which they made room. It steps the dispatcher, and every step ends by
// calling it: tending stops the recursion.
func (s *Stock) Tend() {
	if s.tending || len(s.leaving) == 0 && len(s.coming) == 0 {
		return
	}
	s.tending = true
	defer func() { s.tending = false }()
	for _, id := range slices.Sorted(maps.Keys(s.leaving)) {
		s.tendLeaving(id, s.leaving[id])
	}
	waiting := s.coming
	s.coming = nil
	for _, c := range waiting {
		if s.Load().SamePlace(c.Device, s.dispatcher.State) >= 0 {
			s.coming = append(s.coming, c)
			continue
		}
		if _, err := s.Add(c.Device, c.Info, AnyNumber, false); err != nil {
			s.Log.Error("a device of the configuration cannot be added", "name", c.Info.Name, "error", err)
		}
	}
}

// TakenOut is the reason that workers are told for a device that was removed.
const TakenOut = "the device was taken out of the node"

func (s *Stock) tendLeaving(id vgpu.DeviceID, l *leaving) {
	state := s.dispatcher.State(id)
	if state != vgpu.DeviceDrained && state != vgpu.DeviceLost {
		return
	}
	if e := s.Load().Entries[id]; e.Here { // clients that counted on its memory ask again, for less
		e.Here = false
		s.set(id, e, TakenOut)
	}
	if who := s.programs.DependOn(id); len(who) > 0 && !l.force {
		if !l.said {
			l.said = true
			s.Log.Warn("a device is not removed yet: programs wait for it that can use no other; add one that they can use, or remove it with --force", s.about(id, "clients", who)...)
		}
		return
	}
	delete(s.leaving, id)
	if err := s.dispatcher.Tell(vgpu.Remove{Device: id}); err != nil {
		s.Log.Error("a device cannot be removed", "device", int(id), "error", err)
		return
	}
	s.Log.Info("a device was removed", s.about(id)...)
}

// --- add -----------------------------------------------------------------------

// AnyNumber lets a device that comes have whatever number is free.
const AnyNumber vgpu.DeviceID = -1

// Examine opens a device and says what programs can have of it. That may take a while: it is not for the
// loop.
func (s *Stock) Examine(c settings.Device) (device.Info, error) { return inventory.Examine(c, s.Open) }

// ExamineTogether opens devices that the node does not have yet, side by side.
func (s *Stock) ExamineTogether(list []settings.Device) []inventory.Examined {
	return inventory.ExamineTogether(list, s.Open)
}

// Add adds a device to the node, under a free number. The caller has examined it, and info
// is what it says of itself.
func (s *Stock) Add(c settings.Device, info device.Info, at vgpu.DeviceID, byHand bool) (vgpu.DeviceID, error) {
	return s.add(inventory.Device{Device: c, Info: info, Here: true, ByHand: byHand}, s.Slots(), at)
}

// Borrow adds a device with as many slots as its ticket has.
func (s *Stock) Borrow(c settings.Device, info device.Info, t offload.Ticket) (vgpu.DeviceID, error) {
	return s.add(inventory.Device{Device: c, Info: info, Here: true, ByHand: true}, t.Slots, AnyNumber)
}

// add tells workers first and then the dispatcher.
func (s *Stock) add(e inventory.Device, slots int, at vgpu.DeviceID) (vgpu.DeviceID, error) {
	stock, info := s.Load(), e.Info
	if same := stock.SamePlace(e.Device, s.dispatcher.State); same >= 0 {
		return 0, fmt.Errorf("it is there already: %s", stock.Call(same))
	}
	if other := s.namesake(e.Device); other >= 0 {
		return 0, fmt.Errorf("%s has that name already: give this one a name of its own, or leave the name out", stock.Call(other))
	}
	if err := s.programs.Fits(&e); err != nil {
		return 0, err
	}
	number, err := stock.NumberFor(info.Name, e.Lender.Granted, int(at), s.dispatcher.State)
	if err != nil {
		return 0, err
	}
	id, is := vgpu.DeviceID(number), e.Dispatched(slots)
	var event vgpu.Event = vgpu.Added{Device: is}
	if number < len(stock.Entries) {
		event = vgpu.Returned{Device: id, Is: is}
		e.Lock, e.Change = stock.Entries[number].Lock, stock.Entries[number].Change
	}
	if err := s.dispatcher.Refuses(event); err != nil {
		return 0, err
	}
	if e.Lock == nil {
		if e.Lock, err = s.Lock(number); err != nil {
			return 0, err
		}
	}
	delete(s.leaving, id)
	e.Index = stock.IndexFor(e.Device)
	s.set(id, e, "")
	s.dispatcher.Step(event)
	s.Log.Info("a device was added", s.about(id, "memory", info.Memory, "speed", info.Speed)...)
	return id, nil
}

// namesake finds the device that was given the same name as c; -1 if there is none. Devices
// that were removed or lost, or are about to be removed, do not count.
func (s *Stock) namesake(c settings.Device) vgpu.DeviceID {
	for i, e := range s.Load().Entries {
		id := vgpu.DeviceID(i)
		state := s.dispatcher.State(id)
		if c.IsNamed() && e.IsNamed() && e.Name == c.Name && !s.IsLeaving(id) && state != vgpu.DeviceRemoved && state != vgpu.DeviceLost {
			return id
		}
	}
	return -1
}

// --- another configuration -----------------------------------------------------

// ExamineAll opens the devices that are new to the node, before anything is changed.
func (s *Stock) ExamineAll(list []settings.Device) ([]Coming, error) {
	var all []Coming
	for _, c := range list {
		if s.takeOver(c, false) {
			continue
		}
		info, err := s.Examine(c)
		if err != nil {
			return nil, fmt.Errorf("device %s %s: %w", c.Kind, c.Name, err)
		}
		all = append(all, Coming{c, info})
	}
	return all, nil
}

// Apply removes the devices that a configuration no longer has, when they are
// empty, and adds those that it had not, which have been examined. Devices that were added or removed by
// hand are left alone.
func (s *Stock) Apply(was, is []settings.Device, add []Coming) {
	for _, c := range settings.AddedDevices(is, was) {
		if at := slices.IndexFunc(s.coming, func(other Coming) bool { return settings.SameDevice(other.Device, c) }); at >= 0 {
			s.coming = slices.Delete(s.coming, at, at+1) // it never came
			continue
		}
		if id := s.find(c); id >= 0 { // else it was removed by hand
			s.retire(id)
		}
	}
	for _, c := range settings.AddedDevices(was, is) {
		s.takeOver(c, true)
	}
	s.coming = append(s.coming, add...)
	s.Tend()
}

// retire removes a device that the configuration no longer has, once its clients have left.
func (s *Stock) retire(id vgpu.DeviceID) {
	if err := s.Remove(id, false); err != nil {
		s.Log.Error("a device that the configuration no longer has cannot be removed", "device", int(id), "error", err)
	}
}

// find finds the device that a configuration describes; -1 if there
// is none, the last if there are several.
func (s *Stock) find(c settings.Device) vgpu.DeviceID {
	found := vgpu.DeviceID(-1)
	for i, e := range s.Load().Entries {
		if e.Here && !e.ByHand && settings.SameDevice(e.Device, c) && !s.IsLeaving(vgpu.DeviceID(i)) {
			found = vgpu.DeviceID(i)
		}
	}
	return found
}

// takeOver says whether a device of the configuration is there already because it was
// added by hand. With note, the device belongs to the configuration from then on.
func (s *Stock) takeOver(c settings.Device, note bool) bool {
	stock := s.Load()
	at := slices.IndexFunc(stock.Entries, func(e inventory.Device) bool { return e.Here && e.ByHand && settings.SameDevice(e.Device, c) })
	if at >= 0 && note {
		e := stock.Entries[at]
		e.ByHand = false
		s.is.Store(stock.With(at, e))
	}
	return at >= 0
}
