// Package sessions is the near end of agents' connections, for whoever leads agents: a head, or the
// driver of a Slurm. It checks an agent's greeting, reads what the agent says, and queues and writes
// what it is told; it notices when an agent is silent or does not read. What is said, and which
// sessions there are, is the leader's business.
package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/wire/agent"
	"muster/wire/trust"
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

// Server has the sessions of those who lead agents.
type Server struct {
	Leader string // whom agents greet, for people
	// Greet is how long an agent may take to greet, and Silence how long it may send nothing, or not read.
	Greet, Silence time.Duration
	Now            func() time.Duration
	Log            *slog.Logger

	mu     sync.Mutex
	coming map[net.Conn]bool // connections whose agents have not greeted
	all    map[*Session]bool
	closed bool
	end    chan struct{} // see isClosed
	served sync.WaitGroup

	greetings Rate
}

// Member is an agent as its leader knows it.
type Member interface {
	// May refuses to let the agent speak for a node.
	May(node string) error
	// Greeted begins the session, in which nothing has been said yet, or refuses it; Refused hears why an
	// agent gets no session.
	Greeted(*Session, agent.Hello) error
	Refused(agent.Hello, error)
	// Heard takes what the agent says; an error ends the session.
	Heard(agent.ToHead) error
	// Complete fills in what a message leaves open until it is written. A message that cannot be written is
	// not sent, and Unsent hears of it.
	Complete(agent.ToAgent) (agent.ToAgent, error)
	Unsent(m agent.ToAgent, err error)
	// Left hears why the session has ended.
	Left(error)
}

// Serve has a session with the agent at the other end of a connection, in a goroutine of its own.
func (v *Server) Serve(conn net.Conn, m Member) {
	v.served.Go(func() {
		defer conn.Close()
		v.comes(conn, true)
		hello, err := v.greeting(conn, m)
		v.comes(conn, false)
		s := &Session{log: v.Log.With("node", hello.Node), server: v, member: m, conn: conn}
		s.sent.Store(int64(v.Now()))
		s.heard.Store(s.sent.Load())
		if err == nil {
			err = v.pace(hello.Node)
		}
		if err == nil {
			err = m.Greeted(s, hello)
		}
		if err != nil {
			m.Refused(hello, err)
			refuse(conn, err.Error())
			return
		}
		v.add(s)
		err = s.hear()
		v.remove(s)
		if revoked := s.revoked.Load(); revoked != nil {
			err = revoked
		}
		m.Left(err)
	})
}

// greeting reads and checks the first message of an agent.
func (v *Server) greeting(conn net.Conn, member Member) (agent.Hello, error) {
	_ = conn.SetDeadline(time.Now().Add(v.Greet))
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
		return hello, fmt.Errorf("the agent speaks version %d, and the %s version %d: use the same version of muster on both", hello.Version, v.Leader, agent.Version)
	}
	return hello, member.May(hello.Node)
}

// refuse tells an agent that has no session why it gets none. It does not wait for one that does not read.
func refuse(conn net.Conn, reason string) {
	_ = conn.SetWriteDeadline(time.Now().Add(lastWords))
	if text, err := agent.Encode(nil, agent.Refused{Reason: reason}); err == nil {
		_, _ = conn.Write(text)
	}
}

// comes notes whether an agent is about to greet. Once the server is closed, it is not waited for.
func (v *Server) comes(conn net.Conn, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !is {
		delete(v.coming, conn)
		return
	}
	if v.coming == nil {
		v.coming = map[net.Conn]bool{}
	}
	if v.coming[conn] = true; v.closed {
		conn.Close()
	}
}

func (v *Server) add(s *Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil {
		v.all = map[*Session]bool{}
	}
	if v.all[s] = true; v.closed {
		s.Close()
	}
}

func (v *Server) remove(s *Session) {
	v.mu.Lock()
	delete(v.all, s)
	v.mu.Unlock()
	s.drop()
}

func (v *Server) sessions() []*Session {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.all))
}

// Count is how many sessions there are.
func (v *Server) Count() int { return len(v.sessions()) }

// Close closes all connections, and takes no more. Wait waits until the last session is over.
func (v *Server) Close() {
	v.mu.Lock()
	if !v.closed {
		close(v.closing())
	}
	v.closed = true
	for conn := range v.coming {
		conn.Close()
	}
	v.mu.Unlock()
	for _, s := range v.sessions() {
		s.Close()
	}
}

func (v *Server) Wait() { v.served.Wait() }

// Ping pings agents to which nothing was sent for a while, or that said nothing, until ctx is done. A ping keeps the agent from
// taking the leader for silent, and its answer the leader from taking the agent for it.
func (v *Server) Ping(ctx context.Context) {
	every := v.Silence / 4
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, s := range v.sessions() {
				if s.quiet() >= v.Silence/2-every/2 {
					s.Put(agent.Ping{})
				}
			}
		}
	}
}

