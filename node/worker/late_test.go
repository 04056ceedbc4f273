package worker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"muster/device"
	"muster/wire"
)

// lateContext takes all launches, makes them when anything else is asked, and then refuses those with
// a certain side.
type lateContext struct {
	device.Context
	mu      sync.Mutex
	taken   uint64
	waiting []func()
	refused []device.Refusal
}

const refusedSide = 7

func (c *lateContext) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return &lateStream{s, c}, err
}

func (c *lateContext) make() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, launch := range c.waiting {
		launch()
	}
	c.waiting = nil
}

// lateStream asks of its stream what changes nothing without making launches.
type lateStream struct {
	device.Stream
	c *lateContext
}

func (s *lateStream) Can() *device.StreamCan {
	return &device.StreamCan{LaunchLater: s.launchLater, Refused: s.refused}
}

func (s *lateStream) launchLater(f device.Function, l device.Launch, _ bool) (number uint64, later bool, err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	number = s.c.taken
	s.c.taken++
	l.Params = append([]byte(nil), l.Params...)
	s.c.waiting = append(s.c.waiting, func() {
		err := fmt.Errorf("a side of %d: %w", refusedSide, device.ErrInvalidValue)
		if l.Grid.Y != refusedSide {
			err = s.Stream.Launch(f, l)
		}
		if err != nil {
			s.c.refused = append(s.c.refused, device.Refusal{Number: number, Err: err})
		}
	})
	return number, true, nil
}

func (s *lateStream) refused() []device.Refusal {
	s.c.make()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	refused := s.c.refused
	s.c.refused = nil
	return refused
}

func (s *lateStream) Launch(f device.Function, l device.Launch) error {
	s.c.make()
	return s.Stream.Launch(f, l)
}

func (s *lateStream) CopyIn(dst uint64, src []byte) error {
	s.c.make()
	return s.Stream.CopyIn(dst, src)
}

func (s *lateStream) CopyOut(dst []byte, src uint64) error {
	s.c.make()
	return s.Stream.CopyOut(dst, src)
}

func (s *lateStream) Record(e device.Event) error {
	s.c.make()
	return s.Stream.Record(e)
}

func (s *lateStream) Done() (bool, error) {
	s.c.make()
	return s.Stream.Done()
}

// A launch that the device refuses after it took it is told as any other: once, by the next call that
// has an answer. A worker that follows tells nothing again.
func TestLaunchesRefusedLate(t *testing.T) {
	var dies atomic.Bool
	c := newClient(t, options{killed: func() bool { return dies.Swap(false) }, wrap: func(_ string, c device.Context) device.Context { return &lateContext{Context: c} }})
	v := newVectors(c, 1000)
	v.round(0)
	refused := &wire.Launch{Function: v.function, GridX: 1, GridY: refusedSide, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: params(v.a, v.b, v.c, v.n)}
	for i := range 4 {
		v.launch(0)
		c.post(refused)
		for range i {
			v.launch(0)
			c.post(refused)
		}
		if r := c.call(&wire.Synchronise{}, nil); r != invalidValue {
			t.Fatalf("after a launch that was refused: %d", r)
		}
		c.must(&wire.Synchronise{}, nil)
		if i == 2 {
			dies.Store(true)
		}
		v.round(i)
	}
	for range 2 * mostLate { // more than are kept in mind
		v.launch(0)
	}
	c.post(refused)
	if r := c.call(&wire.StreamSynchronise{}, nil); r != invalidValue {
		t.Errorf("after a launch that was refused: %d", r)
	}
	v.round(9)
}
