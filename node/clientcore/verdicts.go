package clientcore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/device"
	"muster/device/curesult"
	"muster/internal/units"
	"muster/vmm"
)

// A result is a number, and many reasons share one. What the user needs to know beyond it goes out
// as a Tell, before the result. Each reason is told once until a reset, however often a program
// tries again.

// verdicts is what the program and its user were told of what failed, and are still to be told.
type verdicts struct {
	*step
	verdictState
}

type verdictState struct {
	// Failure is the result of the next synchronising call, once: what a real driver would have
	// returned from the launch itself.
	Failure Result
	// Sticky is the result of every call after a fault, until a reset; Faulted says why.
	Sticky  Result
	Faulted *Failure
	Told    []string // reasons that the user was told in this world
	World   uint64   // the number of resets; what is found out about an earlier world does not count
}

func (v *verdicts) save(to *State)   { to.verdictState = v.verdictState }
func (v *verdicts) load(from *State) { v.verdictState = from.verdictState }

// maxTold is how many reasons are remembered; more are not told.
const maxTold = 32

// explain tells the user why a message could not be done, if the result alone does not.
func (v *verdicts) explain(err error) {
	result := ResultOf(err)
	if !v.needsWords(result) {
		return
	}
	text := firstLine(err.Error())
	key := text
	if result == outOfMemory {
		key = withoutFigures(text)
	}
	if slices.Contains(v.Told, key) || len(v.Told) >= maxTold {
		return
	}
	v.Told = append(v.Told, key)
	v.emit(Op{Kind: Tell, Text: text})
}

// needsWords says whether a result needs an explanation: it has many reasons, or it is returned by
// a later call than the one that failed.
func (v *verdicts) needsWords(r Result) bool {
	switch r {
	case outOfMemory, invalidImage, noBinary, invalidPTX, ptxVersion, invalidSource, notSupported, unknownError:
		return true
	case notReady, asserted:
		return false
	}
	return v.Current.Slot < 0
}

// firstLine returns the first line of a text, with a note if there are more.
func firstLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%s (the first of %d lines)", lines[0], len(lines))
}

// withoutFigures leaves out the words that differ each time the same limit is hit: numbers, and
// their units.
func withoutFigures(text string) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "bytes"}
	words := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return strings.ContainsAny(word, "0123456789") || slices.Contains(units, strings.Trim(word, ",:;()"))
	})
	return strings.Join(words, " ")
}

func sizeOf(bytes uint64) string { return units.BriefSize(bytes) }

// allocation adds to an error which allocation it is about.
func allocation(bytes uint64, err error) error {
	return fmt.Errorf("an allocation of %s: %w", sizeOf(bytes), err)
}

// deviceGone is the daemon's reason when all devices that a client may use are lost.
const deviceGone = "no device"

// errNoneReturns is the error of a message for which memory would have to move, while host functions
// keep it where it is. Work that no device can have may be done on the host copies, but not if this is
// the reason: it would have to wait for the functions, too.
var errNoneReturns = &Failure{Result: outOfMemory, Text: fmt.Sprintf("there is no room on the device, and none can be made, since no host function of the program (cuLaunchHostFunc) has returned, and no word that it waits for was written, for %v: let them return, or use less memory until they have", functionPatience)}

// fail has every call from now on fail.
func (v *verdicts) fail(err error) {
	v.Faulted = failureOf(err)
	v.Sticky = v.Faulted.Result
	v.emit(Op{Kind: SetStatus, Result: v.Sticky, Text: v.Faulted.Text})
}

// Result is the result of every call since a fault; 0 if there was none.
func (v *verdicts) Result() Result { return v.Sticky }

// refuseWith is refuse with a result, and without an explanation.
func (v *verdicts) refuseWith(r Result) {
	if r != notReady {
		v.emit(Op{Kind: Refused, Result: r})
	}
	if slot := v.Current.Slot; slot >= 0 {
		v.reply(slot, r, nil)
		return
	}
	if v.Failure == success {
		v.Failure = r
	}
}

// answer answers a call that has succeeded, with the failure of an earlier message without an
// answer if there was one.
func (v *verdicts) answer(slot int) {
	if slot >= 0 {
		v.reply(slot, v.takeFailure(), nil)
	}
}

func (v *verdicts) takeFailure() Result {
	r := v.Failure
	v.Failure = success
	return r
}

// replyAfter answers a call once a stream, all streams, or an event has completed what was
// submitted so far.
func (v *verdicts) replyAfter(at vmm.Place, m *Message) *Op {
	o := v.next(ReplyAfter)
	o.Place, o.Slot, o.Result = at, m.Header.Slot, v.takeFailure()
	return o
}

func (v *verdicts) check() error {
	if len(v.Told) > maxTold {
		return fmt.Errorf("%d reasons were told, where %d are remembered", len(v.Told), maxTold)
	}
	return nil
}

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

func failureOf(err error) *Failure { return &Failure{Result: ResultOf(err), Text: err.Error()} }

var faultResults = map[device.FaultKind]Result{
	device.IllegalAddress: illegalAddress, device.MisalignedAddress: misaligned, device.Trap: launchFailed,
	device.StackOverflow: stackError, device.IllegalCall: invalidPC, device.Deadlock: launchTimeout,
	device.DeviceLost: deviceLost, device.Unspecified: launchFailed,
	device.Assert: asserted, device.IllegalInstruction: illegalInstr, device.Timeout: launchTimeout,
}

// SaidByKernel says whether the kernel itself has printed the reason of a result, so that it need
// not be told again.
func SaidByKernel(r Result) bool { return r == asserted }

// ResultOf returns the result for the program of an error.
func ResultOf(err error) Result {
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
