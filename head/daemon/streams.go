package daemon

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/head"
	"muster/internal/units"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
	wire "muster/wire/sessions"
	"muster/wire/status"
)

// How many streams there may be, in all and of one user; how long an agent may take to open one;
// and how long one side may take to end after the other has.
const (
	maxStreams     = 4096
	maxStreamsEach = 128
	openTime       = 30 * time.Second
	endTime        = 30 * time.Second
)

// streams are the connections that the head asks agents for, from the request on.
type streams struct {
	mu     sync.Mutex
	wanted map[string]*stream
	users  map[string]int
	count  int
	open   map[net.Conn]struct{}
	closed bool
}

// stream is a connection that the agent has not opened yet. Its name is random, and valid once.
type stream struct {
	name    string
	session head.Session
	node    string
	came    chan net.Conn // receives the connection; closed if the agent cannot connect any more
	left    bool          // the caller no longer waits for it
}

func newStreams() *streams {
	return &streams{wanted: map[string]*stream{}, users: map[string]int{}, open: map[net.Conn]struct{}{}}
}

// want registers a stream that a session's agent is to open. The caller must call leave when it has
// ended.
func (s *streams) want(user string, session head.Session, node string) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.count >= maxStreams || s.users[user] >= maxStreamsEach {
		return nil, refuse(http.StatusTooManyRequests, "as many streams of output and commands are open as may be, %d of one user and %d in all: end some", maxStreamsEach, maxStreams)
	}
	s.count++
	s.users[user]++
	one := &stream{name: rand.Text(), session: session, node: node, came: make(chan net.Conn, 1)}
	s.wanted[one.name] = one
	return one, nil
}

// leave unregisters a stream. A connection that arrived too late is closed.
func (s *streams) leave(user string, one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wanted, one.name)
	one.left = true
	s.count--
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
	select {
	case conn, ok := <-one.came: // it arrived after the caller had given up
		if ok {
			_ = conn.Close()
		}
	default:
	}
}

// redeem finds the stream of a name, which becomes invalid. mayBe refuses agents of other nodes.
func (s *streams) redeem(name string, mayBe func(node string) error) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.wanted[name]
	if one == nil {
		return nil, refuse(http.StatusNotFound, "no stream of this name is wanted: it was opened, or given up")
	}
	if err := mayBe(one.node); err != nil {
		return nil, refuse(http.StatusForbidden, "%v", err)
	}
	delete(s.wanted, name)
	return one, nil
}

// deliver passes the connection of a redeemed stream to the caller that waits; nil if there is
// none.
func (s *streams) deliver(one *stream, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case conn == nil:
		close(one.came)
	case one.left:
		_ = conn.Close()
	default:
		one.came <- conn // never blocks: the channel has room for one, and a name is redeemed once
	}
}

// lost gives up the streams that a session's agent has not opened, because the session has ended.
func (s *streams) lost(session head.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.wanted {
		if one.session == session {
			delete(s.wanted, name)
			close(one.came)
		}
	}
}

// hold registers an open connection, so that closeAll closes it.
func (s *streams) hold(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[conn] = struct{}{}
	return true
}

func (s *streams) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

func (s *streams) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.open {
		_ = conn.Close()
	}
}

