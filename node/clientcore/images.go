package clientcore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"muster/device"
	"muster/wire"
)

// maxImages bounds the size of all images of a client.
const maxImages = 4 << 30

// moduleData takes a piece of an image. If there is no room, the whole image is dropped, and its
// load reports why.
func (ms *modules) moduleData(m *Message, d *wire.ModuleData) (bool, error) {
	mods := &ms.Modules
	if mods.Refused[d.Module] != nil {
		return true, nil
	}
	image, begun := mods.Images[d.Module]
	if !begun && len(mods.Images)+len(mods.Refused) >= maxObjects {
		return true, tooMany("images")
	}
	ok, err := ms.room.commit(ms.room.onHostWith(len(m.Data)))
	if len(m.Data) > maxImages-mods.Kept {
		ok, err = true, fmt.Errorf("images of more than %d bytes in all: unload modules that are not used: %w", maxImages, device.ErrOutOfMemory)
	}
	switch {
	case !ok:
		return false, nil
	case err != nil:
		ms.dropImage(d.Module)
		mods.Refused[d.Module] = failureOf(fmt.Errorf("no room on the host for the image of a module: %w", err))
		return true, nil
	}
	mods.Kept += len(m.Data)
	mods.Images[d.Module] = append(image, m.Data...)
	return true, nil
}

// moduleLoad makes a module of the image that was sent.
func (ms *modules) moduleLoad(m *Message, d *wire.ModuleLoad) (bool, error) {
	serial, begun := ms.ByID[d.Module]
	if begun && (ms.queue.Head == nil || !ms.queue.Head.Made) {
		return true, fmt.Errorf("module %d is loaded already: %w", d.Module, ErrProtocol)
	}
	if !begun {
		if why := ms.Refused[d.Module]; why != nil {
			delete(ms.Refused, d.Module)
			return true, why
		}
		image, sent := ms.Images[d.Module]
		if !sent {
			return true, fmt.Errorf("module %d: no image was sent: %w", d.Module, ErrProtocol)
		}
		if ms.queue.found() == nil {
			ms.ask(Op{Kind: Inspect, Image: image})
			return false, nil
		}
		known, err := ms.makeModule(d.Module, image, *ms.queue.Head.found)
		if err != nil {
			return true, err
		}
		serial = ms.ByID[d.Module]
		ms.queue.Head.Made = !known
	}
	mod := ms.All[serial]
	if ms.queue.Head.Made { // only a device can tell what the image contains
		ok, err := ms.arrival.ready(need{})
		if err == nil && ok && mod.Refused != nil {
			err = mod.Refused
		}
		if !ok || err != nil {
			return ok, err
		}
	}
	ms.reply(m.Header.Slot, success, (&wire.ModuleLoadReply{Functions: uint32(len(mod.Info.Functions)), Globals: uint32(len(mod.Info.Globals))}).Append(nil))
	return true, nil
}

func (ms *modules) dropImage(id uint32) {
	ms.Kept -= len(ms.Images[id])
	delete(ms.Images, id)
	delete(ms.Places, id)
}

// makeModule makes a module of an image and what was found out about it.
func (ms *modules) makeModule(id uint32, image []byte, found Outcome) (known bool, err error) {
	m := &ms.Modules
	err = found.Err
	if err == nil && len(m.ByID) >= maxObjects {
		err = tooMany("modules")
	}
	if err != nil {
		ms.dropImage(id)
		return false, err
	}
	delete(m.Images, id)
	m.Last++
	m.All[m.Last] = &Module{Image: slices.Clone(image), Info: sorted(found.Info), Due: m.Places[id]} // a copy without the spare capacity of append
	delete(m.Places, id)
	m.ByID[id] = m.Last
	m.awaits(m.Last) // the next kernel brings it to the device
	return found.Known, nil
}

// undo takes back what a message has done that ends with an error.
func (ms *modules) undo(h *Head) {
	if !h.Made {
		return
	}
	var d wire.ModuleLoad
	if d.Decode(h.Message.Body) == nil {
		ms.unload(d.Module)
	}
}

func (ms *modules) moduleUnload(_ *Message, d *wire.ModuleUnload) (bool, error) {
	ms.unload(d.Module)
	ms.room.commitLess(ms.room.onHost())
	return true, nil
}

