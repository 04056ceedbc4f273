package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"muster/node/offload"
	"muster/wire/borrow"
	"muster/wire/grant"
)

// Offload says how the node shares virtual GPUs with others.
type Offload struct {
	Peers []string // gateways of other nodes, HOST:PORT, from which virtual GPUs are borrowed
	Head  bool     // the cluster's head names more of them (Options.Peers)
	Mode  OffloadMode
	Above int // how many programs must wait before virtual GPUs are borrowed; 0 for the default
	Keep  int // free virtual GPUs that are not lent
}

// OffloadMode says whether a node borrows and lends.
type OffloadMode uint8

const (
	OffloadBoth   OffloadMode = iota // it borrows and lends
	OffloadOff                       // neither
	OffloadBorrow                    // it only borrows
	OffloadLend                      // it only lends
)

var offloadModes = [...]string{"auto", "off", "borrow", "lend"}

func (m OffloadMode) String() string { return offloadModes[m] }

// ParseOffload reads the name that String gives.
func ParseOffload(name string) (OffloadMode, error) {
	for i, n := range offloadModes {
		if n == name {
			return OffloadMode(i), nil
		}
	}
	return 0, fmt.Errorf("offload can be auto, borrow, lend or off, not %q", name)
}

// borrows says whether a node may use virtual GPUs of others.
func (o *Offload) borrows() bool {
	return (len(o.Peers) > 0 || o.Head) && (o.Mode == OffloadBoth || o.Mode == OffloadBorrow)
}

// lends says whether a node lends its virtual GPUs. A node that serves only programs with grants
// does not: its devices are the scheduler's to give.
func (c *Config) lends() bool {
	return c.Remote.Listen != "" && c.Grants != GrantsRequired && (c.Offload.Mode == OffloadBoth || c.Offload.Mode == OffloadLend)
}

// How often a peer is asked how it is, and how long it has to answer.
const (
	askSeldom   = time.Second            // while nothing is borrowed, and no client waits
	askOften    = 250 * time.Millisecond // otherwise
	askLongest  = 10 * time.Second       // the longest interval after failures
	answerTime  = 5 * time.Second
	maxPeers    = 1024
	lookBorrow  = 20 * time.Millisecond // at least, between two calls of lookAround
	awaitBorrow = 8 * time.Second       // how long a program on a node without devices waits for one to be borrowed
)

// peerLink asks one peer. Only its goroutine (askPeer) uses the connection; the loop has the
// channels.
type peerLink struct {
	id   offload.PeerID
	kick chan struct{}
	stop chan struct{} // closed when the node is no peer any more
	conn net.Conn
	in   *bufio.Reader
}

// askPeers starts the goroutines that ask peers; they end with the loop.
func (d *daemon) askPeers() {
	if d.borrowing == nil {
		return
	}
	for _, l := range d.borrowing.links {
		d.handlers.Go(func() { d.askPeer(l) })
	}
	if from := d.opts.Peers; d.cfg.Offload.Head && from != nil {
		d.handlers.Go(func() {
			for {
				select {
				case gateways := <-from:
					d.do(func() { d.peersAre(gateways) })
				case <-d.ended:
					return
				}
			}
		})
	}
}

// newPeerLink makes a link to a peer, which askPeer then uses.
func newPeerLink(id offload.PeerID) *peerLink {
	return &peerLink{id: id, kick: make(chan struct{}, 1), stop: make(chan struct{})}
}

// peersAre takes the head's list of nodes, in addition to those of the configuration. A peer that
// is no longer listed is still asked for as long as the node holds one of its tickets. Only the
// loop calls it.
func (d *daemon) peersAre(gateways []string) {
	b := d.borrowing
	if b == nil || d.draining {
		return
	}
	var ids []offload.PeerID
	for _, address := range append(slices.Clone(d.cfg.Offload.Peers), gateways...) {
		if _, _, err := net.SplitHostPort(address); err == nil && len(ids) < maxPeers {
			ids = append(ids, offload.PeerID(address))
		}
	}
	for _, id := range ids {
		if b.links[id] == nil {
			l := newPeerLink(id)
			b.links[id] = l
			d.handlers.Go(func() { d.askPeer(l) })
		}
	}
	effects := b.core.Peers(d.now(), ids)
	for id, l := range b.links {
		if !slices.Contains(ids, id) && !b.core.Holds(id) {
			close(l.stop)
			delete(b.links, id)
			delete(b.names, id)
			delete(b.said, id)
		}
	}
	d.offloads(effects)
}

// askPeer asks a peer again and again: when its timer expires, or at once when the core wants an
// answer (kick), unless the peer has just failed to answer. The random part of the interval keeps
// the nodes of a cluster from asking all at the same moment.
func (d *daemon) askPeer(l *peerLink) {
	defer l.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-d.ended:
			cancel()
		case <-l.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	dice := rand.New(rand.NewPCG(d.cfg.seed(), uint64(len(l.id))))
	wait, failures := time.Duration(dice.Int64N(int64(askOften))), 0 // not all at once
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.kick:
			if failures > 0 {
				continue
			}
		case <-ctx.Done():
			return
		}
		next, err := d.exchange(ctx, l)
		if ctx.Err() != nil || errors.Is(err, errShuttingDown) {
			return
		}
		if err != nil {
			l.close()
			if failures++; failures == 1 {
				d.log.Warn("a peer does not answer: it is asked again, and nothing is borrowed of it until then", "peer", string(l.id), "error", err)
			}
			next = min(askSeldom<<min(failures, 10), askLongest)
		} else if failures > 0 {
			d.log.Info("a peer answers again", "peer", string(l.id))
			failures = 0
		}
		timer.Reset(next*9/10 + time.Duration(dice.Int64N(int64(next)/5)))
	}
}

