package soft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"muster/device"
)

const add = `.version 6.4
.target sm_70
.address_size 64
.visible .global .align 4 .u32 one = 1;
.visible .entry add(.param .u64 p)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd1, %rd1, %rd2;
	ld.global.u32 %r2, [one];
	ld.global.u32 %r3, [%rd1];
	add.u32 %r3, %r3, %r2;
	st.global.u32 [%rd1], %r3;
	ret;
}
`

// Streams work while other goroutines map and unmap memory, load and unload modules.
func TestEverythingAtOnce(t *testing.T) {
	const users, rounds, threads = 4, 30, 96
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	m, err := c.Load([]byte(add))
	must(t, err)
	f, err := m.Function("add")
	must(t, err)

	stop := make(chan struct{})
	var disturbers, workers sync.WaitGroup
	disturb := func(step func() error) {
		disturbers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := step(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	disturb(func() error { return errors.Join(c.Map(base+40*granule, granule), c.Unmap(base+40*granule, granule)) })
	disturb(func() error {
		other, err := c.Load([]byte(add))
		if err != nil {
			return err
		}
		return other.Unload()
	})

	for u := range uint64(users) {
		addr := base + 2*u*granule
		must(t, c.Map(addr, granule))
		s := newStream(t, c)
		must(t, s.Fill(addr, 0, 4, threads))
		workers.Go(func() {
			if err := addUp(s, f, addr, rounds, threads); err != nil {
				t.Errorf("user %d: %v", u, err)
			}
		})
	}
	workers.Wait()
	close(stop)
	disturbers.Wait()
	must(t, c.Err())
}

// addUp launches add many times and checks the sum.
func addUp(s *stream, f device.Function, addr uint64, rounds, threads uint32) error {
	params := binary.LittleEndian.AppendUint64(nil, addr)
	for range rounds {
		l := device.Launch{Grid: device.Dim{X: 1, Y: 1, Z: 1}, Block: device.Dim{X: threads, Y: 1, Z: 1}, Params: params}
		if err := s.Launch(f, l); err != nil {
			return err
		}
	}
	back := make([]byte, 4*threads)
	if err := s.CopyOut(back, addr); err != nil {
		return err
	}
	if err := s.Synchronise(context.Background()); err != nil {
		return err
	}
	for i := range threads {
		if n := binary.LittleEndian.Uint32(back[4*i:]); n != rounds {
			return fmt.Errorf("thread %d added %d times, want %d", i, n, rounds)
		}
	}
	return nil
}

// Contexts that are closed at any moment of their work leave no goroutines and no memory behind.
func TestCloseAtAnyMoment(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	for n := range 40 {
		c := openContext(t, d)
		m, err := c.Load([]byte(add))
		must(t, err)
		f, err := m.Function("add")
		must(t, err)
		must(t, c.Map(base, 3*granule))
		var users sync.WaitGroup
		for u := range uint64(3) {
			s := newStream(t, c)
			addr := base + u*granule
			must(t, s.Fill(addr, 0, 4, 32))
			users.Go(func() {
				if err := addUp(s, f, addr, 20, 32); err != nil && !errors.Is(err, device.ErrClosed) {
					t.Errorf("round %d: %v", n, err)
				}
			})
		}
		for range n * 20 {
			if c.Err() != nil {
				t.Fatal(c.Err())
			}
		}
		must(t, c.Close())
		users.Wait()
		if free := d.budget.free(); free != d.info.Memory {
			t.Fatalf("round %d: %d of %d bytes free", n, free, d.info.Memory)
		}
	}
}

// A fault names the kernel, the thread and the line of PTX.
func TestFaultSaysWhere(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	m, err := c.Load([]byte(add))
	must(t, err)
	f, err := m.Function("add")
	must(t, err)
	s := newStream(t, c)
	must(t, c.Map(base, granule))
	params := binary.LittleEndian.AppendUint64(nil, base+granule-8)
	must(t, s.Launch(f, device.Launch{Grid: device.Dim{X: 1, Y: 1, Z: 1}, Block: device.Dim{X: 5, Y: 1, Z: 1}, Params: params}))
	err = s.Synchronise(context.Background())
	want := "kernel add: illegal address 0x640000200000 in block (0,0,0), thread (2,0,0), at line 14 (ld.global.u32 %r3, [%rd1])"
	if err == nil || err.Error() != want && err.Error() != want+";" {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Kernels reach memory more than 4 GiB from the beginning of a stretch.
func TestLargeMemory(t *testing.T) {
	p := testProfile()
	p.Memory = 16 << 30
	d := newDevice(t, p, Options{})
	x, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: p.Memory}})
	must(t, err)
	c := x.(*Context)
	defer func() { must(t, c.Close()) }()
	must(t, c.Map(base, 9<<30))
	m, err := c.Load([]byte(add))
	must(t, err)
	f, err := m.Function("add")
	must(t, err)
	s := newStream(t, c)
	for _, at := range []uint64{0, 4<<30 - 64, 4 << 30, 9<<30 - 128} {
		must(t, s.Fill(base+at, 0, 4, 32))
		if err := addUp(s, f, base+at, 3, 32); err != nil {
			t.Errorf("at %#x: %v", at, err)
		}
	}
}
