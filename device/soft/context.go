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
)

// Context is a user's part of a software device.
type Context struct {
	dev             *Device
	mem             *memory
	print, complain func(text []byte) // one call at a time; nil if nobody listens
	checker         *simt.Checker     // nil if nothing is checked
	// textures are for kernels to look into; changed under mu
	textures atomic.Pointer[textures]

	loading sync.Mutex // held while a module is given its place; taken before mu

	mu        sync.Mutex
	changed   sync.Cond // of what streams and those who hold them wait for
	streams   []*stream // that take work or have some
	modules   []*module
	suspended bool
	pauses    int            // how many want all streams to stand still for a moment
	err       error          // why the context has ended, or nil
	ended     chan struct{}  // closed when err is set
	serving   sync.WaitGroup // goroutines of streams
	closed    bool
	released  chan struct{} // closed when Close has given everything back
	closeErr  error

	heap *simt.Heap // of kernels that call malloc; guarded by mu

	allocated map[device.Arena]bool // that the checker knows; whoever calls Know uses it
}

var (
	_ device.Context   = (*Context)(nil)
	_ device.Preempter = (*Context)(nil)

	_ device.Asker      = (*Context)(nil)
	_ device.HostMapper = (*Context)(nil)
	_ device.Limiter    = (*Context)(nil)
)

func newContext(d *Device, m *memory, config device.Config) *Context {
	c := &Context{dev: d, mem: m, ended: make(chan struct{}), released: make(chan struct{})}
	c.changed.L = &c.mu
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
	if d.profile.Check.Any() {
		c.checker = simt.NewChecker(d.profile.Check, 0, c.report)
	}
	return c
}

// heapOf returns the heap of a size; nil if the arena is too small for it.
func heapOf(m *memory, size uint64) *simt.Heap {
	at := m.arena.at.Heap(size)
	if at.Size == 0 {
		return nil
	}
	return simt.NewHeap(at.Base, at.Size)
}

// SetLimit sets the size of the heap. The other limits mean nothing to a software device.
func (c *Context) SetLimit(limit int, value uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || limit != device.LimitHeap {
		return c.err
	}
	heap := heapOf(c.mem, value) // nil: launches that need one are refused
	if heap == nil || c.heap == nil || c.heap.Base != heap.Base {
		c.heap = heap // else kernels that run need the lock of theirs
	}
	return nil
}

// Err returns why the context has ended, or nil.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end makes err the answer to every call from now on and stops all work. The
// first one counts, except that a closed context is closed.
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

// stopKernels makes running kernels return at the next instruction.
func (c *Context) stopKernels() {
	for _, s := range c.streams {
		if k := s.running(); s.busy && k != nil {
			k.execution.Stop()
		}
	}
}

// Close stops everything and gives all memory back.
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
	close(c.released)
	return c.closeErr
}

// still runs change while no stream touches memory.
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

// Unmap takes memory away. Kernels that run stand still meanwhile.
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

// Memory returns what is free on the device, and its size.
func (c *Context) Memory() (free, total uint64, err error) {
	if err := c.Err(); err != nil {
		return 0, 0, err
	}
	return c.dev.budget.free(), c.dev.budget.total, nil
}

// Pin does nothing: all memory of the host is alike to this device.
func (c *Context) Pin(host []byte) (unpin func() error, err error) {
	if len(host) == 0 {
		return nil, fmt.Errorf("pinning no bytes: %w", device.ErrInvalidValue)
	}
	return func() error { return nil }, c.Err()
}

// MapHost lets kernels reach host memory at its own address.
func (c *Context) MapHost(host []byte) (unmap func() error, err error) {
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

// Synchronise waits for the work of all streams.
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

// await waits until a mark is reached, and returns why if it never will.
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

// faultOf says in the contract's words what ended a kernel.
func faultOf(kernel string, err error) *device.Fault {
	f, ok := err.(*simt.Fault)
	if !ok {
		return &device.Fault{Kind: device.Unspecified, Kernel: kernel, Detail: err.Error()}
	}
	kinds := map[simt.FaultKind]device.FaultKind{
		simt.IllegalAddress:    device.IllegalAddress,
		simt.WriteToReadOnly:   device.IllegalAddress,
		simt.MisalignedAddress: device.MisalignedAddress,
		simt.Trapped:           device.Trap,
		simt.Asserted:          device.Assert,
		simt.StackOverflow:     device.StackOverflow,
		simt.IllegalCall:       device.IllegalCall,
		simt.Deadlock:          device.Deadlock,
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
