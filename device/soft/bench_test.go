package soft

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"muster/device"
)

const nothing = ".version 6.4\n.target sm_70\n.address_size 64\n.entry nothing()\n{\n\tret;\n}\n"

// benchmark opens a context for benchmarks.
func benchmark(b *testing.B) (*Context, *stream) {
	b.Helper()
	p := testProfile()
	p.Memory = 1 << 30
	c := openContext(b, newDevice(b, p, Options{}))
	return c, newStream(b, c)
}

func BenchmarkLaunch(b *testing.B) {
	c, s := benchmark(b)
	m, err := c.Load([]byte(nothing))
	must(b, err)
	f, err := m.Function("nothing")
	must(b, err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	for b.Loop() {
		must(b, s.Launch(f, device.Launch{Grid: one, Block: one}))
	}
	must(b, s.Synchronise(context.Background()))
}

func BenchmarkLaunchAndSynchronise(b *testing.B) {
	c, s := benchmark(b)
	m, err := c.Load([]byte(nothing))
	must(b, err)
	f, err := m.Function("nothing")
	must(b, err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	for b.Loop() {
		must(b, s.Launch(f, device.Launch{Grid: one, Block: one}))
		must(b, s.Synchronise(context.Background()))
	}
}

func BenchmarkSmallCopyAndSynchronise(b *testing.B) {
	c, s := benchmark(b)
	must(b, c.Map(base, granule))
	data := make([]byte, 4)
	for b.Loop() {
		must(b, s.CopyOut(data, base))
		must(b, s.Synchronise(context.Background()))
	}
}

func BenchmarkCopyIn(b *testing.B) {
	c, s := benchmark(b)
	const size = 32 << 20
	must(b, c.Map(base, size))
	data := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		must(b, s.CopyIn(base, data))
		must(b, s.Synchronise(context.Background()))
	}
}

// BenchmarkSwap maps, fills and unmaps fresh memory.
func BenchmarkSwap(b *testing.B) {
	c, s := benchmark(b)
	const size = 32 << 20
	data := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		must(b, c.Map(base, size))
		must(b, s.CopyIn(base, data))
		must(b, s.Synchronise(context.Background()))
		must(b, c.Unmap(base, size))
	}
}

// BenchmarkKernel runs one that is long enough for many slices.
func BenchmarkKernel(b *testing.B) {
	c, s := benchmark(b)
	m, err := c.Load(readFile(b, "../devicetest/kernels/basic.ptx"))
	must(b, err)
	f, err := m.Function("grind")
	must(b, err)
	must(b, c.Map(base, granule))
	params := binary.LittleEndian.AppendUint64(nil, base)
	params = binary.LittleEndian.AppendUint32(params, 1000)
	l := device.Launch{Grid: device.Dim{X: 64, Y: 1, Z: 1}, Block: device.Dim{X: 256, Y: 1, Z: 1}, Params: params}
	for b.Loop() {
		must(b, s.Launch(f, l))
		must(b, s.Synchronise(context.Background()))
	}
	const laneOps = 9 * 1000 * 64 * 256
	b.ReportMetric(laneOps*float64(b.N)/b.Elapsed().Seconds()/1e9, "Glaneop/s")
}

// BenchmarkModule looks into a module, loads it, finds all its kernels and
// variables, launches one and unloads it.
func BenchmarkModule(b *testing.B) {
	for _, n := range []int{1000, 8000, 100000} {
		b.Run(fmt.Sprintf("kernels=%d", n), func(b *testing.B) {
			c, s := benchmark(b)
			image := manyKernels(n)
			b.SetBytes(int64(len(image)))
			must(b, c.Map(base, granule))
			for b.Loop() {
				_, m, _ := useModule(b, c.dev, c, s, image)
				must(b, m.Unload())
			}
		})
	}
}
