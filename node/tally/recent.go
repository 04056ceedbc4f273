package tally

import (
	"math"
	"time"

	"muster/node/vgpu"
	"muster/wire/control"
)

// Recent is how much one client has used a device lately. Both sums fade by 1/e in a second.
type Recent struct {
	Busy    float64 // seconds with work there; about the part of the last second
	Kernels float64
	At      time.Duration // of the last report
}

// fade is the time in which a client's use of a device counts for 1/e.
const fade = time.Second

// LongestReport is the longest time for which a single report counts: workers with work on a device
// report more often.
const LongestReport = fade

// Add counts what a client reports. A device has been in use for no longer than since the last
// report.
func (r Recent) Add(now time.Duration, kernels int, busy time.Duration) Recent {
	busy = min(busy, now-r.At, LongestReport)
	f := r.Faded(now)
	return Recent{min(1, f.Busy+busy.Seconds()), f.Kernels + float64(kernels), now}
}

// Faded is what counts at a later time.
func (r Recent) Faded(now time.Duration) Recent {
	f := math.Exp(-max(0, now-r.At).Seconds() / fade.Seconds())
	return Recent{r.Busy * f, r.Kernels * f, now}
}

// Uses is what a client has used lately, by device.
type Uses map[vgpu.DeviceID]Recent

// RanOn is what ran on a further device.
type RanOn struct {
	vgpu.Usage
	Moved uint64 // bytes that were copied to the device for it
}

func (r RanOn) Plus(m control.RanFurther) RanOn {
	r.Usage = Plus(r.Usage, vgpu.Usage{Kernels: uint64(m.Kernels), GPUTime: m.Busy})
	r.Moved = min(r.Moved+min(m.Moved, MaxCount), MaxCount)
	return r
}
