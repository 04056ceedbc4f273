//go:build linux && cgo

package cuda

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"muster/device"
)

// library is the driver of this process. The functions found in it are global variables of
// driver.c, so there is never more than one.
var library struct {
	sync.Mutex
	path string // "" before it was opened
}

// openLibrary opens and initialises the driver, once.
func openLibrary(path string) error {
	library.Lock()
	defer library.Unlock()
	if path == "" {
		path = defaultLibrary
	}
	if library.path != "" {
		if path != library.path && path != defaultLibrary {
			return fmt.Errorf("the driver %s is in use already: this process cannot use %s as well", library.path, path)
		}
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [512]C.char
	switch C.mcu_open(name, &text[0], C.size_t(len(text))) {
	case C.MCU_NO_LIBRARY:
		return fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(&text[0]))
	case C.MCU_OWN_SHIM:
		return fmt.Errorf("%w: %s is Muster's own library, which stands in for the driver: give the driver's full path, for example /usr/lib/x86_64-linux-gnu/libcuda.so.1", ErrNoDriver, path)
	case C.MCU_NO_SYMBOL:
		return fmt.Errorf("the driver %s has no %s: install driver 550 (CUDA 12.4) or a newer one", path, C.GoString(&text[0]))
	}
	if err := failed(C.mcu_init()); err != nil {
		if err.code == noDevice {
			return fmt.Errorf("%w: %w", ErrNoDriver, err)
		}
		return err
	}
	library.path = path
	return nil
}

// failed returns the driver's answer as an error, or nil for success.
func failed(r C.mcu_result) *driverError {
	if r.code == success {
		return nil
	}
	return &driverError{
		code: int(r.code), call: C.GoString(r.call),
		name: C.GoString(C.mcu_error_name(r.code)), text: C.GoString(C.mcu_error_text(r.code)),
	}
}

// Devices opens the driver and returns its devices, in its order.
func Devices(o Options) ([]device.Device, error) {
	if err := openLibrary(o.Library); err != nil {
		return nil, err
	}
	var count C.int
	if err := failed(C.mcu_device_count(&count)); err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, fmt.Errorf("%w: it knows no device: see nvidia-smi -L and CUDA_VISIBLE_DEVICES", ErrNoDriver)
	}
	var version C.int
	if err := failed(C.mcu_driver_version(&version)); err != nil {
		return nil, err
	}
	var all []device.Device
	for i := range int(count) {
		d, err := newDevice(i)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		d.takeStdout, d.info.Driver = o.TakeStdout, int(version)
		all = append(all, d)
	}
	return all, nil
}
