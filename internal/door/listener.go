package door

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// How long a listener waits before it tries again: each time twice as long.
const (
	shortestRest = time.Millisecond
	longestRest  = 100 * time.Millisecond
	// aLook is how long it then waits for a connection to see whether it can accept
	// one.
	aLook = 50 * time.Millisecond
)

// socket is a listener of the net package.
type socket interface {
	net.Listener
	SetDeadline(time.Time) error
}

// Listener accepts connections until it is closed. What keeps it from that, such as
// a lack of descriptors, may pass: so it tries again, and Trouble tells of it
// until a connection can be accepted.
type Listener struct {
	socket
	// Notice, if it is not nil, hears when trouble begins, and nil when it is over; but
	// not of trouble soon after other trouble, which somebody may make on purpose.
	Notice func(trouble error)

	rest    func(time.Duration, <-chan struct{}) // waits, at most until closed
	pending func() bool                          // whether a connection waits to be accepted
	closed  chan struct{}
	once    sync.Once

	now     func() time.Time
	noticed time.Time // when trouble was noticed last
	told    bool      // it was noticed, and is not over

	mu      sync.Mutex
	trouble error
	keep    bool     // whether a descriptor is kept for the last connection
	kept    *os.File // that descriptor; nil while it is in use
}

// Conn is a connection that a Listener accepted.
type Conn struct {
	net.Conn
	// Last says that the connection has the descriptor that was kept for when no
	// other is left: serve it shortly, or say why not, and close it.
	Last bool

	listener *Listener
	left     func() // when it is closed; nil for nothing
	once     sync.Once
}

// Listen makes a listener of one of the net package. With keep, one descriptor is
// kept, so that a connection can be told that there are no more.
func Listen(s interface {
	net.Listener
	SetDeadline(time.Time) error
}, keep bool) *Listener {
	l := &Listener{socket: s, rest: rest, now: time.Now, closed: make(chan struct{}), keep: keep}
	l.pending = func() bool {
		conn, ok := s.(syscall.Conn)
		return ok && isPending(conn)
	}
	l.refill()
	return l
}

func rest(d time.Duration, closed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closed:
	}
}

// Trouble says why no connection can be accepted; nil if one can.
func (l *Listener) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// Close ends Accept.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	err := l.socket.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep = false
	if l.kept != nil {
		l.kept.Close()
		l.kept = nil
	}
	return err
}

// Accept waits for a connection, which is a *Conn. The only error is that the
// listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	pause := shortestRest
	for {
		conn, err := l.socket.Accept()
		switch {
		case err == nil:
			l.note(nil)
			return &Conn{Conn: conn}, nil
		case l.isClosed(err):
			return nil, net.ErrClosed
		case errors.Is(err, os.ErrDeadlineExceeded): // it could have accepted one
			l.note(nil)
			pause = shortestRest
			continue
		}
		l.note(err)
		if conn := l.last(err); conn != nil {
			return conn, nil
		}
		l.rest(pause, l.closed)
		pause = min(2*pause, longestRest)
		_ = l.socket.SetDeadline(time.Now().Add(aLook))
	}
}

func (l *Listener) isClosed(err error) bool {
	select {
	case <-l.closed:
		return true
	default:
		return errors.Is(err, net.ErrClosed)
	}
}

// note remembers why no connection could be accepted, or that one can be.
func (l *Listener) note(trouble error) {
	l.mu.Lock()
	was := l.trouble
	l.trouble = trouble
	l.mu.Unlock()
	if trouble == nil && was != nil {
		_ = l.socket.SetDeadline(time.Time{})
		l.refill()
	}
	if l.Notice != nil && (trouble == nil) != (was == nil) {
		l.tell(trouble)
	}
}

// soon is how long after trouble was noticed no other is.
const soon = 10 * time.Second

// tell calls Notice when trouble begins or ends. Only Accept calls it.
func (l *Listener) tell(trouble error) {
	now := l.now()
	if trouble != nil {
		if l.told = l.noticed.IsZero() || now.Sub(l.noticed) >= soon; l.told {
			l.noticed = now
			l.Notice(trouble)
		}
	} else if l.told {
		l.told = false
		l.Notice(nil)
	}
}

// last accepts a connection with the descriptor that was kept. It returns nil
// if none was kept, or if the connection or the freed descriptor was gone
// before it could accept.
func (l *Listener) last(err error) net.Conn {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !l.pending() {
		return nil
	}
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	if kept == nil {
		l.refill() // for the next time
		return nil
	}
	kept.Close()
	_ = l.socket.SetDeadline(time.Now().Add(aLook)) // it may have gone meanwhile
	conn, err := l.socket.Accept()
	_ = l.socket.SetDeadline(time.Time{})
	if err != nil {
		l.refill()
		return nil
	}
	return &Conn{Conn: conn, Last: true, listener: l}
}

// refill keeps a descriptor again, if one can be had.
func (l *Listener) refill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keep || l.kept != nil {
		return
	}
	if f, err := os.Open(os.DevNull); err == nil {
		l.kept = f
	}
}

// Close ends the connection.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		if c.Last {
			c.listener.refill()
		}
		if c.left != nil {
			c.left()
		}
	})
	return err
}
