package number

import (
	"math"
	"testing"

	"muster/ptx"
)

// Every value of 16 bits is read back as it was written, NaNs as some NaN.
func TestSmallFloatsRoundTrip(t *testing.T) {
	for _, typ := range []ptx.Type{ptx.F16, ptx.BF16} {
		for bits := range uint64(1 << 16) {
			text := Format(typ, bits)
			got, err := Parse(typ, text)
			if err != nil {
				t.Fatalf("%v %#04x: %v", typ, bits, err)
			}
			if got != bits && !(text == "nan" && math.IsNaN(Float(typ, got))) {
				t.Fatalf("%v %#04x is written as %s and read as %#04x", typ, bits, text, got)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		typ  ptx.Type
		text string
		bits uint64
	}{
		{ptx.F16, "1", 0x3c00}, {ptx.F16, "-2", 0xc000}, {ptx.F16, "65504", 0x7bff}, {ptx.F16, "65519", 0x7bff},
		{ptx.F16, "6e-8", 0x0001}, {ptx.F16, "2e-8", 0}, {ptx.F16, "-0", 0x8000}, {ptx.F16, "inf", 0x7c00},
		{ptx.F16, "2049", 0x6800}, {ptx.F16, "2051", 0x6802}, // ties to even
		{ptx.BF16, "1", 0x3f80}, {ptx.BF16, "3.14159", 0x4049}, {ptx.BF16, "1e-40", 0x0001},
		{ptx.F32, "0.1", 0x3dcccccd}, {ptx.F64, "0.1", 0x3fb999999999999a}, {ptx.F32, "nan", 0x7fc00000},
		{ptx.S8, "-128", 0x80}, {ptx.U8, "0xff", 0xff}, {ptx.S64, "-1", math.MaxUint64}, {ptx.B32, "0x80000000", 0x80000000},
	} {
		if got, err := Parse(c.typ, c.text); err != nil || got != c.bits {
			t.Errorf("%v:%s: got %#x, %v; want %#x", c.typ, c.text, got, err, c.bits)
		}
	}
	for _, bad := range []struct {
		typ  ptx.Type
		text string
	}{
		{ptx.F16, "65520"}, {ptx.BF16, "3.4e38"}, {ptx.F32, "1e39"}, {ptx.U8, "256"}, {ptx.U8, "-1"}, {ptx.S8, "128"}, {ptx.U32, "1.5"}, {ptx.F32, ""},
	} {
		if got, err := Parse(bad.typ, bad.text); err == nil {
			t.Errorf("%v:%s was read as %#x", bad.typ, bad.text, got)
		}
	}
}
