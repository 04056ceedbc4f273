package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/internal/seeds"
	"muster/node/worker/told"
	"muster/wire"
	"muster/wire/control"
)

// next takes a cookie, as the program's thread for its functions does.
func (c *client) nextCookie() uint64 {
	c.t.Helper()
	var reply wire.HostNextReply
	c.must(&wire.HostNext{}, &reply)
	return reply.Cookie
}

func (c *client) start(m wire.Message) *wire.Pending {
	c.t.Helper()
	pending, err := c.p.Start(wire.Header{Op: m.Op()}, m.Append(nil))
	if err != nil {
		c.t.Fatal(err)
	}
	return pending
}

// A stream takes only so much work. The program's function that it waits for may
// return after more was sent than that, and after more data than staging memory
// holds.
func TestManyMessagesBehindAFunction(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 256)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 9})
	cookie := c.nextCookie()
	for i := range 6000 {
		v.launch(0)
		if i%100 == 0 {
			v.in(v.a, make([]byte, 200_000)[:1024])
			c.in(v.b, make([]byte, 1024))
		}
	}
	large := c.start(&wire.StreamSynchronise{})
	extra := make([]byte, mib)
	for range 12 { // three times what staging memory holds
		c.in(v.c, extra[:1024])
		if err := c.p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{Module: 77}).Append(nil), extra); err != nil {
			t.Fatal(err)
		}
	}
	c.post(&wire.HostDone{Cookie: cookie})
	if r, _, err := large.Wait(); r != success || err != nil {
		t.Fatal(r, err)
	}
	v.round(1)
}

// Copies behind a function keep no staging memory.
func TestCopiesBehindAFunction(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1<<18)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 1})
	cookie := c.nextCookie()
	data := bytes.Repeat([]byte{5}, mib)
	for range 20 {
		c.in(v.a, data)
	}
	c.post(&wire.HostDone{Cookie: cookie})
	if got := c.out(v.a, mib); !bytes.Equal(got, data) {
		t.Error("the last copy is not there")
	}
}

// The device is not given back while a function of the program's runs, which may
// wait for another of its threads.
func TestRevocationWaitsForFunctions(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 1})
	cookie := c.nextCookie()
	c.daemon.revoke("idle")
	for range 3 {
		c.alloc(4096) // answered meanwhile
	}
	if said[control.Released](c) != 0 {
		t.Error("the device was given back while a stream was in use")
	}
	c.post(&wire.HostDone{Cookie: cookie})
	hear[control.Released](c, 1)
	v.round(1)
}

// A fault on one stream ends the wait of another for the program, and every call
// that waits is told of it.
func TestFaultWhileOthersWait(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.round(0)
	c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking})
	c.post(&wire.StreamCreate{Stream: 2, Flags: nonBlocking})
	c.post(&wire.EventCreate{Event: 1})
	c.post(&wire.HostFunction{Stream: 1, Cookie: 1})
	cookie := c.nextCookie()
	for range 3 { // staging memory that no copy will ever read
		if err := c.p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, (&wire.CopyIn{Dst: v.a, Stream: 1}).Append(nil), make([]byte, 4000)); err != nil {
			t.Fatal(err)
		}
	}
	c.post(&wire.EventRecord{Event: 1, Stream: 1})
	waiting := []*wire.Pending{
		c.start(&wire.StreamSynchronise{Stream: 1}), c.start(&wire.EventSynchronise{Event: 1}), c.start(&wire.Synchronise{}), c.start(&wire.StreamSynchronise{}),
	}
	bad := *v
	bad.a = 0x10
	bad.launch(2)
	waiting = append(waiting, c.start(&wire.StreamSynchronise{Stream: 2}))
	for i, w := range waiting {
		r, _, err := w.Wait()
		// Stream 0 has nothing to wait for, and may have ended before.
		if err != nil || r != illegalAddress && (i != 3 || r != success) {
			t.Errorf("call %d answered %d, %v", i, r, err)
		}
	}
	c.post(&wire.HostDone{Cookie: cookie})
	c.must(&wire.Reset{}, nil)
	c.arenaAt = 0
	v = newVectors(c, 1<<19)
	v.round(1) // more than staging memory holds
	v.round(2)
}

