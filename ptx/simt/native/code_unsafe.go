//go:build linux && amd64

package native

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// text is machine code in pages of its own.
type text struct{ pages []byte }

// newText maps pages, writes the code, and then makes them executable and read-only
// in one step: they are never writable and executable at the same time. The pages
// are unmapped when the text becomes unreachable.
func newText(code []byte) (*text, error) {
	pages, err := syscall.Mmap(-1, 0, len(code), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("no memory for %d bytes of machine code: %w", len(code), err)
	}
	copy(pages, code)
	if err := syscall.Mprotect(pages, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		syscall.Munmap(pages)
		return nil, fmt.Errorf("this system does not let a process run code that it made: %w", err)
	}
	t := &text{pages}
	runtime.AddCleanup(t, func(pages []byte) { syscall.Munmap(pages) }, pages)
	return t, nil
}

// Run runs compiled code from an instruction at which it Enters, and returns why
// and where it ended. The frame must be that of a gang with the look for which the
// code was compiled, and the live registers must have the kinds that Live returns.
func (c *Code) Run(f *Frame, pc int32, head bool) (Reason, int32) {
	offset := c.sections[pc]
	if head {
		offset = c.heads[pc]
	}
	f.pc = uintptr(unsafe.Pointer(&c.text.pages[offset]))
	enter(f)
	runtime.KeepAlive(c) // else the cleanup might unmap the code while it runs
	return f.Reason, int32(f.At)
}
