package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// InterruptedError is that the user ended the command with Ctrl-C, or by SIGTERM: the exit
// status is 130, as that of a program which such a signal ends is in a shell.
type InterruptedError struct{ left string }

func (e *InterruptedError) Error() string { return "interrupted: " + e.left }

// Interruptedf says what is left of the work of a command that was interrupted.
func Interruptedf(format string, args ...any) error {
	return &InterruptedError{fmt.Sprintf(format, args...)}
}

// Plainly is the text of an error without the names of system calls: a user who named a file wants
// to read which file it is and what is wrong with it.
func Plainly(err error) string {
	text := err.Error()
	var program *exec.Error
	if errors.As(err, &program) {
		inner := Plainly(program.Err)
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
