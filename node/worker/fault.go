package worker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/device"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// sticky is the result that every call answers with after a fault, until a
// reset. The program sees a copy in the memory that it shares with the worker;
// what it writes there is no concern of ours.
type sticky struct {
	publish func(result)

	mu     sync.Mutex
	world  uint64 // counts resets: a fault of an earlier world is over
	result result
	before result // of the world before
}

func (t *sticky) now() result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result
}

func (t *sticky) current() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.world
}

// of returns the result of a world, for calls that waited in it.
func (t *sticky) of(world uint64) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if world != t.world {
		return t.before
	}
	return t.result
}

// set makes a result the answer to everything, unless there was a reset since.
func (t *sticky) set(world uint64, r result) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if world != t.world {
		return false
	}
	if t.result == success { // the first one counts
		t.result = r
		t.publish(r)
	}
	return true
}

// clear begins a new world.
func (t *sticky) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world++
	t.before, t.result = t.result, success
	t.publish(success)
}

// found is a fault that somebody came upon who waited for the device.
type found struct {
	world uint64
	err   error
}

func isFault(err error) bool {
	var fault *device.Fault
	return errors.As(err, &fault)
}

// fault notes that the client's work failed for good: everything on the device
// is gone, and every later call fails.
func (s *session) fault(err error) {
	if s.broken(err) {
		s.say(control.Failed{Lease: s.granted, Reason: err.Error()})
	}
}

// broken is fault for a device that the daemon knows to be gone. It returns false
// if there was a fault before.
func (s *session) broken(err error) bool {
	if s.faulted != nil {
		return false
	}
	s.faulted = err
	s.log.Info("fault", "error", err)
	s.sticky.set(s.sticky.current(), resultOf(err))
	s.hosts.drop() // first: closing waits for those who wait for the program
	s.closeGPU()
	s.allLost()
	s.activity.stop(s)
	s.lease = lease{}
	return true
}

// allLost notes that no device has anything of the client's memory any more.
func (s *session) allLost() {
	for i := range s.serve.Devices {
		s.space.Lost(vmm.Device(i))
	}
}

// later answers a call when something has ended. The loop goes on meanwhile.
func (s *session) later(slot int, wait func() error) error {
	if s.waiting.Add(1) > wire.Slots {
		return fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, errProtocol)
	}
	world, pending := s.sticky.current(), s.failure
	s.failure = success
	s.others.Go(func() {
		err := wait()
		now := time.Now()
		s.done.Store(&now)
		s.waiting.Add(-1)
		if ended(err) && s.ctx.Err() != nil {
			return // nobody knows what was done; the client hears of the end instead
		}
		r := s.outcome(world, err)
		if r == success {
			r = pending
		}
		s.shared.Reply(slot, r, nil)
		if s.watched.Load() {
			s.consumer.Wake()
		}
	})
	return nil
}

// outcome is what a call is told that has waited. Every later call must fail
// after a fault, and so must those that were sent already.
func (s *session) outcome(world uint64, err error) result {
	switch {
	case isFault(err):
		if s.sticky.set(world, resultOf(err)) {
			select {
			case s.faults <- found{world, err}:
			default: // one is enough
			}
			s.consumer.Wake()
		}
		return resultOf(err)
	case ended(err): // with everything on it, or by a fault
		return s.sticky.of(world)
	}
	return resultOf(err)
}
