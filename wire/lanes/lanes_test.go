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
)

type plain struct{ net.Conn }

func (plain) Begun(bool) {}

func (p plain) WriteBoth(head, b []byte) error {
	_, err := p.Write(append(bytes.Clone(head), b...))
	return err
}

func (p plain) HangUp() { _ = p.Close() }

// pair joins two sides by n lanes. It returns a function that ends all.
func pair(t testing.TB, n int) (a, b *Lanes, end func()) {
	a, b = New(time.Minute), New(time.Minute)
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
			seed := rand.Uint64()
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
			var done atomic.Int64
			all.Go(func() {
				next := sizes()
				for range parcels {
					if err := way[0].Send(next(), func() { done.Add(1) }); err != nil {
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
			t.Cleanup(func() {
				if done.Load() != parcels {
					t.Errorf("the sender heard of %d parcels", done.Load())
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
		"behind it":         pieceOf(0, 100, 8, 0),
		"over its end":      pieceOf(0, 93, 8, 0),
		"far beyond":        pieceOf(0, 1<<64-4, 8, 0),
		"of nothing":        pieceOf(0, 0, 0, 0),
		"too large":         pieceOf(0, 0, Piece+1, 0),
		"with more words":   pieceOf(0, 0, 8, 1),
	} {
		t.Run(name, func(t *testing.T) {
			l := New(time.Minute)
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
	l := New(20 * time.Millisecond)
	if err := l.Receive(make([]byte, 10)); !errors.Is(err, ErrLate) {
		t.Error(err)
	}
}

// A lane too many is refused.
func TestTooMany(t *testing.T) {
	l := New(time.Minute)
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
	l := New(time.Minute)
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
	l = New(time.Minute)
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

// A side that sends some bytes twice, and holds a piece back meanwhile, cannot make a parcel count
// as complete: it would still write to memory that is used for something else by then.
func TestSomeBytesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, end := stranger(t, 2)
		defer end()
		to := make([]byte, 8)
		result := make(chan error, 1)
		go func() { result <- l.Receive(to) }()
		synctest.Wait()
		if _, err := far[0].Write(append(pieceOf(0, 0, 4, 0), 1)); err != nil { // three bytes are held back
			t.Fatal(err)
		}
		synctest.Wait()
		for range 2 { // the second time the lanes may have ended already
			_, _ = far[1].Write(append(pieceOf(0, 4, 4, 0), "efgh"...))
		}
		if err := <-result; err == nil || !strings.Contains(err.Error(), "came already") {
			t.Errorf("a parcel of which three bytes are missing was taken for whole: %v %q", err, to)
		}
	})
}

// slow is a lane that continues to write for a while after HangUp, as one does whose reader has
// just been given bytes.
type slow struct {
	plain
	hungUp, goOn chan struct{}
}

func (s slow) HangUp() { close(s.hungUp) }

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
		l := New(time.Hour)
		x, y := net.Pipe()
		s := slow{plain{x}, make(chan struct{}), make(chan struct{})}
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
	a := New(time.Minute)
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
		a, b := New(time.Minute), New(time.Minute)
		a.Guard = guard
		here, there := net.Pipe()
		conns := []Conn{faulting{plain{here}}, plain{there}}
		for i, l := range []*Lanes{a, b} {
			if err := l.Join(conns[i]); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- a.Serve(conns[0]) }()
		go func() { _ = b.Serve(conns[1]) }()
		sent := make(chan struct{})
		if err := b.Send(make([]byte, least), func() { close(sent) }); err != nil {
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
