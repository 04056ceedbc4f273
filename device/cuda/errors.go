package cuda

import (
	"fmt"

	"muster/device"
)

// Answers of the driver that are treated by name.
const (
	success           = 0
	invalidValue      = 1
	noDevice          = 100
	notFound          = 500
	notReady          = 600
	alreadyRegistered = 712
	notSupported      = 801
)

// refusals are the answers that leave the context as it was.
var refusals = map[int]error{
	invalidValue: device.ErrInvalidValue,
	2:            device.ErrOutOfMemory,
	200:          device.ErrInvalidImage,  // damaged
	209:          device.ErrNoKernelImage, // no code for this architecture
	218:          device.ErrInvalidPTX,    // that does not compile
	221:          device.ErrNotSupported,  // no compiler for PTX is installed
	222:          device.ErrPTXVersion,    // newer than the driver's
	223:          device.ErrNoKernelImage, // compiling PTX is switched off
	300:          device.ErrLink,
	302:          device.ErrInvalidImage, // it needs a symbol that nobody has
	303:          device.ErrInvalidImage,
	400:          device.ErrInvalidValue, // a handle
	notFound:     device.ErrNotFound,
	notReady:     device.ErrNotReady,
	701:          device.ErrInvalidValue, // a block needs more than there is
	720:          device.ErrTooLarge,
	800:          device.ErrNotSupported, // not permitted
	notSupported: device.ErrNotSupported,
}

// faults are the answers that end the context, and with it all contexts of the
// process.
var faults = map[int]device.FaultKind{
	46:  device.DeviceLost, // another process has the device for itself
	201: device.DeviceLost, // the context is not valid any more
	214: device.DeviceLost, // memory error that cannot be corrected
	220: device.DeviceLost, // of the link between devices
	226: device.DeviceLost, // memory error, contained
	700: device.IllegalAddress,
	702: device.Unspecified, // the kernel ran too long for a device with a display
	709: device.DeviceLost,  // the context was destroyed
	710: device.Assert,
	714: device.StackOverflow,
	715: device.IllegalInstruction,
	716: device.MisalignedAddress,
	717: device.IllegalAddress, // in another state space
	718: device.IllegalCall,
	719: device.Unspecified,
	721: device.Unspecified, // tensor memory was not given back
	805: device.Unspecified, // of the Multi-Process Service: no connection,
	806: device.Unspecified, // it did not answer,
	807: device.Unspecified, // it does not take clients,
	808: device.Unspecified, // it has too many of them,
	809: device.Unspecified, // it has too many connections,
	810: device.Unspecified, // it was told to end this one
	999: device.Unspecified,
}

// driverError is an answer of the driver other than success.
type driverError struct {
	code       int
	call       string // the function that answered
	name, text string // the driver's own, if it has one
}

func (e *driverError) Error() string {
	name := e.name
	if name == "" {
		name = "error"
	}
	s := fmt.Sprintf("%s answered %s (%d)", e.call, name, e.code)
	if e.text != "" {
		s += ": " + e.text
	}
	return s
}

// Unwrap returns the contract's word for it, or nil.
func (e *driverError) Unwrap() error { return refusals[e.code] }

// fault returns the fault that an answer stands for, or nil.
func (e *driverError) fault() *device.Fault {
	kind, ok := faults[e.code]
	if !ok {
		return nil
	}
	return &device.Fault{Kind: kind, Detail: e.Error()}
}
