package worker

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/wire"
)

// modules is what the client has loaded. The journal lists every load and
// unload, so that a context on another device gets the same images at the same
// addresses.
type modules struct {
	byID      map[uint32]*module
	images    map[uint32]*bytes.Buffer // on their way in
	journal   []entry
	functions map[uint32]*function
	pinned    int    // the only device on which variables have their addresses; -1 for any
	variables uint64 // bytes of device memory that variables take
}

type entry struct {
	module *module
	unload bool
}

// module is an image, and what is known of it.
type module struct {
	image  []byte
	info   device.ImageInfo
	loaded device.Module // nil while there is no context
	placed bool          // the addresses in info are true
	live   bool
	saved  [][]byte // contents of variables, when they are on no device
}

type function struct {
	module *module
	info   device.FunctionInfo
	loaded device.Function
}

func newModules() modules {
	return modules{byID: map[uint32]*module{}, images: map[uint32]*bytes.Buffer{}, functions: map[uint32]*function{}, pinned: -1}
}

// memory is how much of a device the variables of modules take, in whole
// granules.
func (m *modules) memory() uint64 { return m.variables }

// count works out memory anew.
func (m *modules) count() {
	m.variables = 0
	for _, mod := range m.byID {
		var size uint64
		for _, g := range mod.info.Globals {
			size = (size+255)&^255 + g.Size
		}
		m.variables += (size + chunk - 1) &^ (chunk - 1)
	}
}

const maxImage = 1 << 30

// add appends a piece of an image.
func (m *modules) add(id uint32, piece []byte) error {
	b := m.images[id]
	if b == nil {
		b = &bytes.Buffer{}
		m.images[id] = b
	}
	if b.Len()+len(piece) > maxImage {
		return fmt.Errorf("an image of more than %d bytes: %w", maxImage, errProtocol)
	}
	b.Write(piece)
	return nil
}

// finish makes a module of the image that was sent.
func (s *session) finishModule(id uint32) (*module, error) {
	m := &s.modules
	image := m.images[id]
	delete(m.images, id)
	if image == nil || m.byID[id] != nil {
		return nil, fmt.Errorf("module %d: no image was sent, or it is loaded already: %w", id, errProtocol)
	}
	mod := &module{image: image.Bytes(), live: true}
	inspector := s.inspector()
	if inspector == nil || s.gpu != nil && s.lease.held {
		// Only a device can tell.
		if err := s.ready(nil); err != nil {
			return nil, err
		}
		if err := mod.load(s.gpu.context); err != nil {
			return nil, err
		}
	} else {
		var err error
		if mod.info, err = inspector.Inspect(mod.image); err != nil {
			return nil, err
		}
	}
	m.byID[id] = mod
	m.journal = append(m.journal, entry{module: mod})
	m.count()
	if mod.loaded == nil && s.gpu != nil { // open, but not in use
		if err := mod.load(s.gpu.context); err != nil {
			return nil, err
		}
	}
	return mod, nil
}

// inspector returns a device that can look into images, or nil.
func (s *session) inspector() device.Inspector {
	for i := range s.serve.Devices {
		d, err := s.device(i)
		if err != nil {
			return nil
		}
		if in, ok := d.(device.Inspector); ok {
			return in
		}
	}
	return nil
}

// load puts the module into a context.
func (mod *module) load(c device.Context) error {
	loaded, err := c.Load(mod.image)
	if err != nil {
		return err
	}
	globals := loaded.Globals()
	if mod.placed && !slices.Equal(globals, mod.info.Globals) {
		_ = loaded.Unload()
		return errMoved
	}
	mod.loaded, mod.placed = loaded, true
	mod.info.Globals = globals
	if mod.info.Functions == nil {
		for _, name := range loaded.Functions() {
			f, err := loaded.Function(name)
			if err != nil {
				return err
			}
			mod.info.Functions = append(mod.info.Functions, f.Info())
		}
	}
	return nil
}

