package phased

import (
	"math"
	"math/rand/v2"
	"time"
)

// Kind is a family of distributions.
type Kind uint8

// The families.
const (
	Constant Kind = iota
	Exponential
)

// Dist is a distribution of numbers that are not negative.
type Dist struct {
	Kind Kind
	Mean float64
	// Shape is what the family makes of it; not all have one.
	Shape float64
}

// Draw is a number from the distribution.
func (d Dist) Draw(rng *rand.Rand) float64 {
	if d.Kind == Exponential {
		return -math.Log(1-rng.Float64()) * d.Mean
	}
	return d.Mean
}

// Source draws the steps of one process. The same seed, application and rank give
// the same steps, whatever runs them.
type Source struct {
	app   *App
	first int32 // kernel number of each step, from here
	step  int
	rng   *rand.Rand
}

// Source is that of one process: rank counts those of the application.
func (w *Workload) Source(app, rank int, seed uint64) *Source {
	return &Source{app: &w.Apps[app], rng: rand.New(rand.NewPCG(seed, uint64(app)<<32|uint64(rank)))}
}

// Next is the next step.
func (s *Source) Next() Draw {
	st := &s.app.Steps[s.step%len(s.app.Steps)]
	s.step++
	gpu := time.Duration(st.GPU.Draw(s.rng))
	return Draw{
		CPU: time.Duration(st.CPU.Draw(s.rng)), GPU: gpu,
		In: st.In.of(gpu, s.rng), Out: st.Out.of(gpu, s.rng),
	}
}

func (z Size) of(gpu time.Duration, rng *rand.Rand) int64 {
	if z.PerSecond > 0 {
		return int64(float64(z.PerSecond) * gpu.Seconds())
	}
	return int64(z.Bytes.Draw(rng))
}
