// Package together works on large memory with several threads, because a single one is slower than
// the bus of a device. It knows nothing about the memory's content.
package together

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

const (
	share = 128 << 10 // bytes of a copy that are worth a thread
	most  = 8         // threads of a copy
	// piece is the most that a thread takes at a time: one that is held up holds up no other for
	// long.
	piece = 512 << 10
)

// Copy copies src to dst, which must not be shorter and must not overlap it.
func Copy(dst, src []byte) {
	shares := min(len(src)/share, runtime.GOMAXPROCS(0)/2, most)
	if shares < 2 {
		copy(dst, src)
		return
	}
	n := min((len(src)+shares-1)/shares, piece)
	Do((len(src)+n-1)/n, func(i int) { copy(dst[i*n:], src[i*n:min((i+1)*n, len(src))]) })
}

// Aside calls f in a goroutine. The caller must call the function that it returns, which waits for
// f, and panics with what f has panicked with.
func Aside(f func()) (wait func()) {
	done := make(chan struct{})
	var wrong any
	go func() {
		debug.SetPanicOnFault(true)
		defer close(done)
		defer func() { wrong = recover() }()
		f()
	}()
	return func() {
		if <-done; wrong != nil {
			panic(wrong)
		}
	}
}

// Do calls f for 0 to n-1, with up to half as many threads as there are processors, and returns
// when all calls have. What one of them panics with, also because memory has no page, its caller
// panics with.
func Do(n int, f func(i int)) {
	t := &task{n: int64(n), f: f}
	if helpers := min(n, max(runtime.GOMAXPROCS(0)/2, 1)) - 1; helpers < 1 {
		t.some()
	} else if !theCrew.do(t) {
		t.alone(helpers)
	}
}

// task is a call of Do.
type task struct {
	n     int64
	f     func(i int)
	next  atomic.Int64
	wrong atomic.Pointer[any]
}

// some makes calls as long as there are any.
func (t *task) some() {
	for i := t.next.Add(1) - 1; i < t.n; i = t.next.Add(1) - 1 {
		t.f(int(i))
	}
}

// help is some, and keeps what f panics with for the caller of Do.
func (t *task) help() {
	defer func() {
		if r := recover(); r != nil {
			t.wrong.CompareAndSwap(nil, &r)
		}
	}()
	t.some()
}

// end panics with what a helper has panicked with.
func (t *task) end() {
	if r := t.wrong.Load(); r != nil {
		panic(*r)
	}
}

// alone does a task with goroutines of its own: the crew has another.
func (t *task) alone(helpers int) {
	var others sync.WaitGroup
	for range helpers {
		others.Go(func() {
			debug.SetPanicOnFault(true)
			t.help()
		})
	}
	defer func() {
		others.Wait()
		t.end()
	}()
	t.some()
}
