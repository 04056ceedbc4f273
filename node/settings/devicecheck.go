package settings

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"muster/wire/control"
)

// Bounds on devices that a request describes; nodefile applies the same to files and flags.
const (
	DeviceGranule = 2 << 20 // the memory of a software device is a multiple of this
	maxDeviceName = 200
	minSpeed      = 1e-6
	maxThreads    = 1024
)

// CheckDevice refuses a description of a device that could not stand in a configuration file.
func CheckDevice(c Device) error {
	switch {
	case c.Kind == "cuda" && (c.Index < 0 || c.Memory != 0 || c.Rate != 0 || c.CopyBandwidth != 0 || c.Workers != 0 || c.Engine != ""):
		return errors.New("a CUDA device has a number of the driver's and, if need be, a reserve; nothing else")
	case c.Kind == "cuda":
		return nil
	case c.Kind == KindRemote:
		return checkRemote(c)
	case c.Kind != "soft":
		return fmt.Errorf("there are no devices of kind %q: only soft, cuda and remote", Printable(c.Kind))
	case c.Name == "" || len(c.Name) > maxDeviceName || Printable(c.Name) != c.Name:
		return fmt.Errorf("%q is no name for a device: give 1 to %d characters that can be printed", Printable(c.Name), maxDeviceName)
	case c.Memory == 0 || c.Memory%DeviceGranule != 0:
		return errors.New("a software GPU's memory must be a multiple of 2MiB, above 0")
	case !(c.Speed >= minSpeed && c.Speed <= 1):
		return fmt.Errorf("speed must be above 0 and at most 1, not %g", c.Speed)
	case c.Rate != 0 && !(c.Rate >= 1e3 && c.Rate <= 1e15):
		return fmt.Errorf("rate must be a number of operations a second from 1e3 to 1e15, not %g", c.Rate)
	case c.Workers < 1 || c.Workers > maxThreads:
		return fmt.Errorf("workers must be a whole number from 1 to %d, not %d", maxThreads, c.Workers)
	case c.Engine != "" && !slices.Contains(control.Engines, c.Engine):
		return fmt.Errorf("engine must be one of %s, not %q", strings.Join(control.Engines, ", "), Printable(c.Engine))
	}
	return nil
}

// checkRemote refuses an impossible description of another node's device.
func checkRemote(c Device) error {
	if _, _, err := net.SplitHostPort(c.Lender.Address); err != nil {
		return fmt.Errorf("another node's device needs that node's address as HOST:PORT: %w", err)
	}
	switch {
	case c.Index < 0 || c.Memory != 0 || c.Rate != 0 || c.CopyBandwidth != 0 || c.Workers != 0:
		return errors.New("another node's device has its number there; memory and speed are that node's affair")
	case c.Lender.Ticket != "": // the ticket authenticates this node, and Authority the other
	case c.Lender.Plain == (c.Lender.TLS != ""):
		return errors.New("another node is reached with the certificates in a folder (tls), or without TLS (plain): give one of the two")
	case c.Lender.Plain && c.Lender.Token == "":
		return errors.New("without TLS the two nodes show each other that they know a token: give the file that has it (token)")
	}
	return nil
}
