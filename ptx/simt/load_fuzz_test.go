package simt_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// fuzzSeeds are the small kernels, those that must be refused, and the
// smaller files of the corpus.
func fuzzSeeds(f *testing.F) {
	every := 4
	switch {
	case testing.Short():
		every = 16
	case soak || flag.Lookup("test.fuzz").Value.String() != "":
		every = 1
	}
	for _, pattern := range []string{"testdata/instructions/*.ptx", "testdata/refused/*.ptx", "../testdata/kernels/*.ptx"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no files %s: %v", pattern, err)
		}
		for i, file := range files {
			if i%every != 0 {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if len(source) < 12<<10 {
				f.Add(string(source), uint16(len(source)))
			}
		}
	}
}

// fuzzLoad loads a module if it can be parsed and its variables are small.
func fuzzLoad(t *testing.T, source string, memory *testMemory) *simt.Program {
	module, err := ptx.Parse("fuzz.ptx", source)
	if err != nil {
		return nil
	}
	program, err := simt.Load("fuzz.ptx", module, func(v *ptx.Variable) (uint64, error) {
		if v.Size() > pageSize || v.Alignment() > pageSize || memory.globals > pageSize {
			return 0, errors.New("too large")
		}
		return memory.place(v)
	})
	var all ptx.Errors
	if errors.As(err, &all) {
		for _, e := range all {
			if e.Line < 1 || e.Msg == "" {
				t.Errorf("an error without a line or a text: %v", e)
			}
		}
	}
	if err != nil {
		return nil
	}
	if memory.globals > pageSize {
		return nil
	}
	return program
}

// Load takes whatever can be parsed: it prepares it or says what is wrong.
func FuzzLoad(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, source string, _ uint16) {
		if program := fuzzLoad(t, source, &testMemory{}); program == nil {
			return
		}
		module, err := ptx.Parse("fuzz.ptx", source)
		if err != nil {
			t.Fatal(err)
		}
		findings, err := program.Check("fuzz.ptx", module)
		if err != nil {
			t.Fatalf("what Load takes Check refuses: %v", err)
		}
		for _, found := range findings {
			if len(found.Errors) > 0 {
				t.Errorf("what Load takes Check refuses: %v", found.Errors)
			}
		}
	})
}

const pageSize = 4096

// fencedMemory is one page a region, between pages that cannot be reached.
func fencedMemory(t testing.TB) [3][]byte {
	var regions [3][]byte
	for i := range regions {
		pages, err := syscall.Mmap(-1, 0, 3*pageSize, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		regions[i] = pages[pageSize : 2*pageSize : 2*pageSize]
		if err := syscall.Mprotect(regions[i], syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
	}
	return regions
}

// runInWays runs the first kernel of a module for a bounded time, at once and saved
// and resumed on the way, interpreted and then on changing engines; how chooses the
// launch. It ends, faults or is stopped. The interpreter does that in the same way
// both times. Compiled code may let threads that race write in another order, so what
// it leaves is not compared here, as it is for random programs, which have no races.
func runInWays(t *testing.T, program *simt.Program, memory *testMemory, regions [3][]byte, how uint16) {
	t.Helper()
	k := program.Kernels()[0]
	if k.ParamSize > 1024 || k.Local > 8192 {
		return
	}
	for i, base := range []uint64{inAddress, outAddress, globalAddress} {
		memory.regions = append(memory.regions, simt.Region{Base: base, Bytes: regions[i]})
	}
	params := make([]byte, k.ParamSize)
	copy(params, (&instructionCase{kernel: k}).parameters())
	blocks := []uint32{1, 2, 7, 16, 17, 32, 40, 64, 96, 256, 300, 1024}
	launch := simt.Launch{
		Grid: shape.Dim{X: 1 + uint32(how>>4&7), Y: 1, Z: 1}, Block: shape.Dim{X: blocks[int(how&15)%len(blocks)], Y: 1, Z: 1},
		Params: params, Memory: memory, Width: 256 >> (how >> 7 & 3), Stack: 1024,
	}
	const budget = 2000
	var want [3][]byte
	var wantErr string
	for round, slice := range []uint64{budget, 1 + uint64(how>>9), budget, 1 + uint64(how>>9)} {
		launch.Engine = simt.Interpret
		if round >= 2 {
			launch.Engine = simt.Compile
		}
		clear(regions[1])
		clear(regions[2])
		for i := range regions[0] {
			regions[0][i] = byte(i * 7)
		}
		for _, g := range program.Globals() {
			copy(regions[2][g.Address-globalAddress:], g.Data)
		}
		err := runInSlices(t, k, launch, budget, slice, round >= 2)
		if err != nil && !errors.Is(err, simt.ErrStopped) && !errors.As(err, new(*simt.Fault)) {
			return // the launch does not fit the kernel
		}
		if round == 0 {
			wantErr = fmt.Sprint(err)
			for i := range regions {
				want[i] = bytes.Clone(regions[i])
			}
			continue
		}
		if launch.Engine == simt.Compile {
			continue
		}
		if got := fmt.Sprint(err); k.Local == 0 && got != wantErr {
			t.Fatalf("resumed: %s, at once: %s", got, wantErr)
		}
		for i := range regions {
			// Local memory that was not written may hold anything.
			if k.Local == 0 && !bytes.Equal(regions[i], want[i]) {
				t.Fatal("a kernel that was stopped and resumed left other memory")
			}
		}
	}
}

// runInSlices runs a kernel for so many instructions, and saves and resumes it
// after each slice, on the other engine if it is to change.
func runInSlices(t *testing.T, k *simt.Kernel, launch simt.Launch, budget, slice uint64, changes bool) error {
	t.Helper()
	x, err := k.Start(launch)
	if err != nil {
		return err
	}
	engine := launch.Engine
	for {
		n := min(budget, slice)
		budget -= n
		if err = x.RunFor(n); !errors.Is(err, simt.ErrStopped) || budget == 0 {
			return err
		}
		state, err := x.Save()
		if err != nil {
			t.Fatal(err)
		}
		if changes {
			engine = otherEngine(engine)
		}
		if x, err = k.Resume(simt.Launch{Memory: launch.Memory, Engine: engine}, state); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever Load takes runs, without harm to anything but its own memory.
func FuzzRun(f *testing.F) {
	fuzzSeeds(f)
	regions := fencedMemory(f)
	f.Fuzz(func(t *testing.T, source string, how uint16) {
		memory := &testMemory{}
		if program := fuzzLoad(t, source, memory); program != nil && len(program.Kernels()) > 0 {
			runInWays(t, program, memory, regions, how)
		}
	})
}
