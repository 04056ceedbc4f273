package worker

import (
	"bytes"
	"runtime"
	"testing"

	"muster/wire"
)

// What becomes shared memory keeps its contents, and the worker holds no second copy of
// them meanwhile: a program may share most of what the machine has.
func TestSharingCopiesOnce(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := newClient(t, options{owner: "1000", swapDir: dir})
		const size = 32 * mib
		addr := c.alloc(size)
		data := bytes.Repeat([]byte("what the memory holds, now of 64 bytes, and again and again....."), size/64)
		c.in(addr, data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.must(&wire.MemShare{Addr: addr, Size: size}, &wire.MemShareReply{})
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > size/2 {
			t.Errorf("in %q: sharing %d bytes made %d more", dir, size, made)
		}
		if !bytes.Equal(c.out(addr, size), data) {
			t.Errorf("in %q: the memory has changed", dir)
		}
	}
}

// Shared memory counts: a program that names more than it has gets no more than it may have.
func TestSharingMoreThanThereIs(t *testing.T) {
	c := newClient(t, options{owner: "1000", swapRoom: 8 * mib})
	addr := c.alloc(mib)
	const outOfMemory = 2
	if r := c.call(&wire.MemShare{Addr: addr, Size: 256 * mib}, &wire.MemShareReply{}); r != outOfMemory {
		t.Errorf("sharing 256 MiB around an allocation of 1 MiB: %d", r)
	}
	c.must(&wire.MemShare{Addr: addr, Size: 4 * mib}, &wire.MemShareReply{})
}

// A program that says less than there is holds more than counts: it gets nothing, also while
// it has no context.
func TestImportOfAnotherSize(t *testing.T) {
	giver := newClient(t, options{owner: "1000"})
	addr := giver.alloc(4 * mib)
	var name wire.MemShareReply
	giver.must(&wire.MemShare{Addr: addr, Size: 4 * mib}, &name)
	taker := newClient(t, options{owner: "1000"})
	const invalidValue = 1
	for _, size := range []uint64{2 * mib, 8 * mib} {
		if r := taker.call(&wire.MemImport{Addr: testBase + 64*mib, Size: size, A: name.A, B: name.B, C: name.C, D: name.D}, nil); r != invalidValue {
			t.Errorf("4 MiB of another program's, as %d bytes: %d", size, r)
		}
	}
	taker.must(&wire.MemImport{Addr: testBase + 64*mib, Size: 4 * mib, A: name.A, B: name.B, C: name.C, D: name.D}, nil)
}
