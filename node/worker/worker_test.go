package worker

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/wire"
)

const (
	testBase = 0x6400_0000_0000
	mib      = 1 << 20
)

// client is a program, and the daemon, to a worker in this process.
type client struct {
	t       testing.TB
	p       *wire.Producer
	shared  *wire.Shared
	control *wire.ControlConn
	ended   chan error

	mu      sync.Mutex
	heard   []wire.Control
	changed *sync.Cond
	arenaAt uint64
}

type options struct {
	devices []soft.Profile
	memory  uint64
	defers  bool
	swapDir string
	grant   func(c wire.Control) (device int, memory uint64) // decides where to; nil: device 0, all that is wanted
}

func newClient(t testing.TB, o options) *client {
	t.Helper()
	if o.devices == nil {
		o.devices = []soft.Profile{{Name: "test", Memory: 64 * mib, Speed: 1, Workers: 1}}
	}
	if o.memory == 0 {
		o.memory = 1 << 30
	}
	g := wire.Geometry{Ring: 256 << 10, Staging: 4 * mib, Bounce: 4 * mib, Pinned: 16 * mib}
	ring, arena, err := wire.Create(g)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	own, child, err := wire.ControlPair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenControl(child)
	if err != nil {
		t.Fatal(err)
	}
	child.Close()
	serve := wire.Serve{Client: 1, ArenaBase: testBase, ArenaSize: 1 << 30, Memory: o.memory, MaxIdle: 10 * time.Millisecond, Defer: o.defers, SwapDir: o.swapDir}
	files := []*os.File{ring, arena}
	for _, p := range o.devices {
		serve.Devices = append(serve.Devices, wire.DeviceConfig{Kind: "soft", Name: p.Name})
		files = append(files, nil)
	}
	open := func(c wire.DeviceConfig, _ *os.File) (device.Device, error) {
		for _, p := range o.devices {
			if p.Name == c.Name {
				return soft.New(p, soft.Options{})
			}
		}
		return nil, device.ErrNotFound
	}
	s, err := newSession(conn, serve, files, open, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.exit = func() { s.consumer.Stop() }
	c := &client{t: t, p: wire.NewProducer(shared), shared: shared, control: own, ended: make(chan error, 1)}
	c.changed = sync.NewCond(&c.mu)
	go func() { c.ended <- s.run() }()
	go c.daemon(o.grant)
	t.Cleanup(func() {
		own.Close()
		<-c.ended
		s.closeGPU()
		s.host.close()
	})
	return c
}

// daemon answers the worker.
func (c *client) daemon(grant func(wire.Control) (int, uint64)) {
	for {
		m, _, err := c.control.Receive()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.heard = append(c.heard, m)
		c.changed.Broadcast()
		c.mu.Unlock()
		switch m.Kind {
		case wire.KindWant, wire.KindGrow:
			dev, memory := 0, m.Memory
			if grant != nil {
				dev, memory = grant(m)
			}
			if memory >= m.Memory {
				_ = c.control.Send(wire.Control{Kind: wire.KindGrant, Device: dev, Memory: memory})
			} else {
				_ = c.control.Send(wire.Control{Kind: wire.KindDeny, Reason: "too much"})
			}
		case wire.KindCommit:
			_ = c.control.Send(wire.Control{Kind: wire.KindCommitted, On: m.Memory <= 4<<30})
		}
	}
}

// hear waits until the worker has said something n times.
func (c *client) hear(kind wire.ControlKind, n int) wire.Control {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		count := 0
		for _, m := range c.heard {
			if m.Kind == kind {
				if count++; count == n {
					return m
				}
			}
		}
		c.changed.Wait()
	}
}

// said returns how often the worker has said something.
func (c *client) said(kind wire.ControlKind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range c.heard {
		if m.Kind == kind {
			n++
		}
	}
	return n
}

// revoke takes the lease back, and waits for that.
func (c *client) revoke() {
	n := c.said(wire.KindReleased) + 1
	if err := c.control.Send(wire.Control{Kind: wire.KindRevoke, Reason: "test"}); err != nil {
		c.t.Fatal(err)
	}
	c.hear(wire.KindReleased, n)
}

func (c *client) call(m wire.Message, reply interface{ Decode([]byte) error }) int32 {
	c.t.Helper()
	r, err := c.p.Call(m, reply)
	if err != nil {
		c.t.Fatalf("%v: %v", m.Op(), err)
	}
	return r
}

