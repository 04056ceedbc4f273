// Package parallel runs many independent tasks, a few at a time, and sums up their progress. The
// results do not depend on the number of workers, because each task writes to its own memory. The
// package knows nothing about what the tasks do.
package parallel

import (
	"context"
	"iter"
	"sync"
)

// Task is one of many independent pieces of work. It must write its results to memory that no other
// task writes, and should return soon after its context ends.
type Task func(context.Context) error

// Each runs tasks, at most workers of them at the same time (but at least one), and starts them in
// the order of the sequence. The sequence runs in the goroutine of the caller. It is asked for the
// next task only when the previous one has started, so it can prepare what a task needs just in
// time.
//
// The first error of a task, or the end of ctx, ends the context of all tasks, and no further one
// is started. Each returns when all started tasks have returned. It returns the first error, or the
// cause of the end of ctx.
func Each(ctx context.Context, workers int, tasks iter.Seq[Task]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, max(1, workers))
	var all sync.WaitGroup
	for task := range tasks {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			if err := task(ctx); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// Progress sums up the progress of tasks. Its methods may be called from any goroutine.
type Progress struct {
	lock  sync.Mutex
	tell  func(done, total int64)
	done  []int64
	sum   int64
	total int64
}

// NewProgress makes the progress of a number of tasks. It calls tell, unless that is nil, whenever
// a task has made progress, and never concurrently.
func NewProgress(tasks int, tell func(done, total int64)) *Progress {
	return &Progress{tell: tell, done: make([]int64, tasks)}
}

// Expect sets the expected total work of all tasks. It may be called again when more is known.
func (p *Progress) Expect(total int64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.total = total
}

// Set sets the work that a task has done so far.
func (p *Progress) Set(task int, done int64) {
	if p.tell == nil {
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.sum += done - p.done[task]
	p.done[task] = done
	p.tell(p.sum, max(p.total, p.sum))
}
