package onekernel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/report"
)

// Watch says what happens to a run's output while the kernel runs.
type Watch struct {
	Out  io.Writer // gets what the kernel prints
	Told io.Writer // gets the defects, and the names of files that were written
	// Gather keeps what the kernel prints, and the defects, for the document instead.
	Gather bool
	// Checks are the defects to look for.
	Checks memcheck.Checks
	// Bar shows on Told how far the kernel is. Run removes it before it writes anything else there.
	Bar *report.Progress
	// WriteFile makes the files for the buffers that the user wants in files.
	WriteFile func(path string, write func(io.Writer) error) error
}

// Run is a kernel's one run, after it.
type Run struct {
	kernel    *Kernel
	execution *simt.Execution
	checker   *memcheck.Checker // nil if nothing was checked
	seconds   float64
	printed   strings.Builder
	fault     *simt.Fault
	failed    bool // the kernel faulted, or a file cannot be written
	defects   []*memcheck.Defect
}

// Run runs a prepared kernel to its end, or until the context is cancelled, and writes the files that
// the user wants. If the kernel faults, or a file cannot be written, Run returns both the run, which can be
// shown, and the error.
func (r *Kernel) Run(ctx context.Context, w Watch) (*Run, error) {
	run := &Run{kernel: r}
	out := bufio.NewWriter(w.Out)
	r.Launch.Print = func(text []byte) {
		if w.Gather {
			run.printed.Write(text)
			return
		}
		w.Bar.Done()    // two would write to one terminal
		out.Write(text) // its error is told by Flush
	}
	if w.Checks.Any() {
		run.checker = r.newChecker(w.Checks, func(d *memcheck.Defect) {
			run.defects = append(run.defects, d)
			if !w.Gather {
				w.Bar.Done()
				writeDefect(w.Told, d)
			}
		})
	}
	r.Launch.Check = run.checker
	x, err := r.start()
	if err != nil {
		return nil, err
	}
	run.execution = x
	err = run.toEnd(ctx, func() error {
		w.Bar.Set(int64(x.Stats().LaneOps))
		return out.Flush()
	})
	w.Bar.Done()
	if flush := out.Flush(); err == nil {
		err = flush
	}
	if run.fault = r.explain(&err); err != nil && run.fault == nil {
		return nil, err
	}
	if err == nil {
		err = r.writeFiles(w.Told, w.WriteFile)
	}
	run.failed = err != nil
	if run.checker != nil && !w.Gather {
		writeSummary(w.Told, run.checker)
	}
	return run, err
}

// toEnd runs the kernel to its end, measures how long that takes, and samples where the kernel is if a
// profile is wanted.
func (r *Run) toEnd(ctx context.Context, pause func() error) error {
	if p := r.kernel.Launch.Profile; p != nil {
		defer sample(p)()
	}
	began := time.Now()
	err := runToEnd(ctx, r.execution, pause)
	r.seconds = time.Since(began).Seconds()
	return err
}

// Defective says whether the checks have found a defect.
func (r *Run) Defective() bool { return r.checker != nil && r.checker.Found() > 0 }

// Show says what of a run is shown beside the buffers.
type Show struct {
	All                      bool // elements of buffers, and lines of the profile
	Profile, Lowered, Disasm bool
}

// Document is the run for programs.
func (r *Run) Document(s Show) Document {
	doc := r.document()
	doc.setDefects(r.defects)
	if s.Profile {
		doc.setProfile(r.kernel.Launch.Profile.Lines())
	}
	if s.Lowered {
		doc.setLowered(r.kernel.lowered())
	}
	if s.Disasm {
		doc.setCode(r.execution.Listings())
	}
	return doc
}

// Write writes the run for people: the buffers to out, unless the run has failed, and everything else to
// told.
func (r *Run) Write(out, told io.Writer, s Show) error {
	k := r.kernel
	if s.Lowered {
		fmt.Fprint(told, k.lowered())
	}
	if s.Disasm {
		writeListings(told, k.name(), r.execution.Listings())
	}
	if s.Profile {
		writeProfile(told, k.name(), k.Launch.Profile.Lines(), s.All)
	}
	if r.failed {
		return nil
	}
	if err := k.writeBuffers(out, told, s.All); err != nil {
		return err
	}
	ops := float64(r.execution.Stats().LaneOps)
	_, err := fmt.Fprintf(told, "%s: %s lane operations in %.3g s\n", k.name(), report.Number(ops), r.seconds)
	return err
}
