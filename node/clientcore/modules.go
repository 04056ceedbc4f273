package clientcore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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

// modules is what the client has loaded, and looks up in it for its program.
type modules struct {
	*standing
	Modules
	queue   *queue
	mapped  *mapped
	room    *room
	arrival *arrival
	leaving func() // what was made of modules goes before one of them does

	due       map[uint64][]device.Global // where modules that a replay places again must be
	ahead     int                        // how many more modules will be due
	loading   uint64                     // what the operation that asks is about
	loadingAt *Context                   // where
}

func (ms *modules) register(h *handlers) {
	h[wire.OpModuleData] = decoding(ms.moduleData)
	h[wire.OpModuleLoad] = decoding(ms.moduleLoad)
	h[wire.OpModuleUnload] = decoding(ms.moduleUnload)
	h[wire.OpModuleNames] = decoding(ms.moduleNames)
	h[wire.OpModuleFunction] = decoding(ms.moduleFunction)
	h[wire.OpModuleGlobal] = decoding(ms.moduleGlobal)
	h[wire.OpFunctionOccupancy] = decoding(ms.functionOccupancy)
	h[wire.OpFunctionShared] = decoding(ms.functionShared)
	h[wire.OpFunctionClusters] = decoding(ms.functionClusters)
	h[wire.OpFunctionTouches] = ms.guests(decoding(ms.functionTouches))
	h[wire.OpDriverAsk] = decoding(ms.driverAsk)
	h[wire.OpModuleLog] = decoding(ms.moduleLog)
	h[wire.OpModuleLink] = decoding(ms.moduleLink)
	h[wire.OpModuleFetch] = decoding(ms.moduleFetch)
	h[wire.OpModulePlace] = ms.guests(decoding(ms.modulePlace))
}

func (ms *modules) save(to *State)   { to.Modules = ms.Modules }
func (ms *modules) load(from *State) { ms.Modules, ms.due = from.Modules, nil }

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

