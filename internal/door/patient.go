package door

import (
	"io"
	"sync"
	"time"
)

// Patient is a connection whose other side may be silent between two messages for any time, but has
// a deadline for each read within a message, and for each write. One goroutine reads and one
// writes.
type Patient struct {
	conn interface {
		io.ReadWriter
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
	}
	patience time.Duration

	begun, limited bool // used only by the reader

	mu      sync.Mutex
	hurried bool
	allowed time.Time // when the write deadline was last set
}

// NewPatient wraps a connection; patience is the time for each read and write.
func NewPatient(conn interface {
	io.ReadWriter
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}, patience time.Duration) *Patient {
	return &Patient{conn: conn, patience: patience}
}

// Begun says whether the other side has begun a message that it must complete. Only the reader may
// call it.
func (p *Patient) Begun(begun bool) { p.begun = begun }

// Read reads bytes. It waits without limit between two messages.
func (p *Patient) Read(b []byte) (int, error) {
	if p.begun || p.limited {
		deadline := time.Time{}
		if p.begun {
			deadline = time.Now().Add(p.patience)
		}
		_ = p.conn.SetReadDeadline(deadline) // an error here makes the read fail, too
		p.limited = p.begun
	}
	return p.conn.Read(b)
}

// Write writes bytes, with a deadline.
func (p *Patient) Write(b []byte) (int, error) {
	p.allow()
	return p.conn.Write(b)
}

func (p *Patient) allow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Setting a deadline takes longer than encrypting a short message. So a write uses the previous
	// deadline if at most a sixteenth of its time has passed.
	if now := time.Now(); !p.hurried && now.Sub(p.allowed) > p.patience/16 {
		p.allowed = now
		_ = p.conn.SetWriteDeadline(now.Add(p.patience))
	}
}

// Hurry sets a final deadline for all further writes together, including one in progress.
func (p *Patient) Hurry(left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurried = true
	_ = p.conn.SetWriteDeadline(time.Now().Add(left))
}
