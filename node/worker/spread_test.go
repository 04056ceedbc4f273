package worker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/internal/seeds"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/timeline"
)

// busyPTX has a kernel that computes for n rounds, and adds what comes of it to the first word at p.
const busyPTX = `
.version 7.0
.target sm_70
.address_size 64
.visible .entry busy(.param .u64 p, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	.reg .b64 %d<2>;
	ld.param.u64 %d1, [p];
	ld.param.u32 %r1, [n];
	ld.global.u32 %r2, [%d1];
	mov.u32 %r3, 0;
AGAIN:
	mad.lo.u32 %r2, %r2, 1664525, 1013904223;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p1, %r3, %r1;
	@%p1 bra AGAIN;
	st.global.u32 [%d1], %r2;
	ret;
}
`

// computed is what the kernel leaves of a word.
func computed(word uint32, rounds int) uint32 {
	for range rounds {
		word = word*1664525 + 1013904223
	}
	return word
}

// spreadClient is a program with streams, each with memory of its own, on equal devices.
func spreadClient(t testing.TB, mapping string, devices, streams int, rate float64) (c *client, function uint32, memory []uint64) {
	return spreadClientOf(t, options{mapping: mapping}, devices, streams, rate)
}

func spreadClientOf(t testing.TB, o options, devices, streams int, rate float64) (c *client, function uint32, memory []uint64) {
	for i := range devices {
		o.devices = append(o.devices, soft.Profile{Name: fmt.Sprint("device ", i), Memory: 64 * mib, Speed: 1, Rate: rate, Workers: 1})
	}
	c = newClient(t, o)
	function = c.load(1, []byte(busyPTX), "busy")
	for i := range streams {
		c.post(&wire.StreamCreate{Stream: uint32(i + 1), Flags: nonBlocking})
		memory = append(memory, c.alloc(4))
		c.in(memory[i], binary.LittleEndian.AppendUint32(nil, uint32(i)))
	}
	return c, function, memory
}

func (c *client) busy(function, stream uint32, at uint64, rounds int) {
	c.post(&wire.Launch{Function: function, Stream: stream, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: params(at, rounds)})
}

// Independent kernels of two streams run on two devices, and leave what they leave on one.
func TestTwoStreamsOnTwoDevices(t *testing.T) {
	c, function, memory := spreadClient(t, "gr", 2, 2, 0)
	const rounds = 3
	launches := 0
	for ; said[control.RanFurther](c) == 0 && launches < 100_000; launches++ { // until the device that was asked for has come
		for i, at := range memory {
			c.busy(function, uint32(i+1), at, rounds)
		}
		if launches%40 == 0 {
			c.must(&wire.Synchronise{}, nil)
		}
	}
	c.must(&wire.Synchronise{}, nil)
	for i, at := range memory {
		want := computed(uint32(i), rounds*launches)
		if got := binary.LittleEndian.Uint32(c.out(at, 4)); got != want {
			t.Errorf("stream %d left %#x, and should have left %#x", i+1, got, want)
		}
	}
	if ran := hear[control.RanFurther](c, 1); ran.Device != 1 || ran.Kernels == 0 {
		t.Errorf("%+v", ran)
	}
}

// aloneContext runs the functions that its streams call one at a time, as CUDA does.
type aloneContext struct {
	device.Context
	running sync.Mutex
}

type aloneStream struct {
	device.Stream
	c *aloneContext
}

func (c *aloneContext) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return aloneStream{s, c}, err
}

func (s aloneStream) Can() *device.StreamCan { return &device.StreamCan{} }

func (s aloneStream) Call(f func()) error {
	return s.Stream.Call(func() {
		s.c.running.Lock()
		defer s.c.running.Unlock()
		f()
	})
}

// A stream that waits for another device must not hold up what other streams of its own call: on a
// device that runs such functions one at a time, two devices would wait for each other.
func TestDevicesThatCallOneFunctionAtATime(t *testing.T) {
	o := options{mapping: "ar:alpha=1:beta=1", alone: true, wrap: func(_ string, c device.Context) device.Context { return &aloneContext{Context: c} }}
	c, function, memory := spreadClientOf(t, o, 2, 4, 0)
	for i := range memory {
		c.post(&wire.EventCreate{Event: uint32(i + 1)})
	}
	rounds := 0
	for ; said[control.RanFurther](c) == 0 && rounds < 10_000 || rounds < 200; rounds++ {
		for i, at := range memory {
			stream, neighbour := uint32(i+1), uint32((i+1)%len(memory)+1)
			c.busy(function, stream, at, 2)
			c.post(&wire.EventRecord{Event: stream, Stream: stream})
			c.post(&wire.StreamWait{Stream: neighbour, Event: stream})
		}
		if rounds%40 == 39 {
			c.must(&wire.Synchronise{}, nil)
		}
	}
	c.must(&wire.Synchronise{}, nil)
	for i, at := range memory {
		if got, want := binary.LittleEndian.Uint32(c.out(at, 4)), computed(uint32(i), 2*rounds); got != want {
			t.Errorf("stream %d left %#x, and should have left %#x", i+1, got, want)
		}
	}
}

