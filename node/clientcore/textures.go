package clientcore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// Textures are the client's texture and surface objects, by the handles that its program was told.
// Kernels find handles in their parameters and in memory, so an object keeps its handle wherever
// the client goes. The contents of arrays are ordinary memory of the client.
type Textures map[TextureID]*device.Texture

// textures makes the client's textures, in each context that its kernels come to.
type textures struct {
	*standing
	Textures Textures
	queue    *queue
	memory   *memory
	shared   *shared
	modules  *modules
	arrival  *arrival

	making []Textured // what the operation that asks is about
}

func (ts *textures) register(h *handlers) {
	h[wire.OpTextureCreate] = decoding(ts.textureCreate)
	h[wire.OpTextureDestroy] = decoding(ts.textureDestroy)
}

func (ts *textures) save(to *State)   { to.Textures = ts.Textures }
func (ts *textures) load(from *State) { ts.Textures = from.Textures }

// TextureID names a texture or a surface. Devices may number the two separately.
type TextureID struct {
	Handle  uint64
	Surface bool
}

// MarshalText writes the name as a key of JSON: "texture 7".
func (id TextureID) MarshalText() ([]byte, error) {
	kind := "texture"
	if id.Surface {
		kind = "surface"
	}
	return fmt.Appendf(nil, "%s %d", kind, id.Handle), nil
}

// UnmarshalText reads what MarshalText writes.
func (id *TextureID) UnmarshalText(text []byte) error {
	kind, number, _ := strings.Cut(string(text), " ")
	if kind != "texture" && kind != "surface" {
		return fmt.Errorf("%q is neither a texture nor a surface", text)
	}
	handle, err := strconv.ParseUint(number, 10, 64)
	*id = TextureID{handle, kind == "surface"}
	return err
}

func (id TextureID) compare(other TextureID) int {
	if order := cmp.Compare(id.Handle, other.Handle); order != 0 || id.Surface == other.Surface {
		return order
	}
	if other.Surface {
		return -1
	}
	return 1
}

// Textured is a texture for a context, and the handle that it must have there; 0: any.
type Textured struct {
	Handle  uint64
	Texture device.Texture
}

func (t *Textured) id() TextureID { return TextureID{t.Handle, t.Texture.Surface} }

// textureCreate makes a texture or a surface in the open context, or in one that the client gets
// first: on some devices only a context can choose the handle.
func (ts *textures) textureCreate(m *Message, d *wire.TextureCreate) (bool, error) {
	t := textureOf(d)
	if err := t.Check(); err != nil {
		return true, err
	}
	if !ts.backed(&t) {
		return true, fmt.Errorf("a texture of %d bytes at %#x: no memory of the program's: %w", t.Bytes(), t.Address, device.ErrInvalidValue)
	}
	if len(ts.Textures) >= maxObjects {
		return true, tooMany("textures")
	}
	if ts.queue.found() != nil {
		found := ts.queue.Head.found
		if found.Err != nil {
			return true, found.Err
		}
		id := TextureID{found.Handle, t.Surface}
		if id.Handle == 0 || ts.Textures[id] != nil {
			return true, fmt.Errorf("handle %#x of a texture is taken: %w", found.Handle, device.ErrNotSupported)
		}
		if ts.Textures == nil {
			ts.Textures = Textures{}
		}
		ts.Textures[id] = &t
		ts.reply(m.Header.Slot, success, (&wire.TextureCreateReply{Handle: found.Handle}).Append(nil))
		return true, nil
	}
	if ok, err := ts.arrival.ready(need{ranges: ts.withTextures(nil, &t), arrays: []*device.Texture{&t}}); !ok || err != nil {
		return ok, err
	}
	handle := ts.freeHandle()
	if d.Wanted != 0 {
		handle = d.Wanted
	}
	ts.makeAt(ts.here(), []Textured{{handle, t}})
	return false, nil
}

// makeAt has textures made in a context.
func (ts *textures) makeAt(x *Context, all []Textured) {
	ts.making = all
	ts.ask(Op{Kind: MakeTextures, Place: x.Place, Textures: all})
}

// freeHandle is the handle of a new texture: the lowest free number if all devices let the core
// choose; otherwise 0, for the device's choice.
func (ts *textures) freeHandle() uint64 {
	if !ts.config.puts {
		return 0
	}
	for handle := uint64(1); ; handle++ {
		if ts.Textures[TextureID{handle, false}] == nil && ts.Textures[TextureID{handle, true}] == nil {
			return handle
		}
	}
}

func (ts *textures) textureDestroy(_ *Message, d *wire.TextureDestroy) (bool, error) {
	id := TextureID{d.Handle, d.Surface != 0}
	t := ts.Textures[id]
	if t == nil {
		return true, nil // a fault came before its creation, or a reset before this
	}
	if x := ts.anyContext(); x != nil && slices.Contains(x.Textures, id) {
		ts.emit(Op{Kind: Drain, Place: x.Place})
		ts.emit(Op{Kind: DropTexture, Place: x.Place, Textures: []Textured{{d.Handle, *t}}})
		x.Textures = slices.DeleteFunc(x.Textures, func(other TextureID) bool { return other == id })
	}
	delete(ts.Textures, id)
	return true, nil
}

