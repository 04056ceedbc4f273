package soft

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"muster/device"
)

// manyKernels returns a module of n kernels, each with a variable of its own.
func manyKernels(n int) []byte {
	var b strings.Builder
	b.WriteString(".version 8.0\n.target sm_90\n.address_size 64\n")
	for i := range n {
		fmt.Fprintf(&b, `.visible .global .align 4 .u32 total%d;
.visible .entry kernel%d(.param .u64 out, .param .u32 n)
{
	.reg .pred %%p<2>;
	.reg .b32 %%r<8>;
	.reg .b64 %%rd<5>;
	ld.param.u64 %%rd1, [out];
	ld.param.u32 %%r1, [n];
	mov.u32 %%r2, %%tid.x;
	setp.ge.u32 %%p1, %%r2, %%r1;
	@%%p1 bra DONE;
	mul.wide.u32 %%rd3, %%r2, 4;
	add.s64 %%rd4, %%rd1, %%rd3;
	st.global.u32 [%%rd4], %%r2;
	atom.global.add.u32 %%r3, [total%d], 1;
DONE:
	ret;
}
`, i, i, i)
	}
	return []byte(b.String())
}

// useModule does with an image what a program does: it inspects and loads it,
// looks up all its kernels and launches one.
func useModule(t testing.TB, d *Device, c *Context, s *stream, image []byte) (device.ImageInfo, device.Module, []device.Function) {
	t.Helper()
	info, err := d.Can().Inspect(image)
	must(t, err)
	m, err := c.Load(image)
	must(t, err)
	var all []device.Function
	for _, name := range m.Functions() {
		f, err := m.Function(name)
		must(t, err)
		all = append(all, f)
		f.Info()
	}
	for _, g := range info.Globals {
		_, err := m.Global(g.Name)
		must(t, err)
	}
	one := device.Dim{X: 1, Y: 1, Z: 1}
	must(t, s.Launch(all[0], device.Launch{Grid: one, Block: one, Params: make([]byte, all[0].Info().ParamSize)}))
	must(t, s.Synchronise(context.Background()))
	return info, m, all
}

// allocated returns how many bytes a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The cost of loading is linear: four times the kernels cost about four times as much. A
// quadratic cost would be sixteen times as much.
func TestLoadingGrowsWithTheModule(t *testing.T) {
	if testing.Short() {
		t.Skip("memory is counted without the race detector")
	}
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	s := newStream(t, c)
	cost := func(n int) uint64 {
		image := manyKernels(n)
		return allocated(func() {
			_, m, _ := useModule(t, d, c, s, image)
			must(t, m.Unload())
		})
	}
	const n = 400
	cost(n) // pay what is allocated only once
	small, large := cost(n), cost(4*n)
	if large > 5*small {
		t.Errorf("%d kernels allocate %d bytes, %d kernels %d: %.1f times as much", n, small, 4*n, large, float64(large)/float64(small))
	}
}

// inUse returns what is in use after a collection.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An unloaded module leaves little memory in use, even if the user keeps
// descriptions of its kernels and handles to them.
func TestUnloadedModulesAreForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("memory is counted without the race detector")
	}
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	s := newStream(t, c)
	const cycles, most = 30, 100 << 10 // bytes a cycle
	image := append(manyKernels(200), []byte("\n//"+strings.Repeat(" text", 200000))...)
	var infos []device.ImageInfo
	var modules []device.Module
	var functions [][]device.Function
	var old device.Module // modules come and go in turn
	cycle := func() {
		info, m, all := useModule(t, d, c, s, image)
		if old != nil {
			must(t, old.Unload())
		}
		old = m
		infos, modules, functions = append(infos, info), append(modules, m), append(functions, all)
	}
	cycle()
	before := inUse()
	for range cycles {
		cycle()
	}
	if each := (inUse() - before) / cycles; each > most {
		t.Errorf("an image of %d bytes leaves %d bytes a cycle, at most %d", len(image), each, most)
	}
	runtime.KeepAlive(infos)
	runtime.KeepAlive(modules)
	runtime.KeepAlive(functions)
}