// The timeline has each move between two devices, with what went from where to where.
func TestMovesBetweenDevicesAreInTheTimeline(t *testing.T) {
	c, function, memory := spreadClient(t, "gr", 2, 2, 0)
	var seen traced
	seen.read(c)
	for n := 0; len(seen.of(timeline.Transfer)) == 0 && n < 10_000; n++ {
		for i := range memory { // what one stream computed the other goes on with
			c.busy(function, uint32(1+(i+n)%2), memory[i], 1)
		}
		if n%20 == 0 {
			c.must(&wire.Synchronise{}, nil)
			seen.read(c)
		}
	}
	moves := seen.of(timeline.Transfer)
	if len(moves) == 0 {
		t.Fatal("there is none")
	}
	for _, m := range moves {
		if want := fmt.Sprintf("move from device %d to device %d", 1-m.Last, m.Last); seen.names[m.Name] != want || m.Bytes == 0 || m.Bytes%(2*mib) != 0 {
			t.Errorf("%q of %d bytes, and not %q", seen.names[m.Name], m.Bytes, want)
		}
	}
}

// A fault on any device is the program's, whatever waits for it on others; after a reset all is well.
func TestFaultsOnFurtherDevices(t *testing.T) {
	c, function, memory := spreadClient(t, "ar:alpha=1:beta=1", 3, 2, 0)
	bad := uint64(testBase + 512*mib)
	for round := range 5 {
		for i := range 12 {
			c.busy(function, uint32(1+i%2), memory[i%2], 2)
		}
		c.post(&wire.EventCreate{Event: 7})
		c.post(&wire.EventRecord{Event: 7, Stream: 1})
		c.post(&wire.StreamWait{Stream: 2, Event: 7})
		c.busy(function, 2, memory[1], 2)
		c.busy(function, 1, bad, 2)
		if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
			t.Fatalf("round %d: a wild kernel is answered with %d", round, r)
		}
		c.must(&wire.Reset{}, nil)
		for i := range memory {
			c.post(&wire.StreamCreate{Stream: uint32(i + 1), Flags: nonBlocking})
			c.must(&wire.MemAlloc{Addr: memory[i], Size: 4}, nil)
			c.in(memory[i], []byte{1, 0, 0, 0})
		}
		function = c.load(uint32(round+2), []byte(busyPTX), "busy")
	}
}

// mixPTX has a kernel that makes the word at p another one, n times, and adds the word at q.
const mixPTX = `
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 p, .param .u64 q, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	.reg .b64 %d<3>;
	ld.param.u64 %d1, [p];
	ld.param.u64 %d2, [q];
	ld.param.u32 %r1, [n];
	ld.global.u32 %r2, [%d1];
	mov.u32 %r3, 0;
AGAIN:
	mad.lo.u32 %r2, %r2, 1664525, 1013904223;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p1, %r3, %r1;
	@%p1 bra AGAIN;
	ld.global.u32 %r4, [%d2];
	add.u32 %r2, %r2, %r4;
	st.global.u32 [%d1], %r2;
	ret;
}
`

// weaver is a program whose streams wait for each other by events only where they must: where one uses
// what another has written, or writes what another uses. So kernels run at the same time on several
// devices, and still leave what they would one after the other.
type weaver struct {
	*client
	r       *rand.Rand
	mix     uint32
	streams int
	words   []woven
	event   uint32
}

// woven is a word, what it is when all is done, and the events after which it may be used.
type woven struct {
	at      uint64
	value   uint32
	written use
	read    []use
}

// use is an event, of a stream.
type use struct{ stream, event uint32 }

// after has a stream wait until a word may be read, or written.
func (w *weaver) after(stream uint32, on *woven, writes bool) {
	waits := []use{on.written}
	if writes {
		waits = append(waits, on.read...)
	}
	for _, u := range waits {
		if u.event != 0 && u.stream != stream {
			w.post(&wire.StreamWait{Stream: stream, Event: u.event})
		}
	}
}

// done notes that a stream has used words, of which it wrote the first.
func (w *weaver) done(stream uint32, wrote *woven, read ...*woven) {
	w.event++
	w.post(&wire.EventCreate{Event: w.event})
	w.post(&wire.EventRecord{Event: w.event, Stream: stream})
	for _, word := range read {
		word.read = append(word.read, use{stream, w.event})
	}
	wrote.written, wrote.read = use{stream, w.event}, nil
}

