package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Geometry is the sizes of the parts of the memory that a client and its worker share. All are
// multiples of the page size; Ring is a power of two.
type Geometry struct {
	Ring    uint64 // bytes for messages
	Staging uint64 // at the beginning of the arena: staging memory for data on their way to the worker
	Bounce  uint64 // then buffers for data on their way back
	Pinned  uint64 // then the program's pinned memory
}

// DefaultGeometry is sparse: pages that are never touched cost nothing.
var DefaultGeometry = Geometry{Ring: 1 << 20, Staging: 16 << 20, Bounce: 16 << 20, Pinned: 4 << 30}

// Arena is the size of the data arena.
func (g Geometry) Arena() uint64 { return g.Staging + g.Bounce + g.Pinned }

func (g Geometry) check() error {
	const most = 1 << 46
	switch {
	case g.Ring > most || g.Staging > most || g.Bounce > most || g.Pinned > most:
	case g.Ring&(g.Ring-1) != 0 || g.Ring < 2*MaxMessage:
	case (g.Staging|g.Bounce|g.Pinned)%uint64(os.Getpagesize()) != 0:
	case g.Bounce%BounceBuffer != 0 || g.Staging < 2*BounceBuffer:
	default:
		return nil
	}
	return fmt.Errorf("the shared memory cannot have these sizes: %+v", g)
}

// BounceBuffer is the size of one buffer for data on their way back.
const BounceBuffer = 1 << 20

// Offsets in the ring's memory; shim/lib/transport/wire.h has the same.
const (
	slotCount = 256
	slotSize  = 256
	slotsAt   = 4096
	ringAt    = slotsAt + slotCount*slotSize

	atMagic, atVersion, atSchema, atSlots         = 0, 4, 8, 12
	atRingSize, atArenaSize, atStaging, atBounce  = 16, 24, 32, 40
	atTail, atClientWaits, atNoticesRead          = 64, 72, 76
	atHead, atStagingHead, atWorkerWaits          = 128, 136, 144
	atStatus, atClosed, atPrint, atNoticesWritten = 192, 196, 200, 204
	atArenaAt, atGuard                            = 208, 216
	atReason, reasonSize                          = 256, 1024
	atNotices, noticesSize                        = 2048, 2048
	slotState, slotResult, slotLength, slotAnswer = 0, 4, 8, 16

	// MaxReply is how many bytes of an answer fit in its slot.
	MaxReply = slotSize - slotAnswer
)

// The states of a reply slot, in the lowest bits of its word. The upper bits are the worker's: the
// number of the message that it answered last in this slot. From them the successor of a dead
// worker sees which answers the client has got.
const (
	slotFree uint32 = iota
	slotPending
	slotDone
	slotSleeping
	slotStates
)

const stateBits = 2

// stateOf is the state in a slot's word.
func stateOf(word uint32) uint32 { return word & (slotStates - 1) }

// answered is the worker's part of a slot's word after the answer to a message. 0 stands for a slot
// that was never answered.
func answered(seq uint32) uint32 { return (seq + 1) << stateBits }

// MaxMessage is how many bytes a message on the ring may have, including its header.
const MaxMessage = 64 << 10

// Slots is how many calls can wait for an answer at a time.
const Slots = slotCount

// The beginnings of the names of the two files.
const ringName, arenaName = "muster-ring", "muster-arena"

// Shared is the memory between a client and its worker: the ring and the data
// arena.
type Shared struct {
	ring, arena []byte
	placed      bool // the arena is where Place has mapped it
	geometry    Geometry
	closing     atomic.Bool
	notices     notices
	asked       [slotCount]atomic.Uint32 // by slot: the message whose answer is due
}

