package worker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/device/soft"
	"muster/internal/need"
	"muster/internal/seeds"
	"muster/wire"
	"muster/wire/control"
)

// countingPTX has variables, one of them aligned so that they take more room than
// their sizes say, and kernels that use them and follow pointers.
const countingPTX = `
.version 7.0
.target sm_70
.address_size 64

.visible .global .align 4 .u32 count = 7;
.visible .global .align 65536 .b8 wide[256];
.visible .const .align 4 .u32 step = 3;

// out[i] = in[i] + step + count for i < n; thread 0 then adds 1 to count. One block.
.visible .entry add_count(.param .u64 in, .param .u64 out, .param .u32 n)
{
	.reg .pred %p<3>;
	.reg .b32 %r<8>;
	.reg .b64 %d<6>;
	mov.u32 %r1, %tid.x;
	ld.global.u32 %r2, [count];
	bar.sync 0;
	setp.ne.s32 %p2, %r1, 0;
	@%p2 bra WORK;
	add.s32 %r3, %r2, 1;
	st.global.u32 [count], %r3;
WORK:
	ld.param.u32 %r4, [n];
	setp.ge.u32 %p1, %r1, %r4;
	@%p1 bra END;
	ld.param.u64 %d1, [in];
	ld.param.u64 %d2, [out];
	mul.wide.u32 %d3, %r1, 4;
	add.s64 %d4, %d1, %d3;
	add.s64 %d5, %d2, %d3;
	ld.global.u32 %r5, [%d4];
	ld.const.u32 %r6, [step];
	add.s32 %r5, %r5, %r6;
	add.s32 %r5, %r5, %r2;
	st.global.u32 [%d5], %r5;
END:
	ret;
}

// The word that the pointer at p points to grows by 1. One thread.
.visible .entry follow(.param .u64 p)
{
	.reg .b32 %r<2>;
	.reg .b64 %d<3>;
	ld.param.u64 %d1, [p];
	ld.global.u64 %d2, [%d1];
	ld.global.u32 %r1, [%d2];
	add.s32 %r1, %r1, 1;
	st.global.u32 [%d2], %r1;
	ret;
}
`

// block is an allocation as a program sees it.
type block struct {
	addr  uint64
	data  []byte
	known []bool // bytes that were written
	child *block // what its first word points to, or nil
}

// counting is a loaded countingPTX.
type counting struct {
	id               uint32
	addCount, follow uint32
	countAt, wideAt  uint64 // 0 until asked for
	count            uint32
	wide             []byte
}

// reading is a copy out that was not waited for.
type reading struct {
	pending *wire.Pending
	bounce  uint64
	want    []byte
	known   []bool
	result  int32
	what    string
}

// program does random calls and knows what they must do. Everything is in the
// order in which it is sent: each stream waits for the one used before.
type program struct {
	*client
	r     *rand.Rand
	calls int

	scratch string // a file for checkpoints
	moves   bool   // it may be moved to another worker
	waits   bool   // its streams wait for words

	blocks   []*block
	modules  []*counting
	next     uint32          // number of a stream, event, module or function
	streams  map[uint32]bool // whether it blocks
	current  uint32
	failure  int32
	readings []*reading
	bounces  []uint64
	vecadd   uint32
	nested   *block // the one that has a child
	graphs   []*drawn
	side     uint32 // a stream of graphs; 0: none yet
	cross    uint32 // an event of graphs

	pinnedAt uint64
	pinned   []byte // what pinned memory holds when everything has ended

	mu        sync.Mutex
	functions map[uint64]func() // of the program's that have not run
	cookie    uint64
}

const pinnedSize = 64 << 10

func newProgram(c *client, r *rand.Rand) *program {
	g := c.shared.Geometry()
	p := &program{client: c, r: r, pinnedAt: g.Staging + g.Bounce, functions: map[uint64]func(){}}
	for i := range uint64(4) {
		p.bounces = append(p.bounces, g.Staging+i*wire.BounceBuffer)
	}
	p.fresh()
	return p
}

// fresh is the state after the beginning or a reset.
func (p *program) fresh() {
	p.blocks, p.modules, p.failure, p.current = nil, nil, 0, 0
	p.streams = map[uint32]bool{0: false}
	p.mu.Lock()
	clear(p.functions)
	p.mu.Unlock()
	p.pinned = make([]byte, pinnedSize)
	clear(p.memory())
	p.vecadd, p.nested = 0, nil
	p.graphs, p.side, p.cross = nil, 0, 0
}

