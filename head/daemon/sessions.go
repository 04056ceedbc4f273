package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/dial"
	"muster/wire/identity"
	wire "muster/wire/sessions"
)

// maxFromAgent is how many messages of an agent may wait for the core.
const maxFromAgent = 64

// sessions are the connections of agents.
type sessions struct {
	*daemon
	server wire.Server
	last   atomic.Uint64

	mu   sync.Mutex
	byID map[head.Session]*session
	// loads are what agents have said of how busy their nodes are, or only that they are alive, and the core is to
	// hear: at most one of each session.
	loads []*call

	notices noticeLog
	// refused bounds the lines of the log about those who get no session, and declined those about tasks that nodes
	// do not start.
	refused, declined wire.Rate
}

// loadsTime is how long loads are gathered: the core hears of all nodes some times a second, and is not woken
// for each.
const loadsTime = 100 * time.Millisecond

// gather keeps a load, or the answer to a ping, for the core. It waits until the core has taken the session's last
// one, so that an agent that reports without pause is slowed down and not the head.
func (s *session) gather(m agent.ToHead) {
	select {
	case s.load <- struct{}{}:
	case <-s.ending:
		return
	}
	c := &call{source: s.source(), events: []head.Event{head.Said{Session: s.id, Message: m}}, taken: func() { <-s.load }}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads == nil {
		time.AfterFunc(loadsTime, s.passOn)
	}
	s.loads = append(s.loads, c)
}

// passOn tells the core what was gathered. Each load is its session's: a core with much to do takes it in its turn.
func (s *sessions) passOn() {
	s.mu.Lock()
	loads := s.loads
	s.loads = nil
	s.mu.Unlock()
	for _, c := range loads {
		_ = s.queue.push(ofAgents, c) // a head that ends needs them no more
	}
}

// session is one connection of an agent.
type session struct {
	*sessions
	*wire.Session
	id   head.Session
	who  caller
	node string
	// room bounds the messages of the agent that the core has not handled yet.
	room chan struct{}
	// load is full while the core has not taken what was gathered of the agent last.
	load     chan struct{}
	answered bool // it has answered a ping
}

func newSessions(d *daemon) *sessions {
	return &sessions{
		daemon: d, byID: map[head.Session]*session{},
		server: wire.Server{Leader: "head", Greet: d.cfg.Connections.Greet, Silence: d.cfg.Core.Silence, Now: d.now, Log: d.log},
	}
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
	q.sessions.server.Serve(conn, q.sessions.of(*q.who))
	return nil, errAnswered
}

func (s *sessions) of(who caller) *session {
	return &session{sessions: s, id: head.Session(s.last.Add(1)), who: who, room: make(chan struct{}, maxFromAgent), load: make(chan struct{}, 1)}
}

// isNode says whether a caller may speak for a node.
func (c *caller) isNode(name string) error {
	if c.node == nil {
		return nil // root at the socket: serveAgent admits no other user there
	}
	return identity.IsNode(c.node, name)
}

// May says whether the agent may speak for a node.
func (s *session) May(node string) error { return s.who.isNode(node) }

// Refused notes why an agent gets no session.
func (s *session) Refused(hello agent.Hello, err error) {
	if s.refused.May(s.now(), s.who.String()) {
		s.log.Log(context.Background(), levelOf(err, slog.LevelWarn), "an agent was refused", "agent", s.who.String(), "error", err)
	}
	if names := s.who.names(hello.Node); levelOf(err, slog.LevelWarn) == slog.LevelWarn {
		s.refusals.note(s.who.holder(hello.Node), refusal{names: names, reason: err.Error(), at: s.Now()})
	}
}

// Greeted tells the core of the agent.
func (s *session) Greeted(one *wire.Session, hello agent.Hello) error {
	s.Session, s.node = one, hello.Node
	s.mu.Lock()
	s.byID[s.id] = s
	s.mu.Unlock()
	s.log.Info("an agent greets", "node", s.node, "session", s.id, "tasks", len(hello.Tasks), "devices", len(hello.Devices))
	for i := range hello.Tasks {
		s.noteDeclined(&hello.Tasks[i])
	}
	s.say(head.Greeted{Session: s.id, Hello: hello})
	return nil
}

