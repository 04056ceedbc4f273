package devicetest

import (
	"bytes"
	"runtime"

	"muster/device"
)

// These run where the context is a device.Preempter, and are skipped where it
// is not.
var preemptionTests = []test{
	{"suspend and resume", always, testSuspendResume},
	{"memory moves under a stopped kernel", always, testMemoryMoves},
	{"restore elsewhere", always, testRestore},
	{"restore of a kernel that waits", always, testRestoreWaiting},
	{"restore with variables", always, testRestoreVariables},
	{"misuse", always, testPreemptionMisuse},
}

func (o *opened) preempter() device.Preempter {
	o.Helper()
	p, ok := o.Context.(device.Preempter)
	if !ok {
		o.Skip("this backend cannot stop a kernel between two instructions")
	}
	return p
}

func testSuspendResume(b *bench) {
	o := b.open()
	p := o.preempter()
	addr, other := o.mapped(0, o.g), o.mapped(2, o.g)
	h := o.hold(addr, endless)
	b.ok(h.stream.Fill(other, 1, 4, 1))
	b.ok(p.Suspend())
	b.ok(o.stream.Fill(other+4, 2, 4, 1)) // held as well
	free := o.newStream()                 // not held
	b.ok(free.Fill(other, 0, 4, 2))
	b.ok(free.CopyIn(h.flag, bytesOf([]uint32{1})))
	seen := make([]byte, 12)
	b.ok(free.CopyOut(seen[:8], other))
	b.ok(free.CopyOut(seen[8:], h.flag+4))
	b.ok(free.Synchronise(b.ctx))
	same(b, "while suspended", words(seen), []uint32{0, 0, 0})
	b.notDone(h.stream)
	b.notDone(o.stream)
	b.ok(p.Resume())
	b.ok(h.stream.Synchronise(b.ctx))
	b.ok(o.stream.Synchronise(b.ctx))
	same(b, "after", o.getWords(other, 2), []uint32{1, 2})
	same(b, "the kernel saw", o.getWords(h.flag+4, 1), []uint32{1})
}

// A kernel's memory can be taken away and brought back while it is stopped.
func testMemoryMoves(b *bench) {
	o := b.open()
	p := o.preempter()
	addr := o.mapped(0, o.g)
	h := o.hold(addr, endless)
	for range 3 {
		b.ok(p.Suspend())
		s := o.newStream()
		saved := make([]byte, o.g)
		b.ok(s.CopyOut(saved, addr))
		b.ok(s.Synchronise(b.ctx))
		b.ok(o.Unmap(addr, o.g))
		b.ok(o.Map(addr, o.g))
		b.ok(s.CopyIn(addr, saved))
		b.ok(s.Synchronise(b.ctx))
		b.ok(s.Close())
		b.ok(p.Resume())
		b.notDone(h.stream)
	}
	h.let()
	b.ok(h.stream.Synchronise(b.ctx))
	same(b, "the kernel saw", o.getWords(addr+4, 1), []uint32{1})
}

const grindBlocks, grindThreads, grindRounds = 64, 96, 1200

// ground returns what the kernel "grind" computes.
func ground() []uint32 {
	want := make([]uint32, grindBlocks*grindThreads)
	for i := range want {
		x := uint32(i) + 1
		for range grindRounds {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
		}
		want[i] = x
	}
	return want
}

// move moves a context to another device: the first granule of its arena, and the kernel
// on its stream. It returns false if there was no kernel to move, because it had ended
// before.
func (o *opened) move() (to *opened, moved bool) {
	o.Helper()
	p := o.preempter()
	o.ok(p.Suspend())
	stopped, err := p.Stopped()
	o.ok(err)
	out := o.newStream()
	saved := make([]byte, o.g)
	o.ok(out.CopyOut(saved, arenaBase))
	o.ok(out.Synchronise(o.ctx))
	o.ok(o.Close())
	if len(stopped) > 1 || len(stopped) == 1 && stopped[0].Stream != o.stream {
		o.Fatalf("%d kernels were stopped, or on another stream", len(stopped))
	}

	n := o.openOn(o.another(), device.Config{Arena: o.arena()})
	n.mapped(0, n.g)
	n.put(arenaBase, saved)
	for _, k := range stopped {
		o.ok(n.preempter().Restore(n.stream, k.State))
	}
	return n, len(stopped) == 1
}

