package daemon

import (
	"context"
	"sync"
)

// How many long answers are made and sent at a time, of one user and in all. A list of
// 100,000 jobs takes 200 MiB until it is sent; the requests that wait take next to
// nothing.
const (
	maxLists     = 16
	maxListsEach = 2
)

// lists lets requests with long answers have their turns.
type lists struct {
	all chan struct{}

	mu    sync.Mutex
	users map[string]*turns
}

// turns are those of one user; they are kept while a request has or wants one.
type turns struct {
	free chan struct{}
	here int
}

func newLists() *lists {
	return &lists{all: make(chan struct{}, maxLists), users: map[string]*turns{}}
}

// enter waits for a turn, and returns what ends it. First the user's others are waited
// for, so that one who asks for many takes no turns of others while he waits.
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
