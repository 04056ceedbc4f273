//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/device/cuda/ranges"
)

// textures are the texture and surface objects of a context, and the driver's arrays.
//
// The driver keeps the contents of an array in a layout of its own. So each array is
// twice on the device: as rows in memory of the arena, which copies use, and as an array of
// the driver, which kernels use through textures and surfaces. Each copy to the rows is
// followed by a copy to the array on the same stream (wrote). If kernels may have written to the
// array through a surface, each copy from the rows is preceded by a copy from the array
// (reads). So a program that orders its work as CUDA requires sees no difference.
type textures struct {
	on        *caller
	settle    func(context.Context) error  // waits for all work of the context
	reachable func(addr, size uint64) bool // says whether all of a range is memory of the context

	mu     sync.Mutex
	made   map[objectID]*array // nil for objects of other resources than arrays
	arrays map[uint64]*array   // by address
	// look is a copy of arrays that streams read without a lock; nil if there are none.
	look atomic.Pointer[[]*array]
}

type objectID struct {
	handle  uint64
	surface bool
}

// array is an array of the driver.
type array struct {
	address, size uint64
	element       uint64
	levels        []device.ArrayLevel
	mipmap        bool
	handle        C.mcu_handle
	each          []C.mcu_handle // handles of the levels
	users         int            // textures and surfaces of it; guarded by textures.mu
	written       atomic.Bool    // kernels may have written to it: it has, or had, a surface
}

// maxSpare is how many objects NewTexture makes at most until one has the wanted handle.
const maxSpare = 1 << 14

// newTexture makes a texture or a surface. The driver chooses the handles. To get a wanted handle,
// newTexture makes objects until one has it, and destroys the others only afterwards: destroyed
// earlier, they would get the same handles again.
func (x *textures) newTexture(t device.Texture, wanted uint64) (handle uint64, err error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var of *array
	if t.Resource == device.ArrayResource || t.Resource == device.MipmapResource {
		if of, err = x.arrayOf(&t); err != nil {
			return 0, err
		}
		defer x.dropUnused(of)
	}
	var spare []uint64
	defer func() {
		for _, h := range slices.Backward(spare) {
			_ = x.destroyTexture(objectID{h, t.Surface})
		}
	}()
	for {
		if handle, err = x.createTexture(&t, of); err != nil {
			return 0, err
		}
		if wanted == 0 || handle == wanted {
			break
		}
		spare = append(spare, handle)
		if len(spare) == maxSpare {
			return 0, fmt.Errorf("the driver gives no texture the handle %#x, by which the program knows it: %w", wanted, device.ErrNotSupported)
		}
	}
	if x.made == nil {
		x.made = map[objectID]*array{}
	}
	x.made[objectID{handle, t.Surface}] = of
	if of != nil {
		of.users++
		if t.Surface {
			of.written.Store(true)
		}
	}
	return handle, nil
}

// dropTexture destroys a texture or a surface, and with its last one also the array.
func (x *textures) dropTexture(handle uint64, surface bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := objectID{handle, surface}
	of, ok := x.made[id]
	if !ok {
		return fmt.Errorf("texture %#x: %w", handle, device.ErrNotFound)
	}
	delete(x.made, id)
	err := x.destroyTexture(id)
	if of != nil {
		of.users--
		x.dropUnused(of)
	}
	return err
}

func (x *textures) destroyTexture(id objectID) error {
	surface := C.int(0)
	if id.surface {
		surface = 1
	}
	return x.on.call(func() C.mcu_result { return C.mcu_texture_destroy(x.on.handle, C.uint64_t(id.handle), surface) })
}

// arrayOf returns the driver's array for the memory of a texture. It makes one with the memory's
// contents if there is none. The caller must hold x.mu.
func (x *textures) arrayOf(t *device.Texture) (*array, error) {
	if a := x.arrays[t.Address]; a != nil {
		return a, nil
	}
	a := &array{address: t.Address, element: device.ElementSize(t.Format, t.Channels), mipmap: t.Levels > 1 || t.Resource == device.MipmapResource}
	a.levels, a.size = t.ArrayLevels()
	shape := C.mcu_array{
		width: C.size_t(t.Width), height: C.size_t(t.Height), depth: C.size_t(t.Depth),
		format: C.uint(t.Format), channels: C.uint(t.Channels), flags: C.uint(t.Flags), levels: 0,
	}
	if a.mipmap {
		shape.levels = C.uint(len(a.levels))
	}
	if err := x.on.call(func() C.mcu_result { return C.mcu_array_create(x.on.handle, &shape, &a.handle) }); err != nil {
		return nil, fmt.Errorf("an array of %d bytes: %w", a.size, err)
	}
	a.each = []C.mcu_handle{a.handle}
	if a.mipmap {
		a.each = make([]C.mcu_handle, len(a.levels))
		for i := range a.each {
			if err := x.on.call(func() C.mcu_result { return C.mcu_array_level(x.on.handle, a.handle, C.uint(i), &a.each[i]) }); err != nil {
				x.destroyArray(a)
				return nil, err
			}
		}
	}
	if x.arrays == nil {
		x.arrays = map[uint64]*array{}
	}
	// From here on copies also reach the array. Copies submitted before do not; they must have
	// ended before the contents are taken over.
	x.arrays[t.Address] = a
	x.publish()
	err := x.settle(context.Background())
	if err == nil && x.reachable(a.address, a.size) {
		err = x.copyBlocks(0, a, true, a.address, a.size)
	}
	if err == nil {
		err = x.on.call(func() C.mcu_result { return C.mcu_context_synchronise(x.on.handle) })
	}
	if err != nil {
		x.dropUnused(a)
		return nil, err
	}
	return a, nil
}

