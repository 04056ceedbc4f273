package exp

import (
	"context"
	"errors"
	"slices"
	"sync"

	"muster/internal/parallel"
)

// Task is one of many things to do that do not depend on each other.
type Task struct {
	// Weight is how much of the work it is, for the progress bar.
	Weight int64
	// Do does it; what it finds it must keep where no other task writes.
	Do func(context.Context) error
}

// Each does the tasks, Workers at a time and in their order. It says which are done:
// all of them, unless a task failed or the context ended. An ended context is no
// error here: what is done by then counts. Tasks that are at work then are not
// waited for; they end when they next look at their context.
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
		if ctx.Err() == nil { // else the caller has gone on
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
