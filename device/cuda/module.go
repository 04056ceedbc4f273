//go:build linux && cgo

package cuda

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"muster/device"
	"muster/device/cuda/images"
	"muster/device/kernelmemory"
	"muster/ptx/fatbin"
)

// module is a loaded image.
type module struct {
	c        *gpuContext
	handle   C.mcu_handle
	names    []string // of its kernels, sorted
	handles  map[string]C.mcu_handle
	globals  []device.Global            // sorted by name
	prints   bool                       // its kernels may print
	touches  map[string]*device.Touches // what its kernels use, where the caller wants to know and the PTX says so
	unloaded atomic.Bool

	mu        sync.Mutex
	functions map[string]*function // those that Function has returned
}

var _ device.Module = (*module)(nil)

// logSize is how many bytes of the compiler's messages are kept.
const logSize = 8 << 10

// Load makes the driver load an image.
func (c *gpuContext) Load(image []byte) (device.Module, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if err := images.Check(image); err != nil {
		return nil, err
	}
	text := image
	if !images.IsELF(image) && !fatbin.Recognise(image) { // the driver reads PTX up to a NUL
		text = append(image[:len(image):len(image)], 0)
	}
	log := make([]byte, logSize)
	m := &module{c: c, handles: map[string]C.mcu_handle{}, functions: map[string]*function{}}
	err := c.call(func() C.mcu_result {
		return C.mcu_module_load(c.handle, unsafe.Pointer(&text[0]), &m.handle, (*C.char)(unsafe.Pointer(&log[0])), logSize)
	})
	if err != nil {
		log, _, _ = bytes.Cut(log, []byte{0})
		if log = bytes.TrimSpace(log); len(log) > 0 {
			return nil, fmt.Errorf("loading a module: %w: %s", err, log)
		}
		return nil, fmt.Errorf("loading a module: %w", err)
	}
	source := images.CodeOf(image, c.dev.info.Compute)
	m.prints = c.prints != nil && mayPrint(source)
	if err := m.read(source); err != nil {
		_ = c.call(func() C.mcu_result { return C.mcu_module_unload(c.handle, m.handle) })
		return nil, err
	}
	if c.config.Touches {
		m.touches = kernelmemory.OfImage(image, c.dev.info.Compute)
	}
	c.mu.Lock()
	c.variables.Add(m.globals)
	c.mu.Unlock()
	return m, nil
}

// read asks for the names of the module's kernels, and for its variables. The kernels themselves are
// loaded by the driver, and described, only when Function is called: images of libraries have
// thousands.
func (m *module) read(source images.Code) error {
	c := m.c
	var count C.uint
	if err := c.call(func() C.mcu_result { return C.mcu_module_function_count(c.handle, m.handle, &count) }); err != nil {
		return err
	}
	if count > 0 {
		handles := make([]C.mcu_handle, count)
		if err := c.call(func() C.mcu_result { return C.mcu_module_functions(c.handle, m.handle, &handles[0], count) }); err != nil {
			return err
		}
		for _, handle := range handles {
			var name *C.char
			if err := c.call(func() C.mcu_result { return C.mcu_function_name(c.handle, handle, &name) }); err != nil {
				return err
			}
			m.names = append(m.names, C.GoString(name))
			m.handles[m.names[len(m.names)-1]] = handle
		}
		slices.Sort(m.names)
	}
	for _, name := range images.VariableNames(source) {
		g, err := m.find(name)
		if errors.Is(err, device.ErrNotFound) {
			continue // the source declares it, but the compiler has left it out
		}
		if err != nil {
			return err
		}
		m.globals = append(m.globals, g)
	}
	return nil
}

// find asks the driver for a variable.
func (m *module) find(name string) (device.Global, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var address C.uint64_t
	var size C.size_t
	err := m.c.call(func() C.mcu_result { return C.mcu_module_global(m.c.handle, m.handle, text, &address, &size) })
	if err != nil {
		return device.Global{}, fmt.Errorf("variable %q: %w", name, err)
	}
	var managed C.uint
	err = m.c.call(func() C.mcu_result { return C.mcu_is_managed(m.c.handle, address, &managed) })
	if err != nil {
		return device.Global{}, fmt.Errorf("variable %q: %w", name, err)
	}
	return device.Global{Name: name, Address: uint64(address), Size: uint64(size), Managed: managed != 0}, nil
}

// usable returns why the module cannot be used, or nil.
func (m *module) usable() error {
	if err := m.c.Err(); err != nil {
		return err
	}
	if m.unloaded.Load() {
		return fmt.Errorf("module: %w", device.ErrClosed)
	}
	return nil
}

// Functions returns the names of the kernels.
func (m *module) Functions() []string { return slices.Clone(m.names) }

// Function returns a kernel, and makes the driver load it.
func (m *module) Function(name string) (device.Function, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	handle, ok := m.handles[name]
	if !ok {
		return nil, fmt.Errorf("kernel %q: %w", name, device.ErrNotFound)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.functions[name]; f != nil {
		return f, nil
	}
	f, err := m.newFunction(handle)
	if err != nil {
		return nil, err
	}
	m.functions[name] = f
	return f, nil
}

// Globals returns the variables.
func (m *module) Globals() []device.Global { return slices.Clone(m.globals) }

// Global returns a variable.
func (m *module) Global(name string) (device.Global, error) {
	if err := m.usable(); err != nil {
		return device.Global{}, err
	}
	i, ok := slices.BinarySearchFunc(m.globals, name, func(g device.Global, name string) int { return cmp.Compare(g.Name, name) })
	if !ok {
		return device.Global{}, fmt.Errorf("variable %q: %w", name, device.ErrNotFound)
	}
	return m.globals[i], nil
}

// Unload frees the module.
func (m *module) Unload() error {
	if err := m.usable(); err != nil {
		return err
	}
	if m.unloaded.Swap(true) {
		return fmt.Errorf("module: %w", device.ErrClosed)
	}
	c := m.c
	c.mu.Lock()
	c.variables.Remove(m.globals)
	c.mu.Unlock()
	return c.call(func() C.mcu_result { return C.mcu_module_unload(c.handle, m.handle) })
}