// Copies that a fault kept from being done give their staging memory back.
func TestFaultBeforeCopies(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 100_000)
	c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking})
	c.post(&wire.StreamCreate{Stream: 2, Flags: nonBlocking})
	v.round(0)
	for range 300 {
		v.launch(1)
	}
	if err := c.p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, (&wire.CopyIn{Dst: v.a, Stream: 1}).Append(nil), make([]byte, 4000)); err != nil {
		t.Fatal(err)
	}
	v.a = 0x10
	v.launch(2)
	if r := c.call(&wire.StreamSynchronise{Stream: 2}, nil); r != illegalAddress {
		t.Fatalf("stream_synchronise answered %d", r)
	}
	c.must(&wire.Reset{}, nil)
	c.arenaAt = 0
	newVectors(c, 1<<20).round(1) // more than staging memory holds
}

// What an earlier world left behind does not hurt the next.
func TestFaultsEndWithTheirWorld(t *testing.T) {
	c := newClient(t, options{})
	for i := range 30 {
		c.arenaAt = 0
		v := newVectors(c, 1000)
		v.round(i)
		v.a = 0x10
		v.launch(0)
		var waiting []*wire.Pending
		for range 20 {
			waiting = append(waiting, c.start(&wire.Synchronise{}))
		}
		c.must(&wire.Reset{}, nil)
		for _, w := range waiting {
			if r, _, err := w.Wait(); r != illegalAddress || err != nil {
				t.Fatalf("a call before the reset answered %d, %v", r, err)
			}
		}
	}
}

// Whoever is told of a fault finds the reason, once, however many wait for it and
// whoever comes upon it first.
func TestReasonsComeBeforeResults(t *testing.T) {
	c := newClient(t, options{})
	for i := range told.AtOnce {
		c.arenaAt = 0
		v := newVectors(c, 1000)
		v.round(i)
		v.a = 0x10
		v.launch(0)
		var waiting []*wire.Pending
		for range 5 {
			waiting = append(waiting, c.start(&wire.StreamSynchronise{}))
		}
		var told []string
		for k, w := range waiting {
			if r, _, err := w.Wait(); r != illegalAddress || err != nil {
				t.Fatalf("round %d: call %d answered %d, %v", i, k, r, err)
			}
			told = append(told, c.shared.Notices()...)
			if len(told) != 1 || !strings.HasPrefix(told[0], "kernel vecadd: illegal address 0x10 in block (0,0,0), thread (0,0,0), at line ") {
				t.Fatalf("round %d: with answer %d came %q", i, k, told)
			}
		}
		c.must(&wire.Reset{}, nil)
		if more := c.shared.Notices(); more != nil {
			t.Fatalf("round %d: later came %q", i, more)
		}
	}
}

func TestResetWithMemoryOnTheDevice(t *testing.T) {
	c := newClient(t, options{})
	for i := range 5 {
		c.arenaAt = 0
		v := newVectors(c, 50_000)
		v.round(i)
		c.must(&wire.Reset{}, nil)
	}
}

// What lies between the rows of a copy stays, though the rows are written on the
// host and the rest is on the device.
func TestRowsKeepWhatIsBetween(t *testing.T) {
	c := newClient(t, options{defers: true})
	v := newVectors(c, 1<<20) // two chunks each
	v.round(3)
	row := wire.CopyIn2D{Dst: v.c, Pitch: 4096, Width: 16, Height: 1023}
	data := bytes.Repeat([]byte{9}, 16*1023)
	if err := c.p.SendData(wire.Header{Op: wire.OpCopyIn2D, Slot: -1}, row.Append(nil), data); err != nil {
		t.Fatal(err)
	}
	want := floats(v.n, func(i int) float32 { return float32(i+3) + float32(2*i) })
	for i := range 1023 {
		copy(want[i*4096:], data[:16])
	}
	if got := c.out(v.c, uint64(len(want))); !bytes.Equal(got, want) {
		t.Error("what was between the rows is lost")
	}
}