// errMoved says that a variable would have another address than the program may
// have seen.
var errMoved = errors.New("the program's variables have other addresses on this device")

// load puts all modules into a new context, as they were in the one before.
func (m *modules) load(s *session) error {
	for _, e := range m.journal {
		var err error
		if e.unload {
			err = e.module.loaded.Unload()
			e.module.loaded = nil
		} else {
			err = e.module.load(s.gpu.context)
		}
		if err != nil {
			return fmt.Errorf("loading the program's modules on %s: %w", s.gpu.device.Info().Name, err)
		}
	}
	return m.restore(s)
}

// save copies the contents of variables to the host.
func (m *modules) save(s *session) error {
	for _, mod := range m.byID {
		if mod.loaded == nil {
			continue
		}
		mod.saved = make([][]byte, len(mod.info.Globals))
		for i, g := range mod.info.Globals {
			mod.saved[i] = make([]byte, g.Size)
			if err := s.gpu.mover.CopyOut(mod.saved[i], g.Address); err != nil {
				return err
			}
		}
	}
	return s.gpu.mover.Synchronise(s.ctx)
}

// restore copies them back.
func (m *modules) restore(s *session) error {
	for _, mod := range m.byID {
		for i, contents := range mod.saved {
			if err := s.gpu.mover.CopyIn(mod.info.Globals[i].Address, contents); err != nil {
				return err
			}
		}
	}
	if err := s.gpu.mover.Synchronise(s.ctx); err != nil {
		return err
	}
	for _, mod := range m.byID {
		mod.saved = nil
	}
	return nil
}

// forget drops what belonged to a context.
func (m *modules) forget() {
	for _, e := range m.journal {
		e.module.loaded = nil
	}
	for _, f := range m.functions {
		f.loaded = nil
	}
}

// unload drops a module. Its image stays in the journal if later ones were
// placed behind it.
func (s *session) unloadModule(id uint32) error {
	m := &s.modules
	mod := m.byID[id]
	if mod == nil {
		return fmt.Errorf("module %d: %w", id, errProtocol)
	}
	if mod.loaded != nil {
		if err := s.drain(); err != nil {
			return err
		}
		if err := mod.loaded.Unload(); err != nil {
			return err
		}
	}
	mod.live, mod.loaded, mod.saved = false, nil, nil
	delete(m.byID, id)
	for number, f := range m.functions {
		if f.module == mod {
			delete(m.functions, number)
		}
	}
	if last := len(m.journal) - 1; m.journal[last].module == mod {
		m.journal = m.journal[:last]
	} else if mod.placed {
		m.journal = append(m.journal, entry{module: mod, unload: true})
	} else {
		m.journal = slices.DeleteFunc(m.journal, func(e entry) bool { return e.module == mod })
	}
	m.count()
	return nil
}

// global finds the variable that a range lies in.
func (m *modules) global(addr, size uint64) (*module, bool) {
	for _, mod := range m.byID {
		if !mod.placed {
			continue
		}
		for _, g := range mod.info.Globals {
			if addr >= g.Address && addr-g.Address <= g.Size && size <= g.Size-(addr-g.Address) {
				return mod, true
			}
		}
	}
	return nil, false
}

// on returns a function of the present context.
func (f *function) on() (device.Function, error) {
	if f.loaded == nil {
		if f.module.loaded == nil {
			return nil, fmt.Errorf("kernel %s is of a module that is not loaded: %w", f.info.Name, errHandle)
		}
		loaded, err := f.module.loaded.Function(f.info.Name)
		if err != nil {
			return nil, err
		}
		f.loaded = loaded
	}
	return f.loaded, nil
}

func (s *session) moduleLoad(h wire.Header, m *wire.ModuleLoad) ([]byte, error) {
	mod, err := s.finishModule(m.Module)
	if err != nil {
		return nil, err
	}
	return (&wire.ModuleLoadReply{Functions: uint32(len(mod.info.Functions)), Globals: uint32(len(mod.info.Globals))}).Append(nil), nil
}

