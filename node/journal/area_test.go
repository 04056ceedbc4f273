package journal

import (
	"bytes"
	"os"
	"syscall"
	"testing"
)

// memory makes a journal in memory, and says how much of it there is.
func memory(t *testing.T) (*Journal, func() int64) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "journal")
	if err != nil {
		t.Skip("no files in memory:", err)
	}
	t.Cleanup(func() { f.Close() })
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(Size); err != nil {
		t.Fatal(err)
	}
	j, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Unmap)
	return j, func() int64 {
		var stat syscall.Stat_t
		if err := syscall.Fstat(int(f.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks * 512
	}
}

// A large base takes its room once, and a small one that follows gives it back.
func TestLargeBasesTakeTheirRoomOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes hundreds of megabytes")
	}
	j, taken := memory(t)
	const spare = int64(leastLog)
	image := bytes.Repeat([]byte("image"), 20<<20)
	small := []byte("small")
	for range 3 {
		if err := j.Commit(image); err != nil {
			t.Fatal(err)
		}
		sections, err := j.Base()
		if err != nil || len(sections) != 1 || !bytes.Equal(sections[0], image) {
			t.Fatalf("another base: %v", err)
		}
		if n, most := taken(), int64(len(image)+1<<20)+spare; n > most {
			t.Fatalf("a base of %d bytes takes %d, more than %d", len(image), n, most)
		}
	}
	for range 2 {
		if err := j.Commit(small); err != nil {
			t.Fatal(err)
		}
	}
	if n, most := taken(), 2*spare+1<<20; n > most {
		t.Errorf("small bases take %d bytes, more than %d", n, most)
	}
}
