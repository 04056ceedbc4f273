package script

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"muster/model"
)

// interp is one file, run once, and what its functions need when they are called.
type interp struct {
	file    string
	meter   meter
	globals starlark.StringDict
	// state is what the script keeps between two calls. grown bounds what it may have
	// grown by since it was weighed.
	state *starlark.Dict
	grown int64

	printed printedLines
	options settings
}

// newInterp prepares a file whose calls take at most what the settings say.
func newInterp(file string) *interp {
	in := &interp{file: file, state: starlark.NewDict(0)}
	in.meter = meter{thread: &starlark.Thread{Name: file}, steps: DefaultSteps, memory: DefaultMemory}
	in.meter.thread.Print = func(_ *starlark.Thread, text string) { in.printed.add(text) }
	in.meter.thread.OnMaxSteps = func(t *starlark.Thread) { t.Cancel(in.meter.tooManySteps().Error()) }
	return in
}

// fileOptions are what of the language's options policies have.
var fileOptions = &syntax.FileOptions{Set: true}

// parse reads a file into a tree that is safe to compile.
func parse(file string, source []byte) (*syntax.File, *Error) {
	if len(source) > MaxSource {
		return nil, &Error{File: file, Message: fmt.Sprintf("the file has %d bytes: at most %d", len(source), MaxSource)}
	}
	if at := bytes.IndexByte(source, 0); at >= 0 { // the parser would end there
		line := bytes.Count(source[:at], []byte("\n"))
		return nil, &Error{File: file, Line: line + 1, Column: at - bytes.LastIndexByte(source[:at], '\n'), Message: "this is no text: it has a zero byte"}
	}
	if err := shallow(file, source); err != nil {
		return nil, err
	}
	tree, err := fileOptions.Parse(file, source, 0)
	if err != nil {
		return nil, errorOf(file, err)
	}
	if err := rewrite(tree); err != nil {
		return nil, err
	}
	return tree, nil
}

// defines says whether a file has a function of this name.
func defines(tree *syntax.File, name string) bool {
	for _, s := range tree.Stmts {
		if d, ok := s.(*syntax.DefStmt); ok && d.Name.Name == name {
			return true
		}
	}
	return false
}

// run compiles a file and runs it once, with the names that it may use.
func (in *interp) run(tree *syntax.File, names ...starlark.StringDict) *Error {
	known := in.meter.guarded(operators)
	for _, more := range append(names, in.meter.guarded(universe), in.meter.guarded(random(in)), constants(in)) {
		maps.Copy(known, more)
	}
	for _, name := range unsupported {
		known[name] = starlark.NewBuiltin(name, func(_ *starlark.Thread, b *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			return nil, fmt.Errorf("policies have no %s", b.Name())
		})
	}
	program, err := starlark.FileProgram(tree, known.Has)
	if err != nil {
		return suggesting(errorOf(in.file, err), known)
	}
	if err := fewLocals(tree); err != nil {
		return err
	}
	failure := in.guard(func() error {
		in.globals, err = program.Init(in.meter.thread, known)
		return err
	})
	if failure == nil {
		failure = in.flat()
	}
	if failure != nil {
		return failure
	}
	in.globals.Freeze()
	if in.state.Clear() != nil {
		return &Error{File: in.file, Message: "state is frozen: do not give it another name outside of functions"}
	}
	return nil
}

// maxGlobals is how many parts the values of a file may have outside of functions.
const maxGlobals = 1_000_000

// flat refuses values outside of functions that are nested too deep: freezing them takes
// the stack for each level, and without a stack the program ends.
func (in *interp) flat() *Error {
	for _, name := range in.globals.Keys() {
		if _, err := weigh(in.globals[name], maxGlobals); err != nil {
			return &Error{File: in.file, Message: clipped(fmt.Sprintf("%s: %s", name, err))}
		}
	}
	return nil
}

