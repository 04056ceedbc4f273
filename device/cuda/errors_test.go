package cuda

import (
	"errors"
	"strings"
	"testing"

	"muster/device"
)

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		code    int
		refusal error
		kind    device.FaultKind
	}{
		{code: 1, refusal: device.ErrInvalidValue},
		{code: 2, refusal: device.ErrOutOfMemory},
		{code: 3}, // not initialised: neither
		{code: 46, kind: device.DeviceLost},
		{code: 200, refusal: device.ErrInvalidImage},
		{code: 209, refusal: device.ErrNoKernelImage},
		{code: 214, kind: device.DeviceLost},
		{code: 218, refusal: device.ErrInvalidPTX},
		{code: 222, refusal: device.ErrPTXVersion},
		{code: 400, refusal: device.ErrInvalidValue},
		{code: 500, refusal: device.ErrNotFound},
		{code: 600, refusal: device.ErrNotReady},
		{code: 700, kind: device.IllegalAddress},
		{code: 701, refusal: device.ErrInvalidValue},
		{code: 709, kind: device.DeviceLost},
		{code: 710, kind: device.Assert},
		{code: 712}, // registered already: neither
		{code: 714, kind: device.StackOverflow},
		{code: 715, kind: device.IllegalInstruction},
		{code: 716, kind: device.MisalignedAddress},
		{code: 717, kind: device.IllegalAddress},
		{code: 718, kind: device.IllegalCall},
		{code: 719, kind: device.Unspecified},
		{code: 720, refusal: device.ErrTooLarge},
		{code: 801, refusal: device.ErrNotSupported},
		{code: 999, kind: device.Unspecified},
	} {
		e := &driverError{code: c.code, call: "cuSomething", name: "CUDA_ERROR_SOMETHING", text: "something is wrong"}
		if c.refusal != nil && !errors.Is(e, c.refusal) || c.refusal == nil && e.Unwrap() != nil {
			t.Errorf("%d is %v, want %v", c.code, e.Unwrap(), c.refusal)
		}
		f := e.fault()
		if f == nil {
			f = &device.Fault{}
		}
		if f.Kind != c.kind {
			t.Errorf("%d is %v, want %v", c.code, f.Kind, c.kind)
		}
		if text := f.Error(); c.kind != 0 && !strings.Contains(text, "cuSomething answered CUDA_ERROR_SOMETHING") {
			t.Errorf("the fault does not say who answered what: %s", text)
		}
	}
	for code := range faults {
		if refusals[code] != nil {
			t.Errorf("%d is a fault and a refusal", code)
		}
	}
}