// Left tells the core that the session has ended, only after everything that the agent said before,
// since both go through the queue.
func (s *session) Left(err error) {
	s.mu.Lock()
	delete(s.byID, s.id)
	s.mu.Unlock()
	s.streams.lost(s.id)
	s.say(head.HungUp{Session: s.id, Reason: whyLeft(err)})
	s.log.Info("an agent has gone", "node", s.node, "session", s.id, "reason", err)
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

// Heard passes a message of the agent to the core. Of the answers to pings the first tells it that the
// agent reads, and the others that it is alive: they come to it with the loads.
func (s *session) Heard(m agent.ToHead) error {
	switch m := m.(type) {
	case agent.Load:
		s.gather(m)
		return nil
	case agent.Pong:
		if s.answered {
			s.gather(m)
			return nil
		}
		s.answered = true
	case agent.Report:
		s.noteDeclined(&m)
	case agent.Lent:
		if m.Error != "" && s.declined.May(s.now(), s.node) {
			s.log.Warn("a node does not lend GPUs to a job", "node", s.node, "grant", m.ID, "reason", m.Error)
		}
	case agent.Hello:
		return wire.ErrTwice
	}
	s.say(head.Said{Session: s.id, Message: m})
	return nil
}

// noteDeclined writes into the log which task a node could not start. Why is for those who may see the job (muster job):
// it may name a private folder.
func (s *session) noteDeclined(r *agent.Report) {
	if r.End == nil || r.End.Cause != agent.NotBegun && r.End.Cause != agent.NotReady || !s.declined.May(s.now(), s.node) {
		return
	}
	s.log.Warn("a node did not start a task: muster job says why", "node", s.node, "job", r.Task.Job, "attempt", r.Task.Attempt, "part", r.Task.Part, "cause", r.End.Cause)
}

// source is the session's name in the queue.
func (s *session) source() string { return strconv.FormatUint(uint64(s.id), 10) }

// say passes an event to the core. It waits while maxFromAgent events of this session are
// unhandled, so that the agent is slowed down and not the head.
func (s *session) say(ev head.Event) {
	select {
	case s.room <- struct{}{}:
	case <-s.ending:
		return // dropped: the agent says what matters again when it greets
	}
	_ = s.queue.push(ofAgents, &call{source: s.source(), events: []head.Event{ev}, taken: func() { <-s.room }})
}

func (s *sessions) find(id head.Session) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
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
		s.refusals.note(one.who.holder(one.node), refusal{names: []string{one.node}, reason: said.Reason, at: s.Now()})
	case agent.Welcome:
		s.refusals.forget(one.who.holder(one.node), one.node)
	}
	return one.Put(m.Message)
}

// hangUp closes a session once everything queued for it was sent.
func (s *sessions) hangUp(id head.Session) {
	if one := s.find(id); one != nil {
		one.HangUp()
	}
}

// Unsent tells the core of a message that is not sent, because the agent would refuse it.
func (s *session) Unsent(m agent.ToAgent, err error) {
	s.log.Warn("a message to an agent is not sent", "node", s.node, "session", s.id, "kind", m.Kind(), "error", err)
	s.say(head.Unsent{Session: s.id, Message: m, Reason: agent.Reason(wire.WhyRefused(err))})
}

// Complete fills in what a job runs, if the message starts one.
func (s *session) Complete(m agent.ToAgent) (agent.ToAgent, error) {
	start, ok := m.(agent.Start)
	if !ok {
		return m, nil
	}
	if err := head.FillIn(&start, s.store.Bulk); err != nil { // the core knows whether the job has ended meanwhile
		return nil, fmt.Errorf("what the job runs is damaged or missing on the head's disk: submit it again, and tell the administrator: %w", err)
	}
	return start, nil
}
