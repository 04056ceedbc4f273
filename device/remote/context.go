package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"muster/client"
	"muster/device"
	"muster/device/curesult"
	"muster/wire"
)

// Context is a guest of the lender.
//
// What touches the memory that is shared with the goroutines of the connection does so behind
// the gate, which Close shuts before that memory goes.
type Context struct {
	dev    *Device
	config device.Config
	guest  *client.Direct

	gate    sync.RWMutex
	closed  atomic.Bool
	closing sync.Once

	over    chan struct{} // closed when the context has ended: closed, faulted or lost
	ending  sync.Once
	faulted sync.Once
	err     error // set before over is closed

	running sync.WaitGroup // goroutines that read or write host memory, or talk to the lender
	last    atomic.Uint32  // number that was given to a stream, a module or a function
	cookies atomic.Uint64
	fences  atomic.Uint64
	bulk    bulk

	memory memory
	bounce chan uint64 // free buffers for data on their way back, by their offset

	loads sync.Mutex // one load, link or question at a time has the long buffer

	mu        sync.Mutex
	streams   map[*stream]bool
	events    []uint32 // the lender's, that nobody uses
	functions map[uint64]func()
	served    bool // functions are asked for
	textures  map[textureID]bool

	printing sync.Mutex
}

var (
	_ device.Context     = (*Context)(nil)
	_ device.Limiter     = (*Context)(nil)
	_ device.Prioritiser = (*Context)(nil)
	_ device.Asker       = (*Context)(nil)
	_ device.Texturer    = (*Context)(nil)
)

func newContext(d *Device, config device.Config, guest *client.Direct) *Context {
	c := &Context{
		dev: d, config: config, guest: guest, over: make(chan struct{}), streams: map[*stream]bool{},
		functions: map[uint64]func(){}, textures: map[textureID]bool{}, memory: memory{arena: config.Arena, granules: map[uint64]bool{}},
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

// end ends the context; only the first reason counts.
func (c *Context) end(err error) {
	c.ending.Do(func() {
		c.err = err
		close(c.over)
	})
}

// check says why the context cannot be used.
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

// ended is the reason of the end, which has come.
func (c *Context) ended() error {
	if c.closed.Load() {
		return fmt.Errorf("the context: %w", device.ErrClosed)
	}
	return c.err
}

// status is the result that the lender answers with since a fault.
func (c *Context) status() int32 {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.closed.Load() {
		return curesult.Success
	}
	return c.guest.Shared.Status()
}

// fault ends the context with a fault that the lender tells, when all that kernels have
// printed and complained of is there.
func (c *Context) fault(result int32) {
	c.faulted.Do(func() {
		go func() {
			c.fetchPrints()
			c.end(faultOf(result, c.why()))
		}()
	})
}

// failed ends the context because the lender refused what it must not: what the two sides
// know of the context is not the same any more.
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

// Close ends the guest. Where its kernels run, the lender stops them.
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

// gone makes the error of a message that could not be sent the context's.
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

// start sends a call whose answer done gets; see client.Direct.
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

// startFetch is start for data that are on their way to the host: done gets its answer before
// anybody hears of the end of work behind them.
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

// span is a part of the data arena that the lender fills.
type span struct{ offset, length uint64 }

// outcome is a call on its way.
type outcome struct {
	c    *Context
	what string
	done chan struct{}

	result int32
	body   []byte
	err    error
}

// ask sends a call, and does not wait for its answer.
func (c *Context) ask(m wire.Message, out span) (*outcome, error) {
	o := &outcome{c: c, what: m.Op().String(), done: make(chan struct{})}
	err := c.start(m, out, func(a client.Answer) {
		o.result, o.err = a.Result, a.Err
		o.body = append(o.body, a.Body...)
		close(o.done)
	})
	return o, err
}

// wait returns the result of the call.
func (o *outcome) wait(reply interface{ Decode([]byte) error }) (int32, error) {
	<-o.done
	if o.err != nil {
		return 0, o.c.gone(o.err)
	}
	if o.result != curesult.Success {
		if err := o.c.check(); err != nil { // it was the fault of another
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

// demand is call for what must not be refused without a reason that the caller hears.
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

// why is the latest reason that the lender gave, "" if it gave none since it was asked.
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

// fence makes what this process did in the order of the lender's work be seen in that order:
// the lender's messages say nothing of it to the machine.
func (c *Context) fence() { c.fences.Add(1) }

// --- printed text -----------------------------------------------------------------

// fetchPrints hands on what kernels have printed.
func (c *Context) fetchPrints() {
	c.printing.Lock()
	defer c.printing.Unlock()
	for rounds := 0; c.printed() && rounds < maxPrintRounds; rounds++ {
		if !c.fetchPrint() {
			return
		}
	}
}

// maxPrintRounds bounds what a lender can have us hear at a time: more than a GPU's buffer.
const maxPrintRounds = 1 << 10

func (c *Context) printed() bool {
	c.gate.RLock()
	defer c.gate.RUnlock()
	return !c.closed.Load() && c.guest.Shared.Print()
}

// fetchPrint hands on one piece.
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

// copied returns what the lender has put into a part of the arena.
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

// Memory returns what is free of what the lender gives.
func (c *Context) Memory() (free, total uint64, err error) {
	if err := c.check(); err != nil {
		return 0, 0, err
	}
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	return c.dev.free(), c.dev.info.Memory, nil
}

// Pin does nothing: data go through memory of the connection.
func (c *Context) Pin([]byte) (func() error, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}

// SetLimit sets one of CUDA's limits.
func (c *Context) SetLimit(limit int, value uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if limit < 0 || limit >= 16 {
		return fmt.Errorf("limit %d: %w", limit, device.ErrInvalidValue)
	}
	return c.post(&wire.Limit{Limit: uint32(limit), Value: value})
}

// Ask asks the lender's driver.
func (c *Context) Ask(what int, about []byte) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var reply wire.DriverAskReply
	answer, err := c.fetch("a question to the driver", &wire.DriverAsk{What: uint32(what), About: about}, &reply, func() uint64 { return uint64(reply.Size) })
	return answer, err
}

// fetch sends a call that gives bytes, and returns as many of them as the reply says.
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

// long is the buffer for what is larger than others hold; loads is held. It lies where
// programs have pinned memory.
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

// await waits for something, for the end of the context, or for the caller's.
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
