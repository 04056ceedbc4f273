//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"muster/device"
)

// gpuContext is a context of the driver's with an arena.
type gpuContext struct {
	dev    *gpu
	handle C.mcu_handle
	arena  device.Arena // zero until complete has reserved it

	print    func([]byte)
	complain func([]byte)
	sieve    *sieve      // of standard error, where the driver writes failed assertions; nil if nobody is told
	prints   *prints     // nil if what kernels print goes elsewhere
	mayPrint atomic.Bool // a module was loaded whose kernels may print

	assertions sync.Once // that did not hold are told

	mapping sync.Mutex // held by who changes what is mapped

	// use is held for reading by who calls the driver, and for writing by who
	// needs that nobody does.
	use sync.RWMutex

	mu        sync.Mutex // a small one, for all below
	mapped    pieces
	variables variables
	streams   []*stream // that are not destroyed
	marks     []C.mcu_handle
	slabs     []unsafe.Pointer // memory of all rings
	rings     []*ring          // that no stream has
	pins      []*pin
	err       error         // why the context has ended, or nil
	ended     chan struct{} // closed when err is set
	closed    bool
	released  chan struct{} // closed when Close has given everything back
	closeErr  error
	events    uint64 // made so far

	textures textures
	bulk     bulk     // has a lock of its own
	launcher launcher // has a lock of its own

	unmapped atomic.Uint64 // how often memory was

	stacks sync.Mutex // held while the stack is made larger
	stack  uint64     // bytes a thread
}

var _ device.Context = (*gpuContext)(nil)

func newContext(d *gpu, handle C.mcu_handle, stack uint64) *gpuContext {
	return &gpuContext{dev: d, handle: handle, stack: stack, ended: make(chan struct{}), released: make(chan struct{})}
}

// Err returns why the context has ended, or nil.
func (c *gpuContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end makes err the answer to every call from now on, unless there is one.
func (c *gpuContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.ended)
	}
}

// call runs a call of the driver, behind all launches. Its lock is not to be held already.
func (c *gpuContext) call(f func() C.mcu_result) error {
	c.use.RLock()
	defer c.use.RUnlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.launcher.wait()
	return c.answer(f())
}

// answer puts an answer of the driver into the contract's words. A fault ends
// the context.
func (c *gpuContext) answer(r C.mcu_result) error {
	err := failed(r)
	if err == nil {
		return nil
	}
	if f := err.fault(); f != nil {
		if f.Kind == device.Assert {
			c.asserted()
		}
		c.end(f)
		return c.Err()
	}
	return err
}

// isDone runs a query of the driver, which does not wait for launches.
func (c *gpuContext) isDone(f func() C.mcu_result) (bool, error) {
	c.use.RLock()
	defer c.use.RUnlock()
	if err := c.Err(); err != nil {
		return false, err
	}
	err := c.answer(f())
	if errors.Is(err, device.ErrNotReady) {
		return false, nil
	}
	return err == nil, err
}

// Waiting begins with many looks, since most work is short, and goes on with
// few. The driver's own waits cannot be cancelled.
const (
	eagerLooks   = 200
	shortestNap  = 20 * time.Microsecond
	longestNap   = 500 * time.Microsecond
	looksPerStep = 16
)

// wait looks again and again whether something is done, until then, the end of
// the context, or ctx's.
func (c *gpuContext) wait(ctx context.Context, done func() (bool, error)) error {
	nap := shortestNap
	for looks := 1; ; looks++ {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return c.Err()
		default:
		}
		if looks < eagerLooks {
			runtime.Gosched()
			continue
		}
		rest(nap)
		if looks%looksPerStep == 0 {
			nap = min(2*nap, longestNap)
		}
	}
}

// rest sleeps for a moment, by the system's clock: where nothing else runs, Go's own timers make
// a millisecond of less.
func rest(moment time.Duration) {
	t := syscall.NsecToTimespec(int64(moment))
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early
}

