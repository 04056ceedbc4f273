package cuda

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"muster/device"
	"muster/device/cuda/ranges"
	"muster/device/devicetest"
	"muster/internal/need"
)

//go:embed testdata/basic.fatbin
var basicFatbin []byte

//go:embed testdata/cubin.fatbin
var cubinFatbin []byte

// theGPU returns the first GPU, or skips the test where there is none.
func theGPU(t testing.TB) device.Device {
	t.Helper()
	all, err := Devices(Options{})
	if errors.Is(err, ErrNoDriver) {
		need.Missing(t, need.GPU, "this needs an NVIDIA GPU:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// A fault ends all contexts of a process, so the suite skips tests of faults;
// TestFaults has a process for each.
func TestConformance(t *testing.T) {
	info := theGPU(t).Info()
	t.Logf("%s, %d MiB, compute capability %d.%d, %d multiprocessors, speed %.2f", info.Name, info.Memory>>20, info.Compute.Major, info.Compute.Minor, info.Multiprocessors, info.Speed)
	devicetest.Run(t, func(t *testing.T) device.Device { return theGPU(t) }, devicetest.Options{Fatbin: basicFatbin})
}

const testBase = uint64(0x6400_0000_0000)

type bench struct {
	testing.TB
	device.Context
	stream device.Stream
	ctx    context.Context
	g      uint64
}

func open(t testing.TB, size uint64) *bench {
	t.Helper()
	return openOn(t, theGPU(t), size)
}

func openOn(t testing.TB, d device.Device, size uint64) *bench {
	t.Helper()
	c, err := d.Open(device.Config{Arena: device.Arena{Base: testBase, Size: size}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	b := &bench{TB: t, Context: c, ctx: ctx, g: d.Info().Granularity}
	t.Cleanup(func() { b.ok(c.Close()) })
	b.stream, err = c.NewStream()
	b.ok(err)
	return b
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) get(addr, size uint64) []byte {
	b.Helper()
	data := make([]byte, size)
	b.ok(b.stream.CopyOut(data, addr))
	b.ok(b.stream.Synchronise(b.ctx))
	return data
}

func pattern(n uint64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i % 251)
	}
	return p
}

// The message of a failed assertion goes to the Complain of its context, and nowhere else.
func TestAssertion(t *testing.T) {
	if os.Getenv("MUSTER_TEST_ASSERTION") == "" {
		theGPU(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestAssertion$")
		cmd.Env = append(os.Environ(), "MUSTER_TEST_ASSERTION=1")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil || said.String() != "" {
			t.Errorf("%v: %s", err, said.String())
		}
		return
	}
	all, err := Devices(Options{TakeStdout: true})
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	c, err := all[0].Open(device.Config{Arena: device.Arena{Base: testBase, Size: 64 << 20}, Print: func([]byte) {}, Complain: func(text []byte) { told.Write(text) }})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Load([]byte(assertPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("doubt")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Launch(f, device.Launch{Grid: device.Dim{X: 1, Y: 1, Z: 1}, Block: device.Dim{X: 2, Y: 1, Z: 1}}); err != nil {
		t.Fatal(err)
	}
	var fault *device.Fault
	if err := s.Synchronise(context.Background()); !errors.As(err, &fault) || fault.Kind != device.Assert {
		t.Errorf("answered %v", err)
	}
	if want := "a:7: a: block: [0,0,0], thread: [0,0,0] Assertion `a` failed.\na:7: a: block: [0,0,0], thread: [1,0,0] Assertion `a` failed.\n"; told.String() != want {
		t.Errorf("told %q, want %q", told.String(), want)
	}
}

const assertPTX = `.version 7.0
.target sm_70
.address_size 64
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 w, .param .b64 s);
.global .align 1 .b8 text[2] = {97, 0};
.visible .entry doubt() {
	.reg .b64 %a<3>;
	.reg .b32 %r<1>;
	mov.u64 %a0, text;
	cvta.global.u64 %a1, %a0;
	mov.u64 %a2, 1;
	mov.u32 %r0, 7;
	{
	.param .b64 m;
	st.param.b64 [m], %a1;
	.param .b64 f;
	st.param.b64 [f], %a1;
	.param .b32 l;
	st.param.b32 [l], %r0;
	.param .b64 w;
	st.param.b64 [w], %a1;
	.param .b64 s;
	st.param.b64 [s], %a2;
	call.uni __assertfail, (m, f, l, w, s);
	}
	ret;
}
`

// When pieces are split, the parts that stay keep their contents. Copies larger than
// the buffer that they go through arrive whole.
func TestPartsOfLargePieces(t *testing.T) {
	b := open(t, 1<<30)
	const size = 3*ranges.Large + 8<<20
	b.ok(b.Map(testBase, size))
	data := pattern(size)
	b.ok(b.stream.CopyIn(testBase, data))
	if !bytes.Equal(b.get(testBase, size), data) {
		t.Fatal("a large copy went wrong")
	}
	hole := ranges.Span{From: ranges.Large / 2, To: 2*ranges.Large + b.g}
	b.ok(b.Unmap(testBase+hole.From, hole.Size()))
	if !bytes.Equal(b.get(testBase, hole.From), data[:hole.From]) || !bytes.Equal(b.get(testBase+hole.To, size-hole.To), data[hole.To:]) {
		t.Fatal("what stayed has other bytes")
	}
	if err := b.stream.CopyOut(make([]byte, 1), testBase+hole.From); !errors.Is(err, device.ErrInvalidValue) {
		t.Errorf("copying from the hole: %v", err)
	}
	b.ok(b.Map(testBase+hole.From, hole.Size()))
	b.ok(b.Unmap(testBase, size))
}

// Copies from memory that a call wrote, pinned and not, see what it wrote.
func TestPinnedAndPageableInOrder(t *testing.T) {
	b := open(t, 64<<20)
	b.ok(b.Map(testBase, 2*b.g))
	pinned, pageable := make([]byte, 1<<20), make([]byte, 1<<20)
	unpin, err := b.Pin(pinned)
	b.ok(err)
	for _, host := range [][]byte{pinned, pageable} {
		want := pattern(uint64(len(host)))
		b.ok(b.stream.Call(func() { copy(host, want) }))
		b.ok(b.stream.CopyIn(testBase, host))
		b.ok(b.stream.Call(func() { clear(host) }))
		b.ok(b.stream.CopyOut(host, testBase))
		b.ok(b.stream.Synchronise(b.ctx))
		if !bytes.Equal(host, want) {
			t.Errorf("wrong bytes came back (pinned: %v)", &host[0] == &pinned[0])
		}
		b.ok(b.stream.Fill(testBase, 0, 4, b.g/4))
	}
	b.ok(b.stream.Synchronise(b.ctx))
	b.ok(unpin())
}

// Copies of all sizes, large ones when the stream is idle and when it is not, after small
// ones that leave the ring of buffers where it happens to be.
func TestPageableSizes(t *testing.T) {
	b := open(t, 256<<20)
	const size = 40 << 20
	b.ok(b.Map(testBase, size))
	want := make([]byte, size)
	for round := range 3 {
		at := 0
		for i, n := range []int{1, 16 << 10, 4 << 20, 5<<20 + 7, 1 << 20, 2 << 20, 700 << 10, 9 << 20, 3, 8 << 20} {
			part := pattern(uint64(n))
			for k := range part {
				part[k] += byte(i + round)
			}
			if i%3 == round {
				b.ok(b.stream.Call(func() {})) // so that the stream is not idle
			}
			b.ok(b.stream.CopyIn(testBase+uint64(at), part))
			copy(want[at:], part)
			at += n
		}
		got := make([]byte, at)
		b.ok(b.stream.CopyOut(got, testBase))
		b.ok(b.stream.Synchronise(b.ctx))
		if !bytes.Equal(got, want[:at]) {
			t.Fatalf("round %d: other bytes came back", round)
		}
	}
}

func TestCubin(t *testing.T) {
	b := open(t, 64<<20)
	m, err := b.Load(cubinFatbin)
	if compute := theGPU(t).Info().Compute; compute.Major != 9 {
		if !errors.Is(err, device.ErrNoKernelImage) {
			t.Errorf("machine code for 9.0 on a device of %d.%d: %v", compute.Major, compute.Minor, err)
		}
		return
	}
	b.ok(err)
	var names []string
	for _, g := range m.Globals() {
		names = append(names, fmt.Sprint(g.Name, " ", g.Size))
	}
	if got, want := fmt.Sprint(names), "[factor 4 pointer 8 table 16 total 8]"; got != want {
		t.Errorf("variables %s, want %s", got, want)
	}
}

const faultyPTX = `
.version 6.4
.target sm_70
.address_size 64
.visible .entry touch(.param .u64 addr)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [addr];
	mov.u32 %r1, 1;
	st.global.u32 [%rd1], %r1;
	ret;
}
.visible .entry stop() { trap; }
`

var faultCases = map[string]struct {
	kernel string
	params []byte
	kinds  []device.FaultKind // any of them will do
}{
	"hole":       {"touch", address(testBase + 32<<20), []device.FaultKind{device.IllegalAddress}},
	"misaligned": {"touch", address(testBase + 2), []device.FaultKind{device.MisalignedAddress}},
	"trap":       {"stop", nil, []device.FaultKind{device.Trap, device.Unspecified}},
}

func address(a uint64) []byte { return binary.LittleEndian.AppendUint64(nil, a) }

const faultVariable = "MUSTER_TEST_CUDA_FAULT"

// Each fault has its own process, which runs this test binary again.
func TestFaults(t *testing.T) {
	if name := os.Getenv(faultVariable); name != "" {
		testFault(t, name)
		return
	}
	theGPU(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range faultCases {
		t.Run(name, func(t *testing.T) {
			c := exec.Command(self, "-test.run=^TestFaults$", "-test.v", "-test.timeout=2m")
			c.Env = append(os.Environ(), faultVariable+"="+name)
			if output, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

func testFault(t *testing.T, name string) {
	which := faultCases[name]
	b := open(t, 64<<20)
	b.ok(b.Map(testBase, b.g))
	m, err := b.Load([]byte(faultyPTX))
	b.ok(err)
	f, err := m.Function(which.kernel)
	b.ok(err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	called := false
	b.ok(b.stream.Launch(f, device.Launch{Grid: one, Block: one, Params: which.params}))
	_ = b.stream.Call(func() { called = true })
	var first *device.Fault
	if err := b.stream.Synchronise(b.ctx); !errors.As(err, &first) {
		t.Fatalf("answered %v, want a fault", err)
	}
	t.Log(first)
	found := false
	for _, k := range which.kinds {
		found = found || first.Kind == k
	}
	if !found {
		t.Errorf("%v, want one of %v", first, which.kinds)
	}
	_, _, memoryErr := b.Memory()
	for what, err := range map[string]error{
		"Err": b.Err(), "Map": b.Map(testBase+4*b.g, b.g), "Memory": memoryErr, "Fill": b.stream.Fill(testBase, 0, 4, 1),
		"Call": b.stream.Call(func() {}), "Synchronise": b.Synchronise(b.ctx), "Unload": m.Unload(),
	} {
		if !errors.Is(err, first) {
			t.Errorf("%s: answered %v, want: %v", what, err, first)
		}
	}
	if called {
		t.Error("work behind a fault was done")
	}
	b.ok(b.Close())
	if err := b.Err(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func BenchmarkLaunchAndSynchronise(b *testing.B) {
	o := open(b, 64<<20)
	o.ok(o.Map(testBase, o.g))
	m, err := o.Load([]byte(faultyPTX))
	o.ok(err)
	f, err := m.Function("touch")
	o.ok(err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	for b.Loop() {
		o.ok(o.stream.Launch(f, device.Launch{Grid: one, Block: one, Params: address(testBase)}))
		o.ok(o.stream.Synchronise(o.ctx))
	}
}

func BenchmarkCopies(b *testing.B) {
	for _, pinned := range []bool{true, false} {
		b.Run(fmt.Sprintf("pinned=%v", pinned), func(b *testing.B) {
			o := open(b, 64<<20)
			host := make([]byte, 32<<20)
			o.ok(o.Map(testBase, uint64(len(host))))
			if pinned {
				_, err := o.Pin(host)
				o.ok(err)
			}
			b.SetBytes(2 * int64(len(host)))
			for b.Loop() {
				o.ok(o.stream.CopyIn(testBase, host))
				o.ok(o.stream.CopyOut(host, testBase))
				o.ok(o.stream.Synchronise(o.ctx))
			}
		})
	}
}

// Contexts of two GPUs in one process cannot have the same addresses, and the devices say so: whoever
// wants that takes a process for each.
func TestContextsOfOneProcessShareAddresses(t *testing.T) {
	t.Setenv("STANDIN_DEVICES", "2")
	withStandin(t, func(t *testing.T, b *bench) { // which has the first device open
		all, err := Devices(Options{Library: os.Getenv(standinVariable)})
		if err != nil || len(all) != 2 || all[0].Info().UUID == all[1].Info().UUID {
			t.Fatal(all, err)
		}
		arena := device.Arena{Base: testBase, Size: 64 << 20}
		if c, err := all[1].Open(device.Config{Arena: arena}); err == nil {
			_ = c.Close()
			t.Error("two contexts of a process have the same addresses")
		}
		for _, d := range all {
			if !d.Info().OneArena {
				t.Errorf("%s does not say that its contexts share addresses", d.Info().Name)
			}
		}
		arena.Base += 1 << 40
		c, err := all[1].Open(device.Config{Arena: arena})
		b.ok(err)
		b.ok(c.Close())
	})
}
