package screen

import (
	"os"

	"golang.org/x/sys/unix"
)

// ForegroundGroup is the process group that a terminal sends its signals to.
func ForegroundGroup(terminal *os.File) (int, error) {
	return unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
}

// Size returns a terminal's columns and rows. It fails for what is no terminal.
func Size(terminal *os.File) (columns, rows int, err error) {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, err
	}
	return int(size.Col), int(size.Row), nil
}

// singleKeys lets a terminal hand over each key at once, unseen.
func singleKeys(terminal *os.File) (restore func(), err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	during := *before
	during.Lflag &^= unix.ICANON | unix.ECHO
	during.Cc[unix.VMIN], during.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &during); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }, nil
}
