package simt_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
)

// The checker finds no defects in the corpus, and does not change results.
func TestCorpusChecked(t *testing.T) { runCorpus(t, options{checked: true, small: true}) }

// defect is a kernel of testdata/defects: what is wrong with it, and where.
type defect struct {
	name, text, find  string
	grid, block       shape.Dim
	dynamic, written  bool
	line, earlierLine int
}

// readDefect reads a file, whose first lines say how to launch the kernel and what must be found.
func readDefect(t *testing.T, path string) defect {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := defect{name: strings.TrimSuffix(filepath.Base(path), ".ptx"), text: string(text), grid: shape.Dim{X: 1, Y: 1, Z: 1}, block: shape.Dim{X: 1, Y: 1, Z: 1}}
	lines := bufio.NewScanner(strings.NewReader(d.text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "// find: "); ok {
			d.find = rest
		}
		if rest, ok := strings.CutPrefix(line, "// launch: "); ok {
			d.dynamic = strings.Contains(rest, "dynamic")
			var block string
			if _, err := fmt.Sscanf(rest, "grid %d block %s", &d.grid.X, &block); err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			if _, err := fmt.Sscanf(block, "%d,%d", &d.block.X, &d.block.Y); err != nil {
				fmt.Sscan(block, &d.block.X)
			}
		}
		d.written = d.written || line == "// memory: written"
		if strings.Contains(line, "the defect") {
			d.line = n
		}
		if strings.Contains(line, "the earlier one") || strings.Contains(line, "the defect // the earlier one") {
			d.earlierLine = n
		}
	}
	if d.find == "" || d.line == 0 {
		t.Fatalf("%s does not say what is wrong with it", path)
	}
	return d
}

// defectMemory has a buffer of 1024 bytes with memory before and after it.
type defectMemory struct{ bytes []byte }

const defectBase, bufferAt, bufferSize = uint64(1) << 40, 512, 1024

func (m *defectMemory) Find(addr uint64) (simt.Region, bool) {
	if addr-defectBase >= uint64(len(m.bytes)) {
		return simt.Region{}, false
	}
	return simt.Region{Base: defectBase, Bytes: m.bytes}, true
}

// check runs the kernel and returns the defects that were found.
func (d *defect) check(t *testing.T, checks memcheck.Checks, width int) []*memcheck.Defect {
	t.Helper()
	module, err := ptx.Parse(d.name+".ptx", d.text)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load(d.name+".ptx", module, nil)
	if err != nil {
		t.Fatal(err)
	}
	var found []*memcheck.Defect
	checker := memcheck.New(checks, 0, func(d *memcheck.Defect) { found = append(found, d) })
	checker.Allocate(defectBase+bufferAt, bufferSize, "buffer", d.written)
	checker.Allocate(defectBase+bufferAt+bufferSize+16, 64, "the next buffer", true)
	l := simt.Launch{
		Grid: d.grid, Block: d.block, Memory: &defectMemory{make([]byte, 4096)}, Check: checker, Width: width,
		Params: binary.LittleEndian.AppendUint64(nil, defectBase+bufferAt),
	}
	if d.dynamic {
		l.Shared = 1024
	}
	x, err := program.Kernel(d.name).Start(l)
	if err != nil {
		t.Fatal(err)
	}
	var fault *simt.Fault
	if err := x.Run(); err != nil && !errors.As(err, &fault) {
		t.Fatal(err)
	}
	return found
}

// Every seeded defect is found, at its line and with the line of the other access of a
// race, and nothing else is reported. A racing read may also be reported as
// uninitialised: with narrow gangs one warp runs after the other.
func TestSeededDefects(t *testing.T) {
	files, err := filepath.Glob("testdata/defects/*.ptx")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d kernels with defects, %v", len(files), err)
	}
	kinds := map[string]memcheck.DefectKind{"race": memcheck.Race, "init": memcheck.Uninitialised, "memory": memcheck.OutOfBounds, "misaligned": memcheck.Misaligned}
	for _, file := range files {
		d := readDefect(t, file)
		t.Run(d.name, func(t *testing.T) {
			checks := memcheck.Checks{Race: true, Init: true, Memory: true}
			for _, width := range []int{256, 32} {
				found := d.check(t, checks, width)
				i := slices.IndexFunc(found, func(f *memcheck.Defect) bool { return d.is(f, kinds[d.find]) })
				if i < 0 {
					t.Errorf("width %d: %s at lines %d and %d is not found, but %v", width, d.find, d.line, d.earlierLine, found)
					continue
				}
				f := found[i]
				if want := d.name + ".cu:"; !strings.HasPrefix(f.Deed.Source, want) || f.Other != nil && !strings.HasPrefix(f.Other.Source, want) {
					t.Errorf("the source line is missing: %v", f)
				}
				for _, f := range found {
					if f.Kind != kinds[d.find] && (f.Kind != memcheck.Uninitialised || f.Deed.Line != d.line) {
						t.Errorf("width %d: there is no such defect: %v", width, f)
					}
				}
			}
		})
	}
}

