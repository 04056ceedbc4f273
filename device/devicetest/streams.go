package devicetest

import (
	"bytes"
	"context"
	"errors"

	"muster/device"
)

var streamTests = []test{
	{"order", always, testOrder},
	{"asynchronous", always, testAsynchronous},
	{"streams are independent", always, testIndependent},
	{"events", always, testEvents},
	{"wait for event", always, testWaitForEvent},
	{"event times", always, testEventTimes},
	{"calls", always, testCalls},
	{"cancelled wait", always, testCancelledWait},
	{"deep queue", always, testDeepQueue},
	{"misuse", always, testStreamMisuse},
}

// Work of all kinds on one stream happens in the order of submission.
func testOrder(b *bench) {
	o := b.open()
	const n = 1000
	addr := o.mapped(0, o.g)
	other := o.mapped(2, o.g)
	first := make([]uint32, n)
	want := make([]uint32, n)
	for i := range want {
		first[i] = uint32(i)
		w := uint32(i)
		for k := range uint32(20) {
			w = w*3 + k
		}
		want[i] = w*3 + 100
	}
	source := bytesOf(first)
	early := make([]byte, 4*n)
	o.ok(o.stream.Fill(addr, 0xffffffff, 4, n))
	o.ok(o.stream.CopyIn(addr, source))
	for k := range uint32(20) {
		o.launch(o.stream, "step", 8, 128, addr, k, uint32(n))
	}
	o.ok(o.stream.CopyOut(early, addr))
	o.ok(o.stream.Copy(other, addr, 4*n))
	o.ok(o.stream.Fill(addr, 0, 4, n))
	o.launch(o.stream, "step", 8, 128, other, uint32(100), uint32(n))
	late := o.getWords(other, n)
	same(b, "after all steps", late, want)
	for i, w := range words(early) {
		if w*3+100 != want[i] {
			b.Fatalf("the copy in the middle saw %d at %d", w, i)
		}
	}
	for i, w := range o.getWords(addr, n) {
		if w != 0 {
			b.Fatalf("word %d was not cleared: %d", i, w)
		}
	}
}

// held is a stream that is occupied by a kernel until the test releases it.
type held struct {
	*opened
	stream  device.Stream
	release device.Stream
	flag    uint64
}

// hold occupies a new stream with a kernel that waits. The flag is the first
// word at addr, the kernel's result the second.
func (o *opened) hold(addr uint64, limit uint64) *held {
	o.Helper()
	h := &held{opened: o, stream: o.newStream(), release: o.newStream(), flag: addr}
	o.putWords(addr, 0, 0)
	o.launch(h.release, "step", 1, 1, addr, uint32(0), uint32(0)) // loads it: some drivers cannot while another kernel runs
	o.ok(h.release.Synchronise(o.ctx))
	o.launch(h.stream, "spin", 1, 1, addr, addr+4, limit)
	return h
}

// let releases the kernel.
func (h *held) let() {
	h.Helper()
	h.ok(h.release.CopyIn(h.flag, bytesOf([]uint32{1})))
	h.ok(h.release.Synchronise(h.ctx))
}

// notDone fails if a stream has no pending work.
func (b *bench) notDone(s interface{ Done() (bool, error) }) {
	b.Helper()
	if done, err := s.Done(); err != nil || done {
		b.Fatalf("done %v (%v), want work under way", done, err)
	}
}

func (b *bench) done(s interface{ Done() (bool, error) }) {
	b.Helper()
	if done, err := s.Done(); err != nil || !done {
		b.Fatalf("done %v (%v), want no work under way", done, err)
	}
}

// Submitting does not wait for a kernel, and Done tells when it has ended.
func testAsynchronous(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	h := o.hold(addr, spinLimit)
	result := make([]byte, 4)
	o.ok(h.stream.CopyOut(result, addr+4))
	o.ok(h.stream.Fill(addr+8, 5, 4, 1))
	b.notDone(h.stream)
	h.let()
	o.ok(h.stream.Synchronise(b.ctx))
	b.done(h.stream)
	if !bytes.Equal(result, []byte{1, 0, 0, 0}) {
		b.Errorf("the kernel saw %v before it gave up", result)
	}
}

func testIndependent(b *bench) {
	o := b.open()
	h := o.hold(o.mapped(0, o.g), spinLimit)
	addr := o.mapped(2, o.g)
	o.putWords(addr, 1, 2)
	o.launch(o.stream, "step", 1, 2, addr, uint32(1), uint32(2))
	same(b, "words", o.getWords(addr, 2), []uint32{4, 7})
	b.notDone(h.stream)
	h.let()
	o.ok(o.Synchronise(b.ctx))
	b.done(h.stream)
}

