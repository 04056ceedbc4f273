// Package functions says what each function of CUDA's driver interface does in
// Muster's libcuda.so.1, for commands that tell people before they run a program.
// Its table is read from api.txt, from which shim/gen makes the library. It must not know how
// functions are called or what programs do with them.
package functions

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// API is the description of the driver's interface, a line a function; its first lines say how it is written.
//
//go:embed api.txt
var API string

// State is how much of a function there is.
type State int

const (
	Works    State = iota
	RealOnly       // on real GPUs only
	Partly         // what the reason names is refused
	Refused
)

// String returns what the table in docs/compatibility.md says.
func (s State) String() string {
	switch s {
	case Works:
		return "works"
	case RealOnly:
		return "works on real GPUs only"
	case Partly:
		return "works in part"
	case Refused:
		return "refused"
	}
	return fmt.Sprintf("state %d", int(s))
}

// Function is one function that the library exports.
type Function struct {
	Name  string // as it is exported, with its version
	Bare  string // as cuGetProcAddress finds it
	Since int    // the version of CUDA from which on it does; 0: it does not
	State State
	Why   string // what is refused, and why; "" if it works
}

// table has every exported name, sorted.
var table = sync.OnceValue(func() (table []Function) {
	entries, err := Parse(API)
	if err != nil {
		panic("shim/functions/api.txt: " + err.Error()) // a test reads it
	}
	for _, e := range entries {
		for _, name := range e.Exported() {
			table = append(table, Function{name, e.Name, e.Since, e.State(), e.Why()})
		}
	}
	slices.SortFunc(table, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return table
})

// Exported returns the function that a program gets which links the name.
func Exported(name string) (Function, bool) {
	i, found := slices.BinarySearchFunc(table(), name, func(f Function, name string) int { return strings.Compare(f.Name, name) })
	if !found {
		return Function{}, false
	}
	return table()[i], true
}

// Named returns the function that a program most likely gets which asks for a
// name when it runs: of a name without a version the newest that Muster knows,
// as cuGetProcAddress returns it to programs of today.
func Named(name string) (Function, bool) {
	best, found := Function{}, false
	for _, f := range table() {
		perThread := strings.HasSuffix(f.Name, "_ptsz") || strings.HasSuffix(f.Name, "_ptds")
		if f.Bare == name && !perThread && f.Since > 0 && (!found || f.Since > best.Since) {
			best, found = f, true
		}
	}
	if found {
		return best, true
	}
	return Exported(name)
}
