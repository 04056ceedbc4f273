package simt

import (
	"math"
	"os"
	"testing"

	"muster/ptx"
	"muster/ptx/simt/native"
	"muster/ptx/simt/shape"
)

// nowhere is a memory in which nothing is mapped.
type nowhere struct{}

func (nowhere) Find(uint64) (Region, bool) { return Region{}, false }

// BenchmarkCompile is what machine code costs, for a kernel of 218 instructions.
func BenchmarkCompile(b *testing.B) {
	const name = "../testdata/kernels/needleman.clang19.ptx"
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	module, err := ptx.Parse(name, string(text))
	if err != nil {
		b.Fatal(err)
	}
	program, err := Load(name, module, nil)
	if err != nil {
		b.Fatal(err)
	}
	k := program.Kernels()[0]
	x, err := k.Start(Launch{Grid: shape.Dim{X: 16, Y: 1, Z: 1}, Block: shape.Dim{X: 16, Y: 1, Z: 1}, Params: make([]byte, k.ParamSize), Memory: nowhere{}})
	if err != nil {
		b.Fatal(err)
	}
	t := x.newTeam()
	t.begin(0)
	kernel := t.gangs[0].describe()
	kernel.Ops = k.describe()
	before, least := ProcessorSeconds(), math.Inf(1)
	for b.Loop() {
		start := ProcessorSeconds()
		if _, err := native.Compile(kernel); err != nil {
			b.Skip(err)
		}
		least = min(least, ProcessorSeconds()-start)
	}
	b.ReportMetric((ProcessorSeconds()-before)*1e6/float64(b.N*len(kernel.Ops)), "cpu-us/inst")
	b.ReportMetric(least*1e6/float64(len(kernel.Ops)), "best-cpu-us/inst")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(kernel.Ops)), "us/inst")
}
