// Package fault wraps a device so that calls fail, take long or give wrong
// bytes, by rule. It is for tests of the layers above a device: what they do
// when memory runs out, a device is lost, or a copy is corrupted.
//
// It knows the contract and no backend. Rules count calls and use no randomness,
// so the same calls in the same order fail in the same way. A rule may also depend
// on a file: with it a test can make a device that several processes model fail, and
// come back.
package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/device"
)

// Device is a device with faults.
type Device struct {
	device.Device
	can   device.DeviceCan
	rules []Rule
	looks bool // a rule has the operation Any, so that every call must look
	sleep func(time.Duration)

	mu    sync.Mutex
	calls map[string]uint64
}

var _ device.Device = (*Device)(nil)

// Wrap returns a device that does what inner does, except where a rule
// applies. It calls sleep for delays.
func Wrap(inner device.Device, rules []Rule, sleep func(time.Duration)) *Device {
	d := &Device{
		Device: inner, rules: slices.Clone(rules), sleep: sleep, calls: map[string]uint64{},
		looks: slices.ContainsFunc(rules, func(r Rule) bool { return r.Operation == Any }),
	}
	d.can = d.wrap(inner.Can())
	return d
}

var errStranger = fmt.Errorf("the context is of another device: %w", device.ErrInvalidValue)

// Can says what else the device can do.
func (d *Device) Can() *device.DeviceCan { return &d.can }

// Calls returns how often an operation was called.
func (d *Device) Calls(operation string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[operation]
}

// verdict is the effect of the rules on one call.
type verdict struct {
	err     error
	delay   time.Duration
	corrupt []uint64 // indexes of bytes in which to flip a bit
}

// judge counts a call and returns the effect of all rules on it. Delays add up; of
// several failures the first applies.
func (d *Device) judge(operation string) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[operation]++
	n := d.calls[operation]
	var v verdict
	for _, r := range d.rules {
		if !r.covers(operation, n) {
			continue
		}
		v.delay += r.Do.Delay
		if r.Do.Corrupt {
			v.corrupt = append(v.corrupt, r.Do.Byte)
		}
		if r.Do.Fail != "" && v.err == nil {
			v.err = fmt.Errorf("%s, call %d: %w", operation, n, failures[r.Do.Fail])
		}
	}
	return v
}

// judgeAny returns the failure of a rule with the operation Any that applies now, or nil.
func (d *Device) judgeAny() error {
	for _, r := range d.rules {
		if r.Operation == Any && r.covers(Any, 0) {
			return failures[r.Do.Fail]
		}
	}
	return nil
}

// Open opens a context with faults.
func (d *Device) Open(c device.Config) (device.Context, error) {
	v := d.judge("open")
	d.pause(v.delay)
	if v.err != nil {
		return nil, v.err
	}
	inner, err := d.Device.Open(c)
	if err != nil {
		return nil, err
	}
	x := &faultyContext{Context: inner, dev: d, fate: fateOf(d.rules)}
	x.can = x.wrap(inner.Can())
	x.lost, x.lose = context.WithCancel(context.Background())
	return x, nil
}

func (d *Device) pause(t time.Duration) {
	if t > 0 {
		d.sleep(t)
	}
}

// faultyContext is a context with faults.
type faultyContext struct {
	device.Context
	can  device.ContextCan
	dev  *Device
	fate *fate // nil if it shares nothing

	lost context.Context // cancelled when a rule ends this context, so that waiting calls return
	lose context.CancelFunc

	mu      sync.Mutex
	ended   error // the fault by which a rule has ended the context; every call answers with it
	closed  bool
	streams []*stream // closed ones too: Stopped may return a kernel on one
}

// check returns the fault by which a rule has ended the context, or ends it now.
func (c *faultyContext) check() error {
	c.mu.Lock()
	closed, ended := c.closed, c.ended
	c.mu.Unlock()
	if closed {
		return nil // the inner context answers with ErrClosed itself
	}
	if ended != nil {
		return ended
	}
	if err := c.fate.struck(); err != nil {
		return c.refuse(err)
	}
	if c.dev.looks {
		return c.refuse(c.dev.judgeAny())
	}
	return nil
}

// refuse returns the error of a rule, and ends the context if it is a fault.
func (c *faultyContext) refuse(err error) error {
	if _, ok := innermost(err).(*device.Fault); ok {
		c.mu.Lock()
		if c.ended == nil {
			c.ended = err
			c.lose()
		}
		c.mu.Unlock()
	}
	return err
}

