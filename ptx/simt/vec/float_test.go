package vec

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"muster/internal/need"
)

// floatNames are the names of kernels that have to do with floats, less those
// that PTX calls approximate and those of few bits, which have tests of their own.
func floatNames() []string {
	integers := map[string]bool{}
	for _, name := range integerNames() {
		integers[name] = true
	}
	var all []string
	for _, name := range Names() {
		if !integers[name] && !strings.Contains(name, ".approx") && !strings.Contains(name, ".full") && !isSmall(name) {
			all = append(all, name)
		}
	}
	return all
}

// awkwardFloats makes lanes of a width where roundings are hard: sums and
// products near ties, cancellation, results near the ends of the range.
func awkwardFloats(r *rand.Rand, width, n int) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		var b uint64
		switch r.IntN(4) {
		case 0: // few bits, so that exact results and ties are common
			f := math.Ldexp(float64(r.IntN(64)-32), r.IntN(60)-30)
			b = floatBits(width, f)
		case 1: // all ones and then little
			f := math.Ldexp(1-math.Ldexp(float64(r.IntN(3)), -r.IntN(54)), r.IntN(8)-4)
			b = floatBits(width, f)
		case 2: // around the limits of the exponent
			f := math.Ldexp(1+r.Float64(), []int{-1074, -1023, -512, -150, -140, -126, -64, -63, -24, -14, 0, 15, 63, 127, 1023}[r.IntN(15)])
			b = floatBits(width, f)
		default:
			f := math.Ldexp(1+r.Float64(), r.IntN(20)-10)
			b = floatBits(width, f)
		}
		if r.IntN(2) == 0 {
			b ^= 1 << (width - 1)
		}
		if width == 16 && r.IntN(2) == 0 {
			b |= uint64(r.Uint32()) << 16 // the other of a pair, or what must not count
		}
		all[i] = b
	}
	return all
}

func floatBits(width int, f float64) uint64 {
	switch width {
	case 64:
		return math.Float64bits(f)
	case 32:
		return uint64(math.Float32bits(float32(f)))
	}
	return kindsOfFloat["f16"].bits(math.Trunc(math.Ldexp(math.Min(math.Abs(f), 60000), 24))/(1<<24), f < 0) & 0xffff
}

// TestFloatKernels compares the kernels with the oracle.
func TestFloatKernels(t *testing.T) {
	r := seeded(t)
	for _, name := range floatNames() {
		kernel := kernels[name]
		n := need.Rounds(150, 300)
		sources, _ := operands(r, name, n)
		_, from := widths(kernel)
		for i := range sources {
			width := from[i]
			if width == 32 && strings.Contains(name, "f16") && !strings.Contains(name, "f32") {
				width = 16
			}
			sources[i] = append(sources[i], awkwardFloats(r, width, n)...)
		}
		checkFloatLanes(t, name, kernel, sources)
	}
}

// TestFloatSpecials has every pair of special values meet, for the kernels
// that programs use most.
func TestFloatSpecials(t *testing.T) {
	r := seeded(t)
	for _, name := range []string{
		"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "fma.rn.f32", "fma.rn.ftz.f32", "min.f32", "max.f32",
		"add.rn.f64", "sub.rn.f64", "mul.rn.f64", "div.rn.f64", "fma.rn.f64", "fma.rm.f64", "min.f64", "max.f64",
		"setp.lt.f32", "setp.geu.f64", "cvt.rzi.s32.f32", "cvt.rzi.u32.f64", "cvt.rn.f32.f64", "cvt.rn.f16.f32",
	} {
		sources, _ := operands(r, name, manyLanes)
		checkFloatLanes(t, name, kernels[name], sources)
	}
}

