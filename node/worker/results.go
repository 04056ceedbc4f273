package worker

import (
	"errors"
	"fmt"

	"muster/device"
	"muster/vmm"
)

// result is a CUresult.
type result = int32

const (
	success          result = 0
	invalidValue     result = 1
	outOfMemory      result = 2
	invalidImage     result = 200
	noBinary         result = 209
	invalidPTX       result = 218
	invalidHandle    result = 400
	notFound         result = 500
	notReady         result = 600
	illegalAddress   result = 700
	launchTimeout    result = 702
	assertFailed     result = 710
	stackError       result = 714
	misaligned       result = 716
	invalidPC        result = 718
	launchFailed     result = 719
	tooLarge         result = 720
	deviceLost       result = 46
	notSupported     result = 801
	unknownError     result = 999
	resultOfTooSmall        = outOfMemory // a kernel needs more at once than the device has
)

var faultResults = map[device.FaultKind]result{
	device.IllegalAddress: illegalAddress, device.MisalignedAddress: misaligned, device.Trap: launchFailed,
	device.StackOverflow: stackError, device.IllegalCall: invalidPC, device.Deadlock: launchTimeout,
	device.DeviceLost: deviceLost, device.Unspecified: launchFailed,
}

// resultOf returns what a program is told of an error.
func resultOf(err error) result {
	var fault *device.Fault
	if errors.As(err, &fault) {
		if r, ok := faultResults[fault.Kind]; ok {
			return r
		}
		return launchFailed
	}
	for _, c := range []struct {
		err    error
		result result
	}{
		{nil, success},
		{device.ErrOutOfMemory, outOfMemory}, {device.ErrNoKernelImage, noBinary}, {device.ErrInvalidImage, invalidImage},
		{device.ErrNotFound, notFound}, {device.ErrTooLarge, tooLarge}, {device.ErrNotReady, notReady},
		{device.ErrNotSupported, notSupported}, {device.ErrInvalidValue, invalidValue},
		{vmm.ErrLimit, outOfMemory}, {vmm.ErrCapacity, resultOfTooSmall},
		{vmm.ErrInvalid, invalidValue}, {vmm.ErrOverlap, invalidValue}, {vmm.ErrUnknown, invalidValue}, {vmm.ErrBounds, invalidValue},
		{errHandle, invalidHandle},
	} {
		if errors.Is(err, c.err) {
			return c.result
		}
	}
	return unknownError
}

// maxObjects is how many a client may have of each kind: no program needs so
// many, and each takes room.
const maxObjects = 1 << 20

func tooMany(what string) error {
	return fmt.Errorf("more than %d %s: destroy those not used: %w", maxObjects, what, device.ErrOutOfMemory)
}

// errHandle is what a message with a number gets that stands for nothing.
var errHandle = errors.New("no such object")
