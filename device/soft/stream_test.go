package soft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/device"
)

func openContext(t testing.TB, d *Device) *Context {
	t.Helper()
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 64 * granule}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, c.Close()) })
	return c.(*Context)
}

func newStream(t testing.TB, c *Context) *stream {
	t.Helper()
	s, err := c.NewStream()
	must(t, err)
	return s.(*stream)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A stream has one goroutine while it has work and none otherwise.
func TestGoroutinesAreBounded(t *testing.T) {
	before := runtime.NumGoroutine()
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	gate := make(chan struct{})
	var streams []*stream
	for range 5 {
		s := newStream(t, c)
		streams = append(streams, s)
		for range 100 {
			must(t, s.Call(func() { <-gate }))
		}
	}
	if n := runtime.NumGoroutine(); n > before+len(streams) {
		t.Errorf("%d goroutines for %d streams", n-before, len(streams))
	}
	close(gate)
	must(t, c.Synchronise(context.Background()))
	c.serving.Wait()
	for i, s := range streams {
		if done, err := s.Done(); err != nil || !done {
			t.Errorf("stream %d: done %v (%v)", i, done, err)
		}
	}
}

// Repeated calls of Synchronise do not fill the queue with marks.
func TestPollingCostsNothing(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	s := newStream(t, c)
	gate := make(chan struct{})
	must(t, s.Call(func() { <-gate }))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for range 1000 {
		if err := s.Synchronise(cancelled); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := c.Synchronise(cancelled); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	pending := len(s.queue) - s.head
	c.mu.Unlock()
	if pending > 2 {
		t.Errorf("%d pending", pending)
	}
	close(gate)
	must(t, s.Synchronise(context.Background()))
}

// Submitting blocks while the queue is full, and returns an error when the context ends.
func TestFullQueue(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	s := newStream(t, c)
	gate := make(chan struct{})
	must(t, s.Call(func() { <-gate }))
	submitted := make(chan error, 1)
	go func() {
		for range maxPending + 10 {
			if err := s.Call(func() {}); err != nil {
				submitted <- err
				return
			}
		}
		submitted <- nil
	}()
	c.mu.Lock()
	for len(s.queue)-s.head < maxPending {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.mu.Unlock()
	select {
	case err := <-submitted:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	go func() {
		<-c.ended
		close(gate)
	}()
	must(t, c.Close())
	if err := <-submitted; !errors.Is(err, device.ErrClosed) {
		t.Errorf("it was told: %v", err)
	}
}

// A copy whose memory is gone by the time it is done is a fault.
func TestMemoryGoneUnderCopy(t *testing.T) {
	for what, submit := range map[string]func(s *stream) error{
		"in":   func(s *stream) error { return s.CopyIn(base, make([]byte, 8)) },
		"out":  func(s *stream) error { return s.CopyOut(make([]byte, 8), base) },
		"to":   func(s *stream) error { return s.Copy(base, base+2*granule, 8) },
		"from": func(s *stream) error { return s.Copy(base+2*granule, base, 8) },
		"fill": func(s *stream) error { return s.Fill(base, 1, 1, 8) },
	} {
		c := openContext(t, newDevice(t, testProfile(), Options{}))
		s := newStream(t, c)
		must(t, c.Map(base, 3*granule))
		gate := make(chan struct{})
		must(t, s.Call(func() { <-gate }))
		must(t, submit(s))
		must(t, c.Unmap(base, granule))
		close(gate)
		var f *device.Fault
		if err := s.Synchronise(context.Background()); !errors.As(err, &f) || f.Kind != device.IllegalAddress || f.Address != base {
			t.Errorf("%s: answered %v", what, err)
		}
	}
}

// fakeClock advances by a step with each reading, and by the time of each sleep.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Duration
	step  time.Duration
	slept time.Duration
	over  time.Duration // each sleep is longer than asked for
}

func (c *fakeClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += c.step
	return c.now
}

func (c *fakeClock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d + c.over
	c.slept += d + c.over
}

func TestPace(t *testing.T) {
	c := &fakeClock{over: 300 * time.Microsecond}
	p := pace{clock: c, factor: 3}
	for range 1000 {
		p.after(100*time.Microsecond, nil)
	}
	// Each sleep is too long by 0.3 ms; the sum is right nevertheless.
	if d := c.slept - 300*time.Millisecond; d < -shortestWait || d > shortestWait {
		t.Errorf("slept %v for 100 ms of work at a quarter of the speed", c.slept)
	}
	p = pace{clock: c}
	p.after(time.Hour, nil)
	if p.owed != 0 {
		t.Error("full speed owes time")
	}
}

func TestCopiesArePaced(t *testing.T) {
	clock := &fakeClock{}
	p := testProfile()
	p.CopyBandwidth = 1 << 20
	c := openContext(t, newDevice(t, p, Options{Clock: clock}))
	s := newStream(t, c)
	must(t, c.Map(base, 8*granule))
	must(t, s.CopyIn(base, make([]byte, 5<<20)))
	must(t, s.CopyOut(make([]byte, 2<<20), base))
	must(t, s.Copy(base+4*granule, base, 1<<20)) // not over the link
	must(t, s.Fill(base, 0, 4, 1000))
	must(t, s.Synchronise(context.Background()))
	if clock.slept != 7*time.Second {
		t.Errorf("7 MiB at 1 MiB/s took %v", clock.slept)
	}
}

func TestKernelsArePaced(t *testing.T) {
	clock := &fakeClock{step: time.Millisecond}
	p := testProfile()
	p.Speed = 0.25
	c := openContext(t, newDevice(t, p, Options{Clock: clock}))
	s := newStream(t, c)
	m, err := c.Load([]byte(".version 6.4\n.target sm_70\n.address_size 64\n.entry nothing()\n{\n\tret;\n}\n"))
	must(t, err)
	f, err := m.Function("nothing")
	must(t, err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	for range 5 {
		must(t, s.Launch(f, device.Launch{Grid: one, Block: one}))
	}
	must(t, s.Synchronise(context.Background()))
	// Each takes a millisecond by this clock. The step that the clock advances
	// between a sleep and the reading after it counts as slept.
	if clock.slept < 8*time.Millisecond || clock.slept > 15*time.Millisecond {
		t.Errorf("5 ms at a quarter of the speed were made longer by %v", clock.slept)
	}
}

// With Profile.Rate the number of operations decides how long kernels take, and not the time
// that the machine needs for them: here the clock advances with each reading.
func TestKernelsHaveARate(t *testing.T) {
	for _, step := range []time.Duration{0, time.Microsecond, 100 * time.Microsecond} {
		clock := &fakeClock{step: step}
		p := testProfile()
		p.Speed, p.Rate = 0.25, 1000
		c := openContext(t, newDevice(t, p, Options{Clock: clock}))
		s := newStream(t, c)
		m, err := c.Load([]byte(".version 6.4\n.target sm_70\n.address_size 64\n.entry one()\n{\n\tret;\n}\n"))
		must(t, err)
		f, err := m.Function("one")
		must(t, err)
		one := device.Dim{X: 1, Y: 1, Z: 1}
		for range 5 {
			must(t, s.Launch(f, device.Launch{Grid: one, Block: device.Dim{X: 100, Y: 1, Z: 1}}))
		}
		must(t, s.Synchronise(context.Background()))
		// 500 lanes, one operation each. A part of the last wait may be owed.
		if d := clock.now - 500*time.Millisecond; d < -longestSleep || d > longestSleep {
			t.Errorf("500 operations at 1000 a second took %v by a clock with steps of %v", clock.now, step)
		}
	}
}

// Copies that a kernel makes with one instruction take time by their bytes.
func TestCopiesInKernelsHaveARate(t *testing.T) {
	const bytes, rate = 32 << 10, 64 << 10
	clock := &fakeClock{}
	p := testProfile()
	p.Rate = rate
	c := openContext(t, newDevice(t, p, Options{Clock: clock}))
	s := newStream(t, c)
	m, err := c.Load([]byte(fmt.Sprintf(`.version 8.6
.target sm_100
.address_size 64
.shared .align 16 .b8 cells[%d];
.entry zero()
{
	.reg .b64 %%a;
	mov.b64 %%a, cells;
	st.bulk.weak.shared::cta [%%a], %[1]d, 0;
	ret;
}
`, bytes)))
	must(t, err)
	f, err := m.Function("zero")
	must(t, err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	must(t, s.Launch(f, device.Launch{Grid: one, Block: one}))
	must(t, s.Synchronise(context.Background()))
	if d := clock.now - time.Second*bytes/rate; d < -longestSleep || d > longestSleep {
		t.Errorf("%d bytes at %d a second took %v", bytes, rate, clock.now)
	}
}

// A copy of a tensor that GPUs do not do is the fault that CUDA programs know from there.
func TestIllegalInstruction(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	s := newStream(t, c)
	m, err := c.Load([]byte(`.version 8.0
.target sm_90
.address_size 64
.shared .align 128 .b8 cells[128];
.entry store(.param .align 64 .b8 zeros[128])
{
	.reg .b64 %m;
	.reg .b32 %s;
	mov.b64 %m, zeros;
	cvta.param.u64 %m, %m;
	mov.u32 %s, cells;
	cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%m, {0}], [%s];
	ret;
}
`))
	must(t, err)
	f, err := m.Function("store")
	must(t, err)
	one := device.Dim{X: 1, Y: 1, Z: 1}
	must(t, s.Launch(f, device.Launch{Grid: one, Block: one, Params: make([]byte, f.Info().ParamSize)}))
	var fault *device.Fault
	if err := s.Synchronise(context.Background()); !errors.As(err, &fault) || fault.Kind != device.IllegalInstruction {
		t.Errorf("got %v, want an illegal instruction", err)
	}
}

func TestProfileValidate(t *testing.T) {
	for _, c := range []struct {
		change    func(*Profile)
		complaint string
	}{
		{func(*Profile) {}, ""},
		{func(p *Profile) { p.CopyBandwidth = 1 }, ""},
		{func(p *Profile) { p.Name = "" }, "printable"},
		{func(p *Profile) { p.Name = " x" }, "printable"},
		{func(p *Profile) { p.Name = "a\nb" }, "printable"},
		{func(p *Profile) { p.Name = strings.Repeat("x", 256) }, "printable"},
		{func(p *Profile) { p.Memory = 0 }, "multiple of 2 MiB"},
		{func(p *Profile) { p.Memory = granule + 1 }, "multiple of 2 MiB"},
		{func(p *Profile) { p.Memory = 1 << 50 }, "multiple of 2 MiB"},
		{func(p *Profile) { p.Speed = 0 }, "at most 1"},
		{func(p *Profile) { p.Speed = 1.5 }, "at most 1"},
		{func(p *Profile) { p.Speed = math.NaN() }, "at most 1"},
		{func(p *Profile) { p.Rate = 1e9 }, ""},
		{func(p *Profile) { p.Rate = 1 }, "operations a second"},
		{func(p *Profile) { p.Rate = math.NaN() }, "operations a second"},
		{func(p *Profile) { p.Rate = math.Inf(1) }, "operations a second"},
		{func(p *Profile) { p.Workers = 0 }, "workers"},
		{func(p *Profile) { p.Workers = 5000 }, "workers"},
	} {
		p := testProfile()
		c.change(&p)
		_, err := New(p, Options{})
		if c.complaint == "" && err != nil || c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)) {
			t.Errorf("%+v: answered %v, want something with %q", p, err, c.complaint)
		}
	}
}

func TestDevicesAreToldApart(t *testing.T) {
	a := newDevice(t, testProfile(), Options{})
	p := testProfile()
	p.Name = "other"
	b := newDevice(t, p, Options{})
	if a.Info().UUID == b.Info().UUID {
		t.Error("two profiles give one UUID")
	}
	if again := newDevice(t, testProfile(), Options{}); again.Info().UUID != a.Info().UUID {
		t.Error("one profile gives two UUIDs")
	}
	own := [16]byte{1, 2, 3}
	if d := newDevice(t, p, Options{UUID: own}); d.Info().UUID != own {
		t.Error("a given UUID is not used")
	}
}

// A copy between overlapping ranges has the same result as one through a buffer, also if it is
// done in several pieces.
func TestOverlappingCopies(t *testing.T) {
	p := testProfile()
	p.Memory = 64 << 20
	c := openContext(t, newDevice(t, p, Options{}))
	s := newStream(t, c)
	pages := (2*copyPiece + granule) / granule * granule
	must(t, c.Map(base, uint64(pages)))
	for _, by := range []struct{ dst, src int }{{100, 0}, {0, 100}, {copyPiece + 5, 1}, {3, copyPiece / 2}} {
		want := make([]byte, pages)
		for i := range want {
			want[i] = byte(i ^ i>>8 ^ i>>16)
		}
		size := pages - max(by.dst, by.src)
		must(t, s.CopyIn(base, bytes.Clone(want)))
		must(t, s.Copy(base+uint64(by.dst), base+uint64(by.src), uint64(size)))
		got := make([]byte, pages)
		must(t, s.CopyOut(got, base))
		must(t, s.Synchronise(context.Background()))
		copy(want[by.dst:by.dst+size], want[by.src:by.src+size])
		if !bytes.Equal(got, want) {
			t.Errorf("from %d to %d: other bytes", by.src, by.dst)
		}
	}
}
