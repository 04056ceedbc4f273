package clientcore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/wire"
)

// Modules is what the client has loaded. The journal lists every load and unload that gave
// variables their addresses: repeated in the same order in a context on another device, they give
// the same addresses. If all devices can put variables at given addresses, the journal lists only
// what is loaded.
type Modules struct {
	All       map[uint64]*Module  // loaded, or in the journal, by serial number
	ByID      map[uint32]uint64   // loaded, by the client's number
	Images    map[uint32][]byte   // being sent
	Kept      int                 // size of all images
	Contents  int                 // size of the saved contents of variables
	Refused   map[uint32]*Failure // images that were refused, until their load
	Refusals  []Refusal           // why the last failed loads failed
	Journal   []Entry
	Unplaced  []uint64 // not in any context yet, in the order of loading
	Functions map[uint32]Function
	Places    map[uint32][]device.Global `json:",omitempty"` // where the variables of images being sent are to be
	Home      int                        // the device on which the journal's modules were loaded first
	Pinned    int                        // the only device on which variables have their addresses; -1: any
	Variables uint64                     // device memory that variables take, in whole chunks
	Last      uint64                     // the last serial number

	known known
}

// Entry is a load or an unload.
type Entry struct {
	Module uint64
	Unload bool
}

// Module is an image, and what is known about it.
type Module struct {
	Image  []byte
	Info   device.ImageInfo // kernels that nobody has looked up may have only their name
	Loaded bool             // in the open context at home
	Placed bool             // the addresses in Info are valid
	Saved  [][]byte         // contents of variables, while they are on no device

	Refused   *Failure // why a context has refused it
	RefusedBy uint64   // the number of that context

	Due []device.Global `json:",omitempty"` // where a guest wants the variables; nil: anywhere
}

// Function is a kernel that the client has looked up.
type Function struct {
	Module uint64
	Info   device.FunctionInfo
}

func newModules() Modules {
	return Modules{All: map[uint64]*Module{}, ByID: map[uint32]uint64{}, Images: map[uint32][]byte{}, Functions: map[uint32]Function{},
		Refused: map[uint32]*Failure{}, Pinned: -1}
}

// memory is what a module takes on a device. If the device cannot tell, it is what the variables
// alone would take.
func (mod *Module) memory(chunk uint64) uint64 {
	size := mod.Info.Memory
	if size == 0 {
		for _, g := range mod.Info.Globals {
			size = (size+255)&^255 + g.Size
		}
	}
	return (size + chunk - 1) &^ (chunk - 1)
}

// maxImages bounds the size of all images of a client.
const maxImages = 4 << 30

// of returns a module by the client's number.
func (m *Modules) of(id uint32) (*Module, error) {
	if serial, ok := m.ByID[id]; ok {
		return m.All[serial], nil
	}
	return nil, fmt.Errorf("module %d: %w", id, errHandle)
}

// allPlaced says whether a context has all modules that it accepts.
func (c *Core) allPlaced(x *Context) bool {
	for _, serial := range c.Modules.Unplaced {
		if c.Modules.All[serial].RefusedBy != x.Number && c.mayPlace(serial) {
			return false
		}
	}
	return true
}

// live returns the modules in the context, with the addresses of their variables.
func (m *Modules) live() []Loaded {
	var all []Loaded
	for _, e := range m.Journal {
		if mod := m.All[e.Module]; mod.Loaded && !e.Unload {
			all = append(all, Loaded{Module: e.Module, Globals: mod.Info.Globals})
		}
	}
	return all
}

// replay returns what a new context must load.
func (m *Modules) replay() []Loaded {
	all := make([]Loaded, 0, len(m.Journal))
	for _, e := range m.Journal {
		mod := m.All[e.Module]
		l := Loaded{Module: e.Module, Unload: e.Unload}
		if !e.Unload {
			l.Image, l.Globals, l.Saved = mod.Image, mod.Info.Globals, mod.Saved
		}
		all = append(all, l)
	}
	return all
}

// restored notes that a context has everything in the journal.
func (m *Modules) restored() {
	for _, e := range m.Journal {
		mod := m.All[e.Module]
		mod.Loaded, mod.Saved = !e.Unload, nil
	}
	m.Contents = 0
}

// save keeps the contents of variables of modules that are on no device now.
func (m *Modules) save(contents map[uint64][][]byte) {
	for serial, saved := range contents {
		if mod := m.All[serial]; mod != nil {
			mod.Saved = saved
			m.Contents += size(saved)
		}
	}
}

