package remote

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"muster/device"
	"muster/device/curesult"
	"muster/wire"
)

// module is a loaded image.
type module struct {
	c         *Context
	id        uint32
	functions []string
	globals   []device.Global

	mu       sync.Mutex
	known    map[string]*function
	unloaded bool
}

var _ device.Module = (*module)(nil)

// Load makes the kernels and variables of an image usable.
func (c *Context) Load(image []byte) (device.Module, error) { return c.load(image, nil) }

// load loads an image. If places is not nil the variables must be those, at their addresses.
func (c *Context) load(image []byte, places []device.Global) (device.Module, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if len(image) == 0 {
		return nil, fmt.Errorf("an image without bytes: %w", device.ErrInvalidImage)
	}
	m := &module{c: c, id: c.last.Add(1), known: map[string]*function{}}
	if err := c.sendImage(m.id, image); err != nil {
		return nil, err
	}
	if places != nil {
		if err := c.sendPlaces(m.id, places); err != nil {
			return nil, err
		}
	}
	if err := m.loaded(places); err != nil {
		if c.check() == nil {
			_ = c.post(&wire.ModuleUnload{Module: m.id})
		}
		return nil, err
	}
	c.memory.know(m.globals)
	return m, nil
}

// sendImage sends an image in pieces.
func (c *Context) sendImage(id uint32, image []byte) error {
	for len(image) > 0 {
		n := min(len(image), wire.MaxPiece)
		if err := c.postData(&wire.ModuleData{Module: id}, image[:n]); err != nil {
			return err
		}
		image = image[n:]
	}
	return nil
}

// sendPlaces tells the lender the addresses for an image's variables.
func (c *Context) sendPlaces(id uint32, places []device.Global) error {
	var data []byte
	for _, g := range places {
		data = binary.LittleEndian.AppendUint64(data, g.Address)
		data = binary.LittleEndian.AppendUint64(data, g.Size)
		data = binary.LittleEndian.AppendUint32(data, flag(g.Managed))
		data = binary.LittleEndian.AppendUint32(data, uint32(len(g.Name)))
		data = append(data, g.Name...)
	}
	const most = 4 << 20
	if len(data) > most {
		return fmt.Errorf("an image with %d variables, more than can be placed on another node's device: %w", len(places), device.ErrNotSupported)
	}
	return c.postData(&wire.ModulePlace{Module: id}, data)
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// loaded makes the lender load the image that it was sent, and asks for the names in it and the
// addresses of its variables.
func (m *module) loaded(places []device.Global) error {
	result, err := m.c.call(&wire.ModuleLoad{Module: m.id}, &wire.ModuleLoadReply{})
	if err != nil {
		return err
	}
	if result != curesult.Success {
		return refused("loading an image", result, m.c.log(m.id))
	}
	variables, err := m.names()
	if err != nil {
		return err
	}
	if places != nil && !slices.Equal(variables, namesOf(places)) {
		return fmt.Errorf("the image has other variables than those that are to be placed: %w", device.ErrInvalidValue)
	}
	replies := make([]wire.ModuleGlobalReply, len(variables))
	asked := make([]*outcome, len(variables))
	for i, name := range variables { // send all questions first: that costs one round trip instead of many
		if asked[i], err = m.c.ask(&wire.ModuleGlobal{Module: m.id, Name: name}, span{}); err != nil {
			return err
		}
	}
	for i, name := range variables {
		result, err := asked[i].wait(&replies[i])
		if err != nil {
			return err
		}
		if result != curesult.Success {
			return refused("variable "+name, result, m.c.why())
		}
		r := &replies[i]
		m.globals = append(m.globals, device.Global{Name: name, Address: r.Addr, Size: r.Size, Managed: r.Managed != 0})
	}
	return m.c.believable(m.globals, places)
}

// believable refuses variables that no honest lender reports: in the arena, or at other addresses
// than those in places.
func (c *Context) believable(all, places []device.Global) error {
	for i, g := range all {
		a := c.memory.arena
		if g.Size == 0 || g.Address+g.Size < g.Address || g.Address < a.Base+a.Size && g.Address+g.Size > a.Base {
			c.end(lost(fmt.Sprintf("the lender has a variable of %d bytes at %#x", g.Size, g.Address)))
			return c.ended()
		}
		if places != nil && (g.Address != places[i].Address || g.Size != places[i].Size) {
			return fmt.Errorf("variable %s is at %#x and was to be at %#x: %w", g.Name, g.Address, places[i].Address, device.ErrInvalidValue)
		}
	}
	return nil
}

func namesOf(all []device.Global) []string {
	var names []string
	for _, g := range all {
		names = append(names, g.Name)
	}
	return names
}

// log returns the lender's compiler log of an image, or else the latest reason that it gave.
func (c *Context) log(id uint32) string {
	var reply wire.ModuleLogReply
	text, err := c.fetch("the log of a module", &wire.ModuleLog{Module: id}, &reply, func() uint64 { return uint64(reply.Size) })
	if why := c.why(); err != nil || len(text) == 0 {
		return why
	}
	return strings.TrimRight(string(text), "\n\x00")
}

// names asks for the names in the image. It keeps those of kernels and returns those of variables.
func (m *module) names() ([]string, error) {
	var reply wire.ModuleNamesReply
	text, err := m.c.fetch("the names in an image", &wire.ModuleNames{Module: m.id}, &reply, func() uint64 { return reply.Total })
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		names = append(names, string(name))
	}
	if len(text) == 0 {
		names = names[:0]
	}
	functions := int(reply.Functions)
	if functions > len(names) || len(names)-functions != int(reply.Globals) || !slices.IsSorted(names[:functions]) || !slices.IsSorted(names[functions:]) {
		m.c.end(lost("the lender names other kernels and variables than it counts"))
		return nil, m.c.ended()
	}
	m.functions = names[:functions:functions]
	return names[functions:], nil
}

