package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// interruptedError is that the user ended the command with Ctrl-C, or by SIGTERM: the exit
// status is 130, as that of a program which such a signal ends is in a shell.
type interruptedError struct{ left string }

func (e *interruptedError) Error() string { return "interrupted: " + e.left }

// interruptedf says what is left of the work of a command that was interrupted.
func interruptedf(format string, args ...any) error {
	return &interruptedError{fmt.Sprintf(format, args...)}
}

// plainly is the text of an error without the names of system calls: a user who named a file wants
// to read which file it is and what is wrong with it.
func plainly(err error) string {
	text := err.Error()
	var program *exec.Error
	if errors.As(err, &program) {
		inner := plainly(program.Err)
		if !strings.HasPrefix(inner, program.Name+": ") {
			inner = program.Name + ": " + inner
		}
		return strings.Replace(text, program.Error(), inner, 1)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		text = strings.Replace(text, path.Error(), path.Path+": "+path.Err.Error(), 1)
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		text = strings.Replace(text, link.Error(), link.New+": "+link.Err.Error(), 1)
	}
	return text
}

// cannotWrite says why a file cannot be made: what is wrong is mostly its folder.
func cannotWrite(file string, err error) error {
	folder := filepath.Dir(file)
	info, missing := os.Stat(folder)
	var path *fs.PathError
	switch {
	case errors.Is(missing, fs.ErrNotExist):
		return fmt.Errorf("%s cannot be written: there is no folder %s", file, folder)
	case missing == nil && !info.IsDir():
		return fmt.Errorf("%s cannot be written: %s is no folder", file, folder)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be written: you may not make files in %s", file, folder)
	case errors.As(err, &path):
		return fmt.Errorf("%s cannot be written: %w", file, path.Err)
	}
	return fmt.Errorf("%s cannot be written: %w", file, err)
}
