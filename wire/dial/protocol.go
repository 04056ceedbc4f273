package dial

import (
	"bufio"
	"net"
)

// What connections to a head, or to what takes its part towards nodes, are switched to.
const (
	// ProtocolAgent is the conversation with an agent: the messages of wire/agent.
	ProtocolAgent = "muster-agent"
	// ProtocolStream is a connection of a job's process: the frames of wire/agent, input one way and
	// output the other.
	ProtocolStream = "muster-stream"
)

// Rest is a connection that was switched to another protocol, of which a reader may have read the
// beginning already.
func Rest(conn net.Conn, in *bufio.Reader) net.Conn {
	n := in.Buffered()
	if n == 0 {
		return conn
	}
	early, _ := in.Peek(n)
	return &begun{conn, append([]byte(nil), early...)}
}

// begun is a connection whose first bytes were read already.
type begun struct {
	net.Conn
	early []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.early) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.early)
	b.early = b.early[n:]
	return n, nil
}

// CloseWrite closes the sending direction.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Conn.Close()
}
