package script

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Error is what is wrong in a script, and where. Line and Column count from 1; they
// are 0 where no place in the file is to blame.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// maxMessage bounds a message: it is kept, logged and sent to users.
const maxMessage = 500

func clipped(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

func errorAt(file string, pos syntax.Position, format string, args ...any) *Error {
	return &Error{File: file, Line: int(pos.Line), Column: int(pos.Col), Message: clipped(advised(fmt.Sprintf(format, args...)))}
}

// errorOf finds the place of an error of the interpreter.
func errorOf(file string, err error) *Error {
	var own *Error
	var syn syntax.Error
	var res resolve.ErrorList
	var eval *starlark.EvalError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &syn):
		return errorAt(file, syn.Pos, "%s", syn.Msg)
	case errors.As(err, &res) && len(res) > 0:
		return errorAt(file, res[0].Pos, "%s", res[0].Msg)
	case errors.As(err, &eval):
		return errorAt(file, placeOf(file, eval.CallStack), "%s", strings.TrimPrefix(eval.Msg, "Starlark computation cancelled: "))
	}
	return &Error{File: file, Message: clipped(err.Error())}
}

// advice is what to do about messages of the interpreter that say little to a
// reader who knows Python: how a message begins, and the advice that is
// appended to it.
var advice = []struct{ begins, say string }{
	{"got import,", "a policy imports nothing: all that it may use has a name already"},
	{"got global,", "what a policy keeps between steps goes into state"},
	{"got nonlocal,", "what a policy keeps between steps goes into state"},
	{"got class,", "there are no classes: use dictionaries"},
	{"got try,", "nothing is caught: a step that fails is the fallback's"},
	{"got with,", "a policy opens nothing"},
	{"got string literal, want", `texts have no letters before them: write "%s" % x`},
	{"cannot insert into frozen", frozen},
	{"cannot append to frozen", frozen},
	{"cannot delete from frozen", frozen},
	{"cannot assign to element of frozen", frozen},
	{"cannot clear frozen", frozen},
	{"dict has no .", `what a dictionary holds is written as q["programs"]`},
	{"unhandled index operation queue", "walk through it with for, or make a list of it: list(...)"},
}

const frozen = "what is outside of functions cannot be changed any more: keep it in state"

// advised adds advice to a message, where there is any.
func advised(message string) string {
	for _, a := range advice {
		if strings.HasPrefix(message, a.begins) {
			return message + " (" + a.say + ")"
		}
	}
	return message
}

// placeOf is the innermost place in the file: what is below it are functions written
// in Go.
func placeOf(file string, stack starlark.CallStack) syntax.Position {
	for i := range stack {
		if pos := stack.At(i).Pos; pos.Filename() == file && pos.Line > 0 {
			return pos
		}
	}
	return syntax.Position{}
}
