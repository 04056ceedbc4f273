// Package misuse marks errors that are a mistake in what the user typed: a flag with an impossible
// value, flags that exclude each other, a name that does not exist. A command answers these with exit
// status 2 and points to its help; all other errors are failures.
//
// Packages that check what users ask for return such errors, so that the check can stand beside what
// it protects. The package knows no command line.
package misuse

import (
	"errors"
	"fmt"
)

// Error is a mistake of the user.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

// Errorf makes an Error of a text that says what to type instead.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Is says whether an error is a mistake of the user, or wraps one.
func Is(err error) bool {
	var e *Error
	return errors.As(err, &e)
}
