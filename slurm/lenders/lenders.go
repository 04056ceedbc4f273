// Package lenders is where nodes that lend GPUs to the jobs of a Slurm connect. Each runs muster
// node --head with the driver's address, and its agent greets the driver as it would greet a head
// of Muster (wire/agent). The driver tells it what to lend to which job, and nothing else: Slurm
// starts the jobs.
//
// The package keeps what each node is to lend, whether the node is connected or not. A node that
// comes back says what it lends. Loans that it should not have are ended first, and only then are
// missing ones made again, so that a GPU which was given to two jobs one after the other is never
// lent to both.
//
// The package knows neither jobs nor Slurm.
package lenders

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/door"
	"muster/internal/whois"
	"muster/wire/agent"
	"muster/wire/dial"
	"muster/wire/grant"
	"muster/wire/identity"
	wire "muster/wire/sessions"
	"muster/wire/trust"
)

// Config says where nodes connect.
type Config struct {
	// Address is HOST:PORT, or unix:PATH for nodes of this machine.
	Address string
	// TLS has the certificate of a head, and in ClientCAs the authority that vouches for nodes. At
	// a socket it is not needed: root and this process's user are trusted to be nodes there.
	TLS *tls.Config
	// Cluster is the cluster's name that the nodes are told.
	Cluster string
	Log     *slog.Logger
}

// Node is a connected node.
type Node struct {
	Name string
	// Gateway is the address at which programs of other nodes reach its GPUs; "" if they cannot.
	Gateway string
	Devices []agent.Device
}

// How long either side may be silent, and may take to greet; and how many nodes there may be.
const (
	silence      = 20 * time.Second
	greetTime    = 10 * time.Second
	revokedEvery = 5 * time.Second // how often to look whose certificate was revoked
	maxNodes     = 4096
)

// Lenders are the nodes that lend. mu protects the maps here and, in each session, node, lends and
// answers.
type Lenders struct {
	cfg      Config
	listener net.Listener
	server   *http.Server
	sessions wire.Server
	ended    context.CancelFunc
	noted    wire.Rate // lines of the log about what nodes say

	mu     sync.Mutex
	nodes  map[string]*session
	wanted map[string]map[string]grant.Loan // by node and loan ID
	// judged says that unwanted loans may be ended: Keep has been called.
	judged  bool
	changes uint64
}

// session is the connection of a node.
type session struct {
	*Lenders
	*wire.Session
	raw  net.Conn
	node Node
	// shown are the node's certificate and its authorities' (trust.Vouched); nil at a socket.
	shown []*x509.Certificate
	// lends are the loans that the node has or was told to make; answers are where callers of Lend
	// wait for its confirmation.
	lends   map[string]bool
	answers map[string]chan error
	gone    chan struct{}
}

// Listen starts accepting nodes.
func Listen(cfg Config) (*Lenders, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l, err := listen(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	all := &Lenders{
		cfg: cfg, listener: l, ended: cancel, nodes: map[string]*session{}, wanted: map[string]map[string]grant.Loan{},
		sessions: wire.Server{Leader: "driver", Greet: greetTime, Silence: silence, Now: func() time.Duration { return time.Since(began) }, Log: cfg.Log},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/agent", all.serve)
	all.server = &http.Server{Handler: mux, ReadHeaderTimeout: greetTime, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }}
	go all.server.Serve(l)
	go all.sessions.Ping(ctx)
	go all.watchRevoked(ctx)
	return all, nil
}

type connKey struct{}

func listen(cfg Config) (net.Listener, error) {
	if path, ok := strings.CutPrefix(cfg.Address, "unix:"); ok {
		return listenUnix(path)
	}
	if cfg.TLS == nil || len(cfg.TLS.Certificates) == 0 || cfg.TLS.ClientCAs == nil {
		return nil, errors.New("nodes of other machines are known by certificates: give --tls-dir with the folder that muster cert --head made, or unix:PATH for nodes of this machine")
	}
	tcp, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, door.PortTrouble(cfg.Address, err)
	}
	secure := trust.Listen(cfg.TLS, tls.RequireAndVerifyClientCert, cfg.Log, "http/1.1")
	bounded := door.Bounded(door.Listen(tcp.(*net.TCPListener), false), door.NewPlaces(maxNodes, 2*maxNodes))
	return tls.NewListener(bounded, secure), nil
}

