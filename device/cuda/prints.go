//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"unsafe"

	"muster/device"
)

// prints collects what kernels print. The driver writes it to the standard output of
// the process when a stream is synchronised. takeStdout replaces standard output by a
// file in memory; collect reads and empties that after each synchronisation.
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
	theSieve  *sieve
	sieveErr  error
)

// takeStderr begins to read standard error for failed assertions, once per process.
func takeStderr() (*sieve, error) {
	sieveOnce.Do(func() { theSieve, sieveErr = siftStderr() })
	return theSieve, sieveErr
}

// siftStderr replaces standard error by a pipe. When the process crashes, no goroutine reads the
// pipe any more, so Go's crash output is also sent to the original file.
func siftStderr() (*sieve, error) {
	var before C.int
	in := C.mcu_sift_stderr(&before)
	if in < 0 {
		return nil, fmt.Errorf("reading standard error for failed assertions of kernels: %w", device.ErrNotSupported)
	}
	file := os.NewFile(uintptr(before), "stderr")
	if err := debug.SetCrashOutput(file, debug.CrashOptions{}); err != nil {
		return nil, fmt.Errorf("keeping standard error for crashes: %w", err)
	}
	s := newSieve(file)
	go s.run(os.NewFile(uintptr(in), "stderr"))
	return s, nil
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

// mayPrint says whether kernels of an image may print. Compressed images cannot be searched, so
// they may.
func mayPrint(image []byte) bool {
	return bytes.Contains(image, []byte("vprintf")) || !bytes.Contains(image, []byte(".visible")) && !bytes.HasPrefix(image, []byte("\x7fELF"))
}

// printed makes the driver write what kernels have printed, and passes it on. The caller
// has waited for the kernels.
func (c *gpuContext) printed() {
	if c.prints == nil || !c.mayPrint.Load() {
		return
	}
	if c.call(func() C.mcu_result { return C.mcu_flush_prints(c.handle) }) == nil {
		c.prints.collect(c.print)
	}
}

// asserted passes on the messages of failed assertions, once. It must run before the context's err is
// set: the contract promises that Complain is called before any call answers with the fault.
func (c *gpuContext) asserted() {
	c.assertions.Do(func() {
		if c.sieve == nil {
			return
		}
		C.mcu_context_synchronise(c.handle) // after a fault this returns at once, and then all is written
		c.prints.collect(c.print)
		text := c.sieve.take(func(line string) bool {
			raw := []byte(line)
			return C.mcu_write_stderr((*C.char)(unsafe.Pointer(&raw[0])), C.size_t(len(raw))) != 0
		})
		c.prints.mu.Lock()
		defer c.prints.mu.Unlock()
		if len(text) > 0 {
			c.complain(text)
		}
	})
}
