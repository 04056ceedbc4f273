package fault

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"muster/device"
)

// spinning launches a kernel that never ends.
func (w *wrapped) spinning() {
	w.Helper()
	image, err := os.ReadFile("../devicetest/kernels/basic.ptx")
	w.ok(err)
	m, err := w.ctx.Load(image)
	w.ok(err)
	f, err := m.Function("spin")
	w.ok(err)
	w.ok(w.ctx.Map(base, granule))
	var params []byte
	for _, word := range []uint64{base, base + 4, 1<<64 - 1} {
		for i := range 8 {
			params = append(params, byte(word>>(8*i)))
		}
	}
	one := device.Dim{X: 1, Y: 1, Z: 1}
	w.ok(w.stream.Launch(f, device.Launch{Grid: one, Block: one, Params: params}))
}

// watched is a context that reports when a caller begins to wait in Synchronise.
type watched struct {
	context.Context
	begun chan struct{}
	once  sync.Once
}

func (c *watched) Done() <-chan struct{} {
	c.once.Do(func() { close(c.begun) })
	return c.Context.Done()
}

// Waiting calls return when the device is lost.
func TestLossEndsWaits(t *testing.T) {
	w := wrap(t, "map:2:fail=device-lost")
	w.spinning()
	e, err := w.ctx.NewEvent()
	w.ok(err)
	w.ok(w.stream.Record(e))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	answers := make(chan error)
	waits := []func(context.Context) error{w.ctx.Synchronise, w.stream.Synchronise, e.Synchronise}
	for _, wait := range waits {
		c := &watched{Context: ctx, begun: make(chan struct{})}
		go func() { answers <- wait(c) }()
		<-c.begun
	}
	if err := w.ctx.Map(base+granule, granule); err == nil {
		t.Fatal("the rule did not work")
	}
	for range waits {
		var f *device.Fault
		if err := <-answers; !errors.As(err, &f) || f.Kind != device.DeviceLost {
			t.Errorf("answered %v", err)
		}
	}
}
