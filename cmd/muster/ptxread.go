package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"muster/ptx"
	"muster/report"
)

// How many bytes muster ptx reads at most. A pipe or a device may never end:
// what is no ordinary file is held to the smallest bound.
const (
	maxPTXText  = ptx.MaxSource
	maxGPUCode  = 4 << 30  // a fat binary, or the GPU code in a program
	maxPTXData  = 16 << 30 // the content of a buffer
	maxPTXPiped = 64 << 20 // anything that is no ordinary file
)

// boundedFile is a file that is read up to a bound.
type boundedFile struct {
	name string // for messages
	r    io.Reader
	at   io.ReaderAt // of an ordinary file, else nil
	size int64       // of an ordinary file, else -1
	head []byte      // what was read to find out what the file is
}

// openBounded opens a file, which the caller closes.
func openBounded(path string) (f *boundedFile, file io.Closer, err error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	f = &boundedFile{name: path, r: opened, size: -1}
	if info.Mode().IsRegular() {
		f.at, f.size = opened, info.Size()
	}
	return f, opened, nil
}

// peek reads the first n bytes, or all if there are fewer.
func (f *boundedFile) peek(n int) ([]byte, error) {
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

// ordinary returns how many bytes may be read: the limit for what is an ordinary file.
func (f *boundedFile) ordinary(limit int64) int64 {
	if f.at == nil {
		return min(limit, maxPTXPiped)
	}
	return limit
}

// all reads the whole file, and refuses one that has more than limit bytes.
func (f *boundedFile) all(limit int64) ([]byte, error) {
	if f.size > limit {
		return nil, &tooLarge{f.name, f.size, limit}
	}
	var b bytes.Buffer
	b.Grow(int(max(f.size, 0)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(io.MultiReader(bytes.NewReader(f.head), f.r), limit+1)); err != nil {
		return nil, err
	}
	data := b.Bytes()
	if int64(len(data)) > limit {
		return nil, &tooLarge{f.name, -1, limit}
	}
	return data, nil
}
