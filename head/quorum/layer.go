package quorum

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// layer is how heads reach each other. When it is closed, so are its connections.
type layer struct {
	self string
	dial func(context.Context, string) (net.Conn, error)
	come chan net.Conn
	ctx  context.Context // done when it is closed
	end  context.CancelFunc

	mu  sync.Mutex
	all map[*link]bool
}

func newLayer(self string, dial func(context.Context, string) (net.Conn, error)) *layer {
	l := &layer{self: self, dial: dial, come: make(chan net.Conn), all: map[*link]bool{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// link is a connection with another head.
type link struct {
	net.Conn
	of *layer
}

func (c *link) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (l *layer) keep(conn net.Conn) net.Conn {
	c := &link{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[c] = true
	if l.ctx.Err() != nil {
		_ = conn.Close()
	}
	return c
}

func (l *layer) Dial(to raft.ServerAddress, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	conn, err := l.dial(ctx, string(to))
	if err != nil {
		return nil, err
	}
	return l.keep(conn), nil
}

func (l *layer) serve(conn net.Conn) {
	conn = l.keep(conn)
	select {
	case l.come <- conn:
	case <-l.ctx.Done():
		_ = conn.Close()
	}
}

func (l *layer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.come:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *layer) Close() error {
	l.end()
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.all))
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
	return nil
}

func (l *layer) Addr() net.Addr { return named(l.self) }

// named is an address by a name.
type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

// linePause is how long a line of Raft's is not repeated: it tells of a head that is away again and again.
const linePause = time.Minute

// lines passes Raft's lines on to the log.
type lines struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time
}

func (l *lines) Write(b []byte) (int, error) {
	_, text, _ := strings.Cut(string(b), "] ") // the time, and the level
	_, text, _ = strings.Cut(strings.TrimSpace(text), ": ")
	what, _, _ := strings.Cut(text, ": ")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log == nil || time.Since(l.said[what]) < linePause {
		return len(b), nil
	}
	if l.said == nil || len(l.said) > 100 {
		l.said = map[string]time.Time{}
	}
	l.said[what] = time.Now()
	l.log.Info("between the heads: " + text)
	return len(b), nil
}
