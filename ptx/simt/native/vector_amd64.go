//go:build linux && amd64

package native

import (
	"encoding/binary"
	"slices"
	"strings"

	"muster/ptx/simt/native/asm"
)

// The instructions as a section's loop does them, 32 lanes at a time.

// vectorOp returns what emits an instruction in the loop, or nil.
func vectorOp(s *step) func(*compiler, *step) {
	switch s.Name {
	case "ld":
		return (*compiler).loadVector
	case "st":
		return (*compiler).storeVector
	}
	if f := vectorOps[s.Name]; f != nil {
		return f
	}
	if strings.HasPrefix(s.Name, "setp.") {
		if _, _, ok := comparison(s.Name); ok {
			return (*compiler).compareVector
		}
	}
	return nil
}

// can says whether an instruction is compiled.
func (c *compiler) can(s *step) bool {
	if s.Name == "" {
		return false
	}
	if s.isMemory() {
		return c.supportedAccess(s)
	}
	return vectorOp(s) != nil
}

// strides64 is strides of half a chunk in 64 bits.
func (c *compiler) strides64(stride int64, half int) asm.Place {
	b := make([]byte, 0, 64)
	for l := range int64(8) {
		b = binary.LittleEndian.AppendUint64(b, uint64((int64(half)*8+l)*stride))
	}
	return c.Constant(b)
}

var vectorOps map[string]func(*compiler, *step)

func init() {
	both := true
	vectorOps = map[string]func(*compiler, *step){
		"add.b32": binaryOp(asm.Vpaddd, both), "add.b64": binaryOp(asm.Vpaddq, both),
		"sub.b32": binaryOp(asm.Vpsubd, false), "sub.b64": binaryOp(asm.Vpsubq, false),
		"mul.lo.b32": binaryOp(asm.Vpmulld, both), "mul.lo.b64": binaryOp(asm.Vpmullq, both),
		"and.b32": binaryOp(asm.Vpandd, both), "and.b64": binaryOp(asm.Vpandq, both),
		"or.b32": binaryOp(asm.Vpord, both), "or.b64": binaryOp(asm.Vporq, both),
		"xor.b32": binaryOp(asm.Vpxord, both), "xor.b64": binaryOp(asm.Vpxorq, both),
		"min.s32": binaryOp(asm.Vpminsd, both), "max.s32": binaryOp(asm.Vpmaxsd, both),
		"min.u32": binaryOp(asm.Vpminud, both), "max.u32": binaryOp(asm.Vpmaxud, both),
		"min.s64": binaryOp(asm.Vpminsq, both), "max.s64": binaryOp(asm.Vpmaxsq, both),
		"min.u64": binaryOp(asm.Vpminuq, both), "max.u64": binaryOp(asm.Vpmaxuq, both),
		"shl.b32": binaryOp(asm.Vpsllvd, false), "shr.u32": binaryOp(asm.Vpsrlvd, false), "shr.s32": binaryOp(asm.Vpsravd, false),
		"shl.b64": shift64(asm.Vpsllvq), "shr.u64": shift64(asm.Vpsrlvq), "shr.s64": shift64(asm.Vpsravq),
		"mad.lo.b32": madOp(asm.Vpmulld, asm.Vpaddd), "mad.lo.b64": madOp(asm.Vpmullq, asm.Vpaddq),
		"not.b32": constantOp(asm.Vpxord, 1<<32-1), "not.b64": constantOp(asm.Vpxorq, 1<<64-1),
		"neg.s32": negate(asm.Vpsubd), "neg.s64": negate(asm.Vpsubq),
		"mov.b32": moveOp, "mov.b64": moveOp,
		"selp.b32": selectOp, "selp.b64": selectOp,
		"cvt.s64.s32": widenOp(asm.Vpmovsxdq), "cvt.u64.s32": widenOp(asm.Vpmovsxdq), "cvt.u64.u32": widenOp(asm.Vpmovzxdq), "cvt.s64.u32": widenOp(asm.Vpmovzxdq),
		"cvt.u32.u64": narrowOp, "cvt.s32.s64": narrowOp, "cvt.u32.s64": narrowOp, "cvt.s32.u64": narrowOp,
		"mul.wide.s32": wideOp(asm.Vpmovsxdq, asm.Vpmuldq), "mul.wide.u32": wideOp(asm.Vpmovzxdq, asm.Vpmuludq),
		"mad.wide.s32": wideOp(asm.Vpmovsxdq, asm.Vpmuldq), "mad.wide.u32": wideOp(asm.Vpmovzxdq, asm.Vpmuludq),
		"and.pred": predicateOp, "or.pred": predicateOp, "xor.pred": predicateOp, "mov.pred": predicateOp, "not.pred": predicateOp,

		"add.rn.f32": float32Op(asm.Vaddps, both), "sub.rn.f32": float32Op(asm.Vsubps, false),
		"mul.rn.f32": float32Op(asm.Vmulps, both), "div.rn.f32": float32Op(asm.Vdivps, false),
		"div.full.f32": float32Op(asm.Vdivps, false),
		"fma.rn.f32":   fma32, "sqrt.rn.f32": sqrt32, "sqrt.approx.f32": sqrt32, "rcp.rn.f32": reciprocal32, "rcp.approx.f32": reciprocal32, "rsqrt.approx.f32": rsqrt32,
		"neg.f32": constantOp(asm.Vpxord, 1<<31), "abs.f32": constantOp(asm.Vpandd, 1<<31-1),
		"neg.f64": constantOp(asm.Vpxorq, 1<<63), "abs.f64": constantOp(asm.Vpandq, 1<<63-1),
		"min.f32": extreme32(0x11, asm.Vpord), "max.f32": extreme32(0x1e, asm.Vpandd),
		"add.rn.ftz.f32": flushing(asm.Vaddps), "sub.rn.ftz.f32": flushing(asm.Vsubps),
		"mul.rn.ftz.f32": flushing(asm.Vmulps), "div.rn.ftz.f32": flushing(asm.Vdivps), "div.full.ftz.f32": flushing(asm.Vdivps),
		"fma.rn.ftz.f32": flushing(asm.Vfmadd213ps), "fma.rn.f64": fma64,
		"add.rn.f64": binaryOp(asm.Vaddpd, false), "sub.rn.f64": binaryOp(asm.Vsubpd, false),
		"mul.rn.f64": binaryOp(asm.Vmulpd, false), "div.rn.f64": binaryOp(asm.Vdivpd, false),
		"cvt.rn.f32.s32": convert32(asm.Vcvtdq2ps), "cvt.rn.f32.u32": convert32(asm.Vcvtudq2ps),
	}
}

