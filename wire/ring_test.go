package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// smallest wraps often.
var smallest = Geometry{Ring: 2 * MaxMessage, Staging: 2 * BounceBuffer, Bounce: BounceBuffer, Pinned: 1 << 20}

func newShared(t testing.TB, g Geometry) *Shared {
	t.Helper()
	ring, arena, err := Create(g)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	s, err := Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Unmap)
	return s
}

// within fails the test instead of letting it hang.
func within(t testing.TB, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		panic(what + " hangs")
	}
}

// echo answers each call with the beginning of its body, and checks data that came through staging
// memory: all bytes equal the body's first.
func echo(s *Shared, c *Consumer) error {
	for {
		h, body, err := c.Next(4 * time.Minute)
		if err != nil {
			return err
		}
		if h.Op.TakesData() {
			data, err := s.Data(h.Data, h.Length)
			if err != nil {
				return err
			}
			if want := bytes.Repeat(body[:1], len(data)); !bytes.Equal(data, want) {
				return fmt.Errorf("%d bytes of %d are not what was sent", len(data), body[0])
			}
			c.Release(h.Release)
		}
		s.Reply(h.Slot, 0, body[:min(len(body), MaxReply)])
	}
}

func TestRingWithManyGoroutines(t *testing.T) {
	s := newShared(t, smallest)
	p, c := NewProducer(s), NewConsumer(s)
	served := make(chan error, 1)
	go func() { served <- echo(s, c) }()
	within(t, "the ring", func() {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(g)))
				for i := range 300 {
					name := strings.Repeat(string(rune('a'+g)), 1+random.IntN(200)) + fmt.Sprint(i)
					switch random.IntN(4) {
					case 0:
						data := bytes.Repeat([]byte{byte(g)}, random.IntN(BounceBuffer))
						if err := p.SendData(Header{Op: OpCopyIn, Slot: -1}, []byte{byte(g)}, data); err != nil {
							t.Error(err)
						}
					case 1:
						if err := p.Post(&CopyInline{Data: make([]byte, random.IntN(MaxMessage-HeaderSize-16))}); err != nil {
							t.Error(err)
						}
					default:
						m := &ModuleGlobal{Module: uint32(g), Name: name}
						want := m.Append(nil)
						pending, err := p.Start(Header{Op: m.Op()}, want)
						if err != nil {
							t.Error(err)
							return
						}
						_, got, err := pending.Wait()
						if err != nil || !bytes.Equal(got, want[:min(len(want), MaxReply)]) {
							t.Errorf("got %q, %v; want %q", got, err, want)
						}
					}
				}
			})
		}
		wg.Wait()
		c.Stop()
		if err := <-served; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

func TestStopWakesTheConsumer(t *testing.T) {
	for range 50 {
		c := NewConsumer(newShared(t, smallest))
		done := make(chan error)
		go func() {
			_, _, err := c.Next(4 * time.Minute)
			done <- err
		}()
		c.Stop()
		within(t, "Next after Stop", func() {
			if err := <-done; !errors.Is(err, ErrStopped) {
				t.Error(err)
			}
		})
	}
}

// A consumer that lingers receives what one that sleeps would receive, and sleeps after it has
// lingered.
func TestLingeringConsumer(t *testing.T) {
	before := mostSpins
	mostSpins = 4 * maxSpins // as if there were several processors
	defer func() { mostSpins = before }()
	s := newShared(t, smallest)
	p, c := NewProducer(s), NewConsumer(s)
	c.Linger = time.Hour
	next := func(what string, do func(), want error) {
		t.Helper()
		done := make(chan error)
		go func() {
			_, _, err := c.Next(4 * time.Minute)
			done <- err
		}()
		do()
		within(t, what, func() {
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		})
	}
	next("a message", func() {
		if err := p.Post(&SyncPoint{}); err != nil {
			t.Error(err)
		}
	}, nil)
	if _, _, err := c.Next(time.Millisecond); !errors.Is(err, ErrTimeout) || c.lingered == 0 {
		t.Errorf("without a message: %v, after it lingered for %v", err, c.lingered)
	}
	next("Wake", c.Wake, ErrWoken)
	next("Stop", c.Stop, ErrStopped)
}