// publish stores the list of arrays for streams. The caller must hold x.mu.
func (x *textures) publish() {
	if len(x.arrays) == 0 {
		x.look.Store(nil)
		return
	}
	all := make([]*array, 0, len(x.arrays))
	for _, a := range x.arrays {
		all = append(all, a)
	}
	x.look.Store(&all)
}

// dropUnused destroys an array that no texture or surface uses. The caller must hold x.mu.
func (x *textures) dropUnused(a *array) {
	if a.users > 0 || x.arrays[a.address] != a {
		return
	}
	delete(x.arrays, a.address)
	x.publish()
	if a.written.Load() { // save what kernels have written through surfaces
		if err := x.settle(context.Background()); err == nil && x.reachable(a.address, a.size) {
			_ = x.copyBlocks(0, a, false, a.address, a.size)
			_ = x.on.call(func() C.mcu_result { return C.mcu_context_synchronise(x.on.handle) })
		}
	}
	x.destroyArray(a)
}

func (x *textures) destroyArray(a *array) {
	mipmap := C.int(0)
	if a.mipmap {
		mipmap = 1
	}
	_ = x.on.call(func() C.mcu_result { return C.mcu_array_destroy(x.on.handle, a.handle, mipmap) })
}

// copyBlocks copies a range of an array's memory to the array, or from the array if in is false.
func (x *textures) copyBlocks(stream C.mcu_handle, a *array, in bool, addr, size uint64) error {
	direction := C.int(0)
	if in {
		direction = 1
	}
	from, to := max(addr, a.address), min(addr+size, a.address+a.size)
	if from >= to {
		return nil
	}
	for _, k := range ranges.BlocksOf(a.levels, a.element, from-a.address, to-a.address) {
		l := a.levels[k.Level]
		box := C.mcu_box{
			memory: C.uint64_t(a.address + k.Offset), pitch: C.size_t(l.Width * a.element), rows: C.size_t(l.Height),
			x: C.size_t(k.X), y: C.size_t(k.Y), z: C.size_t(k.Z), width: C.size_t(k.Width), height: C.size_t(k.Height), depth: C.size_t(k.Depth),
		}
		if err := x.on.call(func() C.mcu_result { return C.mcu_array_copy(x.on.handle, stream, a.each[k.Level], &box, direction) }); err != nil {
			return err
		}
	}
	return nil
}

// overlap calls f for the arrays whose memory overlaps a range.
func (x *textures) overlap(addr, size uint64, f func(a *array) error) error {
	all := x.look.Load()
	if all == nil || size == 0 {
		return nil
	}
	for _, a := range *all {
		if addr < a.address+a.size && a.address < addr+size {
			if err := f(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrote updates arrays from memory that the stream has just been given work to write.
func (s *stream) wrote(addr, size uint64) error {
	return s.c.textures.overlap(addr, size, func(a *array) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.usable(); err != nil {
			return err
		}
		defer s.submitted.Add(1)
		return s.c.textures.copyBlocks(s.handle, a, true, addr, size)
	})
}

// reads updates memory from arrays that kernels may have written, before the stream reads the memory.
func (s *stream) reads(addr, size uint64) error {
	return s.c.textures.overlap(addr, size, func(a *array) error {
		if !a.written.Load() {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.usable(); err != nil {
			return err
		}
		defer s.submitted.Add(1)
		return s.c.textures.copyBlocks(s.handle, a, false, addr, size)
	})
}

// createTexture makes a texture or surface object in the driver.
func (x *textures) createTexture(t *device.Texture, of *array) (uint64, error) {
	d := C.mcu_texture{
		resource: C.int(t.Resource), memory: C.uint64_t(t.Address), format: C.uint(t.Format), channels: C.uint(t.Channels),
		width: C.size_t(t.Width), height: C.size_t(t.Height), pitch: C.size_t(t.Pitch), size: C.size_t(t.Size),
	}
	if t.Surface {
		d.surface = 1
	}
	switch t.Resource {
	case device.ArrayResource:
		d.array = of.each[t.Level]
	case device.MipmapResource:
		d.array = of.handle
	}
	s := &t.Sampler
	for i, mode := range s.Address {
		d.address[i] = C.int(mode)
	}
	d.filter, d.mip_filter, d.flags, d.anisotropy = C.int(s.Filter), C.int(s.MipFilter), C.uint(s.Flags), C.uint(s.Anisotropy)
	d.bias, d.min, d.max = C.uint32_t(s.Bias), C.uint32_t(s.Min), C.uint32_t(s.Max)
	for i, b := range s.Border {
		d.border[i] = C.uint32_t(b)
	}
	if v := t.View; v != nil {
		d.has_view, d.view_format = 1, C.int(v.Format)
		d.view_width, d.view_height, d.view_depth = C.size_t(v.Width), C.size_t(v.Height), C.size_t(v.Depth)
		d.first_level, d.last_level = C.uint(v.FirstLevel), C.uint(v.LastLevel)
		d.first_layer, d.last_layer = C.uint(v.FirstLayer), C.uint(v.LastLayer)
	}
	var handle C.uint64_t
	err := x.on.call(func() C.mcu_result { return C.mcu_texture_create(x.on.handle, &d, &handle) })
	if err != nil {
		return 0, fmt.Errorf("a texture: %w", err)
	}
	return uint64(handle), nil
}
