// Package parallel runs many tasks that do not depend on each other, a few at a
// time, and adds up how far they have come. Whoever asks gets the same results with
// any number of workers, since each task writes to a place of its own. The package
// knows nothing of what the tasks do.
package parallel

import (
	"context"
	"iter"
	"sync"
)

// Task is one of many things to do. It must write what it finds where no other task
// writes, and should end soon after its context does.
type Task func(context.Context) error

// Each runs tasks, at most workers of them at the same time (but at least one), and
// begins them in the order of the sequence. The sequence runs in the goroutine of the
// caller and is asked for a task when the one before has begun, so that it can make
// what a task needs just before the task needs it.
//
// The first error of a task, or the end of ctx, ends the context of all tasks, and no
// further one is begun. Each returns when all that it began have returned. It returns
// the error that came first, or the cause for which ctx ended.
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

// Progress adds up how much of their work tasks have done. Its methods may be called
// from any goroutine.
type Progress struct {
	lock  sync.Mutex
	tell  func(done, total int64)
	done  []int64
	sum   int64
	total int64
}

// NewProgress is the progress of a number of tasks. It calls tell, unless that is nil,
// whenever a task has come further, and never twice at the same time.
func NewProgress(tasks int, tell func(done, total int64)) *Progress {
	return &Progress{tell: tell, done: make([]int64, tasks)}
}

// Expect says how much work all tasks are together, as far as is known. It may be said
// again when more is known.
func (p *Progress) Expect(total int64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.total = total
}

// Set says how much of its work a task has done.
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
