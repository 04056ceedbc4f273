package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	wire "muster/wire/agent"
)

// terminal is the supervisor's side of a pseudo-terminal on which a command runs. The other side
// belongs to the task's user alone: nobody else may write to it. When ours is closed, the system
// hangs up: it sends SIGHUP, and a process that has the other side open for longer reads and writes
// nothing any more, whoever gets the terminal's number next.
type terminal struct{ *os.File }

// openTerminal makes a pseudo-terminal, and returns both sides.
func openTerminal(of *account, size wire.Terminal) (ours *terminal, theirs *os.File, err error) {
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("a terminal cannot be made: %w", err)
	}
	ours = &terminal{file}
	err = ours.control(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		theirs = os.NewFile(peer, "terminal")
		return nil
	})
	if err == nil {
		err = ours.resize(size)
	}
	if err == nil && of.credential != nil {
		err = theirs.Chown(int(of.credential.Uid), -1)
	}
	if err == nil {
		err = theirs.Chmod(0o600)
	}
	if err != nil {
		ours.Close()
		if theirs != nil {
			theirs.Close()
		}
		return nil, nil, fmt.Errorf("a terminal cannot be made: %w", err)
	}
	return ours, theirs, nil
}

// control has a function use the descriptor. File.Fd would make the file block for ever in reads.
func (t *terminal) control(use func(fd int) error) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = use(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// resize tells the command how large its terminal is.
func (t *terminal) resize(size wire.Terminal) error {
	return t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	})
}

// endOfInput is what a user types for the end of input: ^D.
const endOfInput = 4
