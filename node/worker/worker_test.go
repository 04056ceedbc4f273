package worker

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"

	"muster/device/soft"
	"muster/wire"
	"muster/wire/control"
)

// vectors is a program that adds vectors.
type vectors struct {
	*client
	function uint32
	a, b, c  uint64
	large    uint64
	n        int
}

func newVectors(c *client, n int) *vectors {
	v := &vectors{client: c, n: n, function: c.load(1, kernelFile(c.t, "vecadd.nvcc90.ptx"), "vecadd")}
	v.a, v.b, v.c = c.alloc(uint64(4*n)), c.alloc(uint64(4*n)), c.alloc(uint64(4*n))
	return v
}

func (v *vectors) launch(stream uint32) {
	v.t.Helper()
	v.post(&wire.Launch{Function: v.function, Stream: stream, GridX: uint32(v.n+255) / 256, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1,
		Params: params(v.a, v.b, v.c, v.n)})
}

// round adds two vectors and checks the sum.
func (v *vectors) round(seed int) {
	v.t.Helper()
	v.in(v.a, floats(v.n, func(i int) float32 { return float32(i + seed) }))
	v.in(v.b, floats(v.n, func(i int) float32 { return float32(2 * i) }))
	v.launch(0)
	want := floats(v.n, func(i int) float32 { return float32(i+seed) + float32(2*i) })
	if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
		v.t.Fatalf("round %d: the sum is wrong", seed)
	}
}

func TestKernelRunsOnGrantedDevice(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 300_000)
	v.round(1)
	v.round(2)
}

// Binding waits for the first launch.
func TestNoDeviceBeforeTheFirstLaunch(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.in(v.a, make([]byte, 4000))
	if got := v.out(v.a, 4000); !bytes.Equal(got, make([]byte, 4000)) {
		t.Error("the copy is not what was written")
	}
	c.must(&wire.Synchronise{}, nil)
	if said[control.Want](c) > 0 {
		t.Fatal("a device was wanted before there was a kernel")
	}
	v.round(1)
	if m := hear[control.Want](c, 1); m.Memory == 0 {
		t.Error("no memory was wanted")
	}
}

func TestRevokedClientGoesOnElsewhere(t *testing.T) {
	turn := 0
	c := newClient(t, options{
		devices: []soft.Profile{{Name: "one", Memory: 64 * mib, Speed: 1, Workers: 1}, {Name: "two", Memory: 32 * mib, Speed: 0.5, Workers: 2}},
		grant:   func(m control.Want) (int, uint64) { turn++; return turn % 2, m.Memory },
	})
	v := newVectors(c, 200_000)
	for i := range 6 {
		v.round(i)
		c.revoke("idle")
		want := floats(v.n, func(k int) float32 { return float32(k+i) + float32(2*k) })
		if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
			t.Fatalf("round %d: the sum is lost after the device was taken away", i)
		}
	}
}

// A program larger than the device runs: what a kernel's parameters point to is
// there when it runs, the rest is on the host.
func TestProgramLargerThanTheDevice(t *testing.T) {
	c := newClient(t, options{devices: []soft.Profile{{Name: "tiny", Memory: 8 * mib, Speed: 1, Workers: 1}},
		grant: func(m control.Want) (int, uint64) { return 0, 8 * mib }})
	first := newVectors(c, 400_000) // three times 2 MiB
	second := &vectors{client: c, n: first.n, function: first.function}
	second.a, second.b, second.c = c.alloc(uint64(4*first.n)), c.alloc(uint64(4*first.n)), c.alloc(uint64(4*first.n))
	for i := range 3 {
		first.round(i)
		second.round(100 + i)
	}
	// The results of the first are still there.
	want := floats(first.n, func(k int) float32 { return float32(k+2) + float32(2*k) })
	if got := first.out(first.c, uint64(4*first.n)); !bytes.Equal(got, want) {
		t.Error("swapped memory came back changed")
	}
}

// A fault stays until a reset; then the program has an empty world.
func TestFaultStays(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	v.a = 0x10
	v.launch(0)
	if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
		t.Fatalf("synchronise answered %d", r)
	}
	if r := c.call(&wire.MemAlloc{Addr: testBase + 512*mib, Size: 16}, nil); r != illegalAddress {
		t.Errorf("after a fault mem_alloc answered %d", r)
	}
	hear[control.Failed](c, 1)
	c.must(&wire.Reset{}, nil)
	c.arenaAt = 0
	newVectors(c, 1000).round(1)
}

