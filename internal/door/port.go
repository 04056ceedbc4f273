package door

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// PortTrouble explains why a port cannot be opened at an address, and what to do about it.
func PortTrouble(address string, err error) error {
	var wrong *net.AddrError
	var unknown *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program has %s already: stop it, or give another port", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not open %s: give a port above 1023", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is no address of this machine: give one that is, or leave out the host for all, as :9420", address)
	case errors.As(err, &wrong), errors.As(err, &unknown):
		return fmt.Errorf("%q is no address (%w): write HOST:PORT, as 127.0.0.1:9420, with a port up to 65535", address, err)
	}
	return err
}
