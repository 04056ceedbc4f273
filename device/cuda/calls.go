//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import "sync"

// calls are the Go functions that the driver will call in the order of a stream.
// C cannot hold pointers to Go functions, so the driver gets a number. It never
// calls functions behind a fault; forgetCalls removes those.
var calls = struct {
	sync.Mutex
	last    uint64
	waiting map[uint64]call
}{waiting: map[uint64]call{}}

type call struct {
	c *gpuContext
	f func()
}

func keepCall(c *gpuContext, f func()) (id uint64) {
	calls.Lock()
	defer calls.Unlock()
	calls.last++
	calls.waiting[calls.last] = call{c, f}
	return calls.last
}

func takeCall(id uint64) (call, bool) {
	calls.Lock()
	defer calls.Unlock()
	one, ok := calls.waiting[id]
	delete(calls.waiting, id)
	return one, ok
}

// forgetCalls drops the functions of a closed context that the driver has not called.
func forgetCalls(c *gpuContext) {
	calls.Lock()
	defer calls.Unlock()
	for id, one := range calls.waiting {
		if one.c == c {
			delete(calls.waiting, id)
		}
	}
}

// musterCudaCall runs a registered function. The driver calls it on one of its own threads.
//
//export musterCudaCall
func musterCudaCall(id C.uint64_t) {
	if one, ok := takeCall(uint64(id)); ok && one.c.Err() == nil {
		one.f()
	}
}