func (s *session) moduleNames(h wire.Header, m *wire.ModuleNames) ([]byte, error) {
	mod := s.modules.byID[m.Module]
	if mod == nil {
		return nil, fmt.Errorf("module %d: %w", m.Module, errHandle)
	}
	var names []byte
	for _, f := range mod.info.Functions {
		names = append(append(names, f.Name...), 0)
	}
	for _, g := range mod.info.Globals {
		names = append(append(names, g.Name...), 0)
	}
	out, err := s.shared.Data(h.Data, h.Length)
	if err != nil {
		return nil, errors.Join(err, errProtocol)
	}
	copy(out, names)
	return (&wire.ModuleNamesReply{Total: uint64(len(names)), Functions: uint32(len(mod.info.Functions)), Globals: uint32(len(mod.info.Globals))}).Append(nil), nil
}

func (s *session) moduleFunction(h wire.Header, m *wire.ModuleFunction) ([]byte, error) {
	mod := s.modules.byID[m.Module]
	if mod == nil {
		return nil, fmt.Errorf("module %d: %w", m.Module, errHandle)
	}
	if s.modules.functions[m.Function] != nil {
		return nil, fmt.Errorf("function %d is taken: %w", m.Function, errProtocol)
	}
	i := slices.IndexFunc(mod.info.Functions, func(f device.FunctionInfo) bool { return f.Name == m.Name })
	if i < 0 {
		return nil, fmt.Errorf("kernel %q: %w", m.Name, device.ErrNotFound)
	}
	info := mod.info.Functions[i]
	out, err := s.shared.Data(h.Data, h.Length)
	if err != nil || len(out) < 8*len(info.Params) {
		return nil, errors.Join(fmt.Errorf("no room for %d parameters", len(info.Params)), err, errProtocol)
	}
	var layout []byte
	for _, p := range info.Params {
		layout = appendPair(layout, uint32(p.Offset), uint32(p.Size))
	}
	copy(out, layout)
	s.modules.functions[m.Function] = &function{module: mod, info: info}
	return (&wire.ModuleFunctionReply{
		Params: uint32(len(info.Params)), ParamSize: uint32(info.ParamSize), MaxThreads: int32(info.MaxThreads),
		Shared: int32(info.Shared), Local: int32(info.Local), Registers: int32(info.Registers),
		Ptx: int32(info.PTXVersion), Binary: int32(info.Binary),
	}).Append(nil), nil
}

func appendPair(b []byte, x, y uint32) []byte {
	return append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(y), byte(y>>8), byte(y>>16), byte(y>>24))
}

func (s *session) moduleGlobal(h wire.Header, m *wire.ModuleGlobal) ([]byte, error) {
	mod := s.modules.byID[m.Module]
	if mod == nil {
		return nil, fmt.Errorf("module %d: %w", m.Module, errHandle)
	}
	find := func() int {
		return slices.IndexFunc(mod.info.Globals, func(g device.Global) bool { return g.Name == m.Name })
	}
	if find() < 0 {
		return nil, fmt.Errorf("variable %q: %w", m.Name, device.ErrNotFound)
	}
	if !mod.placed { // addresses are the device's choice
		if err := s.ready(nil); err != nil {
			return nil, err
		}
	}
	g := mod.info.Globals[find()]
	return (&wire.ModuleGlobalReply{Addr: g.Address, Size: g.Size}).Append(nil), nil
}

func (s *session) functionOccupancy(h wire.Header, m *wire.FunctionOccupancy) ([]byte, error) {
	f := s.modules.functions[m.Function]
	if f == nil {
		return nil, fmt.Errorf("function %d: %w", m.Function, errHandle)
	}
	if s.gpu == nil {
		if err := s.ready(nil); err != nil {
			return nil, err
		}
	}
	loaded, err := f.on()
	if err != nil {
		return nil, err
	}
	blocks, err := loaded.Occupancy(int(m.Threads), m.Shared)
	return (&wire.FunctionOccupancyReply{Blocks: uint32(blocks)}).Append(nil), err
}
