package door

import (
	"net"
	"time"
)

// Lane is a patient connection that any goroutine can close immediately.
type Lane struct {
	*Patient
	conn  net.Conn
	eager *Eager // the connection below TLS; nil if there is none
}

// NewLane wraps a connection; patience is the time for each read and write.
func NewLane(conn net.Conn, patience time.Duration) *Lane {
	return &Lane{NewPatient(conn, patience), conn, below(conn)}
}

// Write writes bytes. It combines the records that TLS makes of them into long writes.
func (l *Lane) Write(b []byte) (int, error) {
	if l.eager == nil {
		return l.Patient.Write(b)
	}
	l.eager.Hold()
	n, err := l.Patient.Write(b)
	if released := l.eager.Release(); err == nil {
		err = released
	}
	return n, err
}

// HangUp closes the connection, even while other goroutines read or write. It closes the TCP
// connection and skips the closing handshake of TLS, which could block.
func (l *Lane) HangUp() {
	if over, ok := l.conn.(interface{ NetConn() net.Conn }); ok {
		_ = over.NetConn().Close()
		return
	}
	_ = l.conn.Close()
}
