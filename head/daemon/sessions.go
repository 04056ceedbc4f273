package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/dial"
	"muster/wire/identity"
	"muster/wire/trust"
)

// How many messages may wait for an agent, and how many messages of an agent for the core.
const (
	maxToAgent   = 8192
	maxFromAgent = 64
)

// sessions are the connections of agents.
type sessions struct {
	*daemon
	last atomic.Uint64

	mu     sync.Mutex
	byID   map[head.Session]*session
	closed bool
}

// session is one connection of an agent. One goroutine reads from it as long as it lasts; another
// writes, but only while there is something to write, so that ten thousand idle agents cost ten
// thousand goroutines and not twice as many.
type session struct {
	*sessions
	id   head.Session
	who  caller
	node string
	conn net.Conn
	// room bounds the messages of the agent that the core has not handled yet.
	room chan struct{}
	sent atomic.Int64 // when the head last wrote something
	// revoked is why the session ends before its connection does; nil if it does not.
	revoked atomic.Pointer[trust.Revoked]

	mu      sync.Mutex
	waiting []head.Send
	writing bool
	closing bool // the connection is closed once everything was written
	gone    bool
}

func newSessions(d *daemon) *sessions {
	return &sessions{daemon: d, byID: map[head.Session]*session{}}
}

// upgrade takes a request's connection over for another protocol.
func upgrade(q *request, protocol string) (net.Conn, error) {
	if !has(q.r.Header.Values("Upgrade"), protocol) || !has(q.r.Header.Values("Connection"), "upgrade") {
		q.w.Header().Set("Upgrade", protocol)
		return nil, refuse(http.StatusUpgradeRequired, "this is a conversation: send Connection: Upgrade and Upgrade: %s", protocol)
	}
	conn, buffered, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(q.cfg.Connections.Greet))
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
	if err != nil {
		_ = conn.Close()
		return nil, errAnswered
	}
	return dial.Rest(conn, buffered.Reader), nil
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

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// serveAgent starts the session of an agent.
func serveAgent(q *request) (any, error) {
	conn, err := upgrade(q, dial.ProtocolAgent)
	if err != nil {
		return nil, err
	}
	s := &session{sessions: q.sessions, id: head.Session(q.sessions.last.Add(1)), who: *q.who, conn: conn, room: make(chan struct{}, maxFromAgent)}
	go s.serve() // in a new goroutine: the request's memory can be freed
	return nil, errAnswered
}

// isNode says whether a caller may speak for a node.
func (c *caller) isNode(name string) error {
	if c.node == nil {
		return nil // root at the socket: serveAgent admits no other user there
	}
	return identity.IsNode(c.node, name)
}

// serve runs the session until its connection ends. The core hears of the end only after everything
// that the agent said before it, since both go through the queue.
func (s *session) serve() {
	defer s.conn.Close()
	hello, err := s.greet()
	if err != nil {
		s.log.Log(context.Background(), levelOf(err, slog.LevelWarn), "an agent was refused", "agent", s.who.String(), "error", err)
		if names := s.who.names(hello.Node); levelOf(err, slog.LevelWarn) == slog.LevelWarn {
			s.refusals.note(s.who.holder(hello.Node), refusal{names: names, reason: err.Error(), at: s.clock()})
		}
		if text, encodeErr := agent.Encode(nil, agent.Refused{Reason: err.Error()}); encodeErr == nil {
			_, _ = s.conn.Write(text)
		}
		return
	}
	s.node = hello.Node
	if !s.add() {
		return
	}
	s.log.Info("an agent greets", "node", s.node, "session", s.id, "tasks", len(hello.Tasks), "devices", len(hello.Devices))
	s.say(head.Greeted{Session: s.id, Hello: hello})
	err = s.hear()
	s.remove()
	s.streams.lost(s.id)
	if revoked := s.revoked.Load(); revoked != nil {
		err = revoked
	}
	s.say(head.HungUp{Session: s.id, Reason: whyLeft(err)})
	s.log.Info("an agent has gone", "node", s.node, "session", s.id, "reason", err)
}

