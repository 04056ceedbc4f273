// Package wholefile reads files that are naturally small, such as configurations and certificates,
// into memory, up to a limit and without waiting forever for a pipe. If the user names a device, a
// folder or an endless file by mistake, the result is an immediate error. It also writes files, whole
// or not at all.
//
// It knows nothing about the content of files. Logs, which may be large, are read line by line by
// package workload.
package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"muster/internal/units"
)

// Limit is the maximum size of a kind of file.
type Limit struct {
	Bytes int64
	// Remedy is the advice for a larger file.
	Remedy string
}

// pipeWait is how long a pipe may take to deliver all its content.
const pipeWait = 10 * time.Second

// ReadFile reads a file, or a pipe such as <(command) in a shell.
func (l Limit) ReadFile(path string) ([]byte, error) { return l.readFile(path, pipeWait) }

// Public says whether a file's mode lets every user of the machine read it.
func Public(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0
}

func (l Limit) readFile(path string, wait time.Duration) ([]byte, error) {
	// Opening a pipe without O_NONBLOCK waits for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular() && info.Size() > l.Bytes:
		return nil, l.tooLarge(path)
	case mode.IsRegular():
	case mode.IsDir():
		return nil, fmt.Errorf("%s is a folder: name a file in it", path)
	case mode&fs.ModeNamedPipe != 0:
		if err := f.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	default:
		return nil, fmt.Errorf("%s is a device: name a file", path)
	}
	text, err := l.Read(f, path)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%s: this pipe did not end within %v: write all of it and close it, or name a file", path, wait)
	}
	return text, err
}

// Read reads everything from a reader. name identifies it in errors.
func (l Limit) Read(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, l.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(text)) > l.Bytes {
		return nil, l.tooLarge(name)
	}
	return text, nil
}

func (l Limit) tooLarge(name string) error {
	return fmt.Errorf("%s: larger than %s: %s", name, units.FormatSize(l.Bytes), l.Remedy)
}
