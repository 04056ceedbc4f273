//go:build linux && cgo

package cuda

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"muster/device"
	"muster/device/cuda/images"
)

// Link makes the driver link several inputs to a cubin.
func (c *gpuContext) Link(l device.Link) ([]byte, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	link, err := c.newLink(l.Options)
	defer func() { _ = c.call(func() C.mcu_result { return C.mcu_link_destroy(c.handle, link) }) }()
	if err != nil {
		return nil, c.linkError("linking", link, err)
	}
	for i, in := range l.Inputs {
		if err := c.addInput(link, i, in); err != nil {
			return nil, err
		}
	}
	if l.Check {
		return nil, nil
	}
	var image unsafe.Pointer
	var size C.size_t
	if err := c.call(func() C.mcu_result { return C.mcu_link_complete(c.handle, link, &image, &size) }); err != nil {
		return nil, c.linkError("linking", link, err)
	}
	return C.GoBytes(image, C.int(size)), nil
}

func (c *gpuContext) newLink(options []device.LinkOption) (link *C.mcu_link, err error) {
	var names []C.int
	var values []C.uint64_t
	for _, o := range options[:min(len(options), C.MCU_LINK_OPTIONS)] {
		names, values = append(names, C.int(o.Option)), append(values, C.uint64_t(o.Value))
	}
	err = c.call(func() C.mcu_result {
		return C.mcu_link_create(c.handle, unsafe.SliceData(names), unsafe.SliceData(values), C.uint(len(names)), &link)
	})
	return link, err
}

// addInput passes an input to the driver, which copies it.
func (c *gpuContext) addInput(link *C.mcu_link, number int, in device.LinkInput) error {
	name := in.Name
	if name == "" {
		name = fmt.Sprintf("input %d", number+1)
	}
	if in.Kind == device.LinkCubin || in.Kind == device.LinkFatbin || in.Kind == device.LinkPTX {
		if err := images.Check(in.Data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	data := in.Data
	if in.Kind == device.LinkPTX {
		data = append(data[:len(data):len(data)], 0)
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	err := c.call(func() C.mcu_result {
		return C.mcu_link_add(c.handle, link, C.int(in.Kind), unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)), text)
	})
	if err != nil {
		return c.linkError(name, link, err)
	}
	return nil
}

// linkError adds the driver's log to an error.
func (c *gpuContext) linkError(what string, link *C.mcu_link, err error) error {
	if c.Err() != nil || link == nil {
		return err
	}
	if log := strings.TrimSpace(C.GoString(C.mcu_link_log(link))); log != "" {
		return fmt.Errorf("%s: %w: %s", what, err, log)
	}
	return fmt.Errorf("%s: %w", what, err)
}
