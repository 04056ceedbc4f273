package wire

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Precedence is memory that all workers of a node share. The workers of programs of class latency
// claim a device there while they have work on it; the workers of class batch look there before they
// launch a kernel, and wait. No worker trusts it for its own progress, since the worker that wrote a
// claim may have died, been stopped, or lie: a claim expires with its lease unless it is renewed, and
// each wait has a limit.
//
// For each device there is a section:
//
//	0   u32  number of claims that have ended; waiting workers sleep on this word
//	4   u32  number of waiting workers
//	8   u64  until when a program of class latency counts as active, in nanoseconds of the
//	         system's monotonic clock; 0: there is none
//	16  places, each a process (u32), 4 unused bytes, and the end of its claim (u64)
type Precedence struct {
	memory []byte
	clock  clock
}

const (
	sectionSize = 256
	endedAt     = 0
	waitersAt   = 4
	aboutAt     = 8
	placesAt    = 16
	placeSize   = 16
	places      = (sectionSize - placesAt) / placeSize

	// MaxPrecedence is how many devices there are sections for.
	MaxPrecedence = 16
	precedence    = sectionSize*MaxPrecedence + queues
)

// ClaimLease is how long a claim holds without being renewed.
const ClaimLease = 50 * time.Millisecond

// aboutLease is how long after its last work a program of class latency still counts as active:
// meanwhile others keep little in flight.
const aboutLease = time.Second

// CreatePrecedence makes the memory. Its size is sealed, so that no worker can take its pages from
// the others by truncating it.
func CreatePrecedence() (*os.File, error) { return memfd("muster-precedence", precedence) }

// HoldsPrecedence says whether a file has all that workers of this version look for there.
func HoldsPrecedence(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Size() >= precedence
}

// MapPrecedence maps it. The file may be closed afterwards.
func MapPrecedence(f *os.File) (*Precedence, error) {
	info, err := f.Stat()
	if err == nil && info.Size() < precedence {
		err = fmt.Errorf("it has %d bytes of %d", info.Size(), precedence)
	}
	if err != nil {
		return nil, fmt.Errorf("the memory in which programs claim devices: %w", err)
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, precedence, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory in which programs claim devices: %w", err)
	}
	return &Precedence{memory, newClock()}, nil
}

// Unmap unmaps the memory.
func (p *Precedence) Unmap() { _ = syscall.Munmap(p.memory) }

// Now is the present time on the clock of claims.
func (p *Precedence) Now() int64 { return p.clock.now() }

// About reports whether programs of class latency may be active on a device. Workers call it for
// every launch, so it only reads one word.
func (p *Precedence) About(device int) bool {
	return atomic.LoadUint64(p.u64(device*sectionSize+aboutAt)) != 0
}

// StillAbout checks the word that About reads, since it may be that of a program that has left.
func (p *Precedence) StillAbout(device int, now int64) bool {
	word := p.u64(device*sectionSize + aboutAt)
	until := atomic.LoadUint64(word)
	if until == 0 || credible(until, now, aboutLease) {
		return until != 0
	}
	atomic.CompareAndSwapUint64(word, until, 0)
	return false
}

// credible reports whether an honest worker can have written this end of a lease: it is in the
// future, and at most one lease ahead.
func credible(until uint64, now int64, lease time.Duration) bool {
	return int64(until) > now && int64(until) <= now+int64(lease)
}

// Claimed says whether a process has claimed a device for work of class latency.
func (p *Precedence) Claimed(device int, now int64) bool {
	for i := range places {
		if until := atomic.LoadUint64(p.until(device, i)); until != 0 && credible(until, now, ClaimLease) {
			return true
		}
	}
	return false
}

// Await waits until a claim to a device ends, at most for timeout. It reads the count of ended
// claims before it looks for a claim, so a claim that ends in between changes the word and the
// futex does not sleep. On machines with cores to spare it polls for aRequest first: claims are
// short, and the device is idle while the process that has it next wakes up.
func (p *Precedence) Await(device int, timeout time.Duration) {
	ended, waiters := p.u32(device*sectionSize+endedAt), p.u32(device*sectionSize+waitersAt)
	seen := atomic.LoadUint32(ended)
	atomic.AddUint32(waiters, 1)
	defer atomic.AddUint32(waiters, ^uint32(0))
	if !p.Claimed(device, p.Now()) {
		return
	}
	if mostSpins > maxSpins && p.changesWithin(ended, seen, min(timeout, aRequest)) {
		return
	}
	if p.Claimed(device, p.Now()) {
		futexWait(ended, seen, timeout)
	}
}

