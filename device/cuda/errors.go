package cuda

import (
	"fmt"

	"muster/device"
	"muster/device/curesult"
)

// Answers of the driver that this package handles specially.
const (
	success           = curesult.Success
	invalidValue      = curesult.InvalidValue
	noDevice          = curesult.NoDevice
	notFound          = curesult.NotFound
	notReady          = curesult.NotReady
	alreadyRegistered = curesult.HostMemoryAlreadyRegistered
	notSupported      = curesult.NotSupported
)

// refusals are the answers that leave the context usable.
var refusals = map[int]error{
	invalidValue:                        device.ErrInvalidValue,
	curesult.OutOfMemory:                device.ErrOutOfMemory,
	curesult.InvalidImage:               device.ErrInvalidImage,  // damaged
	curesult.NoBinaryForGPU:             device.ErrNoKernelImage, // no code for this architecture
	curesult.InvalidPTX:                 device.ErrInvalidPTX,    // it does not compile
	curesult.JITCompilerNotFound:        device.ErrNotSupported,  // no compiler for PTX is installed
	curesult.UnsupportedPTXVersion:      device.ErrPTXVersion,    // newer than the driver's
	curesult.JITCompilationDisabled:     device.ErrNoKernelImage, // compiling PTX is switched off
	curesult.InvalidSource:              device.ErrLink,
	curesult.SharedObjectSymbolNotFound: device.ErrInvalidImage, // it needs a symbol that no image defines
	curesult.SharedObjectInitFailed:     device.ErrInvalidImage,
	curesult.InvalidHandle:              device.ErrInvalidValue, // a handle
	notFound:                            device.ErrNotFound,
	notReady:                            device.ErrNotReady,
	curesult.LaunchOutOfResources:       device.ErrInvalidValue, // a block needs more than a multiprocessor has
	curesult.CooperativeLaunchTooLarge:  device.ErrTooLarge,
	curesult.NotPermitted:               device.ErrNotSupported, // not permitted
	notSupported:                        device.ErrNotSupported,
}

// faults are the answers that end the context, and with it all contexts of the
// process.
var faults = map[int]device.FaultKind{
	curesult.DeviceUnavailable:        device.DeviceLost, // another process has the device for itself
	curesult.InvalidContext:           device.DeviceLost, // the context is not valid any more
	curesult.ECCUncorrectable:         device.DeviceLost, // memory error that cannot be corrected
	curesult.NvlinkUncorrectable:      device.DeviceLost, // the same for the link between devices
	curesult.Contained:                device.DeviceLost, // memory error, contained
	curesult.IllegalAddress:           device.IllegalAddress,
	curesult.LaunchTimeout:            device.Timeout,    // the kernel ran too long for a device with a display
	curesult.ContextIsDestroyed:       device.DeviceLost, // the context was destroyed
	curesult.Assert:                   device.Assert,
	curesult.HardwareStackError:       device.StackOverflow,
	curesult.IllegalInstruction:       device.IllegalInstruction,
	curesult.MisalignedAddress:        device.MisalignedAddress,
	curesult.InvalidAddressSpace:      device.IllegalAddress, // an address of another state space
	curesult.InvalidPC:                device.IllegalCall,
	curesult.LaunchFailed:             device.Unspecified,
	curesult.TensorMemoryLeak:         device.Unspecified, // a kernel did not free its tensor memory
	curesult.MPSConnectionFailed:      device.Unspecified, // no connection to the Multi-Process Service,
	curesult.MPSRPCFailure:            device.Unspecified, // the service did not answer,
	curesult.MPSServerNotReady:        device.Unspecified, // it does not take clients now,
	curesult.MPSMaxClientsReached:     device.Unspecified, // it has too many clients,
	curesult.MPSMaxConnectionsReached: device.Unspecified, // it has too many connections,
	curesult.MPSClientTerminated:      device.Unspecified, // its administrator ended this client
	curesult.Unknown:                  device.Unspecified,
}

// driverError is an answer of the driver other than success.
type driverError struct {
	code       int
	call       string // the function that answered
	name, text string // the driver's name and text for the code; "" if it has none
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

// Unwrap returns the contract's error for the answer, or nil.
func (e *driverError) Unwrap() error { return refusals[e.code] }

// fault returns the fault that an answer stands for, or nil.
func (e *driverError) fault() *device.Fault {
	kind, ok := faults[e.code]
	if !ok {
		return nil
	}
	return &device.Fault{Kind: kind, Detail: e.Error()}
}