// EndRevoked ends the sessions of those of whom is says that their certificate was revoked since they have
// greeted, and tells them why. What they say from then on does not count, and they have a moment to take
// what was sent.
func (v *Server) EndRevoked(is func(Member) *trust.Revoked) {
	for _, s := range v.sessions() {
		if s.revoked.Load() != nil {
			continue
		}
		if revoked := is(s.member); revoked != nil {
			s.log.Warn("a node's session is ended", "reason", revoked)
			s.revoked.Store(revoked)
			s.End(agent.Refused{Reason: revoked.Error()})
		}
	}
}

// Session is one connection of an agent that has greeted. Its server reads from it as long as it lasts; a
// goroutine writes, but only while there is something to write, so that ten thousand idle agents cost ten
// thousand goroutines and not twice as many.
type Session struct {
	log     *slog.Logger // says which session it is
	server  *Server
	member  Member
	conn    net.Conn
	sent    atomic.Int64                  // when something was last written
	heard   atomic.Int64                  // when something was last read
	revoked atomic.Pointer[trust.Revoked] // why the session ends before its connection does; nil if it does not

	// mu protects waiting and writing together: write sets writing to false only while it sees
	// waiting empty, so no message is left without a writer.
	mu      sync.Mutex
	waiting []agent.ToAgent
	writing bool
	closing bool // the connection is closed once everything was written
	gone    bool
}

// hear passes on what the agent says, until the connection ends or its member has had enough. A message that
// cannot be read is passed over: what matters the agent says again.
func (s *Session) hear() error {
	var complaints complaints
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.server.Silence))
		m, err := agent.ReadToHead(s.conn)
		s.heard.Store(int64(s.server.Now()))
		var network net.Error
		var unreadable *agent.Unreadable
		switch {
		case errors.As(err, &unreadable):
			if more, due := complaints.note(s.server.Now(), err.Error()); due {
				s.log.Warn("a message of an agent cannot be read, and is passed over", "kind", unreadable.Kind, "error", err, "more", more)
			}
			continue
		case errors.As(err, &network) && network.Timeout():
			return errSilent
		case err == nil && s.revoked.Load() == nil:
			err = s.member.Heard(m)
		}
		if err != nil {
			return err
		}
	}
}

// complaintPause is the least time between two lines of the log about what an agent said.
const complaintPause = time.Minute

// complaints are what an agent said that could not be read.
type complaints struct {
	last string // the last that was logged: an agent repeats itself
	at   time.Duration
	more int // different ones since then
}

// note says whether a complaint is to be logged, and how many were not before it.
func (c *complaints) note(now time.Duration, complaint string) (more int, due bool) {
	switch {
	case complaint == c.last:
		return 0, false
	case c.last != "" && now-c.at < complaintPause:
		c.more++
		return 0, false
	}
	more = c.more
	*c = complaints{last: complaint, at: now}
	return more, true
}

// Put queues a message. If the session has ended it is dropped: what matters is sent again when the
// agent greets.
func (s *Session) Put(m agent.ToAgent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone, s.closing:
		return false
	case len(s.waiting) >= MaxWaiting:
		s.log.Warn("an agent is hung up", "reason", errUnsteady)
		s.gone, s.waiting = true, nil
		_ = s.conn.Close()
		return false
	}
	s.waiting = append(s.waiting, m)
	s.wakeWriter()
	return true
}

// HangUp closes the connection once everything queued was written.
func (s *Session) HangUp() {
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
func (s *Session) End(last agent.ToAgent) {
	s.Put(last)
	s.HangUp()
	time.AfterFunc(lastWords, s.Close)
}

// Close closes the connection now.
func (s *Session) Close() { _ = s.conn.Close() }

// drop drops what has not been written: the connection has ended.
func (s *Session) drop() {
	s.mu.Lock()
	s.gone, s.waiting = true, nil
	s.mu.Unlock()
}

// quiet is how long nothing has been written, or nothing read.
func (s *Session) quiet() time.Duration {
	return s.server.Now() - time.Duration(min(s.sent.Load(), s.heard.Load()))
}

// wakeWriter starts the writer, unless it runs. The caller holds mu.
func (s *Session) wakeWriter() {
	if !s.writing {
		s.writing = true
		go s.write()
	}
}

// write writes everything that waits, and ends.
func (s *Session) write() {
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
			s.log.Debug("an agent cannot be written to", "error", err)
			_ = s.conn.Close()
			s.mu.Lock()
			s.gone, s.waiting, s.writing = true, nil, false
			s.mu.Unlock()
			return
		}
	}
}

func (s *Session) writeAll(messages []agent.ToAgent) error {
	var text []byte
	for i, m := range messages {
		whole, err := s.member.Complete(m)
		if err == nil {
			text, err = agent.Encode(text, whole)
		}
		if err != nil {
			s.member.Unsent(m, err)
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

func (s *Session) flush(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.server.Silence))
	_, err := s.conn.Write(text)
	s.sent.Store(int64(s.server.Now()))
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
