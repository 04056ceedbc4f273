//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"sync"

	"muster/device"
)

// prints is what kernels print. The driver writes it to the standard output of
// the process, when streams are synchronised; here that is a file without a
// name, which is read after each such moment.
type prints struct {
	mu   sync.Mutex
	file *os.File
	text []byte
}

var (
	printsOnce sync.Once
	thePrints  *prints
	printsErr  error
)

// takeStdout puts the file in the place of standard output, once.
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

// collect hands on what was printed.
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

// mayPrint says whether kernels of an image may print: packed ones may.
func mayPrint(image []byte) bool {
	return bytes.Contains(image, []byte("vprintf")) || !bytes.Contains(image, []byte(".visible")) && !bytes.HasPrefix(image, []byte("\x7fELF"))
}

// printed lets the driver write what kernels of a stream have printed, and
// hands it on. The stream's work has ended.
func (c *gpuContext) printed() {
	if c.prints == nil || !c.mayPrint.Load() {
		return
	}
	if c.call(func() C.mcu_result { return C.mcu_flush_prints(c.handle) }) == nil {
		c.prints.collect(c.print)
	}
}