func checkFloatLanes(t *testing.T, name string, kernel any, sources [][]uint64) {
	t.Helper()
	d, _ := trial{kernel, len(sources[0]), sources, nil, -1}.mustRun(t, name)
	wide, from := widths(kernel)
	for i := range sources[0] {
		var lane []uint64
		for j := range sources {
			lane = append(lane, sources[j][i]&(^uint64(0)>>(64-from[j])))
		}
		got := uint64(0)
		if wide == 1 {
			got = d[i/64] >> (i % 64) & 1
		} else {
			got = d[i]
		}
		if want := floatOracle(name, lane); got != want {
			t.Errorf("%s of %#x: %#x, want %#x", name, lane, got, want)
			return
		}
	}
}

// TestShortFloats goes through all 65536 values, and some of all pairs.
func TestShortFloats(t *testing.T) {
	r := seeded(t)
	all := make([]uint64, 1<<16)
	for i := range all {
		all[i] = uint64(i)
	}
	for _, name := range []string{
		"neg.f16", "abs.ftz.f16", "neg.bf16", "cvt.f32.f16", "cvt.f64.bf16", "cvt.f32.bf16",
		"cvt.rni.s32.f16", "cvt.rpi.u8.bf16", "cvt.rmi.f16.f16", "cvt.sat.f16.f16",
	} {
		checkFloatLanes(t, name, kernels[name], [][]uint64{all})
	}
	for _, name := range []string{"add.rn.f16", "mul.rn.bf16", "fma.rn.f16", "fma.rn.bf16", "min.xorsign.abs.f16", "setp.ltu.bf16"} {
		_, from := widths(kernels[name])
		var sources [][]uint64
		for range from {
			s := make([]uint64, need.Rounds(5000, 20000))
			for i := range s {
				s[i] = uint64(r.UintN(1 << 16))
			}
			sources = append(sources, s)
		}
		checkFloatLanes(t, name, kernels[name], sources)
	}
}

// TestFmaIsRoundedOnce looks for operands where rounding the sum to float64
// first goes wrong, and has the kernel get them right.
func TestFmaIsRoundedOnce(t *testing.T) {
	r := seeded(t)
	const n = 4000
	var a, b, c []uint64
	twice := 0
	for len(a) < n {
		// A product that is a tie or next to one, and a sum that is little else.
		x := float32(1 + 2*r.IntN(1<<12))
		y := float32(1 + 2*r.IntN(1<<12))
		z := math.Ldexp(1+float64(r.IntN(4))/4, r.IntN(60)-70)
		if r.IntN(2) == 0 {
			z = -z
		}
		scale := math.Ldexp(1, r.IntN(60)-30-149*r.IntN(2))
		z = float64(float32(z * scale))
		x = float32(float64(x) * scale)
		want := floatOracle("fma.rn.f32", []uint64{bits32(x), bits32(y), bits32(float32(z))})
		if bits32(float32(float64(x)*float64(y)+z)) != want {
			twice++
		}
		a, b, c = append(a, bits32(x)), append(b, bits32(y)), append(c, bits32(float32(z)))
	}
	if twice == 0 {
		t.Error("no operands where rounding twice is wrong: the test shows nothing")
	}
	checkFloatLanes(t, "fma.rn.f32", kernels["fma.rn.f32"], [][]uint64{a, b, c})
	checkFloatLanes(t, "fma.rn.ftz.f32", kernels["fma.rn.ftz.f32"], [][]uint64{a, b, c})
}

func bits32(x float32) uint64 { return uint64(math.Float32bits(x)) }

