package agent

import (
	"bufio"
	"encoding/json"
	"net"
	"time"

	"muster/agent/agentcore"
	"muster/internal/strictjson"
	wire "muster/wire/agent"
)

// Agent and supervisor exchange JSON objects, one a line. An agent that watches is told
// how the task is once it has begun, and again whenever that changes.

// request is what an agent sends: that it watches, an order, or that the rest of the
// connection belongs to a command.
type request struct {
	Watch bool             `json:"watch,omitempty"`
	Order *agentcore.Order `json:"order,omitempty"`
	Exec  *wire.Exec       `json:"exec,omitempty"`
}

// saying is what a supervisor sends.
type saying struct {
	Suspended bool  `json:"suspended,omitempty"`
	Cores     []int `json:"cores,omitempty"`
	// Saved is how a save ended, which changes nothing else.
	Saved *savedWord `json:"saved,omitempty"`
	// Ended says that the task's end is in its folder.
	Ended bool `json:"ended,omitempty"`
}

// control is an agent's connection to a supervisor.
type control struct{ conn net.Conn }

// sayTime is how long the other side may take to read a message.
const sayTime = 5 * time.Second

func (c *control) say(what any) bool {
	text, err := json.Marshal(what)
	if err != nil {
		return false
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(sayTime))
	_, err = c.conn.Write(append(text, '\n'))
	return err == nil
}

// accept takes connections of agents.
func (s *supervisor) accept(l *net.UnixListener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

// serve serves a connection. It passes orders to the supervisor's own goroutine, which
// alone may change the task.
func (s *supervisor) serve(conn net.Conn) {
	defer conn.Close()
	c := &control{conn}
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r request
		if err := strictjson.Decode(line, &r); err != nil {
			s.log.Warn("an agent said what is not understood", "error", err)
			break
		}
		switch {
		case r.Exec != nil:
			s.exec(conn, in, r.Exec)
			return
		case r.Order != nil:
			s.inbox <- func() { s.obey(*r.Order) }
		case r.Watch:
			s.inbox <- func() { s.watch(c) }
		}
	}
	s.inbox <- func() { delete(s.conns, c) }
}

func (s *supervisor) watch(c *control) {
	s.conns[c] = true
	if s.begun && !c.say(s.standing()) {
		delete(s.conns, c)
	}
}

func (s *supervisor) standing() saying { return saying{Suspended: s.suspended, Cores: s.cores} }

// tellAll tells all agents that watch how the task is.
func (s *supervisor) tellAll() {
	if s.begun {
		s.say(s.standing())
	}
}

// say says something to all agents that watch.
func (s *supervisor) say(what saying) {
	for c := range s.conns {
		if !c.say(what) {
			delete(s.conns, c)
			c.conn.Close()
		}
	}
}
