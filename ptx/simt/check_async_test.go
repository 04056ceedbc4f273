package simt_test

import (
	"slices"
	"strings"
	"testing"

	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
)

// The checker finds no defects in kernels that use mbarriers, bulk copies and
// wgmma correctly, and follows all their accesses.
func TestAsyncChecked(t *testing.T) {
	count := 0
	for _, c := range instructionCases(t, "instructions") {
		family := func(name string) bool { return strings.HasPrefix(c.name, name) }
		if !slices.ContainsFunc([]string{"mbarrier", "cp.async.bulk", "cp.async.mbarrier", "wgmma"}, family) || c.faults != "" {
			continue
		}
		count++
		for _, width := range []int{32, 256} {
			checker := memcheck.New(memcheck.Checks{Race: true, Init: true}, 0, func(d *memcheck.Defect) { t.Errorf("%s: %v", c.name, d) })
			checker.Allocate(inAddress, 1<<20, "in", true)
			checker.Allocate(outAddress, 1<<20, "out", true)
			c.run(t, "checked", simt.Launch{Check: checker, Width: width}, func(x *simt.Execution) (*simt.Execution, error) {
				return x, x.RunFor(endless)
			})
			if lines := checker.Summary(); len(lines) != 1 {
				t.Errorf("%s: %q", c.name, lines)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d kernels were checked", count)
	}
}
