package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/device/curesult"
	"muster/wire"
	"muster/wire/client"
)

// Context is a guest of the lender.
//
// guest.Shared is memory that this context shares with the goroutines of the connection. Every
// access to guest holds gate for reading and first checks closed. Close holds gate for writing when
// it unmaps that memory. Callbacks of answers are an exception: guest.Over is closed only after
// all of them have returned, and Close waits for that.
//
// Locks are taken in this order: stream.order, then printing, then gate. The locks mu, stream.mu,
// keeper.mu and memory.mu are held only for moments, and never while waiting.
type Context struct {
	dev *Device
	device.ContextCan
	config device.Config
	guest  *client.Direct

	gate    sync.RWMutex
	closed  atomic.Bool // Close was called
	closing sync.Once

	over    chan struct{} // closed when the context has ended: closed, faulted or lost
	ending  sync.Once
	faulted sync.Once // the goroutine that fetches the fault's reason was started
	err     error     // set before over is closed, and constant then

	running sync.WaitGroup // goroutines that read or write host memory, or talk to the lender
	last    atomic.Uint32  // the latest number given to a stream, event, module or function
	hosts   hosts
	fences  atomic.Uint64 // see fence
	bulk    bulk

	memory memory
	bounce chan uint64 // offsets of the free buffers into which the lender's data arrive

	loads sync.Mutex // held while a call uses the long buffer (fetch)

	mu       sync.Mutex // guards the fields below, except printing
	streams  map[*stream]bool
	events   []uint32 // events made at the lender that no mark uses
	textures map[textureID]bool
	parcels  uint32 // stream that reads memory for other lenders; 0 until there is one

	printing sync.Mutex // serialises calls of config.Print and config.Complain
}

var _ device.Context = (*Context)(nil)

func newContext(d *Device, config device.Config, guest *client.Direct) *Context {
	c := &Context{
		dev: d, config: config, guest: guest, over: make(chan struct{}), streams: map[*stream]bool{},
		textures: map[textureID]bool{}, memory: memory{arena: config.Arena, granules: map[uint64]bool{}},
	}
	c.ContextCan = device.ContextCan{
		Self: c, SetLimit: c.setLimit, NewStreamOf: c.newStreamOf, Ask: c.askDriver, NewTexture: c.newTexture, DropTexture: c.dropTexture,
	}
	c.bulk.init()
	g := guest.Shared.Geometry()
	c.bounce = make(chan uint64, g.Bounce/wire.BounceBuffer)
	for at := uint64(0); at < g.Bounce; at += wire.BounceBuffer {
		c.bounce <- g.Staging + at
	}
	go func() {
		<-guest.Over()
		c.end(lost(guest.Reason()))
	}()
	return c
}

// --- the end --------------------------------------------------------------------

// end ends the context. Only the first call has an effect.
func (c *Context) end(err error) {
	c.ending.Do(func() {
		c.err = err
		close(c.over)
	})
}

// check returns why the context cannot be used, or nil. The lender announces a fault in shared
// memory, so check sees it without a message. It then waits for fault, which fetches the reason.
func (c *Context) check() error {
	if c.closed.Load() {
		return fmt.Errorf("the context: %w", device.ErrClosed)
	}
	select {
	case <-c.over:
		return c.ended()
	default:
	}
	if result := c.status(); result != curesult.Success {
		c.fault(result)
		<-c.over
		return c.ended()
	}
	return nil
}

// ended returns why the context has ended. The caller must know that it has.
func (c *Context) ended() error {
	if c.closed.Load() {
		return fmt.Errorf("the context: %w", device.ErrClosed)
	}
	return c.err
}

// status returns the CUDA result of the fault that the lender has announced, or Success.
func (c *Context) status() int32 {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return curesult.Success
	}
	return c.guest.Shared.Status()
}

// fault ends the context with a fault that the lender has announced. It first fetches what kernels
// have printed: the contract promises that Complain is called before any call answers with the
// fault. That waits for answers, so a goroutine does it.
func (c *Context) fault(result int32) {
	c.faulted.Do(func() {
		go func() {
			c.fetchPrints()
			c.end(faultOf(result, c.why()))
		}()
	})
}

