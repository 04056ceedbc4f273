//go:build !linux || !amd64

package native

import "errors"

// text is machine code, of which there is none here.
type text struct{}

// Supported says whether this processor can run compiled code.
func Supported() bool { return false }

// Vectors is "": no compiled code can run.
func Vectors() string { return "" }

// Compile fails: code is made for amd64 and Linux only.
func Compile(*Kernel) (*Code, error) {
	return nil, errors.New("kernels are compiled on Linux and amd64 only")
}

// Run is never called: there is no code.
func (c *Code) Run(*Frame, int32, bool) (Reason, int32) { panic("native: no code to run") }
