package soft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/device"
)

const header = ".version 6.4\n.target sm_70\n.address_size 64\n"

// gateClock blocks in Now while it is shut.
type gateClock struct {
	asked chan struct{}
	gate  chan struct{}
}

func (c *gateClock) Now() time.Duration {
	c.asked <- struct{}{}
	<-c.gate
	return 0
}

func (c *gateClock) Sleep(time.Duration) {}

// After Synchronise of a stream has returned, the events recorded on it are done.
func TestEventsAreDoneAfterSynchronise(t *testing.T) {
	clock := &gateClock{asked: make(chan struct{}, 16), gate: make(chan struct{})}
	c := openContext(t, newDevice(t, testProfile(), Options{Clock: clock}))
	s := newStream(t, c)
	e, err := c.NewEvent()
	must(t, err)
	begin := make(chan struct{})
	must(t, s.Call(func() { <-begin })) // else the event is reached at once
	must(t, s.Record(e))
	close(begin)
	<-clock.asked // the stream is about to reach the event
	if done, err := s.Done(); err != nil || done {
		t.Errorf("the stream is done: %v (%v), before its event is", done, err)
	}
	waited := make(chan error, 2)
	go func() { waited <- s.Synchronise(context.Background()) }()
	go func() { waited <- c.Synchronise(context.Background()) }()
	for {
		c.mu.Lock()
		queued := len(s.queue) > s.head
		c.mu.Unlock()
		if queued || len(waited) > 0 {
			break
		}
		runtime.Gosched()
	}
	if len(waited) > 0 {
		t.Error("somebody has waited for the stream, and its event is not done")
	}
	close(clock.gate)
	must(t, <-waited)
	must(t, <-waited)
	if done, err := e.Done(); err != nil || !done {
		t.Errorf("the event is done: %v (%v)", done, err)
	}
}

// closingClock closes a context in the first sleep.
type closingClock struct {
	once  sync.Once
	c     *Context
	now   time.Duration
	slept time.Duration
}

func (c *closingClock) Now() time.Duration { return c.now }

func (c *closingClock) Sleep(d time.Duration) {
	c.once.Do(func() {
		go c.c.Close()
		<-c.c.ended
	})
	c.now += d
	c.slept += d
}

// Close does not wait for the time that a slow link would need for the pending copies.
func TestCloseCutsPaceShort(t *testing.T) {
	clock := &closingClock{}
	p := testProfile()
	p.CopyBandwidth = 1
	d := newDevice(t, p, Options{Clock: clock})
	c := openContext(t, d)
	clock.c = c
	must(t, c.Map(base, granule))
	must(t, newStream(t, c).CopyIn(base, make([]byte, 1000)))
	<-c.ended
	must(t, c.Close())
	if clock.slept > time.Second {
		t.Errorf("closing waited for %v", clock.slept)
	}
	if d.link.pace.owed != 0 {
		t.Errorf("the next one is to wait %v for what was dropped", d.link.pace.owed)
	}
}

// A kernel compiled for one block size (.reqntid) is refused with any other.
func TestOccupancyOfRequiredSize(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	m, err := c.Load([]byte(header + ".entry k()\n.reqntid 16, 4, 1\n{\n\tret;\n}\n"))
	must(t, err)
	f, err := m.Function("k")
	must(t, err)
	for threads, want := range map[int]bool{64: true, 32: false, 65: false, 128: false} {
		n, err := f.Occupancy(threads, 0)
		if err != nil || (n > 0) != want {
			t.Errorf("%d threads: %d blocks (%v), launching them is allowed: %v", threads, n, err, want)
		}
	}
}

func TestFailedLoadGivesNoModule(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	m, err := c.Load([]byte(header + ".global .b8 large[1000000000];\n.entry k()\n{\n\tret;\n}\n"))
	if err == nil || m != nil {
		t.Errorf("got %v and %v", m, err)
	}
}

// A module that is refused for lack of device memory takes no memory of the host.
func TestLargeVariablesAreRefusedEarly(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	must(t, c.Map(base, 64*granule))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Load([]byte(header + ".global .align 4 .b8 large[200000000];\n.entry k()\n{\n\tret;\n}\n"))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("answered %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 50<<20 {
		t.Errorf("%d bytes of the host were taken", n)
	}
}

// Sizes that overflow 64 bits do not wrap around to small ones.
func TestHostileVariables(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	for _, declaration := range []string{
		".b64 x[2305843009213693952]",
		".b64 x[2305843009213693953]",
		".b8 x[4294967296][4294967296]",
		".b8 x[9223372036854775807]",
		".b8 x[18446744073709551615]",
		".b8 x[2147483648][2147483648][4]",
	} {
		m, err := c.Load([]byte(header + ".global " + declaration + ";\n.entry k()\n{\n\tret;\n}\n"))
		if err == nil {
			t.Errorf("%s: accepted: %+v", declaration, m.Globals())
			continue
		}
		if !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrInvalidImage) {
			t.Errorf("%s: %v", declaration, err)
		}
	}
	if free := d.budget.free(); free != d.info.Memory {
		t.Errorf("%d of %d bytes free", free, d.info.Memory)
	}
}

