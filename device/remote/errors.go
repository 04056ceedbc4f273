package remote

import (
	"fmt"

	"muster/device"
)

// lost is the fault of a context whose device is gone.
func lost(why string) error {
	return &device.Fault{Kind: device.DeviceLost, Detail: why}
}

// What a node answers calls with that are refused, by CUDA's numbers.
const (
	resultSuccess  = 0
	resultNotReady = 600
)

var refusals = map[int32]error{
	1: device.ErrInvalidValue, 2: device.ErrOutOfMemory, 200: device.ErrInvalidImage, 209: device.ErrNoKernelImage,
	218: device.ErrInvalidPTX, 222: device.ErrPTXVersion, 300: device.ErrLink, 400: device.ErrInvalidValue, 500: device.ErrNotFound,
	resultNotReady: device.ErrNotReady, 720: device.ErrTooLarge, 801: device.ErrNotSupported,
}

var faults = map[int32]device.FaultKind{
	46: device.DeviceLost, 700: device.IllegalAddress, 702: device.Deadlock, 710: device.Assert, 714: device.StackOverflow,
	715: device.IllegalInstruction, 716: device.MisalignedAddress, 718: device.IllegalCall, 719: device.Unspecified,
}

// refused is the error of a call that has failed; nil if it has not.
func refused(what string, result int32, why string) error {
	if result == resultSuccess {
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

// faultOf is what ended a context, by the result that the lender tells since.
func faultOf(result int32, why string) *device.Fault {
	kind, ok := faults[result]
	if !ok {
		kind = device.Unspecified
	}
	return &device.Fault{Kind: kind, Detail: why}
}
