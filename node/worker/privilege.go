package worker

import (
	"fmt"
	"os"
	"syscall"

	"muster/wire/control"
)

// become makes this process run as the client's user. Devices are opened before: the user may lack
// the permission for their files, and afterwards the kernel restricts the process's access to its
// own /proc.
//
// The effective user is the client's, which decides about files. The real and the saved user are a
// number that no other process has: the kernel checks these when a process is sent a signal. So
// neither the user nor the worker of another client can stop or kill this worker.
func (w *worker) become(u *control.User) error {
	if u == nil || os.Geteuid() != 0 {
		return nil
	}
	for i, d := range w.serve.Devices {
		if d.Gone {
			continue
		}
		// A borrowed device that cannot be reached now may come back: it must not keep the client
		// from the others.
		if _, err := w.device(i); err != nil && d.Lender == (control.Lender{}) {
			return err
		}
	}
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
