//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"muster/device"
)

// queue is what a stream submits to the driver, and how much of that has ended. It checks no
// addresses and stages no host memory.
type queue struct {
	on     *caller
	closed atomic.Bool

	mu       sync.Mutex // held while submitting, so that the calls of one operation stay together
	bulkOnly bool       // all pending work is large copies to the device through bulk buffers

	// submitted counts what the stream was given: it is raised after each call of the driver that
	// submits. ended is the count up to which all work was seen to have ended. Where the two are
	// equal, waiting need not ask the driver, which takes a microsecond for each stream: programs
	// have dozens of idle ones. Done asks nevertheless, because the driver's answer is how an idle
	// worker learns that its context has failed.
	submitted, ended atomic.Uint64

	life   sync.Mutex   // held while querying the stream without submitting
	handle C.mcu_handle // 0 when destroyed; destroying needs both mu and life
}

// usable returns why the stream takes no work, or nil.
func (q *queue) usable() error {
	if err := q.on.Err(); err != nil {
		return err
	}
	if q.closed.Load() {
		return fmt.Errorf("stream: %w", device.ErrClosed)
	}
	return nil
}

// submit runs a call of the driver that submits work. submitLocked is the same for callers that hold
// mu.
func (q *queue) submit(f func() C.mcu_result) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.submitLocked(f)
}

func (q *queue) submitLocked(f func() C.mcu_result) error {
	q.bulkOnly = false
	if err := q.usable(); err != nil {
		return err
	}
	defer q.submitted.Add(1)
	return q.on.call(f)
}

func (q *queue) callLocked(f func()) error {
	id := keepCall(q.on, f)
	err := q.submitLocked(func() C.mcu_result { return C.mcu_stream_call(q.on.handle, q.handle, C.uint64_t(id)) })
	if err != nil {
		takeCall(id)
	}
	return err
}

// idle says whether all work that was submitted to the stream is known to have ended.
func (q *queue) idle() bool { return q.ended.Load() == q.submitted.Load() }

// saw records the answer to a query; count is the value of submitted before the query. The caller must
// hold life, so that ended never goes back.
func (q *queue) saw(count uint64, done bool, err error) (bool, error) {
	if done && err == nil {
		q.ended.Store(count)
	}
	return done, err
}

// query asks the driver whether the stream has no pending work. While the launcher has launches that
// are not made, the answer is no without asking: the driver does not know of them yet.
func (q *queue) query() (bool, error) {
	q.life.Lock()
	defer q.life.Unlock()
	if q.handle == 0 {
		return true, q.on.Err()
	}
	count := q.submitted.Load()
	done, err := q.on.isDone(func() C.mcu_result {
		if q.on.launcher.pending() {
			return C.mcu_result{code: notReady}
		}
		return C.mcu_stream_query(q.on.handle, q.handle)
	})
	return q.saw(count, done, err)
}

// poll is query, but polls for up to limit.
func (q *queue) poll(limit time.Duration) (bool, error) {
	if q.idle() {
		return true, nil
	}
	q.life.Lock()
	defer q.life.Unlock()
	if q.handle == 0 {
		return true, q.on.Err()
	}
	count := q.submitted.Load()
	done, err := q.on.isDone(func() C.mcu_result {
		q.on.launcher.wait()
		return C.mcu_stream_watch(q.on.handle, q.handle, C.int64_t(limit))
	})
	return q.saw(count, done, err)
}

// mark records an event behind the work of the stream; 0 if there is no work. The caller
// must give it back with giveMarks. It does not take mu, which a submitter may hold for
// a long time.
func (q *queue) mark() (C.mcu_handle, error) {
	if q.idle() {
		return 0, q.on.Err()
	}
	if done, err := q.query(); done || err != nil {
		return 0, err
	}
	m, err := q.on.takeMark()
	if err != nil {
		return 0, err
	}
	q.life.Lock()
	defer q.life.Unlock()
	if q.handle != 0 {
		err = q.on.call(func() C.mcu_result { return C.mcu_event_record(q.on.handle, m, q.handle) })
	}
	if q.handle == 0 || err != nil {
		q.on.giveMarks([]C.mcu_handle{m})
		return 0, err
	}
	return m, nil
}

// follow has what a stream gets from now on wait for what another has got so far.
func (q *queue) follow(mark, before, after C.mcu_handle) error {
	if err := q.submitLocked(func() C.mcu_result { return C.mcu_event_record(q.on.handle, mark, before) }); err != nil {
		return err
	}
	return q.submitLocked(func() C.mcu_result { return C.mcu_stream_wait(q.on.handle, after, mark) })
}

// markBuffer records that the device uses a buffer until it has done all work submitted to the
// stream so far.
func (q *queue) markBuffer(b *buffer) error {
	m, err := q.on.takeMark()
	if err != nil {
		return err
	}
	b.mark = m
	return q.submitLocked(func() C.mcu_result { return C.mcu_event_record(q.on.handle, m, q.handle) })
}

func (q *queue) copyIn(dst uint64, src []byte) C.mcu_result {
	return C.mcu_copy_in(q.on.handle, q.handle, C.uint64_t(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)))
}

func (q *queue) copyOut(src uint64, dst []byte) C.mcu_result {
	return q.copyOutOn(q.handle, src, dst)
}

func (q *queue) copyOutOn(stream C.mcu_handle, src uint64, dst []byte) C.mcu_result {
	return C.mcu_copy_out(q.on.handle, stream, unsafe.Pointer(unsafe.SliceData(dst)), C.uint64_t(src), C.size_t(len(dst)))
}

// eachPart submits a copy between the device and host memory whose parts were pinned separately: the
// driver accepts only one registration per call.
func (q *queue) eachPart(parts []int, host []byte, addr uint64, submit func(addr uint64, part []byte) C.mcu_result) error {
	for _, n := range parts {
		part := host[:n]
		if err := q.submitLocked(func() C.mcu_result { return submit(addr, part) }); err != nil {
			return err
		}
		host, addr = host[n:], addr+uint64(n)
	}
	return nil
}

func (q *queue) launch(f *function, l device.Launch) C.mcu_result {
	how := shape(l)
	return C.mcu_launch(q.on.handle, q.handle, f.handle, &how,
		(*C.char)(unsafe.Pointer(unsafe.SliceData(l.Params))), unsafe.SliceData(f.offsets), C.size_t(len(f.offsets)))
}

// calls are the Go functions that the driver will call in the order of a stream.
// C cannot hold pointers to Go functions, so the driver gets a number. It never
// calls functions behind a fault; forgetCalls removes those.
var calls = struct {
	sync.Mutex
	last    uint64
	waiting map[uint64]call
}{waiting: map[uint64]call{}}

type call struct {
	c *caller
	f func()
}

func keepCall(c *caller, f func()) (id uint64) {
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
func forgetCalls(c *caller) {
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
