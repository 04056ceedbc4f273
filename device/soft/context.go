package soft

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/ptx/simt"
	"muster/ptx/simt/heap"
	"muster/ptx/simt/memcheck"
)

// Context is one client's part of a software device.
//
// Streams and changes of memory exclude each other as follows. A goroutine that works for a
// stream sets stream.busy, under mu, while it touches device memory, and may set it only if
// stream.mustWait is false. A goroutine that takes memory away raises pauses, stops the running
// kernels, and waits until no stream is busy (still). Every change that may let a waiting goroutine
// continue (a stream is no longer busy or held, pauses drops, a queue gets shorter, the context ends)
// is followed by a broadcast on changed.
type Context struct {
	dev *Device
	device.ContextCan
	mem             *memory
	print, complain func(text []byte) // serialised by newContext; nil drops the text
	checker         *memcheck.Checker // nil if nothing is checked
	limit           device.KernelLimit
	// textures is read by running kernels without a lock. newTexture and dropTexture replace the
	// whole table, under mu.
	textures atomic.Pointer[textures]

	// loading is held from the choice of a module's addresses until they are mapped, so that two
	// loads cannot choose the same. It is taken before mu.
	loading sync.Mutex

	mu       sync.Mutex // guards all fields below, except allocated
	changed  sync.Cond  // of the conditions above, with mu as its lock
	streams  []*stream  // all that are open or still have work
	modules  []*module
	pauses   int            // calls of still that want no stream to be busy
	err      error          // why the context has ended, or nil
	ended    chan struct{}  // closed when err is set
	serving  sync.WaitGroup // goroutines that do the work of streams
	closed   bool
	released chan struct{} // closed when Close has given everything back
	closeErr error         // readable once released is closed

	heap *heap.Heap // of kernels that call malloc; nil if the arena has no room for it

	// allocated is what the checker knows. Only know uses it, and the contract allows one call of
	// know at a time.
	allocated map[device.Arena]bool
}

var _ device.Context = (*Context)(nil)

func newContext(d *Device, m *memory, config device.Config) *Context {
	c := &Context{dev: d, mem: m, ended: make(chan struct{}), released: make(chan struct{})}
	c.changed.L = &c.mu
	if d.info.StopsKernels {
		c.limit = config.Kernels
	}
	var one sync.Mutex
	alone := func(say func([]byte)) func([]byte) {
		if say == nil {
			return nil
		}
		return func(text []byte) {
			one.Lock()
			defer one.Unlock()
			say(text)
		}
	}
	c.print, c.complain = alone(config.Print), alone(config.Complain)
	c.heap = heapOf(m, device.DefaultHeap)
	c.ContextCan = device.ContextCan{
		Self: c, SetLimit: c.setLimit, Ask: c.ask, MapHost: c.mapHost, NewShared: c.newShared, MapShared: c.mapShared,
		NewTexture: c.newTexture, DropTexture: c.dropTexture,
	}
	if d.profile.Check.Any() {
		c.checker = memcheck.New(d.profile.Check, 0, c.report)
		c.Know = c.know
	}
	return c
}

// heapOf returns a heap of the given size; nil if the arena is too small for it.
func heapOf(m *memory, size uint64) *heap.Heap {
	at := m.arena.at.Heap(size)
	if at.Size == 0 {
		return nil
	}
	return heap.New(at.Base, at.Size)
}

// setLimit sets the size of the heap. The other limits mean nothing to a software device.
func (c *Context) setLimit(limit int, value uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || limit != device.LimitHeap {
		return c.err
	}
	heap := heapOf(c.mem, value) // nil: launches that need one are refused
	// A heap ends at a fixed address, so an equal base means an equal size. The old value is kept
	// then: running kernels share the lock in it, and new launches must use the same lock.
	if heap == nil || c.heap == nil || c.heap.Base != heap.Base {
		c.heap = heap
	}
	return nil
}

// Err returns why the context has ended, or nil.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end makes err the answer to every call from now on and stops all work. Later errors do
// not replace the first one; only Close does, with ErrClosed.
func (c *Context) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(err)
}

func (c *Context) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	close(c.ended)
	c.stopKernels()
	c.changed.Broadcast()
}

// stopKernels asks running kernels to return at the next instruction. The caller must hold c.mu.
func (c *Context) stopKernels() {
	for _, s := range c.streams {
		if k := s.running(); s.busy && k != nil {
			k.execution.Stop()
		}
	}
}

// Close stops all work and gives all memory back. The memory may be released only after all
// goroutines of streams have ended, since they may be in the middle of a copy. A second caller
// waits for the first, so that memory is free when any Close has returned.
func (c *Context) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.released
		return c.closeErr
	}
	c.closed = true
	c.endLocked(device.ErrClosed)
	c.err = device.ErrClosed
	c.mu.Unlock()

	c.serving.Wait()
	c.closeErr = c.mem.release()
	c.dev.leave(c.mem.arena.at)
	close(c.released)
	return c.closeErr
}

// still runs change while no stream touches memory. Stopped kernels keep their state and continue
// afterwards: stream.ready holds them back while pauses is not 0. The error is that of change, or
// the context's if it has ended; change does not run then.
func (c *Context) still(change func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses++
	c.stopKernels()
	for c.err == nil && slices.ContainsFunc(c.streams, func(s *stream) bool { return s.busy }) {
		c.changed.Wait()
	}
	err := c.err
	if err == nil {
		err = change()
	}
	c.pauses--
	c.changed.Broadcast()
	return err
}