func (p *program) memory() []byte {
	b, _ := p.shared.Data(p.pinnedAt, pinnedSize)
	return b
}

// callbacks is the thread of the program that runs its functions.
func (p *program) callbacks() {
	for {
		p.frozen.Lock()
		pending, err := p.p.Start(wire.Header{Op: wire.OpHostNext}, nil)
		p.frozen.Unlock()
		if err != nil {
			return
		}
		var reply wire.HostNextReply
		payload, err := p.waitFor(pending)
		if err != nil || reply.Decode(payload) != nil || reply.Cookie == 0 {
			return
		}
		p.mu.Lock()
		f := p.functions[reply.Cookie]
		delete(p.functions, reply.Cookie)
		if f != nil {
			f()
		}
		p.mu.Unlock()
		if p.p.Post(&wire.HostDone{Cookie: reply.Cookie}) != nil {
			return
		}
	}
}

// waitFor waits for an answer, and leaves the shared memory alone while the program is
// frozen.
func (p *program) waitFor(pending *wire.Pending) (payload []byte, err error) {
	for {
		p.frozen.Lock()
		_, closed := p.shared.Closed()
		if done := pending.WaitDone(time.Millisecond); done || closed {
			_, payload, err = pending.Wait()
			p.frozen.Unlock()
			return payload, err
		}
		p.frozen.Unlock()
	}
}

func (p *program) number() uint32 { p.next++; return p.next }

func (p *program) send(m wire.Message) {
	p.calls++
	p.post(m)
}

func (p *program) ask(m wire.Message, reply interface{ Decode([]byte) error }) int32 {
	p.t.Helper()
	p.calls++
	return p.call(m, reply)
}

func (p *program) expect(what string, got, want int32) {
	p.t.Helper()
	if got != want {
		p.t.Fatalf("call %d: %s answered %d, and should have answered %d", p.calls, what, got, want)
	}
}

// fails notes that a message without an answer was refused.
func (p *program) fails(r int32) {
	if p.failure == 0 {
		p.failure = r
	}
}

// told is what the next call that waits is told.
func (p *program) told() int32 {
	r := p.failure
	p.failure = 0
	return r
}

// stream moves on to a stream, in order.
func (p *program) stream() uint32 {
	if p.r.IntN(8) > 0 {
		return p.current
	}
	ids := slices.Sorted(maps.Keys(p.streams))
	p.follow(ids[p.r.IntN(len(ids))])
	return p.current
}

func (p *program) follow(to uint32) {
	from := p.current
	p.current = to
	switch {
	case from == to, to == 0 && p.streams[from]:
	case from == 0 && p.streams[to]: // what it is given next waits; only who has work can be waited for
		e := p.number()
		p.send(&wire.EventCreate{Event: e})
		p.send(&wire.EventRecord{Event: e, Stream: 0}) // else it may have had none: a query is none
		p.send(&wire.EventRecord{Event: e, Stream: to})
		p.send(&wire.EventDestroy{Event: e})
	case p.r.IntN(4) == 0:
		p.expect("stream_synchronise", p.ask(&wire.StreamSynchronise{Stream: from}, nil), p.told())
	default:
		e := p.number()
		p.send(&wire.EventCreate{Event: e})
		p.send(&wire.EventRecord{Event: e, Stream: from})
		p.send(&wire.StreamWait{Stream: to, Event: e})
		switch p.r.IntN(4) {
		case 0:
			p.expect("event_synchronise", p.ask(&wire.EventSynchronise{Event: e}, nil), p.told())
		case 1:
			if r := p.ask(&wire.EventQuery{Event: e}, nil); r != 0 && r != notReady {
				p.t.Fatalf("event_query answered %d", r)
			}
		}
		p.send(&wire.EventDestroy{Event: e})
	}
}

// some returns a part of a block: addresses and sizes are multiples of unit.
func (p *program) some(unit int) (b *block, at, n int) {
	b = p.blocks[p.r.IntN(len(p.blocks))]
	units := len(b.data) / unit
	at = p.r.IntN(units)
	switch n = units - at; p.r.IntN(4) {
	case 0:
	case 1:
		at, n = 0, units
	default:
		n = 1 + p.r.IntN(min(n, 1024))
	}
	return b, at * unit, n * unit
}

