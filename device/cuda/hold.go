//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"muster/device"
)

// gates has the words that streams wait for (Hold), in pinned memory, which the device reads. They are
// pinned when the context is opened: pinning more may wait for running work, and that may wait for a
// gate.
type gates struct {
	mu   sync.Mutex
	free []*gate
	all  []*gate
}

const (
	gateCount = 1024
	gateSize  = 64 // bytes, a cache line: what the host writes for one stream does not delay another's reads
)

// gate is one word. It counts the holds of a stream that were released.
type gate struct {
	mu     sync.Mutex
	word   *uint32 // nil when the context is being closed
	last   uint32  // of the holds that were made
	opened uint32  // of those that were released; the value of the word
}

// use makes gates of a piece of pinned memory.
func (g *gates) use(memory []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for at := 0; at+gateSize <= len(memory); at += gateSize {
		one := &gate{word: (*uint32)(unsafe.Pointer(&memory[at]))}
		atomic.StoreUint32(one.word, 0)
		g.all = append(g.all, one)
	}
	g.free = append(g.free, g.all...)
}

func (g *gates) take() *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.free) == 0 {
		return nil
	}
	one := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	return one
}

func (g *gates) give(one *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, one)
}

// close releases all holds, and lets nobody touch the words any more.
func (g *gates) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		one.close()
	}
}

// hold counts one more hold: where its word is, and the value to wait for. The address is 0 if the
// context is being closed.
func (g *gate) hold() (addr uint64, value uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.word == nil {
		return 0, 0
	}
	g.last++
	return uint64(uintptr(unsafe.Pointer(g.word))), g.last
}

// open releases a hold and all before it.
func (g *gate) open(value uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.word != nil && int32(value-g.opened) > 0 {
		g.opened = value
		atomic.StoreUint32(g.word, value)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.word != nil {
		atomic.StoreUint32(g.word, g.last)
		g.word = nil
	}
}

// hold makes later work wait until it is released.
func (s *stream) hold(given func(release func())) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.gate == nil {
		if s.gate = s.c.gates.take(); s.gate == nil {
			return fmt.Errorf("more than %d streams that wait for the host: %w", gateCount, device.ErrNotSupported)
		}
	}
	g := s.gate
	addr, value := g.hold()
	if addr == 0 {
		return device.ErrClosed
	}
	given(func() { g.open(value) })
	err := s.submitLocked(func() C.mcu_result {
		return C.mcu_wait_word(s.c.handle, s.handle, C.uint64_t(addr), 4, C.uint64_t(value), C.uint(device.AtLeast))
	})
	if err != nil {
		given(func() {}) // else it would release the holds before this one
	}
	return err
}