func testEvents(b *bench) {
	o := b.open()
	e := o.newEvent()
	b.done(e) // never recorded
	o.ok(e.Synchronise(b.ctx))
	h := o.hold(o.mapped(0, o.g), spinLimit)
	o.ok(h.stream.Record(e))
	b.notDone(e)
	later := o.newEvent()
	o.ok(h.stream.Record(later))
	h.let()
	o.ok(later.Synchronise(b.ctx))
	b.done(e)
	// Recorded again it stands for the new work.
	h = o.hold(o.mapped(2, o.g), spinLimit)
	o.ok(h.stream.Record(e))
	b.notDone(e)
	h.let()
	o.ok(e.Synchronise(b.ctx))
	o.ok(e.Close())
	o.ok(later.Close())
}

// A stream that waits for an event does no later work before it. Wait takes the
// event's record at the time of the call; a later record does not change it.
func testWaitForEvent(b *bench) {
	o := b.open()
	addr := o.mapped(2, o.g)
	o.putWords(addr, 1)
	h := o.hold(o.mapped(0, o.g), spinLimit)
	e := o.newEvent()
	o.launch(h.stream, "step", 1, 1, addr, uint32(10), uint32(1))
	o.ok(h.stream.Record(e))
	second := o.newStream()
	o.ok(second.Wait(e))
	o.launch(second, "step", 1, 1, addr, uint32(100), uint32(1))
	never := o.newEvent()
	o.ok(second.Wait(never))
	o.ok(o.stream.Record(e)) // on a free stream: done at once; second waits for the earlier record
	o.ok(e.Synchronise(b.ctx))
	b.notDone(second)
	same(b, "before", o.getWords(addr, 1), []uint32{1})
	h.let()
	o.ok(second.Synchronise(b.ctx))
	same(b, "after", o.getWords(addr, 1), []uint32{(1*3+10)*3 + 100})
}

func testEventTimes(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	before, after, never := o.newEvent(), o.newEvent(), o.newEvent()
	o.ok(o.stream.Record(before))
	o.launch(o.stream, "grind", 4, 64, addr, uint32(100))
	o.ok(o.stream.Record(after))
	o.finish()
	d, err := after.Since(before)
	b.ok(err)
	back, err := before.Since(after)
	b.ok(err)
	if d < 0 || back != -d {
		b.Errorf("%v forwards, %v backwards", d, back)
	}
	_, err = after.Since(never)
	b.refused(err, device.ErrInvalidValue)
	h := o.hold(o.mapped(2, o.g), spinLimit)
	o.ok(h.stream.Record(after))
	_, err = after.Since(before)
	b.refused(err, device.ErrNotReady)
	h.let()
	o.ok(o.Synchronise(b.ctx))
}

func testCalls(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	var seen []uint32
	buffer := make([]byte, 4)
	for i := range uint32(5) {
		o.ok(o.stream.Fill(addr, i, 4, 1))
		o.ok(o.stream.CopyOut(buffer, addr))
		o.ok(o.stream.Call(func() { seen = append(seen, words(buffer)...) }))
	}
	// A later copy reads what a call has written to host memory.
	o.ok(o.stream.Call(func() { copy(buffer, bytesOf([]uint32{99})) }))
	o.ok(o.stream.CopyIn(addr+4, buffer))
	o.finish()
	same(b, "what the calls saw", seen, []uint32{0, 1, 2, 3, 4})
	same(b, "what a call left", o.getWords(addr+4, 1), []uint32{99})
}

func testCancelledWait(b *bench) {
	o := b.open()
	h := o.hold(o.mapped(0, o.g), spinLimit)
	e := o.newEvent()
	o.ok(h.stream.Record(e))
	cancelled, cancel := context.WithCancel(b.ctx)
	cancel()
	for what, err := range map[string]error{
		"stream": h.stream.Synchronise(cancelled), "event": e.Synchronise(cancelled), "context": o.Synchronise(cancelled),
	} {
		if !errors.Is(err, context.Canceled) {
			b.Errorf("%s: answered %v", what, err)
		}
	}
	h.let()
	o.ok(o.Synchronise(b.ctx))
}

// Thousands of launches may be pending; none is lost.
func testDeepQueue(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, 0)
	const n = 5000
	for range n {
		o.launch(o.stream, "count", 1, 1, addr)
	}
	same(b, "count", o.getWords(addr, 1), []uint32{n})
}

func testStreamMisuse(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, 0)
	e := o.newEvent()
	o.ok(e.Close())
	o.refused(o.stream.Record(e), device.ErrClosed)
	o.refused(o.stream.Wait(e), device.ErrClosed)
	o.refused(o.stream.Call(nil), device.ErrInvalidValue)

	// Pending work of a closed stream still runs.
	s := o.newStream()
	o.ok(s.Fill(addr, 8, 4, 1))
	o.ok(s.Close())
	o.refused(s.Fill(addr, 9, 4, 1), device.ErrClosed)
	o.refused(s.Synchronise(b.ctx), device.ErrClosed)
	o.ok(o.Synchronise(b.ctx))
	same(b, "work of a closed stream", o.getWords(addr, 1), []uint32{8})
}
