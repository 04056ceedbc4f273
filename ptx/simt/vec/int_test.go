package vec

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"muster/internal/need"
)

// kind is a PTX type of an operand: b16, s32, u64 and so on.
type kind struct {
	signed bool
	bits   int
}

func kindOf(name string) (kind, bool) {
	bits, err := strconv.Atoi(name[1:])
	return kind{name[0] == 's', bits}, err == nil && strings.Contains("bsu", name[:1])
}

// of reads a value from the low bits of a lane.
func (k kind) of(lane uint64) *big.Int {
	x := new(big.Int).SetUint64(lane << (64 - k.bits) >> (64 - k.bits))
	if k.signed && x.Bit(k.bits-1) == 1 {
		x.Sub(x, power(k.bits))
	}
	return x
}

// wrap drops what is above the width, and fills with zeros.
func (k kind) wrap(x *big.Int) uint64 {
	return new(big.Int).Mod(x, power(k.bits)).Uint64()
}

func (k kind) limits() (lowest, highest *big.Int) {
	if k.signed {
		half := power(k.bits - 1)
		return new(big.Int).Neg(half), half.Sub(half, big.NewInt(1))
	}
	return new(big.Int), new(big.Int).Sub(power(k.bits), big.NewInt(1))
}

func (k kind) clamp(x *big.Int) *big.Int {
	lowest, highest := k.limits()
	if x.Cmp(lowest) < 0 {
		return lowest
	}
	if x.Cmp(highest) > 0 {
		return highest
	}
	return x
}

func power(n int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(n)) }

