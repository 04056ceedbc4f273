package worker

import (
	"slices"
	"sync"
	"testing"

	"muster/device"
	"muster/wire"
)

// asked is a context that notes which priorities it was asked for.
type asked struct {
	device.Context
	mu         *sync.Mutex
	priorities *[]int
}

func (a asked) Can() *device.ContextCan {
	can := *a.Context.Can()
	can.NewStreamOf = a.newStreamOf
	return &can
}

func (a asked) newStreamOf(priority int) (device.Stream, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.priorities = append(*a.priorities, priority)
	return a.NewStream()
}

// Streams have the priorities that the program gave them, and the mover the highest.
func TestPriorities(t *testing.T) {
	var mu sync.Mutex
	var priorities []int
	c := newClient(t, options{wrap: func(_ string, c device.Context) device.Context { return asked{c, &mu, &priorities} }})
	v := newVectors(c, 1000)
	c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking, Priority: -3})
	c.post(&wire.StreamCreate{Stream: 2, Flags: nonBlocking})
	for stream := range uint32(3) {
		v.launch(stream)
		c.must(&wire.StreamSynchronise{Stream: stream}, nil)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []int{moverPriority, -3}; !slices.Equal(priorities, want) {
		t.Errorf("streams were made with priorities %v, want %v", priorities, want)
	}
}
