package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"muster/node/ask"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/socket"
	"muster/wire/status"
)

// A daemon that hands over leaves its clients like one that is killed, with these
// differences: it writes down all that it knows, tells programs that are being set up to
// come again, and releases its socket first, so that the next daemon can start at once.

// awaitEnd waits until the daemon is to end, and says whether it is to hand over.
func (d *daemon) awaitEnd(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return d.cfg.Handover && d.keeper != nil && !d.isKilled()
	case <-d.kills:
		return false
	case <-d.opts.Handover:
	case how := <-d.stopBy:
		if how != ask.StopToHandOver {
			return false
		}
	}
	if d.keeper == nil {
		d.log.Warn("the node keeps no state that another could take over (orphan_grace): it shuts down")
	}
	return d.keeper != nil
}

func (d *daemon) isKilled() bool {
	select {
	case <-d.opts.Kill:
		return true
	case <-d.kills:
		return true
	default:
		return false
	}
}

// listenToKill ends the daemon at once when it is told to.
func (d *daemon) listenToKill() {
	select {
	case <-d.opts.Kill:
		d.kill()
	case <-d.loop.Ended():
	}
}

func (d *daemon) kill() { d.killed.Do(func() { close(d.kills) }) }

// handOver leaves all clients to the next daemon.
func (d *daemon) handOver() {
	d.log.Info("the node hands over: programs go on", "wait for the next", d.cfg.OrphanGrace.String())
	d.left.Store(true)
	d.closing.Store(true)
	d.socket.Close()
	d.places.CloseWaiting()
	d.leaveServed()
	<-d.loop.Ended()
}

// rebuiltTime is how long a daemon that hands over waits for clients that have no worker
// at the moment, and lookRebuilt how often it looks.
const rebuiltTime, lookRebuilt = 10 * time.Second, 5 * time.Millisecond

// leaveServed leaves all clients once each has a worker: the files of a client without
// one exist only in this daemon. After rebuiltTime it leaves them anyway.
func (d *daemon) leaveServed() {
	late, look := time.NewTimer(rebuiltTime), time.NewTicker(lookRebuilt)
	defer late.Stop()
	defer look.Stop()
	for patient := true; ; {
		left := true
		d.loop.Ask(func() {
			for _, c := range d.clients {
				left = left && !(patient && c.isBetween())
			}
			if left {
				d.drain()
				d.leaveAll()
			}
		})
		if left {
			return
		}
		select {
		case <-look.C:
		case <-late.C:
			patient = false
		case <-d.kills:
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
func (d *daemon) leaveAll() {
	d.saveNode()
	for _, c := range d.clients {
		if !c.isKept() {
			d.end(c, refusal.ErrHandingOver.Reason, true)
			continue
		}
		d.save(c)
		c.closeWays()
		c.standing.Close()
		c.worker.Leave()
		if c.shared != nil {
			c.shared.Unmap()
		}
		if c.conn != nil {
			c.conn.Close()
		}
		delete(d.clients, c.id)
		close(c.gone)
	}
}

// closeFolder removes the state folder, unless the daemon leaves clients to the next
// one.
func (d *daemon) closeFolder() {
	if d.keeper == nil {
		return
	}
	if d.left.Load() {
		d.keeper.Leave()
		return
	}
	if err := d.keeper.Remove(); err != nil {
		d.log.Error("the node's state cannot be removed", "error", err)
	}
}

// --- the request ---------------------------------------------------------------

func (d *daemon) answerStop(who socket.Peer, line []byte) (any, error) {
	if err := d.rights.MayChange(who); err != nil {
		return nil, fmt.Errorf("only root and user %s, whose node it is, may stop it, not %s", d.rights.Own.Name, who.User.Name)
	}
	var r ask.StopRequest
	if err := requests.Strictly(line, &r); err != nil {
		return nil, err
	}
	switch r.How {
	case ask.StopGracefully, ask.StopNow:
	case ask.StopToHandOver:
		if d.keeper == nil {
			return nil, fmt.Errorf("the node keeps no state that another could take over: give it an orphan_grace above 0")
		}
	default:
		return nil, fmt.Errorf("how is %q: give %s", r.How, strings.Join([]string{ask.StopGracefully, ask.StopNow, ask.StopToHandOver}, ", "))
	}
	var answer status.Node
	if !d.loop.Ask(func() { answer = d.picture() }) {
		return nil, refusal.ErrShuttingDown
	}
	if r.How == ask.StopNow {
		d.kill()
	}
	select {
	case d.stopBy <- r.How:
	default: // it is ending already
	}
	return status.Stopping{How: r.How, Pid: answer.Pid, Clients: len(answer.Clients)}, nil
}
