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

// Raw has a terminal hand over what is typed as it is, ^C included, and show what is written as it is: a
// terminal elsewhere does the rest.
func Raw(terminal *os.File) (restore func(), err error) {
	return with(terminal, func(t *unix.Termios) {
		t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	})
}

// singleKeys lets a terminal hand over each key at once, unseen.
func singleKeys(terminal *os.File) (restore func(), err error) {
	return with(terminal, func(t *unix.Termios) { t.Lflag &^= unix.ICANON | unix.ECHO })
}

// with changes how a terminal is set, and has reads return each byte at once.
func with(terminal *os.File, change func(*unix.Termios)) (restore func(), err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	during := *before
	change(&during)
	during.Cc[unix.VMIN], during.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &during); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }, nil
}
