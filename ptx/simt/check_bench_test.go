package simt_test

import (
	"fmt"
	"testing"

	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
)

// BenchmarkCheck runs the corpus's kernels on one worker, in the interpreter,
// with all checks and without a checker, and reports the ratio of the two CPU
// times.
func BenchmarkCheck(b *testing.B) {
	for _, w := range benchmarkWorks {
		b.Run(w.String(), func(b *testing.B) { benchmarkCheck(b, w) })
	}
}

func benchmarkCheck(b *testing.B, w benchmarkWork) {
	program, memory, launches := loadWork(b, w)
	checker := memcheck.New(memcheck.Checks{Race: true, Init: true, Memory: true}, 0, func(d *memcheck.Defect) { b.Error(d) })
	checker.Allocate(benchBase, uint64(len(memory.bytes)), "memory", true)
	run := func(c *memcheck.Checker) float64 {
		before := simt.ProcessorSeconds()
		launchAll(b, program, launches, simt.Launch{Memory: memory, Engine: simt.Interpret, Check: c})
		return simt.ProcessorSeconds() - before
	}
	run(nil)
	run(checker)
	var plain, checked float64
	for b.Loop() {
		plain += run(nil)
		checked += run(checker)
	}
	b.ReportMetric(checked/plain, "times")
	b.ReportMetric(checked/float64(b.N)*1e3, "checked-ms")
	if found := checker.Found(); found != 0 {
		b.Error(fmt.Sprint(found), "defects where there are none")
	}
}