// Work of a stream that was destroyed is waited for like other work.
func TestDestroyedStreamKeepsOrder(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 100_000)
	for i := range 20 {
		if i%2 == 0 { // a context in which the default stream has had no work
			c.revoke("memory")
		}
		id := uint32(2 + i)
		c.post(&wire.StreamCreate{Stream: id})
		c.post(&wire.Fill{Dst: v.a, Pitch: 4, Value: math.Float32bits(float32(i)), Width: 4, Count: uint64(v.n), Height: 1, Stream: id})
		c.post(&wire.Fill{Dst: v.b, Pitch: 4, Value: math.Float32bits(1), Width: 4, Count: uint64(v.n), Height: 1, Stream: id})
		for range 5 {
			v.launch(id)
		}
		c.post(&wire.StreamDestroy{Stream: id})
		if got, want := v.out(v.c, uint64(4*v.n)), floats(v.n, func(int) float32 { return float32(i) + 1 }); !bytes.Equal(got, want) {
			t.Fatalf("round %d: the default stream overtook a destroyed one", i)
		}
	}
}

// Memory that was freed can be used again at once, though others share its chunk
// and a kernel still used it.
func TestFreeWaitsForKernels(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 100_000)
	c.must(&wire.MemAlloc{Addr: v.c + mib, Size: 64}, nil) // shares the chunk
	c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking})
	c.post(&wire.StreamCreate{Stream: 2, Flags: nonBlocking})
	for i := range 10 {
		for range 5 {
			v.launch(1)
		}
		c.post(&wire.MemFree{Addr: v.c})
		c.must(&wire.MemAlloc{Addr: v.c, Size: uint64(4 * v.n)}, nil)
		c.post(&wire.Fill{Dst: v.c, Pitch: 1, Value: uint32(i), Width: 1, Count: uint64(4 * v.n), Height: 1, Stream: 2})
		c.must(&wire.Synchronise{}, nil)
		if got := c.out(v.c, uint64(4*v.n)); !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 4*v.n)) {
			t.Fatal("a kernel wrote to memory that was freed before")
		}
	}
}

// A module takes what its variables take with their alignments.
func TestVariablesCountWithTheirAlignment(t *testing.T) {
	c := newClient(t, options{})
	text := strings.Replace(countingPTX, ".align 65536", ".align 1048576", 1)
	text = strings.Replace(text, ".visible .const", ".visible .global .align 1048576 .b8 wider[4];\n.visible .const", 1)
	function := c.load(1, []byte(text), "follow")
	cell := c.alloc(16)
	c.in(cell, params(cell+8, uint64(41)))
	c.post(&wire.Launch{Function: function, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: params(cell)})
	if got := c.out(cell+8, 4); got[0] != 42 {
		t.Errorf("the kernel left %d", got[0])
	}
	for i := range uint32(3) { // more modules while the lease is exactly as large as it must be
		c.load(2+i, []byte(text), "follow")
		var reply wire.ModuleGlobalReply
		c.must(&wire.ModuleGlobal{Module: 2 + i, Name: "wider"}, &reply)
	}
	if m := hear[control.Want](c, 1); m.Memory < 6*mib {
		t.Errorf("%d bytes were wanted", m.Memory)
	}
}

// shifted is a context that gives variables other addresses.
type shifted struct{ device.Context }

func newShifted(c device.Context) device.Context {
	if _, err := c.Load([]byte(countingPTX)); err != nil {
		panic(err)
	}
	return shifted{c}
}

