package worker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/device"
	"muster/internal/need"
	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire"
)

// smallDisk mounts a file system of so many bytes. Only root can.
func smallDisk(t *testing.T, size uint64) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can mount a small disk")
	}
	dir = t.TempDir()
	if err := syscall.Mount("muster-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		need.Missing(t, need.Mount, "a small disk cannot be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all that is left of a disk, and returns what gives it back.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "full")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { os.Remove(path) }
}

// used is how many bytes of a disk are taken.
func used(t *testing.T, dir string) uint64 {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	return (disk.Blocks - disk.Bfree) * uint64(disk.Bsize)
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

// A full disk is no memory for an allocation, and nothing else: what there was
// before is still there, and what is freed can be had again.
func TestFullSwapDiskIsOutOfMemory(t *testing.T) {
	c := newClient(t, options{swapDir: smallDisk(t, 8*mib)})
	first, data := c.alloc(4*mib), pattern(4*mib, 1)
	c.in(first, data)
	const at = testBase + 512*mib
	if r := c.call(&wire.MemAlloc{Addr: at, Size: 6 * mib}, nil); r != outOfMemory {
		t.Fatalf("6 MiB where 4 are left: %d", r)
	}
	if got := c.out(first, 4*mib); !bytes.Equal(got, data) {
		t.Error("what was there before has changed")
	}
	c.must(&wire.MemAlloc{Addr: at, Size: 4 * mib}, nil)
	c.in(at, pattern(4*mib, 2))
	c.post(&wire.MemFree{Addr: first})
	c.post(&wire.MemFree{Addr: at})
	c.must(&wire.MemAlloc{Addr: at, Size: 8 * mib}, nil)
	c.in(at, pattern(8*mib, 3))
	if got := c.out(at, 8*mib); !bytes.Equal(got, pattern(8*mib, 3)) {
		t.Error("the disk is not what was written")
	}
}

// Memory that was allocated has its room, though others fill the disk: it can be
// written, and it can be moved off a device.
func TestSwapRoomStays(t *testing.T) {
	dir := smallDisk(t, 16*mib)
	c := newClient(t, options{swapDir: dir})
	v := newVectors(c, 400_000) // three times 2 MiB
	fresh := c.alloc(2 * mib)
	defer fill(t, dir)()
	v.round(1)
	c.revoke("idle")
	c.in(fresh, pattern(2*mib, 1))
	if got := c.out(fresh, 2*mib); !bytes.Equal(got, pattern(2*mib, 1)) {
		t.Error("the memory is not what was written")
	}
	v.round(2)
	if r := c.call(&wire.MemAlloc{Addr: testBase + 512*mib, Size: 2 * mib}, nil); r != outOfMemory {
		t.Errorf("an allocation where nothing is left: %d", r)
	}
}

// A reset gives all of the disk back.
func TestResetGivesSwapRoomBack(t *testing.T) {
	dir := smallDisk(t, 8*mib)
	c := newClient(t, options{swapDir: dir})
	c.in(c.alloc(3*mib), pattern(3*mib, 1))
	c.alloc(4 * mib)
	c.must(&wire.Reset{}, nil)
	if n := used(t, dir); n > 0 {
		t.Errorf("%d bytes of the disk are still taken", n)
	}
	c.must(&wire.MemAlloc{Addr: testBase, Size: 8 * mib}, nil)
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
	h, err := newHostMemory(vmm.Range{Addr: testBase, Size: 64 * mib}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
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

func openHost(t *testing.T, dir string) *hostMemory {
	t.Helper()
	h, err := newHostMemory(vmm.Range{Addr: testBase, Size: 64 * mib}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

// room is how many bytes the disk has given to the swap file.
func (h *hostMemory) room(t *testing.T) int64 {
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
	}{{h.reserve, large, 6 * mib}, {h.reserve, small, 6 * mib}, {always(h.discard), vmm.Range{Addr: large.Addr, Size: 2 * mib}, 6 * mib},
		{always(h.release), large, 2 * mib}, {always(h.release), small, 0}} {
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
	dir := smallDisk(t, 8*mib)
	one, other := openHost(t, dir), openHost(t, dir)
	r := vmm.Range{Addr: testBase, Size: 6 * mib}
	if err := one.reserve(r); err != nil {
		t.Fatal(err)
	}
	err := other.reserve(r)
	if !errors.Is(err, device.ErrOutOfMemory) || clientcore.ResultOf(err) != outOfMemory {
		t.Fatalf("6 MiB where 2 are left: %v", err)
	}
	for _, want := range []string{dir, "6 MiB are wanted and 2 MiB of 8 MiB are free", "no space left on device", "ask the administrator to make room there, or to lower the node's swap.size"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if n := other.room(t); n > 0 || slices.ContainsFunc(other.chunks, func(c hostChunk) bool { return c.users > 0 || c.room > 0 }) {
		t.Errorf("%d bytes were taken", n)
	}
	one.put(t, r, pattern(6*mib, 1))
	one.release(r)
	if err := other.reserve(r); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	other.put(t, r, pattern(6*mib, 2))
}

// put writes to host copies.
func (h *hostMemory) put(t *testing.T, r vmm.Range, data []byte) {
	t.Helper()
	if err := h.touch(r, true); err != nil {
		t.Fatal(err)
	}
	_ = h.each(r, func(addr uint64, piece []byte) error {
		copy(piece, data[addr-r.Addr:])
		return nil
	})
}

// A copy within host copies is right however source and target overlap, and needs little memory
// beside them.
func TestCopyWithinHostCopies(t *testing.T) {
	const size, most = 2*hostCopyBuffer + 5, hostCopyBuffer + 3
	c := newClient(t, options{})
	at, data := c.alloc(size+most), pattern(size+most, 1)
	for i := 0; i < len(data); i += 4099 {
		data[i] = byte(i >> 16)
	}
	c.in(at, data)
	for _, shift := range []uint64{1, most} {
		for _, forward := range []bool{true, false} {
			to, from := at+shift, at
			if !forward {
				to, from = at, at+shift
			}
			var before, after runtime.MemStats
			c.must(&wire.Synchronise{}, nil)
			runtime.ReadMemStats(&before)
			c.post(&wire.CopyWithin{Dst: to, Src: from, Size: size})
			c.must(&wire.Synchronise{}, nil)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took >= size {
				t.Errorf("shifted by %d: it took %d bytes of memory", shift, took)
			}
			copy(data[to-at:], data[from-at:from-at+size])
			if !bytes.Equal(c.out(at, uint64(len(data))), data) {
				t.Errorf("shifted by %d, forward %v: the copy is wrong", shift, forward)
			}
		}
	}
}

// A program's addresses, which kernels use, too, are free in its worker, whatever the size of its arena.
func TestHostCopiesLeaveProgramsTheirAddresses(t *testing.T) {
	for _, size := range []uint64{16 << 30, 1 << 40} {
		var files []*os.File
		for range 2 {
			f, err := CreateHostFile(size, "", false)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		h, err := newHostMemory(vmm.Range{Addr: 0x6400_0000_0000, Size: size}, "", files)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range h.sides {
			s.bytes[0], s.bytes[size-1] = 1, 2
			if at := wire.AddressOf(s.bytes); at < asideBase || at+size > asideBase+(asideTries+1)<<40 {
				t.Errorf("side %d of %d bytes is at %#x", i, size, at)
			}
		}
		h.close()
	}
}
