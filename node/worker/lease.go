package worker

import (
	"fmt"
	"time"

	"muster/vmm"
	"muster/wire/control"
)

// lease is what the daemon has granted.
type lease struct {
	held   bool
	device int
	memory uint64 // bytes that may be taken on the device
	denied string // why the last request was refused; "" if it was not

	answered, committed bool // the answer to the last Commit

	// A revocation waits until the program's functions have returned: one of them
	// may wait for another thread of the program's, which waits for us. But not
	// while the lease is to grow: the revocation is the answer to that.
	wanted    bool
	wantedFor string
	growing   bool
}

func (l *lease) grant(device int, memory uint64) {
	l.held, l.device, l.memory, l.denied = true, device, memory, ""
}

// ready makes all of need usable on a device, with the client's modules: it gets
// a lease if there is none, and brings what is missing.
func (s *session) ready(need []vmm.Range) error {
	for s.faulted == nil {
		if err := s.leased(s.bytesFor(need)); err != nil {
			return err
		}
		if bytes := s.bytesFor(need); bytes > s.lease.memory {
			if err := s.grow(bytes); err != nil {
				return err
			}
			continue
		}
		if err := s.openGPU(); err != nil {
			return err
		}
		if s.gpu == nil {
			continue
		}
		plan, err := s.space.Prepare(s.gpu.place, need, s.lease.memory-s.modules.memory())
		if err != nil {
			return err
		}
		if err := s.perform(plan); err != nil {
			return err
		}
		if err := s.modules.place(s); err != nil {
			return err
		}
		if s.modules.memory()+s.space.Mapped(s.gpu.place) <= s.lease.memory {
			return nil
		}
		// Some devices tell how much modules take only when they have them.
	}
	return s.faulted
}

// leased waits for a lease.
func (s *session) leased(bytes uint64) error {
	if s.lease.held {
		return nil
	}
	s.lease.denied = ""
	s.say(control.Want{Memory: bytes, Estimate: s.activity.estimate, Pinned: s.modules.pinned})
	if err := s.await(func() bool { return s.lease.held || s.lease.denied != "" || s.faulted != nil }); err != nil {
		return err
	}
	if s.faulted != nil {
		return s.faulted
	}
	if !s.lease.held {
		return fmt.Errorf("no device for %d bytes: %s: %w", bytes, s.lease.denied, vmm.ErrCapacity)
	}
	return nil
}

// grow asks for more memory on the device. If there is none for now, the device
// is let go, so that two clients that grow do not wait for each other.
func (s *session) grow(bytes uint64) error {
	if s.lease.wanted {
		return s.revoked(s.lease.wantedFor)
	}
	s.lease.denied, s.lease.growing = "", true
	s.say(control.Grow{Memory: bytes})
	err := s.await(func() bool { return !s.lease.held || s.lease.denied != "" || s.lease.memory >= bytes })
	if err != nil {
		return err
	}
	s.lease.growing = false
	if s.lease.held && s.lease.denied != "" {
		return s.release(true)
	}
	return nil
}

// forMemory is the reason of a revocation for somebody else's memory.
const forMemory = "memory"

// revoked gives the lease back because the daemon wants that, or what the client
// has kept on a device where it is no more.
func (s *session) revoked(reason string) error {
	s.log.Debug("revoked", "reason", reason)
	if s.lease.held {
		return s.release(reason != forMemory)
	}
	if s.gpu != nil {
		if err := s.leaveGPU(); isFault(err) {
			s.fault(err)
			return nil
		} else if err != nil {
			return err
		}
	}
	s.say(control.Released{Lease: s.granted})
	return nil
}

// release lets what runs end, moves the client's memory to the host and gives
// the lease back. The context may stay open.
func (s *session) release(keep bool) error {
	if err := s.moveOut(keep); isFault(err) {
		s.fault(err)
		return nil
	} else if err != nil {
		return err
	}
	s.letGo()
	return nil
}

func (s *session) moveOut(keep bool) error {
	if s.gpu == nil {
		return nil
	}
	if err := s.drain(); err != nil {
		return err
	}
	plan := s.space.Evict(s.gpu.place, 0)
	if len(plan) > 0 {
		s.stats.Swaps++
	}
	if err := s.perform(plan); err != nil {
		return err
	}
	s.gpu.freeze(s)
	if keep {
		return nil
	}
	return s.leaveGPU()
}

// letGo gives the lease back; nothing of the client's memory is on the device.
func (s *session) letGo() {
	s.activity.stop(s)
	var keeps uint64
	if s.gpu != nil {
		keeps = s.gpu.cost + s.modules.memory()
	}
	s.lease = lease{}
	s.say(control.Released{Lease: s.granted, Keeps: keeps})
	s.say(control.Report{Stats: s.statistics()})
}

// bytesFor is how much room on a device ranges take, in whole chunks, with the
// variables of modules.
func (s *session) bytesFor(ranges []vmm.Range) uint64 {
	total, end := s.modules.memory(), uint64(0)
	for _, r := range ranges { // in the order of their addresses, all in the arena
		from, to := max(r.Addr&^(chunk-1), end), (r.Addr+r.Size+chunk-1)&^(chunk-1)
		if to > from {
			total += to - from
			end = to
		}
	}
	return total
}

const (
	maxSpare = 256 << 20 // the most swap room that a client gets without need
	kept     = 16 << 20  // that it does not give back at once
)

