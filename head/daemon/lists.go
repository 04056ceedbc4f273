package daemon

import (
	"context"
	"sync"
)

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