func size(contents [][]byte) (n int) {
	for _, b := range contents {
		n += len(b)
	}
	return n
}

// forget drops what belonged to a context.
func (m *Modules) forget() {
	for _, mod := range m.All {
		mod.Loaded = false
		mod.Refused, mod.RefusedBy = nil, 0
	}
}

// hasVariables says whether a context holds contents of variables that are nowhere else.
func (m *Modules) hasVariables() bool {
	for _, mod := range m.All {
		if mod.Loaded && len(mod.Info.Globals) > 0 {
			return true
		}
	}
	return false
}

// loadNext has the next module loaded that the context has not seen; false if there is none. A
// module that the context refuses causes an error only when it is used.
func (c *Core) loadNext(x *Context) bool {
	for _, serial := range c.Modules.Unplaced {
		if mod := c.Modules.All[serial]; mod.RefusedBy != x.Number && c.mayPlace(serial) {
			c.loading = serial
			globals, again := c.due[serial]
			if !again {
				globals = mod.Due
			}
			c.ask(Op{Kind: Load, Place: x.Place, Module: serial, Image: mod.Image, Globals: globals})
			return true
		}
	}
	return false
}

// loaded notes that a context has a module, or has refused it.
func (c *Core) loaded(o Outcome) {
	m, serial := &c.Modules, c.loading
	mod := m.All[serial]
	if x := c.loadingAt; x != nil {
		c.loadingAt = nil
		c.loadedFurther(x, serial, o)
		return
	}
	if o.Err != nil {
		mod.Refused = failureOf(o.Err)
		if x := c.here(); x != nil {
			mod.RefusedBy = x.Number
		}
		return
	}
	if c.ended = c.asBefore(serial, o.Globals); c.ended != nil {
		return
	}
	m.know(c.config.Chunk)
	m.awaitsNoMore(serial)
	mod.Loaded, mod.Placed, mod.Refused = true, true, nil
	mod.Info.Globals = o.Globals
	m.addVariables(o.Globals)
	if mod.Info.Functions == nil {
		mod.Info.Functions = o.Functions
	}
	mod.Info = sorted(mod.Info)
	if len(m.Journal) == 0 {
		m.Home = c.Lease.Device
	}
	m.enter(Entry{Module: serial})
	m.recount()
}

// moduleData takes a piece of an image. If there is no room, the whole image is dropped, and its
// load reports why.
func (c *Core) moduleData(m *Message, d *wire.ModuleData) (bool, error) {
	mods := &c.Modules
	if mods.Refused[d.Module] != nil {
		return true, nil
	}
	image, begun := mods.Images[d.Module]
	if !begun && len(mods.Images)+len(mods.Refused) >= maxObjects {
		return true, tooMany("images")
	}
	ok, err := c.commit(c.onHostWith(len(m.Data)))
	if len(m.Data) > maxImages-mods.Kept {
		ok, err = true, fmt.Errorf("images of more than %d bytes in all: unload modules that are not used: %w", maxImages, device.ErrOutOfMemory)
	}
	switch {
	case !ok:
		return false, nil
	case err != nil:
		c.dropImage(d.Module)
		mods.Refused[d.Module] = failureOf(fmt.Errorf("no room on the host for the image of a module: %w", err))
		return true, nil
	}
	mods.Kept += len(m.Data)
	mods.Images[d.Module] = append(image, m.Data...)
	return true, nil
}

// moduleLoad makes a module of the image that was sent.
func (c *Core) moduleLoad(m *Message, d *wire.ModuleLoad) (bool, error) {
	serial, begun := c.Modules.ByID[d.Module]
	if begun && (c.Head == nil || !c.Head.Made) {
		return true, fmt.Errorf("module %d is loaded already: %w", d.Module, ErrProtocol)
	}
	if !begun {
		if why := c.Modules.Refused[d.Module]; why != nil {
			delete(c.Modules.Refused, d.Module)
			return true, why
		}
		image, sent := c.Modules.Images[d.Module]
		if !sent {
			return true, fmt.Errorf("module %d: no image was sent: %w", d.Module, ErrProtocol)
		}
		if c.Head == nil || c.Head.found == nil {
			c.ask(Op{Kind: Inspect, Image: image})
			return false, nil
		}
		known, err := c.makeModule(d.Module, image, *c.Head.found)
		if err != nil {
			return true, err
		}
		serial = c.Modules.ByID[d.Module]
		c.Head.Made = !known
	}
	mod := c.Modules.All[serial]
	if c.Head.Made { // only a device can tell what the image contains
		ok, err := c.ready(need{})
		if err == nil && ok && mod.Refused != nil {
			err = mod.Refused
		}
		if !ok || err != nil {
			return ok, err
		}
	}
	c.reply(m.Header.Slot, success, (&wire.ModuleLoadReply{Functions: uint32(len(mod.Info.Functions)), Globals: uint32(len(mod.Info.Globals))}).Append(nil))
	return true, nil
}