// serveStream serves the connection that an agent opens when asked to.
func serveStream(q *request) (any, error) {
	one, err := q.streams.redeem(q.r.PathValue("stream"), q.who.isNode)
	if err != nil {
		return nil, err
	}
	conn, err := upgrade(q, dial.ProtocolStream)
	if err != nil {
		q.streams.deliver(one, nil)
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	q.streams.deliver(one, conn)
	return nil, errAnswered
}

// dial asks the agent of a job's task for a connection. find chooses the node, if the core knows
// the job. The caller must call free when it is done with the connection.
func (q *request) dial(name head.Ref, find func(job *api.Job) (node string, err error), open *agent.Open) (conn net.Conn, free func(), err error) {
	var session head.Session
	var refused *head.Refusal
	var node string
	var wrong error
	if err := q.see(func(core *head.Core, now time.Duration) {
		if jobs, next, _ := core.JobFrom(now, name, 0, 1); len(jobs) == 1 && next == 0 {
			if node, wrong = find(&jobs[0]); wrong != nil {
				return
			}
		}
		session, open.Task, refused = core.TaskOf(name, node, q.who.user, open.Exec == nil && !open.Follow)
	}); err != nil {
		return nil, nil, err
	}
	if wrong != nil {
		return nil, nil, wrong
	}
	if refused != nil && refused.Status == http.StatusNotFound && open.File != "" { // the core may have forgotten it
		session, err = q.findPast(name, find, open)
		if refused = nil; err != nil {
			return nil, nil, err
		}
	}
	if refused != nil {
		return nil, nil, refused
	}
	return q.connect(session, *open)
}

// findPast finds the task of a job that the core has forgotten, and the session of the agent that had it.
func (q *request) findPast(name head.Ref, find func(job *api.Job) (node string, err error), open *agent.Open) (session head.Session, err error) {
	jobs, err := q.past(name)
	if err != nil {
		return 0, err
	}
	j := &jobs[0]
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return 0, err
	}
	switch {
	case j.User != q.who.user && !admin:
		return 0, refuse(http.StatusForbidden, "job %s is %s's: only its user and administrators may do that", q.r.PathValue("id"), j.User)
	case len(jobs) > 1 || j.ArrayTasks != "":
		return 0, refuse(http.StatusBadRequest, "job %s is an array: name one of its tasks, as %d_0", q.r.PathValue("id"), name.Job)
	case len(j.Nodes) == 0:
		return 0, refuse(http.StatusConflict, "job %s is %s: it never started, and has written nothing", q.r.PathValue("id"), j.State)
	}
	node, err := find(j)
	if err != nil {
		return 0, err
	}
	open.Task = agent.Task{Job: j.ID, Attempt: j.Attempt, Part: int32(slices.Index(j.Nodes, node))}
	var refused *head.Refusal
	if err := q.see(func(core *head.Core, _ time.Duration) { session, refused = core.SessionOf(node) }); err != nil {
		return 0, err
	}
	if refused != nil {
		return 0, refused
	}
	return session, nil
}

// connect asks an agent for a connection, and waits for it.
func (q *request) connect(session head.Session, open agent.Open) (conn net.Conn, free func(), err error) {
	agentSession := q.sessions.find(session)
	gone := refuse(http.StatusBadGateway, "the agent of the node is not connected now: try again later")
	if agentSession == nil {
		return nil, nil, gone
	}
	one, err := q.streams.want(q.who.user, session, agentSession.node)
	if err != nil {
		return nil, nil, err
	}
	leave := func() { q.streams.leave(q.who.user, one) }
	open.Stream = one.name
	if err := agent.Check(open); err != nil {
		leave()
		return nil, nil, refuse(http.StatusBadRequest, "the node would refuse this: %s", wire.WhyRefused(err))
	}
	if !q.sessions.send(&head.Send{Session: session, Message: open}) {
		leave()
		return nil, nil, gone
	}
	timer := time.NewTimer(openTime)
	defer timer.Stop()
	select {
	case conn, ok := <-one.came:
		if !ok || !q.streams.hold(conn) {
			leave()
			return nil, nil, gone
		}
		return conn, func() { _ = conn.Close(); q.streams.drop(conn); leave() }, nil
	case <-timer.C:
		err = refuse(http.StatusGatewayTimeout, "the agent of node %s did not answer within %v: try again later", agentSession.node, openTime)
	case <-q.r.Context().Done():
		err = q.r.Context().Err()
	case <-q.ending:
		err = errEnding
	}
	leave()
	return nil, nil, err
}