// seed makes nodes with the same peers choose differently: the FNV-1a hash of the node's name.
func (c *Config) seed() uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(c.Name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

func (l *peerLink) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// exchange asks a peer once and hands the answer to the loop. It returns how long to wait before
// the next question.
func (d *daemon) exchange(ctx context.Context, l *peerLink) (next time.Duration, err error) {
	var say offload.Question
	if !d.ask(func() { say = d.borrowing.core.Says(l.id) }) {
		return 0, errShuttingDown
	}
	answer, err := d.askOnce(ctx, l, say)
	if !d.ask(func() { next = d.answeredBy(l.id, answer, err) }) {
		return 0, errShuttingDown
	}
	return next, err
}

// askOnce sends a question and reads the answer.
func (d *daemon) askOnce(ctx context.Context, l *peerLink, say offload.Question) (a borrow.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if l.conn == nil {
		if l.conn, err = d.opts.DialPeer(ctx, string(l.id)); err != nil {
			l.conn = nil
			return a, err
		}
		l.in = bufio.NewReaderSize(l.conn, borrow.MaxLine)
	}
	conn := l.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	q := borrow.Question{Version: borrow.Version, Node: d.cfg.Name, Slots: say.Slots, Apart: say.Apart}
	for _, id := range say.Holds {
		q.Holds = append(q.Holds, string(id))
	}
	line, err := borrow.Encode(q)
	if err != nil {
		return a, err
	}
	if _, err := conn.Write(line); err != nil {
		return a, err
	}
	if line, err = l.in.ReadSlice('\n'); err != nil {
		return a, fmt.Errorf("it hung up, or said too much: %w", err)
	}
	return borrow.ReadAnswer(line)
}

// answeredBy hands a peer's answer, or that there was none, to the core. It returns how long to
// wait before the next question. Only the loop calls it.
func (d *daemon) answeredBy(id offload.PeerID, a borrow.Answer, err error) time.Duration {
	b := d.borrowing
	if err != nil {
		d.offloads(b.core.Unreached(d.now(), id))
		return askSeldom
	}
	b.names[id] = a.Node
	b.said[id] = lenderLoad{a.Loads, d.now()}
	if a.Node == d.cfg.Name {
		b.core.IsSelf(id)
		return askLongest
	}
	said := offload.Answer{Load: offload.Load{Slots: a.Slots, Free: a.Free, Waiting: a.Waiting, Idle: a.Idle}}
	if t := a.Ticket; t != nil {
		said.Ticket = offload.Ticket{ID: offload.TicketID(t.ID), Device: t.Device, Slots: t.Slots, Speed: t.Speed}
	}
	for _, id := range a.Recalls {
		said.Recalls = append(said.Recalls, offload.TicketID(id))
	}
	d.offloads(b.core.Answered(d.now(), id, said))
	if b.local.Pending > 0 || len(b.loans) > 0 {
		return askOften
	}
	return askSeldom
}

// answerPeer answers another node that wants to borrow. The gateway has authenticated it.
func (d *daemon) answerPeer(who peer, line []byte) (any, error) {
	var r struct {
		Request  string          `json:"request"`
		Question borrow.Question `json:"question"`
	}
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if d.opts.Gateway == 0 || int(who.pid) != d.opts.Gateway {
		return nil, fmt.Errorf("only the node's gateway asks for other nodes")
	}
	var reply borrow.Answer
	err := d.inLoop(func() error {
		switch {
		case d.cfg.Grants == GrantsRequired && r.Question.Node != d.cfg.Name:
			return fmt.Errorf("node %s serves programs with a grant only (grants: required), and lends nothing to others: its devices are for the cluster's head to give", d.cfg.Name)
		case d.borrowing == nil:
			return fmt.Errorf("node %s lends nothing (offload: off)", d.cfg.Name)
		}
		reply = d.lendTo(r.Question)
		return nil
	})
	return reply, err
}

// lendTo answers a borrower. Only the loop calls it.
func (d *daemon) lendTo(q borrow.Question) borrow.Answer {
	b := d.borrowing
	say := offload.Question{Slots: q.Slots, Apart: q.Apart}
	for _, id := range q.Holds {
		say.Holds = append(say.Holds, offload.TicketID(id))
	}
	d.lookAround() // the core must know what is free at this moment, or it might lend a slot that was just taken
	answer, effects := b.core.Asked(d.now(), offload.NodeID(q.Node), say, offload.TicketID(grant.NewCredential()))
	d.offloads(effects)
	reply := borrow.Answer{Version: borrow.Version, Node: d.cfg.Name, Slots: answer.Load.Slots, Free: answer.Load.Free, Waiting: answer.Load.Waiting, Idle: answer.Load.Idle}
	if t := answer.Ticket; t.ID != "" {
		reply.Ticket = &borrow.Ticket{ID: string(t.ID), Device: t.Device, Slots: t.Slots, Speed: t.Speed}
		d.log.Info("virtual GPUs are lent", "to", q.Node, "device", t.Device, "slots", t.Slots)
	}
	reply.Loads = d.loadsFor(q.Node)
	for _, id := range answer.Recalls {
		reply.Recalls = append(reply.Recalls, string(id))
	}
	return reply
}