// is says whether a report is that of the seeded defect. The two accesses of a race may be
// reported in either order.
func (d *defect) is(f *memcheck.Defect, kind memcheck.DefectKind) bool {
	if f.Kind != kind {
		return false
	}
	if f.Other == nil {
		return f.Deed.Line == d.line
	}
	return f.Deed.Line == d.line && f.Other.Line == d.earlierLine || f.Deed.Line == d.earlierLine && f.Other.Line == d.line
}

// The barrier of a cluster orders the threads of a block, whatever registers a kernel has.
func TestClusterBarrierChecked(t *testing.T) {
	const head = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k() {\n"
	for _, c := range []struct {
		name, barrier string
		races         bool
	}{
		{"a barrier", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", false},
		{"no barrier", "", true},
	} {
		for _, body := range []string{
			c.barrier + " ret; }", // no register at all
			".reg .b32 %r<4>; .reg .pred %p; .shared .align 4 .b32 s[64];\n" +
				"mov.u32 %r0, %tid.x; mov.u32 %r1, s; setp.ne.u32 %p, %r0, 0;\n" +
				"@%p bra meet; st.shared.u32 [%r1], %r0;\nmeet: " + c.barrier + "\nld.shared.u32 %r2, [%r1]; ret; }",
		} {
			tree, err := ptx.Parse("k.ptx", head+body)
			if err != nil {
				t.Fatal(err)
			}
			program, err := simt.Load("k.ptx", tree, nil)
			if err != nil {
				t.Fatal(err)
			}
			races := 0
			checker := memcheck.New(memcheck.Checks{Race: true}, 0, func(*memcheck.Defect) { races++ })
			x, err := program.Kernel("k").Start(simt.Launch{Grid: shape.Dim{X: 1, Y: 1, Z: 1}, Block: shape.Dim{X: 64, Y: 1, Z: 1}, Memory: &defectMemory{make([]byte, 4096)}, Check: checker})
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Run(); err != nil {
				t.Fatal(err)
			}
			if want := c.races && strings.Contains(body, "shared"); (races > 0) != want {
				t.Errorf("%s: %d races in\n%s", c.name, races, body)
			}
		}
	}
}

// A kernel that is stopped anywhere, saved, and resumed with a checker is not blamed for what it did
// before: its shared memory was written, and its barriers were met.
func TestResumedKernelsChecked(t *testing.T) {
	const text = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k() {\n" +
		".reg .b32 %r<4>; .shared .align 4 .b32 s[64];\n" +
		"mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2;\n" +
		"st.shared.u32 [%r1], %r0; bar.sync 0;\n" +
		"ld.shared.u32 %r3, [%r2]; ld.shared.u32 %r3, [%r2+252]; ret; }"
	tree, err := ptx.Parse("k.ptx", text)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("k.ptx", tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	stops := 0
	for after := uint64(1); ; after++ {
		var found []*memcheck.Defect
		launch := func() simt.Launch {
			checker := memcheck.New(memcheck.Checks{Race: true, Init: true}, 0, func(d *memcheck.Defect) { found = append(found, d) })
			return simt.Launch{Grid: shape.Dim{X: 2, Y: 1, Z: 1}, Block: shape.Dim{X: 64, Y: 1, Z: 1}, Memory: &defectMemory{make([]byte, 4096)}, Check: checker, Width: 32}
		}
		x, err := program.Kernel("k").Start(launch())
		if err != nil {
			t.Fatal(err)
		}
		err = x.RunFor(after)
		if err == nil {
			break
		}
		if !errors.Is(err, simt.ErrStopped) {
			t.Fatal(err)
		}
		stops++
		state, err := x.Save()
		if err != nil {
			t.Fatal(err)
		}
		if x, err = program.Kernel("k").Resume(launch(), state); err != nil {
			t.Fatal(err)
		}
		if err := x.Run(); err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			t.Errorf("stopped after %d instructions: %v", after, d)
		}
	}
	if stops == 0 {
		t.Error("it was never stopped")
	}
}

// An instruction that names far more memory than there is faults under the checker as without it, and at
// once.
func TestEndlessBulkChecked(t *testing.T) {
	const text = ".version 8.6\n.target sm_100\n.address_size 64\n.visible .entry k() {\n" +
		".reg .b64 %d<2>; .shared .align 16 .b8 s[64];\nmov.u64 %d0, s; mov.u64 %d1, -8;\n" +
		"st.bulk.weak.shared::cta [%d0], %d1, 0; ret; }"
	tree, err := ptx.Parse("k.ptx", text)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("k.ptx", tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	checker := memcheck.New(memcheck.Checks{Race: true, Init: true, Memory: true}, 0, func(*memcheck.Defect) {})
	x, err := program.Kernel("k").Start(simt.Launch{Grid: shape.Dim{X: 1, Y: 1, Z: 1}, Block: shape.Dim{X: 32, Y: 1, Z: 1}, Memory: &defectMemory{make([]byte, 4096)}, Check: checker})
	if err != nil {
		t.Fatal(err)
	}
	var fault *simt.Fault
	if err := x.Run(); !errors.As(err, &fault) {
		t.Errorf("it ended with %v", err)
	}
}
