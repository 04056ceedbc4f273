package ivm_test

import (
	"context"
	"os"
	"testing"

	"muster/ivm"
	"muster/ivm/balance"
)

const items = 400

var (
	devices    = []ivm.Device{ivm.CPU(0), ivm.CPU(1), ivm.CPU(2)}
	spawning   = balance.Spawning{Portions: 8, Iterations: 2, Devices: devices}
	monitoring = balance.Monitoring{Iterations: 3, Devices: devices, Threshold: 1e9, Most: 5}
	guided     = balance.Guided{Items: items, Devices: devices}
)

// count adds one to items of the object, and puts them.
func count(ctx context.Context, e *ivm.Element, from, to int) error {
	s, err := ivm.Map[int64](ctx, e, "counts")
	if err != nil || from == to {
		return err
	}
	if err := s.Get(ctx, from, to); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		s.Data[i]++
	}
	return s.Put(ctx, from, to)
}

func init() {
	scenarios["spawning"] = func(ctx context.Context, e *ivm.Element) error {
		return spawning.Child(ctx, e, func(int) error { return nil }, func(portion int) error {
			from, to := balance.Share(items, portion, spawning.Portions)
			return count(ctx, e, from, to)
		})
	}
	scenarios["monitoring"] = func(ctx context.Context, e *ivm.Element) error {
		return monitoring.Child(ctx, e, func(_, part, parts int) error {
			from, to := balance.Share(items, part, parts)
			return count(ctx, e, from, to)
		})
	}
	scenarios["guided"] = func(ctx context.Context, e *ivm.Element) error {
		return guided.Child(ctx, e, func(from, to int) error { return count(ctx, e, from, to) })
	}
	scenarios["guidedcrash"] = func(ctx context.Context, e *ivm.Element) error {
		return guided.Child(ctx, e, func(from, to int) error {
			if e.ID() == 2 {
				os.Exit(1)
			}
			return count(ctx, e, from, to)
		})
	}
}

func TestBalancersDoAllWorkOnce(t *testing.T) {
	for _, c := range []struct {
		scenario string
		root     func(context.Context, *ivm.Element) error
		want     int64
		rounds   int64 // the work is divided again; Spawning has iterations for that
	}{
		{"spawning", func(ctx context.Context, e *ivm.Element) error { return spawning.Root(ctx, e, nil) }, 2, 1},
		{"monitoring", monitoring.Root, 3, 2},
		{"guided", guided.Root, 1, 2},
		{"guidedcrash", guided.Root, 1, 1},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			ctx, e := begin(t, cluster(t, 3), c.scenario)
			s := must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "counts", items))
			for round := int64(1); round <= c.rounds; round++ {
				check(t, c.root(ctx, e))
				for i, n := range s.Data {
					if n != c.want*round {
						t.Fatalf("item %d was done %d times, not %d", i, n, c.want*round)
					}
				}
			}
		})
	}
}