// commit makes sure that all of the client's memory has room in the swap area.
// Large clients get a little more than they need, so that not each allocation
// asks the daemon, and all keep a little of what they had; others cannot have
// that meanwhile.
func (s *session) commit(bytes uint64) error {
	spare := min(bytes/16, maxSpare) / chunk * chunk
	if bytes <= s.committed && s.committed-bytes <= max(2*spare, kept) {
		return nil
	}
	for _, want := range []uint64{bytes + spare, bytes} {
		s.lease.answered = false
		s.say(control.Commit{Bytes: want})
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
	last     time.Time     // of the last launch
	kernels  int           // launched since the daemon was told
	ran      time.Duration // what they took, in phases that have ended
	told     time.Time     // when the daemon was told
	estimate time.Duration // of a phase with kernels, from those seen

	watching bool
	idle     bool // the daemon was told so
	synced   bool // nothing came since the client announced that it waits for others
	quiet    time.Time
	reported time.Time // when the daemon got the statistics
	changed  bool      // something happened since
}

const (
	idleAfter   = time.Millisecond       // so long nothing happens before the daemon is told
	reportEvery = 250 * time.Millisecond // how often the daemon is told what was done
	toldEvery   = 10 * time.Millisecond  // how often it is told of short phases
	longWait    = 10 * time.Second
)

// wait is how long to wait for a message before looking around.
func (a *activity) wait(s *session) time.Duration {
	switch {
	case a.watching && !a.idle && s.lease.held:
		return idleAfter
	case a.busy:
		return 5 * time.Millisecond
	case a.changed:
		return reportEvery
	}
	return longWait
}

// launched notes that a kernel is about to be. If somebody has seen the end of
// those before, a new phase begins.
func (a *activity) launched(s *session) {
	now := time.Now()
	if done := s.done.Load(); a.busy && done != nil && done.After(a.last) {
		if quiet, err := s.quiet(); quiet && err == nil {
			a.over(s, *done)
			if now.Sub(a.told) > toldEvery {
				a.tell(s, now)
			}
		}
	}
	a.kernels++
	if !a.busy {
		a.busy, a.since = true, now
	}
	a.last = now
	if now.Sub(a.reported) > reportEvery {
		s.report(now)
	}
}

// over ends a phase with kernels.
func (a *activity) over(s *session, at time.Time) {
	phase := max(0, at.Sub(a.since))
	a.busy = false
	if a.estimate == 0 {
		a.estimate = phase
	}
	a.estimate = (3*a.estimate + phase) / 4
	s.stats.Busy += phase
	a.ran += phase
}

// tell tells the daemon what kernels took.
func (a *activity) tell(s *session, now time.Time) {
	s.say(control.Ran{Kernels: a.kernels, Busy: a.ran})
	a.kernels, a.ran, a.told = 0, 0, now
}

// report tells the daemon what was done so far, and what the client has.
func (s *session) report(now time.Time) {
	s.activity.reported, s.activity.changed = now, false
	s.say(control.Report{Stats: s.statistics()})
}

// message notes that the client did something.
func (a *activity) message(s *session) {
	a.part(s)
	a.synced = false
	if a.idle {
		a.idle = false
		s.say(control.Busy{})
	}
	a.quiet = time.Time{}
	a.changed = true
}

// part tells of a part of a long phase.
func (a *activity) part(s *session) {
	if !a.busy {
		return
	}
	if phase := time.Since(a.since); phase > reportEvery {
		s.stats.Busy += phase
		a.ran += phase
		a.since = a.since.Add(phase)
		a.tell(s, a.since)
	}
}

// watch begins or ends telling the daemon whether the client is idle. It begins
// with what is so now.
func (s *session) watch(on bool) error {
	a := &s.activity
	s.watched.Store(on)
	a.watching, a.idle = on, false
	if !on || !s.lease.held {
		return nil
	}
	if a.synced && !s.consumer.Pending() && !s.backlog.waits() {
		s.atSyncPoint()
		return nil
	}
	quiet, err := s.quiet()
	if err != nil {
		s.fault(err)
		return nil
	}
	if !quiet || a.quiet.IsZero() || s.consumer.Pending() || s.backlog.waits() {
		a.quiet = time.Time{}
		s.say(control.Busy{})
		return nil
	}
	s.idle(time.Now())
	return nil
}

// idle tells the daemon that nothing happens, once that has been so for a while.
func (s *session) idle(now time.Time) {
	a := &s.activity
	if a.watching && !a.idle && s.lease.held && now.Sub(a.quiet) >= idleAfter {
		a.idle = true
		s.say(control.Idle{For: now.Sub(a.quiet)})
	}
}

// atSyncPoint tells the daemon that the client waits for others. The next
// message says otherwise.
func (s *session) atSyncPoint() {
	s.activity.idle, s.activity.synced = true, true
	s.say(control.SyncPoint{})
}

// stop notes that nothing runs any more.
func (a *activity) stop(s *session) {
	a.settle(s)
	a.idle, a.synced, a.watching = false, false, false
	s.watched.Store(false)
}

// settle notes that nothing runs any more, and tells the daemon all that it was
// not told.
func (a *activity) settle(s *session) {
	if a.busy {
		a.ended(s)
	}
	if a.kernels > 0 {
		a.tell(s, time.Now())
	}
}

// ended notes that the kernels have ended: when somebody who waited saw it, or
// else now.
func (a *activity) ended(s *session) {
	now := time.Now()
	at := now
	if done := s.done.Load(); done != nil && done.After(a.last) {
		at = *done
	}
	a.over(s, at)
	a.tell(s, now)
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
		a.part(s)
		return nil
	}
	a.settle(s)
	if a.quiet.IsZero() {
		a.quiet = now
	}
	s.idle(now)
	if a.changed && now.Sub(a.reported) > reportEvery {
		s.report(now)
	}
	return nil
}
