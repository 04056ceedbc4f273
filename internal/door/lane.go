package door

import (
	"net"
	"time"
)

// Lane is a patient connection that any goroutine can end at once.
type Lane struct {
	*Patient
	conn  net.Conn
	eager *Eager // below TLS; nil without
}

// NewLane gives a connection its times.
func NewLane(conn net.Conn, patience time.Duration) *Lane {
	return &Lane{NewPatient(conn, patience), conn, below(conn)}
}

// Write has the records that TLS makes of many bytes written together.
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

// HangUp ends the connection, even while other goroutines read or write. It
// does not wait, as a proper close of TLS would.
func (l *Lane) HangUp() {
	if over, ok := l.conn.(interface{ NetConn() net.Conn }); ok {
		_ = over.NetConn().Close()
		return
	}
	_ = l.conn.Close()
}
