package vmm

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Errors, to be asked for with errors.Is.
var (
	ErrInvalid  = errors.New("invalid value")
	ErrOverlap  = errors.New("overlaps another allocation")
	ErrLimit    = errors.New("beyond the memory limit")
	ErrUnknown  = errors.New("no allocation there")
	ErrBounds   = errors.New("not within one allocation")
	ErrCapacity = errors.New("does not fit on the device")
)

// Range is a piece of the arena; Size is at least 1.
type Range struct{ Addr, Size uint64 }

func (r Range) end() uint64 { return r.Addr + r.Size }

// contains must not be deceived by a sum that wraps around: q comes from a client.
func (r Range) contains(q Range) bool {
	return q.Size > 0 && q.Addr >= r.Addr && q.Size <= r.Size && q.Addr-r.Addr <= r.Size-q.Size
}

func (r Range) String() string { return fmt.Sprintf("%#x+%#x", r.Addr, r.Size) }

// Place is where a copy of a chunk may be: 0 is the host, and i+1 the client's device i.
type Place int

// Host is the client's swap area.
const Host Place = 0

// Device is device i, counted from 0.
func Device(i int) Place { return Place(i + 1) }

// Devices are the first n devices.
func Devices(n int) []Place {
	all := make([]Place, n)
	for i := range all {
		all[i] = Device(i)
	}
	return all
}

// Index is the device's number; -1 for the host.
func (p Place) Index() int { return int(p) - 1 }

func (p Place) String() string {
	if p == Host {
		return "host"
	}
	return fmt.Sprintf("dev%d", p.Index())
}

// slot is a place within one Space: 0 for the host, then the devices in the
// order of Config.Devices.
type slot int

const hostSlot slot = 0

func (p slot) bit() places { return 1 << uint(p) }

// places is a set of slots.
type places uint32

func (p places) first() slot { return slot(bits.TrailingZeros32(uint32(p))) }

const (
	maxDevices = 31
	maxChunks  = 1 << 24
)

// Config describes a Space.
type Config struct {
	Arena   Range   // a whole number of chunks, aligned to them
	Chunk   uint64  // a power of two
	Devices []Place // each once
	Limit   uint64  // bytes that may be allocated, 0: no limit
	// Joined is the first address from which on allocations without a gap between
	// them are one stretch of memory, which the client made piece by piece; 0: none.
	Joined uint64
}

func (c Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	switch {
	case bits.OnesCount64(c.Chunk) != 1:
		return bad("a chunk of %d bytes: it must be a power of two", c.Chunk)
	case c.Arena.Size == 0 || c.Arena.Addr%c.Chunk != 0 || c.Arena.Size%c.Chunk != 0:
		return bad("arena %v: it must be a whole number of chunks of %#x bytes", c.Arena, c.Chunk)
	case c.Arena.Addr > math.MaxUint64-c.Arena.Size:
		return bad("arena %v: it goes beyond the last address", c.Arena)
	case c.Arena.Size/c.Chunk > maxChunks:
		return bad("arena %v: it has more than %d chunks, make them larger", c.Arena, maxChunks)
	case len(c.Devices) < 1 || len(c.Devices) > maxDevices:
		return bad("%d devices: from 1 to %d are possible", len(c.Devices), maxDevices)
	}
	for i, p := range c.Devices {
		if p <= Host || slices.Contains(c.Devices[:i], p) {
			return bad("%v is no device, or is there twice", p)
		}
	}
	return nil
}

// Space is the memory of one client.
type Space struct {
	prepared []memo // by slot: what Prepare last found in order
	launched []memo // by slot: where Launched last had nothing to change
	directory
	book

	// For PrepareAll, which looks first at the chunks that changed since its last call, and at
	// all chunks only if the tallies show that more have changed.
	everything uint64 // version at the last PrepareAll, which needed everything allocated then
	brought    few    // chunks that the last call found in fresh
}

// New makes an empty space.
func New(c Config) (*Space, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Devices = slices.Clone(c.Devices)
	n := int(c.Arena.Size / c.Chunk)
	return &Space{
		book: book{arena: c.Arena, limit: c.Limit, together: c.Joined},
		directory: directory{
			config:  c,
			shift:   bits.TrailingZeros64(c.Chunk),
			table:   make([]*page, (n+1<<pageShift-1)>>pageShift),
			tallies: make([]tally, len(c.Devices)+1),
		},
		prepared: make([]memo, len(c.Devices)+1),
		launched: make([]memo, len(c.Devices)+1),
	}, nil
}

// Config returns the configuration given to New, with the devices that were added since. The caller
// must not change it.
func (s *Space) Config() Config { return s.config }

// AddDevice adds a device, on which the client has no memory yet.
func (s *Space) AddDevice(p Place) error {
	c := s.config
	c.Devices = append(slices.Clone(c.Devices), p)
	if err := c.check(); err != nil {
		return err
	}
	s.config = c
	s.tallies = append(s.tallies, tally{})
	s.prepared, s.launched = append(s.prepared, memo{}), append(s.launched, memo{})
	return nil
}

// memo remembers ranges for which nothing had to be done, and when that was.
type memo struct {
	version uint64
	ranges  []Range
}

func (m *memo) keep(version uint64, ranges []Range) {
	m.version = version
	m.ranges = append(m.ranges[:0], ranges...)
}

func (m *memo) same(version uint64, ranges []Range) bool {
	if m.version != version || len(m.ranges) != len(ranges) {
		return false
	}
	for i, r := range ranges {
		if m.ranges[i] != r {
			return false
		}
	}
	return true
}

// Usage says how much memory is where, in bytes.
type Usage struct {
	Allocated uint64   // what the client asked for
	Chunked   uint64   // chunks that its allocations touch
	Filled    uint64   // chunks known as a fill, which need no copy anywhere
	Host      uint64   // chunks with a valid copy on the host
	HostOnly  uint64   // of those, valid nowhere else, nor known as a fill
	Swap      uint64   // chunks that have pages on the host, valid or not
	Resident  []uint64 // chunks mapped, by device as in Config.Devices
	Dirty     []uint64 // chunks valid on that device only, and not known as a fill
}

// Usage returns how much memory is where.
func (s *Space) Usage() Usage {
	u := Usage{
		Allocated: s.allocated,
		Chunked:   s.Chunked(),
		Filled:    s.bytes(s.filled),
		Host:      s.bytes(s.tallies[hostSlot].valid),
		HostOnly:  s.bytes(s.tallies[hostSlot].only),
		Swap:      s.bytes(s.tallies[hostSlot].held),
	}
	for _, t := range s.tallies[1:] {
		u.Resident = append(u.Resident, s.bytes(t.held))
		u.Dirty = append(u.Dirty, s.bytes(t.only))
	}
	return u
}

// Alloc adds an allocation at an address that the client chose.
func (s *Space) Alloc(r Range) error {
	if err := s.add(r, s.version+1); err != nil {
		return err
	}
	s.use(s.span(r))
	return nil
}

// Free removes the allocation that starts at addr. Chunks that no other allocation touches leave
// every place.
func (s *Space) Free(addr uint64) (Plan, error) {
	a, err := s.remove(addr)
	if err != nil {
		return nil, err
	}
	return s.leave(s.span(a.Range)), nil
}
