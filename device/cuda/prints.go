//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"muster/device"
	"muster/device/cuda/images"
	"muster/device/cuda/sieve"
)

// prints collects what kernels print. The driver writes it to the standard output of
// the process when a stream is synchronised. takeStdout replaces standard output by a
// file in memory; collect reads and empties that, before a caller is told that work has ended.
type prints struct {
	mu   sync.Mutex // also serialises Config.Print and Config.Complain
	file *os.File
	text []byte
}

var (
	printsOnce sync.Once
	thePrints  *prints
	printsErr  error
)

// takeStdout replaces standard output by a file in memory, once per process.
func takeStdout() (*prints, error) {
	printsOnce.Do(func() {
		fd := C.mcu_take_stdout()
		if fd < 0 {
			printsErr = fmt.Errorf("taking standard output for what kernels print: %w", device.ErrNotSupported)
			return
		}
		thePrints = &prints{file: os.NewFile(uintptr(fd), "prints"), text: make([]byte, 64<<10)}
	})
	return thePrints, printsErr
}

var (
	sieveOnce sync.Once
	theSieve  *sieve.Sieve
	sieveErr  error
)

// takeStderr begins to read standard error for failed assertions, once per process.
func takeStderr() (*sieve.Sieve, error) {
	sieveOnce.Do(func() { theSieve, sieveErr = siftStderr() })
	return theSieve, sieveErr
}

// siftStderr replaces standard error by a pipe. When the process crashes, no goroutine reads the
// pipe any more, so Go's crash output is also sent to the original file.
func siftStderr() (*sieve.Sieve, error) {
	var before C.int
	in := C.mcu_sift_stderr(&before)
	if in < 0 {
		return nil, fmt.Errorf("reading standard error for failed assertions of kernels: %w", device.ErrNotSupported)
	}
	file := os.NewFile(uintptr(before), "stderr")
	if err := debug.SetCrashOutput(file, debug.CrashOptions{}); err != nil {
		return nil, fmt.Errorf("keeping standard error for crashes: %w", err)
	}
	s := sieve.New(file)
	go s.Run(os.NewFile(uintptr(in), "stderr"))
	return s, nil
}

// output is what the kernels of a context print and complain of.
type output struct {
	on              *caller
	idle            func() bool // says whether all submitted work is known to have ended
	print, complain func(text []byte)

	sieve  *sieve.Sieve // picks failed assertions out of standard error; nil without complain
	prints *prints      // what kernels print; nil if standard output is not redirected

	// printing counts the launches of kernels that may print, and collected is how many of those have
	// ended and had their text passed on. Where the two are equal there is nothing to pass on.
	printing, collected atomic.Uint64

	assertions sync.Once // the messages of failed assertions were passed on
}

// collect passes on the text that was printed since the last call.
func (p *prints) collect(print func([]byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	C.mcu_flush_stdout()
	var all bytes.Buffer
	for {
		n, err := p.file.ReadAt(p.text, int64(all.Len()))
		all.Write(p.text[:n])
		if err != nil || n == 0 {
			break
		}
	}
	if all.Len() == 0 {
		return
	}
	_ = p.file.Truncate(0)
	print(all.Bytes())
}

// mayPrint says whether kernels of an image may print: those that print call this function.
func mayPrint(source images.Code) bool {
	return !source.Whole || slices.ContainsFunc(source.Parts, func(part []byte) bool { return bytes.Contains(part, []byte("vprintf")) })
}

// launched notes that a kernel which may print was submitted. It is called when the stream counts the
// launch already, since printed takes it for ended if all streams are idle.
func (o *output) launched(mayPrint bool) {
	if mayPrint {
		o.printing.Add(1)
	}
}

// printed makes the driver write what kernels have printed, and passes it on. It must be called after
// work was seen to have ended, before the caller is told so. It costs two loads where no kernel that
// may print was launched since the last time.
func (o *output) printed() {
	launches := o.printing.Load()
	if o.collected.Load() == launches {
		return
	}
	over := o.idle() // else some of the launches may print later
	if o.on.call(func() C.mcu_result { return C.mcu_flush_prints(o.on.handle) }) != nil {
		return
	}
	o.prints.collect(o.print)
	if over {
		o.collected.Store(launches)
	}
}

// idle says whether all work that was submitted to the streams is known to have ended.
func (c *gpuContext) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.streams, func(s *stream) bool { return !s.idle() })
}

// told passes on the answer to a question whether work has ended, and what it has printed before.
func (o *output) told(done bool, err error) (bool, error) {
	if done && err == nil {
		o.printed()
	}
	return done, err
}

// asserted passes on the messages of failed assertions, once. It must run before the context's err is
// set: the contract promises that Complain is called before any call answers with the fault.
func (o *output) asserted() {
	o.assertions.Do(func() {
		if o.sieve == nil {
			return
		}
		C.mcu_context_synchronise(o.on.handle) // after a fault this returns at once, and then all is written
		o.prints.collect(o.print)
		text := o.sieve.Take(func(line string) bool {
			raw := []byte(line)
			return C.mcu_write_stderr((*C.char)(unsafe.Pointer(&raw[0])), C.size_t(len(raw))) != 0
		})
		o.prints.mu.Lock()
		defer o.prints.mu.Unlock()
		if len(text) > 0 {
			o.complain(text)
		}
	})
}
