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
//
// The effective user is the client's, which decides about files. The real and the
// saved one are a number that no other process has: they are what the system looks
// at when a process is to get a signal. So the user cannot stop or kill the worker,
// nor can the worker of another client.
func (w *worker) become(u *control.User) error {
	if u == nil || os.Geteuid() != 0 {
		return nil
	}
	for i, d := range w.serve.Devices {
		if d.Gone {
			continue
		}
		// One that cannot be reached now may be later: it keeps nobody from the others.
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
