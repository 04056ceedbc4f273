package worker

import (
	"fmt"
	"time"

	"muster/vmm"
	"muster/wire"
)

// lease is what the daemon has granted.
type lease struct {
	held   bool
	device int
	memory uint64 // bytes that may be taken on the device
	denied string // why the last request was refused; "" if it was not

	answered, committed bool // the answer to the last KindCommit
}

func (l *lease) grant(device int, memory uint64) {
	l.held, l.device, l.memory, l.denied = true, device, memory, ""
}

// ready makes all of need usable on a device: it gets a lease if there is none,
// and brings what is missing. all says that need is everything the client has.
func (s *session) ready(need []vmm.Range) error {
	for {
		if err := s.leased(s.bytesFor(need)); err != nil {
			return err
		}
		bytes := s.bytesFor(need)
		if bytes > s.lease.memory {
			if err := s.grow(bytes); err != nil {
				return err
			}
			continue
		}
		if err := s.openGPU(); err != nil {
			return err
		}
		if s.gpu == nil || s.bytesFor(need) > s.lease.memory {
			continue
		}
		plan, err := s.space.Prepare(s.gpu.place, need, s.lease.memory-s.modules.memory())
		if err != nil {
			return err
		}
		return s.perform(plan)
	}
}

// leased waits for a lease.
func (s *session) leased(bytes uint64) error {
	if s.lease.held {
		return nil
	}
	s.lease.denied = ""
	s.say(wire.Control{Kind: wire.KindWant, Memory: bytes, Estimate: s.activity.estimate, Device: s.modules.pinned})
	if err := s.await(func() bool { return s.lease.held || s.lease.denied != "" }); err != nil {
		return err
	}
	if !s.lease.held {
		return fmt.Errorf("no device for %d bytes: %s: %w", bytes, s.lease.denied, vmm.ErrCapacity)
	}
	return nil
}

// grow asks for more memory on the device. If there is none for now, the device
// is let go, so that two clients that grow do not wait for each other.
func (s *session) grow(bytes uint64) error {
	s.lease.denied = ""
	s.say(wire.Control{Kind: wire.KindGrow, Memory: bytes})
	err := s.await(func() bool { return !s.lease.held || s.lease.denied != "" || s.lease.memory >= bytes })
	if err != nil {
		return err
	}
	if s.lease.held && s.lease.denied != "" {
		return s.release("")
	}
	return nil
}

// release lets what runs end, moves the client's memory to the host and gives
// the lease back. The context stays open where that costs others little.
func (s *session) release(reason string) error {
	if !s.lease.held {
		// What is kept on a device where the client is no more is wanted back.
		if s.gpu != nil {
			if err := s.leaveGPU(); err != nil {
				s.fault(err)
				return nil
			}
		}
		s.say(wire.Control{Kind: wire.KindReleased, Lease: s.granted})
		return nil
	}
	if err := s.drain(); err != nil {
		s.fault(err)
		return nil
	}
	if s.gpu != nil {
		plan := s.space.Evict(s.gpu.place, 0)
		if len(plan) > 0 {
			s.stats.Swaps++
		}
		if err := s.perform(plan); err != nil {
			return err
		}
		s.gpu.freeze(s)
		if reason == forMemory {
			if err := s.leaveGPU(); err != nil {
				s.fault(err)
				return nil
			}
		}
	}
	s.log.Debug("released", "reason", reason)
	s.letGo()
	return nil
}

// forMemory is the reason to revoke that leaves nothing on the device.
const forMemory = "memory"

// letGo gives the lease back; nothing of the client's memory is on the device.
func (s *session) letGo() {
	s.activity.stop(s)
	var keeps uint64
	if s.gpu != nil {
		keeps = s.gpu.cost + s.modules.memory()
	}
	s.lease = lease{}
	s.say(wire.Control{Kind: wire.KindReleased, Memory: keeps, Lease: s.granted})
	s.say(wire.Control{Kind: wire.KindReport, Stats: s.statistics()})
}

// bytesFor is how much room on a device ranges take, in whole chunks, with the
// variables of modules.
func (s *session) bytesFor(ranges []vmm.Range) uint64 {
	total, end := s.modules.memory(), uint64(0)
	for _, r := range ranges { // in the order of their addresses
		from, to := max(r.Addr&^(chunk-1), end), (r.Addr+r.Size+chunk-1)&^(chunk-1)
		if to > from {
			total += to - from
			end = to
		}
	}
	return total
}

