package vgpu

import (
	"math"
	"time"
)

// Usage is what kernels took. Ran is the only place that it comes from: clients,
// devices and all clients that have gone have one each, and whoever shows
// kernels or GPU time of a node reads these.
type Usage struct {
	Kernels uint64
	GPUTime time.Duration
}

// maxUsage is the most that one client comes to, in kernels and in nanoseconds.
// What it says beyond that is not counted, so that no sum of several overflows
// unnoticed.
const maxUsage = math.MaxInt64 / 2

// within cuts what a client says that it used to what it may still say.
func (u Usage) within(before Usage) Usage {
	return Usage{min(u.Kernels, maxUsage-before.Kernels), min(u.GPUTime, maxUsage-before.GPUTime)}
}

// plus adds, and stays at the largest number there is where the sum would be
// larger.
func (u Usage) plus(v Usage) Usage {
	return Usage{saturated(u.Kernels, v.Kernels), saturated(u.GPUTime, v.GPUTime)}
}

func saturated[N uint64 | time.Duration](a, b N) N {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