// TestFloatExamples pins results worked out by hand, beside the oracle.
func TestFloatExamples(t *testing.T) {
	for _, c := range []struct {
		name string
		lane []uint64
		want uint64
	}{
		{"add.rn.f32", []uint64{0x3f800000, 0x3f800000}, 0x40000000},
		{"add.rn.f32", []uint64{0xffc00001, 0x3f800000}, 0x7fffffff},
		{"add.rm.f32", []uint64{0x3f800000, 0xbf800000}, 0x80000000},
		{"add.rp.f32", []uint64{0x3f800000, 0x00000001}, 0x3f800001},
		{"mul.rz.f32", []uint64{0x7f7fffff, 0x7f7fffff}, 0x7f7fffff},
		{"mul.rn.ftz.f32", []uint64{0x80000001, 0x3f800000}, 0x80000000},
		// A subnormal result, a little less than a tie that float64 cannot tell from one.
		{"fma.rn.f32", []uint64{0x1a000001, 0x19fffffe, 0x00400001}, 0x00400001},
		{"fma.rn.sat.f32", []uint64{0x40000000, 0x40000000, 0x40000000}, 0x3f800000},
		{"fma.rn.sat.f32", []uint64{0x7fc00000, 0x40000000, 0x40000000}, 0},
		{"min.f32", []uint64{0, 0x80000000}, 0x80000000},
		{"max.f32", []uint64{0x7fc00000, 0xbf800000}, 0xbf800000},
		{"max.NaN.f32", []uint64{0x7fc00000, 0xbf800000}, 0x7fffffff},
		{"min.xorsign.abs.f32", []uint64{0xbf800000, 0x40000000}, 0xbf800000},
		{"copysign.f32", []uint64{0x80000000, 0x3f800000}, 0xbf800000},
		{"add.rn.f64", []uint64{0x7ff0000000000000, 0xfff0000000000000}, 0xfff8000000000000},
		{"add.rn.f64", []uint64{0x7ff0000000000001, 0xfff8000000000000}, 0x7ff8000000000001},
		{"sqrt.rp.f64", []uint64{0x4000000000000000}, 0x3ff6a09e667f3bcd},
		{"sqrt.rm.f64", []uint64{0x4000000000000000}, 0x3ff6a09e667f3bcc},
		{"slct.b32.f32", []uint64{1, 2, 0x80000000}, 1},
		{"slct.b32.f32", []uint64{1, 2, 0x7fc00000}, 2},
		{"cvt.rzi.s32.f32", []uint64{0xbfc00000}, 0xffffffff},
		{"cvt.rni.s8.f32", []uint64{0xc3800000}, 0xffffff80},
		{"cvt.rzi.u32.f32", []uint64{0x7fc00000}, 0},
		{"cvt.rzi.s64.f32", []uint64{0x7fc00000}, 0x8000000000000000},
		{"cvt.rzi.s32.f64", []uint64{0x7ff8000000000000}, 0x80000000},
		{"cvt.rzi.s16.f64", []uint64{0x7ff8000000000000}, 0xffff8000},
		{"cvt.rn.f16.f32", []uint64{0x477fefff}, 0x7bff},
		{"cvt.rn.f16.f32", []uint64{0x477ff000}, 0x7c00},
		{"cvt.rn.f16x2.f32", []uint64{0x3f800000, 0x40000000}, 0x3c004000},
		{"cvt.rn.relu.bf16.f32", []uint64{0xbf800000}, 0},
		{"cvt.rna.tf32.f32", []uint64{0x3f801000}, 0x3f802000},
		{"cvt.rn.tf32.f32", []uint64{0x3f801000}, 0x3f800000},
		{"fma.rn.f16x2", []uint64{0x3c004000, 0x40004000, 0x3c003c00}, 0x42004500},
		{"add.rn.bf16", []uint64{0x3f80, 0x3f80}, 0x4000},
		{"setp.ne.f32", []uint64{0x7fc00000, 0}, 0},
		{"setp.neu.f32", []uint64{0x7fc00000, 0}, 1},
		{"testp.normal.f32", []uint64{0}, 1},
		{"testp.normal.f64", []uint64{1 << 63}, 1},
		{"testp.subnormal.f64", []uint64{1}, 1},
	} {
		var sources [][]uint64
		for _, x := range c.lane {
			sources = append(sources, []uint64{x})
		}
		got, _ := trial{Kernel(c.name), 1, sources, nil, -1}.mustRun(t, c.name)
		if got[0] != c.want {
			t.Errorf("%s of %#x: %#x, want %#x", c.name, c.lane, got[0], c.want)
		}
	}
}