func (c *Core) dropImage(id uint32) {
	c.Modules.Kept -= len(c.Modules.Images[id])
	delete(c.Modules.Images, id)
	delete(c.Modules.Places, id)
}

// makeModule makes a module of an image and what was found out about it.
func (c *Core) makeModule(id uint32, image []byte, found Outcome) (known bool, err error) {
	m := &c.Modules
	err = found.Err
	if err == nil && len(m.ByID) >= maxObjects {
		err = tooMany("modules")
	}
	if err != nil {
		c.dropImage(id)
		return false, err
	}
	m.know(c.config.Chunk)
	delete(m.Images, id)
	m.Last++
	m.All[m.Last] = &Module{Image: slices.Clone(image), Info: sorted(found.Info), Due: m.Places[id]} // a copy without the spare capacity of append
	delete(m.Places, id)
	m.ByID[id] = m.Last
	m.awaits(m.Last) // the next kernel brings it to the device
	return found.Known, nil
}

// undo takes back what a message has done that ends with an error.
func (c *Core) undo(h *Head) {
	if !h.Made {
		return
	}
	var d wire.ModuleLoad
	if d.Decode(h.Message.Body) == nil {
		c.unload(d.Module)
	}
}

func (c *Core) moduleUnload(_ *Message, d *wire.ModuleUnload) (bool, error) {
	c.unload(d.Module)
	c.commitLess(c.onHost())
	return true, nil
}

// unload drops a module.
func (c *Core) unload(id uint32) {
	m := &c.Modules
	serial, ok := m.ByID[id]
	if !ok { // a reset came before, or it is the result of a link
		c.dropImage(id)
		return
	}
	c.dropRuns()
	m.know(c.config.Chunk)
	mod := m.All[serial]
	for i, x := range c.Contexts {
		if i == 0 && mod.Loaded || x.Has[serial] {
			c.emit(Op{Kind: Drain, Place: x.Place})
			c.emit(Op{Kind: Unload, Place: x.Place, Module: serial})
			delete(x.Has, serial)
		}
	}
	m.Contents -= size(mod.Saved)
	mod.Loaded, mod.Saved = false, nil
	delete(c.due, serial)
	delete(m.ByID, id)
	m.dropFunctions(serial)
	if mod.Placed {
		m.dropVariables(mod.Info.Globals)
	}
	switch {
	case !mod.Placed:
		m.awaitsNoMore(serial)
		m.remove(serial)
	case c.puts:
		m.leaveAnywhere(serial)
		m.remove(serial)
		m.recount()
	default:
		m.enter(Entry{Module: serial, Unload: true})
		m.tidy()
		m.recount()
	}
	if len(m.Journal) == 0 {
		m.Pinned = -1
	}
}

// remove forgets a module that nothing depends on.
func (m *Modules) remove(serial uint64) {
	m.Kept -= len(m.All[serial].Image)
	delete(m.All, serial)
}

// tidy removes a module from the journal if nothing was loaded between its load and its unload:
// then no other module's address depends on it.
func (m *Modules) tidy() {
	for {
		load := len(m.Journal) - 1
		for load >= 0 && m.Journal[load].Unload {
			load--
		}
		if load < 0 {
			return
		}
		serial := m.Journal[load].Module
		unload := slices.Index(m.Journal[load:], Entry{serial, true})
		if unload < 0 {
			return
		}
		m.leave(load + unload)
		m.leave(load)
		m.remove(serial)
	}
}

func (c *Core) moduleNames(m *Message, d *wire.ModuleNames) (bool, error) {
	mod, err := c.Modules.of(d.Module)
	if err != nil {
		return true, err
	}
	var names bytes.Buffer
	for _, f := range mod.Info.Functions {
		names.WriteString(f.Name + "\x00")
	}
	for _, g := range mod.Info.Globals {
		names.WriteString(g.Name + "\x00")
	}
	c.write(m, names.Bytes())
	c.reply(m.Header.Slot, success, (&wire.ModuleNamesReply{
		Total: uint64(names.Len()), Functions: uint32(len(mod.Info.Functions)), Globals: uint32(len(mod.Info.Globals)),
	}).Append(nil))
	return true, nil
}