func (p *program) bytes(n int) []byte {
	b := make([]byte, n)
	x := p.r.Uint32()
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// put writes to the model.
func (b *block) put(at int, data []byte) {
	copy(b.data[at:], data)
	for i := range data {
		b.known[at+i] = true
	}
	if at < 8 {
		b.child = nil
	}
}

func (b *block) copyFrom(at int, from *block, src, n int) {
	copy(b.data[at:at+n], from.data[src:src+n])
	copy(b.known[at:at+n], from.known[src:src+n])
	if at < 8 {
		b.child = nil
	}
}

const piece = 512 << 10 // of a copy

// --- what a program does ------------------------------------------------------

func (p *program) alloc() {
	if len(p.blocks) >= 14 {
		p.free()
		return
	}
	size := 8 + p.r.IntN(40_000)
	at := testBase + p.r.Uint64N(24*mib)&^15
	switch p.r.IntN(20) {
	case 0, 1:
		size = 8 + p.r.IntN(2*mib)
	case 2, 3: // a whole chunk, of which a fill is remembered
		at, size = at&^(chunk-1), chunk
	}
	want := success
	for _, b := range p.blocks {
		if at < b.addr+uint64(len(b.data)) && b.addr < at+uint64(size) {
			want = invalidValue
		}
	}
	p.expect("mem_alloc", p.ask(&wire.MemAlloc{Addr: at, Size: uint64(size)}, nil), want)
	if want == success {
		p.blocks = append(p.blocks, &block{addr: at, data: make([]byte, size), known: make([]bool, size)})
	}
}

func (p *program) free() {
	i := p.r.IntN(len(p.blocks))
	b := p.blocks[i]
	p.forget(b, nil)
	p.send(&wire.MemFree{Addr: b.addr})
	p.blocks = slices.Delete(p.blocks, i, i+1)
	if p.nested == b {
		p.nested = nil
	}
	for _, o := range p.blocks {
		if o.child == b {
			o.child = nil
		}
	}
}

func (p *program) copyIn() {
	b, at, n := p.some(1)
	s := p.stream()
	for n > 0 {
		data := p.bytes(min(n, piece))
		p.calls++
		var err error
		if len(data) < 4096 && p.r.IntN(2) == 0 {
			err = p.p.Post(&wire.CopyInline{Dst: b.addr + uint64(at), Stream: s, Data: data})
		} else {
			err = p.p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, (&wire.CopyIn{Dst: b.addr + uint64(at), Stream: s}).Append(nil), data)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		b.put(at, data)
		at, n = at+len(data), n-len(data)
	}
}

// rows returns a part of a block that is rows.
func (p *program) rows() (b *block, at, pitch, width, height int) {
	b, at, n := p.some(1)
	pitch = 1 + p.r.IntN(min(n, 5000))
	width = 1 + p.r.IntN(pitch)
	height = min((n-width)/pitch+1, 30)
	return b, at, pitch, width, height
}

func (p *program) copyIn2D() {
	b, at, pitch, width, height := p.rows()
	data := p.bytes(width * height)
	m := wire.CopyIn2D{Dst: b.addr + uint64(at), Pitch: uint64(pitch), Width: uint64(width), Height: uint64(height), Stream: p.stream()}
	p.calls++
	if err := p.p.SendData(wire.Header{Op: wire.OpCopyIn2D, Slot: -1}, m.Append(nil), data); err != nil {
		p.t.Fatal(err)
	}
	for i := range height {
		b.put(at+i*pitch, data[i*width:(i+1)*width])
	}
}

func (p *program) copyOut() {
	b, at, n := p.some(1)
	n = min(n, piece)
	p.read(wire.OpCopyOut, &wire.CopyOut{Src: b.addr + uint64(at), Stream: p.stream()}, b.data[at:at+n], b.known[at:at+n])
}

func (p *program) copyOut2D() {
	b, at, pitch, width, height := p.rows()
	var data []byte
	var known []bool
	for i := range height {
		data = append(data, b.data[at+i*pitch:][:width]...)
		known = append(known, b.known[at+i*pitch:][:width]...)
	}
	p.read(wire.OpCopyOut2D, &wire.CopyOut2D{Src: b.addr + uint64(at), Pitch: uint64(pitch), Width: uint64(width), Height: uint64(height), Stream: p.stream()}, data, known)
}

// read begins to copy out, and waits only when all buffers are in use.
func (p *program) read(op wire.Op, m wire.Message, want []byte, known []bool) {
	if len(p.bounces) == 0 {
		p.finish(1)
	}
	bounce := p.bounces[0]
	p.bounces = p.bounces[1:]
	p.calls++
	pending, err := p.p.Start(wire.Header{Op: op, Data: bounce, Length: uint64(len(want))}, m.Append(nil))
	if err != nil {
		p.t.Fatal(err)
	}
	p.readings = append(p.readings, &reading{pending, bounce, bytes.Clone(want), slices.Clone(known), p.told(), fmt.Sprintf("call %d: %+v", p.calls, m)})
	if p.r.IntN(2) == 0 {
		p.finish(1)
	}
}

// finish waits for copies out and looks at what they brought.
func (p *program) finish(n int) {
	for ; n > 0 && len(p.readings) > 0; n-- {
		r := p.readings[0]
		p.readings = p.readings[1:]
		p.bounces = append(p.bounces, r.bounce)
		result, _, err := r.pending.Wait()
		if err != nil {
			p.t.Fatal(err)
		}
		p.expect(r.what, result, r.result)
		got, _ := p.shared.Data(r.bounce, uint64(len(r.want)))
		for i := range got {
			if r.known[i] && got[i] != r.want[i] {
				p.t.Fatalf("%s: byte %d of %d is %#x, and should be %#x", r.what, i, len(got), got[i], r.want[i])
			}
		}
	}
}

func (p *program) copyWithin() {
	if m, do, _, _ := p.someCopy(p.stream()); m != nil {
		p.send(m)
		do()
	}
}

func (p *program) copyWithin2D() {
	b, at, pitch, width, height := p.rows()
	from, src, fromPitch, fromWidth, fromHeight := p.rows()
	width, height = min(width, fromWidth), min(height, fromHeight)
	if from == b {
		return
	}
	p.send(&wire.CopyWithin2D{Dst: b.addr + uint64(at), DstPitch: uint64(pitch), Src: from.addr + uint64(src), SrcPitch: uint64(fromPitch), Width: uint64(width), Height: uint64(height), Stream: p.stream()})
	for i := range height {
		b.copyFrom(at+i*pitch, from, src+i*fromPitch, width)
	}
}

func (p *program) fill() {
	m, do, _ := p.someFill(p.stream())
	p.send(m)
	do()
}

func (p *program) pinnedIn() {
	b, at, n := p.some(1)
	src := p.r.IntN(pinnedSize)
	n = min(n, pinnedSize-src)
	p.calls++
	if err := p.p.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: p.pinnedAt + uint64(src), Length: uint64(n)}, (&wire.CopyIn{Dst: b.addr + uint64(at), Stream: p.stream()}).Append(nil)); err != nil {
		p.t.Fatal(err)
	}
	b.put(at, p.pinned[src:src+n])
}

