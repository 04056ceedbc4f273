package hostcopy

import (
	"syscall"
	"testing"

	"muster/internal/need"
	"muster/wire"
)

// A file for host copies in memory is as large as asked for, keeps what is written where others map
// it, and gives chunks back, whether the system has huge pages for it or not.
func TestFileThatMayHaveHugePages(t *testing.T) {
	const chunks = 4
	f, err := hugeFile(chunks * chunk)
	if err != nil {
		need.Missing(t, need.Mount, "this process cannot have one:", err)
	}
	defer f.Close()
	one, err := mapSide(f, chunks*chunk)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.UnmapAt(one.bytes)
	other, err := mapSide(f, chunks*chunk)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.UnmapAt(other.bytes)
	_ = syscall.Madvise(one.bytes, syscall.MADV_HUGEPAGE)
	for i := range one.bytes {
		one.bytes[i] = byte(i / chunk)
	}
	for i, b := range other.bytes {
		if b != byte(i/chunk) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	const keepSize, punchHole = 1, 2
	if err := syscall.Fallocate(int(f.Fd()), keepSize|punchHole, chunk, chunk); err != nil {
		t.Fatal(err)
	}
	var info syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &info); err != nil {
		t.Fatal(err)
	}
	if other.bytes[chunk] != 0 || other.bytes[2*chunk] != 2 || info.Size != chunks*chunk || info.Blocks*512 != (chunks-1)*chunk {
		t.Errorf("%d, %d, %d bytes of which %d are there", other.bytes[chunk], other.bytes[2*chunk], info.Size, info.Blocks*512)
	}
}