// binaryOp is one instruction of the processor; with swap the sources may
// change places.
func binaryOp(op asm.Coding, swap bool) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.twoSources(op, swap, s)
		c.settle(s, s.D, d)
	}
}

func (c *compiler) twoSources(op asm.Coding, swap bool, s *step) []int {
	x, y := 0, 1
	if swap && s.sources[0].Form == Uniform {
		x, y = 1, 0
	}
	a := c.get(s.Op.Sources[x], s.sources[x])
	d := c.fresh(s.D)
	for part := range d {
		c.EVEX(op, asm.ZMM, d[part], a[part], c.operand(s.Op.Sources[y], s.sources[y], part), asm.Masked{})
	}
	return d
}

// float32Op is binaryOp with the one NaN that f32 arithmetic gives.
func float32Op(op asm.Coding, swap bool) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.twoSources(op, swap, s)
		c.canonical(s, d)
		c.settle(s, s.D, d)
	}
}

// arithmetic32 are the instructions on f32 whose results do not depend on the
// bits of a NaN among their sources.
var arithmetic32 = map[string]bool{
	"add.rn.f32": true, "sub.rn.f32": true, "mul.rn.f32": true, "div.rn.f32": true, "div.full.f32": true, "fma.rn.f32": true,
	"sqrt.rn.f32": true, "sqrt.approx.f32": true, "rcp.rn.f32": true, "rcp.approx.f32": true, "rsqrt.approx.f32": true,
}

// hidesNaN says whether no result depends on the bits of a NaN that an instruction
// computes: all instructions that read it are arithmetic, and it is dead behind the
// loop. Then it need not be made canonical.
func (c *compiler) hidesNaN(steps []*step, i int) bool {
	d := steps[i].D
	if !arithmetic32[steps[i].Name] || steps[i].Guard >= 0 {
		return false
	}
	for _, s := range steps[i+1:] {
		if slices.Contains(s.Reads, d) && !arithmetic32[s.Name] && (!strings.HasPrefix(s.Name, "setp.") || !strings.HasSuffix(s.Name, ".f32")) {
			return false
		}
		if slices.Contains(s.Writes, d) {
			return s.Guard < 0
		}
	}
	return !c.isNeeded(d, c.ending)
}

