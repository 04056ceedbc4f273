// Package together works on large memory with several threads: one alone is slower than the bus
// of a device. It knows nothing of what the memory is.
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
	// piece is what a thread takes at a time of a copy that has several for each: a thread that is
	// held up then holds up no other. Go copies as much past the caches, which a large copy would
	// only fill with what nobody reads soon.
	piece = 1 << 20
)

// Copy copies src to dst, which is no shorter and does not overlap it.
func Copy(dst, src []byte) {
	shares := min(len(src)/share, runtime.GOMAXPROCS(0)/2, most)
	if shares < 2 {
		copy(dst, src)
		return
	}
	n := (len(src) + shares - 1) / shares
	if n >= 2*piece {
		n = piece
	}
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
	var next atomic.Int64
	some := func() {
		for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
			f(i)
		}
	}
	var others sync.WaitGroup
	var wrong atomic.Pointer[any]
	for range min(n, max(runtime.GOMAXPROCS(0)/2, 1)) - 1 {
		others.Go(func() {
			debug.SetPanicOnFault(true)
			defer func() {
				if r := recover(); r != nil {
					wrong.CompareAndSwap(nil, &r)
				}
			}()
			some()
		})
	}
	defer func() {
		others.Wait()
		if r := wrong.Load(); r != nil {
			panic(*r)
		}
	}()
	some()
}
