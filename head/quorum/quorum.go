package quorum

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"muster/head"
	"muster/head/store"
)

// ErrDeposed says that this head does not lead any more. What it was about to write may be written or not.
var ErrDeposed = errors.New("this head leads no longer")

// Config is what a head needs to be one of several.
type Config struct {
	// Self is the address at which the other heads reach this one. It is its name among them, too.
	Self  string
	Store *store.Store
	Log   *store.Log
	// Dial connects to another head, where Serve gets the connection. With nil there is Transport, for tests.
	Dial      func(ctx context.Context, address string) (net.Conn, error)
	Transport raft.Transport
	// Pace is how long the others wait for the leader before they choose another; 0 is DefaultPace.
	Pace   time.Duration
	Logger *slog.Logger
}

// DefaultPace is short enough that a new head leads within seconds, and long enough for a busy machine.
const DefaultPace = time.Second

// Node is a head as one of several.
type Node struct {
	raft   *raft.Raft
	logs   logs
	store  *store.Store
	self   string
	layer  *layer
	net    *raft.NetworkTransport // nil in tests
	terms  chan *Term
	ended  chan struct{}
	all    sync.WaitGroup
	failed chan struct{}
	once   sync.Once
	reason error // readable once failed is closed
}

// Term is the time for which this head leads.
type Term struct {
	node   *Node
	number uint64
	over   chan struct{}
}

// snapshotEvery is after how many entries the log is cut, and trailing how many stay for heads that were
// away for a while.
const snapshotEvery, trailing = 4096, 4096

// Known says whether the head of a folder is one of several already.
func Known(dir string) (known bool, err error) {
	if !store.HasLog(dir) {
		return false, nil
	}
	log, err := store.OpenLog(dir)
	if err != nil {
		return false, err
	}
	meta, err := (&snapshots{logs: logs{log}}).last()
	_, last, err2 := log.Ends()
	return meta != nil || last > 0, errors.Join(err, err2, log.Close())
}

// Bootstrap makes a head that was alone the first of several. The others get a copy of its store.
func Bootstrap(log *store.Log, s *store.Store, self string) error {
	l := logs{log}
	if meta, err := (&snapshots{logs: l}).last(); meta != nil || err != nil {
		return err
	}
	if err := s.SetGroup(rand.Text()); err != nil {
		return err
	}
	if err := l.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		return err
	}
	// The log begins behind entry 1, which stands for what the store has: whoever joins needs that.
	return (&snapshots{logs: l}).keep(&raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: "store", Index: 1, Term: 1, ConfigurationIndex: 1,
		Configuration: raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(self), Address: raft.ServerAddress(self)}}},
	})
}

// Alone applies what is in the log to the store, for a head that goes on without the others. What not all of
// them have heard of counts, too.
func Alone(log *store.Log, s *store.Store) error {
	l := logs{log}
	_, last, err := l.Ends()
	if err != nil {
		return err
	}
	f := &machine{store: s}
	for at := s.Applied() + 1; at <= last; at++ {
		var one raft.Log
		switch err := l.GetLog(at, &one); {
		case errors.Is(err, raft.ErrLogNotFound):
			continue // the store is all that there is of it
		case err != nil:
			return err
		}
		if one.Type != raft.LogCommand {
			continue
		}
		if err := f.apply(&one); err != nil && !errors.Is(err, ErrDeposed) {
			return err
		}
	}
	return s.SetGroup("")
}

// Open begins to take part. Of what was never bootstrapped, the leader of others must be told (Add).
func Open(c Config) (*Node, error) {
	c.Pace = cmp.Or(c.Pace, DefaultPace)
	n := &Node{
		logs: logs{c.Log}, store: c.Store, self: c.Self, terms: make(chan *Term), ended: make(chan struct{}), failed: make(chan struct{}),
	}
	notify := make(chan bool)
	rc := raft.DefaultConfig()
	rc.LocalID, rc.NotifyCh = raft.ServerID(c.Self), notify
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = c.Pace, c.Pace, c.Pace/2
	rc.MaxAppendEntries, rc.SnapshotThreshold, rc.TrailingLogs, rc.SnapshotInterval = 16, snapshotEvery, trailing, 10*time.Second
	rc.NoSnapshotRestoreOnStart = true // the store has it
	rc.ShutdownOnRemove = false
	rc.NoLegacyTelemetry = true
	rc.LogOutput, rc.LogLevel = &lines{log: c.Logger}, "WARN"
	transport := c.Transport
	if transport == nil {
		n.layer = newLayer(c.Self, c.Dial)
		n.net = raft.NewNetworkTransport(n.layer, 3, patience, &lines{log: c.Logger})
		transport = n.net
	}
	err := guarded(func() (err error) {
		n.raft, err = raft.NewRaft(rc, &machine{store: c.Store, fail: n.fail}, n.logs, n.logs, &snapshots{n.logs, c.Store}, transport)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("going on as one of several heads: %w", err)
	}
	n.all.Go(func() { n.watch(notify) })
	return n, nil
}

// guarded turns the panic into an error with which Raft ends if its log is damaged.
func guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return do()
}

// fail notes why this head cannot go on.
func (n *Node) fail(err error) {
	n.once.Do(func() {
		n.reason = err
		close(n.failed)
	})
}

// Failed is closed when this head cannot go on, for a Reason.
func (n *Node) Failed() <-chan struct{} { return n.failed }
func (n *Node) Reason() error           { return n.reason }

// Terms delivers each time for which this head leads, once it may begin.
func (n *Node) Terms() <-chan *Term { return n.terms }