// unload drops a module.
func (ms *modules) unload(id uint32) {
	m := &ms.Modules
	serial, ok := m.ByID[id]
	if !ok { // a reset came before, or it is the result of a link
		ms.dropImage(id)
		return
	}
	ms.leaving()
	mod := m.All[serial]
	for i, x := range ms.Contexts {
		if i == 0 && mod.Loaded || x.Has[serial] {
			ms.emit(Op{Kind: Drain, Place: x.Place})
			ms.emit(Op{Kind: Unload, Place: x.Place, Module: serial})
			delete(x.Has, serial)
		}
	}
	m.Contents -= size(mod.Saved)
	mod.Loaded, mod.Saved = false, nil
	delete(ms.due, serial)
	delete(m.ByID, id)
	m.dropFunctions(serial)
	if mod.Placed {
		m.dropVariables(mod.Info.Globals)
	}
	switch {
	case !mod.Placed:
		m.awaitsNoMore(serial)
		m.remove(serial)
	case ms.config.puts:
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

// moduleLink links the images that were sent into one. The result replaces what was sent, until the
// program has fetched it.
func (ms *modules) moduleLink(m *Message, d *wire.ModuleLink) (bool, error) {
	mods := &ms.Modules
	if why := mods.Refused[d.Module]; why != nil {
		delete(mods.Refused, d.Module)
		return true, why
	}
	image, sent := mods.Images[d.Module]
	if !sent {
		return true, fmt.Errorf("module %d: nothing was sent that could be linked: %w", d.Module, ErrProtocol)
	}
	if ms.queue.found() == nil {
		if ok, err := ms.arrival.ready(need{}); !ok || err != nil {
			if err != nil { // the program will not ask for it again
				ms.dropImage(d.Module)
			}
			return ok, err
		}
		ms.ask(Op{Kind: Link, Place: ms.here().Place, Image: image, On: d.Check != 0})
		return false, nil
	}
	linked := ms.queue.Head.found
	ms.dropImage(d.Module)
	err := linked.Err
	if err == nil && len(linked.Image) > maxImages-mods.Kept {
		err = fmt.Errorf("images of more than %d bytes in all: unload modules that are not used: %w", maxImages, device.ErrOutOfMemory)
	}
	if err != nil {
		return true, err
	}
	if d.Check == 0 {
		mods.Kept += len(linked.Image)
		mods.Images[d.Module] = slices.Clip(linked.Image)
	}
	ms.reply(m.Header.Slot, success, (&wire.ModuleLinkReply{Size: uint64(len(linked.Image))}).Append(nil))
	return true, nil
}

// moduleFetch returns a part of an image that a link has made.
func (ms *modules) moduleFetch(m *Message, d *wire.ModuleFetch) (bool, error) {
	image, ok := ms.Images[d.Module]
	if !ok || d.Offset > uint64(len(image)) {
		return true, fmt.Errorf("byte %d of the image of module %d: %w", d.Offset, d.Module, errHandle)
	}
	part := image[d.Offset:]
	part = part[:min(uint64(len(part)), m.Header.Length)]
	ms.write(m, part)
	ms.reply(m.Header.Slot, success, (&wire.ModuleFetchReply{Size: uint32(len(part))}).Append(nil))
	return true, nil
}

// Refusal is why an image was not loaded.
type Refusal struct {
	Module uint32
	Log    string
}

const (
	maxRefusals = 8       // that are kept for module_log
	maxLog      = 8 << 10 // bytes of each
)

// refusedLoad keeps the log of a load or a link that failed, for module_log.
func (ms *modules) refusedLoad(m *Message, why error) {
	var load wire.ModuleLoad
	var link wire.ModuleLink
	module := uint32(0)
	switch {
	case m.Header.Op == wire.OpModuleLoad && load.Decode(m.Body) == nil:
		module = load.Module
	case m.Header.Op == wire.OpModuleLink && link.Decode(m.Body) == nil:
		module = link.Module
	default:
		return
	}
	all := append(ms.Refusals, Refusal{Module: module, Log: logOf(why)})
	ms.Refusals = slices.Clone(all[max(0, len(all)-maxRefusals):])
}

// logOf writes an error in the form of a compiler's log.
func logOf(why error) string {
	var b strings.Builder
	for line := range strings.Lines(why.Error()) {
		b.WriteString("error: " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if b.Len() <= maxLog {
		return b.String()
	}
	whole := b.String()[:maxLog]
	return whole[:strings.LastIndexByte(whole, '\n')+1]
}

func (ms *modules) moduleLog(m *Message, d *wire.ModuleLog) (bool, error) {
	log := ""
	for _, r := range ms.Refusals {
		if r.Module == d.Module {
			log = r.Log
		}
	}
	log = log[:min(uint64(len(log)), m.Header.Length)]
	ms.write(m, []byte(log))
	ms.reply(m.Header.Slot, success, (&wire.ModuleLogReply{Size: uint32(len(log))}).Append(nil))
	return true, nil
}

// modulePlace notes where the variables of the module that is loaded next are to be.
func (ms *modules) modulePlace(m *Message, d *wire.ModulePlace) (bool, error) {
	if _, loaded := ms.ByID[d.Module]; loaded || len(ms.Places) >= maxObjects {
		return true, fmt.Errorf("module %d is loaded already, or there are too many: %w", d.Module, ErrProtocol)
	}
	globals, err := decodePlaces(m.Data)
	if err != nil {
		return true, err
	}
	if ms.Places == nil {
		ms.Places = map[uint32][]device.Global{}
	}
	ms.Places[d.Module] = globals
	return true, nil
}

// decodePlaces decodes where variables are to be. Without an error it never returns nil: a module
// without variables is placed, too.
func decodePlaces(data []byte) ([]device.Global, error) {
	globals := []device.Global{}
	const head = 8 + 8 + 4 + 4
	le := binary.LittleEndian
	for len(data) > 0 {
		if len(data) < head || uint64(len(data)-head) < uint64(le.Uint32(data[20:])) {
			return nil, fmt.Errorf("the places of variables are cut short: %w", ErrProtocol)
		}
		name := head + int(le.Uint32(data[20:]))
		globals = append(globals, device.Global{Address: le.Uint64(data), Size: le.Uint64(data[8:]), Managed: le.Uint32(data[16:]) != 0, Name: string(data[head:name])})
		data = data[name:]
	}
	return globals, nil
}
