//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"muster/device"
)

// pins is the host memory of a context that is registered with the driver.
type pins struct {
	on *caller

	mu     sync.Mutex // guards the fields below; held for moments only
	all    []*pin     // sorted by address
	closed bool       // the context is being closed, which unregisters all of it
}

// pin is host memory registered with the driver, so that the device can copy it directly.
type pin struct {
	host   []byte
	pinner runtime.Pinner // keeps Go's runtime from freeing the memory
	mapped bool           // kernels reach it
}

// Pin registers host memory with the driver. If the driver says that it is registered
// already, or that it cannot be, Pin does nothing: copies work without it.
func (h *pins) Pin(host []byte) (unpin func() error, err error) {
	if len(host) == 0 {
		return nil, fmt.Errorf("pinning no bytes: %w", device.ErrInvalidValue)
	}
	p := &pin{host: host}
	p.pinner.Pin(unsafe.SliceData(host))
	err = h.on.call(func() C.mcu_result {
		return C.mcu_host_register(h.on.handle, unsafe.Pointer(unsafe.SliceData(host)), C.size_t(len(host)))
	})
	if err != nil {
		p.pinner.Unpin()
		var answer *driverError
		if errors.As(err, &answer) && (answer.code == alreadyRegistered || answer.code == notSupported) {
			return func() error { return nil }, nil
		}
		return nil, fmt.Errorf("pinning %d bytes: %w", len(host), err)
	}
	h.addPin(p)
	return func() error { return h.unpin(p) }, nil
}

// mapHost registers host memory with the driver such that kernels reach it. It refuses memory that
// the driver gives another address than the host's.
func (h *pins) mapHost(host []byte) (unmap func() error, err error) {
	if len(host) == 0 {
		return nil, fmt.Errorf("mapping no bytes: %w", device.ErrInvalidValue)
	}
	p := &pin{host: host, mapped: true}
	p.pinner.Pin(unsafe.SliceData(host))
	var at C.uint64_t
	err = h.on.call(func() C.mcu_result {
		return C.mcu_host_map(h.on.handle, unsafe.Pointer(unsafe.SliceData(host)), C.size_t(len(host)), &at)
	})
	if err != nil {
		p.pinner.Unpin()
		return nil, fmt.Errorf("mapping %d bytes of host memory: %w", len(host), err)
	}
	h.addPin(p)
	if uint64(at) != uint64(uintptr(unsafe.Pointer(unsafe.SliceData(host)))) {
		_ = h.unpin(p)
		return nil, fmt.Errorf("host memory at %p is at %#x for the device: %w", unsafe.SliceData(host), uint64(at), device.ErrNotSupported)
	}
	return func() error { return h.unpin(p) }, nil
}

func (h *pins) unpin(p *pin) error {
	h.mu.Lock()
	i := slices.Index(h.all, p)
	if i < 0 || h.closed { // Close unregisters it
		h.mu.Unlock()
		return nil
	}
	h.all = slices.Delete(h.all, i, i+1)
	h.mu.Unlock()
	defer p.pinner.Unpin()
	return h.on.call(func() C.mcu_result {
		return C.mcu_host_unregister(h.on.handle, unsafe.Pointer(unsafe.SliceData(p.host)))
	})
}

// addPin adds registered memory to pins, which is sorted by address.
func (h *pins) addPin(p *pin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.all, p.from(), func(o *pin, at uintptr) int { return cmp.Compare(o.from(), at) })
	h.all = slices.Insert(h.all, i, p)
}

func (p *pin) from() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p.host))) }

// pinnedParts cuts host memory where one registration ends and the next begins, and returns the lengths
// of the parts; nil if some of the memory is not registered.
func (h *pins) pinnedParts(host []byte) []int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(host)))
	end := at + uintptr(len(host))
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.all, at, func(o *pin, at uintptr) int {
		if o.from()+uintptr(len(o.host)) <= at {
			return -1
		}
		return 1
	})
	var parts []int
	for ; at < end; i++ {
		if i == len(h.all) || h.all[i].from() > at {
			return nil
		}
		to := min(end, h.all[i].from()+uintptr(len(h.all[i].host)))
		parts = append(parts, int(to-at))
		at = to
	}
	return parts
}

// mapsHost says whether kernels reach host memory at an address (MapHost).
func (h *pins) mapsHost(addr, size uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.all {
		if from := uint64(p.from()); p.mapped && addr >= from && addr-from <= uint64(len(p.host))-size {
			return true
		}
	}
	return false
}

// close leaves what is registered to the caller, and returns it.
func (h *pins) close() []*pin {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.all
}