// For how long a consumer looks follows the gaps between messages: up to twice the last short one, and
// half as long after each long one.
func TestHabitOfAConsumer(t *testing.T) {
	c := NewConsumer(newShared(t, smallest))
	for _, one := range []struct{ gap, want time.Duration }{
		{time.Hour, 0},
		{300 * time.Microsecond, 600 * time.Microsecond},
		{100 * time.Microsecond, 600 * time.Microsecond},
		{3 * time.Millisecond, mostHabit},
		{mostHabit, mostHabit / 2},
		{time.Second, mostHabit / 4},
		{2 * time.Millisecond, mostHabit},
	} {
		if c.learn(one.gap); c.habit != one.want {
			t.Errorf("after a gap of %v it looks for %v, want %v", one.gap, c.habit, one.want)
		}
	}
	for range 10 {
		c.learn(time.Minute)
	}
	if c.habit != 0 {
		t.Errorf("a consumer that hears little looks for %v", c.habit)
	}
}

// A consumer that polls looks for a wake-up at each poll, and not only when it has polled enough.
func TestWakeWhilePolling(t *testing.T) {
	c := NewConsumer(newShared(t, smallest))
	woken := make(chan error)
	go func() {
		for range 200 { // some of them begin to poll before they are woken
			c.spins = math.MaxInt
			_, _, err := c.Next(4 * time.Minute)
			woken <- err
		}
	}()
	within(t, "Next after Wake", func() {
		for range 200 {
			runtime.Gosched()
			c.Wake()
			if err := <-woken; !errors.Is(err, ErrWoken) {
				t.Error(err)
			}
		}
	})
}

