//go:build linux && amd64

package native

import (
	"encoding/binary"
	"slices"
	"strings"
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
func (c *compiler) strides64(stride int64, half int) place {
	b := make([]byte, 0, 64)
	for l := range int64(8) {
		b = binary.LittleEndian.AppendUint64(b, uint64((int64(half)*8+l)*stride))
	}
	return c.constant(b)
}

var vectorOps map[string]func(*compiler, *step)

func init() {
	both := true
	vectorOps = map[string]func(*compiler, *step){
		"add.b32": binaryOp(vpaddd, both), "add.b64": binaryOp(vpaddq, both),
		"sub.b32": binaryOp(vpsubd, false), "sub.b64": binaryOp(vpsubq, false),
		"mul.lo.b32": binaryOp(vpmulld, both), "mul.lo.b64": binaryOp(vpmullq, both),
		"and.b32": binaryOp(coding{1, 1, 0, 0xdb}, both), "and.b64": binaryOp(coding{1, 1, 1, 0xdb}, both),
		"or.b32": binaryOp(coding{1, 1, 0, 0xeb}, both), "or.b64": binaryOp(coding{1, 1, 1, 0xeb}, both),
		"xor.b32": binaryOp(coding{1, 1, 0, 0xef}, both), "xor.b64": binaryOp(coding{1, 1, 1, 0xef}, both),
		"min.s32": binaryOp(coding{1, 2, 0, 0x39}, both), "max.s32": binaryOp(coding{1, 2, 0, 0x3d}, both),
		"min.u32": binaryOp(coding{1, 2, 0, 0x3b}, both), "max.u32": binaryOp(coding{1, 2, 0, 0x3f}, both),
		"min.s64": binaryOp(coding{1, 2, 1, 0x39}, both), "max.s64": binaryOp(coding{1, 2, 1, 0x3d}, both),
		"min.u64": binaryOp(coding{1, 2, 1, 0x3b}, both), "max.u64": binaryOp(coding{1, 2, 1, 0x3f}, both),
		"shl.b32": binaryOp(vpsllvd, false), "shr.u32": binaryOp(coding{1, 2, 0, 0x45}, false), "shr.s32": binaryOp(coding{1, 2, 0, 0x46}, false),
		"shl.b64": shift64(vpsllvq), "shr.u64": shift64(coding{1, 2, 1, 0x45}), "shr.s64": shift64(coding{1, 2, 1, 0x46}),
		"mad.lo.b32": madOp(vpmulld, vpaddd), "mad.lo.b64": madOp(vpmullq, vpaddq),
		"not.b32": constantOp(coding{1, 1, 0, 0xef}, 1<<32-1), "not.b64": constantOp(coding{1, 1, 1, 0xef}, 1<<64-1),
		"neg.s32": negate(vpsubd), "neg.s64": negate(vpsubq),
		"mov.b32": moveOp, "mov.b64": moveOp,
		"selp.b32": selectOp, "selp.b64": selectOp,
		"cvt.s64.s32": widenOp(vpmovsxdq), "cvt.u64.s32": widenOp(vpmovsxdq), "cvt.u64.u32": widenOp(vpmovzxdq), "cvt.s64.u32": widenOp(vpmovzxdq),
		"cvt.u32.u64": narrowOp, "cvt.s32.s64": narrowOp, "cvt.u32.s64": narrowOp, "cvt.s32.u64": narrowOp,
		"mul.wide.s32": wideOp(vpmovsxdq, coding{1, 2, 1, 0x28}), "mul.wide.u32": wideOp(vpmovzxdq, coding{1, 1, 1, 0xf4}),
		"mad.wide.s32": wideOp(vpmovsxdq, coding{1, 2, 1, 0x28}), "mad.wide.u32": wideOp(vpmovzxdq, coding{1, 1, 1, 0xf4}),
		"and.pred": predicateOp, "or.pred": predicateOp, "xor.pred": predicateOp, "mov.pred": predicateOp, "not.pred": predicateOp,

		"add.rn.f32": float32Op(coding{0, 1, 0, 0x58}, both), "sub.rn.f32": float32Op(coding{0, 1, 0, 0x5c}, false),
		"mul.rn.f32": float32Op(coding{0, 1, 0, 0x59}, both), "div.rn.f32": float32Op(coding{0, 1, 0, 0x5e}, false),
		"div.full.f32": float32Op(coding{0, 1, 0, 0x5e}, false),
		"fma.rn.f32":   fma32, "sqrt.rn.f32": sqrt32, "sqrt.approx.f32": sqrt32, "rcp.rn.f32": reciprocal32, "rcp.approx.f32": reciprocal32, "rsqrt.approx.f32": rsqrt32,
		"neg.f32": constantOp(coding{1, 1, 0, 0xef}, 1<<31), "abs.f32": constantOp(coding{1, 1, 0, 0xdb}, 1<<31-1),
		"neg.f64": constantOp(coding{1, 1, 1, 0xef}, 1<<63), "abs.f64": constantOp(coding{1, 1, 1, 0xdb}, 1<<63-1),
		"min.f32": extreme32(0x11, coding{1, 1, 0, 0xeb}), "max.f32": extreme32(0x1e, coding{1, 1, 0, 0xdb}),
		"add.rn.ftz.f32": flushing(coding{0, 1, 0, 0x58}), "sub.rn.ftz.f32": flushing(coding{0, 1, 0, 0x5c}),
		"mul.rn.ftz.f32": flushing(coding{0, 1, 0, 0x59}), "div.rn.ftz.f32": flushing(coding{0, 1, 0, 0x5e}), "div.full.ftz.f32": flushing(coding{0, 1, 0, 0x5e}),
		"fma.rn.ftz.f32": flushing(coding{1, 2, 0, 0xa8}), "fma.rn.f64": fma64,
		"add.rn.f64": binaryOp(coding{1, 1, 1, 0x58}, false), "sub.rn.f64": binaryOp(coding{1, 1, 1, 0x5c}, false),
		"mul.rn.f64": binaryOp(coding{1, 1, 1, 0x59}, false), "div.rn.f64": binaryOp(coding{1, 1, 1, 0x5e}, false),
		"cvt.rn.f32.s32": convert32(coding{0, 1, 0, 0x5b}), "cvt.rn.f32.u32": convert32(coding{3, 1, 0, 0x7a}),
	}
}

// binaryOp is one instruction of the processor; with swap the sources may
// change places.
func binaryOp(op coding, swap bool) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.twoSources(op, swap, s)
		c.settle(s, s.D, d)
	}
}