// Variables may have an alignment larger than a granule.
func TestLargeAlignment(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	for _, align := range []uint64{64, 16 << 20, 64, 8 << 20, 64, 4 << 20, 32 << 20} {
		m, err := c.Load(fmt.Appendf(nil, "%s.global .align %d .b8 x[64];\n.entry k()\n{\n\tret;\n}\n", header, align))
		if err != nil {
			t.Errorf("multiple of %d: %v", align, err)
			continue
		}
		g, err := m.Global("x")
		must(t, err)
		if g.Address%align != 0 {
			t.Errorf("multiple of %d: at %#x", align, g.Address)
		}
	}
}

// An arena for which the host has no addresses is refused in the contract's
// words.
func TestArenaTooLarge(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	_, err := d.Open(device.Config{Arena: device.Arena{Base: 0x0800_0000_0000, Size: 1<<47 + 1<<46}})
	if !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("answered %v", err)
	}
}

// reservations counts the large inaccessible mappings of this process: each open
// context has one for its variables.
func reservations(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err == nil && to-from >= varsSize-64<<20 && strings.Contains(line, " ---p ") {
			n++
		}
	}
	return n
}

// Contexts that are closed at any moment of their work leave no goroutines and no memory behind.
func TestCloseLeavesNothing(t *testing.T) {
	image := readFile(t, "../devicetest/kernels/basic.ptx")
	d := newDevice(t, testProfile(), Options{})
	before, goroutines := reservations(t), runtime.NumGoroutine()
	for round := range 60 {
		x, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 64 * granule}})
		must(t, err)
		c := x.(*Context)
		var users sync.WaitGroup
		do := func(step func() error) {
			users.Go(func() {
				for {
					err := step()
					if c.Err() != nil {
						return
					}
					if err != nil && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrInvalidValue) {
						t.Error(err)
						return
					}
				}
			})
		}
		must(t, c.Map(base, granule))
		do(func() error {
			m, err := c.Load([]byte(add))
			if err != nil {
				return err
			}
			return m.Unload()
		})
		do(func() error {
			if err := c.Map(base+2*granule, granule); err != nil {
				return err
			}
			return c.Unmap(base+2*granule, granule)
		})
		do(func() error { return c.Synchronise(context.Background()) })
		m, err := c.Load(image)
		must(t, err)
		spin, err := m.Function("spin")
		must(t, err)
		do(func() error {
			s, err := c.NewStream()
			if err != nil {
				return err
			}
			params := words64(base, base+4, 1<<12)
			if err := s.Launch(spin, device.Launch{Grid: device.Dim{X: 2, Y: 1, Z: 1}, Block: device.Dim{X: 1, Y: 1, Z: 1}, Params: params}); err != nil {
				return err
			}
			if err := s.Fill(base+64, 1, 4, 1000); err != nil {
				return err
			}
			return s.Close()
		})
		for range round * 20 {
			runtime.Gosched()
		}
		must(t, c.Close())
		users.Wait()
		if free := d.budget.free(); free != d.info.Memory {
			t.Fatalf("round %d: %d of %d bytes free", round, free, d.info.Memory)
		}
	}
	if n := reservations(t); n != before {
		t.Errorf("%d reservations before, %d after", before, n)
	}
	// A goroutine that has done its work may need a moment to end. If one never does,
	// the test times out and prints it.
	for runtime.NumGoroutine() > goroutines {
		runtime.Gosched()
	}
}

func words64(all ...uint64) []byte {
	var data []byte
	for _, w := range all {
		for i := range 8 {
			data = append(data, byte(w>>(8*i)))
		}
	}
	return data
}

// A kernel for blocks of no threads can be asked about like any other.
func TestNoThreadsAllowed(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	for _, directive := range []string{".maxntid 0", ".maxntid 0, 1, 1", ".reqntid 0", ".reqntid 4096", ".maxntid 4294967296"} {
		m, err := c.Load([]byte(header + ".entry k()\n" + directive + "\n{\n\tret;\n}\n"))
		if err != nil {
			if !errors.Is(err, device.ErrInvalidImage) {
				t.Errorf("%s: %v", directive, err)
			}
			continue
		}
		f, err := m.Function("k")
		must(t, err)
		_ = f.Info()
		n, err := f.Occupancy(1, 0)
		must(t, err)
		one := device.Dim{X: 1, Y: 1, Z: 1}
		err = newStream(t, c).Launch(f, device.Launch{Grid: one, Block: one})
		if (n > 0) != (err == nil) {
			t.Errorf("%s: %d blocks fit, and launching one answers %v", directive, n, err)
		}
	}
}