// serveOutput sends what a job has written.
func serveOutput(q *request) (any, error) {
	name, err := q.job()
	part := q.query.number("part", 0, 1<<20)
	open := agent.Open{File: q.query.oneOf("stream", "output", "output", "error"), Offset: int64(q.query.number("offset", 0, 1<<62)), Follow: q.query.bool("follow")}
	if err = cmp.Or(err, q.query.err); err != nil {
		return nil, err
	}
	keep := time.Duration(0)
	if err := q.see(func(core *head.Core, _ time.Duration) { keep = core.KeepOutput() }); err != nil {
		return nil, err
	}
	conn, free, err := q.dial(name, func(job *api.Job) (string, error) {
		if len(job.Nodes) == 0 {
			return "", nil // TaskOf says why there is no output
		}
		if part >= uint64(len(job.Nodes)) {
			return "", refuse(http.StatusBadRequest, "?part=%d: the job has parts 0 to %d", part, len(job.Nodes)-1)
		}
		if job.State.Over() {
			open.Ended = writtenBy(job, open.File)
			if age := q.now() - time.Duration(job.End*float64(time.Second)); age > keep {
				where := ""
				if job.User == q.who.user { // whose rights nobody has checked yet
					where = fmt.Sprintf(": it was written to %s (directory %s)", open.Ended.File, job.Directory)
				}
				return "", refuse(http.StatusNotFound, "job %s ended more than %s ago, and the head passes output on for no longer (keep_output)%s on %s", q.r.PathValue("id"), units.FormatDuration(keep), where, job.Nodes[part])
			}
		}
		return job.Nodes[part], nil
	}, &open)
	if err != nil {
		return nil, err
	}
	defer free()
	return nil, q.copyFile(conn)
}

// writtenBy is the file of a job that has ended; see agent.Open.
func writtenBy(job *api.Job, stream string) *agent.Written {
	w := &agent.Written{User: job.User, Directory: job.Directory, File: job.Output}
	if stream == "error" && job.Error != "" {
		w.File = job.Error
	}
	return w
}

// copyFile sends the contents of a stream's frames. If the stream fails before any contents came,
// the reason becomes the answer's error. After that the answer is cut off, so that the client does
// not take it for complete.
func (q *request) copyFile(conn net.Conn) error {
	stop := make(chan struct{})
	defer close(stop)
	go func() { // if the client disconnects, the agent must not follow the file for ever
		select {
		case <-q.r.Context().Done():
			_ = conn.Close()
		case <-stop:
		}
	}()
	w := &patientWriter{q.w, q.cfg.Connections.Request}
	control := http.NewResponseController(q.w)
	buffer, begun := make([]byte, agent.MaxFrame), false
	begin := func() {
		if !begun {
			begun = true
			q.w.Header().Set("Content-Type", "application/octet-stream")
			q.w.Header().Set("X-Content-Type-Options", "nosniff")
			q.w.WriteHeader(http.StatusOK)
		}
	}
	for {
		kind, text, err := agent.ReadFrame(conn, buffer)
		if err == nil && kind == agent.FrameEnd {
			var end agent.Outcome
			if end, err = agent.ParseOutcome(text); err == nil && end.Reason == "" {
				begin()
				q.allow(q.w) // a new deadline: the end of the answer is still to be written
				return errAnswered
			}
			if err == nil {
				err = refuse(http.StatusNotFound, "%s", end.Reason)
			}
		}
		if err == nil && kind == agent.FrameOutput {
			begin()
			if _, err := w.Write(text); err != nil {
				return errAnswered
			}
			_ = control.Flush()
			continue
		}
		if err == nil {
			err = fmt.Errorf("a frame of kind %d", kind)
		}
		if begun {
			q.log.Debug("a stream broke off", "node", conn.RemoteAddr(), "error", err)
			panic(http.ErrAbortHandler)
		}
		if _, isRefusal := err.(*head.Refusal); !isRefusal {
			err = refuse(http.StatusBadGateway, "the job's node broke off: %v", err)
		}
		return err
	}
}

// How large the status of a node may be, and how long the node may take to send it.
const (
	maxStatus  = 16 << 20
	statusTime = 10 * time.Second
)

