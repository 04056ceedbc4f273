//go:build !linux || !cgo

package cuda

import (
	"fmt"

	"muster/device"
)

// Devices returns an error: without cgo the driver cannot be called.
func Devices(Options) ([]device.Device, error) {
	return nil, fmt.Errorf("%w: this program was built without it: build on Linux with CGO_ENABLED=1", ErrNoDriver)
}
