package simt_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// Random programs end on the engine as they did on a GPU, whatever the width of
// a gang and wherever they are stopped. testdata/gpu/README.md says how they
// were chosen.
func TestGPUPrograms(t *testing.T) {
	for i, p := range gpuPrograms(t, "programs.json.gz") {
		t.Run(p.Name, func(t *testing.T) {
			p.check(t, "width 256", simt.Launch{Width: 256, Engine: simt.Interpret}, runToEnd)
			p.check(t, "compiled", simt.Launch{Engine: simt.Compile}, runToEnd)
			if i%3 == 0 || soak {
				p.check(t, "width 32", simt.Launch{Width: 32}, runToEnd)
			}
			if i%3 == 1 || soak {
				p.check(t, "stopped", simt.Launch{}, runInParts)
			}
		})
	}
}

// Single instructions give on the engine the bits that they gave on a GPU, for
// 1024 operands each.
func TestGPUForms(t *testing.T) {
	for _, p := range gpuPrograms(t, "forms.json.gz") {
		t.Run(p.Name, func(t *testing.T) {
			p.check(t, "width 256", simt.Launch{Width: 256, Engine: simt.Interpret}, runToEnd)
			p.check(t, "compiled", simt.Launch{Engine: simt.Compile}, runToEnd)
		})
	}
}

// Products of matrices come out as the tensor cores of a GPU made them, for numbers of
// all kinds.
func TestGPUTensor(t *testing.T) {
	for _, p := range gpuPrograms(t, "tensor.json.gz") {
		t.Run(p.Name, func(t *testing.T) {
			p.check(t, "interpreted", simt.Launch{Engine: simt.Interpret}, runToEnd)
			p.check(t, "compiled", simt.Launch{Engine: simt.Compile}, runToEnd)
		})
	}
}

// gpuFile is a file in testdata/gpu.
type gpuFile struct {
	Inputs   map[string][]byte `json:"inputs"`
	Programs []gpuProgram      `json:"programs"`
}

// gpuProgram is a module with a kernel run(in, out), and what it wrote on a GPU.
type gpuProgram struct {
	Name   string    `json:"name"`
	Source string    `json:"source"`
	Grid   [3]uint32 `json:"grid"`
	Block  [3]uint32 `json:"block"`
	Inputs []string  `json:"inputs"` // one behind the other
	Size   int       `json:"size"`   // of the output, which is shared equally among the blocks
	Maps   []gpuMap  `json:"maps"`   // whose tensor maps are the last parameters
	CRC32  []uint32  `json:"crc32"`  // of each block's output
	Fault  string    `json:"fault"`  // with which it ended instead, as CUDA names it

	in     []byte
	loaded *loadedProgram // kept from run to run, unless it is nil
}

// loadedProgram is a program, and how much memory its variables take.
type loadedProgram struct {
	*simt.Program
	globals int
}

// gpuPrograms reads a file of programs; in short mode a tenth of them.
func gpuPrograms(t *testing.T, file string) []gpuProgram {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "gpu", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var content gpuFile
	if err := json.NewDecoder(plain).Decode(&content); err != nil {
		t.Fatal(err)
	}
	var chosen []gpuProgram
	for i, p := range content.Programs {
		if testing.Short() && i%10 != 0 {
			continue
		}
		for _, name := range p.Inputs {
			p.in = append(p.in, content.Inputs[name]...)
		}
		if p.Fault == "" && len(p.CRC32) != p.blocks() {
			t.Fatalf("%s: %d results for %d blocks", p.Name, len(p.CRC32), p.blocks())
		}
		p.loaded = new(loadedProgram)
		chosen = append(chosen, p)
	}
	if len(chosen) == 0 {
		t.Fatalf("no programs in %s", file)
	}
	return chosen
}

// A runner lets a kernel come to its end.
type runner func(kernel *simt.Kernel, x *simt.Execution, memory simt.Memory) error

