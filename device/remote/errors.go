package remote

import (
	"fmt"

	"muster/device"
	"muster/device/curesult"
)

// lost is the fault of a context whose device is gone.
func lost(why string) error {
	return &device.Fault{Kind: device.DeviceLost, Detail: why}
}

// refusals are the results with which a node refuses calls, and the contract's errors for them.
var refusals = map[int32]error{
	curesult.InvalidValue: device.ErrInvalidValue, curesult.OutOfMemory: device.ErrOutOfMemory, curesult.InvalidImage: device.ErrInvalidImage,
	curesult.NoBinaryForGPU: device.ErrNoKernelImage, curesult.InvalidPTX: device.ErrInvalidPTX, curesult.UnsupportedPTXVersion: device.ErrPTXVersion,
	curesult.InvalidSource: device.ErrLink, curesult.InvalidHandle: device.ErrInvalidValue, curesult.NotFound: device.ErrNotFound,
	curesult.NotReady: device.ErrNotReady, curesult.CooperativeLaunchTooLarge: device.ErrTooLarge, curesult.NotSupported: device.ErrNotSupported,
}

// faults are the results that a node answers with after a fault has ended the context.
var faults = map[int32]device.FaultKind{
	curesult.DeviceUnavailable: device.DeviceLost, curesult.IllegalAddress: device.IllegalAddress, curesult.LaunchTimeout: device.Timeout,
	curesult.Assert: device.Assert, curesult.HardwareStackError: device.StackOverflow, curesult.IllegalInstruction: device.IllegalInstruction,
	curesult.MisalignedAddress: device.MisalignedAddress, curesult.InvalidPC: device.IllegalCall, curesult.LaunchFailed: device.Unspecified,
}

// refused returns the error of a call with this result; nil for Success.
func refused(what string, result int32, why string) error {
	if result == curesult.Success {
		return nil
	}
	if why == "" {
		why = "the lender refused it"
	}
	if known, ok := refusals[result]; ok {
		return fmt.Errorf("%s: %s: %w", what, why, known)
	}
	return fmt.Errorf("%s: %s (CUDA result %d)", what, why, result)
}

// faultOf returns the fault that the lender's result stands for.
func faultOf(result int32, why string) *device.Fault {
	kind, ok := faults[result]
	if !ok {
		kind = device.Unspecified
	}
	return &device.Fault{Kind: kind, Detail: why}
}
