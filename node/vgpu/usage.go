package vgpu

import (
	"math"
	"time"
)

// Usage is what kernels took. Ran is the only place that it comes from: each client,
// each device, and all clients that have gone have one, and every display of a node's
// kernels or GPU time reads these.
type Usage struct {
	Kernels uint64
	GPUTime time.Duration
}

// maxUsage is the largest count of one client, in kernels and in nanoseconds. Reports
// beyond it are not counted, so that no sum of several overflows unnoticed.
const maxUsage = math.MaxInt64 / 2

// within cuts what a client reports to what it may still add.
func (u Usage) within(before Usage) Usage {
	return Usage{min(u.Kernels, maxUsage-before.Kernels), min(u.GPUTime, maxUsage-before.GPUTime)}
}

// plus adds, and saturates at the largest number.
func (u Usage) plus(v Usage) Usage {
	return Usage{saturated(u.Kernels, v.Kernels), saturated(u.GPUTime, v.GPUTime)}
}

func saturated[N uint64 | time.Duration](a, b N) N {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
