// Package codefile finds GPU code in files that people name: PTX text, fat binaries, and programs,
// libraries and objects that hold some. It reads no more than it must, since a file may be a pipe
// that never ends.
//
// It knows neither what becomes of the code nor the command line.
package codefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"muster/ptx"
	"muster/report"
)

// How many bytes are read at most. A pipe or a device may never end:
// what is no ordinary file is held to the smallest bound.
const (
	MaxText  = ptx.MaxSource
	MaxCode  = 4 << 30  // a fat binary, or the GPU code in a program
	MaxData  = 16 << 30 // the content of a buffer
	maxPiped = 64 << 20 // anything that is no ordinary file
)

// File is a file that is read up to a bound.
type File struct {
	At   io.ReaderAt // of an ordinary file, else nil
	Size int64       // of an ordinary file, else -1
	name string      // for messages
	r    io.Reader
	head []byte // what was read to find out what the file is
}

// Stream is a file that is no ordinary one, such as standard input.
func Stream(name string, r io.Reader) *File { return &File{name: name, r: r, Size: -1} }

// Open opens a file, which the caller closes.
func Open(path string) (f *File, file io.Closer, err error) {
	opened, err := os.Open(path)
	var wrong *fs.PathError
	if errors.As(err, &wrong) { // who named the file need not read which system call failed
		return nil, nil, fmt.Errorf("%s: %w", path, wrong.Err)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	f = Stream(path, opened)
	if info.Mode().IsRegular() {
		f.At, f.Size = opened, info.Size()
	}
	return f, opened, nil
}

// Peek reads the first n bytes, or all if there are fewer.
func (f *File) Peek(n int) ([]byte, error) {
	f.head = make([]byte, n)
	got, err := io.ReadFull(f.r, f.head)
	f.head = f.head[:got]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return f.head, err
}

// tooLarge says that a file has more bytes than may be read.
type tooLarge struct {
	name  string
	size  int64 // -1 if it was not read to its end
	limit int64
}

func (e *tooLarge) Error() string {
	if e.size < 0 {
		return fmt.Sprintf("%s: it has more than %s, and no more are read", e.name, report.Plural(int(e.limit), "byte"))
	}
	return fmt.Sprintf("%s: the file has %s, at most %s are read", e.name, report.Plural(int(e.size), "byte"), report.Plural(int(e.limit), "byte"))
}

// Bound returns how many bytes may be read: the limit for what is an ordinary file.
func (f *File) Bound(limit int64) int64 {
	if f.At == nil {
		return min(limit, maxPiped)
	}
	return limit
}

// All reads the whole file, and refuses one that has more than limit bytes.
func (f *File) All(limit int64) ([]byte, error) {
	if f.Size > limit {
		return nil, &tooLarge{f.name, f.Size, limit}
	}
	var b bytes.Buffer
	b.Grow(int(max(f.Size, 0)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(io.MultiReader(bytes.NewReader(f.head), f.r), limit+1)); err != nil {
		return nil, err
	}
	data := b.Bytes()
	if int64(len(data)) > limit {
		return nil, &tooLarge{f.name, -1, limit}
	}
	return data, nil
}
