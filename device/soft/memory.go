package soft

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"

	"muster/device"
	"muster/ptx/simt"
)

// memory is what the kernels and copies of a context can reach: the arena,
// an area for the variables of modules, and host memory of MapHost. Arena and
// variables are each one reservation of the host's address space, of which only
// the mapped parts are accessible.
//
// Readers (kernels, copies) load an immutable table without a lock; each change,
// under mu, stores a new table. A reader may still hold bytes from an old table,
// so the caller of remove, removeHost and release must make sure that no stream is
// busy (Context.still): else a copy or a kernel would crash the process on a page
// that is no longer accessible.
type memory struct {
	budget *budget
	arena  *area
	vars   *area
	mapped []simt.Region // host memory, at its own addresses

	mu    sync.Mutex // serialises changes, and guards the areas and mapped
	table atomic.Pointer[table]
}

// table lists the mapped stretches by address. Within an area adjoining ranges are
// merged, so that one access may cross from one call of Map to the next.
type table struct {
	generation uint64 // differs from the last table's if memory was taken away; see Generation
	runs       []simt.Region
}

// varsBases are where variables of modules may lie: the first that does not overlap
// the arena is used. The same arena and the same loads give the same addresses on
// every device, which moving a context relies on.
var varsBases = [...]uint64{0x0500_0000_0000, 0x0600_0000_0000, 0x0700_0000_0000}

const varsSize = 64 << 30

func newMemory(b *budget, a device.Arena) (*memory, error) {
	m := &memory{budget: b}
	m.table.Store(&table{})
	var err error
	if m.arena, err = reserve(a, true); err != nil {
		return nil, err
	}
	for _, base := range varsBases {
		if base+varsSize <= a.Base || a.Base+a.Size <= base {
			m.vars, err = reserve(device.Arena{Base: base, Size: varsSize}, false)
			break
		}
	}
	if m.vars == nil && err == nil {
		err = fmt.Errorf("an arena of %d bytes at %#x leaves no room for the variables of modules: %w", a.Size, a.Base, device.ErrInvalidValue)
	}
	if err != nil {
		m.arena.release()
		return nil, err
	}
	return m, nil
}

// release gives everything back. No stream may use the memory any more.
func (m *memory) release() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budget.give(m.arena.committed() - m.arena.sharedBytes() + m.vars.committed())
	m.table.Store(&table{generation: m.table.Load().generation + 1})
	err := m.arena.release()
	if other := m.vars.release(); err == nil {
		err = other
	}
	return err
}

// Find returns the mapped stretch around an address.
func (m *memory) Find(addr uint64) (simt.Region, bool) {
	runs := m.table.Load().runs
	i := sort.Search(len(runs), func(i int) bool { return runs[i].Base > addr }) - 1
	if i < 0 || addr-runs[i].Base >= uint64(len(runs[i].Bytes)) {
		return simt.Region{}, false
	}
	return runs[i], true
}

// Generation changes when memory is taken away, that is, when a region that Find
// returned earlier may no longer be valid. Added memory does not change it: it makes no
// earlier region wrong.
func (m *memory) Generation() uint64 { return m.table.Load().generation }

// bytes returns the memory behind a range, or false if not all of it is
// mapped.
func (m *memory) bytes(addr, size uint64) ([]byte, bool) {
	r, ok := m.Find(addr)
	if !ok {
		return nil, false
	}
	from := addr - r.Base
	if size > uint64(len(r.Bytes))-from {
		return nil, false
	}
	return r.Bytes[from : from+size : from+size], true
}

// add maps a range of an area. The caller has checked that the area contains it.
func (m *memory) add(a *area, addr, size uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := span{addr, addr + size}
	if a.overlaps(s) {
		return fmt.Errorf("%d bytes at %#x: part of it is mapped already: %w", size, addr, device.ErrInvalidValue)
	}
	if err := m.budget.take(size); err != nil {
		return err
	}
	if err := a.commit(s); err != nil {
		m.budget.give(size)
		return err
	}
	m.publish(0)
	return nil
}