// Create makes the memory of a new client: two files without a path, which vanish with the last
// process that has them open, and are sealed so that no process can truncate them while another
// uses them. Their names are unique among all clients, so that a tool that saves and restores a
// program's processes can tell them apart.
func Create(g Geometry) (ring, arena *os.File, err error) {
	if err := g.check(); err != nil {
		return nil, nil, err
	}
	unique := "-" + strings.ToLower(rand.Text()[:12])
	if ring, err = memfd(ringName+unique, ringAt+g.Ring); err != nil {
		return nil, nil, err
	}
	// The daemon writes to the head, and must not be killed by SIGBUS if the system has run out of
	// memory.
	if err = reserveHead(ring); err != nil {
		ring.Close()
		return nil, nil, err
	}
	if arena, err = memfd(arenaName+unique, g.Arena()); err != nil {
		ring.Close()
		return nil, nil, err
	}
	s, err := Map(ring, nil)
	if err != nil {
		ring.Close()
		arena.Close()
		return nil, nil, err
	}
	defer s.Unmap()
	*s.u32(atMagic), *s.u32(atVersion), *s.u32(atSchema), *s.u32(atSlots) = Magic, Version, Schema, slotCount
	*s.u64(atRingSize), *s.u64(atArenaSize), *s.u64(atStaging), *s.u64(atBounce) = g.Ring, g.Arena(), g.Staging, g.Bounce
	return ring, arena, nil
}

// Map maps the memory. Without an arena it maps only the ring.
func Map(ring, arena *os.File) (*Shared, error) {
	s := &Shared{}
	var err error
	if s.ring, err = mapFile(ring); err != nil {
		return nil, err
	}
	if len(s.ring) < ringAt {
		s.Unmap()
		return nil, errors.New("the ring's memory is too small")
	}
	if arena == nil {
		return s, nil
	}
	if s.arena, err = mapFile(arena); err != nil {
		s.Unmap()
		return nil, err
	}
	if err := s.readGeometry(); err != nil {
		s.Unmap()
		return nil, err
	}
	s.notices.written = atomic.LoadUint32(s.u32(atNoticesWritten)) // written by a worker before this one
	return s, nil
}

// readGeometry checks the sizes in the head against those of the files, which are sealed: the other
// side may have written anything.
func (s *Shared) readGeometry() error {
	if *s.u32(atMagic) != Magic || *s.u32(atVersion) != Version || *s.u32(atSchema) != Schema || *s.u32(atSlots) != slotCount {
		return errors.New("the ring's memory was made by another version")
	}
	arena := uint64(len(s.arena))
	g := Geometry{Ring: *s.u64(atRingSize), Staging: *s.u64(atStaging), Bounce: *s.u64(atBounce)}
	if g.Ring != uint64(len(s.ring))-ringAt || g.Staging > arena || g.Bounce > arena-g.Staging || *s.u64(atArenaSize) != arena {
		return errors.New("the shared memory has other sizes than it says")
	}
	g.Pinned = arena - g.Staging - g.Bounce
	s.geometry = g
	return g.check()
}

// Unmap unmaps the memory. The caller must make sure that no goroutine uses it afterwards.
func (s *Shared) Unmap() {
	if s.ring != nil {
		_ = syscall.Munmap(s.ring)
	}
	switch {
	case s.arena != nil && s.placed:
		_ = unmapAt(s.arena)
	case s.arena != nil:
		_ = syscall.Munmap(s.arena)
	}
	s.ring, s.arena = nil, nil
}

// Place maps the data arena at an address instead of anywhere, and tells the client, which may map
// it there as well: then pointers into it are the same on both sides. The arena must not be in use
// yet.
func (s *Shared) Place(arena *os.File, address uint64) error {
	b, err := MapAt(arena, 0, uint64(len(s.arena)), address)
	if err != nil {
		return err
	}
	_ = syscall.Munmap(s.arena)
	s.arena, s.placed = b, true
	atomic.StoreUint64(s.u64(atArenaAt), address)
	return nil
}

// SetGuard has the client leave so many bytes free around each allocation of device memory, at least,
// because accesses of kernels are checked: one that goes beyond an allocation then hits no other.
func (s *Shared) SetGuard(bytes uint32) { atomic.StoreUint32(s.u32(atGuard), bytes) }

// MapAt maps a part of a file at an address where nothing is mapped yet.
func MapAt(f *os.File, offset, size, address uint64) ([]byte, error) {
	b, err := mapAt(int(f.Fd()), offset, size, address)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of shared memory at %#x: %w", size, address, err)
	}
	return b, nil
}

// UnmapAt unmaps memory that is not known to the syscall package, as MapAt makes it.
func UnmapAt(b []byte) error { return unmapAt(b) }