// Where variables cannot have the addresses that the program has seen, the worker
// asks for the device where they can.
func TestVariablesKeepTheirAddresses(t *testing.T) {
	turn := 0
	c := newClient(t, options{
		devices: []soft.Profile{{Name: "one", Memory: 64 * mib, Speed: 1, Workers: 1}, {Name: "two", Memory: 64 * mib, Speed: 1, Workers: 1}},
		grant: func(m control.Want) (int, uint64) {
			if m.Pinned >= 0 {
				return m.Pinned, m.Memory + 4*mib
			}
			turn++
			return (turn - 1) % 2, m.Memory + 4*mib // the second one takes more for itself
		},
		wrap: func(name string, c device.Context) device.Context {
			if name == "two" {
				return newShifted(c)
			}
			return c
		},
	})
	function := c.load(1, []byte(countingPTX), "add_count")
	cell := c.alloc(64)
	var first, again wire.ModuleGlobalReply
	c.must(&wire.ModuleGlobal{Module: 1, Name: "count"}, &first)
	for i := range 4 {
		c.post(&wire.Launch{Function: function, GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1, Params: params(cell, cell, 0)})
		c.must(&wire.ModuleGlobal{Module: 1, Name: "count"}, &again)
		if again != first {
			t.Fatalf("the variable was at %#x, and is at %#x", first.Addr, again.Addr)
		}
		if got := binary.LittleEndian.Uint32(c.out(first.Addr, 4)); got != uint32(8+i) {
			t.Fatalf("the variable is %d after %d launches", got, i+1)
		}
		c.revoke("memory")
	}
}

// No more is allocated than the daemon has room to swap out, and no size fools
// the account.
func TestSwapRoomIsCommitted(t *testing.T) {
	c := newClient(t, options{swapRoom: 8 * mib})
	first := c.alloc(4 * mib)
	for _, size := range []uint64{math.MaxUint64, math.MaxUint64 - 4*mib, math.MaxUint64 - 4*mib + 1, 1 << 63, 0} {
		if r := c.call(&wire.MemAlloc{Addr: testBase + 64*mib, Size: size}, nil); r != invalidValue {
			t.Errorf("mem_alloc of %d bytes answered %d", size, r)
		}
	}
	for i := range uint64(3) { // a byte takes a chunk
		want := success
		if i == 2 {
			want = outOfMemory
		}
		if r := c.call(&wire.MemAlloc{Addr: testBase + 64*mib + i*2*mib, Size: 1}, nil); r != want {
			t.Errorf("chunk %d: mem_alloc answered %d", i, r)
		}
	}
	c.post(&wire.MemFree{Addr: first})
	c.must(&wire.MemAlloc{Addr: testBase + 128*mib, Size: 4 * mib}, nil)
}

// A client that waits for a device ends with the daemon.
func TestDaemonEndsWhileTheClientWaits(t *testing.T) {
	wanted := make(chan struct{})
	c := newClient(t, options{})
	c.daemon.mu.Lock()
	c.daemon.bound, c.daemon.revoking = -1, false
	c.daemon.silent = func() { close(wanted) }
	c.daemon.mu.Unlock()
	v := newVectors(c, 1000)
	v.launch(0)
	<-wanted
	c.daemon.control.Close()
	if _, err := c.p.Call(&wire.Synchronise{}, nil); err == nil {
		t.Error("a call was answered after the daemon had ended")
	}
}

// A program that ends in the middle of everything leaves nothing behind.
func TestProgramEndsInTheMiddle(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 100_000)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 3})
	c.nextCookie()
	for range 5000 {
		v.launch(0)
	}
	c.post(&wire.MemFree{Addr: v.a}) // waits for the function
	c.start(&wire.Synchronise{})
}

// What a client may not send ends it and nothing else.
func TestHostileMessages(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 0))
	ops := wire.Ops()
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := newClient(t, options{defers: r.IntN(2) == 0})
			v := newVectors(c, 1000)
			v.round(0)
			c.daemon.mu.Lock()
			c.daemon.forgets = true
			c.daemon.mu.Unlock()
			for range 3000 {
				op := ops[r.IntN(len(ops))]
				h := wire.Header{Op: op, Slot: -1}
				if op.IsCall() || op.GivesData() && r.IntN(2) == 0 {
					h.Slot = r.IntN(4) // answers overwrite each other: the client's loss
				}
				if op.TakesData() || op.GivesData() {
					h.Data, h.Length = hostileValue(r, v)%(24*mib), hostileValue(r, v)%(9*mib)
					if r.IntN(500) == 0 {
						h.Length = r.Uint64()
					}
				}
				if op.TakesData() && r.IntN(2) == 0 {
					h.Release = hostileValue(r, v)
				}
				if c.p.Send(h, hostileBody(r, v, op)) != nil {
					break
				}
				if r.IntN(20) == 0 { // the worker believes nothing that stands there
					c.shared.SetStatus(int32(r.IntN(3)))
				}
				if r.IntN(300) == 0 {
					c.daemon.revoke("memory")
				}
			}
		})
	}
}