func runToEnd(_ *simt.Kernel, x *simt.Execution, _ simt.Memory) error {
	return x.RunFor(1 << 24)
}

// otherEngine returns the engine that a test goes on with.
func otherEngine(e simt.Engine) simt.Engine {
	if e == simt.Compile {
		return simt.Interpret
	}
	return simt.Compile
}

// runInParts stops the kernel now and then, ever later, saves it, and goes on from what was saved with the other engine.
func runInParts(kernel *simt.Kernel, x *simt.Execution, memory simt.Memory) error {
	engine := simt.Interpret
	for part := uint64(37); ; part += part / 8 {
		err := x.RunFor(part)
		if !errors.Is(err, simt.ErrStopped) {
			return err
		}
		state, err := x.Save()
		if err != nil {
			return err
		}
		engine = otherEngine(engine)
		if x, err = kernel.Resume(simt.Launch{Memory: memory, Engine: engine}, state); err != nil {
			return err
		}
	}
}

// gpuFaults has the kinds of faults by the names that CUDA has for them.
var gpuFaults = map[string]simt.FaultKind{"CUDA_ERROR_ILLEGAL_INSTRUCTION": simt.IllegalInstruction}

// check compares the program's results, or the fault that it ended with, with those in the file.
func (p gpuProgram) check(t *testing.T, how string, launch simt.Launch, run runner) {
	t.Helper()
	if p.Fault != "" {
		_, err := p.run(t, launch, run)
		if fault := (*simt.Fault)(nil); !errors.As(err, &fault) || fault.Kind != gpuFaults[p.Fault] {
			t.Errorf("%s: got %v, want %s", how, err, p.Fault)
		}
		return
	}
	for block, got := range p.results(t, how, launch, run) {
		if want := p.CRC32[block]; got != want {
			t.Errorf("%s: the output of block %d has CRC-32 %08x, want %08x", how, block, got, want)
		}
	}
}

// results runs the program and returns the checksum of each block's output.
func (p gpuProgram) results(t *testing.T, how string, launch simt.Launch, run runner) []uint32 {
	t.Helper()
	out, err := p.run(t, launch, run)
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	var sums []uint32
	for part := range slices.Chunk(out, p.Size/p.blocks()) {
		sums = append(sums, crc32.ChecksumIEEE(part))
	}
	return sums
}

// run runs the program and returns its output, and what its kernel ended with.
func (p gpuProgram) run(t *testing.T, launch simt.Launch, run runner) ([]byte, error) {
	t.Helper()
	loaded := p.loaded
	if loaded == nil {
		loaded = new(loadedProgram)
	}
	if loaded.Program == nil {
		module, err := ptx.Parse(p.Name, p.Source)
		if err != nil {
			t.Fatal(err)
		}
		memory := &testMemory{}
		program, err := simt.Load(p.Name, module, memory.place)
		if err != nil {
			t.Fatal(err)
		}
		*loaded = loadedProgram{program, memory.globals}
	}
	c := instructionCase{in: p.in, outSize: p.Size, memory: &testMemory{globals: loaded.globals}}
	c.kernel = loaded.Kernel("run")
	out := c.fill(t, loaded.Program)
	launch.Grid = shape.Dim{X: p.Grid[0], Y: p.Grid[1], Z: p.Grid[2]}
	launch.Block = shape.Dim{X: p.Block[0], Y: p.Block[1], Z: p.Block[2]}
	launch.Params, launch.Memory = c.parameters(), c.memory
	for i, m := range p.Maps {
		at := m.At + inAddress
		if m.Of == "out" {
			at = m.At + outAddress
		}
		encoded := m.encode(t, at)
		copy(launch.Params[c.kernel.Params[2+i].Offset:], encoded[:])
	}
	x, err := c.kernel.Start(launch)
	if err != nil {
		t.Fatal(err)
	}
	return out, run(c.kernel, x, c.memory)
}

func (p gpuProgram) blocks() int { return int(p.Grid[0] * p.Grid[1] * p.Grid[2]) }