func (p *program) pinnedOut() {
	b, at, n := p.some(1)
	dst := p.r.IntN(pinnedSize)
	n = min(n, pinnedSize-dst, 3000)
	if slices.Contains(b.known[at:at+n], false) {
		return
	}
	p.calls++
	if err := p.p.Send(wire.Header{Op: wire.OpCopyOut, Slot: -1, Data: p.pinnedAt + uint64(dst), Length: uint64(n)}, (&wire.CopyOut{Src: b.addr + uint64(at), Stream: p.stream()}).Append(nil)); err != nil {
		p.t.Fatal(err)
	}
	copy(p.pinned[dst:], b.data[at:at+n])
}

// hostFunction changes pinned memory in the middle of a stream.
func (p *program) hostFunction() {
	from := p.r.IntN(pinnedSize)
	to := from + p.r.IntN(pinnedSize-from)
	key, real := byte(p.r.Uint32()), p.memory()[from:to]
	for i := range p.pinned[from:to] {
		p.pinned[from+i] ^= key
	}
	p.mu.Lock()
	p.cookie++
	cookie := p.cookie
	p.functions[cookie] = func() {
		for i := range real {
			real[i] ^= key
		}
	}
	p.mu.Unlock()
	p.send(&wire.HostFunction{Stream: p.stream(), Cookie: cookie})
}

func (p *program) synchronise() {
	if p.r.IntN(2) == 0 {
		p.expect("stream_synchronise", p.ask(&wire.StreamSynchronise{Stream: p.current}, nil), p.told())
	} else {
		p.expect("synchronise", p.ask(&wire.Synchronise{}, nil), p.told())
	}
	if !bytes.Equal(p.memory(), p.pinned) {
		p.t.Fatalf("call %d: pinned memory is not what it should be", p.calls)
	}
}