func (c *compiler) twoSources(op coding, swap bool, s *step) []int {
	x, y := 0, 1
	if swap && s.sources[0].Form == Uniform {
		x, y = 1, 0
	}
	a := c.get(s.Op.Sources[x], s.sources[x])
	d := c.fresh(s.D)
	for part := range d {
		c.evex(op, zmm, d[part], a[part], c.operand(s.Op.Sources[y], s.sources[y], part), masked{})
	}
	return d
}

// float32Op is binaryOp with the one NaN that f32 arithmetic gives.
func float32Op(op coding, swap bool) func(*compiler, *step) {
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
		c.evex(coding{0, 1, 0, 0xc2}, zmm, 5, reg, inReg(reg), masked{}, 3) // vcmpunordps
		c.evex(coding{1, 1, 0, 0x6f}, zmm, reg, 0, inReg(zmmNaN), masked{k: 5})
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
		c.evex(vload64, zmm, reg, 0, inReg(sum[part]), masked{})
		c.evex(coding{1, 2, 0, 0xb8}, zmm, reg, a[part], c.operand(src[y], s.sources[y], part), masked{})
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
		c.evex(vload64, zmm, reg, 0, inReg(b[part]), masked{})
		c.evex(coding{1, 2, 1, 0xa8}, zmm, reg, a[part], c.operand(src[2], s.sources[2], part), masked{}) // vfmadd213pd
	}
	c.settle(s, s.D, d)
}

