// Package daemon is IVM's part of the node daemon: elements of this machine connect to it through the
// node's socket, and the daemons of other nodes through the gateway.
//
// A program has a member on each of its nodes. The member of the node on which the program began
// is also its root: it has the core.Root, which all requests that concern more than one node go to.
// It sends its decisions to the members, over one connection to each, and they perform them in
// order. Copies of objects are memory files that the elements map, too. Members compare them and
// send the differences directly to each other, with one connection for each exchange under way.
//
// Locks are taken in this order: root.mu, member.mu, object.life, object.mu or object.pages. None is
// held while a connection is read or written, but for object.life, which keeps an object's memory in
// place.
//
// The package knows neither devices nor the rest of the node.
package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/strictjson"
	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"
)

// Config is what a service is told of its node.
type Config struct {
	Name    string
	Socket  string        // where elements find the node
	Address func() string // where other nodes reach this one, HOST:PORT; "" if they cannot
	Port    string        // of nodes that are named without one
	// Info is how many cores and GPUs the node has for a program of a user's under a grant; "": none.
	Info   func(user, grant string) (int, int)
	Memory uint64 // the most that all objects on this node may take, with what is kept to compare them with
	// Dial reaches the gateway of another node for proto.ALPN; nil if this node has no
	// certificate.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Account says as whom elements of a user of another node are started: nil as the daemon
	// itself.
	Account func(user string) (*syscall.Credential, error)
	// Silence is how long the daemons of a program may hear nothing of each other; 0 stands for 20 s.
	Silence time.Duration
	Log     *slog.Logger
}

// Who has connected to the node's socket.
type Who struct {
	Name string
	// Credential is the account under which elements are started; nil: the daemon's own.
	Credential *syscall.Credential
	// Grant says under which grant the program is that connects; "" under none.
	Grant string
	// Refused is the reason why elements cannot be started; "" if they can.
	Refused string
}

// Service is a node's part of all programs.
type Service struct {
	cfg         Config
	starts      chan *startRequest
	used        atomic.Int64 // bytes that objects take at most (object.takes)
	objects     atomic.Int64 // how many there are, of mostObjects
	mostObjects int64
	total       traffic // of all programs

	mu       sync.Mutex
	members  map[uint64]*member
	programs int               // that are counted: those of members, and those whose output is stuck
	shares   map[string]*share // by user
	closed   bool
	had      bool // a program

	starting sync.Mutex // held while a process is started
	started  map[int]*startRequest
}

// New makes a service.
func New(cfg Config) *Service {
	cfg.Silence = cmp.Or(cfg.Silence, 20*time.Second)
	var descriptors syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &descriptors)
	s := &Service{cfg: cfg, mostObjects: mostObjects(descriptors.Cur), starts: make(chan *startRequest), members: map[uint64]*member{}, shares: map[string]*share{}, started: map[int]*startRequest{}}
	go s.startAll()
	return s
}

// Close ends all programs.
func (s *Service) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	all := slices.Collect(maps.Values(s.members))
	s.mu.Unlock()
	for _, m := range all {
		m.finish("the node is shutting down")
	}
	close(s.starts)
}

func (s *Service) add(m *member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return &core.Failure{Code: core.Refused, Text: "the node is shutting down"}
	case s.programs >= maxPrograms:
		return &core.Failure{Code: core.Refused, Text: fmt.Sprintf("the node has %d programs with elements, as many as it may: wait until one has ended", maxPrograms)}
	case m.share.programs >= maxProgramsOfUser:
		return &core.Failure{Code: core.Refused, Text: fmt.Sprintf("user %s has %d programs with elements on node %s, as many as a user may: wait until one has ended", m.program.User, maxProgramsOfUser, s.cfg.Name)}
	case m.isWide() && m.share.wide >= maxWideOfUser:
		return &core.Failure{Code: core.Refused, Text: fmt.Sprintf("user %s has %d programs with elements on node %s and others, as many as a user may: wait until one has ended", m.program.User, maxWideOfUser, s.cfg.Name)}
	case s.members[m.program.ID] != nil:
		return &core.Failure{Code: core.Invalid, Text: "the program has this node already: name each once (--nodes)"}
	}
	s.members[m.program.ID] = m
	s.programs++
	m.share.programs++
	if m.isWide() {
		m.share.wide++
	}
	s.had = true
	return nil
}

// isWide says whether a program is on several nodes.
func (m *member) isWide() bool { return len(m.program.Nodes) > 1 }

// settled notes that nothing of a program is left in the daemon.
func (s *Service) settled(m *member) {
	m.mu.Lock()
	pools := m.pools // there will be no others
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs--
	m.share.programs--
	if m.isWide() {
		m.share.wide--
	}
	m.forgetLinks(pools)
}

