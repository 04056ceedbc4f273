package vec

import "fmt"

func init() {
	defineConversions[uint32, uint8]("u8")
	defineConversions[uint32, int8]("s8")
	defineConversions[uint32, uint16]("u16")
	defineConversions[uint32, int16]("s16")
	defineConversions[uint32, uint32]("u32")
	defineConversions[uint32, int32]("s32")
	defineConversions[uint64, uint64]("u64")
	defineConversions[uint64, int64]("s64")
}

// defineConversions adds the conversions of values of type T in lanes A.
func defineConversions[A lane, T integer](from string) {
	defineConversion[uint32, A, uint8, T]("u8", from)
	defineConversion[uint32, A, int8, T]("s8", from)
	defineConversion[uint32, A, uint16, T]("u16", from)
	defineConversion[uint32, A, int16, T]("s16", from)
	defineConversion[uint32, A, uint32, T]("u32", from)
	defineConversion[uint32, A, int32, T]("s32", from)
	defineConversion[uint64, A, uint64, T]("u64", from)
	defineConversion[uint64, A, int64, T]("s64", from)
}

func defineConversion[D, A lane, R, T integer](to, from string) {
	define(map[string]any{
		"cvt." + to + "." + from:     conversionShape(convert[D, A, R, T]),
		"cvt.sat." + to + "." + from: conversionShape(each1(saturate[D, A, R, T]())),
	})
}

func conversionShape(kernel any) any {
	switch k := kernel.(type) {
	case func(d, a []uint32):
		return Unary32(k)
	case func(d, a []uint64):
		return Unary64(k)
	case func(d []uint64, a []uint32):
		return Widen(k)
	case func(d []uint32, a []uint64):
		return Narrow(k)
	}
	panic(fmt.Sprintf("vec: %T has no shape of a conversion", kernel))
}

// convert makes values of type R from those of type T. The result fills its
// lane according to its sign.
func convert[D, A lane, R, T integer](d []D, a []A) { loop1(d, a, func(a A) D { return D(R(T(a))) }) }

// saturate is convert for one lane, with the nearest value there is in place
// of one that R does not have.
func saturate[D, A lane, R, T integer]() func(A) D {
	lowest, highest := limits[R]()
	return func(a A) D {
		x := T(a)
		r := R(x)
		switch {
		case T(r) == x && (r < 0) == (x < 0):
			return D(r)
		case x < 0:
			return D(lowest)
		default:
			return D(highest)
		}
	}
}

func limits[R integer]() (lowest, highest R) {
	if ^R(0) > 0 {
		return 0, ^R(0)
	}
	lowest = 1
	for lowest > 0 {
		lowest <<= 1
	}
	return lowest, ^lowest
}
