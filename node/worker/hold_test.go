package worker

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/device"
	"muster/wire"
)

// stagingContext is of a driver as NVIDIA's: it runs one function of its streams at a time, and copies
// of memory that is not pinned need such functions. A stream can be held, unless that is refused.
type stagingContext struct {
	aloneContext
	refuses bool
}

type stagingStream struct {
	aloneStream
	c *stagingContext
}

func (c *stagingContext) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return stagingStream{aloneStream{s, &c.aloneContext}, c}, err
}

func (s stagingStream) CopyOut(dst []byte, src uint64) error {
	staging := make([]byte, len(dst))
	if err := s.Stream.CopyOut(staging, src); err != nil {
		return err
	}
	return s.Call(func() { copy(dst, staging) })
}

func (s stagingStream) Can() *device.StreamCan { return &device.StreamCan{Hold: s.hold} }

func (s stagingStream) hold(given func(release func())) error {
	if s.c.refuses {
		return errors.New("not now")
	}
	return s.Stream.Can().Hold(given)
}

func stagingClient(t *testing.T, refuses bool) *client {
	return newClient(t, options{wrap: func(_ string, c device.Context) device.Context {
		return &stagingContext{aloneContext{Context: c}, refuses}
	}})
}

// Copies of other streams end while a function of the program is out: it may wait for them, as one
// that touches managed memory does.
func TestCopiesEndBesideAFunction(t *testing.T) {
	c := stagingClient(t, false)
	v := newVectors(c, 256)
	v.round(0)
	c.post(&wire.StreamCreate{Stream: 3, Flags: nonBlocking})
	c.post(&wire.StreamCreate{Stream: 4, Flags: nonBlocking})
	want := bytes.Repeat([]byte{7}, 1024)
	c.in(v.a, want)
	for range 20 {
		c.post(&wire.HostFunction{Stream: 3, Cookie: 1})
		cookie := c.nextCookie()
		if got := c.outOn(4, v.a, 1024); !bytes.Equal(got, want) {
			t.Fatalf("%d is there", got[0])
		}
		c.post(&wire.HostDone{Cookie: cookie})
		c.must(&wire.Synchronise{}, nil)
	}
	v.round(1)
}

// A function whose stream cannot be held is given once, and the stream waits for it.
func TestFunctionOfAStreamThatCannotBeHeld(t *testing.T) {
	c := stagingClient(t, true)
	v := newVectors(c, 256)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 9})
	v.launch(0)
	c.post(&wire.EventCreate{Event: 5})
	c.post(&wire.EventRecord{Event: 5})
	if cookie := c.nextCookie(); cookie != 9 {
		t.Fatalf("function %d is given", cookie)
	}
	if r := c.call(&wire.EventQuery{Event: 5}, nil); r != notReady {
		t.Errorf("what is behind the function has been done: %d", r)
	}
	c.post(&wire.HostDone{Cookie: 9})
	v.round(1)
}

// queueingContext is of a driver that loads a module, or ends what is in its first stream, once all
// streams have ended what they do: they share a queue of the device. waits has a value for each time.
type queueingContext struct {
	device.Context
	waits   chan struct{}
	mu      sync.Mutex
	streams []device.Stream
}

type queueingStream struct {
	device.Stream
	c     *queueingContext
	first bool
}

func (c *queueingContext) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
	return queueingStream{s, c, len(c.streams) == 1}, err
}

func (s queueingStream) Can() *device.StreamCan { return &device.StreamCan{Hold: s.Stream.Can().Hold} }

func (s queueingStream) Synchronise(ctx context.Context) error {
	if s.first {
		s.c.wait(ctx)
	}
	return s.Stream.Synchronise(ctx)
}

// queueingEvent is of the first stream if it was recorded there.
type queueingEvent struct {
	device.Event
	c     *queueingContext
	first bool
}

func (c *queueingContext) NewEvent() (device.Event, error) {
	e, err := c.Context.NewEvent()
	return &queueingEvent{Event: e, c: c}, err
}

func (s queueingStream) Record(e device.Event) error {
	own := e.(*queueingEvent)
	own.first = s.first
	return s.Stream.Record(own.Event)
}

func (s queueingStream) Wait(e device.Event) error { return s.Stream.Wait(e.(*queueingEvent).Event) }

func (e *queueingEvent) Since(other device.Event) (time.Duration, error) {
	return e.Event.Since(other.(*queueingEvent).Event)
}

func (e *queueingEvent) Synchronise(ctx context.Context) error {
	if e.first {
		e.c.wait(ctx)
	}
	return e.Event.Synchronise(ctx)
}

func (c *queueingContext) Load(image []byte) (device.Module, error) {
	c.wait(context.Background())
	return c.Context.Load(image)
}

func (c *queueingContext) wait(ctx context.Context) {
	c.mu.Lock()
	streams := slices.Clone(c.streams)
	c.mu.Unlock()
	for _, s := range streams {
		if done, _ := s.Done(); !done {
			select {
			case c.waits <- struct{}{}:
			default:
			}
			_ = s.Synchronise(ctx)
		}
	}
}

// What the worker itself waits for may wait for a function of the program, in the driver. The worker
// hears meanwhile that the function has returned.
func TestWorkerWaitsBesideAFunction(t *testing.T) {
	for what, begin := range map[string]func(c *client, v *vectors){
		"a module is loaded": func(c *client, v *vectors) {
			c.load(7, kernelFile(t, "print.nvcc90.ptx"), "print_plain")
			v.launch(4)
		},
		"the clock of a trace is set": func(c *client, v *vectors) {
			new(traced).read(c) // the trace begins
			v.launch(4)
		},
		"memory is moved": func(c *client, v *vectors) {
			c.alloc(8 * mib)
			v.launch(4)
		},
	} {
		t.Run(what, func(t *testing.T) {
			waits := make(chan struct{}, 1)
			c := newClient(t, options{wrap: func(_ string, c device.Context) device.Context {
				return &queueingContext{Context: c, waits: waits}
			}})
			v := newVectors(c, 256)
			v.round(0)
			c.post(&wire.StreamCreate{Stream: 3, Flags: nonBlocking})
			c.post(&wire.StreamCreate{Stream: 4, Flags: nonBlocking})
			c.post(&wire.HostFunction{Stream: 3, Cookie: 9})
			c.nextCookie()
			for len(waits) > 0 {
				<-waits
			}
			begin(c, v)
			<-waits
			c.post(&wire.HostDone{Cookie: 9})
			v.round(1)
		})
	}
}