func (s *Service) remove(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, m.program.ID)
}

func (s *Service) member(id uint64) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[id]
}

// hear reads frames of another daemon. An error is also that it was silent for too long. Meanwhile it
// calls beat, which says that this daemon is there, often enough.
func (s *Service) hear(conn net.Conn, beat func(), take func(*proto.Frame) error) error {
	over := make(chan struct{})
	defer close(over)
	go func() {
		tick := time.NewTicker(s.cfg.Silence / 4)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				beat()
			}
		}
	}()
	for {
		_ = conn.SetReadDeadline(time.Now().Add(s.cfg.Silence))
		f, err := proto.Read(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it was silent for %v", s.cfg.Silence)
		}
		if err == nil && f.Op != proto.Beat {
			err = take(f)
		}
		if err != nil {
			return err
		}
	}
}

// joinTime is how long other nodes may take to join a program, and greetTime how long a new
// connection may take to send its first frame.
const joinTime, greetTime = 30 * time.Second, 30 * time.Second

// Element serves a connection of the node's socket to its end.
func (s *Service) Element(conn *net.UnixConn, who Who) {
	defer conn.Close()
	if _, err := io.WriteString(conn, proto.Welcome); err != nil {
		return
	}
	in := &fileReader{conn: conn}
	_ = conn.SetReadDeadline(time.Now().Add(greetTime))
	f, err := proto.Read(in)
	files := in.take()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	e, err := s.enter(f, files, who)
	if err != nil {
		_ = proto.Failed(f.Tag, failure(err)).Write(conn)
		return
	}
	e.serve(conn, in, f.Tag)
}

// enter finds the element of a connection: the first of a new program, or one that was started here.
func (s *Service) enter(f *proto.Frame, files []*os.File, who Who) (*element, error) {
	switch {
	case f.Op != proto.Enter:
		return nil, &core.Failure{Code: core.Invalid, Text: "the first call must be ivmEnter"}
	case f.Args[1] != proto.Version:
		return nil, &core.Failure{Code: core.Refused, Text: fmt.Sprintf("the program's library speaks version %d of IVM's protocol and the node version %d: use the library that came with the node", f.Args[1], proto.Version)}
	case f.Args[0] != 0:
		return s.enterStarted(f)
	case who.Refused != "":
		return nil, &core.Failure{Code: core.Refused, Text: who.Refused}
	}
	launch, err := proto.ParseLaunch(f.Tail)
	if err != nil {
		return nil, &core.Failure{Code: core.Invalid, Text: err.Error()}
	}
	if len(files) != 2 {
		return nil, &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("the element sent %d descriptors, not those of its output", len(files))}
	}
	for _, f := range files {
		if !writable(f) {
			return nil, &core.Failure{Code: core.Invalid, Text: "the element's output was not opened for writing"}
		}
	}
	return s.begin(launch, files, who)
}

// enterStarted finds the element that a process was started as.
func (s *Service) enterStarted(f *proto.Frame) (*element, error) {
	m := s.member(f.Args[0])
	if m == nil {
		return nil, &core.Failure{Code: core.Over, Text: "the program is over"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.elements[core.ElementID(f.Args[2])]
	if e == nil || e.entered || e.key == "" || subtle.ConstantTimeCompare([]byte(e.key), f.Tail) != 1 {
		return nil, &core.Failure{Code: core.Refused, Text: "the process was not started as an element of this program, or has entered already"}
	}
	e.entered = true
	return e, nil
}

// begin begins a program with its first element.
func (s *Service) begin(launch *proto.Launch, output []*os.File, who Who) (*element, error) {
	p := &proto.Program{ID: randomID(), Key: rand.Text(), User: who.Name, Nodes: []string{s.cfg.Address()}, Launch: *launch, Grant: who.Grant}
	for _, name := range launch.Nodes {
		if address := s.addressOf(name); address != p.Nodes[0] {
			p.Nodes = append(p.Nodes, address)
		}
	}
	switch {
	case len(p.Nodes) > core.MaxNodes:
		return nil, &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("a program has at most %d nodes", core.MaxNodes)}
	case len(p.Nodes) > 1 && (s.cfg.Dial == nil || s.cfg.Address() == ""):
		return nil, &core.Failure{Code: core.Refused, Text: "this node cannot reach others, nor they it: start it with --listen and --tls-dir"}
	}
	m := newMember(s, p, who.Credential)
	if err := m.becomeRoot(output); err != nil {
		return nil, err
	}
	if err := s.add(m); err != nil {
		m.root.close()
		return nil, err
	}
	if err := m.root.joinAll(); err != nil {
		m.finish("its nodes could not be reached")
		return nil, err
	}
	e := &element{member: m, gone: make(chan struct{}), requests: map[uint64]*request{}, entered: true, device: core.Device{Kind: core.CPU}}
	m.mu.Lock()
	m.elements[0] = e
	m.mu.Unlock()
	return e, nil
}

// addressOf is where a node is reached that is named as HOST or HOST:PORT: this one's own address if
// it is this one's name, or that with its port.
func (s *Service) addressOf(name string) string {
	own := s.cfg.Address()
	host, port, err := net.SplitHostPort(name)
	_, ownPort, _ := net.SplitHostPort(own)
	switch {
	case name == s.cfg.Name || err == nil && host == s.cfg.Name && port == ownPort:
		return own
	case err != nil:
		return net.JoinHostPort(name, s.cfg.Port)
	}
	return name
}

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) | 1 // 0 is none
}

