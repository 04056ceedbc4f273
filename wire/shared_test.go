package wire

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A program cannot truncate memory that its worker and the daemon use, which would kill them.
func TestSharedMemoryKeepsItsSize(t *testing.T) {
	ring, arena, err := Create(smallest)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{ring, arena} {
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{0, info.Size() - 4096, info.Size() + 4096} {
			if err := f.Truncate(size); err == nil {
				t.Errorf("%s has %d bytes now, not %d", f.Name(), size, info.Size())
			}
		}
		const addSeals, getSeals, sealWrite, want = 1033, 1034, 8, 1 | 2 | 4
		if seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), getSeals, 0); errno != 0 || seals != want {
			t.Errorf("%s is sealed with %#x (%v), not %#x", f.Name(), seals, errno, want)
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), addSeals, sealWrite); errno != syscall.EPERM {
			t.Errorf("%s can be sealed against its worker: %v", f.Name(), errno)
		}
	}
}

// The memory that the daemon itself uses is allocated from the beginning: if the system commits no
// more memory than it has, a client may be refused, but no process is killed.
func TestHeadOfTheRingIsThere(t *testing.T) {
	ring, arena, err := Create(smallest)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	info, err := ring.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Blocks * 512; got < ringAt || got > ringAt+64<<10 {
		t.Errorf("the ring has %d bytes, and its head needs %d", got, ringAt)
	}
}

// A client is ended even if its memory is gone.
func TestCloseOfMemoryThatIsGone(t *testing.T) {
	ring, err := os.Create(filepath.Join(t.TempDir(), "ring"))
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	if err := ring.Truncate(int64(ringAt + smallest.Ring)); err != nil {
		t.Fatal(err)
	}
	s, err := Map(ring, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Unmap()
	if err := ring.Truncate(0); err != nil {
		t.Fatal(err)
	}
	s.Close("its time is up")
}

// Guard distinguishes memory faults from programming errors.
func TestGuard(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	b, err := mapFile(f)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(b) }()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := Guard(func() error { b[7] = 1; return nil }); !errors.Is(err, ErrNoPage) {
		t.Errorf("a page that is not there: %v", err)
	}
	if err := Guard(func() error { return os.ErrExist }); err != os.ErrExist {
		t.Errorf("an error became %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a mistake was swallowed")
		}
	}()
	_ = Guard(func() error { _ = b[len(b)+len(os.Args)]; return nil })
}
