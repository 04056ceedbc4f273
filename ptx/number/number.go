// Package number reads and writes numbers of PTX's types as people write them, and finds them in
// bytes. It knows no kernel.
package number

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"muster/model"
	"muster/ptx"
)

// Types are those that values and buffers can have.
var Types = []ptx.Type{
	ptx.U8, ptx.U16, ptx.U32, ptx.U64, ptx.S8, ptx.S16, ptx.S32, ptx.S64,
	ptx.B8, ptx.B16, ptx.B32, ptx.B64, ptx.F16, ptx.BF16, ptx.F32, ptx.F64,
}

// ParseType reads the name of a type.
func ParseType(name string) (ptx.Type, error) {
	var names []string
	for _, t := range Types {
		if t.String() == name {
			return t, nil
		}
		names = append(names, t.String())
	}
	if other, ok := map[string]string{"int": "s32", "float": "f32", "double": "f64", "half": "f16", "char": "s8", "i32": "s32", "i64": "s64"}[name]; ok {
		return 0, fmt.Errorf("there is no type %q here: write %s", name, other)
	}
	if near := model.Nearest(name, names); near != "" {
		return 0, fmt.Errorf("there is no type %q: did you mean %s?", name, near)
	}
	return 0, fmt.Errorf("there is no type %q: it is one of %s", name, strings.Join(names, ", "))
}

// Parse returns the bits that a number has as a value of a type.
func Parse(t ptx.Type, text string) (uint64, error) {
	text = strings.TrimSpace(text)
	if t.Float() {
		return parseFloat(t, text)
	}
	if t.Signed() {
		n, err := strconv.ParseInt(text, 0, t.Bits())
		if err != nil {
			return 0, fmt.Errorf("%q is no %v: a whole number from %d to %d, or in hexadecimal with 0x", text, t, int64(-1)<<(t.Bits()-1), int64(1)<<(t.Bits()-1)-1)
		}
		return uint64(n) & Mask(t), nil
	}
	n, err := strconv.ParseUint(text, 0, t.Bits())
	if err != nil {
		return 0, fmt.Errorf("%q is no %v: a whole number from 0 to %d, or in hexadecimal with 0x", text, t, Mask(t))
	}
	return n, nil
}

func parseFloat(t ptx.Type, text string) (uint64, error) {
	size := 64
	if t == ptx.F32 {
		size = 32
	}
	f, err := strconv.ParseFloat(text, size)
	if err != nil {
		return 0, fmt.Errorf("%q is no %v: a number such as 1.5, -2e-3, inf or nan", text, t)
	}
	bits := encodeFloat(t, f)
	if math.IsInf(Float(t, bits), 0) && !math.IsInf(f, 0) {
		return 0, fmt.Errorf("%s is too large for %v", text, t)
	}
	return bits, nil
}

// Mask has all bits of a type.
func Mask(t ptx.Type) uint64 { return ^uint64(0) >> (64 - t.Bits()) }

// small is the form of a float of 16 bits.
type small struct{ exponent, mantissa int }

func smallForm(t ptx.Type) small {
	if t == ptx.BF16 {
		return small{8, 7}
	}
	return small{5, 10}
}

// encodeFloat rounds to the nearest value of a type.
func encodeFloat(t ptx.Type, f float64) uint64 {
	switch t {
	case ptx.F64:
		return math.Float64bits(f)
	case ptx.F32:
		return uint64(math.Float32bits(float32(f)))
	}
	s := smallForm(t)
	bias := 1<<(s.exponent-1) - 1
	infinity := uint64(1<<s.exponent-1) << s.mantissa
	bits := infinity
	switch {
	case math.IsNaN(f):
		return infinity | 1<<(s.mantissa-1)
	case f != 0 && !math.IsInf(f, 0):
		_, e := math.Frexp(f)
		e = max(e-1, 1-bias)
		whole := math.RoundToEven(math.Ldexp(math.Abs(f), s.mantissa-e))
		if e <= bias {
			bits = min(infinity, uint64(e+bias-1)<<s.mantissa+uint64(whole))
		}
	case f == 0:
		bits = 0
	}
	if math.Signbit(f) {
		bits |= 1 << 15
	}
	return bits
}

// Float returns the value of bits of a type.
func Float(t ptx.Type, bits uint64) float64 {
	switch t {
	case ptx.F64:
		return math.Float64frombits(bits)
	case ptx.F32:
		return float64(math.Float32frombits(uint32(bits)))
	}
	s := smallForm(t)
	bias := 1<<(s.exponent-1) - 1
	e := int(bits>>s.mantissa) & (1<<s.exponent - 1)
	m := bits & (1<<s.mantissa - 1)
	var f float64
	switch {
	case e == 1<<s.exponent-1 && m != 0:
		return math.NaN()
	case e == 1<<s.exponent-1:
		f = math.Inf(1)
	case e == 0:
		f = math.Ldexp(float64(m), 1-bias-s.mantissa)
	default:
		f = math.Ldexp(float64(m|1<<s.mantissa), e-bias-s.mantissa)
	}
	if bits>>15 != 0 {
		return -f
	}
	return f
}

// Format writes bits of a type so that Parse reads the same again,
// but for the bits of NaNs.
func Format(t ptx.Type, bits uint64) string {
	switch {
	case t.Float():
		size := 64
		if t != ptx.F64 {
			size = 32
		}
		f := Float(t, bits)
		switch {
		case math.IsNaN(f):
			return "nan"
		case math.IsInf(f, 1):
			return "inf"
		case math.IsInf(f, -1):
			return "-inf"
		}
		return strconv.FormatFloat(f, 'g', -1, size)
	case t.Signed():
		shift := 64 - t.Bits()
		return strconv.FormatInt(int64(bits<<shift)>>shift, 10)
	case t.Unsigned():
		return strconv.FormatUint(bits, 10)
	}
	return fmt.Sprintf("0x%0*x", t.Size()*2, bits)
}

// Get is the i-th element of a buffer.
func Get(t ptx.Type, b []byte, i int) uint64 {
	var word [8]byte
	copy(word[:], b[i*t.Size():][:t.Size()])
	return binary.LittleEndian.Uint64(word[:])
}

// Put sets the i-th element of a buffer.
func Put(t ptx.Type, b []byte, i int, bits uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], bits)
	copy(b[i*t.Size():], word[:t.Size()])
}

// Counting is i as a value of a type: integers wrap, floats round.
func Counting(t ptx.Type, i int) uint64 {
	if t.Float() {
		return encodeFloat(t, float64(i))
	}
	return uint64(i) & Mask(t)
}

// Random draws a value of a type: floats from 0 up to below, integers
// from 0 to below-1; all bit patterns of integers if below is 0.
func Random(t ptx.Type, r *rand.Rand, below uint64) uint64 {
	if t.Float() {
		// As many random bits as the type holds, so that rounding never gives
		// the bound itself.
		places := 53
		switch t {
		case ptx.F16:
			places = 11
		case ptx.BF16:
			places = 8
		case ptx.F32:
			places = 24
		}
		f := math.Ldexp(float64(r.Uint64()>>(64-places)), -places)
		return encodeFloat(t, f*float64(max(below, 1)))
	}
	if below == 0 {
		return r.Uint64() & Mask(t)
	}
	return r.Uint64N(below)
}
