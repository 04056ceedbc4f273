package exp

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
)

func TestEachDoesAll(t *testing.T) {
	for _, workers := range []int{0, 1, 3, 100} {
		got := make([]int, 20)
		var tasks []Task
		for i := range got {
			tasks = append(tasks, Task{Weight: int64(i), Do: func(context.Context) error { got[i] = i + 1; return nil }})
		}
		var last, all int64
		o := Options{Workers: workers, Progress: func(done, total int64) {
			if done < last {
				t.Errorf("progress went back from %d to %d", last, done)
			}
			last, all = done, total
		}}
		done, err := o.Each(t.Context(), tasks)
		if err != nil || slices.Contains(done, false) || slices.Contains(got, 0) || last != all || all != 190 {
			t.Errorf("%d workers: %v %v %v, progress %d of %d", workers, done, got, err, last, all)
		}
	}
}

// Tasks done when the context ends count; none is started afterwards.
func TestEachKeepsWhatIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun atomic.Int64
	tasks := make([]Task, 10)
	for i := range tasks {
		tasks[i] = Task{Weight: 1, Do: func(ctx context.Context) error {
			begun.Add(1)
			if i == 3 {
				cancel()
			}
			return ctx.Err()
		}}
	}
	done, err := Options{Workers: 1}.Each(ctx, tasks)
	if want := []bool{true, true, true, false, false, false, false, false, false, false}; err != nil || !slices.Equal(done, want) || begun.Load() != 4 {
		t.Errorf("%v %v, %d begun", done, err, begun.Load())
	}
}

// Each does not wait for a task that ignores its context.
func TestEachDoesNotWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	tasks := []Task{{1, func(context.Context) error { cancel(); <-release; return nil }}}
	if done, err := (Options{}).Each(ctx, tasks); err != nil || done[0] {
		t.Errorf("%v %v", done, err)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	broken := errors.New("broken")
	var begun atomic.Int64
	tasks := make([]Task, 10)
	for i := range tasks {
		tasks[i] = Task{Weight: 1, Do: func(context.Context) error {
			begun.Add(1)
			if i == 2 {
				return broken
			}
			return nil
		}}
	}
	if _, err := (Options{Workers: 1}).Each(t.Context(), tasks); !errors.Is(err, broken) || begun.Load() != 3 {
		t.Errorf("%v, %d begun", err, begun.Load())
	}
}
