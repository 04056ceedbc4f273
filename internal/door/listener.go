package door

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// The pauses between attempts to accept; each is twice as long as the one before.
const (
	shortestRest = time.Millisecond
	longestRest  = 100 * time.Millisecond
	// aLook is how long the listener then waits for a connection. If that wait times out without
	// another error, accepting works again.
	aLook = 50 * time.Millisecond
)

// socket is a listener of the net package.
type socket interface {
	net.Listener
	SetDeadline(time.Time) error
}

// Listener accepts connections until it is closed. Errors such as a lack of descriptors may be
// temporary, so it tries again. Trouble reports the error until accepting works again.
type Listener struct {
	socket
	// Notice, if not nil, is called with the error when trouble begins, and with nil when it ends.
	// It is not called for trouble that follows other trouble within 10 s, because an attacker
	// could cause that at will.
	Notice func(trouble error)

	rest    func(time.Duration, <-chan struct{}) // sleeps, at most until closed
	pending func() bool                          // whether a connection is waiting to be accepted
	closed  chan struct{}
	once    sync.Once

	now     func() time.Time
	noticed time.Time // when Notice was last called for trouble; used only by Accept
	told    bool      // Notice was called for the current trouble; used only by Accept

	mu      sync.Mutex
	trouble error
	keep    bool     // whether a spare descriptor is kept
	kept    *os.File // the spare descriptor; nil while it is in use
}

// Conn is a connection that a Listener accepted.
type Conn struct {
	net.Conn
	// Last says that the connection uses the spare descriptor because no other is left. Serve it
	// quickly, or say why not, and close it.
	Last bool

	listener *Listener
	left     func() // called when the connection is closed; may be nil
	once     sync.Once
}

// Listen wraps a listener of the net package. With keep, it holds a spare descriptor, so that when
// all descriptors are in use, one more client can be accepted and told so.
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

// Trouble says why connections cannot be accepted at present; nil if they can.
func (l *Listener) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// Close closes the listener and makes Accept return.
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

// Accept waits for a connection, which is a *Conn. It returns an error only if the listener is
// closed.
func (l *Listener) Accept() (net.Conn, error) {
	pause := shortestRest
	for {
		conn, err := l.accept()
		switch {
		case err == nil:
			l.note(nil)
			return &Conn{Conn: conn}, nil
		case l.isClosed(err):
			return nil, net.ErrClosed
		case errors.Is(err, os.ErrDeadlineExceeded): // no error but the deadline: accepting works again
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
	}
}

// freed is held while a listener closes its spare descriptor and accepts with it, so that no other
// listener of this process that waits for a descriptor takes it away.
var freed sync.Mutex

func (l *Listener) accept() (net.Conn, error) {
	if l.Trouble() != nil {
		freed.Lock()
		defer freed.Unlock()
		_ = l.socket.SetDeadline(time.Now().Add(aLook))
	}
	return l.socket.Accept()
}

func (l *Listener) isClosed(err error) bool {
	select {
	case <-l.closed:
		return true
	default:
		return errors.Is(err, net.ErrClosed)
	}
}

// note records why no connection could be accepted, or nil if accepting works.
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

// soon is the time after trouble in which further trouble is not reported.
const soon = 10 * time.Second

// tell calls Notice when trouble begins or ends. Only Accept may call it.
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

// last accepts a connection with the spare descriptor: it closes the spare one, and accept reuses
// it. It returns nil if there is no spare descriptor, or if the connection or the freed descriptor
// was gone before it could accept.
func (l *Listener) last(err error) net.Conn {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !l.pending() {
		return nil
	}
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	if kept == nil {
		l.refill() // for the next attempt
		return nil
	}
	freed.Lock()
	kept.Close()
	_ = l.socket.SetDeadline(time.Now().Add(aLook)) // the connection may be gone by now
	conn, err := l.socket.Accept()
	freed.Unlock()
	_ = l.socket.SetDeadline(time.Time{})
	if err != nil {
		l.refill()
		return nil
	}
	return &Conn{Conn: conn, Last: true, listener: l}
}

// refill opens a spare descriptor again, if possible.
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

// Close closes the connection, and restores the spare descriptor if it used that.
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
