package script

import (
	"go.starlark.net/starlark"

	"muster/policy"
)

// way is how a script is written: which names it may use, and what a step does with it.
// A file's way is the first of ways whose function it defines.
type way interface {
	// names are what files written in this way may use beside what all have. It is
	// asked for before the file runs; the values in it may refer to the way.
	names() starlark.StringDict
	// ready is called once, when the file has run. It looks for the functions that it
	// will call, and returns what the state must keep for them.
	ready() (policy.Traits, *Error)
	// step lets the script propose. anew says that it must not rely on what it knows
	// from before: it is the first step, or one after a failure or after steps in which
	// the fallback decided. On failure the caller takes back what was proposed.
	step(v *policy.View, plan *policy.Plan, anew bool) *Error
	// why says why a waiting job was not started; "" where the script says nothing.
	why(v *policy.View, id policy.JobID) (string, *Error)
}

// ways lists the ways by the function that tells them. New ones join here.
var ways = []struct {
	function string
	make     func(in *interp) way
}{
	{"decide", newDecide},
	{"init", newLibrary},
}

func unknownWay(file string) *Error {
	return &Error{File: file, Line: 1, Column: 1, Message: "the file defines neither decide(view, plan) nor init(): nothing would be decided"}
}
