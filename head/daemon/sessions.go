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
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/dial"
	"muster/wire/identity"
	wire "muster/wire/sessions"
	"muster/wire/trust"
)

// maxFromAgent is how many messages of an agent may wait for the core.
const maxFromAgent = 64

// sessions are the connections of agents.
type sessions struct {
	*daemon
	last atomic.Uint64

	mu     sync.Mutex
	byID   map[head.Session]*session
	closed bool
}

// session is one connection of an agent.
type session struct {
	*sessions
	*wire.Session[head.Send]
	id   head.Session
	who  caller
	node string
	conn net.Conn
	// room bounds the messages of the agent that the core has not handled yet.
	room chan struct{}
	// revoked is why the session ends before its connection does; nil if it does not.
	revoked atomic.Pointer[trust.Revoked]
}

func newSessions(d *daemon) *sessions {
	return &sessions{daemon: d, byID: map[head.Session]*session{}}
}

// upgrade takes a request's connection over for another protocol.
func upgrade(q *request, protocol string) (net.Conn, error) {
	if !dial.Wanted(q.r.Header, protocol) {
		q.w.Header().Set("Upgrade", protocol)
		return nil, refuse(http.StatusUpgradeRequired, "this is a conversation: send Connection: Upgrade and Upgrade: %s", protocol)
	}
	conn, err := dial.Accept(q.w, protocol, q.cfg.Connections.Greet)
	if errors.Is(err, dial.ErrGone) {
		err = errAnswered
	}
	return conn, err
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
	hello, err := wire.Greeting(s.conn, s.cfg.Connections.Greet, "head", s.who.isNode)
	if err != nil {
		s.log.Log(context.Background(), levelOf(err, slog.LevelWarn), "an agent was refused", "agent", s.who.String(), "error", err)
		if names := s.who.names(hello.Node); levelOf(err, slog.LevelWarn) == slog.LevelWarn {
			s.refusals.note(s.who.holder(hello.Node), refusal{names: names, reason: err.Error(), at: s.clock()})
		}
		wire.Refuse(s.conn, err.Error())
		return
	}
	s.node = hello.Node
	s.begin()
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

func (s *session) begin() {
	s.Session = wire.New(s.conn, wire.Leader[head.Send]{
		Silence: s.cfg.Core.Silence, Now: s.now, Log: s.log.With("node", s.node, "session", s.id), Encode: s.encode, Unsent: s.unsent,
	})
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

// hear passes an agent's messages to the core. Of the answers to pings the first tells it that the
// agent reads.
func (s *session) hear() error {
	answered := false
	return s.Hear(func(m agent.ToHead) error {
		if s.revoked.Load() != nil {
			return nil // until it was told why and the connection is closed
		}
		switch m.(type) {
		case agent.Pong:
			if answered {
				return nil
			}
			answered = true
		case agent.Hello:
			return wire.ErrTwice
		}
		s.say(head.Said{Session: s.id, Message: m})
		return nil
	})
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
	s.Drop()
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
	return one.Put(*m)
}

// hangUp closes a session once everything queued for it was sent.
func (s *sessions) hangUp(id head.Session) {
	if one := s.find(id); one != nil {
		one.HangUp()
	}
}

// closeAll ends all sessions.
func (s *sessions) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, one := range s.byID {
		one.Close()
	}
}

// encode appends a message's bytes. If it starts a job, what that runs is filled in.
func (s *session) encode(text []byte, m head.Send) ([]byte, error) {
	message, err := s.complete(&m)
	if err != nil { // the core knows whether the job has ended meanwhile
		return text, err
	}
	return agent.Encode(text, message)
}

// unsent tells the core of a message that is not sent, because the agent would refuse it.
func (s *session) unsent(m head.Send, err error) {
	s.log.Warn("a message to an agent is not sent", "node", s.node, "session", s.id, "kind", m.Message.Kind(), "error", err)
	s.say(head.Unsent{Session: s.id, Message: m.Message, Reason: agent.Reason(wire.WhyRefused(err))})
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
		if one.Quiet() >= quiet {
			one.Put(head.Send{Session: one.id, Message: agent.Ping{}})
		}
	}
}
