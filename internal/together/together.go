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
	share = 128 << 10 // bytes of a copy that justify a thread
	most  = 8         // maximum number of threads of a copy
)

// Copy copies src to dst, which must not be shorter and must not overlap it.
func Copy(dst, src []byte) {
	shares := min(len(src)/share, runtime.GOMAXPROCS(0)/2, most)
	if shares < 2 {
		copy(dst, src)
		return
	}
	n := (len(src) + shares - 1) / shares
	Do((len(src)+n-1)/n, func(i int) { copy(dst[i*n:], src[i*n:min((i+1)*n, len(src))]) })
}

// Do calls f for 0 to n-1, on up to half as many threads as there are processors, and returns when
// all calls have returned. If a call panics, also because of a memory fault, Do panics with the
// same value in the caller's goroutine.
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
