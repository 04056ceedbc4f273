package phased

import (
	"math/rand/v2"
	"time"
)

// Source draws the steps of one process. Equal seed, application and rank give equal steps,
// whatever executes them.
type Source struct {
	steps   []Step
	kernels []int32 // kernel number of each step
	at      int     // index of the next step
	bits    rand.PCG
}

// Sources makes the sources of a workload's processes.
type Sources struct {
	work    *Workload
	seed    uint64
	kernels [][]int32 // kernel number of each step, by application
}

// Sources makes the sources of all processes for a seed.
func (w *Workload) Sources(seed uint64) *Sources {
	s := &Sources{work: w, seed: seed, kernels: make([][]int32, len(w.Apps))}
	first := int32(0)
	for i := range w.Apps {
		numbers, different := w.Apps[i].kernels()
		for k := range numbers {
			numbers[k] += first
		}
		s.kernels[i] = numbers
		first += different
	}
	return s
}

// Of is the source of one process; rank is its index within the application.
func (s *Sources) Of(app, rank int) *Source {
	one := &Source{steps: s.work.Apps[app].Steps, kernels: s.kernels[app]}
	one.bits.Seed(scatter(s.seed), scatter(uint64(app)<<32|uint64(rank)))
	return one
}

// scatter maps neighbouring numbers to unrelated ones, injectively (the last step of SplitMix64).
// Without it, generators with similar seeds would produce similar numbers for a while.
func scatter(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Next draws the next step.
func (s *Source) Next() Draw {
	st := &s.steps[s.at]
	kernel := s.kernels[s.at]
	if s.at++; s.at == len(s.steps) {
		s.at = 0
	}
	gpu := whole(st.GPU.Draw(&s.bits))
	cpu := whole(st.CPU.Draw(&s.bits))
	return Draw{
		Kernel: kernel, CPU: time.Duration(cpu), GPU: time.Duration(gpu),
		In: st.In.draw(gpu, &s.bits), Out: st.Out.draw(gpu, &s.bits),
	}
}

// draw draws the size for a kernel of the given nanoseconds.
func (z *Size) draw(gpu int64, bits *rand.PCG) int64 {
	if z.PerSecond != 0 {
		return whole(float64(float64(z.PerSecond)*float64(gpu)) / 1e9)
	}
	if z.Bytes.Kind == Constant {
		return whole(z.Bytes.Mean)
	}
	return whole(z.Bytes.Draw(bits))
}

// whole rounds to the nearest integer. It limits values to 36 years or an exbibyte, which only the
// far end of a long tail exceeds.
func whole(x float64) int64 {
	const most = 1 << 60
	if x >= most {
		return most
	}
	return int64(x + 0.5)
}
