package door

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// The other side may say nothing, but must finish what it began.
func TestPatientReads(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	p := NewPatient(near, time.Nanosecond)
	b := make([]byte, 8)
	go func() { _, _ = far.Write([]byte("ab")) }()
	if n, err := p.Read(b[:1]); n != 1 || err != nil { // however late it comes
		t.Fatal(n, err)
	}
	if n, err := p.Read(b[:1]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	p.Begun(true)
	if _, err := p.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	p.Begun(false)
	go func() { _, _ = far.Write([]byte("c")) }()
	if n, err := p.Read(b); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// The other side must read, and at the end soon.
func TestPatientWrites(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	if _, err := NewPatient(near, time.Nanosecond).Write([]byte("a")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	p := NewPatient(near, time.Hour)
	done := make(chan error)
	go func() {
		_, err := p.Write([]byte("ab"))
		done <- err
	}()
	if _, err := far.Read(make([]byte, 1)); err != nil { // now it writes
		t.Fatal(err)
	}
	p.Hurry(time.Nanosecond)
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, err := p.Write([]byte("a")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it has a new time:", err)
	}
}
