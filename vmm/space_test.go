package vmm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestConfigs(t *testing.T) {
	ok := Config{Arena: Range{1 << 40, 1 << 30}, Chunk: 2 << 20, Devices: Devices(2)}
	for _, c := range []struct {
		name   string
		change func(c *Config)
		good   bool
	}{
		{"as it is", func(c *Config) {}, true},
		{"31 devices", func(c *Config) { c.Devices = Devices(31) }, true},
		{"bytes as chunks", func(c *Config) { c.Chunk, c.Arena = 1, Range{3, 5} }, true},
		{"no devices", func(c *Config) { c.Devices = Devices(0) }, false},
		{"32 devices", func(c *Config) { c.Devices = Devices(32) }, false},
		{"chunks of 0", func(c *Config) { c.Chunk = 0 }, false},
		{"chunks of 3 MiB", func(c *Config) { c.Chunk = 3 << 20 }, false},
		{"no arena", func(c *Config) { c.Arena.Size = 0 }, false},
		{"arena beside a chunk", func(c *Config) { c.Arena.Addr += 1 << 20 }, false},
		{"arena of half a chunk more", func(c *Config) { c.Arena.Size += 1 << 20 }, false},
		{"arena that wraps", func(c *Config) { c.Arena.Addr = math.MaxUint64 - 1<<30 + 1 }, false},
		{"arena of too many chunks", func(c *Config) { c.Arena.Size = 1 << 46 }, false},
	} {
		config := ok
		c.change(&config)
		if _, err := New(config); (err == nil) != c.good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The host is no device, and no device is beyond the last.
func TestPlacesThatAreNoDevices(t *testing.T) {
	s := exampleSpace(t)
	before := picture(s)
	for _, p := range []Place{Host, Device(2), Device(-2)} {
		if _, err := s.Prepare(p, nil, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("prepare %v: %v", p, err)
		}
		if _, err := s.PrepareAll(p, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("prepare all on %v: %v", p, err)
		}
		s.Launched(p, nil)
		s.Written(p, Range{0x10000, 1})
		if s.Evict(p, 0) != nil || s.Lost(p) != nil || s.AllResident(p) || s.Resident(p, Range{0x10000, 1}) {
			t.Errorf("%v is taken for a device", p)
		}
	}
	s.Written(Device(0), Range{0, math.MaxUint64})
	s.Launched(Device(0), []Range{{math.MaxUint64, math.MaxUint64}, {0x16000, 1}})
	if after := picture(s); after != before {
		t.Errorf("got %swant %s", after, before)
	}
}

// A space takes as many devices as one that is made with them, and no host.
func TestAddDevice(t *testing.T) {
	devices := Devices(1)
	s, err := New(Config{Arena: Range{0x10000, 0x8000}, Chunk: 0x1000, Devices: devices[:1:1]})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < maxDevices; i++ {
		if err := s.AddDevice(Device(i)); err != nil {
			t.Fatal(i, err)
		}
	}
	before := s.Config()
	for _, p := range []Place{Host, Device(0), Device(maxDevices), Device(-3)} {
		if err := s.AddDevice(p); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v was added: %v", p, err)
		}
	}
	if got := s.Config(); len(got.Devices) != maxDevices || len(before.Devices) != maxDevices || len(devices) != 1 {
		t.Errorf("%d devices, and %d before", len(got.Devices), len(before.Devices))
	}
	last := Device(maxDevices - 1)
	if err := s.Alloc(Range{0x10000, 1}); err != nil {
		t.Fatal(err)
	}
	if plan, err := s.Prepare(last, []Range{{0x10000, 1}}, 0x1000); err != nil || s.Mapped(last) != 0x1000 {
		t.Errorf("%v, %v: %d bytes are mapped", plan, err, s.Mapped(last))
	}
}

func TestFind(t *testing.T) {
	s := exampleSpace(t)
	for _, c := range []struct {
		addr uint64
		want Range
	}{
		{0, Range{}}, {0xffff, Range{}}, {0x10000, Range{0x10000, 0x1800}}, {0x117ff, Range{0x10000, 0x1800}},
		{0x11800, Range{0x11800, 0x100}}, {0x11900, Range{}}, {0x15000, Range{0x14000, 0x1001}}, {0x15001, Range{}}, {math.MaxUint64, Range{}},
	} {
		got, ok := s.Find(c.addr)
		if got != c.want || ok != (c.want.Size > 0) {
			t.Errorf("%#x: got %v, %v", c.addr, got, ok)
		}
	}
}

func TestPlanBytes(t *testing.T) {
	p := Plan{{Op: CopyOut, Device: Device(0), Range: Range{0, 0x10}}, {Op: Unmap, Device: Device(0), Range: Range{0, 0x30}}, {Op: CopyOut, Device: Device(1), Range: Range{0x20, 0x10}}, {Op: CopyAcross, From: Device(1), Device: Device(0), Range: Range{0x20, 8}}}
	for op, want := range map[Op]uint64{CopyOut: 0x20, Unmap: 0x30, Map: 0, CopyAcross: 8} {
		if got := p.Bytes(op); got != want {
			t.Errorf("%v: got %d, want %d", op, got, want)
		}
	}
	if got, want := fmt.Sprint(Op(9), Host, Device(1)), "op9 host dev1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

const benchChunk = 2 << 20

// benchSpace has a number of chunks, in allocations of a given number of chunks each.
func benchSpace(t testing.TB, chunks, each int) *Space {
	t.Helper()
	s, err := New(Config{Arena: Range{0x600000000000, 1 << 40}, Chunk: benchChunk, Devices: Devices(2)})
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < chunks; at += each {
		if err := s.Alloc(Range{0x600000000000 + uint64(at)*benchChunk, uint64(each) * benchChunk}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func prepare(t testing.TB, s *Space, dev Place, need []Range, capacity uint64) {
	if _, err := s.Prepare(dev, need, capacity); err != nil {
		t.Fatal(err)
	}
}

const unbounded = math.MaxUint64

func TestSteadyLaunchAllocatesNothing(t *testing.T) {
	s := benchSpace(t, 64, 8)
	all := s.Allocations()
	prepare(t, s, Device(0), all, unbounded)
	for _, need := range [][]Range{nil, all[:3], all} {
		s.Launched(Device(0), need)
		n := testing.AllocsPerRun(100, func() {
			prepare(t, s, Device(0), need, unbounded)
			s.Launched(Device(0), need)
		})
		if n != 0 {
			t.Errorf("a launch with %d ranges allocates %v times", len(need), n)
		}
	}
}

// 200k chunks, 400 GB: a launch must cost what it costs with ten.
func BenchmarkLaunchSteady(b *testing.B) {
	s := benchSpace(b, 200_000, 200)
	need := s.Allocations()[:8]
	prepare(b, s, Device(0), s.Allocations(), unbounded)
	for _, used := range []struct {
		name   string
		ranges []Range
		dirty  bool // everything is
	}{{"unknown", nil, true}, {"known", need, true}, {"known, others clean", need, false}} {
		b.Run(used.name, func(b *testing.B) {
			s.Launched(Device(0), nil)
			if !used.dirty {
				if _, err := s.HostRead(s.Allocations()[20]); err != nil {
					b.Fatal(err)
				}
			}
			prepare(b, s, Device(0), need, unbounded)
			b.ReportAllocs()
			for b.Loop() {
				s.Launched(Device(0), used.ranges)
			}
		})
	}
}

func BenchmarkPrepareResident(b *testing.B) {
	s := benchSpace(b, 200_000, 200)
	all := s.Allocations()
	prepare(b, s, Device(0), all, unbounded)
	b.Run("same 8", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			prepare(b, s, Device(0), all[:8], unbounded)
		}
	})
	b.Run("other 8 each time", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			prepare(b, s, Device(0), all[i%900:i%900+8], unbounded)
		}
	})
	b.Run("all 1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			prepare(b, s, Device(0), all, unbounded)
		}
	})
}

