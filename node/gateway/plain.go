package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"muster/internal/door"
	"muster/wire"
)

// link is a connection that has passed meet, with TLS or without.
type link interface {
	net.Conn
	CloseWrite() error
	// NetConn is the underlying connection. Closing it never blocks.
	NetConn() net.Conn
}

// plainLink is a connection without TLS.
type plainLink struct{ net.Conn }

func (p plainLink) NetConn() net.Conn { return p.Conn }

func (p plainLink) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// errNoTLS ends TLS connections to a node without a certificate, and errOnlyTLS those without TLS to
// a node that does not take them.
var (
	errNoTLS   = errors.New("it speaks TLS, for which the node has no certificate: give the node one (muster cert --host), or have the program come without TLS (muster run --plain)")
	errOnlyTLS = errors.New("it comes without TLS (muster run --plain), which the node does not take: have it come with a certificate (--tls-dir), or say plain: true in the node's configuration")
)

// comesPlain says whether a connection begins as one without TLS does. It only peeks at the first
// byte.
func comesPlain(conn syscall.Conn) (bool, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false, err
	}
	var first [1]byte
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			if n, _, failed = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK); failed != syscall.EINTR {
				return failed != syscall.EAGAIN
			}
		}
	})
	if err == nil {
		err = failed
	}
	return n == 1 && first[0] == wire.PlainFirst, err
}

// meet finds out what a new connection is for, and checks it as far as is possible before the peer
// has said who it is: with TLS by the handshake, without TLS by the token.
func (g *Gateway) meet(plain net.Conn, handshake func(*tls.Conn) error) (conn link, protocol string, err error) {
	without := false
	if system, ok := plain.(syscall.Conn); ok && g.Plain {
		if without, err = comesPlain(system); err != nil {
			return nil, "", err
		}
	}
	plain = door.NewEager(plain)
	switch {
	case without:
		kind, err := wire.MeetPlain(plain, g.Token)
		protocols := map[wire.PlainKind]string{wire.PlainStream: wire.StreamProtocol, wire.PlainLane: wire.LaneProtocol, wire.PlainResume: wire.ResumeProtocol}
		return plainLink{plain}, protocols[kind], err
	case g.TLS == nil:
		return nil, "", errNoTLS
	}
	secure := tls.Server(plain, g.TLS)
	if err := handshake(secure); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.RecordHeader[0] == wire.PlainFirst {
			err = errOnlyTLS
		}
		return nil, "", err
	}
	return secure, secure.ConnectionState().NegotiatedProtocol, nil
}
