package remote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/wire"
	"muster/wire/client"
)

// Context is a guest of the lender.
//
// Locks are taken in this order: stream.order, then printing, then gate. The locks mu, progress.mu,
// keeper.mu and memory.mu are held only for moments, and never while waiting.
type Context struct {
	dev *Device
	device.ContextCan
	session

	closing sync.Once
	running sync.WaitGroup // goroutines that read or write host memory, or talk to the lender
	last    atomic.Uint32  // the latest number given to a stream, event, module or function
	hosts   hosts
	memory  memory

	mu       sync.Mutex // guards the fields below
	streams  map[*stream]bool
	events   []uint32 // events made at the lender that no mark uses
	textures map[textureID]bool
	parcels  uint32 // stream that reads memory for other lenders; 0 until there is one
}

var _ device.Context = (*Context)(nil)

func newContext(d *Device, config device.Config, guest *client.Direct) *Context {
	c := &Context{
		dev: d, streams: map[*stream]bool{}, textures: map[textureID]bool{},
		memory: memory{arena: config.Arena, granules: map[uint64]bool{}},
	}
	c.ContextCan = device.ContextCan{
		Self: c, SetLimit: c.setLimit, NewStreamOf: c.newStreamOf, Ask: c.askDriver, NewTexture: c.newTexture, DropTexture: c.dropTexture,
	}
	c.session.begin(guest, config)
	return c
}

// Close disconnects the guest, and the lender stops its kernels. The order matters: closed and over
// make goroutines return; Over and running wait until none of them touches shared or host memory;
// only then is the shared memory unmapped.
func (c *Context) Close() error {
	c.closing.Do(func() {
		c.fetchPrints()
		c.closed.Store(true)
		c.end(fmt.Errorf("the context: %w", device.ErrClosed))
		c.guest.HangUp()
		<-c.guest.Over()
		c.running.Wait()
		c.gate.Lock()
		defer c.gate.Unlock()
		c.guest.Close()
		c.dev.giveBack(c.memory.clear(), true)
	})
	return nil
}

// Map puts memory at addr.
func (c *Context) Map(addr, size uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.memory.begin(addr, size); err != nil {
		return err
	}
	err := c.dev.take(size)
	if err == nil {
		if err = c.demand("mapping memory", &wire.MemMap{Addr: addr, Size: size}, nil); err != nil {
			c.dev.giveBack(size, false)
		}
	}
	if err != nil {
		c.memory.remove(addr, size)
	}
	return err
}

// Unmap gives memory back.
func (c *Context) Unmap(addr, size uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.memory.end(addr, size); err != nil {
		return err
	}
	c.dev.giveBack(size, false)
	return c.post(&wire.MemUnmap{Addr: addr, Size: size})
}

// Memory returns how many of the bytes that the lender grants are free, and their total.
func (c *Context) Memory() (free, total uint64, err error) {
	if err := c.check(); err != nil {
		return 0, 0, err
	}
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	return c.dev.free(), c.dev.info.Memory, nil
}

// Pin does nothing: copies pass through buffers of the connection anyway.
func (c *Context) Pin([]byte) (func() error, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}

// setLimit sets one of CUDA's limits.
func (c *Context) setLimit(limit int, value uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if limit < 0 || limit >= 16 {
		return fmt.Errorf("limit %d: %w", limit, device.ErrInvalidValue)
	}
	return c.post(&wire.Limit{Limit: uint32(limit), Value: value})
}

// askDriver asks the lender's driver.
func (c *Context) askDriver(what int, about []byte) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var reply wire.DriverAskReply
	return c.fetch("a question to the driver", &wire.DriverAsk{What: uint32(what), About: about}, &reply, func() uint64 { return uint64(reply.Size) })
}

// Synchronise waits for all work that was submitted before.
func (c *Context) Synchronise(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	maps.DeleteFunc(c.streams, func(s *stream, _ bool) bool { return s.left() })
	all := slices.Collect(maps.Keys(c.streams))
	c.mu.Unlock()
	waits := make([]<-chan struct{}, 0, len(all))
	for _, s := range all {
		wait, err := s.probe()
		if err != nil {
			return err
		}
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		if err := c.await(ctx, wait); err != nil {
			return err
		}
	}
	c.fetchPrints()
	return c.check()
}
