package door

import (
	"net"
	"time"
)

// Lane is a patient connection that any goroutine can close immediately.
type Lane struct {
	*Patient
	conn   net.Conn
	eager  *Eager  // the connection below TLS; nil if there is none
	sealed *Sealed // the connection, if it is one
	first  []byte  // the beginning of what WriteBoth writes
}

// NewLane wraps a connection; patience is the time for each read and write.
func NewLane(conn net.Conn, patience time.Duration) *Lane {
	l := &Lane{Patient: NewPatient(conn, patience), conn: conn}
	if sealed, ok := conn.(*Sealed); ok {
		l.sealed = sealed
	} else {
		l.eager = below(conn)
	}
	return l
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

// tlsRecord is how many bytes a record of TLS has.
const tlsRecord = 16 << 10

// WriteBoth writes a few bytes and those that follow them. They share a record, so that the few
// bytes are none of their own.
func (l *Lane) WriteBoth(head, b []byte) error {
	if l.sealed != nil {
		l.allow()
		return l.sealed.WriteBoth(head, b)
	}
	if l.first == nil {
		l.first = make([]byte, tlsRecord)
	}
	n := copy(l.first[copy(l.first, head):], b)
	if _, err := l.Write(l.first[:len(head)+n]); err != nil || n == len(b) {
		return err
	}
	_, err := l.Write(b[n:])
	return err
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
