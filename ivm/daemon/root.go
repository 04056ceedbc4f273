package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"

	"golang.org/x/sys/unix"
)

// root is the part of a program's first member that decides for all members. step calls the core
// under mu and queues the effects; a goroutine for each node performs or sends them, so no
// connection is written under mu.
type root struct {
	member *member
	output [2]*os.File // of the first element: what elements on this node write to
	writes [2]*os.File // the same, for what elements on other nodes write

	listening sync.WaitGroup // to the other members

	mu    sync.Mutex
	core  *core.Root
	infos []core.NodeInfo
	nodes []*queue // effects for each node
	links []net.Conn
}

// becomeRoot makes a member the root of its program.
func (m *member) becomeRoot(output []*os.File) error {
	n := len(m.program.Nodes)
	r := &root{member: m, core: core.NewRoot(n), infos: make([]core.NodeInfo, n), nodes: make([]*queue, n), links: make([]net.Conn, n)}
	for i, f := range output {
		var err error
		if r.output[i], err = wire.CopyOf(f); err != nil {
			return err
		}
		r.writes[i] = interruptible(r.output[i])
	}
	m.root, m.toRoot = r, localRoot{r}
	r.nodes[0] = newQueue(func(v any) error { m.perform(v.(core.Effect)); return nil }, func() { m.finish("the node is overloaded") })
	_ = json.Unmarshal(m.service.info(m.program), &r.infos[0])
	r.step(core.Joined{Node: 0, Info: r.infos[0]})
	return nil
}

// interruptible opens a pipe or a terminal again, so that a write to it ends when it is closed: a
// program whose output no process reads would keep a thread of the daemon for ever otherwise. The
// program's own file stays as it is, which a change to non-blocking would not do. Files never block,
// and would lose their place; sockets cannot be opened again, and other devices may be something else
// each time. The daemon opens it with its own rights, so this is only done for what the program
// itself may write to.
func interruptible(f *os.File) *os.File {
	is, err := f.Stat()
	if err != nil || !writable(f) || is.Mode()&os.ModeNamedPipe == 0 && !isTerminal(is) {
		return f
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return f
	}
	return again
}

// writable reports whether a descriptor was opened for writing. One that only names a file (O_PATH)
// was not, whatever the file is.
func writable(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_RDONLY
}

// isTerminal reports whether a file is a program's side of a pseudo-terminal, whose device numbers
// Linux fixes.
func isTerminal(is os.FileInfo) bool {
	stat, ok := is.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	major := stat.Rdev >> 8 & 0xfff
	return is.Mode()&os.ModeCharDevice != 0 && major >= 136 && major <= 143
}

// step tells the core of an event, and has the effects performed.
func (r *root) step(e core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, effect := range r.core.Step(e) {
		switch effect := effect.(type) {
		case core.Answer:
			r.send(effect.Node, effect)
		case core.Start:
			r.send(effect.Node, effect)
		case core.Stop:
			r.send(effect.Node, effect)
		default: // is everybody's
			for n := range r.nodes {
				r.send(core.NodeID(n), effect)
			}
		}
	}
}

func (r *root) send(n core.NodeID, e core.Effect) {
	if q := r.nodes[n]; q != nil {
		q.put(e)
	}
}

