//go:build linux && cgo

package cuda

// #include "launcher.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"muster/device"
)

// launcher passes launches of a context to a thread (launcher.c), which calls the driver while the
// submitting goroutine prepares the next launch. A launch without others around it is made by the
// submitter: handing it over would take longer.
//
// Launches are numbered from 0. given and done are how many the thread was given and has made.
// Every other call of the driver must first wait until they are equal (wait), or it could overtake
// launches of its stream.
type launcher struct {
	mu     sync.Mutex // held while giving launches or reading answers; guards all but given and *done
	thread *C.mcu_launcher
	given  atomic.Uint64 // launches given to the thread
	done   *uint64       // launches made; the thread writes it, others read it atomically
	asked  uint64        // launches whose answers collect has read
	row    int           // length of the current row: launches in succession with more set
	many   int           // how long a row must be to wake the thread
	woken  uint64        // value of given when the thread was last woken
	judged bool          // many was adjusted since then
	none   bool          // a thread cannot be made, or was ended
	late   []device.Refusal
}

// many adapts between leastMany and mostMany: it is halved if the thread was given at least muchToDo
// launches after it was last woken, and doubled if fewer. Waking takes about as long as 30 launches.
const (
	leastMany, mostMany = 4, 32
	muchToDo            = 64
)

// fewCores is how many processors there must be for the program, its worker, the thread and one
// other process. With fewer the thread would only take a processor from the others.
var fewCores = 4

// pending says whether the thread has launches that it has not made.
func (l *launcher) pending() bool {
	given := l.given.Load()
	return given > 0 && atomic.LoadUint64(l.done) != given
}

// wait waits until the thread has made all launches that it was given so far.
func (l *launcher) wait() {
	if l.pending() {
		C.mcu_launcher_wait(l.thread, 0)
	}
}

// end waits for all launches and ends the thread. No other goroutine may use the launcher any more.
func (l *launcher) end() {
	if l.thread != nil {
		C.mcu_launcher_destroy(l.thread)
		l.thread, l.none = nil, true
		l.given.Store(0)
	}
}

// ready says whether a launch should go to the thread: because launches wait there already, which this
// one must not overtake, or because the thread is awake and more launches will follow. Otherwise it may
// create or wake the thread for later launches. The caller must hold l.mu.
func (l *launcher) ready(c *caller, more bool) bool {
	if l.pending() {
		return true
	}
	if !more || l.none || runtime.NumCPU() < fewCores {
		l.row = 0
		return false
	}
	l.row++
	if l.thread == nil {
		if l.row < leastMany {
			return false
		}
		l.thread = C.mcu_launcher_create(c.handle)
		if l.none = l.thread == nil; !l.none {
			l.done = (*uint64)(unsafe.Pointer(C.mcu_launcher_done(l.thread)))
			l.many, l.judged = leastMany, true
		}
		return false
	}
	if C.mcu_launcher_awake(l.thread) != 0 {
		return true
	}
	if !l.judged { // the thread has gone to sleep again: see how much it was given meanwhile
		l.judged = true
		if l.given.Load()-l.woken >= muchToDo {
			l.many = max(l.many/2, leastMany)
		} else {
			l.many = min(2*l.many, mostMany)
		}
	}
	if l.row >= l.many {
		l.row, l.woken, l.judged = 0, l.given.Load(), false
		C.mcu_launcher_rouse(l.thread)
	}
	return false
}

// launchLater is Launch, but may leave the call of the driver to the launcher's thread.
func (s *stream) launchLater(fn device.Function, launch device.Launch, more bool) (number uint64, later bool, err error) {
	f, err := s.launchable(fn, launch)
	if err != nil {
		return 0, false, err
	}
	defer s.c.launched(f.module.prints)
	s.mu.Lock()
	defer s.mu.Unlock()
	if number, later = s.c.launcher.take(&s.queue, f, launch, more); later {
		return number, true, nil
	}
	return 0, false, s.named(f, s.submitLocked(func() C.mcu_result { return s.launch(f, launch) }))
}

// take gives the thread a launch, if that pays off. The caller must hold q.mu. The thread takes no launch
// while there are answers of refused launches to read; collect reads them, and take tries again.
func (l *launcher) take(q *queue, f *function, launch device.Launch, more bool) (number uint64, later bool) {
	if len(launch.Params) > C.MCU_LAUNCH_PARAMS || len(f.offsets) > C.MCU_LAUNCH_COUNT {
		return 0, false
	}
	c := q.on
	c.use.RLock()
	defer c.use.RUnlock()
	if q.usable() != nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready(c, more) {
		return 0, false
	}
	q.bulkOnly = false
	how := shape(launch)
	for {
		number = l.given.Load()
		taken := C.mcu_launcher_give(l.thread, q.handle, f.handle, &how, (*C.char)(unsafe.Pointer(unsafe.SliceData(launch.Params))), C.size_t(len(launch.Params)),
			unsafe.SliceData(f.offsets), C.size_t(len(f.offsets)))
		if taken != 0 {
			l.given.Store(number + 1)
			q.submitted.Add(1)
			return number, true
		}
		l.collect(c)
	}
}

// collect waits for all launches and keeps the refused ones in late. The thread stores only the last
// MCU_LAUNCHES answers; none is lost, because it takes no new launches after a refusal until collect
// has read the answers. The caller must hold l.mu.
func (l *launcher) collect(c *caller) {
	given := l.given.Load()
	if l.thread == nil || l.asked == given {
		return
	}
	C.mcu_launcher_wait(l.thread, 0)
	if C.mcu_launcher_refused(l.thread) != 0 {
		for number := max(l.asked, given-min(given, C.MCU_LAUNCHES)); number < given; number++ {
			if err := c.answer(C.mcu_launcher_answer(l.thread, C.uint64_t(number))); err != nil {
				l.late = append(l.late, device.Refusal{Number: number, Err: err})
			}
		}
	}
	l.asked = given
}

// refused waits until the thread has made all launches, and returns those that the driver refused.
func (q *queue) refused() []device.Refusal {
	c := q.on
	c.use.RLock()
	defer c.use.RUnlock()
	l := &c.launcher
	l.mu.Lock()
	defer l.mu.Unlock()
	l.collect(c)
	late := l.late
	l.late = nil
	return late
}

// named adds the kernel's name to the error of a launch, unless the context has ended.
func (q *queue) named(f *function, err error) error {
	if err != nil && q.on.Err() == nil {
		return fmt.Errorf("kernel %s: %w", f.info.Name, err)
	}
	return err
}