// A kernel that is moved to another device several times, each time further in
// its run, computes the same as without a move.
func testRestore(b *bench) {
	const n, moves = grindBlocks * grindThreads, 6
	o := b.open()
	o.preempter()
	addr := o.mapped(0, o.g)
	b.ok(o.stream.Fill(addr, 0, 4, n))
	o.finish()
	o.launch(o.stream, "grind", grindBlocks, grindThreads, addr, uint32(grindRounds))
	count := 0
	for i := range moves {
		o.until(addr, n, i*n/(moves+2))
		var moved bool
		if o, moved = o.move(); moved {
			count++
		}
	}
	o.finish()
	if count == 0 {
		b.Error("the kernel was never stopped in the middle")
	}
	same(b, "results", o.getWords(addr, n), ground())
}

// until waits until a kernel has written that many of the words at addr.
func (o *opened) until(addr uint64, n, written int) {
	o.Helper()
	s := o.newStream()
	data := make([]byte, 4*n)
	for {
		o.ok(s.CopyOut(data, addr))
		o.ok(s.Synchronise(o.ctx))
		have := 0
		for _, w := range words(data) {
			if w != 0 {
				have++
			}
		}
		if have >= written {
			o.ok(s.Close())
			return
		}
		runtime.Gosched() // the kernel may need this processor
	}
}

func testRestoreWaiting(b *bench) {
	o := b.open()
	o.preempter()
	addr := o.mapped(0, o.g)
	o.putWords(addr, 0, 0)
	o.launch(o.stream, "spin", 1, 1, addr, addr+4, endless)
	for range 3 {
		var moved bool
		if o, moved = o.move(); !moved {
			b.Fatal("the kernel ended by itself")
		}
		b.notDone(o.stream)
	}
	s := o.newStream()
	b.ok(s.CopyIn(addr, bytesOf([]uint32{9})))
	o.finish()
	same(b, "the kernel saw", o.getWords(addr+4, 1), []uint32{9})
}

// A kernel goes on only where its module's variables have the same addresses.
func testRestoreVariables(b *bench) {
	o := b.open()
	p := o.preempter()
	o.load(variables)
	m := o.load(variables)
	b.ok(p.Suspend())
	o.sum(m) // the first work of a stream that is held
	stopped, err := p.Stopped()
	b.ok(err)
	if len(stopped) != 1 || stopped[0].Function != "sum" {
		b.Fatalf("stopped: %+v", stopped)
	}
	b.ok(o.Close())

	n := b.openOn(b.another(), device.Config{Arena: b.arena()})
	first := n.load(variables)
	b.refused(n.preempter().Restore(n.stream, stopped[0].State), device.ErrInvalidValue)
	second := n.load(variables)
	b.ok(n.preempter().Restore(n.stream, stopped[0].State))
	n.finish()
	same(b, "totals", append(n.getWords(n.variable(first, "total").Address, 1), n.getWords(n.variable(second, "total").Address, 1)...), []uint32{0, 700})
}

func testPreemptionMisuse(b *bench) {
	o := b.open()
	p := o.preempter()
	addr := o.mapped(0, o.g)
	b.refused(p.Resume(), device.ErrInvalidValue)
	_, err := p.Stopped()
	b.refused(err, device.ErrInvalidValue)
	h := o.hold(addr, endless)
	b.ok(p.Suspend())
	b.refused(p.Suspend(), device.ErrInvalidValue)
	stopped, err := p.Stopped()
	b.ok(err)
	if len(stopped) != 1 || stopped[0].Function != "spin" || stopped[0].Stream != h.stream {
		b.Fatalf("stopped: %+v", stopped)
	}
	state := stopped[0].State
	empty := o.newStream()
	for what, damaged := range map[string][]byte{
		"nothing":     nil,
		"half":        state[:len(state)/2],
		"more":        append(bytes.Clone(state), 0),
		"one bit off": flipped(state, len(state)/3),
		"other bytes": pattern(len(state), 9),
	} {
		if err := p.Restore(empty, damaged); !isError(err, device.ErrInvalidValue) {
			b.Errorf("restoring %s: answered %v", what, err)
		}
	}
	b.refused(p.Restore(h.stream, state), device.ErrInvalidValue) // it has work
	b.done(empty)
	other, err := b.dev.Open(device.Config{Arena: device.Arena{Base: arenaBase + 4*arenaSize, Size: arenaSize}})
	b.ok(err)
	b.Cleanup(func() { b.ok(other.Close()) })
	s, err := other.NewStream()
	b.ok(err)
	b.refused(other.(device.Preempter).Restore(s, state), device.ErrNotFound) // no module
	b.refused(other.(device.Preempter).Restore(empty, state), device.ErrInvalidValue)
	b.ok(p.Resume())
	h.let()
	b.ok(o.Synchronise(b.ctx))
}

func flipped(data []byte, at int) []byte {
	c := bytes.Clone(data)
	c[at] ^= 1
	return c
}
