package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/device"
	"muster/vmm"
)

// gpu is an open context on a device.
type gpu struct {
	device  device.Device
	index   int
	place   vmm.Place
	context device.Context
	mover   device.Stream // for the plans of the directory
	scratch device.Event  // for order between streams
	origin  device.Event  // times are told relative to it
	opened  time.Time
	cost    uint64 // what the context takes by itself

	mu   sync.Mutex
	free []device.Event // for marks
}

// openGPU makes sure that there is a context on the device of the lease, with
// the client's modules in it.
func (s *session) openGPU() error {
	if s.gpu != nil && s.gpu.index == s.lease.device {
		return nil
	}
	if s.gpu != nil {
		if err := s.leaveGPU(); err != nil {
			return err
		}
	}
	d, err := s.device(s.lease.device)
	if err != nil {
		return err
	}
	g := &gpu{device: d, index: s.lease.device, place: vmm.Device(s.lease.device), cost: d.Info().ContextCost}
	arena := device.Arena{Base: s.serve.ArenaBase, Size: s.serve.ArenaSize}
	if g.context, err = d.Open(device.Config{Arena: arena, Print: s.print}); err != nil {
		return fmt.Errorf("opening %s: %w", d.Info().Name, err)
	}
	// Copies go straight between the device and what the program shares. Pinned
	// memory of the program's is not pinned here: it may be large and unused.
	geometry := s.shared.Geometry()
	if _, err := g.context.Pin(s.shared.Arena()[:geometry.Staging+geometry.Bounce]); err != nil {
		s.log.Debug("pinning staging memory", "error", err) // copies are slower without
	}
	if err := g.prepare(); err != nil {
		g.context.Close()
		return err
	}
	s.gpu = g
	err = s.modules.load(s)
	if err == nil {
		return nil
	}
	s.closeGPU()
	if errors.Is(err, errMoved) && s.modules.pinned < 0 {
		// Where they were placed first, they have their addresses.
		s.modules.pinned = s.modules.home
		return s.release(false)
	}
	return err
}

// device opens a device of the node, once.
func (s *session) device(i int) (device.Device, error) {
	if i < 0 || i >= len(s.devices) {
		return nil, fmt.Errorf("the daemon grants device %d of %d", i, len(s.devices))
	}
	if s.devices[i] == nil {
		d, err := s.open(s.serve.Devices[i], s.locks[i])
		if err != nil {
			return nil, fmt.Errorf("opening device %s: %w", s.serve.Devices[i].Name, err)
		}
		s.devices[i] = d
	}
	return s.devices[i], nil
}

func (g *gpu) prepare() error {
	var err error
	if g.mover, err = g.context.NewStream(); err != nil {
		return err
	}
	if g.scratch, err = g.context.NewEvent(); err != nil {
		return err
	}
	if g.origin, err = g.context.NewEvent(); err != nil {
		return err
	}
	g.opened = time.Now()
	return g.mover.Record(g.origin)
}

// leaveGPU closes the context of a device that the client is no more on; the
// contents of variables are kept. Memory was moved away before.
func (s *session) leaveGPU() error {
	if err := s.modules.save(s); err != nil {
		return err
	}
	s.gpu.freeze(s)
	s.closeGPU()
	return nil
}

// closeGPU ends the context, and what is left on it.
func (s *session) closeGPU() {
	if s.gpu == nil {
		return
	}
	if err := s.gpu.context.Close(); err != nil {
		s.log.Debug("closing a context", "error", err)
	}
	s.gpu = nil
	s.staging.returned()
	s.modules.forget()
	s.streams.forget()
	for _, e := range s.events {
		e.device, e.pending = nil, false
	}
}

// mark returns a function that waits for what a stream was given so far, and for
// nothing that comes later.
func (s *session) mark(on device.Stream) (wait func() error, err error) {
	g := s.gpu
	e, err := g.event()
	if err != nil {
		return nil, err
	}
	if err := s.block(func() error { return on.Record(e) }); err != nil {
		return nil, err
	}
	return func() error {
		err := e.Synchronise(s.ctx)
		g.mu.Lock()
		g.free = append(g.free, e)
		g.mu.Unlock()
		return err
	}, nil
}

// event returns an event that nobody uses.
func (g *gpu) event() (device.Event, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.free); n > 0 {
		e := g.free[n-1]
		g.free = g.free[:n-1]
		return e, nil
	}
	return g.context.NewEvent()
}

// freeze turns recorded events into times, so that they outlive the context.
// Everything has ended.
func (g *gpu) freeze(s *session) {
	for _, e := range s.events {
		if e.device == nil || !e.pending {
			continue
		}
		e.at = time.Now()
		if since, err := e.device.Since(g.origin); err == nil {
			e.at = g.opened.Add(since)
		}
		e.pending = false
	}
}

// drain waits until everything on the device has ended.
func (s *session) drain() error {
	if s.gpu == nil {
		return nil
	}
	all := s.gpu.context
	return s.block(func() error { return all.Synchronise(s.ctx) })
}

// quiet says whether nothing is under way on the device.
func (s *session) quiet() (bool, error) {
	if s.gpu == nil {
		return true, nil
	}
	for _, st := range s.streams.all {
		if st.device == nil {
			continue
		}
		done, err := st.device.Done()
		if err != nil || !done {
			return false, err
		}
	}
	return s.streams.left()
}

// block does what may take long. While functions of the program's wait to be
// called, its messages are read ahead: one of them may say that such a function
// has returned.
func (s *session) block(f func() error) error {
	if s.hosts.outstanding() == 0 {
		return f()
	}
	done := make(chan error, 1)
	s.others.Go(func() { done <- f() })
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(100 * time.Microsecond):
			if err := s.readAhead(); err != nil {
				return err // it ends the client, and that ends f
			}
		}
	}
}

// perform moves memory as the directory says. Nothing else runs meanwhile.
func (s *session) perform(plan vmm.Plan) error {
	if len(plan) == 0 {
		return nil
	}
	if err := s.drain(); err != nil {
		return err
	}
	for _, step := range plan {
		if err := s.move(step); err != nil {
			if isFault(err) {
				return err
			}
			// The directory has no way back from a step that failed.
			return fmt.Errorf("moving memory failed (%v: %v): %w", step, err, errEnded)
		}
	}
	if s.gpu == nil {
		return nil
	}
	return s.gpu.mover.Synchronise(s.ctx)
}

func (s *session) move(step vmm.Step) error {
	if step.Op == vmm.Discard {
		return s.host.discard(step.Range)
	}
	if s.gpu == nil || s.gpu.place != step.Device {
		return errors.New("there is no context on this device")
	}
	g, r := s.gpu, step.Range
	switch step.Op {
	case vmm.Map:
		return g.context.Map(r.Addr, r.Size)
	case vmm.CopyIn:
		s.stats.SwapIn += r.Size
		return g.mover.CopyIn(r.Addr, s.host.at(r))
	case vmm.CopyOut:
		s.stats.SwapOut += r.Size
		s.host.expect(r)
		return g.mover.CopyOut(s.host.at(r), r.Addr)
	case vmm.Unmap:
		if err := g.mover.Synchronise(s.ctx); err != nil {
			return err
		}
		return g.context.Unmap(r.Addr, r.Size)
	}
	return fmt.Errorf("step %v is not known", step.Op)
}

// ended says whether an error only tells that a context was closed, which
// happens when everything on it has ended.
func ended(err error) bool {
	return errors.Is(err, device.ErrClosed) || errors.Is(err, context.Canceled)
}