// serveNodeStatus passes on the status that a node's agent reports.
func serveNodeStatus(q *request) (any, error) {
	var session head.Session
	var refused *head.Refusal
	name := q.r.PathValue("name")
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) {
		session, refused = core.SessionOf(name)
		admin = core.IsAdmin(q.who.user)
	}); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	conn, free, err := q.connect(session, agent.Open{File: agent.FileStatus})
	if err != nil {
		return nil, err
	}
	defer free()
	_ = conn.SetDeadline(time.Now().Add(statusTime))
	text, err := readStatus(conn)
	var document status.Node
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		return nil, refuse(http.StatusBadGateway, "node %s does not say how it is: %v", name, err)
	}
	for i := range document.Clients {
		if c := &document.Clients[i]; !admin && c.User != q.who.user {
			c.Program = path.Base(c.Program) // as of jobs, the name is public and the folder is not
		}
	}
	return document, nil
}

// readStatus reads the frames of a node's status.
func readStatus(conn net.Conn) ([]byte, error) {
	var text []byte
	buffer := make([]byte, agent.MaxFrame)
	for {
		kind, part, err := agent.ReadFrame(conn, buffer)
		switch {
		case err != nil:
			return nil, err
		case kind == agent.FrameEnd:
			end, err := agent.ParseOutcome(part)
			if err == nil && end.Reason != "" {
				err = errors.New(end.Reason)
			}
			return text, err
		case kind != agent.FrameOutput || len(text)+len(part) > maxStatus:
			return nil, fmt.Errorf("it sends a frame of kind %d behind %d bytes", kind, len(text))
		}
		text = append(text, part...)
	}
}

// serveExec connects a user to a command among a job's processes.
func serveExec(q *request) (any, error) {
	name, err := q.job()
	if err != nil {
		return nil, err
	}
	exec := &agent.Exec{Arguments: q.query.list("arg"), Directory: q.query.text("dir"), Environment: q.query.list("env")}
	if len(exec.Arguments) == 0 {
		return nil, refuse(http.StatusBadRequest, "nothing to run: give ?arg= for the command and each of its arguments")
	}
	if exec.Terminal, err = terminal(q.query.text("terminal")); err != nil {
		return nil, err
	}
	node := q.query.text("node")
	far, free, err := q.dial(name, func(*api.Job) (string, error) { return node, nil }, &agent.Open{Exec: exec})
	if err != nil {
		return nil, err
	}
	near, err := upgrade(q, dial.ProtocolStream)
	if err != nil {
		free()
		return nil, err
	}
	_ = near.SetDeadline(time.Time{})
	if !q.streams.hold(near) {
		free()
		_ = near.Close()
		return nil, errAnswered
	}
	q.log.Info("a command runs in a job", "user", q.who.user, "job", name.Job)
	streams := q.streams
	go func() {
		defer free()
		defer func() { _ = near.Close(); streams.drop(near) }()
		splice(near, far, endTime)
	}()
	return nil, errAnswered
}

// terminal reads the size of a terminal, as 24x80.
func terminal(text string) (*agent.Terminal, error) {
	if text == "" {
		return nil, nil
	}
	rows, columns, _ := strings.Cut(text, "x")
	r, wrong := strconv.ParseUint(rows, 10, 16)
	c, also := strconv.ParseUint(columns, 10, 16)
	if wrong != nil || also != nil {
		return nil, refuse(http.StatusBadRequest, "?terminal=%.20s: give rows and columns as 24x80", text)
	}
	return &agent.Terminal{Rows: uint16(r), Columns: uint16(c)}, nil
}

// splice copies bytes both ways until far ends. When near ends, far is told so, and both have
// endTime: far to report how the command ended, near to read that. If near disconnects while far
// accepts no bytes, the copy to far is stuck, and splice notices only when far next sends
// something; agents do send then.
func splice(near, far net.Conn, endTime time.Duration) {
	go func() {
		_, err := io.Copy(far, near)
		_ = closeWrite(far)
		_ = far.SetReadDeadline(time.Now().Add(endTime))
		if err == nil { // near has ended properly, and may never read again
			_ = near.SetWriteDeadline(time.Now().Add(endTime))
		}
	}()
	_, _ = io.Copy(near, far)
	_ = closeWrite(near)
}
