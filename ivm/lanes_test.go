package ivm_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"muster/ivm"
)

// A long range goes over several connections at a time: its parts must meet without a gap, and leave
// alone what is outside the range.

const (
	longValues = 5<<20/2 + 77 // of 8 bytes: no whole number of pages
	longFrom   = 333
	longTo     = longValues - 555
)

func longValue(i int) int64 { return int64(i)*0x9e3779b9 + 1 }

func init() {
	scenarios["long"] = func(ctx context.Context, e *ivm.Element) error {
		v, err := ivm.Map[int64](ctx, e, "long")
		if err != nil {
			return err
		}
		for i, x := range v.Data {
			if x != longValue(i) {
				return fmt.Errorf("value %d is %d after the map", i, x)
			}
			v.Data[i] = -x
		}
		if err := v.Put(ctx, longFrom, longTo); err != nil {
			return err
		}
		if err := e.Signal(ctx); err != nil {
			return err
		}
		if err := e.Wait(ctx, 0); err != nil {
			return err
		}
		if err := v.Get(ctx, 0, len(v.Data)); err != nil {
			return err
		}
		for i, x := range v.Data {
			if x != 3*longValue(i) {
				return fmt.Errorf("value %d is %d after the get", i, x)
			}
		}
		return e.Signal(ctx)
	}
}

func TestLongRangesMoveWhole(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // a node with fewer cores has one connection
	nodes := cluster(t, 2)
	ctx, e := begin(t, nodes, "long")
	v := must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "long", longValues))
	for i := range v.Data {
		v.Data[i] = longValue(i)
	}
	child := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 1))[0]
	check(t, e.Wait(ctx, child))
	for i, x := range v.Data {
		want := longValue(i)
		if i >= longFrom && i < longTo {
			want = -want
		}
		if x != want {
			t.Fatalf("value %d is %d after the put, not %d", i, x, want)
		}
		v.Data[i] = 3 * longValue(i)
	}
	check(t, e.Signal(ctx))
	check(t, e.Wait(ctx, child))
	nodes[0].mu.Lock()
	conns := len(nodes[0].conns)
	nodes[0].mu.Unlock()
	if conns < 4 {
		t.Errorf("%d connections reached the master's node: a long range should have had four", conns)
	}
}
