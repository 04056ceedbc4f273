package dial

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// What connections to a head, or to what takes its part towards nodes, are switched to.
const (
	// ProtocolAgent is the conversation with an agent: the messages of wire/agent.
	ProtocolAgent = "muster-agent"
	// ProtocolStream is a connection of a job's process: the frames of wire/agent, input one way and
	// output the other.
	ProtocolStream = "muster-stream"
)

// Wanted says whether a request asks to switch its connection to a protocol.
func Wanted(h http.Header, protocol string) bool {
	return has(h.Values("Upgrade"), protocol) && has(h.Values("Connection"), "upgrade")
}

// has says whether one of the comma-separated words of a header is word.
func has(values []string, word string) bool {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(one), word) {
				return true
			}
		}
	}
	return false
}

// Accept takes the connection of a request over for a protocol. Its deadline is within a time: whoever
// takes it clears that.
func Accept(w http.ResponseWriter, protocol string, within time.Duration) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	return Rest(conn, buffered.Reader), nil
}

// ErrGone is the error of Accept when the connection was taken over and could not be answered.
var ErrGone = errors.New("the connection has ended")

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