// joinAll has the program's other nodes join it, all at the same time.
func (r *root) joinAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	errs := make(chan error)
	n := len(r.member.program.Nodes)
	for i := 1; i < n; i++ {
		go func() { errs <- r.join(ctx, core.NodeID(i)) }()
	}
	var failed error
	for range n - 1 {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

func (r *root) join(ctx context.Context, n core.NodeID) error {
	p := *r.member.program
	p.Self = n
	conn, err := r.member.service.cfg.Dial(ctx, p.Nodes[n])
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	tail, _ := json.Marshal(p)
	f := proto.Frame{Op: proto.Join, Args: [6]uint64{proto.Version}, Tail: tail}
	var answer *proto.Frame
	if err = f.Write(conn); err == nil {
		if answer, err = proto.Read(conn); err == nil {
			err = answer.Err()
		}
	}
	var info core.NodeInfo
	if err == nil {
		err = json.Unmarshal(answer.Tail, &info)
	}
	if err != nil {
		conn.Close()
		return &core.Failure{Code: core.Refused, Text: fmt.Sprintf("the node at %s does not join the program: %v", p.Nodes[n], err)}
	}
	r.mu.Lock()
	r.infos[n], r.links[n] = info, conn
	r.nodes[n] = newQueue(func(v any) error {
		if f, ok := v.(*proto.Frame); ok {
			return f.Write(conn)
		}
		return (&proto.Frame{Op: proto.FromRoot, Tail: proto.Encode(v)}).Write(conn)
	}, func() { conn.Close() })
	q := r.nodes[n]
	r.mu.Unlock()
	r.step(core.Joined{Node: n, Info: info})
	r.listening.Go(func() { r.listen(n, conn, q) })
	return nil
}

// listen reads the events of a node until the connection is lost.
func (r *root) listen(n core.NodeID, conn net.Conn, q *queue) {
	err := r.member.service.hear(conn, func() { q.put(&proto.Frame{Op: proto.Beat}) }, func(f *proto.Frame) error { return r.hear(n, f) })
	conn.Close()
	r.step(core.NodeLost{Node: n, Reason: fmt.Sprintf("the connection to its daemon (%s) ended: %v", r.member.program.Nodes[n], err)})
}

func (r *root) hear(n core.NodeID, f *proto.Frame) error {
	switch f.Op {
	case proto.Output:
		if f.Args[1] > 1 {
			return fmt.Errorf("there is no output %d", f.Args[1])
		}
		_, _ = r.writes[f.Args[1]].Write(f.Tail)
		return nil
	case proto.ToRoot:
		e, err := proto.DecodeEvent(f.Tail)
		if err != nil {
			return err
		}
		r.mu.Lock()
		own := r.core.Speaks(n, e)
		r.mu.Unlock()
		if !own {
			return fmt.Errorf("it speaks for an element that is not its own")
		}
		r.step(e)
		return nil
	}
	return fmt.Errorf("message %d is none for the root daemon", f.Op)
}

// close ends the connections to the other members. It first sends all that is queued, and then
// waits until the members have sent their last and closed.
func (r *root) close() {
	r.mu.Lock()
	for n, q := range r.nodes {
		if q == nil {
			continue
		}
		if n > 0 && r.member.why != nil { // a member that is finished already ignores it
			q.put(core.Finish{Reason: r.member.why.Text})
		}
		q.close()
	}
	links := r.links
	r.mu.Unlock()
	within(2*lastWords, r.listening.Wait)
	for _, conn := range links {
		if conn != nil {
			conn.Close()
		}
	}
	for _, f := range append(r.output[:], r.writes[:]...) {
		if f != nil {
			f.Close()
		}
	}
}

// rootLink is how a member reaches its root.
type rootLink interface {
	tell(core.Event) error
	output(id core.ElementID, stream int, b []byte)
	close()
}

type localRoot struct{ *root }

func (l localRoot) tell(e core.Event) error            { l.step(e); return nil }
func (l localRoot) output(core.ElementID, int, []byte) {}

// remoteRoot is the connection that the root daemon has made.
type remoteRoot struct {
	mu   sync.Mutex
	conn net.Conn
}

func (l *remoteRoot) write(f *proto.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.Write(l.conn)
}

func (l *remoteRoot) tell(e core.Event) error {
	return l.write(&proto.Frame{Op: proto.ToRoot, Tail: proto.Encode(e)})
}

func (l *remoteRoot) output(id core.ElementID, stream int, b []byte) {
	_ = l.write(&proto.Frame{Op: proto.Output, Args: [6]uint64{uint64(id), uint64(stream)}, Tail: b})
}

func (l *remoteRoot) close() { l.conn.Close() }

// queue performs things in the order in which they were put, in a goroutine of its own.
type queue struct {
	mu     sync.Mutex
	change *sync.Cond
	list   []any
	closed bool
	full   func() // called when too much waits
}

// maxQueued is how many effects may wait for a node. A node that takes none any longer counts as
// lost.
const maxQueued = 1 << 18

func newQueue(do func(any) error, full func()) *queue {
	q := &queue{full: full}
	q.change = sync.NewCond(&q.mu)
	go q.run(do)
	return q
}

func (q *queue) put(v any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if len(q.list) >= maxQueued {
		q.list, q.closed = nil, true
		go q.full()
	} else {
		q.list = append(q.list, v)
	}
	q.change.Signal()
}

// close ends the queue when all was done.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Signal()
}

func (q *queue) run(do func(any) error) {
	for failed := false; ; {
		q.mu.Lock()
		for len(q.list) == 0 && !q.closed {
			q.change.Wait()
		}
		if len(q.list) == 0 {
			q.mu.Unlock()
			return
		}
		v := q.list[0]
		q.list = q.list[1:]
		q.mu.Unlock()
		if !failed { // the goroutine that reads the connection reports the failure
			failed = do(v) != nil
		}
	}
}
