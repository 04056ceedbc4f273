package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// The daemon may open files that a program may not. So what the program holds only to read, or only
// by name, is not opened again.
func TestOnlyWhatAProgramMayWriteIsOpenedAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	both, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	if f := interruptible(both); f == both {
		t.Error("a pipe that may be written was not opened again")
	} else {
		f.Close()
	}
	for flags, is := range map[int]string{os.O_RDONLY: "held to read", unix.O_PATH: "held by name", os.O_RDWR | unix.O_PATH: "held by name, as if to write"} {
		f, err := os.OpenFile(name, flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		if interruptible(f) != f || writable(f) {
			t.Errorf("a pipe %s was opened again", is)
		}
		f.Close()
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if interruptible(null) != null {
		t.Error("a device that is no terminal was opened again")
	}
}