// What is given to the legacy default stream waits for blocking streams, and
// they wait for it.
func TestLegacyStreamKeepsOrder(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 100_000)
	c.post(&wire.StreamCreate{Stream: 7})
	c.post(&wire.StreamCreate{Stream: 8})
	v.round(0) // now on the device
	for i := range 20 {
		x := float32(i)
		c.post(&wire.Fill{Dst: v.a, Pitch: uint64(4 * v.n), Value: math.Float32bits(x), Width: 4, Count: uint64(v.n), Height: 1, Stream: 7})
		c.post(&wire.Fill{Dst: v.b, Pitch: uint64(4 * v.n), Value: math.Float32bits(1), Width: 4, Count: uint64(v.n), Height: 1, Stream: 8})
		v.launch(0)
		c.post(&wire.CopyWithin{Dst: v.a, Src: v.c, Size: uint64(4 * v.n), Stream: 7})
		if got, want := v.out(v.a, uint64(4*v.n)), floats(v.n, func(int) float32 { return x + 1 }); !bytes.Equal(got, want) {
			t.Fatalf("round %d: work overtook other work", i)
		}
	}
}

func TestEventsOutliveTheDevice(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 100_000)
	c.post(&wire.EventCreate{Event: 1})
	c.post(&wire.EventCreate{Event: 2})
	v.round(0)
	c.post(&wire.EventRecord{Event: 1})
	v.launch(0)
	c.revoke("idle")
	c.post(&wire.EventRecord{Event: 2})
	c.must(&wire.EventSynchronise{Event: 2}, nil)
	var reply wire.EventElapsedReply
	c.must(&wire.EventElapsed{Start: 1, End: 2}, &reply)
	if reply.Milliseconds <= 0 || reply.Milliseconds > 60_000 {
		t.Errorf("%v ms between two events", reply.Milliseconds)
	}
	if r := c.call(&wire.EventElapsed{Start: 1, End: 3}, &reply); r != invalidHandle {
		t.Errorf("an event that does not exist: %d", r)
	}
}

// A stream waits for a function of the program's, while the program frees
// memory, which waits for the stream.
func TestHostFunctionWhileTheLoopWaits(t *testing.T) {
	c := newClient(t, options{})
	v := newVectors(c, 1000)
	extra := c.alloc(4096)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 42})
	next, err := c.p.Start(wire.Header{Op: wire.OpHostNext}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var reply wire.HostNextReply
	if _, payload, err := next.Wait(); err != nil || reply.Decode(payload) != nil || reply.Cookie != 42 {
		t.Fatalf("cookie %d, %v", reply.Cookie, err)
	}
	c.post(&wire.MemFree{Addr: extra})
	c.post(&wire.HostDone{Cookie: 42})
	c.must(&wire.Synchronise{}, nil)
	v.round(1)
}

// What the library never sends ends the client, with a reason.
func TestProtocolErrorsEndTheClient(t *testing.T) {
	for name, send := range map[string]func(c *client) error{
		"garbage":         func(c *client) error { return c.p.Send(wire.Header{Op: wire.OpLaunch, Slot: -1}, []byte{1, 2, 3}) },
		"unknown message": func(c *client) error { return c.p.Send(wire.Header{Op: 999, Slot: -1}, nil) },
		"outside the arena": func(c *client) error {
			return c.p.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: 1 << 40, Length: 8}, (&wire.CopyIn{Dst: testBase}).Append(nil))
		},
		"stream taken":         func(c *client) error { return c.p.Post(&wire.StreamCreate{Stream: 0}) },
		"no image":             func(c *client) error { _, err := c.p.Call(&wire.ModuleLoad{Module: 3}, nil); return err },
		"an answer to nothing": func(c *client) error { return c.p.Send(wire.Header{Op: wire.OpSyncPoint, Slot: 5}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, options{})
			_ = send(c)
			if _, err := c.p.Call(&wire.Synchronise{}, nil); err == nil {
				t.Error("the client goes on")
			}
			if reason, closed := c.shared.Closed(); !closed || reason == "" {
				t.Error("the client was not told why it ended")
			}
		})
	}
}

// Modules that come and go in turn leave nothing: neither images nor code. Each is
// loaded before the last one goes, so that the journal of a device that cannot put
// variables at given addresses would keep them all.
func TestModulesInTurnLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("memory is counted without the race detector")
	}
	c := newClient(t, options{})
	addr := c.alloc(4096)
	image := append([]byte(countingPTX), []byte("\n//"+strings.Repeat("x", 4*mib-len(countingPTX)))...)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var before uint64
	for i := uint32(1); i <= 20; i++ {
		f := c.load(i, image, "add_count")
		c.post(&wire.Launch{Function: f, GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1, Params: params(addr, addr, 32)})
		c.must(&wire.Synchronise{}, nil)
		if i > 1 {
			c.post(&wire.ModuleUnload{Module: i - 1})
		}
		if i == 4 {
			before = heap()
		}
	}
	c.must(&wire.Synchronise{}, nil)
	if after := heap(); after > before+24*mib {
		t.Errorf("%d MiB are kept after 20 modules of 4 MiB, %d MiB after four", after/mib, before/mib)
	}
}