// flushSmall makes subnormal numbers in a register zeros of the same sign.
func (c *compiler) flushSmall(reg int) {
	c.evex(coding{2, 2, 0, 0x27}, zmm, 5, reg, c.word32(0x7f800000), masked{})  // vptestnmd
	c.evex(coding{1, 1, 0, 0xdb}, zmm, reg, reg, c.word32(1<<31), masked{k: 5}) // vpandd
}

// flushing is arithmetic with .ftz: subnormal sources and results are zeros.
func flushing(op coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		var from [3][]int
		for i, r := range s.Op.Sources {
			from[i] = c.get(r, s.sources[i])
		}
		d := c.fresh(s.D)
		for part, reg := range d {
			for i := range s.Op.Sources {
				c.evex(vload64, zmm, zmmT0+i, 0, inReg(from[i][part]), masked{})
				c.flushSmall(zmmT0 + i)
			}
			if len(s.Op.Sources) == 3 {
				c.evex(op, zmm, zmmT0, zmmT1, inReg(zmmT2), masked{}) // vfmadd213ps
				c.evex(vload64, zmm, reg, 0, inReg(zmmT0), masked{})
			} else {
				c.evex(op, zmm, reg, zmmT0, inReg(zmmT1), masked{})
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
func extreme32(better byte, equal coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		x, y := c.get(s.Op.Sources[0], s.sources[0]), c.get(s.Op.Sources[1], s.sources[1])
		d := c.fresh(s.D)
		compare := coding{0, 1, 0, 0xc2}
		for part, reg := range d {
			a, b := x[part], y[part]
			c.evex(compare, zmm, 5, a, inReg(b), masked{}, better)
			c.evex(coding{1, 2, 0, 0x64}, zmm, reg, b, inReg(a), masked{k: 5}) // vpblendmd
			c.evex(compare, zmm, 5, a, inReg(b), masked{}, 0)
			c.evex(equal, zmm, reg, a, inReg(b), masked{k: 5})
			c.evex(compare, zmm, 5, b, inReg(b), masked{}, 3)
			c.evex(coding{1, 1, 0, 0x6f}, zmm, reg, 0, inReg(a), masked{k: 5})
		}
		c.canonical(s, d)
		c.settle(s, s.D, d)
	}
}

func sqrt32(c *compiler, s *step) {
	d := c.fresh(s.D)
	for part, reg := range d {
		c.evex(coding{0, 1, 0, 0x51}, zmm, reg, 0, c.operand(s.Op.Sources[0], s.sources[0], part), masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

func reciprocal32(c *compiler, s *step) {
	d := c.fresh(s.D)
	c.evex(vpbroadcastd, zmm, zmmT0, 0, unbroadcast(c.word32(0x3f800000)), masked{})
	for part, reg := range d {
		c.evex(coding{0, 1, 0, 0x5e}, zmm, reg, zmmT0, c.operand(s.Op.Sources[0], s.sources[0], part), masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

// rsqrt32 is a division by a square root, as the lane kernel does it.
func rsqrt32(c *compiler, s *step) {
	d := c.fresh(s.D)
	c.evex(vpbroadcastd, zmm, zmmT0, 0, unbroadcast(c.word32(0x3f800000)), masked{})
	for part, reg := range d {
		c.evex(coding{0, 1, 0, 0x51}, zmm, reg, 0, c.operand(s.Op.Sources[0], s.sources[0], part), masked{})
		c.evex(coding{0, 1, 0, 0x5e}, zmm, reg, zmmT0, inReg(reg), masked{})
	}
	c.canonical(s, d)
	c.settle(s, s.D, d)
}

func convert32(op coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.fresh(s.D)
		for part, reg := range d {
			c.evex(op, zmm, reg, 0, c.operand(s.Op.Sources[0], s.sources[0], part), masked{})
		}
		c.settle(s, s.D, d)
	}
}

func madOp(mul, add coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.twoSources(mul, true, s)
		for part, reg := range d {
			c.evex(add, zmm, reg, reg, c.operand(s.Op.Sources[2], s.sources[2], part), masked{})
		}
		c.settle(s, s.D, d)
	}
}

// constantOp combines a source with a constant.
func constantOp(op coding, v uint64) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		k := c.word32(uint32(v))
		if s.D.Class == Bits64 {
			k = c.word64(v)
		}
		a := c.get(s.Op.Sources[0], s.sources[0])
		d := c.fresh(s.D)
		for part, reg := range d {
			c.evex(op, zmm, reg, a[part], k, masked{})
		}
		c.settle(s, s.D, d)
	}
}

func negate(sub coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.evex(coding{1, 1, 0, 0xef}, zmm, zmmT0, zmmT0, inReg(zmmT0), masked{})
		d := c.fresh(s.D)
		for part, reg := range d {
			c.evex(sub, zmm, reg, zmmT0, c.operand(s.Op.Sources[0], s.sources[0], part), masked{})
		}
		c.settle(s, s.D, d)
	}
}

func moveOp(c *compiler, s *step) {
	a := c.get(s.Op.Sources[0], s.sources[0])
	d := c.fresh(s.D)
	for part, reg := range d {
		c.evex(vload64, zmm, reg, 0, inReg(a[part]), masked{})
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
	c.vex(coding{1, 1, 1, 0x90}, false, 4, 0, predicate(s.Op.Sources[2].Slot))
	blend := coding{1, 2, 0, 0x64}
	if s.D.Class == Bits64 {
		blend.w = 1
	}
	for part, reg := range d {
		c.evex(blend, zmm, reg, no[part], inReg(yes[part]), masked{k: c.partMask(4, s.D.Class, part)})
	}
	c.settle(s, s.D, d)
}

// widen gets a quarter of a 32-bit source as 64 bits.
func (c *compiler) widen(op coding, reg int, r Ref, k Kind, part int) {
	if c.of(r).held == nil && k.Form == Vector && c.nextUse(r) < 0 {
		p := lanes(r, 0)
		p.disp += int32(part) * 32
		c.evex(op, zmm, reg, 0, p, masked{})
		return
	}
	from := c.get(r, k)[part/2]
	if part%2 == 1 {
		c.evex(coding{1, 3, 1, 0x3b}, zmm, from, 0, inReg(zmmT3), masked{}, 1) // vextracti64x4
		from = zmmT3
	}
	c.evex(op, zmm, reg, 0, inReg(from), masked{})
}

func widenOp(op coding) func(*compiler, *step) {
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
	c.evex(vpmovqd, zmm, from[0], 0, inReg(to), masked{})
	c.evex(vpmovqd, zmm, from[1], 0, inReg(zmmT0), masked{})
	c.evex(coding{1, 3, 1, 0x3a}, zmm, to, to, inReg(zmmT0), masked{}, 1) // vinserti64x4
}

// wideOp multiplies to 64 bits.
func wideOp(extend, mul coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		d := c.fresh(s.D)
		for part, reg := range d {
			c.widen(extend, reg, s.Op.Sources[0], s.sources[0], part)
			c.widen(extend, zmmT1, s.Op.Sources[1], s.sources[1], part)
			c.evex(mul, zmm, reg, reg, inReg(zmmT1), masked{})
			if len(s.Op.Sources) == 3 {
				c.evex(vpaddq, zmm, reg, reg, c.operand(s.Op.Sources[2], s.sources[2], part), masked{})
			}
		}
		c.settle(s, s.D, d)
	}
}

// shift64 shifts by a count of 32 bits.
func shift64(op coding) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		a := c.get(s.Op.Sources[0], s.sources[0])
		d := c.fresh(s.D)
		for part, reg := range d {
			c.widen(vpmovzxdq, zmmT1, s.Op.Sources[1], s.sources[1], part)
			c.evex(op, zmm, reg, a[part], inReg(zmmT1), masked{})
		}
		c.settle(s, s.D, d)
	}
}

// comparison returns how a comparison is encoded and its predicate.
func comparison(name string) (op coding, how byte, ok bool) {
	if cmp, signed, bits, isInt := condition(name); isInt {
		op = vpcmpud
		if signed {
			op = vpcmpd
		}
		if bits == "64" {
			op.w = 1
		}
		how, ok = integerOrders[cmp]
		return op, how, ok
	}
	cmp, t, _ := strings.Cut(strings.TrimPrefix(name, "setp."), ".")
	switch t {
	case "s16", "u16", "b16":
		return comparison("setp." + cmp + "." + t[:1] + "32")
	case "f32":
		op = coding{0, 1, 0, 0xc2}
	case "f64":
		op = coding{1, 1, 1, 0xc2}
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
		c.evex(op, zmm, 4+part%4, a[part], c.operand(r[1], s.sources[1], part), masked{}, how)
	}
	c.gatherBits(r[0].Class)
	c.setPredicate(s)
}

// compareHalves compares the lower 16 bits: it shifts them up, which keeps the order.
func (c *compiler) compareHalves(s *step, op coding, how byte) {
	for part := range 2 {
		for i, r := range s.Op.Sources {
			c.evex(vpsllvd, zmm, zmmT0+i, c.get(r, s.sources[i])[part], c.word32(16), masked{})
		}
		c.evex(op, zmm, 4+part, zmmT0, inReg(zmmT1), masked{}, how)
	}
	c.gatherBits(Bits32)
	c.setPredicate(s)
}

// gatherBits gets the answers of a round's parts, in k4 to k7, into eax.
func (c *compiler) gatherBits(class Class) {
	if class == Bits64 {
		c.vex(coding{1, 1, 0, 0x4b}, true, 4, 5, inReg(4)) // kunpckbw
		c.vex(coding{1, 1, 0, 0x4b}, true, 5, 7, inReg(6))
	}
	c.vex(coding{0, 1, 0, 0x4b}, true, 4, 5, inReg(4))    // kunpckwd
	c.vex(coding{3, 1, 0, 0x93}, false, rax, 0, inReg(4)) // kmovd
}

// setPredicate stores a round's bits of a predicate, which are in eax.
func (c *compiler) setPredicate(s *step) {
	p := predicate(s.D.Slot)
	if s.Private {
		c.legacy(false, opStore, rax, p)
		return
	}
	c.vex(coding{3, 1, 0, 0x93}, false, rdx, 0, inReg(int(c.guardMask(s))))
	c.legacy(false, opMov, rdi, p)
	c.legacy(false, opXor, rax, inReg(rdi))
	c.legacy(false, opAnd, rax, inReg(rdx))
	c.legacy(false, opXor, rax, inReg(rdi))
	c.legacy(false, opStore, rax, p)
}

// predicateOp combines predicates.
func predicateOp(c *compiler, s *step) {
	invert := func(reg int, yes bool) {
		if yes {
			c.legacy(false, []byte{0xf7}, 2, inReg(reg)) // not
		}
	}
	c.legacy(false, opMov, rax, predicate(s.Op.Sources[0].Slot))
	invert(rax, s.InvertA)
	if len(s.Op.Sources) == 2 {
		c.legacy(false, opMov, rdx, predicate(s.Op.Sources[1].Slot))
		invert(rdx, s.InvertB)
		c.legacy(false, map[string][]byte{"and.pred": opAnd, "or.pred": opOr, "xor.pred": opXor}[s.Name], rax, inReg(rdx))
	}
	c.setPredicate(s)
}
