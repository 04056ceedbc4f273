package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"muster/internal/door"
	"muster/wire"
)

// link is a connection that has shown that it may come: TLS, or without.
type link interface {
	net.Conn
	CloseWrite() error
	// NetConn is the connection below: closing it waits for nobody.
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

// errNoTLS ends connections with TLS to a node that has no certificate.
var errNoTLS = errors.New("it speaks TLS, for which the node has no certificate")

// comesPlain says whether a connection begins as one without TLS does. Nothing is taken
// from it.
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

// meet finds out what a new connection is for, and whether it may come as far as that can be
// known before it has said who it is.
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
		if kind == wire.PlainLane {
			return plainLink{plain}, wire.LaneProtocol, err
		}
		return plainLink{plain}, wire.StreamProtocol, err
	case g.TLS == nil:
		return nil, "", errNoTLS
	}
	secure := tls.Server(plain, g.TLS)
	if err := handshake(secure); err != nil {
		return nil, "", err
	}
	return secure, secure.ConnectionState().NegotiatedProtocol, nil
}
