package journal

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"muster/internal/need"
)

// memory makes a journal in memory, and says how much of it there is.
func memory(t *testing.T) (*Journal, func() int64) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "journal")
	if err != nil {
		need.Missing(t, need.System, "no files in memory:", err)
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
	j.Append(1, []byte("message"))
	before := view(j)
	j.GiveSpare()
	if n, most := taken(), int64(1<<20); n > most || view(j) != before {
		t.Errorf("the journal of an idle client takes %d bytes, more than %d, and says %s", n, most, view(j))
	}
	if err := j.Commit(image); err != nil {
		t.Fatal(err)
	}
	if sections, err := j.Base(); err != nil || len(sections) != 1 || !bytes.Equal(sections[0], image) {
		t.Errorf("another base after that: %v", err)
	}
}

// However many clients write logs at the same time, together they do not use up the machine's memory.
func TestLogsOfManyClients(t *testing.T) {
	const (
		clients = 100
		all     = 16 << 30
		record  = 1 << 20
	)
	free := uint64(all)
	var logs []*Journal
	for range clients {
		j := testJournal(t, area, LogLimit, "base")
		j.free = func() (uint64, bool) { return free, true }
		logs = append(logs, j)
	}
	for grows := true; grows; {
		grows = false
		for _, j := range logs {
			if j.used > j.Affordable() {
				continue // a base empties it
			}
			if grows = true; free < all/32 {
				t.Fatalf("logs grow though only %d MiB of %d are free", free>>20, all>>20)
			}
			j.used, free = j.used+record, free-record // no memory is written
		}
	}
	j := logs[0]
	free = all
	commit(t, j, "base")
	if got := j.Affordable(); got != LogLimit {
		t.Errorf("after the others have gone a log may take %d bytes", got)
	}
	j.affords, j.free = 0, func() (uint64, bool) { return 0, false }
	if got := j.Affordable(); got != leastLog {
		t.Errorf("a log may take %d bytes where nobody knows what is free", got)
	}
}
