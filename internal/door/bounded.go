package door

import "net"

// bounded is a listener each of whose connections takes a place.
type bounded struct {
	*Listener
	places *Places
}

// Bounded makes each connection that a listener accepts take a place of its origin, until the
// connection is closed.
func Bounded(l *Listener, places *Places) net.Listener { return &bounded{l, places} }

func (b *bounded) Accept() (net.Conn, error) {
	for {
		accepted, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := accepted.(*Conn)
		place, err := b.places.Take(Origin(conn.RemoteAddr()), false, func() { _ = conn.Close() })
		if err != nil {
			_ = conn.Close()
			continue
		}
		conn.left = place.Leave
		return conn, nil
	}
}

// Origin names the origin of a connection, as the unit that a single person can control: an address
// or, for IPv6, its first half (a network).
func Origin(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return addr.String()
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return ip.String()
	}
	return prefix.String()
}
