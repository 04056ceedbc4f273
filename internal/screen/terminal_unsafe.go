package screen

import (
	"os"
	"syscall"
	"unsafe"
)

// ForegroundGroup is the process group that a terminal sends its signals to.
func ForegroundGroup(terminal *os.File) (int, error) {
	var group int32
	err := ioctl(terminal, syscall.TIOCGPGRP, unsafe.Pointer(&group))
	return int(group), err
}

// Size returns a terminal's columns and rows. It fails for what is no terminal.
func Size(terminal *os.File) (columns, rows int, err error) {
	var size struct{ rows, columns, x, y uint16 }
	err = ioctl(terminal, syscall.TIOCGWINSZ, unsafe.Pointer(&size))
	return int(size.columns), int(size.rows), err
}

// singleKeys lets a terminal hand over each key at once, unseen.
func singleKeys(terminal *os.File) (restore func(), err error) {
	var before syscall.Termios
	if err := ioctl(terminal, syscall.TCGETS, unsafe.Pointer(&before)); err != nil {
		return nil, err
	}
	during := before
	during.Lflag &^= syscall.ICANON | syscall.ECHO
	during.Cc[syscall.VMIN], during.Cc[syscall.VTIME] = 1, 0
	if err := ioctl(terminal, syscall.TCSETS, unsafe.Pointer(&during)); err != nil {
		return nil, err
	}
	return func() { _ = ioctl(terminal, syscall.TCSETS, unsafe.Pointer(&before)) }, nil
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
