package soft

import (
	"context"
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