// Map puts memory at an address of the arena.
func (c *Context) Map(addr, size uint64) error {
	if err := c.checkRange(addr, size); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.mem.add(c.mem.arena, addr, size)
}

// Unmap takes memory away. Running kernels pause meanwhile; one that uses the memory later faults.
func (c *Context) Unmap(addr, size uint64) error {
	if err := c.checkRange(addr, size); err != nil {
		return err
	}
	return c.still(func() error { return c.mem.remove(c.mem.arena, addr, size) })
}

func (c *Context) checkRange(addr, size uint64) error {
	switch {
	case size == 0 || addr%granule != 0 || size%granule != 0:
		return fmt.Errorf("%d bytes at %#x: give multiples of %d: %w", size, addr, granule, device.ErrInvalidValue)
	case !c.mem.arena.at.Contains(addr, size):
		return fmt.Errorf("%d bytes at %#x: not within the arena of %d bytes at %#x: %w", size, addr, c.mem.arena.at.Size, c.mem.arena.at.Base, device.ErrInvalidValue)
	}
	return nil
}

// Memory returns the bytes that are free on the device, and the device's total.
func (c *Context) Memory() (free, total uint64, err error) {
	if err := c.Err(); err != nil {
		return 0, 0, err
	}
	return c.dev.budget.free(), c.dev.budget.total, nil
}

// Pin does nothing but check its arguments: pinned memory is no faster on this device.
func (c *Context) Pin(host []byte) (unpin func() error, err error) {
	if len(host) == 0 {
		return nil, fmt.Errorf("pinning no bytes: %w", device.ErrInvalidValue)
	}
	return func() error { return nil }, c.Err()
}

// mapHost lets kernels reach host memory at its own address.
func (c *Context) mapHost(host []byte) (unmap func() error, err error) {
	if len(host) == 0 || (addressOf(host)|uint64(len(host)))%4096 != 0 {
		return nil, fmt.Errorf("%d bytes of host memory at %#x: give multiples of 4096: %w", len(host), addressOf(host), device.ErrInvalidValue)
	}
	c.mu.Lock()
	err = c.err
	if err == nil {
		err = c.mem.addHost(host)
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if c.checker != nil {
		c.checker.Allocate(addressOf(host), uint64(len(host)), "host memory", true)
	}
	return func() error {
		return c.still(func() error {
			c.mem.removeHost(host)
			if c.checker != nil {
				c.checker.Free(addressOf(host))
			}
			return nil
		})
	}, nil
}

// NewStream makes a stream.
func (c *Context) NewStream() (device.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	s := &stream{c: c}
	s.StreamCan = device.StreamCan{CopyFrom: s.copyFrom, WriteWord: s.writeWord, WaitWord: s.waitWord, Hold: s.hold, Time: s.time}
	c.streams = append(c.streams, s)
	return s, nil
}

// NewEvent makes an event.
func (c *Context) NewEvent() (device.Event, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return &event{c: c}, nil
}

// Synchronise waits for the work of all streams. It puts a mark behind the work of each, all under
// one lock, and then waits for the marks.
func (c *Context) Synchronise(ctx context.Context) error {
	c.mu.Lock()
	var marks []*mark
	for _, s := range c.streams {
		if s.pending() {
			marks = append(marks, s.mark())
		}
	}
	c.mu.Unlock()
	for _, m := range marks {
		if err := c.await(ctx, m); err != nil {
			return err
		}
	}
	return c.Err()
}

// await waits until a mark is reached. If the context ends first, it returns the context's error.
func (c *Context) await(ctx context.Context, m *mark) error {
	select {
	case <-m.reached:
		return c.Err()
	case <-c.ended:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// faultOf translates the engine's fault into the contract's.
func faultOf(kernel string, err error) *device.Fault {
	f, ok := err.(*simt.Fault)
	if !ok {
		return &device.Fault{Kind: device.Unspecified, Kernel: kernel, Detail: err.Error()}
	}
	kinds := map[simt.FaultKind]device.FaultKind{
		simt.IllegalAddress:     device.IllegalAddress,
		simt.WriteToReadOnly:    device.IllegalAddress,
		simt.MisalignedAddress:  device.MisalignedAddress,
		simt.Trapped:            device.Trap,
		simt.Asserted:           device.Assert,
		simt.StackOverflow:      device.StackOverflow,
		simt.IllegalCall:        device.IllegalCall,
		simt.Deadlock:           device.Deadlock,
		simt.IllegalInstruction: device.IllegalInstruction,
	}
	kind, ok := kinds[f.Kind]
	if !ok {
		kind = device.Unspecified
	}
	detail := f.Detail
	if f.Kind == simt.WriteToReadOnly {
		detail = strings.TrimSuffix("a write to read-only memory: "+detail, ": ")
	}
	return &device.Fault{
		Kind: kind, Kernel: f.Kernel, Located: true,
		Block: device.Dim(f.Block), Thread: device.Dim(f.Thread), Address: f.Address,
		Line: f.Pos.Line, Instruction: f.Line, Detail: detail,
	}
}
