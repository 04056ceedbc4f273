package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/door"
	"muster/node/ask"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/socket"
	"muster/node/survival"
	"muster/wire"
	"muster/wire/status"
)

// A daemon that hands over leaves its clients like one that is killed, with these
// differences: it writes down all that it knows, tells programs that are being set up to
// come again, and releases its socket first, so that the next daemon can start at once.

// ending is how the daemon ends.
type ending struct {
	common
	keeper   *survival.Keeper // nil: nothing outlives the daemon
	rights   requests.Rights
	places   *door.Places
	files    *files
	socket   *door.Listener
	mayLeave bool            // clients stay when the daemon is told to stop
	killing  <-chan struct{} // closed by those who start the daemon, as is handover
	handover <-chan struct{}

	end          func(c *client, reason string, kill bool)
	lookAtSpares func()
	picture      func() status.Node

	left    atomic.Bool   // the clients are left to the next daemon
	closing atomic.Bool   // no connection becomes a client any more
	stopBy  chan string   // how a request wants the daemon to end
	kills   chan struct{} // closed when the daemon is to end at once
	killed  sync.Once
}

// awaitEnd waits until the daemon is to end, and says whether it is to hand over.
func (e *ending) awaitEnd(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return e.mayLeave && e.keeper != nil && !e.isKilled()
	case <-e.kills:
		return false
	case <-e.handover:
	case how := <-e.stopBy:
		if how != ask.StopToHandOver {
			return false
		}
	}
	if e.keeper == nil {
		e.log.Warn("the node keeps no state that another could take over (orphan_grace): it shuts down")
	}
	return e.keeper != nil
}

func (e *ending) isKilled() bool {
	select {
	case <-e.killing:
		return true
	case <-e.kills:
		return true
	default:
		return false
	}
}

// listenToKill ends the daemon at once when it is told to.
func (e *ending) listenToKill() {
	select {
	case <-e.killing:
		e.kill()
	case <-e.loop.Ended():
	}
}

func (e *ending) kill() { e.killed.Do(func() { close(e.kills) }) }

// handOver leaves all clients to the next daemon.
func (e *ending) handOver() {
	e.log.Info("the node hands over: programs go on", "wait for the next", e.settings.Load().OrphanGrace.String())
	e.left.Store(true)
	e.closing.Store(true)
	e.socket.Close()
	e.places.CloseWaiting()
	e.leaveServed()
	<-e.loop.Ended()
}

// drainClients lets no more clients in and waits until all have gone. It ends the remaining ones
// after Config.Grace, or at once when the daemon is killed.
func (e *ending) drainClients() {
	patience := e.settings.Load().Grace
	e.log.Info("the node is shutting down", "grace", patience.String())
	e.closing.Store(true)
	e.places.CloseWaiting() // their programs connect again, and are told then
	e.loop.Do(e.drain)
	grace := time.NewTimer(patience)
	defer grace.Stop()
	const reason = "the node has been shut down"
	select {
	case <-e.loop.Ended():
	case <-grace.C:
		e.loop.Do(func() { e.endAll(reason, false) })
	case <-e.kills:
		e.loop.Do(func() { e.endAll(reason, true) })
	}
	select {
	case <-e.loop.Ended():
	case <-e.kills:
		e.loop.Do(func() { e.endAll(reason, true) })
		<-e.loop.Ended()
	}
}

// drain lets no more clients in.
func (e *ending) drain() {
	e.loop.Drain()
	e.lookAtSpares()
}

// endAll ends all clients.
func (e *ending) endAll(reason string, kill bool) {
	for _, c := range e.clients {
		e.end(c, reason, kill)
	}
}

// notNow says why a connection cannot become a client any more: the node hands over, or
// shuts down.
func (e *ending) notNow() *wire.Refused {
	if e.left.Load() {
		return refusal.ErrHandingOver
	}
	return refusal.ErrShuttingDown
}

// whyClosed says why no connection becomes a client any more; nil if they do.
func (e *ending) whyClosed() error {
	if e.closing.Load() {
		return e.notNow()
	}
	return nil
}

// rebuiltTime is how long a daemon that hands over waits for clients that have no worker
// at the moment, and lookRebuilt how often it looks.
const rebuiltTime, lookRebuilt = 10 * time.Second, 5 * time.Millisecond

// leaveServed leaves all clients once each has a worker: the files of a client without
// one exist only in this daemon. After rebuiltTime it leaves them anyway.
func (e *ending) leaveServed() {
	late, look := time.NewTimer(rebuiltTime), time.NewTicker(lookRebuilt)
	defer late.Stop()
	defer look.Stop()
	for patient := true; ; {
		left := true
		e.loop.Ask(func() {
			for _, c := range e.clients {
				left = left && !(patient && c.isBetween())
			}
			if left {
				e.drain()
				e.leaveAll()
			}
		})
		if left {
			return
		}
		select {
		case <-look.C:
		case <-late.C:
			patient = false
		case <-e.kills:
			patient = false
		}
	}
}

// isBetween says whether a client has no worker, or one that has ended or is about to:
// because the daemon has killed it, or because it has announced its end.
func (c *client) isBetween() bool {
	if c.ending {
		return false
	}
	return c.between || c.kept != nil && c.worker != nil && (c.why != "" || !c.worker.IsRunning())
}

// leaveAll writes down what is known of clients and forgets them. Clients that are still
// being set up end: their programs are told to try again.
func (e *ending) leaveAll() {
	e.files.saveNode()
	for _, c := range e.clients {
		if !c.isKept() {
			e.end(c, refusal.ErrHandingOver.Reason, true)
			continue
		}
		e.files.save(c)
		c.closeWays()
		c.standing.Close()
		c.worker.Leave()
		if c.shared != nil {
			c.shared.Unmap()
		}
		if c.conn != nil {
			c.conn.Close()
		}
		delete(e.clients, c.id)
		close(c.gone)
	}
}

// closeFolder removes the state folder, unless the daemon leaves clients to the next
// one.
func (e *ending) closeFolder() {
	if e.keeper == nil {
		return
	}
	if e.left.Load() {
		e.keeper.Leave()
		return
	}
	if err := e.keeper.Remove(); err != nil {
		e.log.Error("the node's state cannot be removed", "error", err)
	}
}

// --- the request ---------------------------------------------------------------

func (e *ending) answerStop(who socket.Peer, line []byte) (any, error) {
	if err := e.rights.MayChange(who); err != nil {
		return nil, fmt.Errorf("only root and user %s, whose node it is, may stop it, not %s", e.rights.Own.Name, who.User.Name)
	}
	var r ask.StopRequest
	if err := requests.Strictly(line, &r); err != nil {
		return nil, err
	}
	switch r.How {
	case ask.StopGracefully, ask.StopNow:
	case ask.StopToHandOver:
		if e.keeper == nil {
			return nil, fmt.Errorf("the node keeps no state that another could take over: give it an orphan_grace above 0")
		}
	default:
		return nil, fmt.Errorf("how is %q: give %s", r.How, strings.Join([]string{ask.StopGracefully, ask.StopNow, ask.StopToHandOver}, ", "))
	}
	var answer status.Node
	if !e.loop.Ask(func() { answer = e.picture() }) {
		return nil, refusal.ErrShuttingDown
	}
	if r.How == ask.StopNow {
		e.kill()
	}
	select {
	case e.stopBy <- r.How:
	default: // it is ending already
	}
	return status.Stopping{How: r.How, Pid: answer.Pid, Clients: len(answer.Clients)}, nil
}
