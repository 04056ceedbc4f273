package devicetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"muster/device"
)

var wordTests = []test{
	{"a stream waits for a word", always, testWordWait},
	{"words of the host", always, testHostWords},
	{"wrong words", always, testWrongWords},
	{"a stream waits for the host", always, testHold},
	{"a stream that waits for the host is closed with its context", always, testHoldClosed},
}

// words returns what the stream can, or skips the test if that is not words.
func (o *opened) words(s device.Stream) *device.StreamCan {
	if s.Can().WaitWord == nil {
		o.Skip("the backend has no words that streams wait for")
	}
	return s.Can()
}

// Work behind a wait begins after another stream or a kernel has written the word; other
// streams go on meanwhile. Words of both widths are written whole.
func testWordWait(b *bench) {
	o := b.open()
	addr, other := o.mapped(0, o.g), o.newStream()
	waits, writes := o.words(o.stream), o.words(other)
	o.launch(other, "step", 1, 1, addr+192, uint32(0), uint32(1)) // loads it: some drivers cannot while a stream waits
	o.ok(other.Synchronise(b.ctx))
	o.putWords(addr, make([]uint32, 64)...)
	o.ok(waits.WaitWord(addr, 4, 7, device.Equal))
	o.ok(waits.WaitWord(addr+8, 8, 1<<40, device.SomeBits))
	o.launch(o.stream, "step", 1, 1, addr+64, uint32(5), uint32(1))
	o.ok(waits.WriteWord(addr+128, 8, 1<<63|3))
	o.launch(other, "step", 1, 1, addr+96, uint32(9), uint32(1))
	o.ok(other.Synchronise(b.ctx))
	if done, err := o.stream.Done(); done || err != nil {
		b.Fatalf("the stream that waits is done: %v, %v", done, err)
	}
	o.ok(writes.WriteWord(addr+8, 8, 1<<40))
	o.ok(writes.WriteWord(addr, 4, 7))
	o.ok(o.stream.Synchronise(b.ctx))
	if got := o.getWords(addr+128, 2); got[0] != 3 || got[1] != 1<<31 {
		b.Errorf("the word is %#x", got)
	}
	if got := o.getWords(addr, 4); got[0] != 7 || got[1] != 0 || got[2] != 0 || got[3] != 1<<8 {
		b.Errorf("the words that were waited for are %#x", got)
	}
}

// A stream waits for a word in host memory, and writes one.
func testHostWords(b *bench) {
	o := b.open()
	waits := o.words(o.stream)
	host := b.hostPages(4096)
	unmap := o.mapHost(host)
	at := addressOf(host)
	o.ok(waits.WaitWord(at, 4, 3, device.AtLeast))
	o.ok(waits.WriteWord(at+8, 8, 1<<50|1))
	if done, err := o.stream.Done(); done || err != nil {
		b.Fatalf("the stream that waits is done: %v, %v", done, err)
	}
	storeWord(host, 4)
	o.ok(o.stream.Synchronise(b.ctx))
	if got := binary.LittleEndian.Uint64(host[8:]); got != 1<<50|1 {
		b.Errorf("the word is %#x", got)
	}
	o.ok(unmap())
}

func testWrongWords(b *bench) {
	o := b.open()
	w, addr := o.words(o.stream), o.mapped(0, o.g)
	for _, err := range []error{
		w.WriteWord(addr+2, 4, 0), w.WriteWord(addr+4, 8, 0), w.WriteWord(addr, 2, 0), w.WriteWord(addr+o.g, 4, 0),
		w.WaitWord(addr+2, 4, 0, device.Equal), w.WaitWord(addr+o.g, 8, 0, device.Equal), w.WaitWord(addr, 4, 0, device.NotAll+1),
	} {
		if !errors.Is(err, device.ErrInvalidValue) {
			b.Errorf("a wrong word: %v", err)
		}
	}
	o.ok(o.stream.Synchronise(b.ctx))
}

// holder returns what the stream can, or skips the test if that is not to wait for the host.
func (o *opened) holder(s device.Stream) *device.StreamCan {
	if s.Can().Hold == nil {
		o.Skip("the backend has no streams that wait for the host")
	}
	return s.Can()
}

// Work behind a hold begins when the host has released it. Other streams go on meanwhile, with all that
// they do: copies of memory that is not pinned, and host functions.
func testHold(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, make([]uint32, 64)...)
	o.launch(o.stream, "step", 1, 1, addr, uint32(1), uint32(1)) // loads it
	o.ok(o.stream.Synchronise(b.ctx))
	o.putWords(addr, make([]uint32, 64)...)
	var reached, called atomic.Int32
	var releases []func()
	for i := range 3 {
		o.ok(o.stream.Call(func() { reached.Add(1) }))
		o.ok(o.holder(o.stream).Hold(func(release func()) { releases = append(releases, release) }))
		o.launch(o.stream, "step", 1, 1, addr+uint64(4*i), uint32(5), uint32(1))
	}
	for range 3 {
		data, other := make([]byte, 4096), o.newStream()
		o.ok(other.CopyIn(addr+1024, pattern(4096, 7)))
		o.ok(other.Call(func() { called.Add(1) }))
		o.ok(other.CopyOut(data, addr+1024))
		o.ok(other.Synchronise(b.ctx))
		if !bytes.Equal(data, pattern(4096, 7)) {
			b.Error("a copy beside a stream that waits brought something else")
		}
		if done, err := o.stream.Done(); done || err != nil {
			b.Fatalf("the stream that waits is done: %v, %v", done, err)
		}
	}
	if called.Load() != 3 || reached.Load() > 1 {
		b.Errorf("%d calls of the other stream, and %d of the one that waits at its first hold", called.Load(), reached.Load())
	}
	for _, release := range releases {
		release()
		release()
	}
	o.ok(o.stream.Synchronise(b.ctx))
	one := o.getWords(addr, 3)
	if one[0] == 0 || one[1] != one[0] || one[2] != one[0] || reached.Load() != 3 {
		b.Errorf("after %d calls the words are %v", reached.Load(), one)
	}
}

func testHoldClosed(b *bench) {
	x, err := b.dev.Open(device.Config{Arena: b.arena()})
	b.ok(err)
	s, err := x.NewStream()
	b.ok(err)
	h := s.Can()
	if h.Hold == nil {
		b.ok(x.Close())
		b.Skip("the backend has no streams that wait for the host")
	}
	var release func()
	given := func(f func()) { release = f }
	b.ok(h.Hold(given))
	b.ok(x.Close())
	release()
	if h.Hold(given) == nil {
		b.Error("a stream of a closed context waits for the host")
	}
}
