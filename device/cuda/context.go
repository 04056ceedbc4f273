//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"muster/device"
	"muster/device/cuda/ranges"
)

// gpuContext is a context of the driver with an arena.
type gpuContext struct {
	dev *gpu
	device.ContextCan
	config device.Config // zero until complete has reserved the arena

	caller
	output
	pins
	stack    stack
	textures textures
	bulk     bulk
	echo     echo // for copies to the device that are also kept on the host
	gates    gates

	mapping  sync.Mutex    // held while mapped memory changes
	unmapped atomic.Uint64 // number of calls of Unmap

	mu        sync.Mutex // guards the fields below; held for moments only
	mapped    ranges.Pieces
	variables ranges.Variables
	streams   []*stream        // that are not destroyed
	slabs     []unsafe.Pointer // pinned memory of the rings, of bulk and of gates
	rings     []*ring          // that no stream uses
	closed    bool
	released  chan struct{} // closed when Close has given everything back
	closeErr  error
	events    uint64 // number of events made so far
}

var _ device.Context = (*gpuContext)(nil)

func newContext(d *gpu, handle C.mcu_handle, stack uint64) *gpuContext {
	c := &gpuContext{dev: d, caller: caller{handle: handle, ended: make(chan struct{})}, released: make(chan struct{})}
	on := &c.caller
	on.asserted = c.output.asserted
	c.output.on, c.output.idle, c.pins.on = on, c.idle, on
	c.stack.on, c.stack.bytes = on, stack
	c.textures.on, c.textures.settle, c.textures.reachable = on, c.Synchronise, c.reachable
	c.ContextCan = device.ContextCan{
		SetLimit: c.setLimit, NewStreamOf: c.newStreamOf, Ask: c.ask, MapHost: c.mapHost, NewShared: c.newShared, MapShared: c.mapShared,
		NewTexture: c.textures.newTexture, DropTexture: c.textures.dropTexture,
	}
	return c
}

// Memory returns the bytes that are free on the device, and the device's total.
func (c *gpuContext) Memory() (free, total uint64, err error) {
	var n C.size_t
	if err := c.call(func() C.mcu_result { return C.mcu_context_memory(c.handle, &n) }); err != nil {
		return 0, 0, err
	}
	total = c.dev.info.Memory
	return min(uint64(n), total), total, nil
}

// Synchronise waits for the work of all streams, including closed ones that still
// have work.
func (c *gpuContext) Synchronise(ctx context.Context) error {
	c.mu.Lock()
	all := slices.Clone(c.streams)
	c.mu.Unlock()
	var marks []C.mcu_handle
	defer func() { c.giveMarks(marks) }()
	for _, s := range all {
		m, err := s.mark()
		if err != nil {
			return err
		}
		if m != 0 {
			marks = append(marks, m)
		}
	}
	for _, m := range marks {
		if err := c.wait(ctx, func() (bool, error) { return c.reached(m) }); err != nil {
			return err
		}
	}
	c.sweep()
	c.printed()
	return c.Err()
}

// sweep destroys the streams that are closed and have no pending work.
func (c *gpuContext) sweep() {
	c.mu.Lock()
	all := slices.Clone(c.streams)
	c.mu.Unlock()
	for _, s := range all {
		if s.closed.Load() {
			s.destroyIfDone()
		}
	}
}

// setLimit sets a limit of the driver.
func (c *gpuContext) setLimit(limit int, value uint64) error {
	err := c.call(func() C.mcu_result { return C.mcu_context_limit(c.handle, C.int(limit), C.size_t(value)) })
	if err != nil {
		return fmt.Errorf("limit %d of %d: %w", limit, value, err)
	}
	return nil
}

