package worker

import (
	"fmt"
	"os"
	"syscall"

	"muster/wire/control"
)

// become makes this process the client's user. Devices are opened before: what
// a device needs may be closed to the user, and afterwards the system keeps the
// process from looking at itself.
func (w *worker) become(u *control.User) error {
	if u == nil || os.Geteuid() != 0 {
		return nil
	}
	for i := range w.serve.Devices {
		if _, err := w.device(i); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(u.Groups); err != nil {
		return fmt.Errorf("leaving root's groups: %w", err)
	}
	if err := syscall.Setresgid(u.GID, u.GID, u.GID); err != nil {
		return fmt.Errorf("becoming group %d: %w", u.GID, err)
	}
	if err := syscall.Setresuid(u.UID, u.UID, u.UID); err != nil {
		return fmt.Errorf("becoming user %d: %w", u.UID, err)
	}
	return nil
}
