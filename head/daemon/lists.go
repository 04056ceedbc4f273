package daemon

import (
	"context"
	"sync"

	"muster/head"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// How many jobs or nodes a list looks at before others have a turn with the core.
const (
	jobsAtOnce  = 500
	nodesAtOnce = 1000
)

// eachPage makes a list page by page: page reads one from a number on, and says where the next begins.
func eachPage(page func(first uint64) (next uint64, err error)) error {
	for first := uint64(0); ; {
		next, err := page(first)
		if err != nil || next == 0 {
			return err
		}
		first = next
	}
}

// jobs lists the jobs that the core has, each in a state that it had while the list was made.
func (d *daemon) jobs(ctx context.Context, user string, f head.Filter) ([]api.Job, error) {
	list, count := []api.Job{}, 0
	err := eachPage(func(first uint64) (uint64, error) {
		var some []api.Job // of this page alone: the core may still make it after an error
		var next uint64
		if err := d.look(ctx, user, func(core *head.Core) { some, next = core.JobsFrom(d.now(), f, first, jobsAtOnce) }); err != nil {
			return 0, err
		}
		list = append(list, some...)
		count++
		return next, nil
	})
	if err == nil && count > 1 {
		list = once(list)
	}
	return list, err
}

// once drops tasks of arrays that became jobs of their own, or another rest, after they were listed as
// part of a rest.
func once(jobs []api.Job) []api.Job {
	listed := map[uint64][]slurmopt.Tasks{}
	kept := jobs[:0]
	for _, j := range jobs {
		first := int64(-1)
		if j.ArrayTask != nil {
			first = int64(*j.ArrayTask)
		}
		var tasks slurmopt.Tasks
		if j.ArrayTasks != "" {
			tasks, _ = slurmopt.ParseTasks(j.ArrayTasks) // the core wrote it
			first = int64(tasks.At(0))
		}
		twice := false
		for _, t := range listed[j.ArrayJob] {
			_, in := t.Place(first)
			twice = twice || in
		}
		if twice {
			continue
		}
		if tasks != nil {
			listed[j.ArrayJob] = append(listed[j.ArrayJob], tasks)
		}
		kept = append(kept, j)
	}
	return kept
}

// How many long answers are made and sent at a time, in all and of one user. A list of 100,000 jobs
// takes 200 MiB until it is sent; a request that waits for its turn takes next to nothing.
const (
	maxLists     = 16
	maxListsEach = 2
)

// lists limits how many requests with long answers are served at a time. Both semaphores are
// channels that hold a value per request served.
type lists struct {
	all chan struct{}

	mu    sync.Mutex
	users map[string]*turns
}

// turns are the turns of one user; they are kept while a request of that user has or wants one.
type turns struct {
	free chan struct{}
	here int
}

func newLists() *lists {
	return &lists{all: make(chan struct{}, maxLists), users: map[string]*turns{}}
}

// enter waits for a turn, and returns the function that ends it. It waits for the user's own turn
// first, so that a user with many requests occupies none of the common turns while they wait.
func (l *lists) enter(ctx context.Context, user string, ending <-chan struct{}) (leave func(), err error) {
	own := l.come(user)
	if err := pass(ctx, own.free, ending); err != nil {
		l.depart(user, own)
		return nil, err
	}
	if err := pass(ctx, l.all, ending); err != nil {
		<-own.free
		l.depart(user, own)
		return nil, err
	}
	return func() {
		<-l.all
		<-own.free
		l.depart(user, own)
	}, nil
}

func pass(ctx context.Context, turn chan<- struct{}, ending <-chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-ending:
		return errEnding
	}
}

func (l *lists) come(user string) *turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.users[user]
	if t == nil {
		t = &turns{free: make(chan struct{}, maxListsEach)}
		l.users[user] = t
	}
	t.here++
	return t
}

func (l *lists) depart(user string, t *turns) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.here--; t.here == 0 {
		delete(l.users, user)
	}
}