// The client leaves and comes back, with all of its memory dirty.
func BenchmarkSwap10k(b *testing.B) {
	s := benchSpace(b, 10_000, 100)
	all := s.Allocations()
	b.ReportAllocs()
	for b.Loop() {
		prepare(b, s, Device(0), all, unbounded)
		s.Launched(Device(0), nil)
		s.Evict(Device(0), 0)
	}
}

// Needs that are never resident, on a full device with 199k chunks: the worst case.
func BenchmarkPrepareWithPressure(b *testing.B) {
	s := benchSpace(b, 200_000, 200)
	all := s.Allocations()
	capacity := uint64(199_000) * benchChunk
	prepare(b, s, Device(0), all[:995], capacity)
	b.ReportAllocs()
	for i := 995; b.Loop(); i++ {
		need := all[i%1000 : i%1000+1]
		prepare(b, s, Device(0), need, capacity)
		s.Launched(Device(0), need)
	}
}

func BenchmarkSnapshot200k(b *testing.B) {
	s := benchSpace(b, 200_000, 200)
	prepare(b, s, Device(0), s.Allocations(), unbounded)
	for b.Loop() {
		if _, err := s.MarshalBinary(); err != nil {
			b.Fatal(err)
		}
	}
}

// Allocations that the client puts side by side, where it may, are one stretch: copies go across,
// and a kernel that needs one needs all.
func TestJoined(t *testing.T) {
	const chunk = 0x1000
	s, err := New(Config{Arena: Range{0x10000, 0x40000}, Chunk: chunk, Devices: []Place{Device(0)}, Joined: 0x30000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Range{{0x10000, chunk}, {0x11000, chunk}, {0x30000, chunk}, {0x31000, 2 * chunk}, {0x33000, chunk}, {0x40000, chunk}, {0x2f000, chunk}} {
		if err := s.Alloc(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		r  Range
		ok bool
	}{
		{Range{0x30000, 4 * chunk}, true},
		{Range{0x30fff, 2}, true},
		{Range{0x32fff, chunk}, true},
		{Range{0x30000, 4*chunk + 1}, false}, // there is a gap behind
		{Range{0x10fff, 2}, false},           // not joined
		{Range{0x2ffff, 2}, false},           // one of them is not
		{Range{0x30000, ^uint64(0)}, false},
		{Range{0x30000, 0}, false},
	} {
		if err := s.Check(c.r); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.r, err)
		}
	}
	if _, err := s.HostWrite(Range{0x30800, 3 * chunk}); err != nil {
		t.Error(err)
	}
	want := []Range{{0x30000, chunk}, {0x31000, 2 * chunk}, {0x33000, chunk}}
	if got := s.Reachable(binary.LittleEndian.AppendUint64(nil, 0x31800)); !slices.Equal(got, want) {
		t.Errorf("%v can be reached, not %v", got, want)
	}
	data, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var back Space
	if err := back.UnmarshalBinary(data); err != nil || back.Check(Range{0x30000, 4 * chunk}) != nil {
		t.Errorf("a snapshot has forgotten it: %v", err)
	}
}

// Shares says how much of some memory that was written each device has.
func TestShares(t *testing.T) {
	const chunk = 1 << 20
	s, err := New(Config{Arena: Range{0, 16 * chunk}, Chunk: chunk, Devices: Devices(3)})
	if err != nil {
		t.Fatal(err)
	}
	a, b := Range{0, chunk + 10}, Range{chunk + 10, chunk} // they share a chunk
	for _, r := range []Range{a, b} {
		if err := s.Alloc(r); err != nil {
			t.Fatal(err)
		}
	}
	shares := func() string {
		list, written := s.Shares([]Range{a, b}, nil)
		return fmt.Sprint(list, " of ", written>>20)
	}
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { return nil }, "[] of 0"},
		{func() error { _, err := s.HostWrite(a); return err }, "[] of 2"},
		{func() error { _, err := s.Prepare(Device(1), []Range{a}, 16*chunk); return err }, "[{dev1 2097152}] of 2"},
		{func() error { _, err := s.Prepare(Device(2), []Range{a, b}, 16*chunk); return err }, "[{dev1 2097152} {dev2 2097152}] of 2"},
		{func() error { s.Launched(Device(2), []Range{b}); return nil }, "[{dev1 1048576} {dev2 3145728}] of 3"},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := shares(); got != step.want {
			t.Errorf("step %d: %s, should be %s", i, got, step.want)
		}
	}
}
