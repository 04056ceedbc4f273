package ownprocess

import (
	"fmt"
	"syscall"

	"muster/wire/control"
)

// Become makes this process, which is root's, run as the client's user. Devices are opened before: the user
// may lack the permission for their files, and afterwards the kernel restricts the process's access to its
// own /proc.
//
// The effective user is the client's, which decides about files. The real and the saved user are a
// number that no other process has: the kernel checks these when a process is sent a signal. So
// neither the user nor the worker of another client can stop or kill this worker.
func Become(u *control.User) error {
	if err := syscall.Setgroups(u.Groups); err != nil {
		return fmt.Errorf("leaving root's groups: %w", err)
	}
	if err := syscall.Setresgid(u.GID, u.GID, u.GID); err != nil {
		return fmt.Errorf("becoming group %d: %w", u.GID, err)
	}
	own := u.Own
	if own == 0 {
		own = u.UID
	}
	if err := syscall.Setresuid(own, u.UID, own); err != nil {
		return fmt.Errorf("becoming user %d (as %d): %w", u.UID, own, err)
	}
	return nil
}
