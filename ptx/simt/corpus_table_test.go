package simt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// corpus is every program over the kernels in testdata.
var corpus = slices.Concat(programs, arithmetic, machine)

// runCorpus runs every entry in every variant under the options.
func runCorpus(t *testing.T, o options) {
	const seeds = 3
	for at, e := range corpus {
		t.Run(e.file+"/"+strings.ReplaceAll(e.kernels, " ", "+"), func(t *testing.T) {
			t.Parallel()
			all := variants(t, e.file)
			for i, variant := range all {
				if o.checked && !soak && i%2 != at%2 && len(all) > 1 { // the compilers of the next entry
					continue
				}
				for seed := range uint64(seeds) {
					few, apart := testing.Short() || o.checked, min(len(all), seeds)
					if few && seed != 0 || !few && !soak && int(seed)%apart != i%apart { // all compilers and all seeds, but not each with each
						continue
					}
					t.Run(fmt.Sprintf("%s,seed=%d", variant, seed), func(t *testing.T) { e.play(t, variant, seed, o) })
				}
			}
		})
	}
}

func TestCorpus(t *testing.T) { runCorpus(t, options{}) }

// Every kernel of every file is in the table, and nothing else is.
func TestCorpusIsWhole(t *testing.T) {
	known := map[string]bool{}
	for _, e := range corpus {
		for _, k := range strings.Fields(e.kernels) {
			known[e.file+"/"+k] = true
		}
	}
	sources, err := filepath.Glob(filepath.Join(kernelFolder, "*.cu"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources in %s: %v", kernelFolder, err)
	}
	for _, source := range sources {
		file := strings.TrimSuffix(filepath.Base(source), ".cu")
		for _, variant := range variants(t, file) {
			name := file + "." + variant + ".ptx"
			text, err := os.ReadFile(filepath.Join(kernelFolder, name))
			if err != nil {
				t.Fatal(err)
			}
			module, err := ptx.Parse(name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			compiled := map[string]bool{}
			for _, f := range module.Functions {
				if f.Entry {
					compiled[file+"/"+f.Name] = true
				}
			}
			for k := range compiled {
				if !known[k] {
					t.Errorf("%s: no program runs %s", name, k)
				}
			}
			for k := range known {
				if strings.HasPrefix(k, file+"/") && !compiled[k] {
					t.Errorf("%s: the table has %s, the file does not", name, k)
				}
			}
		}
	}
}

// eachVariant runs a test on a fresh gpu for every variant of a file.
func eachVariant(t *testing.T, file string, f func(g *gpu)) {
	for _, variant := range variants(t, file) {
		t.Run(variant, func(t *testing.T) { f(newGPU(t, file, variant, t.Name(), 0, options{})) })
	}
}

// wantFault fails unless an error is a fault of a kind in a kernel, in the
// thread with a global index in one dimension.
func wantFault(g *gpu, err error, kind simt.FaultKind, kernel string, s extent, index uint32) *simt.Fault {
	g.Helper()
	var fault *simt.Fault
	if !errors.As(err, &fault) {
		g.Fatalf("%s ended with %v, want a fault", kernel, err)
	}
	if fault.Kind != kind || fault.Kernel != kernel {
		g.Fatalf("fault %v, want %v in %s", fault, kind, kernel)
	}
	block, thread := shape.Dim{X: index / s.block.X}, shape.Dim{X: index % s.block.X}
	if fault.Block != block || fault.Thread != thread {
		g.Fatalf("fault in block %v, thread %v, want block %v, thread %v: %v", fault.Block, fault.Thread, block, thread, fault)
	}
	return fault
}

func TestTrapIsAFault(t *testing.T) {
	eachVariant(t, "print", func(g *gpu) {
		n := 500
		in := g.ints(n, 1000)
		for i := range in {
			in[i] = max(in[i], -in[i])
		}
		in[357] = -1
		s := line(ceil(n, 96), 96)
		err := g.try(s, "trap_negative", put(g, in), alloc[int32](g, n), n)
		wantFault(g, err, simt.Trapped, "trap_negative", s, 357)
	})
}

func TestHoleIsAFault(t *testing.T) {
	tests := []struct {
		name string
		hole func(g *gpu, a, b, c array[float32]) (addr uint64, index uint32)
	}{
		{"behind an input", func(g *gpu, a, b, c array[float32]) (uint64, uint32) {
			return b.from(700).addr, 700
		}},
		{"output not mapped", func(g *gpu, a, b, c array[float32]) (uint64, uint32) {
			g.memory.remove(c.addr)
			return c.addr, 0
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachVariant(t, "vecadd", func(g *gpu) {
				a, b, c := zero[float32](g, 1000), zero[float32](g, 700), alloc[float32](g, 1000)
				addr, index := tt.hole(g, a, b, c)
				s := line(8, 128)
				fault := wantFault(g, g.try(s, "vecadd", a, b, c, 1000), simt.IllegalAddress, "vecadd", s, index)
				if fault.Address != addr {
					g.Fatalf("fault at %#x, want %#x: %v", fault.Address, addr, fault)
				}
				if fault.Pos.Line == 0 || fault.Line == "" {
					g.Fatalf("the fault does not say where: %+v", fault)
				}
			})
		})
	}
}

func TestMisalignedAddressIsAFault(t *testing.T) {
	eachVariant(t, "vecadd", func(g *gpu) {
		bytes := zero[uint8](g, 8000)
		s := line(1, 64)
		odd := bytes.from(2).addr
		err := g.try(s, "vecadd", odd, bytes, bytes.from(4000), 64)
		fault := wantFault(g, err, simt.MisalignedAddress, "vecadd", s, 0)
		if fault.Address != odd {
			g.Fatalf("fault at %#x, want %#x", fault.Address, odd)
		}
	})
}

func TestNullIsAHole(t *testing.T) {
	eachVariant(t, "vecadd", func(g *gpu) {
		a := zero[float32](g, 64)
		s := line(1, 64)
		fault := wantFault(g, g.try(s, "vecadd", a, a, uint64(0), 64), simt.IllegalAddress, "vecadd", s, 0)
		if fault.Address != 0 {
			g.Fatalf("fault at %#x, want 0", fault.Address)
		}
	})
}
