package lanes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/seeds"
)

type plain struct{ net.Conn }

func (p plain) WriteBoth(head, b []byte) error {
	_, err := p.Write(append(bytes.Clone(head), b...))
	return err
}

func (p plain) HangUp() { _ = p.Close() }

// pair joins two sides by n lanes. It returns a function that ends all.
func pair(t testing.TB, n int) (a, b *Lanes, end func()) {
	a, b = New(time.Minute, time.Second), New(time.Minute, time.Second)
	var all sync.WaitGroup
	for range n {
		x, y := net.Pipe()
		for _, s := range []struct {
			*Lanes
			net.Conn
		}{{a, x}, {b, y}} {
			if err := s.Join(plain{s.Conn}); err != nil {
				t.Fatal(err)
			}
			all.Go(func() { _ = s.Serve(plain{s.Conn}) })
		}
	}
	return a, b, func() {
		a.Close(ErrClosed)
		b.Close(ErrClosed)
		all.Wait()
	}
}

// Parcels of all sizes arrive as they were sent, in both directions at once, and the sender is told
// of each once.
func TestParcels(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		a, b, end := pair(t, n)
		var all sync.WaitGroup
		for _, way := range [][2]*Lanes{{a, b}, {b, a}} {
			seed, _ := seeds.First(t)
			sizes := func() func() []byte {
				r := rand.New(rand.NewPCG(seed, 0))
				return func() []byte {
					data := make([]byte, 1+r.IntN([]int{10, Worth, Piece + Worth}[r.IntN(3)]))
					for i := range data {
						data[i] = byte(i) ^ byte(len(data)) ^ byte(i>>8)
					}
					return data
				}
			}
			const parcels = 20
			all.Add(parcels) // of which the sender hears
			all.Go(func() {
				next := sizes()
				for range parcels {
					if err := way[0].Send(next(), all.Done); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			})
			all.Go(func() {
				next := sizes()
				for i := range parcels {
					want := next()
					got := make([]byte, len(want))
					if err := way[1].Receive(got); err != nil || !bytes.Equal(got, want) {
						t.Errorf("seed %d: parcel %d of %d bytes came wrong: %v", seed, i, len(want), err)
						return
					}
				}
			})
		}
		all.Wait()
		end()
		if err := a.Receive(make([]byte, 1)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := a.Send(make([]byte, 1<<20), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func pieceOf(parcel, offset uint64, n, zero uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, parcel)
	b = binary.LittleEndian.AppendUint64(b, offset)
	b = binary.LittleEndian.AppendUint32(b, n)
	return binary.LittleEndian.AppendUint32(b, zero)
}

// Pieces that do not belong are written nowhere, and end the lanes.
func TestDamagedPieces(t *testing.T) {
	for name, first := range map[string][]byte{
		"before the parcel": pieceOf(0, 1<<63, 8, 0),
		"behind it":         pieceOf(0, record, 8, 0),
		"over its end":      pieceOf(0, 0, 101, 0),
		"far beyond":        pieceOf(0, 1<<64-record, 8, 0),
		"within a record":   pieceOf(0, 1, 8, 0), // the receiver would remember each byte of a parcel
		"too large":         pieceOf(0, 0, Piece+1, 0),
		"with false news":   pieceOf(0, 0, 8, 1),
	} {
		t.Run(name, func(t *testing.T) {
			l := New(time.Minute, time.Second)
			x, y := net.Pipe()
			if err := l.Join(plain{x}); err != nil {
				t.Fatal(err)
			}
			go func() { _ = l.Serve(plain{x}) }()
			go func() {
				_, _ = y.Write(append(first, make([]byte, 8)...))
				_, _ = io.Copy(io.Discard, y)
			}()
			to := bytes.Repeat([]byte{7}, 100)
			if err := l.Receive(to); err == nil || !bytes.Equal(to, bytes.Repeat([]byte{7}, 100)) {
				t.Error(err, to)
			}
		})
	}
}

// A due parcel of which nothing arrives ends the lanes; one of which a piece arrives now and then
// does not.
func TestLate(t *testing.T) {
	l := New(20*time.Millisecond, time.Second)
	if err := l.Receive(make([]byte, 10)); !errors.Is(err, ErrLate) {
		t.Error(err)
	}
}

// A lane too many is refused.
func TestTooMany(t *testing.T) {
	l := New(time.Minute, time.Second)
	for range Most {
		if err := l.Join(plain{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Join(plain{}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// An early piece waits for its parcel, and its lane waits with it.
func TestEarlyPieces(t *testing.T) {
	l := New(time.Minute, time.Second)
	x, y := net.Pipe()
	if err := l.Join(plain{x}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Serve(plain{x}) }()
	wrote := make(chan error, 1)
	go func() {
		_, err := y.Write(append(pieceOf(0, 0, 4, 0), "abcd"...))
		wrote <- err
	}()
	if err := <-wrote; err != nil { // it was read, although Receive was not called for it
		t.Fatal(err)
	}
	to := make([]byte, 4)
	if err := l.Receive(to); err != nil || string(to) != "abcd" {
		t.Error(err, to)
	}
	l.Close(ErrClosed)
}

// stranger is the other side of n lanes, which sends what it likes.
func stranger(t *testing.T, n int) (l *Lanes, far []net.Conn, end func()) {
	l = New(time.Minute, time.Second)
	var all sync.WaitGroup
	for range n {
		x, y := net.Pipe()
		far = append(far, y)
		if err := l.Join(plain{x}); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { _ = l.Serve(plain{x}) })
	}
	return l, far, func() {
		l.Close(ErrClosed)
		all.Wait()
	}
}

// A piece that comes twice counts once, so a side that holds another back cannot make a parcel count as
// complete: it would still write to memory that is used for something else by then. Pieces that
// overlap end the lanes.
func TestSomeBytesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, end := stranger(t, 2)
		defer end()
		to := make([]byte, 4*record)
		result := make(chan error, 1)
		go func() { result <- l.Receive(to) }()
		synctest.Wait()
		if _, err := far[0].Write(append(pieceOf(0, 0, 4, 0), 1)); err != nil { // three bytes are held back
			t.Fatal(err)
		}
		synctest.Wait()
		for range 2 {
			if _, err := far[1].Write(append(pieceOf(0, record, 3*record, 0), make([]byte, 3*record)...)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		select {
		case err := <-result:
			t.Fatalf("a parcel of which three bytes are missing was taken for whole: %v", err)
		default:
		}
		_, _ = far[1].Write(append(pieceOf(0, 2*record, 2*record, 0), make([]byte, 2*record)...))
		if err := <-result; err == nil || !strings.Contains(err.Error(), "came already") {
			t.Errorf("a parcel of which three bytes are missing was taken for whole: %v", err)
		}
	})
}

// slow is a lane that continues to write for a while after HangUp, as one does whose reader has
// just been given bytes.
type slow struct {
	plain
	hungUp, goOn chan struct{}
	once         *sync.Once
}

func (s slow) HangUp() { s.once.Do(func() { close(s.hungUp) }) }

func (s slow) Read(b []byte) (int, error) {
	if len(b) != 4 {
		return s.plain.Read(b)
	}
	<-s.hungUp
	<-s.goOn
	return copy(b, "late"), nil
}

// When lanes end in the middle of a parcel, no lane writes to it after Receive has returned.
func TestNobodyWritesAfterReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(time.Hour, time.Second)
		x, y := net.Pipe()
		s := slow{plain{x}, make(chan struct{}), make(chan struct{}), new(sync.Once)}
		if err := l.Join(s); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { _ = l.Serve(s) }()
		go func() { result <- l.Receive(make([]byte, 8)) }()
		synctest.Wait()
		if _, err := y.Write(pieceOf(0, 0, 4, 0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the reader has its place
		l.Close(ErrClosed)
		synctest.Wait()
		select {
		case err := <-result:
			t.Errorf("it returned %v while a lane writes", err)
			close(s.goOn)
		default:
			close(s.goOn)
			if err := <-result; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		_ = y.Close()
	})
}

// memoryWithoutPages is mapped, but using it faults.
func memoryWithoutPages(t *testing.T, size int) []byte {
	file, err := os.CreateTemp(t.TempDir(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return memory
}

var errNoPage = errors.New("no page")

// guard turns faults into errNoPage.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = errNoPage
		}
	}()
	return do()
}

// Memory without pages ends the lanes, with a reason, and not the process.
func TestMemoryWithoutPages(t *testing.T) {
	a := New(time.Minute, time.Second)
	a.Guard = guard
	here, there := net.Pipe()
	defer there.Close()
	if err := a.Join(plain{here}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Serve(plain{here}) }()
	_ = a.Send(memoryWithoutPages(t, 1<<20), nil)
	if err := <-ended; !errors.Is(err, errNoPage) {
		t.Error(err)
	}
}

// Who waits for a parcel whose memory has no pages is told so, whether its bytes came before it was
// due or after.
func TestArrivalInMemoryWithoutPages(t *testing.T) {
	for _, early := range []bool{false, true} {
		a, b := New(time.Minute, time.Second), New(time.Minute, time.Second)
		a.Guard = guard
		here, there := net.Pipe()
		sent := make(chan struct{})
		conns := []Conn{faulting{plain{here}}, telling{plain{there}, sent}}
		for i, l := range []*Lanes{a, b} {
			if err := l.Join(conns[i]); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- a.Serve(conns[0]) }()
		go func() { _ = b.Serve(conns[1]) }()
		if err := b.Send(make([]byte, least), nil); err != nil {
			t.Fatal(err)
		}
		if early {
			<-sent
		}
		p, err := a.Expect(0, memoryWithoutPages(t, least))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); !errors.Is(err, errNoPage) {
			t.Errorf("early %t: %v", early, err)
		}
		if err := <-ended; !errors.Is(err, errNoPage) {
			t.Errorf("early %t: %v", early, err)
		}
		b.Close(ErrClosed)
	}
}

// faulting reads through memory of its own, so that a fault does not happen under the pipe's lock.
type faulting struct{ plain }

func (f faulting) Read(b []byte) (int, error) {
	own := make([]byte, len(b))
	n, err := f.plain.Read(own)
	copy(b, own[:n])
	return n, err
}

// telling tells when a piece was read by the other side.
type telling struct {
	plain
	sent chan struct{}
}

func (c telling) WriteBoth(head, b []byte) error {
	err := c.plain.WriteBoth(head, b)
	if len(b) > 0 {
		close(c.sent)
	}
	return err
}

// cutting is a lane that breaks, or drops everything, after some bytes.
type cutting struct {
	net.Conn
	left  *atomic.Int64
	drops bool
}

func (c cutting) WriteBoth(head, b []byte) error {
	all := append(bytes.Clone(head), b...)
	if left := c.left.Add(-int64(len(all))); left < 0 {
		if n := len(all) + int(left); n > 0 {
			_, _ = c.Conn.Write(all[:n])
		}
		if !c.drops {
			_ = c.Conn.Close()
		}
		return nil
	}
	_, err := c.Conn.Write(all)
	return err
}

func (c cutting) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(4 * time.Second))
	return c.Conn.Read(b)
}

func (c cutting) HangUp() { _ = c.Close() }

// Lanes break, or drop silently what they are given, at any byte, and others replace them: all parcels
// arrive all the same, and each sender hears of each of its parcels once.
func TestLanesThatBreak(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			var mu sync.Mutex
			lives := func() (*atomic.Int64, bool) {
				mu.Lock()
				defer mu.Unlock()
				left := &atomic.Int64{}
				left.Store(random.Int64N([]int64{60, 1_000_000}[random.IntN(2)]))
				return left, random.IntN(3) == 0
			}
			a, b := New(time.Hour, time.Second), New(time.Hour, time.Second)
			var all, senders sync.WaitGroup
			for range 3 { // each is replaced when it breaks
				all.Go(func() {
					for a.Err() == nil && b.Err() == nil {
						x, y := net.Pipe()
						var both sync.WaitGroup
						for i, l := range []*Lanes{a, b} {
							left, drops := lives()
							conn := cutting{[]net.Conn{x, y}[i], left, drops}
							if l.Join(conn) == nil {
								both.Go(func() { _ = l.Serve(conn) })
							}
						}
						both.Wait()
						_ = x.Close()
						_ = y.Close()
					}
				})
			}
			text := func(way int, n int) []byte {
				r := rand.New(rand.NewPCG(seed<<8|uint64(way), uint64(n)))
				b := make([]byte, 1+r.IntN(Piece))
				for i := 0; i < len(b); i += 1 + r.IntN(50) {
					b[i] = byte(r.Uint32())
				}
				return b
			}
			const parcels = 6
			for way, pair := range [][2]*Lanes{{a, b}, {b, a}} {
				senders.Add(parcels)
				senders.Go(func() {
					for n := range parcels {
						if err := pair[0].Send(text(way, n), senders.Done); err != nil {
							t.Error(err)
						}
					}
				})
				senders.Go(func() {
					for n := range parcels {
						want := text(way, n)
						got := make([]byte, len(want))
						if err := pair[1].Receive(got); err != nil || !bytes.Equal(got, want) {
							t.Errorf("seed %d: parcel %d came wrong: %v", seed, n, err)
						}
					}
				})
			}
			senders.Wait()
			a.Close(ErrClosed)
			b.Close(ErrClosed)
			all.Wait()
		})
	}
}

// Whatever a lane says while a parcel becomes complete, it has something to say afterwards: the sender
// would otherwise have the parcel's memory back only a while later.
func TestTheLastPieceIsTold(t *testing.T) {
	l := New(time.Minute, time.Hour)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if err := l.Join(plain{near}); err != nil {
		t.Fatal(err)
	}
	c := l.lanes[0]
	if _, err := l.Expect(0, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	to, into, _, err := l.place(0, 0, 10, nil)
	if err != nil || into == nil {
		t.Fatalf("the piece has no place: %v", err)
	}
	if err := l.fill(c, into, 0, to, bytes.NewReader(make([]byte, 10))); err != nil {
		t.Fatal(err)
	}
	told := l.tell(c) // its writer was about to say something
	if _, _, news := l.next(c); told == 0 && !news {
		t.Error("nobody tells the sender that its parcel has arrived")
	}
}
