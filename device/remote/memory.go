package remote

import (
	"fmt"
	"slices"
	"sync"

	"muster/device"
)

// memory records what a context has mapped, and the variables of its modules, so that arguments
// can be checked without asking the lender.
type memory struct {
	arena device.Arena

	mu        sync.Mutex
	granules  map[uint64]bool // addresses of mapped granules
	variables []device.Global // of loaded modules, in any order
}

// whole refuses ranges that are not whole granules of the arena.
func (m *memory) whole(addr, size uint64) error {
	if size == 0 || (addr|size)%Granularity != 0 || !m.arena.Contains(addr, size) {
		return fmt.Errorf("%d bytes at %#x: give whole pieces of %d bytes in the arena: %w", size, addr, Granularity, device.ErrInvalidValue)
	}
	return nil
}

// begin records memory as mapped. Map calls it before it asks the lender, so that two calls cannot
// map the same addresses.
func (m *memory) begin(addr, size uint64) error {
	if err := m.whole(addr, size); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := addr; at < addr+size; at += Granularity {
		if m.granules[at] {
			return fmt.Errorf("something is mapped at %#x already: %w", at, device.ErrInvalidValue)
		}
	}
	for at := addr; at < addr+size; at += Granularity {
		m.granules[at] = true
	}
	return nil
}

// end records memory as unmapped; all of it must be mapped.
func (m *memory) end(addr, size uint64) error {
	if err := m.whole(addr, size); err != nil {
		return err
	}
	if err := m.check(addr, size); err != nil {
		return err
	}
	m.remove(addr, size)
	return nil
}

func (m *memory) remove(addr, size uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := addr; at < addr+size; at += Granularity {
		delete(m.granules, at)
	}
}

// clear forgets everything, and returns how many bytes were mapped.
func (m *memory) clear() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes := uint64(len(m.granules)) * Granularity
	m.granules, m.variables = map[uint64]bool{}, nil
	return bytes
}

// check refuses ranges that are neither mapped nor within a variable.
func (m *memory) check(addr, size uint64) error {
	if size == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.arena.Contains(addr, size) {
		for at := addr &^ (Granularity - 1); at < addr+size; at += Granularity {
			if !m.granules[at] {
				return fmt.Errorf("%d bytes at %#x: nothing is mapped at %#x: %w", size, addr, at, device.ErrInvalidValue)
			}
		}
		return nil
	}
	within := func(g device.Global) bool {
		return addr >= g.Address && size <= g.Size && addr-g.Address <= g.Size-size
	}
	if !slices.ContainsFunc(m.variables, within) {
		return fmt.Errorf("%d bytes at %#x: no memory of the context: %w", size, addr, device.ErrInvalidValue)
	}
	return nil
}

// know adds the variables of a module.
func (m *memory) know(all []device.Global) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.variables = append(m.variables, all...)
}

// forget drops the variables of a module.
func (m *memory) forget(all []device.Global) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.variables = slices.DeleteFunc(m.variables, func(g device.Global) bool { return slices.Contains(all, g) })
}
