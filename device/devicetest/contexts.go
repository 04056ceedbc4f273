package devicetest

import (
	"bytes"
	"errors"
	"sync"

	"muster/device"
)

var contextTests = []test{
	{"two at once", notIsolated, testTwoContexts},
	{"memory is shared", notIsolated, testMemoryIsShared},
	{"close", always, testClose},
	{"close with work pending", always, testClosePending},
	{"close during a kernel", func(o Options) bool { return !o.Stoppable }, testCloseDuringKernel},
	{"foreign handles", notIsolated, testForeignHandles},
	{"many goroutines", always, testManyGoroutines},
}

// Two contexts have the same addresses and nothing else in common.
func testTwoContexts(b *bench) {
	all := []*opened{b.open(), b.open()}
	addr := arenaBase + 3*all[0].g
	for i, o := range all {
		o.mapped(3, o.g)
		o.putWords(addr, uint32(i+1))
	}
	for range 3 {
		for _, o := range all {
			o.launch(o.stream, "step", 1, 1, addr, uint32(1), uint32(1))
		}
	}
	for i, o := range all {
		same(b, "word", o.getWords(addr, 1), []uint32{uint32(i+1)*27 + 13})
	}
	// A long kernel of one context does not block the other.
	h := all[0].hold(all[0].mapped(5, all[0].g), spinLimit)
	all[1].launch(all[1].stream, "grind", 8, 128, addr, uint32(50))
	all[1].finish()
	b.notDone(h.stream)
	h.let()
	b.ok(h.stream.Synchronise(b.ctx))
}

func testMemoryIsShared(b *bench) {
	info := b.dev.Info()
	more := info.Memory/2/info.Granularity*info.Granularity + info.Granularity
	config := device.Config{Arena: device.Arena{Base: arenaBase, Size: more}}
	first, second := b.openOn(b.dev, config), b.openOn(b.dev, config)
	b.ok(first.Map(arenaBase, more))
	b.refused(second.Map(arenaBase, more), device.ErrOutOfMemory)
	b.ok(first.Close())
	b.ok(second.Map(arenaBase, more))
}

func testClose(b *bench) {
	o := b.open()
	free, _, err := o.Memory()
	b.ok(err)
	b.ok(o.Close())
	b.ok(o.Close())
	o = b.open()
	o.mapped(0, 8*o.g)
	o.load(variables)
	addr := arenaBase
	s, e := o.stream, o.newEvent()
	f := o.function("count")
	l := device.Launch{Grid: line(1), Block: line(1), Params: o.pack(f, addr)}
	b.ok(o.Close())
	_, _, memoryErr := o.Memory()
	_, streamErr := o.NewStream()
	_, loadErr := o.Load(basic)
	for what, err := range map[string]error{
		"Err": o.Err(), "Map": o.Map(addr, o.g), "Unmap": o.Unmap(addr, o.g), "Memory": memoryErr, "NewStream": streamErr, "Load": loadErr,
		"CopyIn": s.CopyIn(addr, make([]byte, 4)), "CopyOut": s.CopyOut(make([]byte, 4), addr), "Fill": s.Fill(addr, 0, 4, 1),
		"Launch": s.Launch(f, l), "Record": s.Record(e), "Synchronise": o.Synchronise(b.ctx), "Stream.Synchronise": s.Synchronise(b.ctx),
	} {
		if !errors.Is(err, device.ErrClosed) {
			b.Errorf("%s: answered %v, want: %v", what, err, device.ErrClosed)
		}
	}
	o = b.open()
	o.freeAgain(free)
}

// Close does not wait for pending work that cannot begin, and callers that wait
// for that work return.
func testClosePending(b *bench) {
	o := b.open()
	h := o.hold(o.mapped(0, o.g), spinLimit)
	addr := o.mapped(2, o.g)
	e := o.newEvent()
	b.ok(h.stream.Record(e))
	b.ok(o.stream.Wait(e))
	for range 100 {
		b.ok(o.stream.Fill(addr, 1, 1, o.g))
	}
	told := make(chan error, 1)
	go func() { told <- o.stream.Synchronise(b.ctx) }()
	h.let()
	b.ok(o.Close())
	if err := <-told; err != nil && !errors.Is(err, device.ErrClosed) {
		b.Errorf("who waited was told: %v", err)
	}
}

func testCloseDuringKernel(b *bench) {
	o := b.open()
	h := o.hold(o.mapped(0, o.g), endless)
	h2 := o.hold(o.mapped(2, o.g), endless)
	b.notDone(h.stream)
	told := make(chan error, 1)
	go func() { told <- h2.stream.Synchronise(b.ctx) }()
	b.ok(o.Close())
	if err := <-told; !errors.Is(err, device.ErrClosed) {
		b.Errorf("who waited was told: %v", err)
	}
	o = b.open() // the device is usable again
	addr := o.mapped(0, o.g)
	o.putWords(addr, 1)
	o.launch(o.stream, "step", 1, 1, addr, uint32(1), uint32(1))
	same(b, "word", o.getWords(addr, 1), []uint32{4})
}

// Streams, events and functions of one context are refused in another.
func testForeignHandles(b *bench) {
	mine, other := b.open(), b.open()
	addr := mine.mapped(0, mine.g)
	f := other.function("count")
	b.refused(mine.stream.Launch(f, device.Launch{Grid: line(1), Block: line(1), Params: mine.pack(f, addr)}), device.ErrInvalidValue)
	e := other.newEvent()
	b.refused(mine.stream.Record(e), device.ErrInvalidValue)
	b.refused(mine.stream.Wait(e), device.ErrInvalidValue)
	_, err := mine.newEvent().Since(e)
	b.refused(err, device.ErrInvalidValue)
}

// Goroutines that map, copy, launch and unmap at the same time, each in its own
// part of the arena, do not disturb each other.
func testManyGoroutines(b *bench) {
	o := b.open()
	f := o.function("step")
	var all sync.WaitGroup
	for n := range uint64(8) {
		all.Go(func() {
			addr := arenaBase + 2*n*o.g
			for round := range 5 {
				if err := o.roundTrip(f, addr, byte(n)+byte(round)); err != nil {
					b.Errorf("goroutine %d, round %d: %v", n, round, err)
					return
				}
			}
		})
	}
	all.Wait()
}

var errWrong = errors.New("wrong bytes came back")

// roundTrip uses memory of its own, from mapping to unmapping.
func (o *opened) roundTrip(f device.Function, addr uint64, seed byte) error {
	s, err := o.NewStream()
	if err != nil {
		return err
	}
	data := pattern(4096, seed)
	back := make([]byte, len(data))
	want := words(data)
	for i := range want {
		want[i] = want[i]*3 + 1
	}
	steps := []func() error{
		func() error { return o.Map(addr, o.g) },
		func() error { return s.CopyIn(addr, data) },
		func() error {
			return s.Launch(f, device.Launch{Grid: line(8), Block: line(128), Params: o.pack(f, addr, uint32(1), uint32(1024))})
		},
		func() error { return s.CopyOut(back, addr) },
		func() error { return s.Synchronise(o.ctx) },
		func() error { return o.Unmap(addr, o.g) },
		s.Close,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if !bytes.Equal(back, bytesOf(want)) {
		return errWrong
	}
	return nil
}
