package worker

import (
	"bytes"
	"runtime"
	"testing"

	"muster/node/worker/hostcopy"
	"muster/node/worker/hostcopy/hostcopytest"
	"muster/wire"
)

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
	c := newClient(t, options{swapDir: hostcopytest.SmallDisk(t, 8*mib)})
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
	dir := hostcopytest.SmallDisk(t, 16*mib)
	c := newClient(t, options{swapDir: dir})
	v := newVectors(c, 400_000) // three times 2 MiB
	fresh := c.alloc(2 * mib)
	defer hostcopytest.Fill(t, dir)()
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
	dir := hostcopytest.SmallDisk(t, 8*mib)
	c := newClient(t, options{swapDir: dir})
	c.in(c.alloc(3*mib), pattern(3*mib, 1))
	c.alloc(4 * mib)
	c.must(&wire.Reset{}, nil)
	if n := hostcopytest.Used(t, dir); n > 0 {
		t.Errorf("%d bytes of the disk are still taken", n)
	}
	c.must(&wire.MemAlloc{Addr: testBase, Size: 8 * mib}, nil)
}

// A copy within host copies is right however source and target overlap, and needs little memory
// beside them.
func TestCopyWithinHostCopies(t *testing.T) {
	const size, most = 2*hostcopy.CopyBuffer + 5, hostcopy.CopyBuffer + 3
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
