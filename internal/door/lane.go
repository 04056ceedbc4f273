package door

import (
	"net"
	"syscall"
	"time"
)

// Lane is a connection for bulk data that any goroutine can close immediately. The other side must
// send something every now and then, so writes need no deadline: whoever reads notices that it is
// gone. It may be alive, and have no place for what is written.
type Lane struct {
	conn    net.Conn
	silence time.Duration
	eager   *Eager  // the connection below TLS; nil if there is none
	sealed  *Sealed // the connection, if it is one
	first   []byte  // the beginning of what WriteBoth writes
}

// NewLane wraps a connection; silence is how long the other side may send nothing.
func NewLane(conn net.Conn, silence time.Duration) *Lane {
	l := &Lane{conn: conn, silence: silence}
	if sealed, ok := conn.(*Sealed); ok {
		l.sealed = sealed
	} else {
		l.eager = below(conn)
	}
	return l
}

// Read reads bytes, with a deadline.
func (l *Lane) Read(b []byte) (int, error) {
	_ = l.conn.SetReadDeadline(time.Now().Add(l.silence)) // an error here makes the read fail, too
	return l.conn.Read(b)
}

// Write writes bytes. It combines the records that TLS makes of them into long writes.
func (l *Lane) Write(b []byte) (int, error) {
	if l.eager == nil {
		return l.conn.Write(b)
	}
	l.eager.Hold()
	n, err := l.conn.Write(b)
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

// HangUp closes the connection, even while other goroutines read or write.
func (l *Lane) HangUp() { hangUp(l.conn) }

// GiveUpAfterAMinute makes a connection break when the other machine has acknowledged or taken nothing
// for a minute; the system's own limit is a quarter of an hour.
func GiveUpAfterAMinute(_, _ string, raw syscall.RawConn) error {
	return giveUpAfter(time.Minute, raw)
}

// GiveUpNever takes GiveUpAfterAMinute back, for a connection whose sides hear each other's heartbeat: the
// other side may have no place for what is written for as long as it likes.
func GiveUpNever(conn net.Conn) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = giveUpAfter(0, raw)
	}
}

// giveUpAfter says for how long the other machine may acknowledge or take nothing; 0 is the system's own
// limit to the first, and none to the second.
func giveUpAfter(most time.Duration, raw syscall.RawConn) error {
	const userTimeout = 18
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, int(most/time.Millisecond))
	}); err != nil {
		return err
	}
	return failed
}