// write puts as much of data as fits where a message wants it.
func (c *Core) write(m *Message, data []byte) {
	data = data[:min(uint64(len(data)), m.Header.Length)]
	c.emit(Op{Kind: Write, Out: Span{m.Header.Data, uint64(len(data))}, Data: data})
}

func (c *Core) moduleFunction(m *Message, d *wire.ModuleFunction) (bool, error) {
	mod, err := c.Modules.of(d.Module)
	if err != nil {
		return true, err
	}
	if _, taken := c.Modules.Functions[d.Function]; taken {
		return true, fmt.Errorf("function %d is taken: %w", d.Function, ErrProtocol)
	}
	if len(c.Modules.Functions) >= maxObjects {
		return true, tooMany("functions")
	}
	i, ok := mod.function(d.Name)
	if !ok {
		return true, fmt.Errorf("kernel %q: %w", d.Name, device.ErrNotFound)
	}
	if described, err := c.describe(mod, c.Modules.ByID[d.Module], i); !described || err != nil {
		return described, err
	}
	info := mod.Info.Functions[i]
	if m.Header.Length < 8*uint64(len(info.Params)) {
		return true, fmt.Errorf("no room for %d parameters: %w", len(info.Params), ErrProtocol)
	}
	var layout []byte
	for _, p := range info.Params {
		layout = appendPair(layout, uint32(p.Offset), uint32(p.Size))
	}
	c.write(m, layout)
	serial := c.Modules.ByID[d.Module]
	c.Modules.know(c.config.Chunk)
	c.Modules.Functions[d.Function] = Function{Module: serial, Info: info}
	c.Modules.known.functions[serial] = append(c.Modules.known.functions[serial], d.Function)
	c.reply(m.Header.Slot, success, (&wire.ModuleFunctionReply{
		Params: uint32(len(info.Params)), ParamSize: uint32(info.ParamSize), MaxThreads: int32(info.MaxThreads),
		Shared: int32(info.Shared), Local: int32(info.Local), Registers: int32(info.Registers),
		Ptx: int32(info.PTXVersion), Binary: int32(info.Binary), Constant: int32(info.Constant),
		ClusterX: info.Cluster.X, ClusterY: info.Cluster.Y, ClusterZ: info.Cluster.Z, ClusterNeeded: flag(info.ClusterNeeded), Heap: flag(info.Heap),
	}).Append(nil))
	return true, nil
}

// describe finds out about a kernel of which only the name is known. Devices report just the names
// when they load a module, since modules of libraries have thousands of kernels. It returns false
// if the message must wait.
func (c *Core) describe(mod *Module, serial uint64, i int) (bool, error) {
	f := &mod.Info.Functions[i]
	if !f.Unread {
		return true, nil
	}
	if c.Head == nil || c.Head.described == nil {
		if ok, err := c.ready(need{}); !ok || err != nil {
			return ok, err
		}
		if err := c.usable(&Function{Module: serial, Info: *f}); err != nil {
			return true, err
		}
		c.ask(Op{Kind: Describe, Place: c.here().Place, Module: serial, Name: f.Name})
		return false, nil
	}
	o := c.Head.described
	if o.Err != nil {
		return true, o.Err
	}
	if len(o.Functions) != 1 || o.Functions[0].Name != f.Name || o.Functions[0].Unread {
		return true, fmt.Errorf("the device tells nothing of kernel %q: %w", f.Name, device.ErrNotFound)
	}
	*f = o.Functions[0]
	return true, nil
}

// sorted sorts the contents of an image by name. Devices report them in this order.
func sorted(info device.ImageInfo) device.ImageInfo {
	functions := func(a, b device.FunctionInfo) int { return cmp.Compare(a.Name, b.Name) }
	globals := func(a, b device.Global) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(info.Functions, functions) {
		slices.SortFunc(info.Functions, functions)
	}
	if !slices.IsSortedFunc(info.Globals, globals) {
		slices.SortFunc(info.Globals, globals)
	}
	return info
}

// function finds a kernel by name, in a sorted list.
func (mod *Module) function(name string) (int, bool) {
	all := mod.Info.Functions
	i, ok := slices.BinarySearchFunc(all, name, func(f device.FunctionInfo, name string) int { return cmp.Compare(f.Name, name) })
	return i, ok
}

