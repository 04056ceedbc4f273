package simt_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/native"
	"muster/ptx/simt/shape"
)

// No page of this process can be written and run, with compiled code in some that can
// only be run.
func TestCompiledPagesAreNotWritable(t *testing.T) {
	if !native.Supported() {
		need.Missing(t, need.CPU, "this machine compiles nothing")
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
		Grid: shape.Dim{X: 1, Y: 1, Z: 1}, Block: shape.Dim{X: 64, Y: 1, Z: 1}, Engine: simt.Compile,
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
		need.Missing(t, need.System, err)
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

// tearEnv makes TestFaultInCompiledCode the process in which compiled code faults.
const tearEnv = "MUSTER_TEST_TORN_MEMORY"

// Compiled code whose memory is gone ends the process, and says which kernel it was: the
// node then tells why its worker ended. A defect of the checks would end the same way.
func TestFaultInCompiledCode(t *testing.T) {
	if !native.Supported() {
		need.Missing(t, need.CPU, "this machine compiles nothing")
	}
	if os.Getenv(tearEnv) == "" {
		child := exec.Command(os.Args[0], "-test.run", "^TestFaultInCompiledCode$")
		child.Env = append(os.Environ(), tearEnv+"=1")
		out, err := child.CombinedOutput()
		if err == nil {
			t.Fatalf("the process went on:\n%s", out)
		}
		for _, want := range []string{"panic: ", "SIGSEGV", "simt: kernel torn (engine compile): ", "native.enter("} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the process says nothing of %q:\n%s", want, out)
			}
		}
		return
	}
	// Every block writes a page. The interpreter writes the first, and so finds out
	// which memory there is; compiled code comes to the one that is gone.
	const blocks, gone = 16, 9
	memory, err := syscall.Mmap(-1, 0, blocks*pageSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(memory[gone*pageSize:][:pageSize], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	text := ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry torn(.param .u64 p) {\n.reg .u32 %r<4>;\n.reg .u64 %d<4>;\n" +
		"ld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmad.wide.u32 %d1, %r1, 4096, %d0;\nmad.wide.u32 %d2, %r0, 4, %d1;\nst.global.u32 [%d2], %r0;\nret;\n}\n"
	module, err := ptx.Parse("torn.ptx", text)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("torn.ptx", module, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := program.Kernel("torn").Start(simt.Launch{
		Grid: shape.Dim{X: blocks, Y: 1, Z: 1}, Block: shape.Dim{X: 256, Y: 1, Z: 1}, Engine: simt.Compile,
		Memory: &benchMemory{memory}, Params: pack(uint64(benchBase)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the kernel went on: %v", x.Run())
}