// remove unmaps a range of an area. All of it must be mapped. The new table is
// published before the pages go, so that none ever lists memory without pages.
// If the host refuses, the old list of spans is put back; insert and forget never
// modify a list in place, which makes that possible.
func (m *memory) remove(a *area, addr, size uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := span{addr, addr + size}
	if !a.covers(s) {
		return fmt.Errorf("%d bytes at %#x: not all of it is mapped: %w", size, addr, device.ErrInvalidValue)
	}
	for _, shared := range a.shared {
		if shared != s && shared.from < s.to && s.from < shared.to {
			return fmt.Errorf("%d bytes at %#x: %d bytes at %#x are shared memory, which is unmapped by itself and as a whole: %w", size, addr, shared.to-shared.from, shared.from, device.ErrInvalidValue)
		}
	}
	spans := a.spans
	a.forget(s)
	m.publish(1)
	was, err := a.unshare(s)
	if !was {
		if err = a.decommit(s); err == nil {
			m.budget.give(size)
		}
	}
	if err != nil {
		a.spans = spans
		m.publish(1)
	}
	return err
}

// addHost makes host memory reachable at its own address.
func (m *memory) addHost(host []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := simt.Region{Base: addressOf(host), Bytes: host}
	size := uint64(len(host))
	for _, other := range m.table.Load().runs {
		if r.Base < other.Base+uint64(len(other.Bytes)) && other.Base < r.Base+size {
			return fmt.Errorf("%d bytes of host memory at %#x: kernels reach something else there: %w", size, r.Base, device.ErrInvalidValue)
		}
	}
	for _, a := range []*area{m.arena, m.vars} {
		if r.Base < a.at.Base+a.at.Size && a.at.Base < r.Base+size {
			return fmt.Errorf("%d bytes of host memory at %#x: those are addresses of the device's: %w", size, r.Base, device.ErrInvalidValue)
		}
	}
	m.mapped = append(slices.Clone(m.mapped), r)
	m.publish(0)
	return nil
}

// removeHost undoes addHost.
func (m *memory) removeHost(host []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	base := addressOf(host)
	m.mapped = slices.DeleteFunc(slices.Clone(m.mapped), func(r simt.Region) bool { return r.Base == base })
	m.publish(1)
}

// roomForVariables returns an address at which size bytes of variables can lie.
func (m *memory) roomForVariables(size uint64) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.vars.gap(size)
}

// hasRoomForVariables says whether a module's variables can lie from base on.
func (m *memory) hasRoomForVariables(base, size uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.vars.at.Contains(base, size) && !m.vars.overlaps(span{base, base + size})
}

// publish stores a new table; step is 1 if memory of the old one is gone, else 0.
// The caller must hold m.mu.
func (m *memory) publish(step uint64) {
	t := &table{generation: m.table.Load().generation + step}
	t.runs = make([]simt.Region, 0, len(m.arena.spans)+len(m.vars.spans)+len(m.mapped))
	areas := []*area{m.arena, m.vars}
	if m.vars.at.Base < m.arena.at.Base {
		slices.Reverse(areas)
	}
	for _, a := range areas {
		for _, s := range a.spans {
			t.runs = append(t.runs, simt.Region{Base: s.from, Bytes: a.host(s)})
		}
	}
	if len(m.mapped) > 0 {
		t.runs = append(t.runs, m.mapped...)
		slices.SortFunc(t.runs, func(x, y simt.Region) int { return cmp.Compare(x.Base, y.Base) })
	}
	m.table.Store(t)
}

// span is the addresses from, from+1 .. to-1.
type span struct{ from, to uint64 }

// area is a reserved range of device addresses.
type area struct {
	at       device.Arena
	large    bool   // mapped memory is expected to be used whole, so that huge pages pay off
	reserved []byte // the reservation, one granule larger than the range
	base     []byte // the part of reserved that stands for the range, aligned to granules
	spans    []span // what is mapped, sorted, adjoining ones merged
	shared   []span // mapped files (MapShared), as they were mapped: parts of spans
}

// reserve reserves host address space for an area, without memory behind it.
func reserve(at device.Arena, large bool) (*area, error) {
	// Ask for the same addresses on the host, if they are free. An address that the system
	// chose might be one at which the program has memory of its own, and MapHost could not
	// make that memory reachable at its own address.
	reserved, err := reserveNear(at.Base, at.Size+granule)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes of address space for %#x (%v): is there a limit (ulimit -v)? %w", at.Size, at.Base, err, device.ErrOutOfMemory)
	}
	skip := -addressOf(reserved) & (granule - 1)
	return &area{at: at, large: large, reserved: reserved, base: reserved[skip : skip+at.Size]}, nil
}