// failed ends the context because the lender refused work that it should have accepted: the two
// sides no longer agree on the state of the context.
func (c *Context) failed(what string, result int32) {
	if c.status() != curesult.Success || faults[result] != 0 {
		c.fault(result)
		return
	}
	c.faulted.Do(func() {
		go func() {
			c.end(lost(fmt.Sprintf("%v", refused(what, result, c.why()))))
		}()
	})
}

// Err returns what ended the context.
func (c *Context) Err() error { return c.check() }

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

// --- talking --------------------------------------------------------------------

// gone ends the context if err says that the connection is closed, and returns the error for the
// caller.
func (c *Context) gone(err error) error {
	var closed *wire.ClosedError
	if !errors.As(err, &closed) {
		return err
	}
	if c.closed.Load() {
		return fmt.Errorf("the context: %w", device.ErrClosed)
	}
	c.end(lost(closed.Reason))
	return c.ended()
}

// post sends a message without an answer.
func (c *Context) post(m wire.Message) error {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return c.ended()
	}
	c.bulk.small()
	if err := c.guest.Producer.Post(m); err != nil {
		return c.gone(err)
	}
	return nil
}

// postData sends a message with data of at most wire.MaxPiece bytes.
func (c *Context) postData(m wire.Message, data []byte) error {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return c.ended()
	}
	if err := c.guest.Producer.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data); err != nil {
		return c.gone(err)
	}
	return nil
}

// start sends a call. The receiving goroutine calls done with the answer, so done must not wait; see
// client.Direct.
func (c *Context) start(m wire.Message, out span, done func(client.Answer)) error {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return c.ended()
	}
	if err := c.guest.Start(wire.Header{Op: m.Op(), Data: out.offset, Length: out.length}, m.Append(nil), done); err != nil {
		return c.gone(err)
	}
	return nil
}

// startFetch is start for calls that bring data to the host. done is called before the callbacks of
// answers that say that later work has ended, so the data have then arrived.
func (c *Context) startFetch(m wire.Message, out span, done func(client.Answer)) error {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return c.ended()
	}
	if err := c.guest.Fetch(wire.Header{Op: m.Op(), Data: out.offset, Length: out.length}, m.Append(nil), done); err != nil {
		return c.gone(err)
	}
	return nil
}

// span is a part of the shared data arena for the lender's data.
type span struct{ offset, length uint64 }

// outcome is a call that was sent. The fields below done are set before done is closed.
type outcome struct {
	c    *Context
	what string
	done chan struct{}

	result int32
	body   []byte
	err    error
}

// ask sends a call without waiting for its answer; outcome.wait does that.
func (c *Context) ask(m wire.Message, out span) (*outcome, error) {
	o := &outcome{c: c, what: m.Op().String(), done: make(chan struct{})}
	err := c.start(m, out, func(a client.Answer) {
		o.result, o.err = a.Result, a.Err
		o.body = append(o.body, a.Body...)
		close(o.done)
	})
	return o, err
}

// wait returns the CUDA result of the call, and decodes the reply if it was a success. The error is
// the context's, if that has ended.
func (o *outcome) wait(reply interface{ Decode([]byte) error }) (int32, error) {
	<-o.done
	if o.err != nil {
		return 0, o.c.gone(o.err)
	}
	if o.result != curesult.Success {
		if err := o.c.check(); err != nil { // the call failed because earlier work faulted
			return 0, err
		}
		return o.result, nil
	}
	if reply == nil {
		return 0, nil
	}
	if err := reply.Decode(o.body); err != nil {
		o.c.end(lost(fmt.Sprintf("the lender's answer to %s: %v", o.what, err)))
		return 0, o.c.ended()
	}
	return 0, nil
}

// call sends a call and waits for its answer.
func (c *Context) call(m wire.Message, reply interface{ Decode([]byte) error }) (int32, error) {
	o, err := c.ask(m, span{})
	if err != nil {
		return 0, err
	}
	return o.wait(reply)
}

// demand is call, with a refusal turned into an error that has the lender's reason.
func (c *Context) demand(what string, m wire.Message, reply interface{ Decode([]byte) error }) error {
	result, err := c.call(m, reply)
	if err != nil {
		return err
	}
	if result == curesult.Success {
		return nil
	}
	return refused(what, result, c.why())
}