func listenUnix(path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("something answers on %s already: end it first, or give another socket", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 { // left by a driver that was killed
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("the socket for nodes that lend: %w", err)
	}
	return l, nil
}

// Address is the address at which nodes connect, with the actual port.
func (l *Lenders) Address() string {
	if l.listener.Addr().Network() == "unix" {
		return "unix:" + l.listener.Addr().String()
	}
	return l.listener.Addr().String()
}

// Close ends all connections. The nodes continue to lend.
func (l *Lenders) Close() {
	l.ended()
	_ = l.server.Close()
	l.sessions.Close()
	l.sessions.Wait()
}

// Nodes lists the connected nodes, by name, and a count that grows with every change.
func (l *Lenders) Nodes() ([]Node, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Node
	for _, s := range l.nodes {
		list = append(list, s.node)
	}
	slices.SortFunc(list, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return list, l.changes
}

// Gateway is the address at which programs of other nodes reach the GPUs of a node.
func (l *Lenders) Gateway(node string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.nodes[node]
	switch {
	case s == nil:
		return "", fmt.Errorf("node %s is not connected: is its muster node running?", node)
	case s.node.Gateway == "":
		return "", fmt.Errorf("other machines cannot reach the GPUs of node %s: its muster node needs --listen and --tls-dir", node)
	}
	return s.node.Gateway, nil
}

// Connected says whether a node is connected.
func (l *Lenders) Connected(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[node] != nil
}

// Lend makes a node lend from now on, and waits until the node confirms. A home that cannot have devices of other
// nodes lends its own: programs use the others by relays.
func (l *Lenders) Lend(ctx context.Context, node string, loan grant.Loan) error {
	answer := make(chan error, 1)
	l.mu.Lock()
	s := l.nodes[node]
	if s == nil {
		l.mu.Unlock()
		return fmt.Errorf("node %s is not connected: is its muster node running?", node)
	}
	l.want(node, loan)
	s.answers[loan.ID] = answer
	s.lends[loan.ID] = true
	l.mu.Unlock()
	s.Put(agent.Lend{Loan: loan})
	var err error
	select {
	case err = <-answer:
	case <-s.gone:
		err = errors.New("its connection has ended")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("node %s cannot lend its GPU: %w", node, err)
	}
	return nil
}

// Want notes what a node is to lend, and tells the node if it is connected and does not lend that
// yet. It does not wait.
func (l *Lenders) Want(node string, loan grant.Loan) {
	l.mu.Lock()
	l.want(node, loan)
	s := l.nodes[node]
	missing := s != nil && !s.lends[loan.ID]
	if missing {
		s.lends[loan.ID] = true
	}
	l.mu.Unlock()
	if missing {
		s.Put(agent.Lend{Loan: loan})
	}
}

func (l *Lenders) want(node string, loan grant.Loan) {
	if l.wanted[node] == nil {
		l.wanted[node] = map[string]grant.Loan{}
	}
	l.wanted[node][loan.ID] = loan
}

// Keep ends all loans for which keep returns false, also those of nodes that connect later. Before
// its first call no loan is ended, because the driver does not know yet which are in use.
func (l *Lenders) Keep(keep func(id string) bool) {
	type end struct {
		*session
		id string
	}
	var list []end
	l.mu.Lock()
	l.judged = true
	for node, loans := range l.wanted {
		for id := range loans {
			if !keep(id) {
				delete(loans, id)
			}
		}
		if len(loans) == 0 {
			delete(l.wanted, node)
		}
	}
	for name, s := range l.nodes {
		for id := range s.lends {
			if _, wanted := l.wanted[name][id]; !wanted && !keep(id) {
				delete(s.lends, id)
				list = append(list, end{s, id})
			}
		}
	}
	l.mu.Unlock()
	for _, e := range list {
		e.Put(agent.Unlend{ID: e.id})
	}
}

// Lent lists the IDs of loans that a node has or is to have.
func (l *Lenders) Lent(node string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]bool{}
	for id := range l.wanted[node] {
		all[id] = true
	}
	if s := l.nodes[node]; s != nil {
		for id := range s.lends {
			all[id] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// serve turns a request into a session with a node.
func (l *Lenders) serve(w http.ResponseWriter, r *http.Request) {
	if !dial.Wanted(r.Header, dial.ProtocolAgent) {
		w.Header().Set("Upgrade", dial.ProtocolAgent)
		http.Error(w, `{"error":"nodes that lend GPUs connect here: muster node --head"}`, http.StatusUpgradeRequired)
		return
	}
	raw := r.Context().Value(connKey{}).(net.Conn)
	conn, err := dial.Accept(w, dial.ProtocolAgent, greetTime)
	if err != nil {
		return
	}
	s := &session{Lenders: l, raw: raw, lends: map[string]bool{}, answers: map[string]chan error{}, gone: make(chan struct{})}
	if secure, ok := raw.(*tls.Conn); ok {
		s.shown = trust.Vouched(secure.ConnectionState())
	}
	l.sessions.Serve(conn, s)
}

// May refuses a peer that may not speak for a node.
func (s *session) May(node string) error {
	switch conn := s.raw.(type) {
	case *tls.Conn:
		return identity.IsNode(conn.ConnectionState().PeerCertificates[0], node)
	case *net.UnixConn:
		return isOurs(conn)
	}
	return fmt.Errorf("a connection of the kind %T", s.raw)
}

// Refused notes that a node gets no session.
func (s *session) Refused(_ agent.Hello, err error) {
	if s.mayNote("") {
		s.cfg.Log.Warn("a node that would lend is refused", "error", err)
	}
}

// isOurs refuses users of this machine other than root and the user who runs the driver.
func isOurs(conn *net.UnixConn) error {
	peer, err := whois.Of(conn)
	if err != nil {
		return err
	}
	if !whois.RootOrSelf(peer.Uid) {
		return fmt.Errorf("it runs as user %d: at a socket only root and the driver's user speak for nodes", peer.Uid)
	}
	return nil
}

// Greeted registers the session as that of its node, and tells the node which loans to end and which
// to make. An older session of the same node is closed: the node has reconnected before the loss of
// the old connection was noticed.
func (s *session) Greeted(one *wire.Session, hello agent.Hello) error {
	s.Session, s.node = one, Node{Name: hello.Node, Gateway: hello.Gateway, Devices: hello.Devices}
	s.mu.Lock()
	defer s.mu.Unlock() // not before: these messages are the first that the node gets
	old := s.nodes[s.node.Name]
	if old == nil && len(s.nodes) >= maxNodes {
		return fmt.Errorf("%d nodes lend already", maxNodes)
	}
	if old != nil {
		old.Session.Close()
	}
	s.Put(agent.Welcome{Cluster: s.cfg.Cluster, Silence: silence})
	wanted := s.wanted[s.node.Name]
	for _, id := range hello.Loans {
		if _, ok := wanted[id]; ok || !s.judged {
			s.lends[id] = true
		} else {
			s.Put(agent.Unlend{ID: id})
		}
	}
	for id, loan := range wanted {
		if !s.lends[id] {
			s.lends[id] = true
			s.Put(agent.Lend{Loan: loan})
		}
	}
	s.nodes[s.node.Name] = s
	s.changes++
	s.cfg.Log.Info("a node lends", "node", s.node.Name, "devices", len(hello.Devices), "gateway", hello.Gateway)
	return nil
}

// Left ends the session's waiting callers of Lend, and unregisters it unless a newer session of the
// node has replaced it.
func (s *session) Left(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gone)
	s.cfg.Log.Info("a node lends no more", "node", s.node.Name, "reason", reason)
	if s.nodes[s.node.Name] == s {
		delete(s.nodes, s.node.Name)
		s.changes++
	}
}

// Heard handles a message of the node.
func (s *session) Heard(m agent.ToHead) error {
	switch m := m.(type) {
	case agent.Inventory:
		s.mu.Lock()
		s.node.Devices = m.Devices
		s.changes++
		s.mu.Unlock()
	case agent.Lent:
		s.lent(m)
	case agent.Hello:
		return wire.ErrTwice
	}
	return nil
}

// Complete leaves messages as they are.
func (s *session) Complete(m agent.ToAgent) (agent.ToAgent, error) { return m, nil }

// Unsent answers a loan that the node would refuse.
func (s *session) Unsent(m agent.ToAgent, err error) {
	if lend, is := m.(agent.Lend); is {
		s.lent(agent.Lent{ID: lend.Loan.ID, Error: err.Error()})
		return
	}
	s.cfg.Log.Warn("a node would refuse a message, and is not told", "node", s.node.Name, "error", err)
}

// lent passes the node's answer to the caller of Lend who waits for it.
func (s *session) lent(m agent.Lent) {
	s.mu.Lock()
	if m.Error != "" {
		delete(s.lends, m.ID)
	}
	if own, is := s.withoutOthers(m); is {
		if s.mayNote(s.node.Name) {
			s.cfg.Log.Warn("a node cannot have GPUs of other nodes for a job, which uses them by relays", "node", s.node.Name, "grant", m.ID, "error", m.Error)
		}
		if m.Error = ""; own != nil {
			s.lends[m.ID] = true
			s.mu.Unlock()
			s.Put(agent.Lend{Loan: *own}) // its answer is the one that is waited for
			return
		}
	}
	answer := s.answers[m.ID]
	delete(s.answers, m.ID)
	s.mu.Unlock()
	var err error
	if m.Error != "" {
		err = errors.New(m.Error)
	}
	if answer != nil {
		answer <- err
	} else if err != nil && s.mayNote(s.node.Name) {
		s.cfg.Log.Warn("a node does not lend again what it lent", "node", s.node.Name, "grant", m.ID, "error", err)
	}
}

// mayNote says whether the log gets a line about a node, which may say the same again and again.
func (l *Lenders) mayNote(node string) bool { return l.noted.May(l.sessions.Now(), node) }

// withoutOthers says whether a node has refused to have devices of other nodes, and returns what is wanted of it
// then; nil if that is nothing.
func (s *session) withoutOthers(m agent.Lent) (own *grant.Loan, is bool) {
	wanted := s.wanted[s.node.Name]
	loan, ok := wanted[m.ID]
	if !ok || m.Error == "" || loan.Home == "" {
		return nil, false
	}
	loan = loan.Own()
	if len(loan.Devices) == 0 {
		delete(wanted, m.ID)
		return nil, true
	}
	wanted[m.ID] = loan
	return &loan, true
}

// watchRevoked ends the sessions of nodes whose certificate was revoked since they have greeted.
func (l *Lenders) watchRevoked(ctx context.Context) {
	tick := time.NewTicker(revokedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.sessions.EndRevoked(func(m wire.Member) (revoked *trust.Revoked) {
				errors.As(trust.StillGood(l.cfg.TLS, m.(*session).shown), &revoked)
				return revoked
			})
		}
	}
}
