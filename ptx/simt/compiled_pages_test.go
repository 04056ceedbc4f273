package simt_test

import (
	"os"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/native"
)

// No page of this process can be written and run, with compiled code in some that can
// only be run.
func TestCompiledPagesAreNotWritable(t *testing.T) {
	if !native.Supported() {
		t.Skip("this machine compiles nothing")
	}
	text := ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) {\n.reg .u32 %r<4>;\n.reg .u64 %d<4>;\n" +
		"ld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\nadd.s64 %d2, %d0, %d1;\nst.global.u32 [%d2], %r0;\nret;\n}\n"
	module, err := ptx.Parse("k.ptx", text)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("k.ptx", module, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := executable(t)
	x, err := program.Kernel("k").Start(simt.Launch{
		Grid: simt.Dim{X: 1, Y: 1, Z: 1}, Block: simt.Dim{X: 64, Y: 1, Z: 1}, Engine: simt.Compile,
		Memory: &defectMemory{make([]byte, 4096)}, Params: pack(defectBase),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Run(); err != nil {
		t.Fatal(err)
	}
	if after := executable(t); after <= before {
		t.Errorf("%d stretches of anonymous memory can be run, after %d: nothing was compiled", after, before)
	}
}

// executable counts the stretches of anonymous memory that can be run, and fails the test
// if any memory can be both written and run.
func executable(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	count := 0
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.Contains(fields[1], "x") {
			continue
		}
		if strings.Contains(fields[1], "w") {
			t.Errorf("memory that can be written and run: %s", line)
		}
		if len(fields) == 5 {
			count++
		}
	}
	return count
}