// greet reads and checks an agent's first message.
func (s *session) greet() (agent.Hello, error) {
	_ = s.conn.SetDeadline(time.Now().Add(s.cfg.Connections.Greet))
	defer s.conn.SetDeadline(time.Time{})
	m, err := agent.ReadToHead(s.conn)
	if err != nil {
		return agent.Hello{}, err
	}
	hello, ok := m.(agent.Hello)
	switch {
	case !ok:
		return hello, fmt.Errorf("an agent begins with hello, not with %s", m.Kind())
	case hello.Version != agent.Version:
		return hello, fmt.Errorf("the agent speaks version %d, and the head version %d: use the same version of muster on both", hello.Version, agent.Version)
	}
	return hello, s.who.isNode(hello.Node)
}

// whyLeft is why a session ended, for people.
func whyLeft(err error) string {
	var network *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
		return "the node closed the connection"
	case errors.As(err, &network):
		return agent.Reason(fmt.Sprintf("the connection to it broke: %v", err))
	}
	return agent.Reason(err.Error())
}

var (
	errSilent   = errors.New("it was silent for too long")
	errTwice    = errors.New("it greeted twice")
	errUnsteady = errors.New("it did not take what it was sent")
)

// hear passes an agent's messages to the core. One that cannot be read is passed over: what matters
// the agent says again. Of the answers to pings the first tells the core that the agent reads.
func (s *session) hear() error {
	answered, complaint := false, ""
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.cfg.Core.Silence))
		m, err := agent.ReadToHead(s.conn)
		var network net.Error
		var unreadable *agent.Unreadable
		switch {
		case errors.As(err, &unreadable):
			if complaint != err.Error() { // an agent repeats itself
				complaint = err.Error()
				s.log.Warn("a message of an agent cannot be read, and is passed over", "node", s.node, "session", s.id, "kind", unreadable.Kind, "error", err)
			}
			continue
		case errors.As(err, &network) && network.Timeout():
			return errSilent
		case err != nil:
			return err
		case s.revoked.Load() != nil:
			continue // until it was told why and the connection is closed
		}
		switch m.(type) {
		case agent.Pong:
			if answered {
				continue
			}
			answered = true
		case agent.Hello:
			return errTwice
		}
		s.say(head.Said{Session: s.id, Message: m})
	}
}

// say passes an event to the core. It waits while maxFromAgent events of this session are
// unhandled, so that the agent is slowed down and not the head.
func (s *session) say(ev head.Event) {
	select {
	case s.room <- struct{}{}:
	case <-s.ending:
		return // dropped: the agent says what matters again when it greets
	}
	_ = s.queue.push(ofAgents, &call{source: fmt.Sprint(s.id), events: []head.Event{ev}, taken: func() { <-s.room }})
}

func (s *session) add() bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.closed {
		return false
	}
	s.byID[s.id] = s
	return true
}

func (s *session) remove() {
	s.sessions.mu.Lock()
	delete(s.byID, s.id)
	s.sessions.mu.Unlock()
	s.mu.Lock()
	s.gone, s.waiting = true, nil
	s.mu.Unlock()
}

func (s *sessions) find(id head.Session) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// send queues a message for an agent. If the agent has gone the message is dropped: the core sends
// what matters again when the agent greets.
func (s *sessions) send(m *head.Send) bool {
	one := s.find(m.Session)
	if one == nil {
		return false
	}
	switch said := m.Message.(type) {
	case agent.Refused:
		s.refusals.note(one.who.holder(one.node), refusal{names: []string{one.node}, reason: said.Reason, at: s.clock()})
	case agent.Welcome:
		s.refusals.forget(one.who.holder(one.node), one.node)
	}
	return one.put(*m, false)
}

