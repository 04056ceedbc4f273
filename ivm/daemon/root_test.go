package daemon

import (
	"os"
	"syscall"
	"testing"
)

// A write to a pipe that no process reads ends when the program does, and the program's own pipe still
// blocks.
func TestWritesToAFullPipeEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	flags := func() uintptr {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), syscall.F_GETFL, 0)
		if errno != 0 {
			t.Fatal(errno)
		}
		return flags
	}
	before := flags() // Fd has made the pipe block
	f := interruptible(w)
	if f == w {
		t.Fatal("the pipe was not opened again")
	}
	written := make(chan error, 1)
	go func() {
		for {
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				written <- err
				return
			}
		}
	}()
	if _, err := r.Read(make([]byte, 1)); err != nil { // the writer has begun
		t.Fatal(err)
	}
	f.Close()
	if err := <-written; err == nil {
		t.Error("a closed file was written to")
	}
	if flags() != before {
		t.Error("the program's own pipe was changed")
	}
}

// A file is not opened again: it would be written from its beginning.
func TestFilesKeepTheirPlace(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if interruptible(f) != f {
		t.Error("a file was opened again")
	}
}
