package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/head"
	"muster/head/quorum"
	"muster/policy"
	"muster/wire/api"
)

// How many events the core handles before its policy decides, and for how long; and how much may be
// collected for one transaction. When that much is collected, the loop takes nothing from the queue,
// and does no more of a large request, until the committer has taken it. The time limit is for lists of very many jobs, behind which
// other calls should not wait.
const (
	maxBatch        = 1024
	batchTime       = 10 * time.Millisecond
	maxCollected    = 32 << 20 // bytes of records
	maxCollectedAll = 100_000  // effects of all kinds
)

// collected is one transaction, and what follows once it is on disk.
type collected struct {
	head.Effects
	answered []answered
	bytes    int
}

// answered is an answer, and the call that waits for it.
type answered struct {
	call  *call
	index int // index of the event in the call; -1: the call was a look
	head.Answer
}

func (c *collected) full() bool {
	return c.bytes > maxCollected || len(c.Records)+len(c.Sends)+len(c.answered)+len(c.Changes)+len(c.Notices) > maxCollectedAll
}

func (c *collected) empty() bool {
	return len(c.Records)+len(c.Sends)+len(c.answered)+len(c.Changes)+len(c.HangUps)+len(c.Notices) == 0
}

// loop owns the core until ctx is done or the committer fails.
type loop struct {
	*daemon
	core    *head.Core
	waiting map[head.Request]answered // events whose answers the core has not given yet
	pending *collected
}

// run handles events, ticks and new settings one at a time, and hands what it has collected to the
// committer whenever that is idle: the send on commits succeeds only then.
func (l *loop) run(ctx context.Context) {
	l.pending, l.waiting = &collected{}, map[head.Request]answered{}
	timer := time.NewTimer(0) // a first tick, for what became due before the start
	defer timer.Stop()
	for {
		ready, tick, out := l.queue.ready, timer.C, (chan<- *collected)(nil)
		if l.pending.full() {
			ready, tick = nil, nil
		}
		if !l.pending.empty() {
			out = l.commits
		}
		select {
		case <-ready:
			l.handle()
		case out <- l.pending:
			l.pending = &collected{}
			continue // the core has not changed, so neither has the time of the next tick
		case <-tick:
			l.core.Handle(l.now(), head.Tick{})
			l.step()
		case again := <-l.configured:
			l.take(again)
			l.step()
		case loaded := <-l.newScripts():
			l.takeScript(loaded)
			l.step()
		case <-ctx.Done():
			l.leave()
			return
		case <-l.dead:
			return
		}
		if next := l.core.Next(); next == policy.Never {
			timer.Stop()
		} else {
			timer.Reset(max(0, min(next-l.now(), time.Hour)))
		}
	}
}

// leave hands the last transaction to the committer, and tells it to end.
func (l *loop) leave() {
	if !l.pending.empty() {
		select {
		case l.commits <- l.pending:
		case <-l.dead:
		}
	}
	close(l.commits)
}

// handle lets the core handle a batch of what waits in the queue, and then the policy decide.
func (l *loop) handle() {
	began := l.now()
	for range maxBatch {
		u, ok := l.queue.take()
		if !ok {
			break
		}
		l.one(u)
		if l.core.Full() || l.now()-began > batchTime {
			break
		}
	}
	if l.queue.waiting() > 0 {
		l.queue.wake()
	}
	l.step()
}

// one lets the core handle one event, or a caller look at the core.
func (l *loop) one(u unit) {
	if u.call.look != nil {
		select {
		case <-u.call.gone: // a look changes nothing
			return
		default:
		}
		l.settle() // so that everything the look can show is committed before it is answered
		u.call.look(l.core)
		l.pending.answered = append(l.pending.answered, answered{call: u.call, index: -1})
		return
	}
	if u.call.answers != nil {
		l.waiting[u.call.first+head.Request(u.event)] = answered{call: u.call, index: u.event}
	}
	l.core.Handle(l.now(), u.call.events[u.event])
	u.call.events[u.event] = nil // it may be large, and the call outlives it
}

// step lets the policy decide, and collects the effects.
func (l *loop) step() {
	l.core.Step(l.now())
	l.settle()
	l.tellTrouble()
}

// settle moves the core's effects to the pending transaction.
func (l *loop) settle() {
	e, p := l.core.Take(), l.pending
	for i := range e.Records {
		p.bytes += len(e.Records[i].Key) + len(e.Records[i].Value)
	}
	p.Records = append(p.Records, e.Records...)
	p.Sends = append(p.Sends, e.Sends...)
	p.Changes = append(p.Changes, e.Changes...)
	p.HangUps = append(p.HangUps, e.HangUps...)
	p.Notices = append(p.Notices, e.Notices...)
	for _, a := range e.Answers {
		w, ok := l.waiting[a.Request]
		if !ok {
			l.log.Error("the core answered what nobody asked: please report this", "request", a.Request)
			continue
		}
		delete(l.waiting, a.Request)
		w.Answer = a
		p.answered = append(p.answered, w)
	}
}

// committer writes the transactions of the loop, and after each carries out what waited for it.
func (d *daemon) committer() {
	defer close(d.committed)
	for c := range d.commits {
		began := d.Now()
		if err := d.write(c.Records); errors.Is(err, quorum.ErrDeposed) {
			d.depose()
			return
		} else if err != nil {
			d.fail(fmt.Errorf("the head cannot write to its disk, and ends: nothing that was not acknowledged is promised: %w", err))
			return
		}
		if len(c.Records) > 0 {
			d.metrics.commit(len(c.Records), c.bytes, d.Now().Sub(began))
		}
		d.letOut(c)
	}
}

func (d *daemon) write(records []head.Record) error {
	write := func() error { return d.store.Commit(records) }
	if d.term != nil { // without records, too: what was looked at is only true if no other head leads
		write = func() error { return d.term.Commit(records) }
	}
	if d.commit != nil {
		return d.commit(write)
	}
	return write()
}

// note logs changes of jobs and nodes, for debugging.
func (d *daemon) note(changes []api.Change) {
	if !d.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, c := range changes {
		if c.Job != nil {
			j := c.Job.ForOthers()
			d.log.Debug("a job has changed", "job", j.ID, "user", j.User, "state", j.State, "attempt", j.Attempt, "nodes", j.NodeList, "why", j.Why)
		}
		if n := c.Node; n != nil {
			d.log.Debug("a node has changed", "node", n.Name, "state", n.State, "reason", n.Reason)
		}
	}
}

// letOut does what may be done now that the records are on disk. This order is the core's contract:
// see head.Effects.
func (d *daemon) letOut(c *collected) {
	for i := range c.Sends {
		d.sessions.send(&c.Sends[i])
	}
	for _, a := range c.answered {
		if a.index >= 0 {
			a.call.answers[a.index] = a.Answer
			if a.call.left--; a.call.left > 0 {
				continue
			}
		}
		close(a.call.done)
	}
	d.listeners.publish(c.Changes)
	d.note(c.Changes)
	for _, s := range c.HangUps {
		d.sessions.hangUp(s)
	}
	d.sessions.noticed(c.Notices)
}