func (c *client) must(m wire.Message, reply interface{ Decode([]byte) error }) {
	c.t.Helper()
	if r := c.call(m, reply); r != 0 {
		c.t.Fatalf("%v answered %d", m.Op(), r)
	}
}

func (c *client) post(m wire.Message) {
	c.t.Helper()
	if err := c.p.Post(m); err != nil {
		c.t.Fatalf("%v: %v", m.Op(), err)
	}
}

// alloc returns new memory.
func (c *client) alloc(size uint64) uint64 {
	c.t.Helper()
	addr := testBase + c.arenaAt
	c.arenaAt += (size + 2*mib - 1) &^ (2*mib - 1)
	c.must(&wire.MemAlloc{Addr: addr, Size: size}, nil)
	return addr
}

func (c *client) in(addr uint64, data []byte) {
	c.t.Helper()
	for off := 0; off < len(data); off += mib {
		piece := data[off:min(off+mib, len(data))]
		if err := c.p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, (&wire.CopyIn{Dst: addr + uint64(off)}).Append(nil), piece); err != nil {
			c.t.Fatal(err)
		}
	}
}

// bounce is where this program's data come back to.
func (c *client) bounce() uint64 { return c.shared.Geometry().Staging }

func (c *client) out(addr, size uint64) []byte {
	c.t.Helper()
	var all []byte
	for off := uint64(0); off < size; off += mib {
		n := min(size-off, mib)
		pending, err := c.p.Start(wire.Header{Op: wire.OpCopyOut, Data: c.bounce(), Length: n}, (&wire.CopyOut{Src: addr + off}).Append(nil))
		if err != nil {
			c.t.Fatal(err)
		}
		if r, _, err := pending.Wait(); r != 0 || err != nil {
			c.t.Fatalf("copy_out: %d %v", r, err)
		}
		data, _ := c.shared.Data(c.bounce(), n)
		all = append(all, data...)
	}
	return all
}

// load loads an image as module 1 and returns the number of a kernel.
func (c *client) load(module uint32, image []byte, kernel string) uint32 {
	c.t.Helper()
	if err := c.p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{Module: module}).Append(nil), image); err != nil {
		c.t.Fatal(err)
	}
	c.must(&wire.ModuleLoad{Module: module}, &wire.ModuleLoadReply{})
	function := module * 100
	pending, err := c.p.Start(wire.Header{Op: wire.OpModuleFunction, Data: c.bounce(), Length: 4096}, (&wire.ModuleFunction{Module: module, Function: function, Name: kernel}).Append(nil))
	if err != nil {
		c.t.Fatal(err)
	}
	if r, _, err := pending.Wait(); r != 0 || err != nil {
		c.t.Fatalf("module_function %s: %d %v", kernel, r, err)
	}
	return function
}

func kernelFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../ptx/testdata/kernels/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func params(values ...any) []byte {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			for len(b)%8 != 0 {
				b = append(b, 0)
			}
			b = binary.LittleEndian.AppendUint64(b, v)
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

func floats(n int, f func(i int) float32) []byte {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f(i)))
	}
	return b
}

// vectors is a program that adds vectors.
type vectors struct {
	*client
	function uint32
	a, b, c  uint64
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
	if c.said(wire.KindWant) > 0 {
		t.Fatal("a device was wanted before there was a kernel")
	}
	v.round(1)
	if m := c.hear(wire.KindWant, 1); m.Memory == 0 {
		t.Error("no memory was wanted")
	}
}

func TestRevokedClientGoesOnElsewhere(t *testing.T) {
	turn := 0
	c := newClient(t, options{
		devices: []soft.Profile{{Name: "one", Memory: 64 * mib, Speed: 1, Workers: 1}, {Name: "two", Memory: 32 * mib, Speed: 0.5, Workers: 2}},
		grant:   func(m wire.Control) (int, uint64) { turn++; return turn % 2, m.Memory },
	})
	v := newVectors(c, 200_000)
	for i := range 6 {
		v.round(i)
		c.revoke()
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
		grant: func(m wire.Control) (int, uint64) { return 0, 8 * mib }})
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
	c.hear(wire.KindFailed, 1)
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
	c.revoke()
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