// check returns why the module cannot be used, or nil.
func (m *module) check() error {
	if err := m.c.check(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unloaded {
		return fmt.Errorf("the module: %w", device.ErrClosed)
	}
	return nil
}

// Functions returns the names of the kernels.
func (m *module) Functions() []string { return slices.Clone(m.functions) }

// Globals returns the variables.
func (m *module) Globals() []device.Global { return slices.Clone(m.globals) }

// Global returns one variable.
func (m *module) Global(name string) (device.Global, error) {
	if err := m.check(); err != nil {
		return device.Global{}, err
	}
	for _, g := range m.globals {
		if g.Name == name {
			return g, nil
		}
	}
	return device.Global{}, fmt.Errorf("variable %q: %w", name, device.ErrNotFound)
}

// Unload makes the lender unload the module. Launches of its kernels may still be kept in streams;
// flush waits until they were sent, or they would name a module that is gone.
func (m *module) Unload() error {
	if err := m.check(); err != nil {
		return err
	}
	m.mu.Lock()
	m.unloaded = true
	m.mu.Unlock()
	m.c.memory.forget(m.globals)
	if err := m.c.flush(); err != nil {
		return err
	}
	return m.c.post(&wire.ModuleUnload{Module: m.id})
}

// flush waits until all streams have sent the work that they keep now.
func (c *Context) flush() error {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.streams))
	c.mu.Unlock()
	for _, s := range all {
		s.order.Lock()
		running := s.kept.busy()
		var err error
		sent := newFuture()
		if running {
			err = s.submit(job{send: func() error { close(sent.done); return nil }}, false)
		}
		s.order.Unlock()
		if err != nil {
			return err
		}
		if running && !c.happened([]*future{sent}) {
			return c.ended()
		}
	}
	return nil
}

// Link makes the lender link several images into one, and fetches the result.
func (c *Context) Link(l device.Link) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	id := c.last.Add(1)
	if err := c.sendImage(id, linkBytes(l)); err != nil {
		return nil, err
	}
	var made wire.ModuleLinkReply
	result, err := c.call(&wire.ModuleLink{Module: id, Check: flag(l.Check)}, &made)
	if err != nil {
		return nil, err
	}
	if result != curesult.Success {
		return nil, refused("linking", result, c.log(id))
	}
	if l.Check {
		return nil, nil
	}
	image, err := c.fetchImage(id, made.Size)
	if c.check() == nil {
		_ = c.post(&wire.ModuleUnload{Module: id})
	}
	return image, err
}

// maxLinked is the longest linked image, in bytes, that is accepted from a lender.
const maxLinked = 1 << 30

func (c *Context) fetchImage(id uint32, size uint64) ([]byte, error) {
	if size > maxLinked {
		return nil, fmt.Errorf("a linked image of %d bytes: at most %d: %w", size, maxLinked, device.ErrNotSupported)
	}
	var image []byte
	for uint64(len(image)) < size {
		var reply wire.ModuleFetchReply
		part, err := c.fetch("a linked image", &wire.ModuleFetch{Module: id, Offset: uint64(len(image))}, &reply, func() uint64 { return uint64(reply.Size) })
		if err != nil {
			return nil, err
		}
		if len(part) == 0 {
			return nil, fmt.Errorf("a linked image breaks off after %d of %d bytes: %w", len(image), size, device.ErrInvalidImage)
		}
		image = append(image, part...)
	}
	return image, nil
}

// linkBytes encodes the inputs and options of a link; node/worker/link.go decodes them.
func linkBytes(l device.Link) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(l.Options)))
	for _, o := range l.Options {
		b = le.AppendUint64(le.AppendUint32(b, o.Option), o.Value)
	}
	for _, in := range l.Inputs {
		b = le.AppendUint32(le.AppendUint32(b, uint32(in.Kind)), uint32(len(in.Name)))
		b = le.AppendUint64(b, uint64(len(in.Data)))
		b = append(append(b, in.Name...), in.Data...)
	}
	return b
}
