package agent

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"

	"muster/node/agentcore"
	wire "muster/wire/agent"
)

const (
	firstPause   = 100 * time.Millisecond // between two attempts to reach the head
	longestPause = 30 * time.Second
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
// again after the next Hello.
func (l *link) send(m wire.ToHead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return
	}
	queued, err := wire.Encode(l.unsent, m)
	if err != nil || len(queued) > maxUnsent {
		l.conn.Close()
		return
	}
	l.unsent = queued
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
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
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		conn, err := a.cfg.Dial(ctx)
		if err == nil {
			a.log.Info("the head is reached")
			if a.converse(ctx, conn) {
				pause = firstPause
			}
		} else if ctx.Err() == nil {
			a.log.Warn("the head is not reached", "error", err)
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

// converse serves a connection until it ends. It returns whether the head accepted the node.
func (a *agent) converse(ctx context.Context, conn net.Conn) (welcome bool) {
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
		if err != nil {
			if ctx.Err() == nil {
				a.log.Warn("the connection to the head has ended", "error", err)
			}
			return welcome
		}
		if w, ok := m.(wire.Welcome); ok {
			if !welcome && a.cfg.Peers != nil {
				writer.Go(func() { a.askPeers(ended) })
			}
			welcome, silence = true, 2*w.Silence
		}
		if peers, ok := m.(wire.Peers); ok {
			if a.cfg.Peers != nil {
				a.cfg.Peers(peers.Gateways)
			}
			continue
		}
		a.post(ctx, agentcore.Heard{Message: m})
	}
}

// askPeers asks the head which nodes there are, at once and then at growing intervals, until the
// connection ends. While the head is away the last answer counts.
func (a *agent) askPeers(ended <-chan struct{}) {
	for pause := firstPeers; ; pause = min(2*pause, peersTime) { // short at first: nodes are often started together
		a.link.send(wire.AskPeers{})
		select {
		case <-time.After(pause):
		case <-ended:
			return
		}
	}
}
