package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"muster/agent/agentcore"
	wire "muster/wire/agent"
)

const (
	firstPause   = 100 * time.Millisecond // between two attempts to reach the head
	longestPause = 30 * time.Second
	welcomePause = 3 * time.Second  // the longest pause while the head accepts the node
	steadyTime   = 10 * time.Second // a connection that is accepted for so long has lasted
	greetTime    = 30 * time.Second // for the head to answer Hello
	firstPeers   = time.Second      // between two questions for peers, at first
	peersTime    = 16 * time.Second // and at last
	maxUnsent    = 64 << 20         // bytes that may wait to be sent to a head
)

// link is the connection to the head, if there is one. mu protects conn and unsent; news wakes the
// writer.
type link struct {
	mu     sync.Mutex
	conn   net.Conn
	unsent []byte
	news   chan struct{}
}

func newLink() *link { return &link{news: make(chan struct{}, 1)} }

// send queues a message. Without a connection it is dropped: the core tells the head everything
// again after the next Hello. It refuses what the head would refuse.
func (l *link) send(m wire.ToHead) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil
	}
	queued, err := wire.Encode(l.unsent, m)
	if err != nil {
		return err
	}
	if len(queued) > maxUnsent {
		return l.conn.Close()
	}
	l.unsent = queued
	select {
	case l.news <- struct{}{}:
	default:
	}
	return nil
}

func (l *link) set(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.unsent = conn, nil
}

func (l *link) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.unsent
	l.unsent = nil
	return b
}

// write sends what is queued until the connection ends.
func (l *link) write(conn net.Conn, ended <-chan struct{}) {
	for {
		select {
		case <-l.news:
		case <-ended:
			return
		}
		if b := l.take(); len(b) > 0 {
			_ = conn.SetWriteDeadline(time.Now().Add(greetTime))
			if _, err := conn.Write(b); err != nil {
				conn.Close()
				return
			}
		}
	}
}

// keepConnected keeps a connection to the head. The first greeting waits until the devices are
// known: a head that hears of fewer devices than before takes the node for another machine, and all
// tasks there for lost.
func (a *agent) keepConnected(ctx context.Context) {
	select {
	case <-a.devices:
	case <-ctx.Done():
		return
	}
	var pace pace
	complaint := "" // the last that was logged, and that is still true
	for {
		accepted, err := a.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := pace.after(!accepted.IsZero(), time.Since(accepted))
		if pace.steady {
			complaint = "" // whatever ended a connection that lasted is news
		}
		if reason := constant(err); reason != complaint {
			complaint = reason
			a.log.Warn("this node has no connection to its head: it tries again, less and less often, and says nothing more until the reason is another one", "error", err)
		}
		// A random pause, so that many agents do not come back at the same time.
		spread := time.Duration((0.5 + a.cfg.Random.Float64()/2) * float64(pause))
		select {
		case <-ctx.Done():
			return
		case <-time.After(spread):
		}
	}
}

// pace says how long an agent waits before it tries to reach the head again.
type pace struct {
	last   time.Duration // the last pause; 0 if there was none
	steady bool          // whether the last connection lasted
}

// after returns the pause after an attempt. Pauses double for as long as the head cannot be reached
// or refuses the node. Being accepted is no reason to come back at once: of two machines with
// copies of one spool, each is accepted and drives the other one away. Only a connection that
// lasted makes the next pause the first again. But an accepted node has jobs, so it never stays
// away for long.
func (p *pace) after(welcome bool, lasted time.Duration) time.Duration {
	p.steady = welcome && lasted >= steadyTime
	switch {
	case p.steady || p.last == 0:
		p.last = firstPause
	case welcome:
		p.last = min(2*p.last, welcomePause)
	default:
		p.last = min(2*p.last, longestPause)
	}
	return p.last
}

// constant is an error's text without what differs each time though the reason is the same: the
// port of this side of a connection.
func constant(err error) string {
	var network *net.OpError
	if errors.As(err, &network) && network.Source != nil {
		return network.Op + ": " + network.Err.Error()
	}
	return err.Error()
}

// attempt reaches the head and serves the connection until it ends. It returns when the head accepted
// the node, if it did, and why the connection has ended.
func (a *agent) attempt(ctx context.Context) (accepted time.Time, err error) {
	conn, err := a.cfg.Dial(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("the head is not reached: %w", err)
	}
	return a.converse(ctx, conn)
}

// converse serves a connection until it ends. It returns when the head accepted the node, if it did,
// and why the connection has ended.
func (a *agent) converse(ctx context.Context, conn net.Conn) (accepted time.Time, err error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	ended := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { a.link.write(conn, ended) })
	defer writer.Wait()
	defer close(ended)
	a.link.set(conn)
	defer a.link.set(nil)
	a.post(ctx, agentcore.Up{})
	defer a.post(ctx, agentcore.Down{})

	silence := greetTime
	in := bufio.NewReader(conn)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(silence))
		m, err := wire.ReadToAgent(in)
		var unreadable *wire.Unreadable
		if errors.As(err, &unreadable) {
			a.log.Warn("a message of the head cannot be read, and is passed over", "kind", unreadable.Kind, "task", unreadable.Task, "error", err)
			a.post(ctx, agentcore.Unread{Message: *unreadable})
			continue
		}
		if err != nil {
			return accepted, fmt.Errorf("the connection to the head has ended: %w", err)
		}
		switch m := m.(type) {
		case wire.Refused:
			return accepted, fmt.Errorf("the head refuses this node: %s", m.Reason)
		case wire.Welcome:
			if err := a.reign.follow(m); err != nil {
				return accepted, err
			}
			if accepted.IsZero() {
				accepted = time.Now()
				a.log.Info("the head has accepted this node")
				if a.cfg.Peers != nil {
					writer.Go(func() { a.askPeers(ended) })
				}
			}
			silence = 2 * m.Silence
		case wire.Peers:
			if a.cfg.Peers != nil {
				a.cfg.Peers(m.Gateways)
			}
			continue
		}
		a.post(ctx, agentcore.Heard{Message: m})
	}
}

// reign is who gave orders last, of several heads: it led them since a term.
type reign struct {
	heads string
	term  uint64
}

// follow refuses a head that led before the last one: it was away, and may not know that it leads no longer.
func (r *reign) follow(m wire.Welcome) error {
	if m.Heads != "" && m.Heads == r.heads && m.Term < r.term {
		return fmt.Errorf("the head does not know that another one leads: it speaks of term %d, and the last one was %d", m.Term, r.term)
	}
	r.heads, r.term = m.Heads, m.Term
	return nil
}

// askPeers asks the head which nodes there are, at once and then at growing intervals, until the
// connection ends. While the head is away the last answer counts.
func (a *agent) askPeers(ended <-chan struct{}) {
	for pause := firstPeers; ; pause = min(2*pause, peersTime) { // short at first: nodes are often started together
		_ = a.link.send(wire.AskPeers{})
		select {
		case <-time.After(pause):
		case <-ended:
			return
		}
	}
}
