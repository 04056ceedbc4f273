package simt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// benchMemory is one large stretch of memory.
type benchMemory struct{ bytes []byte }

const benchBase = uint64(1) << 40

func (m *benchMemory) Find(addr uint64) (simt.Region, bool) {
	if addr-benchBase >= uint64(len(m.bytes)) {
		return simt.Region{}, false
	}
	return simt.Region{Base: benchBase, Bytes: m.bytes}, true
}

func newBenchMemory(b *testing.B, size int) *benchMemory {
	bytes, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	_ = syscall.Madvise(bytes, syscall.MADV_HUGEPAGE) // as the memory of a software GPU is
	b.Cleanup(func() { syscall.Munmap(bytes) })
	return &benchMemory{bytes}
}

func floatsAt(m *benchMemory, offset, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&m.bytes[offset])), n)
}

// benchLaunch is a kernel of a benchmark and how to launch it.
type benchLaunch struct {
	kernel string
	launch simt.Launch
}

// pack lays out parameters one behind the other at multiples of their sizes.
func pack(values ...any) []byte {
	var b []byte
	for _, v := range values {
		for len(b)%binary.Size(v) != 0 {
			b = append(b, 0)
		}
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// engineWork returns the launches that do a benchmark's work.
func engineWork(b *testing.B, w benchmarkWork) (*benchMemory, []benchLaunch) {
	at := func(offset int) uint64 { return benchBase + uint64(offset) }
	n := w.n
	switch w.name {
	case "vecadd":
		m := newBenchMemory(b, 12*n)
		copy(floatsAt(m, 0, n), fractions(n))
		copy(floatsAt(m, 4*n, n), fractions(n))
		return m, []benchLaunch{{"vecadd", simt.Launch{Grid: shape.Dim{X: uint32(n / 256), Y: 1, Z: 1}, Block: shape.Dim{X: 256, Y: 1, Z: 1},
			Params: pack(at(0), at(4*n), at(8*n), int32(n))}}}
	case "matmul":
		size := 4 * n * n
		m := newBenchMemory(b, 3*size)
		copy(floatsAt(m, 0, n*n), fractions(n*n))
		copy(floatsAt(m, size, n*n), fractions(n*n))
		return m, []benchLaunch{{"matmul_tiled", simt.Launch{Grid: shape.Dim{X: uint32(n / 16), Y: uint32(n / 16), Z: 1}, Block: shape.Dim{X: 16, Y: 16, Z: 1},
			Params: pack(at(0), at(size), at(2*size), int32(n), int32(n), int32(n))}}}
	case "nbody":
		m := newBenchMemory(b, 28*n)
		for i, f := range fractions(4 * n) {
			if i%4 == 3 {
				f++
			}
			floatsAt(m, 0, 4*n)[i] = f
		}
		return m, []benchLaunch{{"nbody_accelerate", simt.Launch{Grid: shape.Dim{X: uint32(n / 128), Y: 1, Z: 1}, Block: shape.Dim{X: 128, Y: 1, Z: 1},
			Params: pack(at(0), at(16*n), int32(n), float32(0.01))}}}
	case "needleman":
		width, tiles := n+1, n/16
		size := 4 * ((width*width + 3) &^ 3)
		m := newBenchMemory(b, 2*size)
		score, similarity := alignment(n, 10)
		for i := range score {
			binary.LittleEndian.PutUint32(m.bytes[4*i:], uint32(score[i]))
			binary.LittleEndian.PutUint32(m.bytes[size+4*i:], uint32(similarity[i]))
		}
		var launches []benchLaunch
		for diagonal := 0; diagonal < 2*tiles-1; diagonal++ {
			first := max(0, diagonal-tiles+1)
			launches = append(launches, benchLaunch{"needleman_diagonal", simt.Launch{
				Grid:   shape.Dim{X: uint32(min(diagonal, tiles-1) - first + 1), Y: 1, Z: 1},
				Block:  shape.Dim{X: 16, Y: 1, Z: 1},
				Params: pack(at(0), at(size), int32(width), int32(10), int32(diagonal), int32(first))}})
		}
		return m, launches
	case "reduce":
		m := newBenchMemory(b, 4*n+4*(n/256))
		copy(floatsAt(m, 0, n), fractions(n))
		return m, []benchLaunch{{"reduce_shared", simt.Launch{Grid: shape.Dim{X: uint32(n / 256), Y: 1, Z: 1}, Block: shape.Dim{X: 256, Y: 1, Z: 1},
			Params: pack(at(0), at(4*n), int32(n))}}}
	}
	b.Fatalf("no work named %s", w.name)
	return nil, nil
}

// BenchmarkEngine runs the corpus's kernels, as clang 19 compiles them, on one
// worker and on two, with each engine. The last work lies in the processor's cache:
// it shows what instructions cost where memory is not what the kernel waits for.
func BenchmarkEngine(b *testing.B) {
	works := append(slices.Clone(benchmarkWorks), benchmarkWork{"vecadd", 1 << 16, (1 << 16) / 1e9, "Gelem/s"})
	for _, workers := range []int{1, 2} {
		for _, w := range works {
			for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
				b.Run(fmt.Sprintf("workers=%d/%s/%v", workers, w, engine), func(b *testing.B) { benchmarkEngine(b, w, workers, engine) })
			}
		}
	}
}

// loadWork returns the kernel of a work, loaded, with its memory and its launches.
func loadWork(b *testing.B, w benchmarkWork) (*simt.Program, *benchMemory, []benchLaunch) {
	name := "../testdata/kernels/" + w.name + ".clang19.ptx"
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	module, err := ptx.Parse(name, string(text))
	if err != nil {
		b.Fatal(err)
	}
	program, err := simt.Load(name, module, nil)
	if err != nil {
		b.Fatal(err)
	}
	memory, launches := engineWork(b, w)
	return program, memory, launches
}

// launchAll does a work once; it adds up what ran.
func launchAll(b *testing.B, program *simt.Program, launches []benchLaunch, how simt.Launch) (ops, instructions uint64) {
	for _, l := range launches {
		l.launch.Memory, l.launch.Workers, l.launch.Engine, l.launch.Check = how.Memory, how.Workers, how.Engine, how.Check
		x, err := program.Kernel(l.kernel).Start(l.launch)
		if err != nil {
			b.Fatal(err)
		}
		if err := x.Run(); err != nil {
			b.Fatal(err)
		}
		ops += x.Stats().LaneOps
		instructions += x.Stats().Instructions
	}
	return ops, instructions
}

func benchmarkEngine(b *testing.B, w benchmarkWork, workers int, engine simt.Engine) {
	program, memory, launches := loadWork(b, w)
	var ops, instructions uint64
	runs := 0
	before := simt.ProcessorSeconds()
	w.reportRate(b, func() {
		runs++
		ops, instructions = launchAll(b, program, launches, simt.Launch{Memory: memory, Workers: workers, Engine: engine})
	})
	perRun := (simt.ProcessorSeconds() - before) / float64(runs)
	b.ReportMetric(float64(ops)/perRun/1e9, "Glaneops/cpu-s")
	b.ReportMetric(w.amount/perRun, w.unit[:len(w.unit)-1]+"cpu-s")
	b.ReportMetric(perRun*1e9/float64(instructions), "cpu-ns/inst")
}

// BenchmarkCores runs compiled kernels on one worker and on two, in turn, and reports how
// many times as fast two are, by the clock: the fastest runs of each, and for a machine
// that has no two processors to spare, what two would be if each got as much time as
// the one did (the processor time of one worker's fastest run, twice, by that of two).
func BenchmarkCores(b *testing.B) {
	for _, w := range benchmarkWorks {
		b.Run(w.String(), func(b *testing.B) {
			program, memory, launches := loadWork(b, w)
			clock, processor := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(1), math.Inf(1)}
			for b.Loop() {
				for i := range clock {
					start, used := time.Now(), simt.ProcessorSeconds()
					launchAll(b, program, launches, simt.Launch{Memory: memory, Workers: i + 1, Engine: simt.Compile})
					clock[i] = min(clock[i], time.Since(start).Seconds())
					processor[i] = min(processor[i], simt.ProcessorSeconds()-used)
				}
			}
			b.ReportMetric(clock[0]/clock[1], "times")
			b.ReportMetric(2*processor[0]/processor[1], "times-by-cpu")
		})
	}
}

// BenchmarkLaunch is what a launch costs that does nothing.
func BenchmarkLaunch(b *testing.B) {
	text := ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n"
	module, err := ptx.Parse("nothing.ptx", text)
	if err != nil {
		b.Fatal(err)
	}
	program, err := simt.Load("nothing.ptx", module, nil)
	if err != nil {
		b.Fatal(err)
	}
	memory := newBenchMemory(b, 4096)
	for _, blocks := range []uint32{1, 1024} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			for b.Loop() {
				x, err := program.Kernel("nothing").Start(simt.Launch{Grid: shape.Dim{X: blocks, Y: 1, Z: 1}, Block: shape.Dim{X: 256, Y: 1, Z: 1}, Memory: memory})
				if err != nil {
					b.Fatal(err)
				}
				if err := x.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
