//go:build goexperiment.simd

package vec

import "simd/archsimd"

// A build with vectors runs on every processor: those without AVX-512 use the
// plain kernels. It sorts behind the files that define these.
func init() {
	if !archsimd.X86.AVX512() {
		inUse.Reason = "the processor has no AVX-512"
		return
	}
	inUse = Choice{Name: "avx512"}
	installIntegers()
	installFloats()
	installMovers()
}
