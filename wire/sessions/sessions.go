// Package sessions is the near end of agents' connections, for whoever leads agents: a head, or the
// driver of a Slurm. It checks an agent's greeting, reads what the agent says, and queues and writes
// what it is told; it notices when an agent is silent or does not read. What is said, and which
// sessions there are, is the leader's business.
package sessions

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster/wire/agent"
)

// MaxWaiting is how many messages may wait for an agent, and flushSize how many bytes are collected
// for one write; a single message may have more.
const (
	MaxWaiting = 8192
	flushSize  = 64 << 10
)

// Why sessions end, beside what the network says.
var (
	ErrTwice    = errors.New("it greeted twice")
	errSilent   = errors.New("it was silent for too long")
	errUnsteady = errors.New("it did not take what it was sent")
)

// Greeting reads and checks the first message of an agent, which must come within a time. leader is
// whom it greets, for people; may refuses a peer that may not speak for a node.
func Greeting(conn net.Conn, within time.Duration, leader string, may func(node string) error) (agent.Hello, error) {
	_ = conn.SetDeadline(time.Now().Add(within))
	defer conn.SetDeadline(time.Time{})
	m, err := agent.ReadToHead(conn)
	if err != nil {
		return agent.Hello{}, err
	}
	hello, ok := m.(agent.Hello)
	switch {
	case !ok:
		return hello, fmt.Errorf("an agent begins with hello, not with %s", m.Kind())
	case hello.Version != agent.Version:
		return hello, fmt.Errorf("the agent speaks version %d, and the %s version %d: use the same version of muster on both", hello.Version, leader, agent.Version)
	}
	return hello, may(hello.Node)
}

// Refuse tells an agent that has no session why it gets none. It does not wait for one that does not read.
func Refuse(conn net.Conn, reason string) {
	_ = conn.SetWriteDeadline(time.Now().Add(lastWords))
	if text, err := agent.Encode(nil, agent.Refused{Reason: reason}); err == nil {
		_, _ = conn.Write(text)
	}
}

// Leader is what sessions need of those who lead them. M is what they are told to send.
type Leader[M any] struct {
	// Silence is how long an agent may send nothing, or not read.
	Silence time.Duration
	Now     func() time.Duration
	Log     *slog.Logger // says already which session it is
	// Encode appends the bytes of a message. One that it refuses is not sent, and Unsent hears of it.
	Encode func(text []byte, m M) ([]byte, error)
	Unsent func(m M, err error)
}

// Session is one connection of an agent that has greeted. Whoever calls Hear reads from it as long as
// it lasts; a goroutine writes, but only while there is something to write, so that ten thousand idle
// agents cost ten thousand goroutines and not twice as many.
type Session[M any] struct {
	leader Leader[M]
	conn   net.Conn
	sent   atomic.Int64 // when something was last written

	// mu protects waiting and writing together: write sets writing to false only while it sees
	// waiting empty, so no message is left without a writer.
	mu      sync.Mutex
	waiting []M
	writing bool
	closing bool // the connection is closed once everything was written
	gone    bool
}

// New makes the session of a connection.
func New[M any](conn net.Conn, leader Leader[M]) *Session[M] {
	return &Session[M]{leader: leader, conn: conn}
}

// Hear passes on what the agent says, until the connection ends or do returns an error. A message that
// cannot be read is passed over: what matters the agent says again.
func (s *Session[M]) Hear(do func(agent.ToHead) error) error {
	complaint := ""
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.leader.Silence))
		m, err := agent.ReadToHead(s.conn)
		var network net.Error
		var unreadable *agent.Unreadable
		switch {
		case errors.As(err, &unreadable):
			if complaint != err.Error() { // an agent repeats itself
				complaint = err.Error()
				s.leader.Log.Warn("a message of an agent cannot be read, and is passed over", "kind", unreadable.Kind, "error", err)
			}
			continue
		case errors.As(err, &network) && network.Timeout():
			return errSilent
		case err == nil:
			err = do(m)
		}
		if err != nil {
			return err
		}
	}
}

// Put queues a message. If the session has ended it is dropped: what matters is sent again when the
// agent greets.
func (s *Session[M]) Put(m M) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone, s.closing:
		return false
	case len(s.waiting) >= MaxWaiting:
		s.leader.Log.Warn("an agent is hung up", "reason", errUnsteady)
		s.gone, s.waiting = true, nil
		_ = s.conn.Close()
		return false
	}
	s.waiting = append(s.waiting, m)
	s.wakeWriter()
	return true
}

// HangUp closes the connection once everything queued was written.
func (s *Session[M]) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone && !s.closing {
		s.closing = true
		s.wakeWriter()
	}
}

// lastWords is how long an agent may take to read why its session ends.
const lastWords = 2 * time.Second

// End puts a last message and hangs up, at the latest after lastWords: an agent that reads slowly must not
// keep what was taken from it.
func (s *Session[M]) End(last M) {
	s.Put(last)
	s.HangUp()
	time.AfterFunc(lastWords, s.Close)
}

// Close closes the connection now.
func (s *Session[M]) Close() { _ = s.conn.Close() }

// Drop drops what has not been written: the connection has ended.
func (s *Session[M]) Drop() {
	s.mu.Lock()
	s.gone, s.waiting = true, nil
	s.mu.Unlock()
}

// Quiet is how long nothing has been written. A ping keeps the agent from taking the leader for
// silent, and its answer the leader from taking the agent for it.
func (s *Session[M]) Quiet() time.Duration { return s.leader.Now() - time.Duration(s.sent.Load()) }

// wakeWriter starts the writer, unless it runs. The caller holds mu.
func (s *Session[M]) wakeWriter() {
	if !s.writing {
		s.writing = true
		go s.write()
	}
}

// write writes everything that waits, and ends.
func (s *Session[M]) write() {
	for {
		s.mu.Lock()
		messages := s.waiting
		s.waiting = nil
		closing := s.closing
		if len(messages) == 0 {
			s.writing = false
			s.mu.Unlock()
			if closing {
				_ = s.conn.Close()
			}
			return
		}
		s.mu.Unlock()
		if err := s.writeAll(messages); err != nil {
			s.leader.Log.Debug("an agent cannot be written to", "error", err)
			_ = s.conn.Close()
			s.mu.Lock()
			s.gone, s.waiting, s.writing = true, nil, false
			s.mu.Unlock()
			return
		}
	}
}

func (s *Session[M]) writeAll(messages []M) error {
	var text []byte
	for i, m := range messages {
		var err error
		if text, err = s.leader.Encode(text, m); err != nil {
			s.leader.Unsent(m, err)
		}
		if len(text) < flushSize && i < len(messages)-1 {
			continue
		}
		if err := s.flush(text); err != nil {
			return err
		}
		text = text[:0]
	}
	return s.flush(text)
}

func (s *Session[M]) flush(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.leader.Silence))
	_, err := s.conn.Write(text)
	s.sent.Store(int64(s.leader.Now()))
	return err
}

// WhyRefused is what is wrong with a message that was not sent, for the person whose doing it is.
func WhyRefused(err error) string {
	var refused *agent.Unreadable
	if errors.As(err, &refused) {
		err = refused.Err
	}
	return err.Error()
}
