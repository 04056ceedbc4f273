package parcel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

var (
	someone = Holder{1}
	other   = Holder{2}
)

// connected serves a shelf to a taker at the other end of a connection.
func connected(t *testing.T, s *Shelf, taker Holder) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx, far, taker)
		_ = far.Close()
	}()
	t.Cleanup(func() {
		cancel()
		_ = near.Close()
		<-done
	})
	return near
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Parcels are fetched in the order in which they are asked for, whether they were left before or
// come later, and each once.
func TestParcelsAreFetchedOnce(t *testing.T) {
	s := NewShelf()
	conn := connected(t, s, someone)
	first, err := s.Leave(Key{1}, someone)
	must(t, err)
	if _, err := s.Leave(Key{1}, other); err == nil {
		t.Error("two parcels have one key")
	}
	must(t, Ask(conn, Key{1}))
	first.Fill([]byte("abc"))
	to := make([]byte, 3)
	must(t, Receive(conn, to))
	if string(to) != "abc" {
		t.Errorf("got %q", to)
	}
	<-first.Taken()
	must(t, Ask(conn, Key{2}))
	second, err := s.Leave(Key{2}, someone)
	must(t, err)
	second.Fill([]byte("de"))
	must(t, Receive(conn, to[:2]))
	if string(to[:2]) != "de" {
		t.Errorf("got %q", to)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n := s.Take(ctx, Key{1}, someone, to); n != 0 {
		t.Errorf("a parcel of %d bytes was fetched again", n)
	}
}

// Nobody but its taker gets a parcel, and nobody gets one that was withdrawn.
func TestParcelsAreForTheirTakers(t *testing.T) {
	s := NewShelf()
	p, err := s.Leave(Key{1}, someone)
	must(t, err)
	p.Fill([]byte("secret"))
	conn := connected(t, s, other)
	must(t, Ask(conn, Key{1}))
	if err := Receive(conn, make([]byte, 6)); !errors.Is(err, ErrNone) {
		t.Errorf("another node got it: %v", err)
	}
	p.Withdraw()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n := s.Take(ctx, Key{1}, someone, make([]byte, 6)); n != 0 {
		t.Error("it was withdrawn")
	}
	if len(s.parcels) != 0 {
		t.Errorf("%d parcels are left", len(s.parcels))
	}
}

// answering is a connection on which certain bytes come.
type answering struct{ io.Reader }

func (answering) Write(b []byte) (int, error) { return len(b), nil }
func (answering) SetDeadline(time.Time) error { return nil }

// Whatever another node answers, exactly what was asked for is read, or an error comes.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c'}, 3)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, 3)
	f.Add([]byte{3, 0, 0, 0, 1, 0, 0, 0, 'a', 'b', 'c'}, 3)
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255}, 1)
	f.Add([]byte{3, 0}, 3)
	f.Fuzz(func(t *testing.T, said []byte, size int) {
		if size < 1 || size > 1<<16 {
			return
		}
		in := bytes.NewReader(said)
		to := bytes.Repeat([]byte{0x55}, size+1)
		err := Receive(answering{in}, to[:size])
		if to[size] != 0x55 {
			t.Fatal("it wrote beyond the end")
		}
		good := len(said) >= head+size && binary.LittleEndian.Uint64(said) == uint64(size)
		if good != (err == nil) {
			t.Fatalf("%v", err)
		}
		if good && (!bytes.Equal(to[:size], said[head:head+size]) || in.Len() != len(said)-head-size) {
			t.Fatal("other bytes were read")
		}
	})
}

// Whatever a node asks, it gets what it was left, and nothing else.
func FuzzServe(f *testing.F) {
	key := Key{9}
	f.Add(key[:])
	f.Add(append(make([]byte, 32), key[:]...))
	f.Add(key[:5])
	f.Fuzz(func(t *testing.T, asked []byte) {
		if len(asked) > 10*len(Key{}) {
			return
		}
		s := NewShelf()
		s.patience = time.Millisecond
		for _, taker := range []Holder{someone, other} {
			p, err := s.Leave(Key{9, byte(taker[0]) - 1}, taker)
			must(t, err)
			p.Fill([]byte{taker[0]})
		}
		out := &recorded{in: bytes.NewReader(asked)}
		_ = s.Serve(t.Context(), out, someone)
		for said := out.said.Bytes(); len(said) > 0; said = said[head:] {
			n := binary.LittleEndian.Uint64(said)
			if n == 1 && said[head] == someone[0] {
				said = said[1:]
			} else if n != 0 {
				t.Fatalf("it said %x", out.said.Bytes())
			}
		}
	})
}

// recorded has the requests of a node, and keeps what it is told.
type recorded struct {
	in   *bytes.Reader
	said bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error)  { return r.in.Read(b) }
func (r *recorded) Write(b []byte) (int, error) { return r.said.Write(b) }
func (*recorded) SetDeadline(time.Time) error   { return nil }