func (w *weaver) step() {
	stream := uint32(1 + w.r.IntN(w.streams))
	to := &w.words[w.r.IntN(len(w.words))]
	from := &w.words[w.r.IntN(len(w.words))]
	switch n := w.r.IntN(12); {
	case n < 7 && to != from:
		w.after(stream, to, true)
		w.after(stream, from, false)
		rounds := 1 + w.r.IntN(50)
		w.post(&wire.Launch{Function: w.mix, Stream: stream, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: params(to.at, from.at, rounds)})
		to.value = computed(to.value, rounds) + from.value
		w.done(stream, to, from)
	case n == 7:
		w.after(stream, to, true)
		to.value = w.r.Uint32()
		w.post(&wire.CopyInline{Dst: to.at, Stream: stream, Data: binary.LittleEndian.AppendUint32(nil, to.value)})
		w.done(stream, to)
	case n == 8 && to != from:
		w.after(stream, to, true)
		w.after(stream, from, false)
		w.post(&wire.CopyWithin{Dst: to.at, Src: from.at, Size: 4, Stream: stream})
		to.value = from.value
		w.done(stream, to, from)
	case n == 9:
		w.after(stream, to, true)
		to.value = w.r.Uint32()
		w.post(&wire.Fill{Dst: to.at, Pitch: 4, Value: to.value, Width: 4, Count: 1, Height: 1, Stream: stream})
		w.done(stream, to)
	case n == 10 && w.r.IntN(4) == 0:
		w.daemon.recall(w.r.IntN(len(w.o.devices)))
	case n == 11 && w.r.IntN(8) == 0:
		w.daemon.revoke([]string{"idle", "memory", "move", "drain"}[w.r.IntN(4)])
	}
}

// look compares all words with what they must be.
func (w *weaver) look() {
	w.must(&wire.Synchronise{}, nil)
	for i := range w.words {
		word := &w.words[i]
		if got := binary.LittleEndian.Uint32(w.out(word.at, 4)); got != word.value {
			w.t.Fatalf("after %d uses word %d is %#x, and should be %#x", w.event, i, got, word.value)
		}
		word.written, word.read = use{}, nil
	}
}

// Streams that run at the same time on one to four devices, with mappers that choose at random, devices that
// are taken back, and moves: all is as on one device.
func TestWeaving(t *testing.T) {
	programs, steps := 6, 400
	if testing.Short() {
		programs, steps = 3, 200
	}
	seed, asked := seeds.First(t)
	if asked {
		programs = 1
	}
	for range programs {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			o := options{mapping: []string{"ar:alpha=1:beta=1", "ar:alpha=1:beta=1", "gr", "probe"}[r.IntN(4)], recovers: r.IntN(2) == 0}
			for i := range 1 + r.IntN(4) {
				o.devices = append(o.devices, soft.Profile{Name: fmt.Sprint("device ", i), Memory: 64 * mib, Speed: 1, Workers: 1})
			}
			o.chance = rand.New(rand.NewPCG(seed, 6))
			w := &weaver{client: newClient(t, o), r: r, streams: 2 + r.IntN(3)}
			w.mix = w.load(1, []byte(mixPTX), "mix")
			for i := range w.streams {
				w.post(&wire.StreamCreate{Stream: uint32(i + 1), Flags: nonBlocking})
			}
			for range 6 {
				size := uint64(4)
				if r.IntN(2) == 0 {
					size = 2 * mib // in chunks that no other is in
				}
				at := w.alloc(size)
				w.in(at, []byte{0, 0, 0, 0})
				w.words = append(w.words, woven{at: at})
			}
			for n := range steps {
				if w.step(); n%100 == 99 {
					w.look()
				}
			}
			w.look()
		})
		seed++
	}
}

// BenchmarkTwoDevices is how much longer independent kernels of two streams take on one of two equal
// devices than on both. Kernels take as long as the devices' rate says, whatever the machine does.
func BenchmarkTwoDevices(b *testing.B) {
	took := func(mapping string) time.Duration {
		c, function, memory := spreadClient(b, mapping, 2, 2, 2e6)
		run := func(launches int) {
			for range launches {
				for i, at := range memory {
					// All threads compute the same. Of 256 lanes a turn takes 2 ms, so that a busy machine,
					// on which each sleep takes longer, does not slow the device down.
					c.post(&wire.Launch{Function: function, Stream: uint32(i + 1), GridX: 1, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1, Params: params(at, 80)})
				}
			}
			c.must(&wire.Synchronise{}, nil)
		}
		for n := 0; mapping != "st" && said[control.RanFurther](c) == 0 && n < 100; n++ { // until both have contexts
			run(1)
		}
		run(2)
		began := time.Now()
		run(20)
		return time.Since(began)
	}
	for _, mapping := range []string{"gr", "ag", "ar", "probe"} {
		b.Run(mapping, func(b *testing.B) {
			one, two := time.Hour, time.Hour // the least of all: what else the machine does only adds
			for b.Loop() {
				one = min(one, took("st"))
				two = min(two, took(mapping))
			}
			b.ReportMetric(float64(one)/float64(two), "times-as-fast")
		})
	}
}