// variable finds a variable by name; -1 if there is none.
func (mod *Module) variable(name string) int {
	all := mod.Info.Globals
	i, ok := slices.BinarySearchFunc(all, name, func(g device.Global, name string) int { return cmp.Compare(g.Name, name) })
	if !ok {
		return -1
	}
	return i
}

func appendPair(b []byte, x, y uint32) []byte {
	return append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(y), byte(y>>8), byte(y>>16), byte(y>>24))
}

func (c *Core) moduleGlobal(m *Message, d *wire.ModuleGlobal) (bool, error) {
	mod, err := c.Modules.of(d.Module)
	if err != nil {
		return true, err
	}
	find := func() int { return mod.variable(d.Name) }
	if find() < 0 {
		return true, fmt.Errorf("variable %q: %w", d.Name, device.ErrNotFound)
	}
	if !mod.Placed { // the device chooses the addresses
		if ok, err := c.ready(need{}); !ok || err != nil {
			return ok, err
		}
		if mod.Refused != nil {
			return true, mod.Refused
		}
	}
	g := mod.Info.Globals[find()]
	reply := &wire.ModuleGlobalReply{Addr: g.Address, Size: g.Size}
	if g.Managed {
		reply.Managed = 1
	}
	c.reply(m.Header.Slot, success, reply.Append(nil))
	return true, nil
}

// usable returns why a kernel cannot be used in the open context.
func (c *Core) usable(f *Function) error {
	mod := c.Modules.All[f.Module]
	if mod.Loaded {
		return nil
	}
	why := error(errHandle)
	if mod.Refused != nil {
		why = mod.Refused
	}
	return fmt.Errorf("kernel %s is of a module that is not loaded: %w", f.Info.Name, why)
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (c *Core) functionOccupancy(m *Message, d *wire.FunctionOccupancy) (bool, error) {
	return c.askFunction(m, d.Function, Op{Kind: Occupancy, Threads: int(d.Threads), Shared: d.Shared})
}

func (c *Core) functionShared(m *Message, d *wire.FunctionShared) (bool, error) {
	return c.askFunction(m, d.Function, Op{Kind: SharedFor, Threads: int(d.Threads), Blocks: int(d.Blocks)})
}

func (c *Core) functionClusters(m *Message, d *wire.FunctionClusters) (bool, error) {
	return c.askFunction(m, d.Function, Op{Kind: Clusters, How: device.Launch{
		Grid: device.Dim{X: d.GridX, Y: d.GridY, Z: d.GridZ}, Block: device.Dim{X: d.BlockX, Y: d.BlockY, Z: d.BlockZ}, Shared: uint64(d.Shared),
		Cooperative: d.Flags&cooperative != 0, Cluster: device.Dim{X: d.ClusterX, Y: d.ClusterY, Z: d.ClusterZ}, LargeCluster: d.Flags&largeCluster != 0,
	}})
}

func (c *Core) driverAsk(m *Message, d *wire.DriverAsk) (bool, error) {
	if ok, err := c.ready(need{}); !ok || err != nil {
		return ok, err
	}
	x := c.anyContext()
	if x == nil {
		return true, errors.New("there is no context to ask")
	}
	c.emit(Op{Kind: Ask, Place: x.Place, Slot: m.Header.Slot, What: int(d.What), Params: bytes.Clone(d.About), Out: Span{m.Header.Data, m.Header.Length}})
	return true, nil
}

// askFunction has the device answer a question about a kernel.
func (c *Core) askFunction(m *Message, function uint32, o Op) (bool, error) {
	f, ok := c.Modules.Functions[function]
	if !ok {
		return true, fmt.Errorf("function %d: %w", function, errHandle)
	}
	if mod := c.Modules.All[f.Module]; !mod.Loaded {
		if ok, err := c.ready(need{}); !ok || err != nil {
			return ok, err
		}
	}
	if err := c.usable(&f); err != nil {
		return true, err
	}
	x := c.anyContext()
	if x == nil {
		return true, errors.New("there is no context for a module that is loaded")
	}
	o.Place, o.Slot, o.Module, o.Function, o.Name = x.Place, m.Header.Slot, f.Module, function, f.Info.Name
	c.emit(o)
	return true, nil
}

// anyContext returns the context that modules are loaded in; nil if none is open.
func (c *Core) anyContext() *Context {
	if len(c.Contexts) == 0 {
		return nil
	}
	return c.Contexts[0]
}
