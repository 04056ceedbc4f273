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
	"muster/device/cuda/ranges"
	"muster/device/cuda/sieve"
)

// gpuContext is a context of the driver with an arena.
type gpuContext struct {
	dev *gpu
	device.ContextCan
	handle C.mcu_handle
	config device.Config // zero until complete has reserved the arena

	sieve  *sieve.Sieve // picks failed assertions out of standard error; nil without Config.Complain
	prints *prints      // what kernels print; nil if standard output is not redirected

	// printing counts the launches of kernels that may print, and collected is how many of those have
	// ended and had their text passed on. Where the two are equal there is nothing to pass on.
	printing, collected atomic.Uint64

	assertions sync.Once // the messages of failed assertions were passed on

	mapping sync.Mutex // held while mapped memory changes

	// use is held for reading during calls of the driver, and for writing by split and
	// Close, which need that no goroutine calls the driver meanwhile.
	use sync.RWMutex

	mu        sync.Mutex // guards the fields up to events; held for moments only
	mapped    ranges.Pieces
	variables ranges.Variables
	streams   []*stream        // that are not destroyed
	marks     []C.mcu_handle   // free events without a time
	slabs     []unsafe.Pointer // pinned memory of the rings, of bulk and of gates
	gates     gates
	rings     []*ring       // that no stream uses
	pins      []*pin        // sorted by address
	err       error         // why the context has ended, or nil
	ended     chan struct{} // closed when err is set
	closed    bool
	released  chan struct{} // closed when Close has given everything back
	closeErr  error
	events    uint64 // number of events made so far

	textures textures // has its own lock
	bulk     bulk     // has its own lock
	echo     echo     // for copies to the device that are also kept on the host; has its own lock
	launcher launcher // has its own lock

	unmapped atomic.Uint64 // number of calls of Unmap

	stacks sync.Mutex // guards stack, also while the driver enlarges it
	stack  uint64     // bytes per thread
}

var _ device.Context = (*gpuContext)(nil)

func newContext(d *gpu, handle C.mcu_handle, stack uint64) *gpuContext {
	c := &gpuContext{dev: d, handle: handle, stack: stack, ended: make(chan struct{}), released: make(chan struct{})}
	c.ContextCan = device.ContextCan{
		SetLimit: c.setLimit, NewStreamOf: c.newStreamOf, Ask: c.ask, MapHost: c.mapHost, NewShared: c.newShared, MapShared: c.mapShared,
		NewTexture: c.newTexture, DropTexture: c.dropTexture,
	}
	return c
}

// Err returns why the context has ended, or nil.
func (c *gpuContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end makes err the answer to every call from now on, unless the context has ended before.
func (c *gpuContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.ended)
	}
}

// call runs a call of the driver, after all launches that were left to the launcher. The caller must
// not hold use.
func (c *gpuContext) call(f func() C.mcu_result) error {
	c.use.RLock()
	defer c.use.RUnlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.launcher.wait()
	return c.answer(f())
}

// answer translates an answer of the driver into the contract's errors. A fault ends
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

// isDone runs a query of the driver. Unlike call it does not wait for the launcher.
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

// Waits poll the driver, because its own waits cannot be cancelled. The first eagerLooks
// polls follow each other at once, since most work is short. Then there are naps between
// them, which grow with every looksPerStep polls.
const (
	eagerLooks   = 200
	shortestNap  = 20 * time.Microsecond
	longestNap   = 500 * time.Microsecond
	looksPerStep = 16
)

// wait polls until done returns true or an error, the context ends, or ctx is
// cancelled.
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

// rest sleeps with a system call: in an otherwise idle process Go's timers turn less than a millisecond
// into a whole one.
func rest(moment time.Duration) {
	t := syscall.NsecToTimespec(int64(moment))
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early, which does no harm
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

// takeMark returns an event of the driver without a time. giveMarks gives it back.
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

// growStack gives threads at least the given bytes of stack. It never shrinks the stack, since other
// launches may rely on it.
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

// setLimit sets a limit of the driver.
func (c *gpuContext) setLimit(limit int, value uint64) error {
	err := c.call(func() C.mcu_result { return C.mcu_context_limit(c.handle, C.int(limit), C.size_t(value)) })
	if err != nil {
		return fmt.Errorf("limit %d of %d: %w", limit, value, err)
	}
	return nil
}

// pin is host memory registered with the driver, so that the device can copy it directly.
type pin struct {
	host   []byte
	pinner runtime.Pinner // keeps Go's runtime from freeing the memory
	mapped bool           // kernels reach it
}

// Pin registers host memory with the driver. If the driver says that it is registered
// already, or that it cannot be, Pin does nothing: copies work without it.
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

// mapHost registers host memory with the driver such that kernels reach it. It refuses memory that
// the driver gives another address than the host's.
func (c *gpuContext) mapHost(host []byte) (unmap func() error, err error) {
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
	if i < 0 || c.closed { // Close unregisters it
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

// addPin adds registered memory to pins, which is sorted by address.
func (c *gpuContext) addPin(p *pin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.pins, p.from(), func(o *pin, at uintptr) int { return cmp.Compare(o.from(), at) })
	c.pins = slices.Insert(c.pins, i, p)
}

func (p *pin) from() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p.host))) }

// pinnedParts cuts host memory where one registration ends and the next begins, and returns the lengths
// of the parts; nil if some of the memory is not registered.
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
	sound := c.err == nil
	if sound {
		close(c.ended)
	}
	c.err = device.ErrClosed
	c.mu.Unlock()

	c.gates.close() // else streams that wait for them would never end
	c.mapping.Lock()
	defer c.mapping.Unlock()
	c.use.Lock()
	defer c.use.Unlock()
	c.closeErr = c.release(sound)
	forgetCalls(c)
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
	pins, slabs := c.pins, c.slabs
	c.mu.Unlock()
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
