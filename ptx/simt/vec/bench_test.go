package vec

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// hot are the kernels that programs spend their time in.
var hot = []string{
	"add.b32", "sub.b32", "mul.lo.b32", "mul.hi.u32", "mad.lo.b32", "and.b32", "shl.b32", "shr.s32", "min.s32", "max.u32",
	"add.b64", "mul.lo.b64", "mad.lo.b64", "and.b64", "shl.b64", "shr.u64", "min.s64",
	"mul.wide.s32", "mul.wide.u32", "mad.wide.s32", "cvt.s64.s32", "cvt.u64.u32", "cvt.u32.u64", "cvt.u16.u32", "cvt.s8.u32",
	"setp.eq.b32", "setp.lt.s32", "setp.ge.u32", "setp.lt.s64", "lop3.b32", "prmt.b32", "bfe.u32", "shf.l.wrap.b32", "popc.b32", "div.u32", "rem.s32",
	"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "fma.rn.f32", "fma.rn.ftz.f32", "min.f32", "max.f32",
	"add.rn.f64", "mul.rn.f64", "fma.rn.f64", "setp.lt.f32", "setp.lt.f64",
	"div.rn.f32", "div.full.f32", "rcp.rn.f32", "rcp.approx.ftz.f32", "sqrt.rn.f32", "rsqrt.approx.f32", "ex2.approx.f32", "ex2.approx.ftz.f32", "sin.approx.f32", "lg2.approx.f32",
	"cvt.rn.f32.s32", "cvt.rzi.s32.f32", "cvt.f64.f32", "cvt.rn.f32.f64", "cvt.f32.f16", "cvt.rn.f16.f32", "fma.rn.f16x2",
}

// BenchmarkKernels runs the hot kernels on one gang of 256 lanes.
func BenchmarkKernels(b *testing.B) {
	for _, name := range hot {
		if kernel := Kernel(name); kernel != nil {
			b.Run(name, func(b *testing.B) { benchmarkKernel(b, name, kernel) })
		}
	}
}

const gang = 256

func benchmarkKernel(b *testing.B, name string, kernel any) {
	r := rand.New(rand.NewPCG(1, 1))
	sources, in := operands(r, name, gang)
	width, from := widths(kernel)
	for i := range sources {
		for j := range sources[i] {
			sources[i][j] = usual(from[i], j)
		}
	}
	lanes := gang
	if width == 1 {
		width, lanes = 64, words(gang)
	}
	args := []reflect.Value{slice(width, make([]uint64, lanes))}
	for i, w := range from {
		args = append(args, slice(w, sources[i]))
	}
	if takesCarry(kernel) {
		args = append(args, slice(64, in), slice(64, in))
	}
	call := bound(kernel, args)
	for b.Loop() {
		call()
	}
	b.ReportMetric(float64(b.N)*gang/float64(b.Elapsed().Nanoseconds()), "Glane/s")
}

// usual is an ordinary number both as an integer and as a float, since odd
// ones (denormals, large divisors) would time the exceptions.
func usual(width, i int) uint64 {
	if width == 64 {
		return 0x3ff0_0000_0000_0000 + uint64(i)<<40
	}
	return 0x3f80_0000 + uint64(i)<<12
}

// bound calls a kernel without the cost of reflection.
func bound(kernel any, args []reflect.Value) func() {
	v32 := func(i int) []uint32 { return args[i].Interface().([]uint32) }
	v64 := func(i int) []uint64 { return args[i].Interface().([]uint64) }
	switch k := kernel.(type) {
	case Unary32:
		d, a := v32(0), v32(1)
		return func() { k(d, a) }
	case Binary32:
		d, a, b := v32(0), v32(1), v32(2)
		return func() { k(d, a, b) }
	case Ternary32:
		d, a, b, c := v32(0), v32(1), v32(2), v32(3)
		return func() { k(d, a, b, c) }
	case Quad32:
		d, a, b, c, e := v32(0), v32(1), v32(2), v32(3), v32(4)
		return func() { k(d, a, b, c, e) }
	case Unary64:
		d, a := v64(0), v64(1)
		return func() { k(d, a) }
	case Binary64:
		d, a, b := v64(0), v64(1), v64(2)
		return func() { k(d, a, b) }
	case Ternary64:
		d, a, b, c := v64(0), v64(1), v64(2), v64(3)
		return func() { k(d, a, b, c) }
	case Widen:
		d, a := v64(0), v32(1)
		return func() { k(d, a) }
	case Narrow:
		d, a := v32(0), v64(1)
		return func() { k(d, a) }
	case WidenBinary:
		d, a, b := v64(0), v32(1), v32(2)
		return func() { k(d, a, b) }
	case WidenAdd:
		d, a, b, c := v64(0), v32(1), v32(2), v64(3)
		return func() { k(d, a, b, c) }
	case Shift64:
		d, a, b := v64(0), v64(1), v32(2)
		return func() { k(d, a, b) }
	case Compare32:
		d, a, b := v64(0), v32(1), v32(2)
		return func() { k(d, a, b) }
	case Compare64:
		d, a, b := v64(0), v64(1), v64(2)
		return func() { k(d, a, b) }
	}
	f := reflect.ValueOf(kernel)
	return func() { f.Call(args) }
}

// BenchmarkMoves does the same for the movers.
func BenchmarkMoves(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	d, a, c := randomLanes[uint32](r, gang), randomLanes[uint32](r, gang), randomLanes[uint32](r, gang)
	d64, a64, c64 := randomLanes[uint64](r, gang), randomLanes[uint64](r, gang), randomLanes[uint64](r, gang)
	base, base64 := randomLanes[uint32](r, gang/16), randomLanes[uint64](r, gang/16)
	mask := []uint64{r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64()}
	regular, regular64 := make([]uint32, gang), make([]uint64, gang)
	Expand(regular, base, 4)
	Expand(regular64, base64, 4)
	for _, move := range []struct {
		name string
		call func()
	}{
		{"copy32", func() { copy(d, a) }},
		{"expand32", func() { Expand(d, base, 4) }},
		{"expand64", func() { Expand(d64, base64, 4) }},
		{"compress32", func() { Compress(base, regular) }},
		{"compress64", func() { Compress(base64, regular64) }},
		{"compress32-no", func() { Compress(base, a) }},
		{"compress64-no", func() { Compress(base64, a64) }},
		{"blend32", func() { Blend(d, a, mask) }},
		{"blend64", func() { Blend(d64, a64, mask) }},
		{"select32", func() { Select(d, a, c, mask) }},
		{"select64", func() { Select(d64, a64, c64, mask) }},
	} {
		b.Run(move.name, func(b *testing.B) {
			for b.Loop() {
				move.call()
			}
			b.ReportMetric(float64(b.N)*gang/float64(b.Elapsed().Nanoseconds()), "Glane/s")
		})
	}
}
