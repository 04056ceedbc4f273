package exp

import (
	"context"
	"slices"
	"sync"
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
	done := make([]bool, len(tasks))
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		lock       sync.Mutex
		err        error
		next       int
		sum, total int64
		wg         sync.WaitGroup
	)
	for i := range tasks {
		total += tasks[i].Weight
	}
	take := func() int {
		lock.Lock()
		defer lock.Unlock()
		if within.Err() != nil || next == len(tasks) {
			return -1
		}
		next++
		return next - 1
	}
	finish := func(i int, failure error) {
		lock.Lock()
		defer lock.Unlock()
		if failure != nil {
			if within.Err() == nil {
				err = failure
				cancel()
			}
			return
		}
		if ctx.Err() != nil {
			return // the caller has gone on
		}
		done[i] = true
		sum += tasks[i].Weight
		if o.Progress != nil {
			o.Progress(sum, total)
		}
	}
	for range min(max(1, o.Workers), len(tasks)) {
		wg.Go(func() {
			for i := take(); i >= 0; i = take() {
				finish(i, tasks[i].Do(within))
			}
		})
	}
	all := make(chan struct{})
	go func() {
		wg.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
	}
	lock.Lock()
	defer lock.Unlock()
	return slices.Clone(done), err
}
