//go:build linux && amd64

package native

import (
	"os"
	"strings"
)

// Supported says whether this processor can run compiled code, and the system keeps
// the registers for it: with AVX-512 and its common extensions (F, BW, DQ, VL), or
// with AVX2 and FMA. As for Go's own code, GODEBUG=cpu.avx512f=off says that there
// is no AVX-512, and GODEBUG=cpu.avx2=off that there is neither.
func Supported() bool { return supported.wide || supported.narrow }

// Vectors names the vectors that compiled code uses here: "AVX-512", "AVX2", or "" if none can run.
func Vectors() string {
	switch {
	case supported.wide:
		return "AVX-512"
	case supported.narrow:
		return "AVX2"
	}
	return ""
}

var supported = findSupport(os.Getenv("GODEBUG"))

// support is which code a processor can run: for AVX-512 (wide), for AVX2 (narrow).
type support struct{ wide, narrow bool }

func findSupport(debug string) (s support) {
	if most, _, _, _ := cpuid(0, 0); most < 7 {
		return s
	}
	_, _, c1, _ := cpuid(1, 0)
	const fma, popcnt, osxsave, avx = 1 << 12, 1 << 23, 1 << 27, 1 << 28
	if c1&osxsave == 0 {
		return s
	}
	_, b7, _, _ := cpuid(7, 0)
	const avx2, f, dq, bw, vl = 1 << 5, 1 << 16, 1 << 17, 1 << 30, 1 << 31
	const narrowState, wideState = 0x06, 0xe6 // SSE and AVX, and the three parts of AVX-512
	state, _ := xgetbv()
	s.narrow = c1&(fma|popcnt|avx) == fma|popcnt|avx && b7&avx2 != 0 && state&narrowState == narrowState
	s.narrow = s.narrow && !strings.Contains(debug, "cpu.avx2=off")
	s.wide = s.narrow && b7&(f|dq|bw|vl) == f|dq|bw|vl && state&wideState == wideState
	s.wide = s.wide && !strings.Contains(debug, "cpu.avx512f=off")
	return s
}

func cpuid(leaf, sub uint32) (a, b, c, d uint32)
func xgetbv() (low, high uint32)