func hostileValue(r *rand.Rand, v *vectors) uint64 {
	switch r.IntN(8) {
	case 0:
		return r.Uint64()
	case 1:
		return math.MaxUint64 - r.Uint64N(3)
	case 2, 3:
		return r.Uint64N(5)
	case 4:
		return []uint64{v.a, v.b, v.c}[r.IntN(3)]
	case 5:
		return testBase + r.Uint64N(8*mib)
	}
	return r.Uint64N(4000)
}

// hostileBody is a message of the right length with values that make little
// sense; sometimes not even that.
func hostileBody(r *rand.Rand, v *vectors, op wire.Op) []byte {
	u := func() uint64 { return hostileValue(r, v) }
	w := func() uint32 { return uint32(hostileValue(r, v)) }
	small := func() uint32 { return r.Uint32N(6) }
	var m wire.Message
	switch op {
	case wire.OpMemAlloc:
		m = &wire.MemAlloc{Addr: u(), Size: u()}
	case wire.OpMemFree:
		m = &wire.MemFree{Addr: testBase + 4*mib*r.Uint64N(3)}
	case wire.OpMemNest:
		m = &wire.MemNest{Parent: u(), Children: binary.LittleEndian.AppendUint64(nil, u())}
	case wire.OpCopyInline:
		m = &wire.CopyInline{Dst: u(), Stream: small(), Data: make([]byte, r.IntN(100))}
	case wire.OpCopyIn:
		m = &wire.CopyIn{Dst: u(), Stream: small()}
	case wire.OpCopyOut:
		m = &wire.CopyOut{Src: u(), Stream: small()}
	case wire.OpCopyWithin:
		m = &wire.CopyWithin{Dst: u(), Src: u(), Size: u(), Stream: small()}
	case wire.OpCopyWithin2D:
		m = &wire.CopyWithin2D{Dst: u(), DstPitch: u(), Src: u(), SrcPitch: u(), Width: u(), Height: u(), Stream: small()}
	case wire.OpFill:
		m = &wire.Fill{Dst: u(), Pitch: u(), Value: w(), Width: []uint32{1, 2, 4}[r.IntN(3)], Count: u(), Height: u(), Stream: small()}
	case wire.OpModuleData:
		m = &wire.ModuleData{Module: 5 + small()}
	case wire.OpModuleGlobal:
		m = &wire.ModuleGlobal{Module: small(), Name: "count"}
	case wire.OpFunctionOccupancy:
		m = &wire.FunctionOccupancy{Function: 100, Threads: w(), Shared: u()}
	case wire.OpFunctionShared:
		m = &wire.FunctionShared{Function: 100, Blocks: w(), Threads: w()}
	case wire.OpFunctionTouches:
		m = &wire.FunctionTouches{Function: 99 + small()}
	case wire.OpFunctionClusters:
		m = &wire.FunctionClusters{Function: 100, GridX: w(), GridY: small(), GridZ: w(), BlockX: w(), BlockY: small(), BlockZ: small(), Shared: w(), Flags: w(), ClusterX: w(), ClusterY: small(), ClusterZ: w()}
	case wire.OpDriverAsk:
		m = &wire.DriverAsk{What: small(), About: make([]byte, small())}
	case wire.OpLimit:
		m = &wire.Limit{Limit: small(), Value: u()}
	case wire.OpHostMap:
		m = &wire.HostMap{Addr: u() % (1 << 47) &^ 0xfff, Offset: 4096 * r.Uint64N(64), Size: 4096 * (1 + r.Uint64N(8))}
		if r.IntN(100) == 0 { // which ends the client
			m = &wire.HostMap{Addr: u(), Offset: u(), Size: u()}
		}
	case wire.OpStreamWrite:
		m = &wire.StreamWrite{Stream: small(), Addr: u(), Value: u(), Width: 4 + 4*r.Uint32N(2)}
	case wire.OpStreamAwait: // of a word that is there already, most often
		m = &wire.StreamAwait{Stream: small(), Addr: u(), Width: 4 + 4*r.Uint32N(2), Compare: r.Uint32N(2), Cookie: 0x1000 + r.Uint64N(1<<40)}
	case wire.OpMemShare:
		m = &wire.MemShare{Addr: testBase + 2*mib*r.Uint64N(8), Size: 2 * mib * r.Uint64N(4)}
	case wire.OpMemImport:
		m = &wire.MemImport{Addr: testBase + 2*mib*r.Uint64N(8), Size: 2 * mib * r.Uint64N(4), A: u(), B: u(), C: u(), D: u()}
	case wire.OpHostUnmap:
		m = &wire.HostUnmap{Addr: u()}
	case wire.OpTextureCreate:
		m = &wire.TextureCreate{
			Surface: small(), Resource: small(), Addr: u(), Format: []uint32{1, 2, 3, 8, 9, 10, 16, 32, w()}[r.IntN(9)], Channels: small(), Width: u(), Height: u(), Depth: u(), ArrayFlags: w(),
			Levels: w(), Level: w(), Size: u(), Pitch: u(), AddressX: small(), AddressY: small(), AddressZ: w(), Filter: small(), Flags: w(), Anisotropy: w(), MipFilter: small(), Bias: w(), MinLevel: w(),
			MaxLevel: w(), HasView: small(), ViewFormat: w(), ViewWidth: u(), ViewHeight: u(), ViewDepth: u(), FirstLevel: w(), LastLevel: w(), FirstLayer: w(), LastLayer: w(),
		}
	case wire.OpTextureDestroy:
		m = &wire.TextureDestroy{Handle: u(), Surface: small()}
	case wire.OpLaunch:
		m = &wire.Launch{ClusterX: small(), ClusterY: w(), Function: 100, Stream: small(), GridX: small(), GridY: small(), GridZ: w(), BlockX: small(), BlockY: small(), BlockZ: w(), Shared: w(), Flags: w(), Stack: u(), Params: params(u(), u(), u(), 1)}
	case wire.OpStreamQuery:
		m = &wire.StreamQuery{Stream: small()}
	case wire.OpStreamSynchronise:
		m = &wire.StreamSynchronise{Stream: small()}
	case wire.OpStreamCreate:
		m = &wire.StreamCreate{Stream: 1 + r.Uint32(), Flags: w()}
	case wire.OpStreamWait:
		m = &wire.StreamWait{Stream: small(), Event: small()}
	case wire.OpEventCreate:
		m = &wire.EventCreate{Event: r.Uint32()}
	case wire.OpEventRecord:
		m = &wire.EventRecord{Event: small(), Stream: small()}
	case wire.OpEventQuery:
		m = &wire.EventQuery{Event: small()}
	case wire.OpEventSynchronise:
		m = &wire.EventSynchronise{Event: small()}
	case wire.OpEventElapsed:
		m = &wire.EventElapsed{Start: small(), End: small()}
	case wire.OpHostDone:
		m = &wire.HostDone{Cookie: u()}
	case wire.OpHostFunction:
		m = &wire.HostFunction{Stream: small(), Cookie: 0x1000 + r.Uint64N(1<<40)}
	case wire.OpSynchronise, wire.OpSyncPoint, wire.OpHostStop, wire.OpReset, wire.OpHostNext, wire.OpPrintFetch:
		return nil
	default: // these end the client more often than not
		if r.IntN(40) > 0 {
			return nil
		}
		b := make([]byte, r.IntN(64))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	return m.Append(nil)
}

// heldContext has work that does not end while it is held.
type heldContext struct {
	device.Context
	held *atomic.Bool
	gate <-chan struct{}
}

func (c heldContext) Synchronise(ctx context.Context) error {
	if c.held.Load() {
		select {
		case <-c.gate:
		case <-ctx.Done():
		}
	}
	return c.Context.Synchronise(ctx)
}

// A worker answers pings while its loop waits for a kernel, however often the
// daemon changes its mind about watching it meanwhile.
func TestPingsAreAnsweredWhileTheLoopWaits(t *testing.T) {
	var held atomic.Bool
	gate := make(chan struct{})
	c := newClient(t, options{wrap: func(_ string, inner device.Context) device.Context { return heldContext{inner, &held, gate} }})
	v := newVectors(c, 32)
	v.round(1)
	addr := c.alloc(4096)
	held.Store(true)
	c.post(&wire.MemFree{Addr: addr}) // waits for the kernel
	for i := range 500 {
		c.tell(control.Watch{On: i%2 == 0})
	}
	c.tell(control.Ping{Number: 7})
	hear[control.Pong](c, 1)
	close(gate)
	c.must(&wire.Synchronise{}, nil)
}

// The time of kernels is told while the loop waits for them, and not only when they have
// ended.
func TestTimeIsToldWhileTheLoopWaits(t *testing.T) {
	var held atomic.Bool
	gate := make(chan struct{})
	c := newClient(t, options{wrap: func(_ string, inner device.Context) device.Context { return heldContext{inner, &held, gate} }})
	v := newVectors(c, 32)
	addr := c.alloc(4096)
	v.round(1)
	held.Store(true) // the kernel may have ended, but nobody sees that
	v.launch(0)
	c.post(&wire.MemFree{Addr: addr}) // waits for the kernel
	hear[control.Ran](c, 3)
	close(gate)
	c.must(&wire.Synchronise{}, nil)
}

// An event may be destroyed while a call waits for it: the call is answered when the
// work has ended, and not before.
func TestEventDestroyedWhileWaitedFor(t *testing.T) {
	c := newClient(t, options{})
	c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking})
	c.post(&wire.EventCreate{Event: 5})
	c.post(&wire.HostFunction{Stream: 1, Cookie: 3})
	cookie := c.nextCookie()
	c.post(&wire.EventRecord{Event: 5, Stream: 1})
	waits := c.start(&wire.EventSynchronise{Event: 5})
	c.post(&wire.EventDestroy{Event: 5})
	c.must(&wire.StreamQuery{}, nil) // the loop has seen it
	if waits.WaitDone(20 * time.Millisecond) {
		t.Error("the call was answered while the stream waited for the program")
	}
	c.post(&wire.HostDone{Cookie: cookie})
	if r, _, err := waits.Wait(); r != 0 || err != nil {
		t.Errorf("answered %d, %v", r, err)
	}
}

