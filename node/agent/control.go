package agent

import (
	"bufio"
	"encoding/json"
	"net"
	"time"

	"muster/node/agentcore"
	wire "muster/wire/agent"
)

// What agent and supervisor say to each other are JSON objects, one a line. To an
// agent that watches, the supervisor says how the task is, if it has begun, and says it
// again whenever that changes.

// request is what an agent says: that it watches, an order, or that the rest of the
// connection is for a command.
type request struct {
	Watch bool             `json:"watch,omitempty"`
	Order *agentcore.Order `json:"order,omitempty"`
	Exec  *wire.Exec       `json:"exec,omitempty"`
}

// saying is what a supervisor says.
type saying struct {
	Suspended bool  `json:"suspended,omitempty"`
	Cores     []int `json:"cores,omitempty"`
	// Ended says that the task's end is in its folder.
	Ended bool `json:"ended,omitempty"`
}

// control is an agent's connection to a supervisor.
type control struct{ conn net.Conn }

// sayTime is how long the other side may take to read.
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

// serve serves a connection.
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
		if err := strictly(line, &r); err != nil {
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

// tellAll tells all agents how the task is.
func (s *supervisor) tellAll() {
	if !s.begun {
		return
	}
	for c := range s.conns {
		if !c.say(s.standing()) {
			delete(s.conns, c)
			c.conn.Close()
		}
	}
}
