package door

import "net"

// bounded is a listener whose connections have places.
type bounded struct {
	*Listener
	places *Places
}

// Bounded gives each connection that a listener accepts a place of the address
// it comes from, until it is closed.
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

// Origin names where a connection comes from, as far as one who has a network can
// be told from others: an address, of IPv6 its first half.
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
