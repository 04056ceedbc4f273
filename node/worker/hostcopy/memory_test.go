package hostcopy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/device"
	"muster/device/curesult"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy/hostcopytest"
	"muster/vmm"
	"muster/wire"
)

const (
	testBase = 0x6400_0000_0000
	mib      = 1 << 20
)

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// duplicates are descriptors for a worker of its own.
func duplicates(t testing.TB, files []*os.File) []*os.File {
	t.Helper()
	var all []*os.File
	for _, f := range files {
		fd, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, os.NewFile(uintptr(fd), f.Name()))
	}
	return all
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

// The swap file never has a name: a worker that is killed leaves nothing.
func TestSwapFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(watch)
	if _, err := syscall.InotifyAddWatch(watch, dir, syscall.IN_CREATE|syscall.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	h, err := New(vmm.Range{Addr: testBase, Size: 64 * mib}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	events := make([]byte, 4096)
	if n, err := syscall.Read(watch, events); err != syscall.EAGAIN {
		t.Errorf("the folder has changed: %q, %v", events[:max(n, 0)], err)
	}
}

// Where the file system has no files without names, a name is there for a moment.
func TestSwapFileWithAName(t *testing.T) {
	dir := t.TempDir()
	f, err := unlinkedFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := unlinkedFile(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
}

func openHost(t *testing.T, dir string) *Memory {
	t.Helper()
	h, err := New(vmm.Range{Addr: testBase, Size: 64 * mib}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// room is how many bytes the disk has given to the swap file.
func (h *Memory) room(t *testing.T) int64 {
	t.Helper()
	info, err := h.sides[0].file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// Room is there from reserve to release, in whole chunks, and others' stays.
func TestRoomOfTheSwapFile(t *testing.T) {
	h := openHost(t, t.TempDir())
	large, small := vmm.Range{Addr: testBase + 4*mib, Size: 5 * mib}, vmm.Range{Addr: testBase + 9*mib, Size: 1000}
	always := func(do func(vmm.Range)) func(vmm.Range) error {
		return func(r vmm.Range) error { do(r); return nil }
	}
	for i, step := range []struct {
		do   func(vmm.Range) error
		r    vmm.Range
		want int64
	}{{h.Reserve, large, 6 * mib}, {h.Reserve, small, 6 * mib}, {always(h.Discard), vmm.Range{Addr: large.Addr, Size: 2 * mib}, 6 * mib},
		{always(h.Release), large, 2 * mib}, {always(h.Release), small, 0}} {
		if err := step.do(step.r); err != nil {
			t.Fatal(err)
		}
		if got := h.room(t); got/mib != step.want/mib { // some file systems add a block of their own
			t.Errorf("step %d: the file has %d bytes, want %d", i, got, step.want)
		}
	}
	if err := h.write(0, 2*mib, 4*mib); err != nil || h.room(t)/mib != 4 {
		t.Errorf("zeros take %d bytes, %v", h.room(t), err)
	}
}

// Two clients share a disk. One that finds it full has taken nothing, and hears
// where and how much.
func TestFullDiskTakesNothing(t *testing.T) {
	dir := hostcopytest.SmallDisk(t, 8*mib)
	one, other := openHost(t, dir), openHost(t, dir)
	r := vmm.Range{Addr: testBase, Size: 6 * mib}
	if err := one.Reserve(r); err != nil {
		t.Fatal(err)
	}
	err := other.Reserve(r)
	if !errors.Is(err, device.ErrOutOfMemory) || clientcore.ResultOf(err) != curesult.OutOfMemory {
		t.Fatalf("6 MiB where 2 are left: %v", err)
	}
	for _, want := range []string{dir, "6 MiB are wanted and 2 MiB of 8 MiB are free", "no space left on device", "ask the administrator to make room there, or to lower the node's swap.size"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if n := other.room(t); n > 0 || slices.ContainsFunc(other.chunks, func(c chunkState) bool { return c.users > 0 || c.room > 0 }) {
		t.Errorf("%d bytes were taken", n)
	}
	one.put(t, r, pattern(6*mib, 1))
	one.Release(r)
	if err := other.Reserve(r); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	other.put(t, r, pattern(6*mib, 2))
}

// put writes to host copies.
func (h *Memory) put(t *testing.T, r vmm.Range, data []byte) {
	t.Helper()
	if err := h.touch(r, true); err != nil {
		t.Fatal(err)
	}
	_ = h.Each(r, func(addr uint64, piece []byte) error {
		copy(piece, data[addr-r.Addr:])
		return nil
	})
}

// A program's addresses, which kernels use, too, are free in its worker, whatever the size of its arena.
func TestHostCopiesLeaveProgramsTheirAddresses(t *testing.T) {
	for _, size := range []uint64{16 << 30, 1 << 40} {
		var files []*os.File
		for range 2 {
			f, err := CreateFile(size, "", false)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		h, err := New(vmm.Range{Addr: 0x6400_0000_0000, Size: size}, "", files)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range h.sides {
			s.bytes[0], s.bytes[size-1] = 1, 2
			if at := wire.AddressOf(s.bytes); at < asideBase || at+size > asideBase+(asideTries+1)<<40 {
				t.Errorf("side %d of %d bytes is at %#x", i, size, at)
			}
		}
		h.Close()
	}
}