func TestWakeAndTimeout(t *testing.T) {
	s := newShared(t, smallest)
	p, c := NewProducer(s), NewConsumer(s)
	c.Wake()
	if err := p.Post(&SyncPoint{}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{ErrWoken, nil, ErrTimeout, ErrTimeout} {
		if _, _, err := c.Next(time.Millisecond); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	done := make(chan error)
	go func() {
		_, _, err := c.Next(4 * time.Minute)
		done <- err
	}()
	c.Wake()
	within(t, "Next after Wake", func() {
		if err := <-done; !errors.Is(err, ErrWoken) {
			t.Error(err)
		}
	})
}

// Messages that were sent before the end are still read after Stop.
func TestStopLosesNothing(t *testing.T) {
	s := newShared(t, smallest)
	p, c := NewProducer(s), NewConsumer(s)
	for i := range uint64(3) {
		if err := p.Post(&MemFree{Addr: i}); err != nil {
			t.Fatal(err)
		}
	}
	c.Stop()
	for i := range uint64(3) {
		_, body, err := c.Next(4 * time.Minute)
		var m MemFree
		if err != nil || m.Decode(body) != nil || m.Addr != i {
			t.Fatalf("message %d: %+v, %v", i, m, err)
		}
	}
	if _, _, err := c.Next(4 * time.Minute); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
}

func TestCloseReachesWhoeverWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(p *Producer) error
	}{
		{"for an answer", func(p *Producer) error {
			_, err := p.Call(&Synchronise{}, nil)
			return err
		}},
		{"for room in the ring", func(p *Producer) error {
			for {
				if err := p.Post(&CopyInline{Data: make([]byte, 60<<10)}); err != nil {
					return err
				}
			}
		}},
		{"for staging", func(p *Producer) error {
			for {
				if err := p.SendData(Header{Op: OpCopyIn, Slot: -1}, nil, make([]byte, 1<<20)); err != nil {
					return err
				}
			}
		}},
		{"for a slot", func(p *Producer) error {
			for {
				if _, err := p.Start(Header{Op: OpSynchronise}, nil); err != nil {
					return err
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShared(t, smallest)
			p := NewProducer(s)
			done := make(chan error)
			go func() { done <- c.wait(p) }()
			s.Close("the device is gone")
			s.Close("a second reason is not heard")
			within(t, c.name, func() {
				var closed *ClosedError
				if err := <-done; !errors.As(err, &closed) || closed.Reason != "the device is gone" {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestAnswersBeforeTheEndCount(t *testing.T) {
	s := newShared(t, smallest)
	p := NewProducer(s)
	pending, err := p.Start(Header{Op: OpReset}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Reply(pending.slot, 7, []byte("done"))
	s.Close("over")
	if result, payload, err := pending.Wait(); result != 7 || string(payload) != "done" || err != nil {
		t.Errorf("got %d, %q, %v", result, payload, err)
	}
}

func TestSlotsComeBack(t *testing.T) {
	s := newShared(t, smallest)
	p := NewProducer(s)
	for range 2 * Slots {
		if _, err := p.Start(Header{Op: OpModuleGlobal}, make([]byte, MaxMessage)); err == nil {
			t.Fatal("a message that is too long was sent")
		}
	}
	var all []*Pending
	for range Slots {
		pending, err := p.Start(Header{Op: OpReset}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pending)
	}
	got := make(chan error)
	go func() {
		_, err := p.Start(Header{Op: OpReset}, nil)
		got <- err
	}()
	s.Reply(all[17].slot, 0, nil)
	if _, _, err := all[17].Wait(); err != nil {
		t.Fatal(err)
	}
	within(t, "a call that waits for a slot", func() {
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestStagingIsReleasedInAnyOrder(t *testing.T) {
	s := newShared(t, smallest)
	p, c := NewProducer(s), NewConsumer(s)
	// Pieces that do not divide the staging memory, so that its end is skipped.
	const piece = BounceBuffer - 4096
	releases := []uint64{}
	for range 2 {
		if err := p.SendData(Header{Op: OpModuleData, Slot: -1}, nil, make([]byte, piece)); err != nil {
			t.Fatal(err)
		}
		h, _, err := c.Next(4 * time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, h.Release)
	}
	c.Release(releases[1])
	c.Release(releases[0])
	for range 20 {
		within(t, "staging", func() {
			if err := p.SendData(Header{Op: OpModuleData, Slot: -1}, nil, make([]byte, piece)); err != nil {
				t.Error(err)
			}
			h, _, err := c.Next(4 * time.Minute)
			if err != nil || h.Length != piece || h.Data+h.Length > smallest.Staging {
				t.Errorf("got %+v, %v", h, err)
			}
			c.Release(h.Release)
		})
	}
}

func TestSendDataRefuses(t *testing.T) {
	s := newShared(t, smallest)
	p := NewProducer(s)
	if err := p.SendData(Header{Op: OpCopyIn, Slot: -1}, nil, make([]byte, smallest.Staging/2+1)); err == nil {
		t.Error("more than half of the staging memory was accepted")
	}
	if err := p.SendData(Header{Op: OpCopyIn, Slot: -1}, make([]byte, MaxMessage), nil); err == nil {
		t.Error("a body that is too long was accepted")
	}
	broken := errors.New("broken")
	if err := p.SendFilled(Header{Op: OpCopyIn, Slot: -1}, nil, 100, func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if p.staging != 0 || NewConsumer(s).Pending() {
		t.Error("what was refused left something behind")
	}
}

// damage writes into a ring what a malicious client could write.
func damage(s *Shared, tail uint64, words ...uint32) {
	for i, w := range words {
		binary.LittleEndian.PutUint32(s.ring[ringAt+4*i:], w)
	}
	*s.u64(atTail) = tail
}

func TestConsumerRefuses(t *testing.T) {
	header := func(size uint32, op Op, slot uint16, seq uint32) []uint32 {
		return []uint32{size, uint32(op) | uint32(slot)<<16, seq, 0, 0, 0, 0, 0, 0, 0}
	}
	for _, c := range []struct {
		name  string
		tail  uint64
		words []uint32
		want  string
	}{
		{"an odd tail", 41, header(40, OpReset, 1, 0), "the ring is damaged: 41 bytes of 131072 are in use"},
		{"more than the ring holds", 1 << 20, header(40, OpReset, 1, 0), "the ring is damaged: 1048576 bytes of 131072 are in use"},
		{"a tail before the head", ^uint64(7), header(40, OpReset, 1, 0), "the ring is damaged: 18446744073709551608 bytes of 131072 are in use"},
		{"shorter than a header", 40, header(39, OpReset, 1, 0), "the ring is damaged: a message of 39 bytes, where 40 are in use"},
		{"longer than what is in use", 40, header(48, OpReset, 1, 0), "the ring is damaged: a message of 48 bytes, where 40 are in use"},
		{"longer than a message may be", 128 << 10, header(100<<10, OpReset, 1, 0), "the ring is damaged: a message of 102400 bytes, where 131072 are in use"},
		{"of no size", 40, header(0, OpReset, 1, 0), "the ring is damaged: a message of 0 bytes, where 40 are in use"},
		{"nothing but filling", 128 << 10, header(128<<10, opPad, 0, 0), "the ring is damaged: a message of 131072 bytes, where 131072 are in use"},
		{"filling in the middle", 48, header(48, opPad, 0, 0), "message 65535 is none that a client may send"},
		{"out of order", 40, header(40, OpReset, 1, 5), "reset is message 5 where 0 was due"},
		{"unknown", 40, header(40, 999, 1, 0), "message 999 is none that a client may send"},
		{"good", 40, header(40, OpReset, 1, 0), "<nil>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShared(t, smallest)
			damage(s, c.tail, c.words...)
			within(t, "Next", func() {
				if _, _, err := NewConsumer(s).Next(4 * time.Minute); fmt.Sprint(err) != c.want {
					t.Errorf("got %v\nwant %s", err, c.want)
				}
			})
		})
	}
}

// A pad that reaches exactly to the ring's end is skipped, any other is refused.
func TestPadMarks(t *testing.T) {
	for _, c := range []struct {
		name string
		size func(rest uint32) uint32
		used func(rest uint64) uint64
		want string
	}{
		{"right", func(n uint32) uint32 { return n }, func(n uint64) uint64 { return n }, "stopped"},
		{"too short", func(n uint32) uint32 { return n - 8 }, func(n uint64) uint64 { return n }, "message 65535 is none"},
		{"too long", func(n uint32) uint32 { return n + 8 }, func(n uint64) uint64 { return n }, "a message of"},
		{"beyond what is in use", func(n uint32) uint32 { return n }, func(n uint64) uint64 { return n - 8 }, "a message of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShared(t, smallest)
			p, consumer := NewProducer(s), NewConsumer(s)
			for range 2 {
				if err := p.Post(&CopyInline{Data: make([]byte, 60<<10)}); err != nil {
					t.Fatal(err)
				}
				if _, _, err := consumer.Next(4 * time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			rest := smallest.Ring - p.tail
			mark := s.ring[ringAt+p.tail:]
			binary.LittleEndian.PutUint32(mark, c.size(uint32(rest)))
			binary.LittleEndian.PutUint16(mark[4:], opPad)
			*s.u64(atTail) = p.tail + c.used(rest)
			consumer.Stop()
			within(t, "Next", func() {
				if _, _, err := consumer.Next(4 * time.Minute); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
			})
		})
	}
}

// Whatever a client writes, Next returns, and after an error nothing follows.
func FuzzConsumer(f *testing.F) {
	f.Add(uint64(1), uint64(40), []byte{40, 0, 0, 0, 44, 0, 1, 0})
	f.Add(uint64(2), uint64(80), AppendMessage(AppendMessage(nil, headerFor(OpReset), nil), headerFor(OpReset), nil))
	s := newShared(f, smallest)
	f.Fuzz(func(t *testing.T, seed, tail uint64, b []byte) {
		random := rand.New(rand.NewPCG(seed, 0))
		for i := ringAt; i < len(s.ring); i += 8 {
			*s.u64(i) = random.Uint64()
		}
		copy(s.ring[ringAt:], b)
		*s.u64(atTail), *s.u64(atHead) = tail, 0
		c := NewConsumer(s)
		c.Stop()
		within(t, "Next", func() {
			for range smallest.Ring/HeaderSize + 2 {
				if _, _, err := c.Next(4 * time.Minute); err != nil {
					return
				}
			}
			t.Error("more messages than fit in the ring")
		})
	})
}

func TestMapRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *Shared)
		want   string
	}{
		{"good", func(*Shared) {}, "<nil>"},
		{"magic", func(s *Shared) { *s.u32(atMagic) = 1 }, "the ring's memory was made by another version"},
		{"version", func(s *Shared) { *s.u32(atVersion)++ }, "the ring's memory was made by another version"},
		{"schema", func(s *Shared) { *s.u32(atSchema)++ }, "the ring's memory was made by another version"},
		{"slots", func(s *Shared) { *s.u32(atSlots)++ }, "the ring's memory was made by another version"},
		{"ring", func(s *Shared) { *s.u64(atRingSize) *= 2 }, "the shared memory has other sizes than it says"},
		{"arena", func(s *Shared) { *s.u64(atArenaSize) += 4096 }, "the shared memory has other sizes than it says"},
		{"staging", func(s *Shared) { *s.u64(atStaging) = 1 << 40 }, "the shared memory has other sizes than it says"},
		{"a sum that overflows", func(s *Shared) { *s.u64(atStaging), *s.u64(atBounce) = 1<<63, 1<<63 }, "the shared memory has other sizes than it says"},
		{"no staging", func(s *Shared) { *s.u64(atStaging) = 0 }, "the shared memory cannot have these sizes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ring, arena, err := Create(smallest)
			if err != nil {
				t.Fatal(err)
			}
			defer ring.Close()
			defer arena.Close()
			s, err := Map(ring, arena)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Unmap()
			c.change(s)
			again, err := Map(ring, arena)
			if err == nil {
				defer again.Unmap()
			}
			if got := fmt.Sprint(err); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, change := range []func(g *Geometry){
		func(g *Geometry) { g.Ring = 3 << 16 },
		func(g *Geometry) { g.Ring = MaxMessage },
		func(g *Geometry) { g.Ring = 0 },
		func(g *Geometry) { g.Ring = 1 << 62 },
		func(g *Geometry) { g.Staging++ },
		func(g *Geometry) { g.Staging = BounceBuffer },
		func(g *Geometry) { g.Bounce = 4096 },
		func(g *Geometry) { g.Pinned = 100 },
		func(g *Geometry) { g.Pinned = 1 << 60 },
	} {
		g := smallest
		change(&g)
		if ring, arena, err := Create(g); err == nil {
			ring.Close()
			arena.Close()
			t.Errorf("%+v was accepted", g)
		}
	}
}

// The other side cannot truncate the memory and so kill the reader.
func TestSharedMemoryIsSealed(t *testing.T) {
	ring, arena, err := Create(smallest)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{ring, arena} {
		if err := f.Truncate(0); err == nil {
			t.Errorf("%s was cut", f.Name())
		}
		f.Close()
	}
}

func TestSharedWords(t *testing.T) {
	s := newShared(t, smallest)
	if s.Geometry() != smallest {
		t.Errorf("got %+v", s.Geometry())
	}
	if _, err := s.Data(smallest.Arena()-1, 1); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]uint64{{smallest.Arena(), 1}, {1, smallest.Arena()}, {^uint64(0), 1}, {1, ^uint64(0)}, {smallest.Arena() + 1, 0}} {
		if _, err := s.Data(c[0], c[1]); err == nil {
			t.Errorf("%d bytes at %d were accepted", c[1], c[0])
		}
	}
	s.SetStatus(-5)
	s.SetPrint(true)
	if s.Status() != -5 || !s.Print() {
		t.Error("status or print were forgotten")
	}
	s.SetPrint(false)
	s.SetStatus(0)
	if s.Status() != 0 || s.Print() {
		t.Error("status or print stayed")
	}
	if _, closed := s.Closed(); closed {
		t.Error("closed before its time")
	}
	s.Close(strings.Repeat("é", 2*reasonSize))
	reason, closed := s.Closed()
	if !closed || reason != strings.Repeat("é", (reasonSize-4)/2)+"..." {
		t.Errorf("got %q", reason)
	}
}

// Waits is called before the producer sleeps because the worker has no room, once for each time: on
// a full ring, with full staging memory, and when all slots are taken.
func TestProducerTellsThatItWaits(t *testing.T) {
	full := map[string]func(p *Producer) error{
		"ring": func(p *Producer) error { return p.Send(Header{Op: OpModuleData, Slot: -1}, make([]byte, MaxMessage/2)) },
		"staging": func(p *Producer) error {
			return p.SendData(Header{Op: OpCopyIn, Slot: -1}, nil, make([]byte, BounceBuffer))
		},
		"slots": func(p *Producer) error {
			_, err := p.Start(Header{Op: OpSynchronise}, nil)
			return err
		},
	}
	for name, more := range full {
		t.Run(name, func(t *testing.T) {
			s := newShared(t, smallest)
			p := NewProducer(s)
			told := 0
			p.Waits = func() {
				told++
				s.Close("enough") // so that it does not sleep for ever
			}
			var err error
			within(t, "sending", func() {
				for err == nil {
					err = more(p)
				}
			})
			var closed *ClosedError
			if told != 1 || !errors.As(err, &closed) {
				t.Errorf("it was told %d times that it waits, and ended with %v", told, err)
			}
		})
	}
}

// Messages with data are sent in the order in which they took staging memory, whoever is ready
// first, and those behind one that is never sent are told when the client ends.
func TestStagedInOrder(t *testing.T) {
	s := newShared(t, smallest)
	p, c := NewProducer(s), NewConsumer(s)
	first, err := p.Stage(4)
	if err != nil {
		t.Fatal(err)
	}
	copy(first.Bytes, "1234")
	result := make(chan error, 1)
	go func() {
		result <- p.SendData(Header{Op: OpCopyIn, Slot: -1}, (&CopyIn{Dst: 2}).Append(nil), []byte("abc"))
	}()
	for { // until the second message has its place
		p.mu.Lock()
		waits := p.turns == 2
		p.mu.Unlock()
		if waits {
			break
		}
		runtime.Gosched()
	}
	if err := p.SendStaged(Header{Op: OpCopyIn, Slot: -1}, (&CopyIn{Dst: 1}).Append(nil), first); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"1234", "abc"} {
		h, body, err := c.Next(time.Minute)
		var m CopyIn
		if err != nil || m.Decode(body) != nil || m.Dst != uint64(i+1) {
			t.Fatal(i, m, err)
		}
		if data, err := s.Data(h.Data, h.Length); err != nil || string(data) != want {
			t.Errorf("%q, %v", data, err)
		}
		c.Release(h.Release)
	}
	if _, err := p.Stage(s.geometry.Staging/2 + 1); err == nil {
		t.Error("more was staged than half")
	}
	if _, err := p.Stage(4); err != nil { // it is never sent
		t.Fatal(err)
	}
	go func() { result <- p.SendData(Header{Op: OpCopyIn, Slot: -1}, nil, []byte("abc")) }()
	s.Close("it is over")
	p.Quit()
	var closed *ClosedError
	if err := <-result; !errors.As(err, &closed) || closed.Reason != "it is over" {
		t.Error(err)
	}
}