// Memory returns what is free on the device, and its size.
func (c *gpuContext) Memory() (free, total uint64, err error) {
	var n C.size_t
	if err := c.call(func() C.mcu_result { return C.mcu_context_memory(c.handle, &n) }); err != nil {
		return 0, 0, err
	}
	total = c.dev.info.Memory
	return min(uint64(n), total), total, nil
}

// Synchronise waits for the work of all streams, also of those that were
// closed since.
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

// takeMark returns an event without a time.
func (c *gpuContext) takeMark() (m C.mcu_handle, err error) {
	c.mu.Lock()
	if n := len(c.marks); n > 0 {
		m, c.marks = c.marks[n-1], c.marks[:n-1]
	}
	c.mu.Unlock()
	if m == 0 {
		err = c.call(func() C.mcu_result { return C.mcu_event_create(c.handle, 0, &m) })
	}
	return m, err
}

func (c *gpuContext) giveMarks(marks []C.mcu_handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks = append(c.marks, marks...)
}

func (c *gpuContext) reached(m C.mcu_handle) (bool, error) {
	return c.isDone(func() C.mcu_result { return C.mcu_event_query(c.handle, m) })
}

// sweep destroys the streams that are closed and have no work any more.
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

// growStack gives every thread at least so much stack.
func (c *gpuContext) growStack(bytes uint64) error {
	c.stacks.Lock()
	defer c.stacks.Unlock()
	if bytes <= c.stack {
		return nil
	}
	bytes = (bytes + 15) / 16 * 16
	if err := c.call(func() C.mcu_result { return C.mcu_context_stack(c.handle, C.size_t(bytes)) }); err != nil {
		return fmt.Errorf("%d bytes of stack a thread: %w", bytes, err)
	}
	c.stack = bytes
	return nil
}

// SetLimit sets a limit of the driver's.
func (c *gpuContext) SetLimit(limit int, value uint64) error {
	err := c.call(func() C.mcu_result { return C.mcu_context_limit(c.handle, C.int(limit), C.size_t(value)) })
	if err != nil {
		return fmt.Errorf("limit %d of %d: %w", limit, value, err)
	}
	return nil
}

// pin is host memory that the device reaches by itself.
type pin struct {
	host   []byte
	pinner runtime.Pinner // for memory of Go's
	mapped bool           // kernels reach it
}

// Pin registers host memory with the driver. Memory that is registered already
// stays as it is.
func (c *gpuContext) Pin(host []byte) (unpin func() error, err error) {
	if len(host) == 0 {
		return nil, fmt.Errorf("pinning no bytes: %w", device.ErrInvalidValue)
	}
	p := &pin{host: host}
	p.pinner.Pin(unsafe.SliceData(host))
	err = c.call(func() C.mcu_result {
		return C.mcu_host_register(c.handle, unsafe.Pointer(unsafe.SliceData(host)), C.size_t(len(host)))
	})
	if err != nil {
		p.pinner.Unpin()
		var answer *driverError
		if errors.As(err, &answer) && (answer.code == alreadyRegistered || answer.code == notSupported) {
			return func() error { return nil }, nil
		}
		return nil, fmt.Errorf("pinning %d bytes: %w", len(host), err)
	}
	c.addPin(p)
	return func() error { return c.unpin(p) }, nil
}