// AddressOf is the address of shared memory in this process.
func AddressOf(b []byte) uint64 { return addressOf(b) }

// Geometry returns the sizes.
func (s *Shared) Geometry() Geometry { return s.geometry }

// Arena returns the whole data arena.
func (s *Shared) Arena() []byte { return s.arena }

// Data returns a part of the data arena.
func (s *Shared) Data(offset, length uint64) ([]byte, error) {
	if size := uint64(len(s.arena)); offset > size || length > size-offset {
		return nil, fmt.Errorf("%d bytes at %d are not in the data arena of %d bytes", length, offset, size)
	}
	return s.arena[offset : offset+length : offset+length], nil
}

// Used says whether the client has sent anything.
func (s *Shared) Used() bool { return atomic.LoadUint64(s.u64(atTail)) != 0 }

// Status returns the sticky result: it stays until a reset.
func (s *Shared) Status() int32 { return int32(atomic.LoadUint32(s.u32(atStatus))) }

// SetStatus makes every later call fail with a result; 0 clears it.
func (s *Shared) SetStatus(result int32) { atomic.StoreUint32(s.u32(atStatus), uint32(result)) }

// SetPrint says whether kernels have printed something.
func (s *Shared) SetPrint(on bool) {
	value := uint32(0)
	if on {
		value = 1
	}
	atomic.StoreUint32(s.u32(atPrint), value)
}

// Print says whether kernels have printed something.
func (s *Shared) Print() bool { return atomic.LoadUint32(s.u32(atPrint)) != 0 }

// Close ends the client: it is told the reason and woken wherever it waits. A client that has
// discarded its memory is not told.
func (s *Shared) Close(reason string) {
	if s.closing.CompareAndSwap(false, true) {
		_ = Guard(func() error { s.tell(reason); return nil })
	}
}

func (s *Shared) tell(reason string) {
	reason = shorten(oneLine(reason), reasonSize-1)
	if atomic.LoadUint32(s.u32(atClosed)) == 0 {
		copy(s.ring[atReason:atReason+reasonSize], reason+"\x00")
	}
	atomic.StoreUint32(s.u32(atClosed), 1)
	for i := range slotCount {
		if state := s.slot(i); stateOf(atomic.LoadUint32(state)) == slotSleeping {
			futexWake(state)
		}
	}
	s.wake(s.u32(atClientWaits))
}

// Closed returns why the client was ended, if it was.
func (s *Shared) Closed() (reason string, closed bool) {
	if atomic.LoadUint32(s.u32(atClosed)) == 0 {
		return "", false
	}
	text := s.ring[atReason : atReason+reasonSize]
	for i, c := range text {
		if c == 0 {
			return string(text[:i]), true
		}
	}
	return string(text), true
}

// wake wakes the process that sleeps on a word, if the word says that one does.
func (s *Shared) wake(word *uint32) {
	if atomic.SwapUint32(word, 0) == 1 {
		futexWake(word)
	}
}

func memfd(name string, size uint64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("making %d bytes of shared memory: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		f.Close()
		return nil, fmt.Errorf("sealing shared memory: %w", err)
	}
	return f, nil
}

// reserveHead makes the system provide the pages before the ring itself.
func reserveHead(ring *os.File) error {
	for {
		switch err := syscall.Fallocate(int(ring.Fd()), 0, 0, ringAt); err {
		case nil:
			return nil
		case syscall.EINTR:
		default:
			return fmt.Errorf("reserving %d bytes of shared memory: %w", ringAt, err)
		}
	}
}

func mapFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() <= 0 {
		return nil, errors.New("shared memory of no size")
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of shared memory (is there a limit, ulimit -v?): %w", info.Size(), err)
	}
	return b, nil
}

// futexWait sleeps while *word is value, at most for timeout. It returns false if it timed out.
func futexWait(word *uint32, value uint32, timeout time.Duration) bool {
	const wait = 0 // shared between processes
	ts := syscall.NsecToTimespec(int64(timeout))
	return futex(word, wait, value, &ts) != syscall.ETIMEDOUT
}

func futexWake(word *uint32) {
	const wake = 1
	futex(word, wake, 1<<30, nil)
}