func (a *area) release() error {
	if a.reserved == nil {
		return nil
	}
	err := release(a.reserved)
	a.reserved, a.base, a.spans, a.shared = nil, nil, nil, nil
	return err
}

func (a *area) host(s span) []byte {
	from, to := s.from-a.at.Base, s.to-a.at.Base
	return a.base[from:to:to]
}

func (a *area) committed() uint64 {
	var n uint64
	for _, s := range a.spans {
		n += s.to - s.from
	}
	return n
}

// after returns the index of the first span that ends after addr.
func (a *area) after(addr uint64) int {
	return sort.Search(len(a.spans), func(i int) bool { return a.spans[i].to > addr })
}

func (a *area) overlaps(s span) bool {
	i := a.after(s.from)
	return i < len(a.spans) && a.spans[i].from < s.to
}

func (a *area) covers(s span) bool {
	i := a.after(s.from)
	return i < len(a.spans) && a.spans[i].from <= s.from && s.to <= a.spans[i].to
}

// commit makes a free range accessible and adds it to spans.
func (a *area) commit(s span) error {
	if err := syscall.Mprotect(a.host(s), syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		return fmt.Errorf("the host has no memory for %d bytes at %#x (%v): %w", s.to-s.from, s.from, err, device.ErrOutOfMemory)
	}
	// Ask for huge pages, which are as large as granules. The advice may fail without harm.
	// A module whose variables take a single granule mostly uses a few bytes of it, so a huge
	// page would waste memory there.
	if a.large || s.to-s.from > granule {
		_ = syscall.Madvise(a.host(s), syscall.MADV_HUGEPAGE)
	}
	a.insert(s)
	return nil
}

// insert adds a range to spans and merges it with neighbours that it touches.
func (a *area) insert(s span) {
	i := a.after(s.from)
	j := i
	if i > 0 && a.spans[i-1].to == s.from {
		i--
		s.from = a.spans[i].from
	}
	if j < len(a.spans) && a.spans[j].from == s.to {
		s.to = a.spans[j].to
		j++
	}
	a.spans = slices.Concat(a.spans[:i], []span{s}, a.spans[j:])
}

// forget removes a range, which one span must cover, from spans.
func (a *area) forget(s span) {
	i := a.after(s.from)
	whole := a.spans[i]
	var rest []span
	if whole.from < s.from {
		rest = append(rest, span{whole.from, s.from})
	}
	if s.to < whole.to {
		rest = append(rest, span{s.to, whole.to})
	}
	a.spans = slices.Concat(a.spans[:i], rest, a.spans[i+1:])
}

// decommit gives the pages of a range back to the host.
func (a *area) decommit(s span) error {
	host := a.host(s)
	// Mprotect splits a mapping of the host and fails where it has too many of them. It
	// comes before Madvise, so that the contents are intact then and the caller can undo.
	if err := syscall.Mprotect(host, syscall.PROT_NONE); err != nil {
		return fmt.Errorf("closing %d bytes at %#x: %w", s.to-s.from, s.from, err)
	}
	if err := syscall.Madvise(host, syscall.MADV_DONTNEED); err != nil {
		return fmt.Errorf("giving back %d bytes at %#x: %w", s.to-s.from, s.from, err)
	}
	return nil
}

// gap returns the lowest address for size bytes with a free granule on both
// sides: an access beyond the variables of one module then faults instead of
// reaching those of the next.
func (a *area) gap(size uint64) (uint64, bool) {
	at := a.at.Base
	for _, s := range a.spans {
		if s.from >= at && s.from-at >= size+granule {
			break
		}
		at = s.to + granule
	}
	return at, a.at.Contains(at, size)
}

// budget counts the memory of a device, which its contexts share.
type budget struct {
	mu         sync.Mutex
	total, use uint64
}

func (b *budget) take(size uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size > b.total-b.use {
		return fmt.Errorf("%d bytes wanted, %d of %d free: %w", size, b.total-b.use, b.total, device.ErrOutOfMemory)
	}
	b.use += size
	return nil
}

func (b *budget) give(size uint64) {
	b.mu.Lock()
	b.use -= size
	b.mu.Unlock()
}

func (b *budget) free() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.use
}
