package door

import (
	"net"
	"time"
)

// Lane is a patient connection that can be ended at once by anybody.
type Lane struct {
	*Patient
	conn net.Conn
}

// NewLane gives a connection its times.
func NewLane(conn net.Conn, patience time.Duration) *Lane {
	return &Lane{NewPatient(conn, patience), conn}
}

// HangUp ends the connection, whoever reads or writes. It does not wait, as saying
// farewell would.
func (l *Lane) HangUp() {
	if over, ok := l.conn.(interface{ NetConn() net.Conn }); ok {
		_ = over.NetConn().Close()
		return
	}
	_ = l.conn.Close()
}