// wait waits for work, or until a rule ends the context: the work then goes on on
// the device, but the caller sees it as dropped. A rule may depend on a file that has
// appeared meanwhile, so wait checks again when the work has ended.
func (c *faultyContext) wait(ctx context.Context, synchronise func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.lost, cancel)()
	err := c.saw(synchronise(ctx))
	if err != nil && c.lost.Err() != nil {
		return c.Err()
	}
	if err == nil {
		err = c.check()
	}
	return err
}

func innermost(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// now applies the rules to a call that does its work before it returns.
func (c *faultyContext) now(operation string) error {
	if err := c.check(); err != nil {
		return err
	}
	v := c.dev.judge(operation)
	c.dev.pause(v.delay)
	return c.refuse(v.err)
}

// Can says what else the context can do.
func (c *faultyContext) Can() *device.ContextCan { return &c.can }

// after is f, unless the rules refuse the operation.
func after[T any](c *faultyContext, operation string, f func() (T, error)) (got T, err error) {
	if err = c.now(operation); err != nil {
		return got, err
	}
	got, err = f()
	return got, c.saw(err)
}

func (c *faultyContext) Map(addr, size uint64) error {
	if err := c.now("map"); err != nil {
		return err
	}
	return c.saw(c.Context.Map(addr, size))
}

func (c *faultyContext) Unmap(addr, size uint64) error {
	if err := c.now("unmap"); err != nil {
		return err
	}
	return c.saw(c.Context.Unmap(addr, size))
}

func (c *faultyContext) Memory() (free, total uint64, err error) {
	if err := c.check(); err != nil {
		return 0, 0, err
	}
	free, total, err = c.Context.Memory()
	return free, total, c.saw(err)
}

func (c *faultyContext) Load(image []byte) (device.Module, error) {
	return c.load(func() (device.Module, error) { return c.Context.Load(image) })
}

func (c *faultyContext) load(load func() (device.Module, error)) (device.Module, error) {
	if err := c.now("load"); err != nil {
		return nil, err
	}
	inner, err := load()
	if err != nil {
		return nil, c.saw(err)
	}
	return &module{Module: inner, c: c}, nil
}

func (c *faultyContext) NewStream() (device.Stream, error) {
	if err := c.now("newstream"); err != nil {
		return nil, err
	}
	inner, err := c.Context.NewStream()
	if err != nil {
		return nil, c.saw(err)
	}
	s := &stream{Stream: inner, c: c}
	s.can = s.wrap(inner.Can())
	c.mu.Lock()
	c.streams = append(c.streams, s)
	c.mu.Unlock()
	return s, nil
}

func (c *faultyContext) NewEvent() (device.Event, error) {
	if err := c.now("newevent"); err != nil {
		return nil, err
	}
	inner, err := c.Context.NewEvent()
	if err != nil {
		return nil, c.saw(err)
	}
	return &event{Event: inner, c: c}, nil
}

func (c *faultyContext) Pin(host []byte) (func() error, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	unpin, err := c.Context.Pin(host)
	return unpin, c.saw(err)
}

func (c *faultyContext) Synchronise(ctx context.Context) error {
	if err := c.now("synchronise"); err != nil {
		return err
	}
	return c.wait(ctx, c.Context.Synchronise)
}

func (c *faultyContext) Err() error {
	if err := c.check(); err != nil {
		return err
	}
	return c.saw(c.Context.Err())
}

func (c *faultyContext) Close() error {
	c.mu.Lock()
	c.closed, c.streams = true, nil
	c.mu.Unlock()
	defer c.lose()
	return c.Context.Close()
}

// stream is a stream with faults.
type stream struct {
	device.Stream
	can device.StreamCan
	c   *faultyContext
}

// Can says what else the stream can do.
func (s *stream) Can() *device.StreamCan { return &s.can }

// Watch returns nil: that a rule has ended the context would go unseen.
func (s *stream) Watch() func(time.Duration) (bool, error) { return nil }

// submit applies the rules to work and submits it. A delay is submitted as work
// before it, so that the stream waits and not the caller.
func (s *stream) submit(operation string, work func(v verdict) error) error {
	if err := s.c.check(); err != nil {
		return err
	}
	v := s.c.dev.judge(operation)
	if v.err != nil {
		return s.c.refuse(v.err)
	}
	if v.delay > 0 {
		if err := s.Stream.Call(func() { s.c.dev.pause(v.delay) }); err != nil {
			return err
		}
	}
	return s.c.saw(work(v))
}

// spoil flips a bit in each of the bytes at the given indexes.
func spoil(data []byte, at []uint64) {
	for _, n := range at {
		data[n%uint64(len(data))] ^= 1
	}
}

func (s *stream) CopyIn(dst uint64, src []byte) error {
	return s.submit("copyin", func(v verdict) error {
		if len(v.corrupt) == 0 || len(src) == 0 {
			return s.Stream.CopyIn(dst, src)
		}
		// The bytes are read in the order of the stream: earlier work may still write
		// them now.
		bad := make([]byte, len(src))
		if err := s.Stream.Call(func() { copy(bad, src); spoil(bad, v.corrupt) }); err != nil {
			return err
		}
		return s.Stream.CopyIn(dst, bad)
	})
}

func (s *stream) CopyOut(dst []byte, src uint64) error {
	return s.submit("copyout", func(v verdict) error {
		if err := s.Stream.CopyOut(dst, src); err != nil || len(v.corrupt) == 0 || len(dst) == 0 {
			return err
		}
		return s.Stream.Call(func() { spoil(dst, v.corrupt) })
	})
}

func (s *stream) Copy(dst, src, size uint64) error {
	return s.submit("copy", func(verdict) error { return s.Stream.Copy(dst, src, size) })
}

func (s *stream) Fill(dst uint64, value uint32, width int, count uint64) error {
	return s.submit("fill", func(verdict) error { return s.Stream.Fill(dst, value, width, count) })
}

func (s *stream) Launch(f device.Function, l device.Launch) error {
	return s.submit("launch", func(verdict) error { return s.Stream.Launch(f, l) })
}

func (s *stream) Record(e device.Event) error {
	return s.submit("record", func(verdict) error { return s.Stream.Record(within(e)) })
}

func (s *stream) Wait(e device.Event) error {
	return s.submit("wait", func(verdict) error { return s.Stream.Wait(within(e)) })
}

func (s *stream) Call(f func()) error {
	return s.submit("call", func(verdict) error { return s.Stream.Call(f) })
}

func (s *stream) Done() (bool, error) {
	if err := s.c.check(); err != nil {
		return false, err
	}
	done, err := s.Stream.Done()
	return done, s.c.saw(err)
}

func (s *stream) Synchronise(ctx context.Context) error {
	if err := s.c.now("synchronise"); err != nil {
		return err
	}
	return s.c.wait(ctx, s.Stream.Synchronise)
}

func (s *stream) Close() error {
	if err := s.c.check(); err != nil {
		return err
	}
	return s.c.saw(s.Stream.Close())
}

// event is an event of a context that a rule may have ended.
type event struct {
	device.Event
	c *faultyContext
}

// within returns the inner event.
func within(e device.Event) device.Event {
	if own, ok := e.(*event); ok {
		return own.Event
	}
	return e
}

func (e *event) Done() (bool, error) {
	if err := e.c.check(); err != nil {
		return false, err
	}
	done, err := e.Event.Done()
	return done, e.c.saw(err)
}

// Watch returns nil, as with streams.
func (e *event) Watch() func(time.Duration) (bool, error) { return nil }

func (e *event) Synchronise(ctx context.Context) error {
	if err := e.c.check(); err != nil {
		return err
	}
	return e.c.wait(ctx, e.Event.Synchronise)
}

func (e *event) Since(start device.Event) (time.Duration, error) {
	if err := e.c.check(); err != nil {
		return 0, err
	}
	took, err := e.Event.Since(within(start))
	return took, e.c.saw(err)
}

// module is a module of a context that a rule may have ended. Its functions
// are the inner device's and are not wrapped.
type module struct {
	device.Module
	c *faultyContext
}

func (m *module) Function(name string) (device.Function, error) {
	if err := m.c.check(); err != nil {
		return nil, err
	}
	f, err := m.Module.Function(name)
	return f, m.c.saw(err)
}

func (m *module) Global(name string) (device.Global, error) {
	if err := m.c.check(); err != nil {
		return device.Global{}, err
	}
	g, err := m.Module.Global(name)
	return g, m.c.saw(err)
}

func (m *module) Unload() error {
	if err := m.c.check(); err != nil {
		return err
	}
	return m.c.saw(m.Module.Unload())
}