func (p *program) query() {
	r := p.ask(&wire.StreamQuery{Stream: p.current}, nil)
	if r != success && r != notReady {
		p.t.Fatalf("stream_query answered %d", r)
	}
	if r == success && !bytes.Equal(p.memory(), p.pinned) {
		p.t.Fatalf("call %d: the stream is said to be done, and pinned memory is not what it should be", p.calls)
	}
}

func (p *program) newStream() {
	if len(p.streams) > 5 {
		for _, id := range slices.Sorted(maps.Keys(p.streams)) {
			if id != 0 && id != p.current {
				p.send(&wire.StreamDestroy{Stream: id})
				delete(p.streams, id)
				return
			}
		}
	}
	id, flags := p.number(), p.r.Uint32N(2)
	p.send(&wire.StreamCreate{Stream: id, Flags: flags})
	p.streams[id] = flags == 0
}

// leaveStream destroys the stream that was just used: its work goes on.
func (p *program) leaveStream() {
	id := p.current
	if id == 0 {
		return
	}
	if !p.streams[id] || p.r.IntN(2) == 0 {
		p.follow(0)
	}
	p.current = 0
	p.send(&wire.StreamDestroy{Stream: id})
	delete(p.streams, id)
}

func (p *program) loadCounting() {
	if len(p.modules) >= 3 {
		i := p.r.IntN(len(p.modules))
		p.forget(nil, p.modules[i])
		p.send(&wire.ModuleUnload{Module: p.modules[i].id})
		p.modules = slices.Delete(p.modules, i, i+1)
		return
	}
	m := &counting{id: p.number(), count: 7, wide: make([]byte, 256)}
	p.calls += 3
	p.image(m.id, []byte(countingPTX))
	m.addCount, m.follow = p.function(m.id, "add_count"), p.function(m.id, "follow")
	p.modules = append(p.modules, m)
}

func (p *program) image(id uint32, image []byte) {
	if err := p.p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{Module: id}).Append(nil), image); err != nil {
		p.t.Fatal(err)
	}
	p.must(&wire.ModuleLoad{Module: id}, nil)
}

func (p *program) function(module uint32, name string) uint32 {
	p.finish(len(p.readings))
	id := p.number()
	pending, err := p.p.Start(wire.Header{Op: wire.OpModuleFunction, Data: p.bounces[0], Length: 4096}, (&wire.ModuleFunction{Module: module, Function: id, Name: name}).Append(nil))
	if err != nil {
		p.t.Fatal(err)
	}
	if r, _, err := pending.Wait(); r != 0 || err != nil {
		p.t.Fatalf("module_function %s: %d %v", name, r, err)
	}
	return id
}

// variable returns where a variable is: for ever at the same place.
func (p *program) variable(m *counting, name string, at *uint64) uint64 {
	if *at == 0 || p.r.IntN(8) == 0 {
		var reply wire.ModuleGlobalReply
		p.expect("module_global", p.ask(&wire.ModuleGlobal{Module: m.id, Name: name}, &reply), success)
		if *at != 0 && reply.Addr != *at {
			p.t.Fatalf("call %d: variable %s was at %#x, and is at %#x", p.calls, name, *at, reply.Addr)
		}
		*at = reply.Addr
	}
	return *at
}

func (p *program) useVariables() {
	if len(p.modules) == 0 {
		return
	}
	m := p.modules[p.r.IntN(len(p.modules))]
	count, wide := p.variable(m, "count", &m.countAt), p.variable(m, "wide", &m.wideAt)
	at := p.r.IntN(256)
	n := 1 + p.r.IntN(256-at)
	known := slices.Repeat([]bool{true}, 256)
	switch p.r.IntN(6) {
	case 0:
		p.read(wire.OpCopyOut, &wire.CopyOut{Src: count, Stream: p.stream()}, binary.LittleEndian.AppendUint32(nil, m.count), known[:4])
	case 1:
		p.read(wire.OpCopyOut, &wire.CopyOut{Src: wide + uint64(at), Stream: p.stream()}, m.wide[at:at+n], known[:n])
	case 2:
		data := p.bytes(n)
		p.send(&wire.CopyInline{Dst: wide + uint64(at), Stream: p.stream(), Data: data})
		copy(m.wide[at:], data)
	case 3:
		m.count = p.r.Uint32()
		p.send(&wire.Fill{Dst: count, Pitch: 4, Value: m.count, Width: 4, Count: 1, Height: 1, Stream: p.stream()})
	case 4:
		b, to, most := p.some(1)
		n = min(n, most)
		p.send(&wire.CopyWithin{Dst: b.addr + uint64(to), Src: wide + uint64(at), Size: uint64(n), Stream: p.stream()})
		b.put(to, m.wide[at:at+n])
	case 5:
		b, from, most := p.some(1)
		n = min(n, most)
		if slices.Contains(b.known[from:from+n], false) {
			return
		}
		p.send(&wire.CopyWithin{Dst: wide + uint64(at), Src: b.addr + uint64(from), Size: uint64(n), Stream: p.stream()})
		copy(m.wide[at:], b.data[from:from+n])
	}
}