// canonical makes every NaN the canonical one.
func (c *compiler) canonical(s *step, d []int) {
	if s.anyNaN {
		return
	}
	for _, reg := range d {
		c.EVEX(asm.Vcmpps, asm.ZMM, 5, reg, asm.InReg(reg), asm.Masked{}, 3) // vcmpunordps
		c.EVEX(asm.Vmovdqa32, asm.ZMM, reg, 0, asm.InReg(zmmNaN), asm.Masked{K: 5})
	}
}

func fma32(c *compiler, s *step) {
	// vfmadd213: d = a*d + c, vfmadd231: d = a*b + d. The sum's register is
	// copied, since it may be needed again.
	x, y := 0, 1
	if s.sources[0].Form == Uniform {
		x, y = 1, 0
	}
	src := s.Op.Sources
	a, sum := c.get(src[x], s.sources[x]), c.get(src[2], s.sources[2])
	d := c.fresh(s.D)
	for part, reg := range d {
		c.EVEX(asm.Vload64, asm.ZMM, reg, 0, asm.InReg(sum[part]), asm.Masked{})
		c.EVEX(asm.Vfmadd231ps, asm.ZMM, reg, a[part], c.operand(src[y], s.sources[y], part), asm.Masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

// fma64 returns the first NaN among its sources, as the lane kernel does. The
// processor looks at its second operand first, then at the one that it overwrites;
// so a is the second operand and b the overwritten one.
func fma64(c *compiler, s *step) {
	src := s.Op.Sources
	a, b := c.get(src[0], s.sources[0]), c.get(src[1], s.sources[1])
	d := c.fresh(s.D)
	for part, reg := range d {
		c.EVEX(asm.Vload64, asm.ZMM, reg, 0, asm.InReg(b[part]), asm.Masked{})
		c.EVEX(asm.Vfmadd213pd, asm.ZMM, reg, a[part], c.operand(src[2], s.sources[2], part), asm.Masked{})
	}
	c.settle(s, s.D, d)
}

// flushSmall makes subnormal numbers in a register zeros of the same sign.
func (c *compiler) flushSmall(reg int) {
	c.EVEX(asm.Vptestnmd, asm.ZMM, 5, reg, c.Word32(0x7f800000), asm.Masked{})
	c.EVEX(asm.Vpandd, asm.ZMM, reg, reg, c.Word32(1<<31), asm.Masked{K: 5})
}

// flushing is arithmetic with .ftz: subnormal sources and results are zeros.
func flushing(op asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		var from [3][]int
		for i, r := range s.Op.Sources {
			from[i] = c.get(r, s.sources[i])
		}
		d := c.fresh(s.D)
		for part, reg := range d {
			for i := range s.Op.Sources {
				c.EVEX(asm.Vload64, asm.ZMM, zmmT0+i, 0, asm.InReg(from[i][part]), asm.Masked{})
				c.flushSmall(zmmT0 + i)
			}
			if len(s.Op.Sources) == 3 {
				c.EVEX(op, asm.ZMM, zmmT0, zmmT1, asm.InReg(zmmT2), asm.Masked{}) // vfmadd213ps
				c.EVEX(asm.Vload64, asm.ZMM, reg, 0, asm.InReg(zmmT0), asm.Masked{})
			} else {
				c.EVEX(op, asm.ZMM, reg, zmmT0, asm.InReg(zmmT1), asm.Masked{})
			}
		}
		c.canonical(s, d)
		for _, reg := range d {
			c.flushSmall(reg)
		}
		c.settle(s, s.D, d)
	}
}

// extreme32 is the minimum or maximum: the number if one source is a NaN, and
// of two zeros the one with, or without, a sign.
func extreme32(better byte, equal asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		x, y := c.get(s.Op.Sources[0], s.sources[0]), c.get(s.Op.Sources[1], s.sources[1])
		d := c.fresh(s.D)
		compare := asm.Vcmpps
		for part, reg := range d {
			a, b := x[part], y[part]
			c.EVEX(compare, asm.ZMM, 5, a, asm.InReg(b), asm.Masked{}, better)
			c.EVEX(asm.Vpblendmd, asm.ZMM, reg, b, asm.InReg(a), asm.Masked{K: 5})
			c.EVEX(compare, asm.ZMM, 5, a, asm.InReg(b), asm.Masked{}, 0)
			c.EVEX(equal, asm.ZMM, reg, a, asm.InReg(b), asm.Masked{K: 5})
			c.EVEX(compare, asm.ZMM, 5, b, asm.InReg(b), asm.Masked{}, 3)
			c.EVEX(asm.Vmovdqa32, asm.ZMM, reg, 0, asm.InReg(a), asm.Masked{K: 5})
		}
		c.canonical(s, d)
		c.settle(s, s.D, d)
	}
}

func sqrt32(c *compiler, s *step) {
	d := c.fresh(s.D)
	for part, reg := range d {
		c.EVEX(asm.Vsqrtps, asm.ZMM, reg, 0, c.operand(s.Op.Sources[0], s.sources[0], part), asm.Masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

func reciprocal32(c *compiler, s *step) {
	d := c.fresh(s.D)
	c.EVEX(asm.Vpbroadcastd, asm.ZMM, zmmT0, 0, unbroadcast(c.Word32(0x3f800000)), asm.Masked{})
	for part, reg := range d {
		c.EVEX(asm.Vdivps, asm.ZMM, reg, zmmT0, c.operand(s.Op.Sources[0], s.sources[0], part), asm.Masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

// rsqrt32 is a division by a square root, as the lane kernel does it.
func rsqrt32(c *compiler, s *step) {
	d := c.fresh(s.D)
	c.EVEX(asm.Vpbroadcastd, asm.ZMM, zmmT0, 0, unbroadcast(c.Word32(0x3f800000)), asm.Masked{})
	for part, reg := range d {
		c.EVEX(asm.Vsqrtps, asm.ZMM, reg, 0, c.operand(s.Op.Sources[0], s.sources[0], part), asm.Masked{})
		c.EVEX(asm.Vdivps, asm.ZMM, reg, zmmT0, asm.InReg(reg), asm.Masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

func convert32(op asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.fresh(s.D)
		for part, reg := range d {
			c.EVEX(op, asm.ZMM, reg, 0, c.operand(s.Op.Sources[0], s.sources[0], part), asm.Masked{})
		}
		c.settle(s, s.D, d)
	}
}

func madOp(mul, add asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.twoSources(mul, true, s)
		for part, reg := range d {
			c.EVEX(add, asm.ZMM, reg, reg, c.operand(s.Op.Sources[2], s.sources[2], part), asm.Masked{})
		}
		c.settle(s, s.D, d)
	}
}

// constantOp combines a source with a constant.
func constantOp(op asm.Coding, v uint64) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		k := c.Word32(uint32(v))
		if s.D.Class == Bits64 {
			k = c.Word64(v)
		}
		a := c.get(s.Op.Sources[0], s.sources[0])
		d := c.fresh(s.D)
		for part, reg := range d {
			c.EVEX(op, asm.ZMM, reg, a[part], k, asm.Masked{})
		}
		c.settle(s, s.D, d)
	}
}

func negate(sub asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.EVEX(asm.Vpxord, asm.ZMM, zmmT0, zmmT0, asm.InReg(zmmT0), asm.Masked{})
		d := c.fresh(s.D)
		for part, reg := range d {
			c.EVEX(sub, asm.ZMM, reg, zmmT0, c.operand(s.Op.Sources[0], s.sources[0], part), asm.Masked{})
		}
		c.settle(s, s.D, d)
	}
}

func moveOp(c *compiler, s *step) {
	a := c.get(s.Op.Sources[0], s.sources[0])
	d := c.fresh(s.D)
	for part, reg := range d {
		c.EVEX(asm.Vload64, asm.ZMM, reg, 0, asm.InReg(a[part]), asm.Masked{})
	}
	c.settle(s, s.D, d)
}

// selectOp takes the first source where a predicate holds, else the second.
func selectOp(c *compiler, s *step) {
	x, y := 0, 1
	if s.Negated {
		x, y = 1, 0
	}
	yes, no := c.get(s.Op.Sources[x], s.sources[x]), c.get(s.Op.Sources[y], s.sources[y])
	d := c.fresh(s.D)
	c.VEX(asm.Kmovd, false, 4, 0, predicate(s.Op.Sources[2].Slot))
	blend := asm.Vpblendmd
	if s.D.Class == Bits64 {
		blend.W = 1
	}
	for part, reg := range d {
		c.EVEX(blend, asm.ZMM, reg, no[part], asm.InReg(yes[part]), asm.Masked{K: c.partMask(4, s.D.Class, part)})
	}
	c.settle(s, s.D, d)
}

// widen gets a quarter of a 32-bit source as 64 bits.
func (c *compiler) widen(op asm.Coding, reg int, r Ref, k Kind, part int) {
	if c.of(r).held == nil && k.Form == Vector && c.nextUse(r) < 0 {
		p := lanes(r, 0)
		p.Disp += int32(part) * 32
		c.EVEX(op, asm.ZMM, reg, 0, p, asm.Masked{})
		return
	}
	from := c.get(r, k)[part/2]
	if part%2 == 1 {
		c.EVEX(asm.Vextracti64x4, asm.ZMM, from, 0, asm.InReg(zmmT3), asm.Masked{}, 1)
		from = zmmT3
	}
	c.EVEX(op, asm.ZMM, reg, 0, asm.InReg(from), asm.Masked{})
}

func widenOp(op asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.fresh(s.D)
		for part, reg := range d {
			c.widen(op, reg, s.Op.Sources[0], s.sources[0], part)
		}
		c.settle(s, s.D, d)
	}
}

func narrowOp(c *compiler, s *step) {
	a := c.get(s.Op.Sources[0], s.sources[0])
	d := c.fresh(s.D)
	for part, reg := range d {
		c.lowerHalves(reg, a[2*part:])
	}
	c.settle(s, s.D, d)
}

// lowerHalves gets the lower halves of 16 values, which are in two registers.
func (c *compiler) lowerHalves(to int, from []int) {
	c.EVEX(asm.Vpmovqd, asm.ZMM, from[0], 0, asm.InReg(to), asm.Masked{})
	c.EVEX(asm.Vpmovqd, asm.ZMM, from[1], 0, asm.InReg(zmmT0), asm.Masked{})
	c.EVEX(asm.Vinserti64x4, asm.ZMM, to, to, asm.InReg(zmmT0), asm.Masked{}, 1)
}

// wideOp multiplies to 64 bits.
func wideOp(extend, mul asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.fresh(s.D)
		for part, reg := range d {
			c.widen(extend, reg, s.Op.Sources[0], s.sources[0], part)
			c.widen(extend, zmmT1, s.Op.Sources[1], s.sources[1], part)
			c.EVEX(mul, asm.ZMM, reg, reg, asm.InReg(zmmT1), asm.Masked{})
			if len(s.Op.Sources) == 3 {
				c.EVEX(asm.Vpaddq, asm.ZMM, reg, reg, c.operand(s.Op.Sources[2], s.sources[2], part), asm.Masked{})
			}
		}
		c.settle(s, s.D, d)
	}
}

// shift64 shifts by a count of 32 bits.
func shift64(op asm.Coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		a := c.get(s.Op.Sources[0], s.sources[0])
		d := c.fresh(s.D)
		for part, reg := range d {
			c.widen(asm.Vpmovzxdq, zmmT1, s.Op.Sources[1], s.sources[1], part)
			c.EVEX(op, asm.ZMM, reg, a[part], asm.InReg(zmmT1), asm.Masked{})
		}
		c.settle(s, s.D, d)
	}
}

// comparison returns how a comparison is encoded and its predicate.
func comparison(name string) (op asm.Coding, how byte, ok bool) {
	if cmp, signed, bits, isInt := condition(name); isInt {
		op = asm.Vpcmpud
		if signed {
			op = asm.Vpcmpd
		}
		if bits == "64" {
			op.W = 1
		}
		how, ok = integerOrders[cmp]
		return op, how, ok
	}
	cmp, t, _ := strings.Cut(strings.TrimPrefix(name, "setp."), ".")
	switch t {
	case "s16", "u16", "b16":
		return comparison("setp." + cmp + "." + t[:1] + "32")
	case "f32":
		op = asm.Vcmpps
	case "f64":
		op = asm.Vcmppd
	default:
		return op, 0, false
	}
	how, ok = floatOrders[cmp]
	return op, how, ok
}

// The predicates of comparisons as the processor counts them.
var (
	integerOrders = map[string]byte{"eq": 0, "lt": 1, "le": 2, "ne": 4, "ge": 5, "gt": 6}
	floatOrders   = map[string]byte{
		"eq": 0x00, "lt": 0x11, "le": 0x12, "gt": 0x1e, "ge": 0x1d, "ne": 0x0c, "num": 0x07, "nan": 0x03,
		"equ": 0x08, "neu": 0x04, "ltu": 0x19, "leu": 0x1a, "gtu": 0x16, "geu": 0x15,
	}
)

func (c *compiler) compareVector(s *step) {
	op, how, _ := comparison(s.Name)
	r := s.Op.Sources
	a := c.get(r[0], s.sources[0])
	if strings.HasSuffix(s.Name, "16") {
		c.compareHalves(s, op, how)
		return
	}
	for part := range a {
		c.EVEX(op, asm.ZMM, 4+part%4, a[part], c.operand(r[1], s.sources[1], part), asm.Masked{}, how)
	}
	c.gatherBits(r[0].Class)
	c.setPredicate(s)
}

// compareHalves compares the lower 16 bits: it shifts them up, which keeps the order.
func (c *compiler) compareHalves(s *step, op asm.Coding, how byte) {
	for part := range 2 {
		for i, r := range s.Op.Sources {
			c.EVEX(asm.Vpsllvd, asm.ZMM, zmmT0+i, c.get(r, s.sources[i])[part], c.Word32(16), asm.Masked{})
		}
		c.EVEX(op, asm.ZMM, 4+part, zmmT0, asm.InReg(zmmT1), asm.Masked{}, how)
	}
	c.gatherBits(Bits32)
	c.setPredicate(s)
}

// gatherBits gets the answers of a round's parts, in k4 to k7, into eax.
func (c *compiler) gatherBits(class Class) {
	if class == Bits64 {
		c.VEX(asm.Kunpckbw, true, 4, 5, asm.InReg(4))
		c.VEX(asm.Kunpckbw, true, 5, 7, asm.InReg(6))
	}
	c.VEX(asm.Kunpckwd, true, 4, 5, asm.InReg(4))
	c.VEX(asm.KmovdToR, false, asm.RAX, 0, asm.InReg(4))
}

// setPredicate stores a round's bits of a predicate, which are in eax.
func (c *compiler) setPredicate(s *step) {
	p := predicate(s.D.Slot)
	if s.Private {
		c.Legacy(false, asm.OpStore, asm.RAX, p)
		return
	}
	c.VEX(asm.KmovdToR, false, asm.RDX, 0, asm.InReg(int(c.guardMask(s))))
	c.Legacy(false, asm.OpMov, asm.RDI, p)
	c.Legacy(false, asm.OpXor, asm.RAX, asm.InReg(asm.RDI))
	c.Legacy(false, asm.OpAnd, asm.RAX, asm.InReg(asm.RDX))
	c.Legacy(false, asm.OpXor, asm.RAX, asm.InReg(asm.RDI))
	c.Legacy(false, asm.OpStore, asm.RAX, p)
}

// predicateOp combines predicates.
func predicateOp(c *compiler, s *step) {
	invert := func(reg int, yes bool) {
		if yes {
			c.Legacy(false, []byte{0xf7}, 2, asm.InReg(reg)) // not
		}
	}
	c.Legacy(false, asm.OpMov, asm.RAX, predicate(s.Op.Sources[0].Slot))
	invert(asm.RAX, s.InvertA)
	if len(s.Op.Sources) == 2 {
		c.Legacy(false, asm.OpMov, asm.RDX, predicate(s.Op.Sources[1].Slot))
		invert(asm.RDX, s.InvertB)
		c.Legacy(false, map[string][]byte{"and.pred": asm.OpAnd, "or.pred": asm.OpOr, "xor.pred": asm.OpXor}[s.Name], asm.RAX, asm.InReg(asm.RDX))
	}
	c.setPredicate(s)
}