// suggesting adds the name that was probably meant to the message about an unknown one. The
// resolver itself suggests names that the file uses, and a nearer one goes before that.
func suggesting(e *Error, known starlark.StringDict) *Error {
	said, unknown := strings.CutPrefix(e.Message, "undefined: ")
	if !unknown {
		return e
	}
	name, own, _ := strings.Cut(said, " (did you mean ")
	if near := model.Nearest(name, append([]string{strings.TrimSuffix(own, "?)")}, known.Keys()...)); near != "" {
		e.Message = "undefined: " + name + " (did you mean " + near + "?)"
	}
	return e
}

// guard runs something of the script within its limits. What panics is a mistake in
// this package; it costs the call, not the head.
func (in *interp) guard(do func() error) (failure *Error) {
	defer func() {
		if r := recover(); r != nil {
			failure = &Error{File: in.file, Message: clipped(fmt.Sprintf("the interpreter failed: %v", r))}
			in.meter.thread = &starlark.Thread{Name: in.file, Print: in.meter.thread.Print, OnMaxSteps: in.meter.thread.OnMaxSteps}
		}
	}()
	in.meter.begin()
	if err := do(); err != nil {
		return errorOf(in.file, err)
	}
	return nil
}

// call calls a function of the script.
func (in *interp) call(f starlark.Callable, args ...starlark.Value) (result starlark.Value, failure *Error) {
	failure = in.guard(func() (err error) {
		result, err = starlark.Call(in.meter.thread, f, args, nil)
		return err
	})
	if failure == nil {
		failure = in.checkState(f)
	}
	if failure != nil {
		in.forget()
	}
	return result, failure
}

// forget empties the state after a failure, since it is unknown how much of a change was made.
func (in *interp) forget() {
	_ = in.state.Clear()
	in.grown = 0
}

// checkState refuses a state that has grown too large. It measures the state only when enough work
// has been done since the last time for it to have grown that much.
func (in *interp) checkState(f starlark.Callable) *Error {
	in.grown += in.meter.used + int64(in.meter.thread.Steps)*valueBytes
	if in.grown <= maxState || in.state.Len() == 0 {
		return nil
	}
	n, err := weigh(in.state, maxState/32)
	if err == nil {
		in.grown = int64(n) * 16
		return nil
	}
	failure := errorAt(in.file, syntax.Position{}, "state holds too much: %s", strings.TrimPrefix(err.Error(), "the value "))
	if p, ok := f.(interface{ Position() syntax.Position }); ok {
		failure.Line, failure.Column = int(p.Position().Line), int(p.Position().Col)
	}
	return failure
}

// function is a function that the file defines; nil if it defines none so called.
func (in *interp) function(name string, parameters int) (*starlark.Function, *Error) {
	v, ok := in.globals[name]
	if !ok {
		return nil, nil
	}
	f, ok := v.(*starlark.Function)
	if !ok {
		return nil, &Error{File: in.file, Message: fmt.Sprintf("%s is a %s, and must be a function", name, v.Type())}
	}
	if f.NumParams() != parameters || f.NumKwonlyParams() > 0 {
		return nil, errorAt(in.file, f.Position(), "%s has %d parameters: it is called with %d", name, f.NumParams(), parameters)
	}
	return f, nil
}

// fewLocals refuses functions with very many names: each call makes room for them.
func fewLocals(tree *syntax.File) *Error {
	var found *Error
	check := func(pos syntax.Position, f any) {
		if r, ok := f.(*resolve.Function); ok && len(r.Locals) > maxLocals && found == nil {
			found = errorAt(tree.Path, pos, "the function has %d names of its own: at most %d", len(r.Locals), maxLocals)
		}
	}
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.DefStmt:
			check(n.Def, n.Function)
		case *syntax.LambdaExpr:
			check(n.Lambda, n.Function)
		}
		return true
	})
	return found
}

// printedLines are the last lines that a script has printed.
type printedLines struct {
	lines   []string
	skipped int
}

const maxPrinted = 100

func (p *printedLines) add(text string) {
	if len(p.lines) >= maxPrinted {
		p.skipped++
		return
	}
	p.lines = append(p.lines, clipped(text))
}

// take returns what was printed since the last time.
func (p *printedLines) take() []string {
	lines := p.lines
	if p.skipped > 0 {
		lines = append(lines, fmt.Sprintf("(%d more lines)", p.skipped))
	}
	p.lines, p.skipped = nil, 0
	return lines
}