// BenchmarkMoveBetweenDevices is what it costs to run one kernel after the other on two devices in turn,
// each of which uses 64 MiB that the other has just written.
func BenchmarkMoveBetweenDevices(b *testing.B) {
	const size = 64 * mib
	o := options{mapping: "gr"}
	for i := range 2 {
		o.devices = append(o.devices, soft.Profile{Name: fmt.Sprint("device ", i), Memory: 256 * mib, Speed: 1, Workers: 1})
	}
	c := newClient(b, o)
	function := c.load(1, []byte(busyPTX), "busy")
	at := c.alloc(size)
	c.in(at, make([]byte, size))
	c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking})
	for said[control.RanFurther](c) == 0 { // until the second device has come
		c.busy(function, 1, at, 1)
		c.must(&wire.Synchronise{}, nil)
	}
	b.SetBytes(size)
	for b.Loop() {
		c.busy(function, 1, at, 1)
		c.must(&wire.Synchronise{}, nil)
	}
}

// unopened is a context of a lender that fails while it is opened.
type unopened struct{ device.Context }

func (unopened) NewStream() (device.Stream, error) {
	return nil, &device.Fault{Kind: device.DeviceLost, Detail: "the link is cut"}
}

// A further device that is lost while it is opened takes nothing with it: the device goes back, and the
// launch runs at home. The client is not rebuilt for it, which would fail in the same way each time.
func TestFurtherDeviceIsLostWhileItIsOpened(t *testing.T) {
	var failed atomic.Int32
	c, function, memory := spreadClientOf(t, options{mapping: "ar:alpha=1:beta=1", recovers: true, wrap: func(name string, c device.Context) device.Context {
		if name != "device 1" {
			return c
		}
		failed.Add(1)
		return unopened{c}
	}}, 2, 2, 0)
	want := []uint32{0, 1}
	for round := 0; round < 1000 && failed.Load() == 0; round++ { // the mapper draws the device
		for i := range memory {
			c.busy(function, uint32(1+i), memory[i], 2)
			want[i] = computed(want[i], 2)
		}
		c.must(&wire.Synchronise{}, nil)
	}
	for i := range memory {
		if got := binary.LittleEndian.Uint32(c.out(memory[i], 4)); got != want[i] {
			t.Errorf("word %d is %#x, and should be %#x", i, got, want[i])
		}
	}
	if failed.Load() == 0 {
		t.Error("the device was not tried")
	}
}

// unreliable are the contexts of a lender on which launches fail while the client is rebuilt, and once
// before.
type unreliable struct {
	device.Context
	fails func() bool
}

func (c unreliable) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return unreliableStream{s, c.fails}, err
}

type unreliableStream struct {
	device.Stream
	fails func() bool
}

func (s unreliableStream) Launch(f device.Function, l device.Launch) error {
	if s.fails() {
		return &device.Fault{Kind: device.DeviceLost, Detail: "the link is cut"}
	}
	return s.Stream.Launch(f, l)
}

// A client whose lender fails again each time that it is rebuilt is rebuilt at home in the end.
func TestRebuiltWithoutALenderThatFails(t *testing.T) {
	var once atomic.Bool
	var latest atomic.Pointer[worker]
	o := options{mapping: "ar:alpha=1:beta=1", recovers: true, rebuilds: true, employed: func(w *worker) { latest.Store(w) }}
	o.wrap = func(name string, c device.Context) device.Context {
		if name != "device 1" {
			return c
		}
		return unreliable{c, func() bool { return latest.Load().recovery.replay != nil || once.CompareAndSwap(false, true) }}
	}
	c, function, memory := spreadClientOf(t, o, 2, 2, 0)
	want := []uint32{0, 1}
	for round := 0; round < 1000 && !once.Load(); round++ {
		for i := range memory {
			c.busy(function, uint32(1+i), memory[i], 2)
			want[i] = computed(want[i], 2)
		}
		c.must(&wire.Synchronise{}, nil)
	}
	for i := range memory {
		if got := binary.LittleEndian.Uint32(c.out(memory[i], 4)); got != want[i] {
			t.Errorf("word %d is %#x, and should be %#x", i, got, want[i])
		}
	}
	if n := c.died.Load(); n == 0 || n > 2 {
		t.Errorf("the client was rebuilt %d times", n)
	}
}