// Peer serves a connection of another node's daemon, which has shown its certificate, to its end.
func (s *Service) Peer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(greetTime))
	f, err := proto.Read(conn)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	switch f.Op {
	case proto.Join:
		s.join(conn, f)
	case proto.Data:
		m := s.member(f.Args[0])
		if m == nil || subtle.ConstantTimeCompare([]byte(m.program.Key), f.Tail) != 1 || f.Args[1] != proto.Version {
			_ = proto.Failed(f.Tag, &core.Failure{Code: core.Over, Text: "the program is over on that node"}).Write(conn)
			return
		}
		if from := core.NodeID(f.Args[2]); f.Args[2] < uint64(len(m.program.Nodes)) && proto.Done(f.Tag).Write(conn) == nil {
			m.serveData(conn, from)
		}
	}
}

// join makes this node one of a program's.
func (s *Service) join(conn net.Conn, f *proto.Frame) {
	m, err := s.joined(conn, f)
	if err != nil {
		s.cfg.Log.Info("a program of another node was refused", "error", err)
		_ = proto.Failed(f.Tag, failure(err)).Write(conn)
		return
	}
	r := proto.Done(f.Tag)
	r.Tail = s.info(m.program)
	if r.Write(conn) != nil {
		m.finish("the root daemon is lost")
		return
	}
	s.cfg.Log.Info("a program of another node may start elements here", "user", m.program.User, "program", m.program.Launch.Executable)
	m.follow(conn, m.toRoot.(*remoteRoot))
}

func (s *Service) joined(conn net.Conn, f *proto.Frame) (*member, error) {
	var p proto.Program
	if err := strictjson.Decode(f.Tail, &p); err != nil {
		return nil, &core.Failure{Code: core.Invalid, Text: err.Error()}
	}
	if f.Args[0] != proto.Version || p.ID == 0 || p.Key == "" || int(p.Self) < 1 || int(p.Self) >= len(p.Nodes) || len(p.Nodes) > core.MaxNodes {
		return nil, &core.Failure{Code: core.Invalid, Text: "the daemons of the nodes do not understand each other: use the same version of Muster on all"}
	}
	credential, err := s.cfg.Account(p.User)
	if err != nil {
		return nil, &core.Failure{Code: core.Refused, Text: err.Error()}
	}
	m := newMember(s, &p, credential)
	m.toRoot = &remoteRoot{conn: conn}
	return m, s.add(m)
}

// info is what the node has for a program, for the root daemon.
func (s *Service) info(p *proto.Program) []byte {
	i := core.NodeInfo{Name: s.cfg.Name}
	i.Cores, i.GPUs = s.cfg.Info(p.User, p.Grant)
	b, _ := json.Marshal(i)
	return b
}

// failure is an error as others are told it.
func failure(err error) *core.Failure {
	var f *core.Failure
	if errors.As(err, &f) {
		return f
	}
	return &core.Failure{Code: core.Refused, Text: err.Error()}
}

// maxFiles is how many descriptors a frame may bring: those of an element's output.
const maxFiles = 2

// fileReader reads from a socket and keeps the descriptors that come along.
type fileReader struct {
	conn  *net.UnixConn
	files []*os.File
}

func (r *fileReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, files, err := wire.ReceiveFiles(r.conn, b)
	r.files = append(r.files, files...)
	if len(r.files) > maxFiles { // whoever sends a frame byte by byte could fill the daemon with them
		return 0, fmt.Errorf("%d descriptors with one frame", len(r.files))
	}
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// take is the descriptors that have come since.
func (r *fileReader) take() []*os.File {
	files := r.files
	r.files = nil
	return files
}

// environment is what an element is started with.
func environment(of []string, set ...string) []string {
	names := map[string]bool{}
	for _, s := range set {
		name, _, _ := strings.Cut(s, "=")
		names[name] = true
	}
	kept := slices.DeleteFunc(slices.Clone(of), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return names[name]
	})
	return append(kept, set...)
}