// TestFloatNames holds the table to what PTX has.
func TestFloatNames(t *testing.T) {
	for _, name := range wantedFloatNames() {
		if Kernel(name) == nil {
			t.Errorf("no kernel %s", name)
		}
	}
}

// wantedFloatNames expands patterns: {a,b} is either, and an empty choice is
// nothing.
func wantedFloatNames() []string {
	var all []string
	for _, pattern := range []string{
		"{add,sub,mul,fma}.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32",
		"{div,rcp,sqrt}.{rn,rz,rm,rp}{,.ftz}.f32",
		"{div,rcp,sqrt,rsqrt,sin,cos,lg2,ex2}.approx{,.ftz}.f32",
		"div.full{,.ftz}.f32", "tanh.approx.f32",
		"{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f32,f16,f16x2}",
		"{min,max}{,.NaN}{,.xorsign.abs}.{bf16,bf16x2}",
		"{neg,abs}{,.ftz}.{f32,f16,f16x2}", "{neg,abs}.{f64,bf16,bf16x2}", "copysign.{f32,f64}",
		"slct{,.ftz}.{b32,b64}.f32",
		"{add,sub,mul,div,rcp,sqrt,fma}.{rn,rz,rm,rp}.f64", "{min,max}.f64",
		"{rcp,rsqrt}.approx.ftz.f64", "rsqrt.approx.f64",
		"{add,sub,mul,fma}.rn{,.ftz}{,.sat}.{f16,f16x2}", "fma.rn{,.ftz}.relu.{f16,f16x2}",
		"{add,sub,mul,fma}.rn.{bf16,bf16x2}", "fma.rn.relu.{bf16,bf16x2}",
		"ex2.approx.{f16,f16x2}", "ex2.approx.ftz.{bf16,bf16x2}", "tanh.approx.{f16,f16x2,bf16,bf16x2}",
		"setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{.f32,.ftz.f32,.f16,.ftz.f16,.bf16,.f64}",
		"testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
		"cvt.{rni,rzi,rmi,rpi}{,.sat}.{u8,s8,u16,s16,u32,s32,u64,s64}.{f16,bf16,f32,f64}",
		"cvt.{rni,rzi,rmi,rpi}.ftz{,.sat}.{u8,s8,u16,s16,u32,s32,u64,s64}.f32",
		"cvt.{rn,rz,rm,rp}{,.sat}.{f16,bf16,f32,f64}.{u8,s8,u16,s16,u32,s32,u64,s64}",
		"cvt{,.ftz}.f32.f16", "cvt.f64.f16", "cvt{,.ftz}.f64.f32", "cvt.{f32,f64}.bf16",
		"cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64", "cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f16.f32", "cvt.{rn,rz,rm,rp}{,.sat}.f16.f64",
		"cvt.{rn,rz}{,.relu}.bf16.f32", "cvt.{rn,rz,rm,rp}.{bf16.f64,bf16.f16,f16.bf16}", "cvt.rn{,.relu}.tf32.f32", "cvt.rna.tf32.f32",
		"cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32", "cvt.{rni,rzi,rmi,rpi}{,.sat}.{f64.f64,f16.f16}",
		"cvt{,.ftz}{,.sat}.f32.f32", "cvt{,.sat}.{f64.f64,f16.f16}",
		"cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32",
	} {
		all = append(all, expanded(pattern)...)
	}
	return all
}

func expanded(pattern string) []string {
	open := strings.Index(pattern, "{")
	if open < 0 {
		return []string{pattern}
	}
	shut := open + strings.Index(pattern[open:], "}")
	var all []string
	for _, choice := range strings.Split(pattern[open+1:shut], ",") {
		all = append(all, expanded(pattern[:open]+choice+pattern[shut+1:])...)
	}
	return all
}
