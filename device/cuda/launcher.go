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

// launcher has another thread give the driver launches of a context (launcher.c), while whoever
// submits them prepares the next. A lone launch is made at once: handing it over would take
// longer.
type launcher struct {
	mu     sync.Mutex // held by who gives it launches, or asks for answers
	thread *C.mcu_launcher
	given  atomic.Uint64 // launches, so far
	done   *uint64       // those that the driver has; the thread writes it
	asked  uint64        // those of which the answers are known
	row    int           // launches behind which another was expected, without one that was alone
	many   int           // how many in a row make it worth to wake the thread
	woken  uint64        // launches that were given when it was last woken
	judged bool          // many says whether that was worth it
	none   bool          // there can be no thread
	late   []device.Refusal
}

// How many launches in a row make it worth to wake the thread: fewer if it had much to do the last
// time that it was woken, more if it had little. It is awake when some 30 have been made.
const (
	leastMany, mostMany = 4, 32
	muchToDo            = 64
)

// fewCores is how many processors the program, its worker and the thread need, with one for
// others: where there are fewer the thread would only be in the way.
var fewCores = 4

var _ device.Launcher = (*stream)(nil)

// pending says whether the driver has not got all launches yet.
func (l *launcher) pending() bool {
	given := l.given.Load()
	return given > 0 && atomic.LoadUint64(l.done) != given
}

// wait waits until the driver has all launches that were given so far.
func (l *launcher) wait() {
	if l.pending() {
		C.mcu_launcher_wait(l.thread, 0)
	}
}

// end waits for all launches and ends the thread. Nobody uses it any more.
func (l *launcher) end() {
	if l.thread != nil {
		C.mcu_launcher_destroy(l.thread)
		l.thread, l.none = nil, true
		l.given.Store(0)
	}
}

// ready says whether a launch is to be left to the thread: others wait there, or it looks for
// some and more will come. The lock is held.
func (l *launcher) ready(c *gpuContext, more bool) bool {
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
	if !l.judged { // it has slept since it was woken
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

// LaunchLater is Launch that may leave the driver's call to another thread.
func (s *stream) LaunchLater(fn device.Function, launch device.Launch, more bool) (number uint64, later bool, err error) {
	f, err := s.launchable(fn, launch)
	if err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number, later = s.c.launcher.take(s, f, launch, more); later {
		return number, true, nil
	}
	return 0, false, s.named(f, s.submitLocked(func() C.mcu_result { return s.launch(f, launch) }))
}

// take gives the thread a launch, if that is worth it. The stream's lock is held.
func (l *launcher) take(s *stream, f *function, launch device.Launch, more bool) (number uint64, later bool) {
	if len(launch.Params) > C.MCU_LAUNCH_PARAMS || len(f.offsets) > C.MCU_LAUNCH_COUNT {
		return 0, false
	}
	c := s.c
	c.use.RLock()
	defer c.use.RUnlock()
	if s.usable() != nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready(c, more) {
		return 0, false
	}
	s.bulkOnly = false
	how := shape(launch)
	for {
		number = l.given.Load()
		taken := C.mcu_launcher_give(l.thread, s.handle, f.handle, &how, (*C.char)(unsafe.Pointer(unsafe.SliceData(launch.Params))), C.size_t(len(launch.Params)),
			unsafe.SliceData(f.offsets), C.size_t(len(f.offsets)))
		if taken != 0 {
			l.given.Store(number + 1)
			s.submitted.Add(1)
			return number, true
		}
		l.collect(c)
	}
}

// collect reads what the driver has answered to all launches that were given. The lock is held.
func (l *launcher) collect(c *gpuContext) {
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

// Refused waits until the driver has all launches, and returns those that it refused.
func (s *stream) Refused() []device.Refusal {
	c := s.c
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

// named adds the kernel to what is wrong with a launch.
func (s *stream) named(f *function, err error) error {
	if err != nil && s.c.Err() == nil {
		return fmt.Errorf("kernel %s: %w", f.info.Name, err)
	}
	return err
}