func (p *program) launchOne(function uint32, threads int, params []byte) {
	p.send(&wire.Launch{Function: function, Stream: p.stream(), GridX: 1, GridY: 1, GridZ: 1, BlockX: uint32(threads), BlockY: 1, BlockZ: 1, Params: params})
}

func (p *program) addCount() {
	if l, do, _, _, _ := p.someCount(p.stream()); l != nil {
		p.send(l)
		do()
	}
}

// followPointer has a kernel follow a pointer that lies in memory.
func (p *program) followPointer() {
	if len(p.modules) == 0 {
		return
	}
	parent := p.blocks[p.r.IntN(len(p.blocks))]
	if parent.child == nil {
		child := p.blocks[p.r.IntN(len(p.blocks))]
		if child == parent || parent.addr%8 != 0 {
			return
		}
		if old := p.nested; old != nil { // long chains would not fit
			p.send(&wire.MemNest{Parent: old.addr})
			old.child = nil
		}
		p.nested = parent
		pointer := binary.LittleEndian.AppendUint64(nil, child.addr)
		p.send(&wire.CopyInline{Dst: parent.addr, Stream: p.stream(), Data: pointer})
		p.send(&wire.MemNest{Parent: parent.addr, Children: pointer})
		parent.put(0, pointer)
		parent.child = child
	}
	p.launchOne(p.modules[p.r.IntN(len(p.modules))].follow, 1, params(parent.addr))
	word := parent.child.data[:4]
	binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)+1)
	parent.child.child = nil
}

// vecadds adds vectors with a kernel that a compiler made.
func (p *program) vecadds() {
	a, i, n := p.some(4)
	b, k, m := p.some(4)
	c, to, most := p.some(4)
	n = min(n/4, m/4, most/4, 100)
	if a == b || b == c || a == c {
		return
	}
	if p.vecadd == 0 {
		id := p.number()
		p.calls += 3
		p.image(id, kernelFile(p.t, "vecadd.nvcc90.ptx"))
		p.vecadd = p.function(id, "vecadd")
	}
	x, y := float32(p.r.IntN(1000)), float32(p.r.IntN(1000))
	for _, f := range []struct {
		b  *block
		at int
		v  float32
	}{{a, i, x}, {b, k, y}} {
		p.send(&wire.Fill{Dst: f.b.addr + uint64(f.at), Pitch: uint64(4 * n), Value: math.Float32bits(f.v), Width: 4, Count: uint64(n), Height: 1, Stream: p.stream()})
		f.b.put(f.at, floats(n, func(int) float32 { return f.v }))
	}
	p.launchOne(p.vecadd, 128, params(a.addr+uint64(i), b.addr+uint64(k), c.addr+uint64(to), n))
	c.put(to, floats(n, func(int) float32 { return x + y }))
}