// Ask answers what the driver works out.
func (c *gpuContext) Ask(what int, about []byte) ([]byte, error) {
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

// MapHost registers host memory with the driver such that kernels reach it at its own
// address.
func (c *gpuContext) MapHost(host []byte) (unmap func() error, err error) {
	if len(host) == 0 {
		return nil, fmt.Errorf("mapping no bytes: %w", device.ErrInvalidValue)
	}
	p := &pin{host: host, mapped: true}
	p.pinner.Pin(unsafe.SliceData(host))
	var at C.uint64_t
	err = c.call(func() C.mcu_result {
		return C.mcu_host_map(c.handle, unsafe.Pointer(unsafe.SliceData(host)), C.size_t(len(host)), &at)
	})
	if err != nil {
		p.pinner.Unpin()
		return nil, fmt.Errorf("mapping %d bytes of host memory: %w", len(host), err)
	}
	c.addPin(p)
	if uint64(at) != uint64(uintptr(unsafe.Pointer(unsafe.SliceData(host)))) {
		_ = c.unpin(p)
		return nil, fmt.Errorf("host memory at %p is at %#x for the device: %w", unsafe.SliceData(host), uint64(at), device.ErrNotSupported)
	}
	return func() error { return c.unpin(p) }, nil
}

func (c *gpuContext) unpin(p *pin) error {
	c.mu.Lock()
	i := slices.Index(c.pins, p)
	if i < 0 || c.closed { // Close does it
		c.mu.Unlock()
		return nil
	}
	c.pins = slices.Delete(c.pins, i, i+1)
	c.mu.Unlock()
	defer p.pinner.Unpin()
	return c.call(func() C.mcu_result {
		return C.mcu_host_unregister(c.handle, unsafe.Pointer(unsafe.SliceData(p.host)))
	})
}

// addPin notes memory that is registered, in the order of addresses.
func (c *gpuContext) addPin(p *pin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.pins, p.from(), func(o *pin, at uintptr) int { return cmp.Compare(o.from(), at) })
	c.pins = slices.Insert(c.pins, i, p)
}

func (p *pin) from() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p.host))) }

// pinnedParts returns how many bytes of host memory the device reaches by itself in one
// registration after the other; nil if it does not reach all of them.
func (c *gpuContext) pinnedParts(host []byte) []int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(host)))
	end := at + uintptr(len(host))
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.pins, at, func(o *pin, at uintptr) int {
		if o.from()+uintptr(len(o.host)) <= at {
			return -1
		}
		return 1
	})
	var parts []int
	for ; at < end; i++ {
		if i == len(c.pins) || c.pins[i].from() > at {
			return nil
		}
		to := min(end, c.pins[i].from()+uintptr(len(c.pins[i].host)))
		parts = append(parts, int(to-at))
		at = to
	}
	return parts
}

// Close waits for what is under way and gives everything back.
func (c *gpuContext) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.released
		return c.closeErr
	}
	c.closed = true
	sound := c.err == nil
	if sound {
		close(c.ended)
	}
	c.err = device.ErrClosed
	c.mu.Unlock()

	c.mapping.Lock()
	defer c.mapping.Unlock()
	c.use.Lock()
	defer c.use.Unlock()
	c.closeErr = c.release(sound)
	forgetCalls(c)
	close(c.released)
	return c.closeErr
}

// release gives everything back, if the context is sound in an order that the
// driver checks. After a fault it answers every call within the context with
// the fault: memory can be given back once the context is gone, and what that
// says is of no use to anybody.
func (c *gpuContext) release(sound bool) error {
	var first error
	note := func(err *driverError) {
		if err != nil && first == nil && sound {
			first = err
		}
	}
	c.mu.Lock()
	pins, slabs := c.pins, c.slabs
	c.mu.Unlock()
	c.launcher.end()
	if err := failed(C.mcu_context_synchronise(c.handle)); err != nil {
		sound = sound && err.fault() == nil // which nobody had noticed
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
		size := C.size_t(p.size())
		note(failed(C.mcu_unmap(inside, C.uint64_t(p.from), &size, 1)))
	}
	if c.arena.Size > 0 { // else it was prepared only
		note(failed(C.mcu_reserve_free(inside, C.uint64_t(c.arena.Base), C.size_t(c.arena.Size))))
	}
	if sound {
		note(failed(C.mcu_context_destroy(c.handle)))
	}
	for _, p := range pins {
		p.pinner.Unpin()
	}
	return first
}
