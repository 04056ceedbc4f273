// Package modules has the modules that a program has loaded into a context, and their variables. Where the
// variables are at other addresses than the program knows, it translates (package shifts). It knows one
// context, and nothing of streams but the one on which it copies what variables contain.
package modules

import (
	"context"
	"fmt"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/shifts"
)

// Modules are those of a context, by the core's numbers.
type Modules struct {
	context device.Context
	copies  device.Stream
	// loadAt is that of the device (device.DeviceCan): nil if it cannot load modules at given addresses.
	loadAt func(c device.Context, image []byte, globals []device.Global) (device.Module, error)
	all    map[uint64]*loaded
	shifts shifts.Shifts // of all modules; nil if all variables are at the addresses the program knows
}

// New returns the modules of a context of a device that has none yet. What variables contain is copied on the
// stream.
func New(of device.Device, c device.Context, copies device.Stream) *Modules {
	return &Modules{context: c, copies: copies, loadAt: of.Can().LoadAt, all: map[uint64]*loaded{}}
}

// Shifted says whether some variables are not at the addresses the program knows.
func (s *Modules) Shifted() bool { return s.shifts != nil }

// loaded is a module in a context.
type loaded struct {
	module    device.Module
	functions map[uint32]device.Function
	shifts    shifts.Shifts
}

// loader returns the function that loads an image, with its variables at the given addresses if
// there are any and the device can place them.
func (s *Modules) loader(globals []device.Global) func(image []byte) (device.Module, error) {
	if s.loadAt == nil || globals == nil {
		return s.context.Load
	}
	return func(image []byte) (device.Module, error) { return s.loadAt(s.context, image, globals) }
}

// Load loads a module into the context. It returns only the names of its kernels: to tell more, a
// device may have to load each kernel.
func (s *Modules) Load(o *clientcore.Op) ([]device.Global, []device.FunctionInfo, error) {
	m, err := s.loader(o.Globals)(o.Image)
	if err != nil {
		return nil, nil, err
	}
	var functions []device.FunctionInfo
	for _, name := range m.Functions() {
		functions = append(functions, device.FunctionInfo{Name: name, Unread: true})
	}
	s.all[o.Module] = &loaded{module: m, functions: map[uint32]device.Function{}}
	if o.Globals != nil { // a place chosen before; the program may know it
		return o.Globals, functions, s.shift(o.Module, o.Globals)
	}
	return m.Globals(), functions, s.shifts.Apart(m.Globals())
}

// Unload unloads a module.
func (s *Modules) Unload(number uint64) error {
	m := s.all[number]
	if m == nil {
		return fmt.Errorf("module %d is not loaded", number)
	}
	delete(s.all, number)
	if m.shifts != nil {
		s.addUpShifts()
	}
	return m.module.Unload()
}

// Describe returns the attributes of a kernel.
func (s *Modules) Describe(module uint64, name string) (device.FunctionInfo, error) {
	m := s.all[module]
	if m == nil {
		return device.FunctionInfo{}, fmt.Errorf("module %d is not loaded", module)
	}
	f, err := m.module.Function(name)
	if err != nil {
		return device.FunctionInfo{}, err
	}
	return f.Info(), nil
}

// Function returns the kernel that an operation names, looked up once.
func (s *Modules) Function(o *clientcore.Op) (device.Function, error) {
	m := s.all[o.Module]
	if m == nil {
		return nil, fmt.Errorf("module %d is not loaded", o.Module)
	}
	if f, ok := m.functions[o.Function]; ok {
		return f, nil
	}
	f, err := m.module.Function(o.Name)
	if err == nil {
		m.functions[o.Function] = f
	}
	return f, err
}

// Save returns the contents of module variables. Addresses of variables in them are translated back
// to those the program knows, so that any later context can translate them again.
func (s *Modules) Save(ctx context.Context, all []clientcore.Loaded) (map[uint64][][]byte, error) {
	contents := map[uint64][][]byte{}
	for _, m := range all {
		saved := make([][]byte, len(m.Globals))
		for i, v := range m.Globals {
			saved[i] = make([]byte, v.Size)
			if err := s.copies.CopyOut(saved[i], s.shifts.Of(v.Address)); err != nil {
				return nil, err
			}
		}
		contents[m.Module] = saved
	}
	if err := s.copies.Synchronise(ctx); err != nil || s.shifts == nil {
		return contents, err
	}
	for number, saved := range contents {
		for i := range saved {
			saved[i] = s.all[number].shifts.Known(saved[i])
		}
	}
	return contents, nil
}

// Here returns an operation with the addresses that variables have in this context.
func (s *Modules) Here(o *clientcore.Op) *clientcore.Op {
	if s.shifts == nil {
		return o
	}
	return s.shifts.Shifted(o)
}

// Replay loads and unloads modules in the order in which the previous context did, and puts the
// contents of their variables back. In another process than before (anew) variables may be at other
// addresses than the program knows: see shifts.
func (s *Modules) Replay(ctx context.Context, all []clientcore.Loaded, anew bool) error {
	for _, m := range all {
		if m.Unload {
			if err := s.Unload(m.Module); err != nil {
				return err
			}
			continue
		}
		if err := s.loadAgain(m, anew); err != nil {
			return fmt.Errorf("loading the program's modules: %w", err)
		}
	}
	for _, m := range all {
		if s.all[m.Module] == nil || m.Unload {
			continue
		}
		if err := s.restore(ctx, m); err != nil {
			return err
		}
	}
	return s.copies.Synchronise(ctx)
}

// loadAgain loads a module whose variables' addresses the program may know.
func (s *Modules) loadAgain(m clientcore.Loaded, anew bool) error {
	made, err := s.loader(m.Globals)(m.Image)
	if err != nil {
		return err
	}
	s.all[m.Module] = &loaded{module: made, functions: map[uint32]device.Function{}}
	if !anew {
		return clientcore.SamePlaces(m.Globals, made.Globals())
	}
	return s.shift(m.Module, m.Globals)
}

// shift notes which variables of a module are not at the addresses the program knows. It fails if
// an old address now belongs to another module's variable: such an address would be ambiguous.
func (s *Modules) shift(module uint64, known []device.Global) error {
	m := s.all[module]
	moved, err := shifts.Between(known, m.module.Globals())
	if err != nil || len(moved) == 0 {
		return err
	}
	m.shifts = moved
	s.addUpShifts()
	for _, other := range s.all {
		if other.shifts == nil {
			if err := s.shifts.Apart(other.module.Globals()); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUpShifts collects the shifts of all modules.
func (s *Modules) addUpShifts() {
	s.shifts = nil
	for _, m := range s.all {
		s.shifts = append(s.shifts, m.shifts...)
	}
	s.shifts.Sort()
}

// restore puts the contents of variables back. A word in them may be a pointer to another variable
// that the image itself initialised. The driver has set that word to the other variable's present
// address when it loaded the module; such words keep the driver's value (package shifts).
func (s *Modules) restore(ctx context.Context, m clientcore.Loaded) error {
	moved := s.all[m.Module].shifts
	for i, contents := range m.Saved {
		at := moved.Of(m.Globals[i].Address)
		if moved.PointedTo(contents) {
			fresh := make([]byte, len(contents))
			if err := s.copies.CopyOut(fresh, at); err != nil {
				return err
			}
			if err := s.copies.Synchronise(ctx); err != nil {
				return err
			}
			contents = moved.Repoint(contents, fresh)
		}
		if err := s.copies.CopyIn(at, contents); err != nil {
			return err
		}
	}
	return nil
}