// wrong does what a program must not, and may survive.
func (p *program) wrong() {
	b := p.blocks[p.r.IntN(len(p.blocks))]
	size := uint64(len(b.data))
	huge := []uint64{math.MaxUint64, 1 << 63, math.MaxUint64 - size, 1 << 48}[p.r.IntN(4)]
	switch p.r.IntN(12) {
	case 0:
		p.send(&wire.CopyWithin{Dst: b.addr, Src: b.addr, Size: huge, Stream: p.current})
		p.fails(invalidValue)
	case 1:
		p.send(&wire.Fill{Dst: b.addr, Pitch: huge, Width: 1, Count: 1, Height: 2, Stream: p.current})
		p.fails(invalidValue)
	case 2:
		p.send(&wire.Fill{Dst: b.addr, Pitch: 4, Width: 1, Count: 1, Height: huge, Stream: p.current})
		p.fails(invalidValue)
	case 3:
		p.send(&wire.CopyWithin2D{Dst: b.addr, DstPitch: huge, Src: b.addr, SrcPitch: huge, Width: huge, Height: huge, Stream: p.current})
		p.fails(invalidValue)
	case 4:
		p.send(&wire.Launch{Function: math.MaxUint32, Stream: p.current, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})
		p.fails(invalidHandle)
	case 5:
		if len(p.modules) > 0 {
			p.send(&wire.Launch{Function: p.modules[0].follow, Stream: math.MaxUint32, Params: params(b.addr)})
			p.fails(invalidHandle)
		}
	case 6:
		p.send(&wire.MemFree{Addr: b.addr + 1})
		p.fails(invalidValue)
	case 7:
		p.expect("mem_alloc", p.ask(&wire.MemAlloc{Addr: huge, Size: huge}, nil), invalidValue)
	case 8:
		p.expect("event_query", p.ask(&wire.EventQuery{Event: math.MaxUint32}, nil), invalidHandle)
	case 9:
		p.send(&wire.EventRecord{Event: math.MaxUint32})
		p.fails(invalidHandle)
	case 10:
		if len(p.modules) > 0 {
			p.send(&wire.Launch{Function: p.modules[0].follow, Stream: p.current, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1 << 30, BlockY: 1, BlockZ: 1, Params: params(b.addr)})
			p.fails(invalidValue)
		}
	case 11:
		p.send(&wire.MemNest{Parent: b.addr, Children: binary.LittleEndian.AppendUint64(nil, huge)})
		p.fails(invalidValue)
	}
}

// fault ends what the program has, and begins anew.
func (p *program) fault() {
	if len(p.modules) > 0 && p.r.IntN(2) == 0 {
		p.finish(len(p.readings))
		p.launchOne(p.modules[0].follow, 1, params(uint64(0x100)))
		p.expect("synchronise after a fault", p.ask(&wire.Synchronise{}, nil), illegalAddress)
		p.expect("mem_alloc after a fault", p.ask(&wire.MemAlloc{Addr: testBase, Size: 8}, nil), illegalAddress)
		data := make([]byte, 2000)
		if err := p.p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, (&wire.CopyIn{Dst: testBase}).Append(nil), data); err != nil {
			p.t.Fatal(err)
		}
	}
	p.finish(len(p.readings))
	p.expect("reset", p.ask(&wire.Reset{}, nil), success)
	p.fresh()
}

// disturb is what the daemon does in between.
func (p *program) disturb() {
	switch p.r.IntN(40) {
	case 0:
		p.checkpoint(p.scratch)
		return
	case 1:
		if p.moves {
			p.transplant(p.scratch)
		}
		return
	case 2:
		p.putBack()
		return
	}
	if n := len(p.o.devices); p.o.mapping != "" && p.r.IntN(2) == 0 {
		p.daemon.recall(p.r.IntN(n))
		return
	}
	switch p.r.IntN(7) {
	case 0:
		p.tell(control.Watch{On: p.r.IntN(2) == 0})
	case 1:
		p.daemon.revoke([]string{"memory", "move", "drain"}[p.r.IntN(3)])
	case 2:
		p.addNext()
	case 3, 4:
		p.daemon.revokeBut([]string{"quantum", "memory"}[p.r.IntN(2)], 2*mib*p.r.Uint64N(12))
	default:
		p.daemon.revoke("idle")
	}
}

// putBack has the program go back to where it is.
func (p *program) putBack() {
	p.expect("synchronise", p.ask(&wire.Synchronise{}, nil), p.told())
	p.checkpoint(p.scratch)
	if answer := p.restore(p.scratch); answer.Error != "" {
		p.t.Fatal(answer.Error)
	}
}

func (p *program) step() {
	type action struct {
		weight int
		do     func()
	}
	if len(p.blocks) < 3 {
		p.alloc()
		return
	}
	all := []action{
		{20, p.alloc}, {8, p.free}, {120, p.copyIn}, {60, p.copyIn2D}, {120, p.copyOut}, {60, p.copyOut2D},
		{90, p.copyWithin}, {50, p.copyWithin2D}, {120, p.fill}, {50, p.pinnedIn}, {50, p.pinnedOut}, {30, p.hostFunction},
		{40, p.synchronise}, {20, p.query}, {20, p.newStream}, {10, p.leaveStream}, {4, p.loadCounting}, {60, p.useVariables},
		{50, p.addCount}, {20, p.followPointer}, {15, p.vecadds}, {20, p.wrong}, {3, p.disturb}, {30, p.graph}, {20, p.beside},
	}
	if p.waits { // on words, because of which nothing is mapped any more
		all = append(all, action{15, p.words})
	}
	if p.o.mapping != "" { // more of what can be mapped
		all = append(all, action{200, p.vecadds})
	}
	total := 0
	for _, a := range all {
		total += a.weight
	}
	n := p.r.IntN(total)
	for _, a := range all {
		if n -= a.weight; n < 0 {
			a.do()
			break
		}
	}
	if p.r.IntN(4000) == 0 {
		p.fault()
	}
}

