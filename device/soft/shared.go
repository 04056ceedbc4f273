package soft

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"muster/device"
)

// newShared makes shared memory: an unnamed file in host memory. Fallocate reserves all pages
// now, so that a later access cannot fail for lack of memory.
func (c *Context) newShared(size uint64) (*os.File, error) {
	if size == 0 || size%granule != 0 || size > c.mem.arena.at.Size {
		return nil, fmt.Errorf("%d bytes of shared memory: give a multiple of %d: %w", size, granule, device.ErrInvalidValue)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	f, err := memoryFile("muster-shared")
	if err != nil {
		return nil, fmt.Errorf("making shared memory: %w", err)
	}
	err = syscall.Ftruncate(int(f.Fd()), int64(size))
	if err == nil {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, int64(size))
	}
	if err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%d bytes of shared memory (%v): %w", size, err, device.ErrOutOfMemory)
	}
	return f, nil
}

// mapShared maps shared memory at an address of the arena.
func (c *Context) mapShared(addr, size uint64, f *os.File) error {
	if err := c.checkRange(addr, size); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || uint64(info.Size()) != size || !isSealed(f) { // an access beyond the end of a file that shrank would kill this process
		return fmt.Errorf("%d bytes of shared memory: that is another file: %w", size, device.ErrInvalidValue)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.mem.addShared(addr, size, f)
}

// addShared maps a file over the reserved addresses of the arena. Shared memory does not
// count against the device's memory, so the budget stays unchanged.
func (m *memory) addShared(addr, size uint64, f *os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, s := m.arena, span{addr, addr + size}
	if a.overlaps(s) {
		return fmt.Errorf("%d bytes of shared memory at %#x: part of it is mapped already: %w", size, addr, device.ErrInvalidValue)
	}
	if err := mapFile(a.host(s), f); err != nil {
		return fmt.Errorf("mapping %d bytes of shared memory at %#x (%v): %w", size, addr, err, device.ErrOutOfMemory)
	}
	a.shared = append(a.shared, s)
	a.insert(s)
	m.publish(0)
	return nil
}

// unshare undoes addShared: it reserves the addresses again without memory. It returns false
// if s is not exactly a range that mapShared mapped.
func (a *area) unshare(s span) (bool, error) {
	i := slices.Index(a.shared, s)
	if i < 0 {
		return false, nil
	}
	if err := mapNothing(a.host(s)); err != nil {
		return true, fmt.Errorf("taking away %d bytes of shared memory at %#x: %w", s.to-s.from, s.from, err)
	}
	a.shared = slices.Delete(a.shared, i, i+1)
	return true, nil
}

// sharedBytes returns how many of the mapped bytes belong to files, and so not to the budget.
func (a *area) sharedBytes() (bytes uint64) {
	for _, s := range a.shared {
		bytes += s.to - s.from
	}
	return bytes
}
