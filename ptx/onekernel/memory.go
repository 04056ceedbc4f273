package onekernel

import (
	"fmt"
	"sort"
	"syscall"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/program"
	"muster/report"
)

// memory is the global memory of one launch. Each buffer and each variable
// has its own region, with nothing mapped between, so that an access beyond an end
// faults.
type memory struct {
	next    uint64
	regions []region // by address
}

// region is a range of memory and its description.
type region struct {
	simt.Region
	size uint64 // bytes in use; the region is rounded up to a multiple of 16
	what string // "argument 3, f32[16]"
}

const (
	firstAddress = 0x7000_0000_0000
	memoryGap    = 16 << 20 // least distance between two regions
	maxRegion    = 1 << 40
)

// add maps memory, filled with zeros, at the next free address.
func (m *memory) add(what string, size, alignment uint64) (simt.Region, error) {
	if m.next == 0 {
		m.next = firstAddress
	}
	alignment = max(alignment, 256)
	base := (m.next + alignment - 1) / alignment * alignment
	rounded := max(16, (size+15)/16*16)
	if size > maxRegion || base+rounded+memoryGap > program.GlobalEnd {
		return simt.Region{}, fmt.Errorf("%s: %d bytes are too many", what, size)
	}
	// Go's collector and race detector ignore memory from mmap: races in kernels
	// must not be reported as races of this program.
	bytes, err := syscall.Mmap(-1, 0, int(rounded), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return simt.Region{}, fmt.Errorf("%s: no memory for %d bytes: %w", what, size, err)
	}
	m.next = base + rounded + memoryGap
	r := simt.Region{Base: base, Bytes: bytes}
	m.regions = append(m.regions, region{r, size, what})
	return r, nil
}

// place allocates a variable of a module.
func (m *memory) place(v *ptx.Variable) (uint64, error) {
	r, err := m.add("variable "+v.Name, uint64(v.Size()), uint64(v.Alignment()))
	return r.Base, err
}

// Find returns the region around an address.
func (m *memory) Find(addr uint64) (simt.Region, bool) {
	i := sort.Search(len(m.regions), func(i int) bool { return m.regions[i].Base > addr }) - 1
	if i < 0 || addr-m.regions[i].Base >= uint64(len(m.regions[i].Bytes)) {
		return simt.Region{}, false
	}
	return m.regions[i].Region, true
}

// describe says which region an address that is not mapped is near; "" if none.
func (m *memory) describe(addr uint64) string {
	for _, r := range m.regions {
		if addr == r.Base+r.size {
			return "right behind the end of " + r.what
		}
		if end := r.Base + r.size; addr >= end && addr-end < memoryGap/2 {
			return fmt.Sprintf("%s behind the end of %s", report.Plural(int(addr-end), "byte"), r.what)
		}
		if addr < r.Base && r.Base-addr <= memoryGap/2 {
			return fmt.Sprintf("%s before %s", report.Plural(int(r.Base-addr), "byte"), r.what)
		}
	}
	if addr < 1<<16 {
		return "near the null pointer"
	}
	return ""
}

// release frees the memory.
func (m *memory) release() error {
	var first error
	for _, r := range m.regions {
		if err := syscall.Munmap(r.Bytes); err != nil && first == nil {
			first = err
		}
	}
	m.regions = nil
	return first
}