// TestPrograms runs random programs under a daemon that takes devices away, lends
// others, and denies growth, and compares every byte that they see with what they
// would see on a device of their own.
func TestPrograms(t *testing.T) {
	each := need.Rounds(8_000, 16_000)
	calls := 2 * each // make soak makes a million
	if testing.Short() {
		calls, each = 8_000, 4_000
	}
	runPrograms(t, calls, each, false)
}

// TestMappedPrograms is TestPrograms for programs whose launches are mapped to several devices, most
// of them at random.
func TestMappedPrograms(t *testing.T) {
	each := need.Rounds(4_000, 7_000)
	calls := 2 * each
	if testing.Short() {
		calls, each = 6_000, 3_000
	}
	runPrograms(t, calls, each, true)
}

func runPrograms(t *testing.T, calls, each int, mapped bool) {
	seed, asked := seeds.First(t)
	if asked {
		calls = each
	}
	for done := 0; done < calls && !t.Failed(); done += each {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { runProgram(t, seed, each, mapped) })
		seed++
	}
}

func runProgram(t *testing.T, seed uint64, calls int, mapped bool) {
	t.Logf("MUSTER_SEED=%d repeats it", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	o := options{defers: r.IntN(3) == 0, replays: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		o.swapDir = t.TempDir()
	}
	if r.IntN(3) == 0 {
		o.saves = rand.New(rand.NewPCG(seed, 3))
	}
	if o.recovers = r.IntN(2) == 0; o.recovers && r.IntN(3) > 0 {
		o.dies, o.lives = rand.New(rand.NewPCG(seed, 4)), max(calls/16, []int{300, 3000, 20_000}[r.IntN(3)])
	}
	// The largest has room for what a kernel needs, some for all that there is.
	sizes := [][]uint64{{20}, {20, 14}, {64, 20}, {64, 64}, {22, 40, 12}}
	if mapped {
		o.mapping = []string{"ar:alpha=1:beta=1", "ar:alpha=1:beta=1", "ar:alpha=1:beta=1", "gr", "ag", "probe"}[r.IntN(6)]
		sizes = [][]uint64{{64}, {64, 64}, {64, 20}, {64, 64, 64}, {64, 64, 64, 64}}
		t.Log("mapping ", o.mapping)
	}
	for i, memory := range sizes[r.IntN(len(sizes))] {
		o.devices = append(o.devices, soft.Profile{Name: fmt.Sprint("device ", i), Memory: memory * mib, Speed: 1 / float64(i+1), Workers: 1 + i})
	}
	if o.later = r.IntN(len(o.devices)); o.dies != nil {
		o.later = 0
	}
	o.chance = rand.New(rand.NewPCG(seed, 2))
	if r.IntN(2) == 0 {
		o.graphs = &graphCounts{}
	}
	c := newClient(t, o)
	p := newProgram(c, r)
	p.waits = r.IntN(2) == 0 && (!mapped || r.IntN(4) == 0)
	p.scratch, p.moves = filepath.Join(t.TempDir(), "checkpoint"), o.saves == nil
	stopped := make(chan struct{})
	go func() { defer close(stopped); p.callbacks() }()
	for p.calls < calls && !t.Failed() {
		p.step()
	}
	p.finish(len(p.readings))
	p.synchronise()
	for _, b := range p.blocks { // all that is left
		for at := 0; at < len(b.data); at += piece {
			n := min(len(b.data)-at, piece)
			p.read(wire.OpCopyOut, &wire.CopyOut{Src: b.addr + uint64(at), Stream: p.current}, b.data[at:at+n], b.known[at:at+n])
		}
	}
	p.finish(len(p.readings))
	p.post(&wire.HostStop{})
	<-stopped
	t.Logf("the worker died %d times", c.died.Load())
}