// aRequest is for how long Await polls: longer than a claim usually lasts.
const aRequest = 500 * time.Microsecond

// changesWithin polls a word until it differs from what was seen, at most for limit.
func (p *Precedence) changesWithin(word *uint32, seen uint32, limit time.Duration) bool {
	for until := p.Now() + int64(limit); p.Now() < until; yield() {
		for range minSpins {
			if atomic.LoadUint32(word) != seen {
				return true
			}
			pause()
		}
	}
	return false
}

// Waiting is the number of workers that wait for a device.
func (p *Precedence) Waiting(device int) int {
	return int(atomic.LoadUint32(p.u32(device*sectionSize + waitersAt)))
}

// Bury removes the claims of processes that no longer exist.
func (p *Precedence) Bury(device int) {
	for i := range places {
		owner := atomic.LoadUint32(p.owner(device, i))
		if owner != 0 && isDead(owner) && atomic.CompareAndSwapUint32(p.owner(device, i), owner, 0) {
			atomic.StoreUint64(p.until(device, i), 0)
		}
	}
}

// isDead says whether no process has a number. The word may be anything: numbers that the system would
// take for groups, or for all processes, are nobody's.
func isDead(pid uint32) bool {
	return pid > math.MaxInt32 || syscall.Kill(int(pid), 0) == syscall.ESRCH
}

// Claim is the place of one process on one device.
type Claim struct {
	on    *Precedence
	at    int // the section
	until *uint64
	owner *uint32
	about uint64 // the value that it last wrote to the about word
}

// Claim gives a process a place; nil if all are taken: then no other program gives way to it.
func (p *Precedence) Claim(device, pid int) *Claim {
	p.Bury(device)
	for i := range places {
		if owner := p.owner(device, i); atomic.CompareAndSwapUint32(owner, 0, uint32(pid)) {
			return &Claim{on: p, at: device * sectionSize, until: p.until(device, i), owner: owner}
		}
	}
	return nil
}

// Hold claims the device, or extends the claim, and returns the time. Several goroutines may call
// it and End. It writes only if less than half of the lease is left, so that launches stay cheap.
func (c *Claim) Hold() int64 {
	now := uint64(c.on.Now())
	until := atomic.LoadUint64(c.until)
	if until < now+uint64(ClaimLease)/2 || !credible(until, int64(now), ClaimLease) { // otherwise it was written just now
		atomic.StoreUint64(c.until, now+uint64(ClaimLease))
	}
	if about := now + uint64(aboutLease); about > atomic.LoadUint64(&c.about)+uint64(aboutLease)/4 {
		atomic.StoreUint64(&c.about, about)
		atomic.StoreUint64(c.on.u64(c.at+aboutAt), about)
	}
	return int64(now)
}

// Renew extends a claim whose work has not ended.
func (c *Claim) Renew() {
	if atomic.LoadUint64(c.until) != 0 {
		c.Hold()
	}
}

// End ends the claim, because the process has no work left, and wakes waiting workers.
func (c *Claim) End() {
	if atomic.SwapUint64(c.until, 0) == 0 {
		return
	}
	ended := c.on.u32(c.at + endedAt)
	atomic.AddUint32(ended, 1)
	if atomic.LoadUint32(c.on.u32(c.at+waitersAt)) > 0 {
		futexWake(ended)
	}
}

// Leave gives the place back.
func (c *Claim) Leave() {
	c.End()
	atomic.StoreUint32(c.owner, 0)
}

func (p *Precedence) owner(device, place int) *uint32 {
	return p.u32(device*sectionSize + placesAt + place*placeSize)
}

func (p *Precedence) until(device, place int) *uint64 {
	return p.u64(device*sectionSize + placesAt + place*placeSize + 8)
}

// clock is the system's monotonic clock, which is the same in all processes, at the price of Go's
// own.
type clock struct {
	began time.Time
	at    int64
}

func newClock() clock { return clock{time.Now(), monotonic()} }

func (c clock) now() int64 { return c.at + int64(time.Since(c.began)) }