// ask answers a question of device.ContextCan.
func (c *gpuContext) ask(what int, about []byte) ([]byte, error) {
	switch what {
	case device.AskTopology:
		pairs := c.dev.info.Multiprocessors / 2
		told := make([]byte, 2*pairs)
		return told, c.call(func() C.mcu_result {
			return C.mcu_topology(c.handle, (*C.uint8_t)(unsafe.SliceData(told)), C.size_t(pairs))
		})
	case device.AskTiled, device.AskIm2col:
		var tensor C.mcu_tensor
		if len(about) != int(unsafe.Sizeof(tensor)) {
			return nil, fmt.Errorf("a tensor in %d bytes: %w", len(about), device.ErrInvalidValue)
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&tensor)), len(about)), about)
		im2col := C.int(0)
		if what == device.AskIm2col {
			im2col = 1
		}
		made := make([]byte, C.MCU_TENSOR_MAP)
		return made, c.call(func() C.mcu_result {
			return C.mcu_tensor_map(c.handle, &tensor, im2col, (*C.uint8_t)(unsafe.SliceData(made)))
		})
	case device.AskReplaced:
		if len(about) != C.MCU_TENSOR_MAP+8 {
			return nil, fmt.Errorf("a descriptor and an address in %d bytes: %w", len(about), device.ErrInvalidValue)
		}
		made, address := bytes.Clone(about[:C.MCU_TENSOR_MAP]), binary.LittleEndian.Uint64(about[C.MCU_TENSOR_MAP:])
		return made, c.call(func() C.mcu_result {
			return C.mcu_tensor_replace(c.handle, (*C.uint8_t)(unsafe.SliceData(made)), C.uint64_t(address))
		})
	}
	return nil, fmt.Errorf("question %d to the driver: %w", what, device.ErrNotSupported)
}

// Close waits for the submitted work and gives everything back. It sets err first, so that new calls
// return; then it takes use for writing, which waits for calls that are inside the driver.
func (c *gpuContext) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.released
		return c.closeErr
	}
	c.closed = true
	c.pins.close()
	sound := c.caller.close()
	c.mu.Unlock()

	c.gates.close() // else streams that wait for them would never end
	c.mapping.Lock()
	defer c.mapping.Unlock()
	c.use.Lock()
	defer c.use.Unlock()
	c.closeErr = c.release(sound)
	forgetCalls(&c.caller)
	close(c.released)
	return c.closeErr
}

// release gives everything back. In a sound context everything must go before the
// context itself. After a fault the driver answers every call within the context with
// the fault, so the context is destroyed first and the memory is unmapped without one;
// errors mean nothing then and are dropped. The caller must hold use for writing.
func (c *gpuContext) release(sound bool) error {
	var first error
	note := func(err *driverError) {
		if err != nil && first == nil && sound {
			first = err
		}
	}
	c.mu.Lock()
	slabs := c.slabs
	c.mu.Unlock()
	pins := c.pins.close()
	c.launcher.end()
	if err := failed(C.mcu_context_synchronise(c.handle)); err != nil {
		sound = sound && err.fault() == nil // a fault that no call has seen before
		note(err)
	}
	for _, p := range pins {
		note(failed(C.mcu_host_unregister(c.handle, unsafe.Pointer(unsafe.SliceData(p.host)))))
	}
	for _, slab := range slabs {
		note(failed(C.mcu_host_free(c.handle, slab)))
	}
	inside := c.handle
	if !sound {
		note(failed(C.mcu_context_destroy(c.handle)))
		inside = 0
	}
	for _, p := range c.mapped {
		size := C.size_t(p.Size())
		note(failed(C.mcu_unmap(inside, C.uint64_t(p.From), &size, 1)))
	}
	if c.config.Arena.Size > 0 { // else it was prepared only
		note(failed(C.mcu_reserve_free(inside, C.uint64_t(c.config.Arena.Base), C.size_t(c.config.Arena.Size))))
	}
	if sound {
		note(failed(C.mcu_context_destroy(c.handle)))
	}
	for _, p := range pins {
		p.pinner.Unpin()
	}
	return first
}

// stack is how much stack the threads of a context have.
type stack struct {
	on *caller

	mu    sync.Mutex // also held while the driver enlarges it
	bytes uint64     // per thread
}

// grow gives threads at least the given bytes of stack. It never shrinks the stack, since other
// launches may rely on it.
func (s *stack) grow(bytes uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes <= s.bytes {
		return nil
	}
	bytes = (bytes + 15) / 16 * 16
	if err := s.on.call(func() C.mcu_result { return C.mcu_context_stack(s.on.handle, C.size_t(bytes)) }); err != nil {
		return fmt.Errorf("%d bytes of stack a thread: %w", bytes, err)
	}
	s.bytes = bytes
	return nil
}

// size returns the bytes of stack per thread.
func (s *stack) size() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}
