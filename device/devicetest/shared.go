package devicetest

import (
	"errors"
	"os"

	"muster/device"
)

var sharedTests = []test{
	{"two contexts have the same memory", notIsolated, testSharedMemory},
	{"it is mapped and taken away", always, testSharedMapping},
}

// newShared makes shared memory, or skips the test.
func (o *opened) newShared(size uint64) *os.File {
	s := o.Can()
	if s.NewShared == nil {
		o.Skip("the backend has no memory that contexts share")
	}
	f, err := s.NewShared(size)
	if errors.Is(err, device.ErrNotSupported) {
		o.Skip("the device has no memory that contexts share")
	}
	o.ok(err)
	o.Cleanup(func() { f.Close() })
	return f
}

func (o *opened) mapShared(offset, size uint64, f *os.File) uint64 {
	addr := o.arena().Base + offset
	o.ok(o.Can().MapShared(addr, size, f))
	return addr
}

// Two contexts map shared memory at different addresses, and kernels and copies of each see what
// the other has written. Memory beside it is not shared. Shared memory outlives the context that
// made it.
func testSharedMemory(b *bench) {
	first := b.open()
	second := b.openOn(b.dev, device.Config{Arena: device.Arena{Base: arenaBase + 2*arenaSize, Size: arenaSize}})
	f := first.newShared(2 * first.g)
	here := first.mapShared(4*first.g, 2*first.g, f)
	there := arenaBase + 2*arenaSize + 8*first.g
	b.ok(second.Can().MapShared(there, 2*first.g, f))
	first.putWords(here+first.g, 1, 2, 3)
	second.launch(second.stream, "step", 1, 3, there+first.g, uint32(10), uint32(3))
	b.ok(second.stream.Synchronise(b.ctx))
	if got := first.getWords(here+first.g, 3); got[0] != 13 || got[1] != 16 || got[2] != 19 {
		b.Errorf("the first has %d", got)
	}
	b.ok(first.Close())
	if got := second.getWords(there+first.g, 3); got[0] != 13 || got[1] != 16 || got[2] != 19 {
		b.Errorf("the second has %d", got)
	}
}

// Shared memory is reachable until it is unmapped, has its old contents when it is mapped again,
// and does not count against the device's memory.
func testSharedMapping(b *bench) {
	o := b.open()
	f := o.newShared(o.g)
	addr := o.mapShared(o.g, o.g, f)
	beside := o.mapped(0, o.g)
	mapper := o.Can()
	for _, err := range []error{mapper.MapShared(addr, o.g, f), mapper.MapShared(addr+1, o.g, f), mapper.MapShared(o.arena().Base+arenaSize, o.g, f), o.Map(addr, o.g)} {
		if !errors.Is(err, device.ErrInvalidValue) {
			b.Errorf("mapped where it cannot be: %v", err)
		}
	}
	o.putWords(addr, 5)
	o.putWords(beside, 6)
	o.ok(o.Unmap(addr, o.g))
	if err := o.stream.Fill(addr, 1, 4, 1); !errors.Is(err, device.ErrInvalidValue) {
		b.Errorf("a fill where nothing is any more: %v", err)
	}
	o.ok(o.Map(addr, o.g)) // ordinary memory
	o.putWords(addr, 1)
	again := o.mapShared(3*o.g, o.g, f)
	if got := o.getWords(again, 1)[0]; got != 5 {
		b.Errorf("mapped again it has %d", got)
	}
	if got := o.getWords(beside, 1)[0]; got != 6 {
		b.Errorf("beside it is %d", got)
	}
}
