package clientcore

import (
	"errors"
	"fmt"

	"muster/device"
	"muster/device/curesult"
	"muster/vmm"
)

// Result is a CUresult.
type Result = int32

const (
	success          Result = curesult.Success
	invalidValue     Result = curesult.InvalidValue
	outOfMemory      Result = curesult.OutOfMemory
	invalidImage     Result = curesult.InvalidImage
	noBinary         Result = curesult.NoBinaryForGPU
	invalidPTX       Result = curesult.InvalidPTX
	ptxVersion       Result = curesult.UnsupportedPTXVersion
	invalidSource    Result = curesult.InvalidSource
	invalidHandle    Result = curesult.InvalidHandle
	notFound         Result = curesult.NotFound
	notReady         Result = curesult.NotReady
	illegalAddress   Result = curesult.IllegalAddress
	launchTimeout    Result = curesult.LaunchTimeout
	asserted         Result = curesult.Assert
	stackError       Result = curesult.HardwareStackError
	illegalInstr     Result = curesult.IllegalInstruction
	misaligned       Result = curesult.MisalignedAddress
	invalidPC        Result = curesult.InvalidPC
	launchFailed     Result = curesult.LaunchFailed
	tooLarge         Result = curesult.CooperativeLaunchTooLarge
	deviceLost       Result = curesult.DeviceUnavailable
	notSupported     Result = curesult.NotSupported
	unknownError     Result = curesult.Unknown
	resultOfTooSmall        = outOfMemory // a kernel needs more at once than any device has
)

// Failure is an error as a value: the result for the program, and the reason.
type Failure struct {
	Result Result
	Text   string
}

func (f *Failure) Error() string { return f.Text }

func failureOf(err error) *Failure { return &Failure{Result: resultOf(err), Text: err.Error()} }

var faultResults = map[device.FaultKind]Result{
	device.IllegalAddress: illegalAddress, device.MisalignedAddress: misaligned, device.Trap: launchFailed,
	device.StackOverflow: stackError, device.IllegalCall: invalidPC, device.Deadlock: launchTimeout,
	device.DeviceLost: deviceLost, device.Unspecified: launchFailed,
	device.Assert: asserted, device.IllegalInstruction: illegalInstr, device.Timeout: launchTimeout,
}

// ResultOf returns the result for the program of an error.
func ResultOf(err error) Result { return resultOf(err) }

// SaidByKernel says whether the kernel itself has printed the reason of a result, so that it need
// not be told again.
func SaidByKernel(r Result) bool { return r == asserted }

func resultOf(err error) Result {
	var fault *device.Fault
	if errors.As(err, &fault) {
		if r, ok := faultResults[fault.Kind]; ok {
			return r
		}
		return launchFailed
	}
	var known *Failure
	if errors.As(err, &known) {
		return known.Result
	}
	for _, c := range []struct {
		err    error
		result Result
	}{
		{nil, success},
		{device.ErrOutOfMemory, outOfMemory}, {device.ErrNoKernelImage, noBinary},
		{device.ErrInvalidPTX, invalidPTX}, {device.ErrPTXVersion, ptxVersion}, {device.ErrLink, invalidSource}, {device.ErrInvalidImage, invalidImage},
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

// isFault says whether an error is a fault, which ends a context.
func isFault(err error) bool {
	var fault *device.Fault
	return errors.As(err, &fault)
}

// maxObjects bounds the objects of each kind that a client may have: no program needs as many, and
// each takes memory.
const maxObjects = 1 << 20

func tooMany(what string) error {
	return fmt.Errorf("more than %d %s: destroy those not used: %w", maxObjects, what, device.ErrOutOfMemory)
}

// errHandle is the error of a message with a number that names no object.
var errHandle = errors.New("no such object")
