package cores

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"muster/ivm/balance"
)

// worker is a worker of a guide, in virtual time.
type worker struct {
	busy, dead bool
	free       float64 // when it is done
	took       float64
	from, to   int
}

// guide is a guide of ivm/balance, or of the library in C.
type guide interface {
	Next(worker int, seconds float64) (from, to int, ok bool)
	Lose(worker int)
	Done() error
}

// given is a piece that a worker was given.
type given struct{ worker, from, to int }

// Guided has a guide hand out work to workers whose times have heavy tails, who die, and whose
// clocks lie. A worker that gets nothing asks again only if another died, as balance.Guided does.
// Every item must be done exactly once.
func Guided(seed uint64) error {
	_, err := guided(seed, ofGo)
	return err
}

func ofGo(items, workers int) guide { return balance.NewGuide(items, workers) }

// Guided has the guide in C do the same. It notes in Differs if the guide of ivm/balance decides otherwise.
func (c *InC) Guided(seed uint64) error {
	got, err := guided(seed, c.begin)
	if err != nil {
		return fmt.Errorf("in C: %w", err)
	}
	want, _ := guided(seed, ofGo) // what it does wrong is Guided's to say
	if c.Differs == nil && !slices.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		c.Differs = fmt.Errorf("guide, seed %d: after %d equal pieces {worker from to} C hands out %v, and Go %v", seed, at, got[at:], want[at:])
	}
	return nil
}

// guided plays one guide, and returns what it has handed out.
func guided(seed uint64, begin func(items, workers int) guide) (all []given, err error) {
	r := rand.New(rand.NewPCG(seed, 0x6775696465))
	items, n := []int{1, 2, 7, 64, 1000, 4096, 50_000}[r.IntN(7)], 1+r.IntN(9)
	alpha := 0.6 + 1.6*r.Float64() // the smaller, the heavier
	lies, dies := r.IntN(3) == 0, r.IntN(3) == 0
	speeds := make([]float64, n)
	for i := range speeds {
		speeds[i] = math.Exp(6 * (r.Float64() - 0.5))
	}
	g := begin(items, n)
	workers := make([]worker, n)
	done, doneBy := make([]int8, items), 0
	now := 0.0
	give := func(i int, seconds float64) {
		w := &workers[i]
		from, to, ok := g.Next(i, seconds)
		if w.busy = ok; !ok {
			return
		}
		w.from, w.to = from, to
		all = append(all, given{i, from, to})
		w.took = (0.001 + float64(to-from)/speeds[i]) * math.Pow(1-r.Float64(), -1/alpha)
		w.free = now + w.took
	}
	for i := range workers {
		give(i, 0)
	}
	for {
		next := -1
		for i := range workers {
			if workers[i].busy && (next < 0 || workers[i].free < workers[next].free) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		w := &workers[next]
		now = w.free
		if dies && n-doneBy > 1 && r.IntN(20) == 0 {
			doneBy++
			w.busy, w.dead = false, true
			g.Lose(next)
			for i := range workers {
				if !workers[i].busy && !workers[i].dead {
					give(i, 0)
				}
			}
			continue
		}
		for i := w.from; i < w.to; i++ {
			if done[i]++; done[i] > 1 {
				return all, fmt.Errorf("guide, seed %d: item %d of %d was done twice", seed, i, items)
			}
		}
		seconds := w.took
		if lies && r.IntN(4) == 0 {
			seconds = []float64{0, -1, math.NaN(), math.Inf(1), 1e300, 5e-324}[r.IntN(6)]
		}
		give(next, seconds)
	}
	lost := 0
	for _, times := range done {
		if times == 0 {
			lost++
		}
	}
	told := g.Done()
	switch {
	case lost > 0 && told == nil:
		return all, fmt.Errorf("guide, seed %d: %d of %d items were given to nobody by %d workers, and no one is told", seed, lost, items, n)
	case lost > 0:
		return all, fmt.Errorf("guide, seed %d: %d of %d items were given to nobody by %d workers: %w", seed, lost, items, n, told)
	case told != nil:
		return all, fmt.Errorf("guide, seed %d: all %d items were done, and the guide says: %w", seed, items, told)
	}
	return all, nil
}