// slowEnd is a context that closes only when it may.
type slowEnd struct {
	device.Context
	may chan struct{}
}

func (c slowEnd) Close() error {
	<-c.may
	return c.Context.Close()
}

// A program that ends as soon as it is told of a fault takes its worker along. The daemon hears of the
// fault all the same, once.
func TestFaultIsToldBeforeTheEnd(t *testing.T) {
	told, exits, may := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := newClient(t, options{
		lenient:  true,
		wrap:     func(_ string, c device.Context) device.Context { return slowEnd{c, may} },
		told:     func(*worker) { close(told) },
		employed: func(w *worker) { w.exit = func() { close(exits) } },
	})
	v := newVectors(c, 1000)
	v.a = 0x10
	v.launch(0)
	c.start(&wire.Synchronise{})
	<-told
	end := c.daemon.end()
	if err := errors.Join(end.Send(control.End{}), end.CloseWrite()); err != nil { // the program has ended
		t.Fatal(err)
	}
	<-exits
	close(may)
	<-c.daemon.ended
	times := 0
	c.daemon.mu.Lock()
	defer c.daemon.mu.Unlock()
	for _, m := range c.daemon.heard {
		switch m := m.(type) {
		case control.Failed:
			times++
		case control.Ended:
			if m.Fault {
				times++
			}
		}
	}
	if times != 1 {
		t.Errorf("the daemon was told %d times: %+v", times, c.daemon.heard)
	}
}
