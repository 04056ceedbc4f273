package simt_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"muster/internal/need"
	"muster/ptx/simt"
)

// What compiled code does on a processor with AVX2 alone is the same: these tests compare
// it with the interpreter, and with what a GPU gave.
func TestCompiledForAVX2(t *testing.T) {
	simt.CompileNarrow(true)
	defer simt.CompileNarrow(false)
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Floats", TestCompiledFloats},
		{"Faults", TestCompiledFaults},
		{"BlocksInARow", TestBlocksInARow},
		{"BuffersOfTheNextLaunch", TestBuffersOfTheNextLaunch},
		{"Random", func(t *testing.T) { compareEngines(t, 1<<33, *randomCount) }},
		{"Instructions", narrowInstructions},
		{"GPUForms", func(t *testing.T) { narrowPrograms(t, "forms.json.gz") }},
		{"GPUPrograms", func(t *testing.T) { narrowPrograms(t, "programs.json.gz") }},
	} {
		t.Run(test.name, test.run)
	}
}

func narrowInstructions(t *testing.T) {
	for _, c := range instructionCases(t, "instructions") {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, "compiled for AVX2", simt.Launch{Engine: simt.Compile}, func(x *simt.Execution) (*simt.Execution, error) {
				return x, x.RunFor(endless)
			})
		})
	}
}

func narrowPrograms(t *testing.T, file string) {
	for i, p := range gpuPrograms(t, file) {
		if i%4 != 0 && !soak {
			continue
		}
		p.check(t, p.Name+", compiled for AVX2", simt.Launch{Engine: simt.Compile}, runToEnd)
	}
}

// Code for AVX2 has no instruction and no register of AVX-512, as binutils read it.
func TestCodeForAVX2IsOfAVX2(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		need.Missing(t, need.CPU, err)
	}
	simt.CompileNarrow(true)
	defer simt.CompileNarrow(false)
	foreign := []string{"(bad)", "zmm", "{"}
	for i := range 16 {
		foreign = append(foreign, fmt.Sprint("xmm", 16+i), fmt.Sprint("ymm", 16+i))
	}
	for i := range 8 {
		foreign = append(foreign, fmt.Sprint(" k", i), fmt.Sprint(",k", i))
	}
	read := 0
	for seed := range uint64(3) {
		for _, l := range launchRandom(t, seed, simt.Launch{Engine: simt.Compile, List: true}).Listings() {
			var code []byte
			for _, x := range l.Lines {
				code = append(code, x.Bytes...)
			}
			file := filepath.Join(t.TempDir(), "code")
			if err := os.WriteFile(file, code, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", file).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range foreign {
				if before, after, found := bytes.Cut(out, []byte(text)); found {
					rest, _, _ := bytes.Cut(after, []byte("\n"))
					t.Fatalf("seed %d: %s%s%s", seed, before[bytes.LastIndexByte(before, '\n')+1:], text, rest)
				}
			}
			read += len(code)
		}
	}
	if read < 10000 {
		t.Errorf("only %d bytes of code were made", read)
	}
}
