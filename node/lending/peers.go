package lending

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
	"muster/node/settings"
	"muster/wire/borrow"
)

// How often a peer is asked how it is, and how long it has to answer.
const (
	askSeldom  = time.Second            // while nothing is borrowed, and no client waits
	askOften   = 250 * time.Millisecond // otherwise
	askKeen    = 100 * time.Millisecond // while a program runs faster on a device of the peer, or would if that were unused
	askAll     = 10 * time.Millisecond  // times the peers: the least interval, so that many are not asked more often than few
	askLongest = 10 * time.Second       // the longest interval after failures
	answerTime = 5 * time.Second
)

// peerLink asks one peer. Only its goroutine (askAgain) uses the connection; the loop has the
// channels.
type peerLink struct {
	id   offload.PeerID
	kick chan struct{}
	stop chan struct{} // closed when the node is no peer any more
	next time.Duration // when it is to be asked again; the loop's
	conn net.Conn
	in   *bufio.Reader
}

// Begin starts the goroutines that ask peers; they end with the loop.
func (l *Lending) Begin() {
	if l == nil {
		return
	}
	for _, link := range l.links {
		l.loop.Go(func() { l.askAgain(link) })
	}
	if from := l.opts.Peers; l.cfg.Head && from != nil {
		l.loop.Go(func() {
			for {
				select {
				case gateways := <-from:
					l.loop.Do(func() { l.peersAre(gateways) })
				case <-l.loop.Ended():
					return
				}
			}
		})
	}
}

// newPeerLink makes a link to a peer, which askAgain then uses.
func newPeerLink(id offload.PeerID) *peerLink {
	return &peerLink{id: id, kick: make(chan struct{}, 1), stop: make(chan struct{})}
}

// peersAre takes the head's list of nodes, in addition to those of the configuration. A peer that
// is no longer listed is still asked for as long as the node holds one of its tickets.
func (l *Lending) peersAre(gateways []string) {
	if l.loop.Draining() {
		return
	}
	var ids []offload.PeerID
	for _, address := range append(slices.Clone(l.cfg.Peers), gateways...) {
		if _, _, err := net.SplitHostPort(address); err == nil && len(ids) < settings.MaxPeers {
			ids = append(ids, offload.PeerID(address))
		}
	}
	for _, id := range ids {
		if l.links[id] == nil {
			link := newPeerLink(id)
			l.links[id] = link
			l.loop.Go(func() { l.askAgain(link) })
		}
	}
	effects := l.core.Peers(l.loop.Now(), ids)
	for id, link := range l.links {
		if !slices.Contains(ids, id) && !l.core.Holds(id) {
			close(link.stop)
			delete(l.links, id)
			delete(l.names, id)
			delete(l.said, id)
		}
	}
	l.perform(effects)
}

// askAgain asks a peer again and again: when its timer expires, or at once when the core wants an
// answer (kick), unless the peer has just failed to answer. The random part of the interval keeps
// the nodes of a cluster from asking all at the same moment.
func (l *Lending) askAgain(link *peerLink) {
	defer link.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.loop.Ended():
			cancel()
		case <-link.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	dice := rand.New(rand.NewPCG(l.seed, uint64(len(link.id))))
	wait, failures := time.Duration(dice.Int64N(int64(askOften))), 0 // not all at once
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-link.kick:
			if failures > 0 {
				continue
			}
		case <-ctx.Done():
			return
		}
		next, err := l.exchange(ctx, link)
		if ctx.Err() != nil || errors.Is(err, ErrEnded) {
			return
		}
		if err != nil {
			link.close()
			if failures++; failures == 1 {
				l.opts.Log.Warn("a peer does not answer: it is asked again, and nothing is borrowed of it until then", "peer", string(link.id), "error", err)
			}
			next = min(askSeldom<<min(failures, 10), askLongest)
		} else if failures > 0 {
			l.opts.Log.Info("a peer answers again", "peer", string(link.id))
			failures = 0
		}
		timer.Reset(next*9/10 + time.Duration(dice.Int64N(int64(next)/5)))
	}
}

func (l *peerLink) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// exchange asks a peer once and hands the answer to the loop. It returns how long to wait before
// the next question.
func (l *Lending) exchange(ctx context.Context, link *peerLink) (next time.Duration, err error) {
	var say offload.Question
	if !l.loop.Ask(func() { say = l.core.Says(link.id) }) {
		return 0, ErrEnded
	}
	answer, err := l.askOnce(ctx, link, say)
	if !l.loop.Ask(func() {
		next = l.answeredBy(link.id, answer, err)
		link.next = l.loop.Now() + next
	}) {
		return 0, ErrEnded
	}
	return next, err
}

// askOnce sends a question and reads the answer.
func (l *Lending) askOnce(ctx context.Context, link *peerLink, say offload.Question) (a borrow.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if link.conn == nil {
		if link.conn, err = l.opts.Dial(ctx, string(link.id)); err != nil {
			link.conn = nil
			return a, err
		}
		link.in = bufio.NewReaderSize(link.conn, borrow.MaxLine)
	}
	conn := link.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	q := borrow.Question{Version: borrow.Version, Node: l.name, Slots: say.Slots, Apart: say.Apart, Speed: say.Speed}
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
	if line, err = link.in.ReadSlice('\n'); err != nil {
		return a, fmt.Errorf("it hung up, or said too much: %w", err)
	}
	return borrow.ReadAnswer(line)
}

// answeredBy hands a peer's answer, or that there was none, to the core. It returns how long to
// wait before the next question. Only the loop calls it.
func (l *Lending) answeredBy(id offload.PeerID, a borrow.Answer, err error) time.Duration {
	if err != nil {
		l.perform(l.core.Unreached(l.loop.Now(), id))
		return askSeldom
	}
	l.names[id] = a.Node
	l.said[id] = Said{a.Loads, l.loop.Now()}
	if a.Node == l.name {
		l.core.IsSelf(id)
		return askLongest
	}
	said := offload.Answer{Load: offload.Load{Slots: a.Slots, Free: a.Free, Waiting: a.Waiting, Idle: a.Idle, Fastest: a.Fastest, Unused: a.Unused}}
	if t := a.Ticket; t != nil {
		said.Ticket = offload.Ticket{ID: offload.TicketID(t.ID), Device: t.Device, Slots: t.Slots, Speed: t.Speed}
	}
	for _, id := range a.Recalls {
		said.Recalls = append(said.Recalls, offload.TicketID(id))
	}
	l.perform(l.core.Answered(l.loop.Now(), id, said))
	switch {
	case l.core.Keen(id):
		return l.keenly()
	case l.local.Pending > 0 || len(l.held) > 0:
		return askOften
	}
	return askSeldom
}

// keenly is how often peers are asked of which programs would run faster.
func (l *Lending) keenly() time.Duration { return max(askKeen, time.Duration(len(l.links))*askAll) }

// askKeenly asks peers sooner than at the next regular time whose devices programs would run faster on now.
func (l *Lending) askKeenly() {
	if len(l.local.Gains) == 0 {
		return
	}
	for id, link := range l.links {
		if soon := l.loop.Now() + l.keenly(); link.next > soon && l.core.Keen(id) {
			link.next = soon
			l.perform([]offload.Effect{offload.Ask{Peer: id}})
		}
	}
}
