package ptx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Error is one error in a file, with its position.
type Error struct {
	File string
	Pos
	Msg string
}

// Error returns file:line:column: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
}

// Errors are the errors found in a file, in the order of the text; at most maxErrors of them.
type Errors []*Error

const maxErrors = 20

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes the single errors visible to package errors.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// quote quotes a piece of the text, shortened, so that a message stays one readable line.
func quote(text string) string {
	const most = 60
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}
