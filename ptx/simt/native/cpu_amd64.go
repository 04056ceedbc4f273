//go:build linux && amd64

package native

import (
	"os"
	"strings"
)

// Supported says whether this processor can run compiled code: it must have
// AVX-512 with its common extensions (F, BW, DQ, VL), and the system must keep
// its registers. With GODEBUG=cpu.avx512f=off the answer is no, as for Go's own
// code.
func Supported() bool { return supported }

var supported = findSupport()

func findSupport() bool {
	if strings.Contains(os.Getenv("GODEBUG"), "cpu.avx512f=off") {
		return false
	}
	if most, _, _, _ := cpuid(0, 0); most < 7 {
		return false
	}
	_, _, c1, _ := cpuid(1, 0)
	const osxsave = 1 << 27
	if c1&osxsave == 0 {
		return false
	}
	const state = 0xe6 // SSE, AVX, and the three parts of AVX-512
	if low, _ := xgetbv(); low&state != state {
		return false
	}
	_, b7, _, _ := cpuid(7, 0)
	const f, dq, bw, vl = 1 << 16, 1 << 17, 1 << 30, 1 << 31
	return b7&(f|dq|bw|vl) == f|dq|bw|vl
}

func cpuid(leaf, sub uint32) (a, b, c, d uint32)
func xgetbv() (low, high uint32)
