package onekernel

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"muster/internal/misuse"
	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
	"muster/report"
)

func TestLaunchWords(t *testing.T) {
	good := LaunchWords{Grid: "4, 2", Block: "32", Engine: "auto", Workers: 1}
	l, err := good.Launch()
	if err != nil || l.Grid != (shape.Dim{X: 4, Y: 2, Z: 1}) || l.Block != (shape.Dim{X: 32, Y: 1, Z: 1}) || l.Profile != nil {
		t.Errorf("got %+v, %v", l, err)
	}
	wanted := good
	wanted.Profile, wanted.Disasm = true, true
	if l, err = wanted.Launch(); err != nil || l.Profile == nil || !l.List || l.Engine != simt.Compile {
		t.Errorf("with a profile and machine code: got %+v, %v", l, err)
	}
	for want, spoil := range map[string]func(*LaunchWords){
		"say how many blocks: --grid X, X,Y or X,Y,Z":                                     func(w *LaunchWords) { w.Grid = "" },
		"--grid 1,1,1,1: there are three dimensions at most":                              func(w *LaunchWords) { w.Grid = "1,1,1,1" },
		`--block 0: "0" is no number from 1 on; write X, X,Y or X,Y,Z`:                    func(w *LaunchWords) { w.Block = "0" },
		`there is no engine "steam": --engine is one of interpret, compile and auto`:      func(w *LaunchWords) { w.Engine = "steam" },
		"--workers must be 1 or more, not 0":                                              func(w *LaunchWords) { w.Workers = 0 },
		"--cooperative: at most 131072 threads can run at the same time":                  func(w *LaunchWords) { w.Cooperative, w.Grid = true, "5000" },
		"--disasm: the interpreter has no machine code; leave --engine out":               func(w *LaunchWords) { w.Disasm, w.Engine = true, "interpret" },
		"--grid 4294967296: \"4294967296\" is no number from 1 on; write X, X,Y or X,Y,Z": func(w *LaunchWords) { w.Grid = "4294967296" },
	} {
		bad := good
		spoil(&bad)
		if _, err := bad.Launch(); err == nil || err.Error() != want || !misuse.Is(err) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// double doubles the elements of its buffer; each thread has one.
const double = `.version 7.0
.target sm_80
.address_size 64
.visible .entry double(.param .u64 buffer) {
	.reg .b64 %a<3>;
	.reg .b32 %r<3>;
	ld.param.u64 %a0, [buffer];
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %a1, %r0, 4;
	add.s64 %a2, %a0, %a1;
	ld.global.u32 %r1, [%a2];
	add.s32 %r2, %r1, %r1;
	st.global.u32 [%a2], %r2;
	ret;
}
`

// runDouble runs double with so many threads on an argument, and returns what was written, too.
func runDouble(t *testing.T, threads, argument string, w Watch) (run *Run, out, told *strings.Builder, err error) {
	t.Helper()
	k, err := Open(strings.NewReader(double), "-", "double")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Release() })
	words := LaunchWords{Grid: "1", Block: threads, Engine: "auto", Workers: 1, Stack: shape.DefaultStack}
	if k.Launch, err = words.Launch(); err != nil {
		t.Fatal(err)
	}
	args, err := ParseArguments([]string{argument})
	if err == nil {
		err = k.Prepare(args)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, told = &strings.Builder{}, &strings.Builder{}
	w.Out, w.Told, w.Bar = out, told, report.NewProgress(io.Discard, false, "", 0)
	run, err = k.Run(context.Background(), w)
	return run, out, told, err
}

func TestRun(t *testing.T) {
	run, out, told, err := runDouble(t, "4", "inout:u32[4]=iota", Watch{})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Write(out, told, Show{}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "argument 1, u32[4]:\n  0: 0 2 4 6\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.HasPrefix(told.String(), "double: ") || strings.Count(told.String(), "\n") != 1 {
		t.Errorf("told: %q", told)
	}
}

// A kernel that faults has a run that can be shown, without its buffers.
func TestRunThatFaults(t *testing.T) {
	run, out, told, err := runDouble(t, "256", "inout:u32[4]=iota", Watch{})
	var fault *simt.Fault
	if run == nil || !errors.As(err, &fault) {
		t.Fatalf("got %v, %v", run, err)
	}
	if err := run.Write(out, told, Show{}); err != nil || out.Len() > 0 {
		t.Errorf("written: %q, %v", out, err)
	}
	if doc := run.Document(Show{}); doc.Fault == nil || len(doc.Buffers) > 0 {
		t.Errorf("got %+v", doc)
	}
}

// Buffers are not printed as if all had gone well when a file could not be written.
func TestRunWhoseFileCannotBeWritten(t *testing.T) {
	full := errors.New("the disk is full")
	run, out, told, err := runDouble(t, "4", "inout=@four.bin:u32[4]=iota", Watch{
		WriteFile: func(string, func(io.Writer) error) error { return full },
	})
	if run == nil || !errors.Is(err, full) {
		t.Fatalf("got %v, %v", run, err)
	}
	if err := run.Write(out, told, Show{}); err != nil || out.Len() > 0 || told.Len() > 0 {
		t.Errorf("written: %q and %q, %v", out, told, err)
	}
}

// Defects are written as they are found, or gathered for the document.
func TestRunWithChecks(t *testing.T) {
	for _, gather := range []bool{false, true} {
		run, _, told, err := runDouble(t, "4", "out:u32[4]", Watch{Checks: memcheck.Checks{Init: true}, Gather: gather})
		if err != nil || !run.Defective() {
			t.Fatalf("got %v, defective: %t", err, run.Defective())
		}
		if (told.Len() == 0) != gather || !gather && !strings.HasPrefix(told.String(), CheckPrefix) {
			t.Errorf("gather %t: told %q", gather, told)
		}
		text, err := json.Marshal(run.Document(Show{}))
		if err != nil || !strings.Contains(string(text), `"defects":[{"kind":"read of memory that was never written"`) {
			t.Errorf("got %s, %v", text, err)
		}
	}
}
