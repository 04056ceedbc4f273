package worker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/wire"
)

// modules is what the client has loaded. The journal lists every load and
// unload that gave variables their addresses, so that a context on another
// device gets the same images at the same addresses.
type modules struct {
	byID      map[uint32]*module
	images    map[uint32]*bytes.Buffer // on their way in
	kept      int                      // bytes of all images
	journal   []entry
	unplaced  []*module // that were in no context yet, in the order of their loading
	functions map[uint32]*function
	home      int    // the device on which the modules of the journal were first
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
	saved  [][]byte      // contents of variables, when they are on no device

	refused   error // why the context would not take it
	refusedBy *gpu
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

// count works out memory anew: as much as is taken at a time while a context
// gets all modules.
func (m *modules) count() {
	var now, most uint64
	for _, e := range m.journal {
		if e.unload {
			now -= e.module.memory()
		} else {
			now += e.module.memory()
		}
		most = max(most, now)
	}
	for _, mod := range m.unplaced {
		now += mod.memory()
	}
	m.variables = max(most, now)
}

// memory is what one module takes; where the device cannot tell, what its
// variables would take by themselves.
func (mod *module) memory() uint64 {
	size := mod.info.Memory
	if size == 0 {
		for _, g := range mod.info.Globals {
			size = (size+255)&^255 + g.Size
		}
	}
	return (size + chunk - 1) &^ (chunk - 1)
}

// maxImages is how many bytes of images a client may have in all.
const maxImages = 4 << 30

// add appends a piece of an image.
func (m *modules) add(id uint32, piece []byte) error {
	b := m.images[id]
	if b == nil {
		if len(m.images) >= maxObjects {
			return tooMany("images")
		}
		b = &bytes.Buffer{}
		m.images[id] = b
	}
	if len(piece) > maxImages-m.kept {
		return fmt.Errorf("images of more than %d bytes in all: unload modules that are not used: %w", maxImages, device.ErrOutOfMemory)
	}
	m.kept += len(piece)
	b.Write(piece)
	return nil
}

// finishModule makes a module of the image that was sent.
func (s *session) finishModule(id uint32) (*module, error) {
	m := &s.modules
	image := m.images[id]
	if image == nil || m.byID[id] != nil {
		return nil, fmt.Errorf("module %d: no image was sent, or it is loaded already: %w", id, errProtocol)
	}
	delete(m.images, id)
	mod := &module{image: image.Bytes()}
	info, known, err := s.inspect(mod.image)
	if err == nil && len(m.byID) >= maxObjects {
		err = tooMany("modules")
	}
	if err != nil {
		m.kept -= len(mod.image)
		return nil, err
	}
	mod.info = info
	m.byID[id] = mod
	m.unplaced = append(m.unplaced, mod)
	m.count()
	if known {
		return mod, nil // it goes to the device with the next kernel
	}
	// Only a device can tell.
	if err = s.ready(nil); err == nil {
		err = mod.refused
	}
	if err != nil {
		return nil, errors.Join(err, s.unloadModule(id))
	}
	return mod, nil
}

// inspect tells what an image holds, if a device can tell that before the image
// is loaded.
func (s *session) inspect(image []byte) (info device.ImageInfo, known bool, err error) {
	for i := range s.serve.Devices {
		d, wrong := s.device(i)
		if wrong != nil {
			continue
		}
		in, ok := d.(device.Inspector)
		if !ok {
			continue
		}
		// Another device may be large enough.
		if info, err = in.Inspect(image); !errors.Is(err, device.ErrOutOfMemory) {
			return info, true, err
		}
	}
	return info, false, err
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

// load puts all modules that were placed into a new context, as they were in the
// one before.
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

// place puts the modules that were in no context yet into the present one. One
// that it does not take is found out when it is used.
func (m *modules) place(s *session) error {
	if m.allPlaced(s.gpu) {
		return nil
	}
	var left []*module
	for _, mod := range m.unplaced {
		if mod.refusedBy == s.gpu {
			left = append(left, mod)
			continue
		}
		err := mod.load(s.gpu.context)
		if isFault(err) {
			return err
		}
		mod.refused = err
		if err != nil {
			mod.refusedBy = s.gpu
			left = append(left, mod)
			continue
		}
		if len(m.journal) == 0 {
			m.home = s.gpu.index
		}
		m.journal = append(m.journal, entry{module: mod})
	}
	m.unplaced = left
	m.count()
	return nil
}

// allPlaced says whether a context has all modules that it takes.
func (m *modules) allPlaced(g *gpu) bool {
	for _, mod := range m.unplaced {
		if mod.refusedBy != g {
			return false
		}
	}
	return true
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
	for _, mod := range m.unplaced {
		mod.refused, mod.refusedBy = nil, nil
	}
	for _, f := range m.functions {
		f.loaded = nil
	}
}

// unloadModule drops a module.
func (s *session) unloadModule(id uint32) error {
	m := &s.modules
	mod := m.byID[id]
	if mod == nil {
		return nil // a reset came before its end
	}
	if mod.loaded != nil {
		if err := s.drain(); err != nil {
			return err
		}
		if err := mod.loaded.Unload(); err != nil {
			return err
		}
	}
	mod.loaded, mod.saved = nil, nil
	delete(m.byID, id)
	for number, f := range m.functions {
		if f.module == mod {
			delete(m.functions, number)
		}
	}
	if mod.placed {
		m.journal = append(m.journal, entry{module: mod, unload: true})
		m.tidy()
	} else {
		m.kept -= len(mod.image)
		m.unplaced = slices.DeleteFunc(m.unplaced, func(o *module) bool { return o == mod })
	}
	m.count()
	return nil
}

// tidy takes a module out of the journal if nothing was loaded between its load
// and its unload: then nothing lies where it does for its sake.
func (m *modules) tidy() {
	for {
		load := -1 // the last one
		for i, e := range m.journal {
			if !e.unload {
				load = i
			}
		}
		if load < 0 {
			break
		}
		mod := m.journal[load].module
		if !slices.Contains(m.journal[load+1:], entry{mod, true}) {
			break
		}
		m.journal = slices.DeleteFunc(m.journal, func(e entry) bool { return e.module == mod })
		m.kept -= len(mod.image)
	}
	if len(m.journal) == 0 {
		m.pinned = -1
	}
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
			return nil, fmt.Errorf("kernel %s is of a module that is not loaded: %w", f.info.Name, cmp.Or(f.module.refused, errHandle))
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
	if len(s.modules.functions) >= maxObjects {
		return nil, tooMany("functions")
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
		if mod.refused != nil {
			return nil, mod.refused
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
	if f.module.loaded == nil {
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
