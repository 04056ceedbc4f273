package parallel_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"muster/internal/parallel"
)

// numbered makes tasks that get their index.
func numbered(n int, do func(ctx context.Context, i int) error) iter.Seq[parallel.Task] {
	return func(yield func(parallel.Task) bool) {
		for i := range n {
			if !yield(func(ctx context.Context) error { return do(ctx, i) }) {
				return
			}
		}
	}
}

func TestEachRunsAll(t *testing.T) {
	for _, workers := range []int{0, 1, 3, 100} {
		got := make([]int, 20)
		var now, most atomic.Int64
		err := parallel.Each(t.Context(), workers, numbered(len(got), func(_ context.Context, i int) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			got[i] = i + 1
			return nil
		}))
		if err != nil || slices.Contains(got, 0) || most.Load() > int64(max(1, workers)) {
			t.Errorf("%d workers, %d at the same time: %v %v", workers, most.Load(), got, err)
		}
	}
}

// The first error ends the context of the others, which are waited for, and is the one returned.
func TestEachStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	var begun, ended atomic.Int64
	err := parallel.Each(t.Context(), 3, numbered(100, func(ctx context.Context, i int) error {
		begun.Add(1)
		defer ended.Add(1)
		if i == 2 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	}))
	if !errors.Is(err, broken) || begun.Load() != 3 || ended.Load() != 3 {
		t.Errorf("%v, %d begun and %d ended", err, begun.Load(), ended.Load())
	}
}

func TestEachStopsWithItsContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var begun atomic.Int64
	err := parallel.Each(ctx, 1, numbered(10, func(ctx context.Context, i int) error {
		begun.Add(1)
		if i == 3 {
			cancel(why)
		}
		return nil
	}))
	if !errors.Is(err, why) || begun.Load() != 4 {
		t.Errorf("%v, %d begun", err, begun.Load())
	}
}

func TestProgressAddsUp(t *testing.T) {
	var told [][2]int64
	p := parallel.NewProgress(2, func(done, total int64) { told = append(told, [2]int64{done, total}) })
	p.Expect(10)
	p.Set(0, 3)
	p.Set(1, 4)
	p.Set(0, 5)
	p.Expect(8) // less than was thought
	p.Set(1, 5)
	if want := [][2]int64{{3, 10}, {7, 10}, {9, 10}, {10, 10}}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	parallel.NewProgress(1, nil).Set(0, 1)
}