// lacksTextures returns the client's textures that a context does not have, sorted by handle.
// Textures whose memory was freed are left out: no kernel can use them.
func (ts *textures) lacksTextures(x *Context) []Textured {
	if len(ts.Textures) == len(x.Textures) {
		return nil
	}
	var lacks []Textured
	for _, id := range slices.SortedFunc(maps.Keys(ts.Textures), TextureID.compare) {
		if t := ts.Textures[id]; !slices.Contains(x.Textures, id) && ts.backed(t) {
			lacks = append(lacks, Textured{id.Handle, *t})
		}
	}
	return lacks
}

// madeTextures notes which textures a context was given. It returns why the message that waits cannot be
// done without them.
func (ts *textures) madeTextures(o Outcome) error {
	made := ts.making
	ts.making = nil
	x := ts.here()
	if len(made) == 1 && ts.Textures[made[0].id()] == nil { // a new one: its message waits
		if o.Err == nil && x != nil {
			x.Textures = append(x.Textures, TextureID{o.Handle, made[0].Texture.Surface})
		}
		ts.queue.Head.found = &o
		return nil
	}
	if o.Err != nil {
		return fmt.Errorf("the program's textures on %s: %w", ts.config.Devices[ts.Lease.Device].Name, o.Err)
	}
	for _, t := range made {
		x.Textures = append(x.Textures, t.id())
	}
	return nil
}

// backed says whether the memory of a texture is the client's.
func (ts *textures) backed(t *device.Texture) bool {
	r := vmm.Range{Addr: t.Address, Size: t.Bytes()}
	return ts.memory.space.Check(r) == nil || ts.modules.holds(r.Addr, r.Size) || ts.shared.sharesRange(r)
}

// withTextures adds to ranges the allocations that textures read, in order: kernels may use all of them, whatever
// their parameters are.
func (ts *textures) withTextures(ranges []vmm.Range, more ...*device.Texture) []vmm.Range {
	for _, t := range slices.AppendSeq(more, maps.Values(ts.Textures)) {
		if r, ok := ts.memory.space.Find(t.Address); ok {
			ranges = append(ranges, r)
		}
	}
	slices.SortFunc(ranges, func(a, b vmm.Range) int { return cmp.Compare(a.Addr, b.Addr) })
	return slices.Compact(ranges)
}

// beside is how many bytes a context takes besides the client's memory: variables of modules and,
// on devices that keep arrays in a form of their own, arrays, including those of more.
func (ts *textures) beside(more ...*device.Texture) uint64 {
	size := ts.modules.Variables
	if ts.config.puts || len(ts.Textures)+len(more) == 0 {
		return size
	}
	arrays := map[uint64]uint64{}
	for _, t := range slices.AppendSeq(more, maps.Values(ts.Textures)) {
		if t.Resource == device.ArrayResource || t.Resource == device.MipmapResource {
			arrays[t.Address] = max(arrays[t.Address], t.Bytes())
		}
	}
	for _, bytes := range arrays {
		size += (bytes + ts.config.Chunk - 1) &^ (ts.config.Chunk - 1)
	}
	return size
}

func (ts *textures) check() error {
	for id, t := range ts.Textures {
		if t == nil || id.Handle == 0 || t.Surface != id.Surface {
			return errors.New("a texture is missing")
		}
		if err := t.Check(); err != nil {
			return err
		}
	}
	for _, x := range ts.Contexts {
		for _, id := range x.Textures {
			if ts.Textures[id] == nil {
				return fmt.Errorf("texture %d is in a context, and not the client's", id.Handle)
			}
		}
	}
	return nil
}

// textureOf returns the texture that a message describes.
func textureOf(d *wire.TextureCreate) device.Texture {
	t := device.Texture{
		Surface: d.Surface != 0, Resource: device.Resource(d.Resource), Address: d.Addr, Format: d.Format, Channels: d.Channels,
		Width: d.Width, Height: d.Height, Depth: d.Depth, Flags: d.ArrayFlags, Levels: d.Levels, Level: d.Level, Size: d.Size, Pitch: d.Pitch,
		Sampler: device.Sampler{
			Address: [3]uint32{d.AddressX, d.AddressY, d.AddressZ}, Filter: d.Filter, Flags: d.Flags, Anisotropy: d.Anisotropy,
			MipFilter: d.MipFilter, Bias: d.Bias, Min: d.MinLevel, Max: d.MaxLevel, Border: [4]uint32{d.BorderR, d.BorderG, d.BorderB, d.BorderA},
		},
	}
	if d.HasView != 0 {
		t.View = &device.View{
			Format: int(d.ViewFormat), Width: d.ViewWidth, Height: d.ViewHeight, Depth: d.ViewDepth,
			FirstLevel: d.FirstLevel, LastLevel: d.LastLevel, FirstLayer: d.FirstLayer, LastLayer: d.LastLayer,
		}
	}
	return t
}