// why returns and removes the reasons that the lender has given since the last call; "" if none.
func (c *Context) why() string {
	c.printing.Lock()
	defer c.printing.Unlock()
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return ""
	}
	return strings.Join(c.guest.Shared.Notices(), "; ")
}

// fence orders accesses to host memory by two goroutines whose only order is that of the lender's
// messages. Go's memory model does not know that order. Two atomic operations on the same variable
// establish it.
func (c *Context) fence() { c.fences.Add(1) }

// --- printed text -----------------------------------------------------------------

// fetchPrints passes on all that kernels have printed so far.
func (c *Context) fetchPrints() {
	c.printing.Lock()
	defer c.printing.Unlock()
	for rounds := 0; c.printed() && rounds < maxPrintRounds; rounds++ {
		if !c.fetchPrint() {
			return
		}
	}
}

// maxPrintRounds bounds how much text a lender can make this process fetch in one go: more than a
// GPU's printf buffer holds.
const maxPrintRounds = 1 << 10

func (c *Context) printed() bool {
	c.gate.RLock()
	defer c.gate.RUnlock()
	return !c.closed.Load() && c.guest.Shared.Print()
}

// fetchPrint passes on one piece of text; false if there was none.
func (c *Context) fetchPrint() bool {
	var at uint64
	select {
	case at = <-c.bounce:
	case <-c.guest.Over():
		return false
	}
	var text []byte
	var reply wire.PrintFetchReply
	o, err := c.ask(&wire.PrintFetch{}, span{at, wire.BounceBuffer})
	if err == nil {
		<-o.done
		err = o.err
	}
	if err == nil && o.result == curesult.Success && reply.Decode(o.body) == nil {
		text = c.copied(span{at, min(uint64(reply.Size), wire.BounceBuffer)})
	}
	c.bounce <- at
	if to := c.config.Print; reply.Complaint == 0 && to != nil && len(text) > 0 {
		to(text)
	}
	if to := c.config.Complain; reply.Complaint != 0 && to != nil && len(text) > 0 {
		to(text)
	}
	return len(text) > 0
}

// copied returns a copy of what the lender has written into a part of the arena.
func (c *Context) copied(from span) []byte {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return nil
	}
	data, err := c.guest.Shared.Data(from.offset, from.length)
	if err != nil {
		return nil
	}
	return append([]byte(nil), data...)
}

// --- memory -----------------------------------------------------------------------

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
	answer, err := c.fetch("a question to the driver", &wire.DriverAsk{What: uint32(what), About: about}, &reply, func() uint64 { return uint64(reply.Size) })
	return answer, err
}

// fetch sends a call that returns bytes in the long buffer. size, called after the reply was
// decoded, says how many there are.
func (c *Context) fetch(what string, m wire.Message, reply interface{ Decode([]byte) error }, size func() uint64) ([]byte, error) {
	c.loads.Lock()
	defer c.loads.Unlock()
	long := c.long()
	o, err := c.ask(m, long)
	if err != nil {
		return nil, err
	}
	result, err := o.wait(reply)
	if err != nil {
		return nil, err
	}
	if result != curesult.Success {
		return nil, refused(what, result, c.why())
	}
	if size() > long.length {
		return nil, fmt.Errorf("%s: %d bytes, of which %d can be had: %w", what, size(), long.length, device.ErrNotSupported)
	}
	return c.copied(span{long.offset, size()}), nil
}

// long returns the buffer for answers too large for a bounce buffer. The caller must hold loads. It is
// in the part of the arena where programs of this node would have pinned memory; a guest has none.
func (c *Context) long() span {
	g := c.guest.Shared.Geometry()
	return span{g.Staging + g.Bounce, client.Long}
}

// Synchronise waits for all work that was submitted before.
func (c *Context) Synchronise(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	all := make([]*stream, 0, len(c.streams))
	for s := range c.streams {
		if s.left() {
			delete(c.streams, s)
			continue
		}
		all = append(all, s)
	}
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

// await waits until done is closed, the context ends, or ctx is cancelled.
func (c *Context) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-c.over:
		return c.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
}