// oracle computes a lane of an integer kernel the long way, from the name and
// the text of the PTX manual: exact integers for arithmetic, bit by bit for
// the rest. Carries go in and out as 0 or 1.
func oracle(name string, lane []uint64, carry uint64) (d, out uint64) {
	part := strings.Split(name, ".")
	k, _ := kindOf(part[len(part)-1])
	has := func(s string) bool { return slices.Contains(part[1:], s) }
	operand := func(i int) *big.Int { return k.of(lane[i]) }
	switch part[0] {
	case "cvt":
		if has("pack") {
			to, ok := kindOf(part[3])
			if !ok {
				panic("no kind of integers in " + name)
			}
			from := kind{signed: true, bits: 32}
			low, high := to.wrap(to.clamp(from.of(lane[1]))), to.wrap(to.clamp(from.of(lane[0])))
			d = low | high<<to.bits
			if len(lane) == 3 {
				d |= lane[2] << (2 * to.bits) & 0xffffffff
			}
			return d, 0
		}
		to, _ := kindOf(part[len(part)-2])
		x := k.of(lane[0])
		if has("sat") {
			x = to.clamp(x)
		}
		fill := kind{bits: max(32, to.bits)}
		return fill.wrap(to.of(to.wrap(x))), 0
	case "setp":
		order := operand(0).Cmp(operand(1))
		switch part[1] {
		case "eq":
			return bit(order == 0), 0
		case "ne":
			return bit(order != 0), 0
		case "lt":
			return bit(order < 0), 0
		case "le":
			return bit(order <= 0), 0
		case "gt":
			return bit(order > 0), 0
		}
		return bit(order >= 0), 0
	case "slct":
		if int32(lane[2]) >= 0 {
			return lane[0], 0
		}
		return lane[1], 0
	}
	if strings.HasSuffix(name, "16x2") {
		half := strings.TrimSuffix(name, "x2")
		low, high := make([]uint64, len(lane)), make([]uint64, len(lane))
		for i, x := range lane {
			low[i], high[i] = x&0xffff, x>>16&0xffff
		}
		l, _ := oracle(half, low, 0)
		h, _ := oracle(half, high, 0)
		return h<<16 | l, 0
	}
	if d, ok := oracleBits(part, k, lane); ok {
		return d, 0
	}

	x := new(big.Int)
	switch part[0] {
	case "add", "addc":
		x.Add(operand(0), operand(1))
	case "sub", "subc":
		x.Sub(operand(0), operand(1))
		carry-- // a clear flag is a borrow
	case "mul", "mad", "madc":
		x.Mul(operand(0), operand(1))
		switch {
		case has("hi"):
			x.Rsh(x, uint(k.bits))
		case has("wide"):
			k.bits *= 2
		}
	case "mul24", "mad24":
		k24 := kind{k.signed, 24}
		x.Mul(k24.of(lane[0]), k24.of(lane[1]))
		if has("hi") {
			x.Rsh(x, 16)
		}
	case "div":
		if operand(1).Sign() == 0 {
			return k.wrap(big.NewInt(-1)), 0
		}
		x.Quo(operand(0), operand(1))
	case "rem":
		if operand(1).Sign() == 0 {
			return k.wrap(big.NewInt(-1)), 0
		}
		x.Rem(operand(0), operand(1))
	case "min", "max":
		x = operand(0)
		if order := operand(1).Cmp(x); order < 0 && part[0] == "min" || order > 0 && part[0] == "max" {
			x = operand(1)
		}
		if has("relu") && x.Sign() < 0 {
			x = new(big.Int)
		}
	case "sad":
		x.Add(x.Abs(x.Sub(operand(0), operand(1))), operand(2))
	case "neg":
		x.Neg(operand(0))
	case "abs":
		x.Abs(operand(0))
	default:
		panic("no oracle for " + name)
	}
	if strings.HasPrefix(part[0], "mad") {
		x = k.of(k.wrap(x)) // the half that is added, at the width of the sum
		x.Add(x, k.of(lane[2]))
	}
	if has("sat") {
		return k.wrap(k.clamp(x)), 0
	}
	takes := strings.HasSuffix(part[0], "c")
	if !takes {
		carry = 0
	}
	if takes || has("cc") {
		// The carry is that of the bits without a sign.
		u := kind{bits: k.bits}
		switch part[0] {
		case "mad", "madc":
			p := new(big.Int).Mul(operand(0), operand(1))
			if has("hi") {
				p.Rsh(p, uint(k.bits))
			}
			x = new(big.Int).SetUint64(u.wrap(p))
			x.Add(x, u.of(lane[2]))
		}
		x.Add(x, big.NewInt(int64(carry)))
		out = bit(x.Cmp(power(k.bits)) >= 0)
		if strings.HasPrefix(part[0], "sub") {
			out = bit(x.Sign() >= 0) // the flag says that nothing was borrowed
		}
	}
	return k.wrap(x), out
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// oracleBits is the part of the oracle that goes bit by bit.
func oracleBits(part []string, k kind, lane []uint64) (d uint64, ok bool) {
	at := func(i, n int) uint64 { // bit n of operand i, none beyond the width
		if n < 0 || n >= k.bits {
			return 0
		}
		return lane[i] >> n & 1
	}
	each := func(f func(n int) uint64) (uint64, bool) {
		var d uint64
		for n := range k.bits {
			d |= f(n) << n
		}
		return d, true
	}
	sign := at(0, k.bits-1)
	if !k.signed {
		sign = 0
	}
	switch part[0] {
	case "and":
		return each(func(n int) uint64 { return at(0, n) * at(1, n) })
	case "or":
		return each(func(n int) uint64 { return max(at(0, n), at(1, n)) })
	case "xor":
		return each(func(n int) uint64 { return (at(0, n) + at(1, n)) % 2 })
	case "not":
		return each(func(n int) uint64 { return 1 - at(0, n) })
	case "cnot":
		return bit(k.of(lane[0]).Sign() == 0), true
	case "lop3":
		return each(func(n int) uint64 { return lane[3] >> (4*at(0, n) + 2*at(1, n) + at(2, n)) & 1 })
	case "shl":
		count := int(uint32(lane[1]))
		return each(func(n int) uint64 { return at(0, n-count) })
	case "shr":
		count := int(uint32(lane[1]))
		return each(func(n int) uint64 {
			if n+count >= k.bits {
				return sign
			}
			return at(0, n+count)
		})
	case "shf":
		count := int(uint32(lane[2])) % 32
		if part[2] == "clamp" {
			count = int(min(uint32(lane[2]), 32))
		}
		if part[1] == "l" {
			count = 32 - count
		}
		return each(func(n int) uint64 {
			if n += count; n >= 32 {
				return at(1, n-32)
			}
			return at(0, n)
		})
	case "popc":
		for n := range k.bits {
			d += at(0, n)
		}
		return d, true
	case "brev":
		return each(func(n int) uint64 { return at(0, k.bits-1-n) })
	case "clz", "bfind":
		if part[0] == "clz" {
			sign = 0
		}
		top := k.bits - 1
		for top >= 0 && at(0, top) == sign {
			top--
		}
		switch {
		case part[0] == "clz":
			return uint64(k.bits - 1 - top), true
		case top < 0:
			return 0xffffffff, true
		case part[1] == "shiftamt":
			return uint64(k.bits - 1 - top), true
		}
		return uint64(top), true
	case "bfe":
		pos, length := int(uint8(lane[1])), int(uint8(lane[2]))
		fill := at(0, min(pos+length-1, k.bits-1))
		if !k.signed || length == 0 {
			fill = 0
		}
		return each(func(n int) uint64 {
			if n < length && pos+n < k.bits {
				return at(0, pos+n)
			}
			return fill
		})
	case "bmsk", "szext":
		first, width := int(uint32(lane[0])), int(uint32(lane[1]))
		if part[1] == "wrap" {
			first, width = first%32, width%32
		}
		if part[0] == "bmsk" {
			return each(func(n int) uint64 { return bit(n >= first && n-first < width) })
		}
		fill := uint64(0)
		if k.signed {
			fill = at(0, min(width, 32)-1)
		}
		return each(func(n int) uint64 {
			if n < width {
				return at(0, n)
			}
			return fill
		})
	case "fns":
		base, offset := int(uint32(lane[1])), int(int32(lane[2]))
		var found []int // the places to count, in order
		for n := range 32 {
			if at(0, n) != 0 && (offset >= 0 && n >= base || offset < 0 && n <= base) {
				found = append(found, n)
			}
		}
		switch {
		case base >= 32, offset == 0 && at(0, base) == 0, max(offset, -offset) > len(found):
			return 0xffffffff, true
		case offset == 0:
			return uint64(base), true
		case offset < 0:
			return uint64(found[len(found)+offset]), true
		}
		return uint64(found[offset-1]), true
	case "bfi":
		pos, length := int(uint8(lane[2])), int(uint8(lane[3]))
		return each(func(n int) uint64 {
			if n >= pos && n < pos+length {
				return at(0, n-pos)
			}
			return at(1, n)
		})
	case "prmt":
		mode := uint32(lane[2])
		for n := range 4 {
			from, signs := permuted(part[1], mode, n)
			x := at(from/4, from%4*8+7) * 0xff
			if !signs {
				x = lane[from/4] >> (from % 4 * 8) & 0xff
			}
			d |= x << (8 * n)
		}
		return d, true
	case "dp4a", "dp2a":
		a, _ := kindOf(part[len(part)-2])
		b := k
		a.bits, b.bits = 8, 8
		if part[0] == "dp2a" {
			a.bits = 16
		}
		y := lane[1]
		if part[1] == "hi" {
			y >>= 16
		}
		sum := kind{bits: 32}.of(lane[2])
		for n := range 32 / a.bits {
			sum.Add(sum, new(big.Int).Mul(a.of(lane[0]>>(n*a.bits)), b.of(y>>(8*n))))
		}
		return kind{bits: 32}.wrap(sum), true
	}
	return 0, false
}

// permuted is the byte of b above a that goes to byte n, and whether only its
// sign does.
func permuted(mode string, c uint32, n int) (from int, signs bool) {
	shift := int(c & 3)
	switch mode {
	case "f4e":
		return shift + n, false
	case "b4e":
		return (shift + 8 - n) % 8, false
	case "rc8":
		return shift, false
	case "ecl":
		return max(shift, n), false
	case "ecr":
		return min(shift, n), false
	case "rc16":
		return shift%2*2 + n%2, false
	}
	s := int(c >> (4 * n) & 15)
	return s % 8, s >= 8
}

// integerNames are the names of kernels without floats. An operation on bits
// counts as one, unless it chooses or converts by a float.
func integerNames() []string {
	var all []string
	for _, name := range Names() {
		float := false
		for _, part := range strings.Split(name, ".")[1:] {
			if strings.HasPrefix(part, "f16") || strings.HasPrefix(part, "bf") || strings.HasPrefix(part, "tf") || part == "f32" || part == "f64" {
				float = true
			}
		}
		if !float {
			all = append(all, name)
		}
	}
	return all
}

// TestIntegerKernels compares the kernels with the oracle, on a part of
// the lanes, for time.
func TestIntegerKernels(t *testing.T) {
	lanes := need.Rounds(400, 1000)
	r := seeded(t)
	for _, name := range integerNames() {
		sources, in := operands(r, name, manyLanes)
		r.Shuffle(manyLanes, func(i, j int) {
			for _, s := range sources {
				s[i], s[j] = s[j], s[i]
			}
		})
		for i := range sources {
			sources[i] = sources[i][:lanes]
		}
		checkLanes(t, name, kernels[name], sources, in)
	}
}

// TestLop3 goes through all tables, of which a run has one.
func TestLop3(t *testing.T) {
	r := seeded(t)
	for table := range uint64(256) {
		sources := [][]uint64{manyBits(r, 20), manyBits(r, 20), manyBits(r, 20), slices.Repeat([]uint64{table}, 20)}
		checkLanes(t, "lop3.b32", Kernel("lop3.b32"), sources, []uint64{0})
	}
}

func checkLanes(t *testing.T, name string, kernel any, sources [][]uint64, in []uint64) {
	t.Helper()
	n := len(sources[0])
	d, carries := trial{kernel, n, sources, in, -1}.mustRun(t, name)
	wide, from := widths(kernel)
	for i := range n {
		var lane []uint64
		for j := range sources {
			lane = append(lane, sources[j][i]&(^uint64(0)>>(64-from[j])))
		}
		want, wantOut := oracle(name, lane, in[i/64]>>(i%64)&1)
		var got uint64
		if wide == 1 {
			got = d[i/64] >> (i % 64) & 1
		} else {
			got = d[i]
		}
		if got != want {
			t.Errorf("%s of %#x: %#x, want %#x", name, lane, got, want)
			return
		}
		if takesCarry(kernel) {
			if !strings.Contains(name, ".cc.") {
				wantOut = in[i/64] >> (i % 64) & 1 // left as it was
			}
			if gotOut := carries[i/64] >> (i % 64) & 1; gotOut != wantOut {
				t.Errorf("%s of %#x: carry %d, want %d", name, lane, gotOut, wantOut)
				return
			}
		}
	}
}

// TestIntegerExamples pins results worked out by hand, beside the oracle.
func TestIntegerExamples(t *testing.T) {
	tests := []struct {
		name string
		want uint64
		from []uint64
	}{
		{"add.b16", 0x0000, []uint64{0xffff, 1}},
		{"sub.b16", 0xffff, []uint64{0, 1}},
		{"mul.hi.s32", 0xffffffff, []uint64{0xffffffff, 1}},
		{"mul.hi.u64", 1, []uint64{1 << 63, 2}},
		{"mul.hi.s64", ^uint64(0), []uint64{1 << 63, 2}},
		{"mul.wide.s16", 0xffffffff, []uint64{0xffff, 1}},
		{"mul.wide.s32", 0x4000000000000000, []uint64{1 << 31, 1 << 31}},
		{"div.s32", 0x80000000, []uint64{0x80000000, 0xffffffff}},
		{"rem.s32", 0, []uint64{0x80000000, 0xffffffff}},
		{"div.s16", 0xffff, []uint64{5, 0}},
		{"rem.s16", 0xffff, []uint64{5, 0}},
		{"rem.u32", 0xffffffff, []uint64{5, 0}},
		{"rem.s32", 0xffffffff, []uint64{5, 0}},
		{"rem.u64", ^uint64(0), []uint64{5, 0}},
		{"shr.s32", 0xffffffff, []uint64{0x80000000, 99}},
		{"shl.b64", 0, []uint64{1, 64}},
		{"shr.s16", 0xffff, []uint64{0x8000, 16}},
		{"abs.s16", 0x8000, []uint64{0x8000}},
		{"add.sat.s32", 0x7fffffff, []uint64{0x7fffffff, 1}},
		{"mul24.hi.s32", 0xffffffff, []uint64{0xffffff, 1}},
		{"bfind.s32", 0xffffffff, []uint64{0xffffffff}},
		{"bfind.shiftamt.u32", 31, []uint64{1}},
		{"bfe.s32", 0xffffffff, []uint64{0x80, 7, 1}},
		{"bfe.s32", 0xfffffff8, []uint64{0x80000000, 28, 8}},
		{"bfi.b32", 0xf5, []uint64{5, 0xff, 0, 4}},
		{"shf.l.wrap.b32", 0x34567812, []uint64{0x12000000, 0x12345678, 8}},
		{"shf.r.clamp.b32", 0x12345678, []uint64{0, 0x12345678, 200}},
		{"prmt.b32", 0x88aa11ff, []uint64{0x11223344 &^ 0xff00, 0x8899aabb, 0x7_5_3_c}},
		{"lop3.b32", 0x96, []uint64{0xf0, 0xcc, 0xaa, 0x96}},
		{"lop3.b32", 0xe8, []uint64{0xf0, 0xcc, 0xaa, 0xe8}},
		{"dp4a.s32.s32", 0xfffffffc, []uint64{0xffffffff, 0x01010101, 0}},
		{"dp2a.hi.u32.u32", 0x1fe + 3, []uint64{0x00010001, 0xffff0000, 3}},
		{"cvt.s8.u32", 0xffffff80, []uint64{0x180}},
		{"cvt.sat.s8.u32", 0x7f, []uint64{0x180}},
		{"cvt.sat.u16.s64", 0, []uint64{^uint64(0)}},
		{"cvt.u64.s32", 0xffffffff80000000, []uint64{0x80000000}},
		{"cvt.s64.u32", 0x80000000, []uint64{0x80000000}},
		{"cvt.sat.s64.u64", 0x7fffffffffffffff, []uint64{1 << 63}},
		{"min.relu.s16x2", 0x0001_0000, []uint64{0x0002_ffff, 0x0001_0004}},
		{"neg.s16x2", 0x0001_8000, []uint64{0xffff_8000}},
	}
	for _, tt := range tests {
		var sources [][]uint64
		for _, x := range tt.from {
			sources = append(sources, []uint64{x})
		}
		d, _ := trial{Kernel(tt.name), 1, sources, nil, -1}.mustRun(t, tt.name)
		if d[0] != tt.want {
			t.Errorf("%s of %#x = %#x, want %#x", tt.name, tt.from, d[0], tt.want)
		}
	}
}

// TestIntegerNames holds the table to the names PTX has, so that none is lost.
func TestIntegerNames(t *testing.T) {
	for _, name := range wantedIntegerNames() {
		if Kernel(name) == nil {
			t.Errorf("no kernel %s", name)
		}
	}
}

func wantedIntegerNames() []string {
	var all []string
	cross := func(format string, lists ...string) {
		parts := [][]any{nil}
		for _, list := range lists {
			var next [][]any
			for _, p := range parts {
				for _, item := range strings.Fields(list) {
					next = append(next, append(slices.Clone(p), item))
				}
			}
			parts = next
		}
		for _, p := range parts {
			all = append(all, fmt.Sprintf(format, p...))
		}
	}
	const types = "u8 s8 u16 s16 u32 s32 u64 s64"
	cross("%s.%s", "add sub mul.lo mad.lo shl not cnot setp.eq setp.ne", "b16 b32 b64")
	cross("%s.%s", "and or xor popc clz brev bfi", "b32 b64")
	cross("%s.%s", "mul.hi mad.hi div rem min max sad shr setp.lt setp.le setp.gt setp.ge", "s16 u16 s32 u32 s64 u64")
	cross("%s.%s", "mul.wide mad.wide", "s16 u16 s32 u32")
	cross("%s.%s", "mul24.lo mul24.hi mad24.lo mad24.hi", "s32 u32")
	cross("%s.%s", "bfind bfind.shiftamt bfe", "s32 u32 s64 u64")
	cross("%s.%s", "neg abs", "s16 s32 s64")
	cross("%s.s32", "add.sat sub.sat mad.hi.sat mad24.hi.sat min.relu max.relu slct.b16 slct.b32 slct.b64")
	cross("%s", "add.b16x2 neg.s16x2 min.s16x2 max.s16x2 min.u16x2 max.u16x2 min.relu.s16x2 max.relu.s16x2 lop3.b32 prmt.b32")
	cross("shf.%s.%s.b32", "l r", "wrap clamp")
	cross("prmt.%s.b32", "f4e b4e rc8 ecl ecr rc16")
	cross("%s.%s.%s", "dp4a dp2a.lo dp2a.hi", "s32 u32", "s32 u32")
	cross("%s.%s", "add.cc addc addc.cc sub.cc subc subc.cc mad.lo.cc madc.lo madc.lo.cc", "b32 b64")
	cross("%s.%s", "mad.hi.cc madc.hi madc.hi.cc", "s32 u32 s64 u64")
	cross("%s.%s.%s", "cvt cvt.sat", types, types)
	return all
}

// TestCarryTakesNil leaves out what a form has no use for.
func TestCarryTakesNil(t *testing.T) {
	d, carry := []uint32{0}, []uint64{0}
	Kernel("add.cc.b32").(Carry32)(d, []uint32{0xffffffff}, []uint32{1}, nil, nil, carry)
	if d[0] != 0 || carry[0] != 1 {
		t.Errorf("add.cc.b32 of ffffffff and 1 = %#x, carry %d; want 0, carry 1", d[0], carry[0])
	}
	Kernel("subc.b32").(Carry32)(d, []uint32{0}, []uint32{0}, nil, carry, nil)
	if d[0] != 0 {
		t.Errorf("subc.b32 of 0 and 0 with the flag set = %#x, want 0", d[0])
	}
	Kernel("sub.cc.b32").(Carry32)(d, []uint32{0}, []uint32{1}, nil, nil, carry)
	if d[0] != 0xffffffff || carry[0] != 0 {
		t.Errorf("sub.cc.b32 of 0 and 1 = %#x, flag %d; want ffffffff, flag 0", d[0], carry[0])
	}
	Kernel("mad.lo.cc.b32").(Carry32)(d, []uint32{3}, []uint32{5}, []uint32{0xfffffff1}, nil, carry)
	if d[0] != 0 || carry[0] != 1 {
		t.Errorf("mad.lo.cc.b32 of 3, 5 and -15 = %#x, carry %d; want 0, carry 1", d[0], carry[0])
	}
}
