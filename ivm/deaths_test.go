package ivm_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"muster/ivm"
)

const counted, rounds = 700, 40 // values of an element, which begin and end within pages

func init() {
	// The element puts 1 everywhere in its part, then 2, and so on.
	scenarios["counter"] = func(ctx context.Context, e *ivm.Element) error {
		s, err := ivm.MapSubset[int64](ctx, e, "counters", int(e.ID())*counted, counted)
		if err != nil {
			return err
		}
		for n := int64(1); n <= rounds; n++ {
			for i := range s.Data {
				s.Data[i] = n
			}
			if err := s.Put(ctx, 0, counted); err != nil {
				return err
			}
			if err := e.Signal(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Elements are killed at random, and a node dies: what an element had put before it signalled is
// there, nothing else is, and nobody waits for ever.
func TestRandomDeaths(t *testing.T) {
	for seed := range uint64(3) {
		randomDeaths(t, seed)
	}
}

func randomDeaths(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	nodes := cluster(t, 3)
	ctx, e := begin(t, nodes, "counter")
	const children = 7
	s := must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "counters", (children+1)*counted))
	for i := range children {
		must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(i%3), 1))
	}
	heard := make([]int64, children+1)
	for event, dies := 0, 20+rng.IntN(60); ; event++ {
		id, err := e.WaitAny(ctx)
		switch {
		case errors.Is(err, ivm.ErrNoElement): // all have ended
			verify(t, seed, s.Data, heard)
			check(t, e.Exit())
			return
		case errors.Is(err, ivm.ErrDead):
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		case heard[id] < rounds: // its end is heard after all signals
			heard[id]++
		}
		verify(t, seed, s.Data, heard)
		if event == dies {
			nodes[2].die()
		}
		if rng.IntN(25) == 0 {
			check(t, e.KillPEs(ctx, ivm.ID(1+rng.IntN(children))))
		}
	}
}

// verify looks at each element's values in the master: they are as it has put them.
func verify(t *testing.T, seed uint64, values, heard []int64) {
	t.Helper()
	for id, n := range heard {
		for i, v := range values[id*counted : (id+1)*counted] {
			if v < n || v > rounds || id == 0 && v != 0 {
				t.Fatalf("seed %d: value %d of element %d is %d, although it had put %d", seed, i, id, v, n)
			}
		}
	}
}