func newModules(chunk uint64) Modules {
	m := Modules{All: map[uint64]*Module{}, ByID: map[uint32]uint64{}, Images: map[uint32][]byte{}, Functions: map[uint32]Function{},
		Refused: map[uint32]*Failure{}, Pinned: -1}
	m.count(chunk)
	return m
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

// of returns a module by the client's number.
func (m *Modules) of(id uint32) (*Module, error) {
	if serial, ok := m.ByID[id]; ok {
		return m.All[serial], nil
	}
	return nil, fmt.Errorf("module %d: %w", id, errHandle)
}

// allPlaced says whether a context has all modules that it accepts.
func (ms *modules) allPlaced(x *Context) bool {
	for _, serial := range ms.Unplaced {
		if ms.All[serial].RefusedBy != x.Number && ms.mayPlace(serial) {
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

// keep keeps the contents of variables of modules that are on no device now.
func (m *Modules) keep(contents map[uint64][][]byte) {
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
func (ms *modules) loadNext(x *Context) bool {
	for _, serial := range ms.Unplaced {
		if mod := ms.All[serial]; mod.RefusedBy != x.Number && ms.mayPlace(serial) {
			globals, again := ms.due[serial]
			if !again {
				globals = mod.Due
			}
			ms.loadAt(x, serial, globals)
			return true
		}
	}
	return false
}

// loadAt has a module loaded into a context, with its variables at these addresses; nil: anywhere.
func (ms *modules) loadAt(x *Context, serial uint64, globals []device.Global) {
	ms.loading, ms.loadingAt = serial, x
	ms.ask(Op{Kind: Load, Place: x.Place, Module: serial, Image: ms.All[serial].Image, Globals: globals})
}

// loaded notes that a context has a module, or has refused it.
func (ms *modules) loaded(o Outcome) {
	m, serial, x := &ms.Modules, ms.loading, ms.loadingAt
	mod := m.All[serial]
	if ms.isFurther(x.Place) {
		if x.Has[serial] = o.Err == nil; o.Err != nil {
			ms.mapped.refuses(x.Place.Index(), serial)
		}
		return
	}
	if o.Err != nil {
		mod.Refused, mod.RefusedBy = failureOf(o.Err), x.Number
		return
	}
	if ms.ended = ms.asBefore(serial, o.Globals); ms.ended != nil {
		return
	}
	m.awaitsNoMore(serial)
	mod.Loaded, mod.Placed, mod.Refused = true, true, nil
	mod.Info.Globals = o.Globals
	m.addVariables(o.Globals)
	if mod.Info.Functions == nil {
		mod.Info.Functions = o.Functions
	}
	mod.Info = sorted(mod.Info)
	if len(m.Journal) == 0 {
		m.Home = ms.Lease.Device
	}
	m.enter(Entry{Module: serial})
	m.recount()
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

func (ms *modules) check() error {
	m := &ms.Modules
	if m.All == nil || m.ByID == nil || m.Images == nil || m.Functions == nil || m.Refused == nil {
		return errors.New("a table of modules is missing")
	}
	if m.Pinned < -1 || m.Pinned >= len(ms.config.Devices) || m.Home < 0 || m.Home >= max(len(ms.config.Devices), 1) {
		return fmt.Errorf("modules pinned to device %d, first on %d", m.Pinned, m.Home)
	}
	kept, contents := 0, 0
	for serial, mod := range m.All {
		if mod == nil || serial == 0 || serial > m.Last || mod.Loaded && len(ms.Contexts) == 0 {
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
		if m.count(ms.config.Chunk); m.Variables != variables {
			err = fmt.Errorf("variables of %d bytes, where %d are counted", m.Variables, variables)
		}
	}
	return err
}

// known is derived from the modules, so that calls cost about the same however many there are:
// programs have thousands. It is not saved; check makes it again.
type known struct {
	chunk     uint64
	functions map[uint64][]uint32 // that the client has looked up, by module
	variables []device.Global     // of loaded modules that are placed, by address
	waiting   uint64              // bytes of the modules in Unplaced
	marks     []mark              // one per entry of the journal
	summed    int                 // how many marks have valid sums
	entries   map[uint64]int      // index of a module's load in the journal
	total     uint64              // bytes of all modules that are loaded at the journal's end
	unloads   int                 // number of unloads in the journal
}

// mark is the size of an entry's module, the bytes in use after that entry, and the most in use up
// to it.
type mark struct{ size, now, most uint64 }

// count computes known again, and the room for variables: the most that is in use at a time while a
// context replays the journal.
func (m *Modules) count(chunk uint64) {
	m.known = known{chunk: chunk, functions: map[uint64][]uint32{}, entries: map[uint64]int{}}
	for number, f := range m.Functions {
		m.known.functions[f.Module] = append(m.known.functions[f.Module], number)
	}
	for _, serial := range m.ByID {
		if mod := m.All[serial]; mod.Placed {
			m.known.variables = append(m.known.variables, mod.Info.Globals...)
		}
	}
	slices.SortFunc(m.known.variables, byAddress)
	for _, serial := range m.Unplaced {
		m.known.waiting += m.All[serial].memory(chunk)
	}
	all := m.Journal
	m.Journal = all[:0]
	for _, e := range all {
		m.enter(e)
	}
	m.recount()
}

// enter appends an entry to the journal.
func (m *Modules) enter(e Entry) {
	k := &m.known
	m.Journal = append(m.Journal, e)
	size := m.All[e.Module].memory(k.chunk)
	k.marks = append(k.marks, mark{size: size})
	if e.Unload {
		k.unloads++
		k.total -= size
	} else {
		k.entries[e.Module] = len(m.Journal) - 1
		k.total += size
	}
}

// leave removes an entry from the journal. No load may follow it.
func (m *Modules) leave(i int) {
	k := &m.known
	if e, size := m.Journal[i], k.marks[i].size; e.Unload {
		k.unloads--
		k.total += size
	} else {
		delete(k.entries, e.Module)
		k.total -= size
	}
	m.Journal = slices.Delete(m.Journal, i, i+1)
	k.marks = slices.Delete(k.marks, i, i+1)
	k.summed = min(k.summed, i)
}

// leaveAnywhere removes the load of a module from a journal whose order does not matter: it swaps
// the entry with the last one.
func (m *Modules) leaveAnywhere(serial uint64) {
	k := &m.known
	i, last := k.entries[serial], len(m.Journal)-1
	m.Journal[i], m.Journal[last] = m.Journal[last], m.Journal[i]
	k.marks[i], k.marks[last] = k.marks[last], k.marks[i]
	k.entries[m.Journal[i].Module] = i
	k.summed = min(k.summed, i)
	m.leave(last)
}

func byAddress(a, b device.Global) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
}

// recount sums up what is new in the journal. Without unloads the use only grows, so the total is
// the most.
func (m *Modules) recount() {
	k := &m.known
	if k.unloads == 0 {
		m.Variables = k.total + k.waiting
		return
	}
	var last mark
	if k.summed > 0 {
		last = k.marks[k.summed-1]
	}
	for i := k.summed; i < len(k.marks); i++ {
		this := &k.marks[i]
		if m.Journal[i].Unload {
			this.now = last.now - this.size
		} else {
			this.now = last.now + this.size
		}
		this.most = max(last.most, this.now)
		last = *this
	}
	k.summed = len(k.marks)
	m.Variables = max(last.most, last.now+k.waiting)
}

// awaits adds a module that is in no context yet.
func (m *Modules) awaits(serial uint64) {
	m.Unplaced = append(m.Unplaced, serial)
	m.known.waiting += m.All[serial].memory(m.known.chunk)
	m.recount()
}

// awaitsNoMore removes such a module. It must be called before the module's Info changes, since the
// size that is subtracted must be the one that was added.
func (m *Modules) awaitsNoMore(serial uint64) {
	if i := slices.Index(m.Unplaced, serial); i >= 0 {
		m.Unplaced = slices.Delete(m.Unplaced, i, i+1)
		m.known.waiting -= m.All[serial].memory(m.known.chunk)
	}
	m.recount()
}

// addVariables notes where variables are.
func (m *Modules) addVariables(globals []device.Global) {
	for _, g := range globals {
		i, _ := slices.BinarySearchFunc(m.known.variables, g, byAddress)
		m.known.variables = slices.Insert(m.known.variables, i, g)
	}
}

// dropVariables forgets where variables are.
func (m *Modules) dropVariables(globals []device.Global) {
	for _, g := range globals {
		if i, ok := slices.BinarySearchFunc(m.known.variables, g, byAddress); ok {
			m.known.variables = slices.Delete(m.known.variables, i, i+1)
		}
	}
}

// holds says whether a range lies in one variable.
func (m *Modules) holds(addr, size uint64) bool {
	all := m.known.variables
	i, _ := slices.BinarySearchFunc(all, addr, func(g device.Global, addr uint64) int {
		if g.Address <= addr {
			return -1
		}
		return 1
	})
	if i == 0 {
		return false
	}
	g := all[i-1] // the last one that begins at addr or before
	return addr-g.Address <= g.Size && size <= g.Size-(addr-g.Address)
}

// dropFunctions forgets the kernels of a module.
func (m *Modules) dropFunctions(serial uint64) {
	for _, number := range m.known.functions[serial] {
		delete(m.Functions, number)
	}
	delete(m.known.functions, serial)
}

// Placed is where the variables of a module were put. A rebuilt client puts them there again,
// because its program may know the addresses. It cannot work them out: a message that needed a
// device the first time may not need one when it is replayed, so the module would be loaded later,
// when other modules are gone.
type Placed struct {
	Module  uint64
	Globals []device.Global
}

// Expect says that the following messages are replayed, and how many modules were placed while they
// were handled the first time.
func (ms *modules) Expect(placed int) { ms.ahead = placed }

// Due says that one of those modules was placed while the next message was handled. The caller
// reports them in the order in which they were placed.
func (ms *modules) Due(p Placed) {
	if ms.due == nil {
		ms.due = map[uint64][]device.Global{}
	}
	ms.due[p.Module] = append([]device.Global{}, p.Globals...) // not nil, even if empty
	ms.ahead--
}

// mayPlace says whether a module may be loaded into a context now. During a replay a module that
// was not placed before waits for all that were, so that it does not take an address of theirs.
func (ms *modules) mayPlace(serial uint64) bool {
	_, due := ms.due[serial]
	return due || len(ms.due) == 0 && ms.ahead <= 0
}

// placedAgain puts due modules where they were, before a message is handled. It returns false if
// the message must wait for that.
func (ms *modules) placedAgain() bool {
	if !slices.ContainsFunc(ms.Unplaced, func(serial uint64) bool { _, due := ms.due[serial]; return due }) {
		return true
	}
	ok, err := ms.arrival.ready(need{})
	return ok || err != nil // the message itself finds out what is wrong
}

// asBefore returns an error if a module that was placed again is not where it was.
func (ms *modules) asBefore(serial uint64, now []device.Global) error {
	was, due := ms.due[serial]
	delete(ms.due, serial)
	if !due {
		return nil
	}
	if err := SamePlaces(was, now); err != nil {
		return fmt.Errorf("putting a module where it was: %w", err)
	}
	return nil
}

// SamePlaces returns ErrMoved, with an example, if variables are not where they were.
func SamePlaces(was, now []device.Global) error {
	before, after := addresses(was), addresses(now)
	moved, example := 0, ""
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if at, ok := after[name]; !ok || at != before[name] {
			if moved++; moved == 1 {
				example = fmt.Sprintf("%s was at %#x and is at %#x", name, before[name], at)
			}
		}
	}
	if moved == 0 && len(before) == len(after) {
		return nil
	}
	return fmt.Errorf("%w (%d of %d: %s)", ErrMoved, moved, len(before), example)
}

func addresses(globals []device.Global) map[string]uint64 {
	all := make(map[string]uint64, len(globals))
	for _, g := range globals {
		all[g.Name] = g.Address
	}
	return all
}
