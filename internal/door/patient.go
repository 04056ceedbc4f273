package door

import (
	"io"
	"sync"
	"time"
)

// Patient is a connection whose other side may be silent for as long as it
// likes between two messages, but has a time for each read within one, and for
// each write. One goroutine reads, one writes.
type Patient struct {
	conn interface {
		io.ReadWriter
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
	}
	patience time.Duration

	begun, limited bool // the reader's

	mu      sync.Mutex
	hurried bool
	allowed time.Time // when writes were last given their time
}

// NewPatient gives a connection its times.
func NewPatient(conn interface {
	io.ReadWriter
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}, patience time.Duration) *Patient {
	return &Patient{conn: conn, patience: patience}
}

// Begun says whether the other side has begun something that it must go on with.
// The reader calls it.
func (p *Patient) Begun(begun bool) { p.begun = begun }

// Read waits for bytes: without end between two messages.
func (p *Patient) Read(b []byte) (int, error) {
	if p.begun || p.limited {
		deadline := time.Time{}
		if p.begun {
			deadline = time.Now().Add(p.patience)
		}
		_ = p.conn.SetReadDeadline(deadline) // what fails here fails below
		p.limited = p.begun
	}
	return p.conn.Read(b)
}

// Write waits until the other side takes bytes.
func (p *Patient) Write(b []byte) (int, error) {
	p.allow()
	return p.conn.Write(b)
}

func (p *Patient) allow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Giving a time takes longer than encrypting a short message: so a write may have what
	// is left to the last one, if that is nearly as much.
	if now := time.Now(); !p.hurried && now.Sub(p.allowed) > p.patience/16 {
		p.allowed = now
		_ = p.conn.SetWriteDeadline(now.Add(p.patience))
	}
}

// Hurry gives all writes from now on, together with one under way, a time.
func (p *Patient) Hurry(left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurried = true
	_ = p.conn.SetWriteDeadline(time.Now().Add(left))
}