// commitStep is in what steps the daemon is asked for swap room.
const commitStep = 256 << 20

// commit makes sure that all of the client's memory has room in the swap area.
func (s *session) commit(bytes uint64) error {
	if bytes <= s.committed && s.committed-bytes < 2*commitStep {
		return nil
	}
	for _, want := range []uint64{(bytes + commitStep - 1) / commitStep * commitStep, bytes} {
		s.lease.answered = false
		s.say(wire.Control{Kind: wire.KindCommit, Memory: want})
		if err := s.await(func() bool { return s.lease.answered }); err != nil {
			return err
		}
		if s.lease.committed {
			s.committed = want
			return nil
		}
	}
	return fmt.Errorf("the node has no swap room for %d bytes: %w", bytes, vmm.ErrLimit)
}

// activity says whether the client uses its device, for as long as others may
// care.
type activity struct {
	busy     bool // kernels were launched and may run
	since    time.Time
	kernels  int           // launched since the last report
	estimate time.Duration // of a phase with kernels, from those seen

	watching bool
	idle     bool // the daemon was told so
	quiet    time.Time
	reported time.Time
}

const (
	idleAfter   = time.Millisecond       // so long nothing happens before the daemon is told
	reportEvery = 250 * time.Millisecond // how often the daemon is told what was done
	longWait    = 10 * time.Second
)

// wait is how long to wait for a message before looking around.
func (a *activity) wait(s *session) time.Duration {
	switch {
	case a.watching && !a.idle && s.lease.held:
		return idleAfter
	case a.busy:
		return 5 * time.Millisecond
	case s.stats.Messages > 0 && a.reported.IsZero():
		return reportEvery
	}
	return longWait
}

// launched notes a kernel.
func (a *activity) launched() {
	a.kernels++
	if !a.busy {
		a.busy, a.since = true, time.Now()
	}
}

// message notes that the client did something.
func (a *activity) message(s *session) error {
	if a.idle {
		a.idle = false
		s.say(wire.Control{Kind: wire.KindBusy})
	}
	a.quiet = time.Time{}
	a.reported = time.Time{}
	return nil
}

// watch begins or ends telling the daemon.
func (a *activity) watch(on bool) {
	a.watching = on
	a.idle = false
}

// stop notes that nothing runs any more.
func (a *activity) stop(s *session) {
	if a.busy {
		a.ended(s)
	}
	a.idle, a.watching = false, false
	s.watched.Store(false)
}

// ended notes that the kernels have ended.
func (a *activity) ended(s *session) {
	phase := time.Since(a.since)
	a.busy = false
	if a.estimate == 0 {
		a.estimate = phase
	}
	a.estimate = (3*a.estimate + phase) / 4
	s.stats.Busy += phase
	s.say(wire.Control{Kind: wire.KindRan, Kernels: a.kernels, Busy: phase})
	a.kernels = 0
}

// tell says at once whether the client is busy: somebody waits for its device.
func (s *session) tell() error {
	quiet, err := s.quiet()
	if err == nil && (!quiet || s.consumer.Pending()) {
		s.say(wire.Control{Kind: wire.KindBusy})
		return nil
	}
	return s.observe()
}

// observe looks around while no message comes.
func (s *session) observe() error {
	a := &s.activity
	quiet, err := s.quiet()
	if err != nil {
		s.fault(err)
		return nil
	}
	now := time.Now()
	if !quiet {
		a.quiet = time.Time{}
		if now.Sub(a.since) > reportEvery { // a long phase is told of in parts
			s.stats.Busy += now.Sub(a.since)
			s.say(wire.Control{Kind: wire.KindRan, Kernels: a.kernels, Busy: now.Sub(a.since)})
			a.kernels, a.since = 0, now
		}
		return nil
	}
	if a.busy {
		a.ended(s)
	}
	if a.quiet.IsZero() {
		a.quiet = now
	}
	if a.watching && !a.idle && s.lease.held && now.Sub(a.quiet) >= idleAfter {
		a.idle = true
		s.say(wire.Control{Kind: wire.KindIdle, Busy: now.Sub(a.quiet)})
	}
	if a.reported.IsZero() {
		a.reported = now
		s.say(wire.Control{Kind: wire.KindReport, Stats: s.statistics()})
	}
	return nil
}
