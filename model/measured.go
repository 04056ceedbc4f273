package model

import (
	"fmt"
	"math"
)

// Measured is what the processes of a job, or its part on a node, did since they began, as its nodes measured
// it: a profile. It has JSON names of its own since all who tell of it tell the same.
type Measured struct {
	// CPU is the time of all processes on processors, GPU that of their kernels on GPUs, Waited what their
	// programs waited for a GPU, and Moving the time in which the programs' memory was moved to GPUs and from
	// them. All are seconds.
	CPU    float64 `json:"cpu_s,omitempty"`
	GPU    float64 `json:"gpu_s,omitempty"`
	Waited float64 `json:"waited_s,omitempty"`
	Moving float64 `json:"moving_s,omitempty"`

	Kernels uint64 `json:"kernels,omitempty"`
	// CopiedIn and CopiedOut are what the programs copied to their memory on GPUs and from it, and SwapIn
	// and SwapOut what was moved so that they, or others, could run.
	CopiedIn  uint64 `json:"copied_in_bytes,omitempty"`
	CopiedOut uint64 `json:"copied_out_bytes,omitempty"`
	SwapIn    uint64 `json:"swap_in_bytes,omitempty"`
	SwapOut   uint64 `json:"swap_out_bytes,omitempty"`
}

// mostMeasured is more than can be, of seconds and of all that is counted: sums of it lose nothing.
const mostMeasured = 1 << 60

// Check refuses what no node has measured.
func (m *Measured) Check() error {
	for _, s := range []float64{m.CPU, m.GPU, m.Waited, m.Moving} {
		if !(s >= 0 && s <= mostMeasured) {
			return fmt.Errorf("a measured time of %v s", s)
		}
	}
	for _, n := range []uint64{m.Kernels, m.CopiedIn, m.CopiedOut, m.SwapIn, m.SwapOut} {
		if n > mostMeasured {
			return fmt.Errorf("a measured number of %d", n)
		}
	}
	return nil
}

// Plus adds what others did. No sum exceeds what Check lets pass.
func (m Measured) Plus(o Measured) Measured {
	seconds := func(a, b float64) float64 { return min(a+b, mostMeasured) }
	count := func(a, b uint64) uint64 { return min(min(a, mostMeasured)+min(b, mostMeasured), mostMeasured) }
	return Measured{
		CPU: seconds(m.CPU, o.CPU), GPU: seconds(m.GPU, o.GPU), Waited: seconds(m.Waited, o.Waited), Moving: seconds(m.Moving, o.Moving),
		Kernels: count(m.Kernels, o.Kernels), CopiedIn: count(m.CopiedIn, o.CopiedIn), CopiedOut: count(m.CopiedOut, o.CopiedOut),
		SwapIn: count(m.SwapIn, o.SwapIn), SwapOut: count(m.SwapOut, o.SwapOut),
	}
}

// Rounded is the same with times to the microsecond.
func (m Measured) Rounded() Measured {
	for _, s := range []*float64{&m.CPU, &m.GPU, &m.Waited, &m.Moving} {
		*s = math.Round(*s*1e6) / 1e6
	}
	return m
}
