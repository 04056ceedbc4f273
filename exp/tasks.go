package exp

import (
	"context"
	"errors"
	"slices"
	"sync"

	"muster/internal/parallel"
)

// Task is one of several independent pieces of work.
type Task struct {
	// Weight is the task's share of the work, for the progress bar.
	Weight int64
	// Do performs the task. It must write its results to memory that no other task writes.
	Do func(context.Context) error
}

// Each runs the tasks, at most Workers at a time, and starts them in their order. It returns which
// of them are done: all, unless a task failed or the context ended. An ended context is no error
// here, because the tasks done by then count.
//
// Each does not wait for tasks that are running when the context ends; they stop when they next
// check their context. Such a task may still finish, so finish ignores it: done, under the lock,
// describes exactly the tasks that were complete when Each returned, and the caller may read their
// results without a race.
func (o Options) Each(ctx context.Context, tasks []Task) ([]bool, error) {
	var (
		lock     sync.Mutex
		done     = make([]bool, len(tasks))
		progress = parallel.NewProgress(len(tasks), o.Progress)
		total    int64
	)
	for i := range tasks {
		total += tasks[i].Weight
	}
	progress.Expect(total)
	finish := func(i int) {
		lock.Lock()
		defer lock.Unlock()
		if ctx.Err() == nil { // after that, Each may have returned
			done[i] = true
			progress.Set(i, tasks[i].Weight)
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- parallel.Each(ctx, o.Workers, func(yield func(parallel.Task) bool) {
			for i := range tasks {
				if !yield(func(ctx context.Context) error {
					err := tasks[i].Do(ctx)
					if err == nil {
						finish(i)
					}
					return err
				}) {
					return
				}
			}
		})
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = nil
	}
	lock.Lock()
	defer lock.Unlock()
	return slices.Clone(done), err
}