// watch hears when this head leads, and when no longer.
func (n *Node) watch(notify <-chan bool) {
	var t *Term
	over := func() {
		if t != nil {
			close(t.over)
			t = nil
		}
	}
	defer over()
	for {
		select {
		case leads := <-notify:
			over()
			if leads {
				t = &Term{node: n, over: make(chan struct{})}
				begun := t
				n.all.Go(func() { n.begin(begun) })
			}
		case <-n.ended:
			return
		}
	}
}

// begin makes sure that the store has all that earlier leaders wrote, and that the others heard of the term.
func (n *Node) begin(t *Term) {
	if n.raft.Barrier(0).Error() != nil {
		return // the lead was lost
	}
	t.number = n.raft.CurrentTerm()
	if t.apply(nil) != nil {
		return
	}
	select {
	case n.terms <- t:
	case <-t.over:
	case <-n.ended:
	}
}

// Number is larger for each later term.
func (t *Term) Number() uint64 { return t.number }

// Over is closed when another head may lead.
func (t *Term) Over() <-chan struct{} { return t.over }

// Group names the heads of which this is one.
func (t *Term) Group() string { return t.node.store.Group() }

// Commit writes records to the store of a majority of the heads, and of this one. Without records it makes
// sure that no other head leads. After ErrDeposed nothing that follows from the records may be let out.
func (t *Term) Commit(records []head.Record) error {
	if len(records) > 0 {
		return t.apply(records)
	}
	select {
	case <-t.over:
		return ErrDeposed
	default:
	}
	if err := t.node.raft.VerifyLeader().Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrDeposed, err)
	}
	if t.node.raft.CurrentTerm() != t.number {
		return ErrDeposed
	}
	return nil
}

func (t *Term) apply(records []head.Record) error {
	done := t.node.raft.Apply(encode(t.number, records), 0)
	if err := done.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrDeposed, err)
	}
	if err, failed := done.Response().(error); failed {
		return err
	}
	return nil
}

// Resign has another head lead, if there is one that can.
func (n *Node) Resign() {
	if n.raft.State() == raft.Leader {
		_ = n.raft.LeadershipTransfer().Error() // without it, the others notice that this one is gone
	}
}

// Close ends this head's part. Its connections are closed.
func (n *Node) Close() {
	close(n.ended)
	if n.net != nil {
		_ = n.net.Close() // Raft would wait for answers of heads that are away
	}
	_ = n.raft.Shutdown().Error()
	n.all.Wait()
}

// Leader is the address of the head that leads, as far as this one knows; "" if none does.
func (n *Node) Leader() string {
	address, _ := n.raft.LeaderWithID()
	return string(address)
}

// Member is one of several heads.
type Member struct {
	Address string
	// Votes says that it counts for a majority. One that has just joined does not, until it has all.
	Votes bool
}

// Members are the heads, as far as this one knows.
func (n *Node) Members() (all []Member) {
	c := n.raft.GetConfiguration()
	if c.Error() != nil {
		return nil
	}
	for _, s := range c.Configuration().Servers {
		all = append(all, Member{string(s.Address), s.Suffrage == raft.Voter})
	}
	return all
}

// Standing is how far this head is.
type Standing struct {
	Leads, Votes           bool
	Term, Applied, Written uint64 // Written is the last entry of its log
	// Heard is how long ago the leader was heard of.
	Heard time.Duration
}

// Standing says how far this head is.
func (n *Node) Standing() Standing {
	s := Standing{Leads: n.raft.State() == raft.Leader, Term: n.raft.CurrentTerm(), Applied: n.raft.AppliedIndex(), Written: n.raft.LastIndex()}
	if !s.Leads {
		s.Heard = time.Since(n.raft.LastContact())
	}
	for _, m := range n.Members() {
		s.Votes = s.Votes || m.Address == n.self && m.Votes
	}
	return s
}

// UpToDate says whether this head has all that it knows to be agreed on.
func (n *Node) UpToDate() bool {
	agreed := n.raft.CommitIndex()
	return agreed > 0 && n.raft.AppliedIndex() >= agreed && n.Leader() != ""
}

// patience is how long a change of the heads may take.
const patience = 10 * time.Second

// Add takes a head in: first as one that only gets what the others agree on, and with a vote once it asks
// again and has all.
func (n *Node) Add(address string, vote bool) error {
	id, at := raft.ServerID(address), raft.ServerAddress(address)
	for _, m := range n.Members() {
		if m.Address == address && (m.Votes || !vote) {
			return nil
		}
	}
	if vote {
		return n.raft.AddVoter(id, at, 0, patience).Error()
	}
	return n.raft.AddNonvoter(id, at, 0, patience).Error()
}

// Remove takes a head out.
func (n *Node) Remove(address string) error {
	return n.raft.RemoveServer(raft.ServerID(address), 0, patience).Error()
}

// Serve gives the node a connection that another head has made. It is closed when the node is.
func (n *Node) Serve(conn net.Conn) { n.layer.serve(conn) }

// machine is the store as Raft wants it.
type machine struct {
	store *store.Store
	fail  func(error)
}

func (m *machine) Apply(one *raft.Log) any {
	err := m.apply(one)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, ErrDeposed):
		m.fail(err)
	}
	return err
}

func (m *machine) apply(one *raft.Log) error {
	term, records, err := decode(one.Data)
	if err != nil {
		return err
	}
	if term != one.Term {
		return ErrDeposed
	}
	return m.store.Apply(one.Index, records)
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }

func (m *machine) Restore(from io.ReadCloser) error {
	err := m.store.Replace()
	if err != nil {
		m.fail(err)
	}
	return err
}

// nothing is the snapshot of a store, which is on disk already.
type nothing struct{}

func (nothing) Persist(raft.SnapshotSink) error { return nil }
func (nothing) Release()                        {}