// hangUp closes a session once everything queued for it was sent.
func (s *sessions) hangUp(id head.Session) {
	if one := s.find(id); one != nil {
		one.put(head.Send{}, true)
	}
}

// closeAll ends all sessions.
func (s *sessions) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, one := range s.byID {
		_ = one.conn.Close()
	}
}

// put queues a message, or with last the end of the session, and starts write unless it runs. mu
// protects waiting and writing together: write sets writing to false only while it sees waiting
// empty, so no message is left without a writer.
func (s *session) put(m head.Send, last bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone, s.closing:
		return false
	case len(s.waiting) >= maxToAgent:
		s.log.Warn("an agent is hung up", "node", s.node, "session", s.id, "reason", errUnsteady)
		s.gone, s.waiting = true, nil
		_ = s.conn.Close()
		return false
	}
	if last {
		s.closing = true
	} else {
		s.waiting = append(s.waiting, m)
	}
	if !s.writing {
		s.writing = true
		go s.write()
	}
	return true
}

// write writes everything that waits, and ends. put starts it again.
func (s *session) write() {
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
			s.log.Debug("an agent cannot be written to", "node", s.node, "session", s.id, "error", err)
			_ = s.conn.Close()
			s.mu.Lock()
			s.gone, s.waiting, s.writing = true, nil, false
			s.mu.Unlock()
			return
		}
	}
}

// flushSize is how many bytes are collected for one write; a single message may have more.
const flushSize = 64 << 10

func (s *session) writeAll(messages []head.Send) error {
	var text []byte
	for i := range messages {
		m, err := s.complete(&messages[i])
		if err == nil {
			text, err = agent.Encode(text, m)
		}
		if err != nil { // the core knows whether the job has ended meanwhile
			s.unsent(messages[i].Message, err)
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

// unsent tells the core of a message that is not sent, because the agent would refuse it.
func (s *session) unsent(m agent.ToAgent, err error) {
	s.log.Warn("a message to an agent is not sent", "node", s.node, "session", s.id, "kind", m.Kind(), "error", err)
	s.say(head.Unsent{Session: s.id, Message: m, Reason: agent.Reason(whyRefused(err))})
}

// whyRefused is what is wrong with a message, for the person whose doing it is.
func whyRefused(err error) string {
	var refused *agent.Unreadable
	if errors.As(err, &refused) {
		err = refused.Err
	}
	return err.Error()
}

func (s *session) flush(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.cfg.Core.Silence))
	_, err := s.conn.Write(text)
	s.sent.Store(int64(s.now()))
	return err
}

// complete fills in what a job runs, if the message starts one.
func (s *session) complete(m *head.Send) (agent.ToAgent, error) {
	if m.Bulk == 0 {
		return m.Message, nil
	}
	start, ok := m.Message.(agent.Start)
	if !ok {
		return m.Message, nil
	}
	text, err := s.store.Bulk(m.Bulk)
	if err == nil {
		err = head.FillIn(&start, text)
	}
	if err != nil {
		return nil, fmt.Errorf("what the job runs is damaged or missing on the head's disk: submit it again, and tell the administrator: %w", err)
	}
	return start, nil
}

// refuse is the last that an agent is told.
func (s *session) refuse(reason string) {
	s.put(head.Send{Session: s.id, Message: agent.Refused{Reason: reason}}, false)
	s.put(head.Send{}, true)
}

// pinger pings agents to which nothing was sent for a while. Each ping is answered, so neither side
// takes the other for silent.
func (d *daemon) pinger(ctx context.Context) {
	every := d.cfg.Core.Silence / 4
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.sessions.ping(d.cfg.Core.Silence/2 - every/2)
		}
	}
}

func (s *sessions) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}

func (s *sessions) ping(quiet time.Duration) {
	for _, one := range s.all() {
		if s.now()-time.Duration(one.sent.Load()) >= quiet {
			one.put(head.Send{Session: one.id, Message: agent.Ping{}}, false)
		}
	}
}
